//! The guide's ways to spread a sweep over machines come to the same bytes as one machine does:
//! its scripts are run as they are printed there.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::path::Path;
use std::process::{Command, Output};

const SWEEP: [&str; 12] = [
    "sim",
    "sweep",
    "small",
    "--set",
    "drive.unit=64KiB",
    "--set",
    "workload.io=64KiB",
    "--over",
    "op=20..100:40",
    "--over",
    "victim=greedy,fifo",
    "--out",
];

/// The first script below a heading of the guide.
fn script(heading: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide/lab/sim-sweeps.md");
    let guide = std::fs::read_to_string(path).unwrap();
    let below = guide.split_once(heading).expect("the heading is there").1;
    let script = below.split_once("```sh\n").expect("a script").1;
    script.split_once("```").expect("its end").0.to_owned()
}

/// Runs a program in `folder` that finds our `zonal`.
fn run(program: &str, arguments: &[&str], folder: &Path, variables: &[(&str, &str)]) -> Output {
    let ours = Path::new(env!("CARGO_BIN_EXE_zonal")).parent().unwrap().display().to_string();
    let path = format!("{ours}:{}", std::env::var("PATH").unwrap());
    let mut command = Command::new(program);
    command.args(arguments).current_dir(folder).env("PATH", path).env("HOME", folder);
    let output = command.envs(variables.iter().copied()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {said}");
    output
}

/// The CSV of the whole sweep.
fn whole(folder: &Path) -> Vec<u8> {
    run("zonal", &[&SWEEP[..], &["whole.csv"]].concat(), folder, &[]);
    std::fs::read(folder.join("whole.csv")).unwrap()
}

#[test]
fn sweep_spreads_over_gnu_parallel() {
    let version = Command::new("parallel").arg("--version").output();
    let gnu = version.is_ok_and(|output| output.stdout.starts_with(b"GNU parallel"));
    if !gnu {
        println!("SKIP: GNU parallel is not installed");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    run("sh", &["-ec", &script("### GNU parallel")], folder.path(), &[]);
    assert!(std::fs::read(folder.path().join("all.csv")).unwrap() == whole(folder.path()));
}

#[test]
fn sweep_spreads_over_slurm_array() {
    let folder = tempfile::tempdir().unwrap();
    let script = script("### Slurm");
    assert!(script.starts_with("#!/bin/sh\n#SBATCH"));
    for index in ["3", "1", "2"] {
        let variables = [
            ("SLURM_ARRAY_TASK_ID", index),
            ("SLURM_ARRAY_TASK_COUNT", "3"),
            ("SLURM_CPUS_PER_TASK", "2"),
        ];
        run("sh", &["-ec", &script], folder.path(), &variables);
    }
    let parts = ["shard-1.csv", "shard-2.csv", "shard-3.csv"];
    let merge = [&["sim", "merge"], &parts[..], &["--out", "all.csv"]].concat();
    run("zonal", &merge, folder.path(), &[]);
    assert!(std::fs::read(folder.path().join("all.csv")).unwrap() == whole(folder.path()));
    // Nobody merges over what is there, or only a part.
    let fails = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_zonal"));
        let again = command.args(arguments).current_dir(folder.path()).output().unwrap();
        assert!(!again.status.success(), "{again:?}");
        String::from_utf8(again.stderr).unwrap()
    };
    let said = fails(&["sim", "merge", "shard-1.csv", "shard-2.csv", "--out", "part.csv"]);
    assert!(said.contains("4 of 6 runs"), "{said}");
    let said = fails(&merge);
    assert!(said.contains("try: another name") && !said.contains("--force"), "{said}");
}
