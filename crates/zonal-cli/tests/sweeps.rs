//! Sweeps and replays by the command: the guide's way to spread a sweep, and runs without writes.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::path::Path;
use std::process::{Command, Output};

/// The first script below a heading of the guide.
fn script(heading: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide/lab/sim-sweeps.md");
    let guide = std::fs::read_to_string(path).unwrap();
    let below = guide.split_once(heading).expect("the heading is there").1;
    let script = below.split_once("```sh\n").expect("a script").1;
    script.split_once("```").expect("its end").0.to_owned()
}

/// Runs a program in `folder` that finds our `zonal`.
fn run(program: &str, arguments: &[&str], folder: &Path) -> Output {
    let ours = Path::new(env!("CARGO_BIN_EXE_zonal")).parent().unwrap().display().to_string();
    let path = format!("{ours}:{}", std::env::var("PATH").unwrap());
    let mut command = Command::new(program);
    command.args(arguments).current_dir(folder).env("PATH", path).env("HOME", folder);
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {said}");
    output
}

#[test]
fn sweep_spreads_over_processes() {
    let folder = tempfile::tempdir().unwrap();
    run("sh", &["-ec", &script("## More machines")], folder.path());
    let text = std::fs::read_to_string(folder.path().join("all.csv")).unwrap();
    let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split(',').collect()).collect();
    let column = |name: &str| rows[0].iter().position(|column| *column == name).expect(name);
    let swept = |row: &Vec<&str>| format!("{} {}", row[column("op")], row[column("victim")]);
    let expected: Vec<String> = ["20", "60", "100"]
        .iter()
        .flat_map(|op| ["greedy", "fifo"].map(|victim| format!("{op} {victim}")))
        .collect();
    assert_eq!(rows[1..].iter().map(swept).collect::<Vec<_>>(), expected, "{text}");
    for row in &rows[1..] {
        assert!(row[column("wa")].parse::<f64>().is_ok_and(|wa| wa > 1.0), "{text}");
    }
}

#[test]
fn amplification_of_nothing_is_empty() {
    let folder = tempfile::tempdir().unwrap();
    let reads = "128166372003061629,host,0,Read,7014609920,24576,41286\n";
    std::fs::write(folder.path().join("reads.csv"), reads).unwrap();
    std::fs::write(folder.path().join("writes.csv"), reads.replace("Read", "Write")).unwrap();
    let printed = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        String::from_utf8(run("zonal", &words, folder.path()).stdout).unwrap()
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
