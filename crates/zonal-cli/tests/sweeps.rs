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

#[test]
fn amplification_of_nothing_is_empty() {
    let folder = tempfile::tempdir().unwrap();
    let reads = "128166372003061629,host,0,Read,7014609920,24576,41286\n";
    std::fs::write(folder.path().join("reads.csv"), reads).unwrap();
    std::fs::write(folder.path().join("writes.csv"), reads.replace("Read", "Write")).unwrap();
    let printed = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        String::from_utf8(run("zonal", &words, folder.path(), &[]).stdout).unwrap()
    };
    let timed = "--set run.mode=timed --set run.seconds=1";
    let unmeasured = "--set run.drive_writes=1 --set run.warm_up=1";
    for line in ["sim replay reads.csv".to_owned(), format!("sim run small {unmeasured}")] {
        let text = printed(&line);
        let wa = text.lines().find(|text| text.starts_with("wa ")).expect(&line);
        assert!(wa.ends_with("– (nothing was written while measuring)"), "{line}: {wa}");
        let json: serde_json::Value =
            serde_json::from_str(&printed(&format!("{line} --json"))).unwrap();
        for name in ["wa", "drive_wa", "flash_per_asked_byte"] {
            assert!(json[name].is_null(), "{line}: {name} is {}", json[name]);
        }
    }
    let json = printed(&format!("sim replay reads.csv --json {timed}"));
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert!(json["wa"].is_null(), "{}", json["wa"]);
    printed(&format!("sim sweep small {unmeasured} --over op=20,40 --out out.csv"));
    let text = std::fs::read_to_string(folder.path().join("out.csv")).unwrap();
    let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split(',').collect()).collect();
    let column = rows[0].iter().position(|name| *name == "wa").unwrap();
    assert_eq!([rows[1][column], rows[2][column]], ["", ""], "{text}");
    let files = printed(&format!("sim fs files {unmeasured}"));
    assert!(files.ends_with("–: nothing was written while measuring\n"), "{files}");
    for option in ["--loops 0", "--drive-writes 0", "--drive-writes -1", "--drive-writes nan"] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_zonal"));
        command.args(format!("sim replay writes.csv {option}").split(' '));
        let output = command.current_dir(folder.path()).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{option}");
    }
}
