//! The quick variant of `cargo xtask bench kv --only simulated`, with the `db_bench` of this
//! machine.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "this is test code")]

use std::path::Path;
use std::process::Command;

use bench_support::{Results, median};

#[test]
fn bench_simulated_quick_compares_rocksdb_on_every_drive() {
    if !Path::new("/usr/bin/db_bench").exists() {
        println!("skipped: no db_bench; it is in Debian's package rocksdb-tools");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("results.json");
    let mut command = Command::new(env!("CARGO_BIN_EXE_kv-bench"));
    command.args(["--only", "simulated", "--quick", "--json"]).arg(&json);
    command.arg("--pictures").arg(folder.path());
    let ended = command.output().unwrap();
    let text = String::from_utf8_lossy(&ended.stdout);
    assert!(ended.status.success(), "{text}{}", String::from_utf8_lossy(&ended.stderr));
    let results = Results::read(&json).unwrap();
    let run = results.runs.iter().find(|run| run.subject == "simulated").unwrap();
    let value = |name: &str, variant: &str| {
        let found = run.results.iter().find(|one| one.name == name && one.variant == variant);
        median(&found.unwrap_or_else(|| panic!("{name}, {variant}: {text}")).samples)
    };
    let used = "in place without TRIM, drive full before";
    for name in ["Furrow, ZNS", "plugin on zonefs, ZNS", "in place with TRIM, conventional", used] {
        let (fill, over) =
            (value(name, "fillrandom, thousand/s"), value(name, "overwrite, thousand/s"));
        assert!((50.0..104.0).contains(&fill) && (50.0..104.0).contains(&over), "{text}");
        assert!(value(name, "read, p50, µs") < value(name, "p99, µs"), "{text}");
    }
    // GC moves data of the drive that believes all of it to live; the zoned one moves nothing.
    assert!(value(used, "drive's") > 1.5 && value("Furrow, ZNS", "drive's") < 1.05, "{text}");
    let picture = std::fs::read_to_string(folder.path().join("kv-flash.svg")).unwrap();
    assert!(picture.contains("published: ZenFS, ZN540"), "{picture}");
}
