//! How a run can end: killed, without power, on a full drive.

use std::io::Read;
use std::process::Stdio;

use crate::place::{Kind, Place, finished, output};

const SEQUENTIAL: [&str; 4] =
    ["--benchmarks=fillseq", "--value_size=1000", "--compression_type=none", "--seed=1"];

#[test]
fn kill_keeps_what_was_put() {
    Kind::ALL.into_iter().for_each(kill);
}

fn kill(kind: Kind) {
    let Some(place) = Place::new(kind, "zone=4M,zones=128") else { return };
    let mut run = place.db_bench();
    run.args(SEQUENTIAL).args(["--num=100000000", "--write_buffer_size=1048576"]);
    let mut child = run.stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let mut reports = child.stderr.take().unwrap();
    let (mut report, mut piece) = (String::new(), [0; 4096]);
    // Long enough for several tables, and for much unsynced data.
    while finished(&report) < 20_000 {
        let read = reports.read(&mut piece).unwrap();
        assert_ne!(read, 0, "it has ended: {report}");
        report += &String::from_utf8_lossy(&piece[..read]);
    }
    child.kill().unwrap();
    child.wait().unwrap();
    reports.read_to_string(&mut report).unwrap();
    let reported = finished(&report);
    assert!(!place.is_memory_empty(), "it was not closed");
    let keys = place.count_keys();
    assert!(keys >= reported, "{keys} keys of {reported} that were put");
    let last = output(place.ldb().args([
        "scan",
        "--hex",
        "--no_value",
        &format!("--from=0x{:016X}", keys - 1),
    ]));
    assert_eq!(
        last.lines().filter(|line| line.starts_with("0x")).count(),
        1,
        "a key is missing in between: {last}"
    );
    place.check();
}

#[test]
fn power_cut_keeps_synced_puts() {
    Kind::ALL.into_iter().for_each(cut_power);
}

fn cut_power(kind: Kind) {
    let Some(place) = Place::new(kind, "zone=4M,zones=128") else { return };
    let mut most = 0;
    for (seed, nth) in [(1, 700), (2, 1900), (3, 2500), (4, 3111)] {
        let layer = format!("fault(write,nth={nth},power-cut;seed={seed}):");
        // Memory does not survive it either.
        let uri = place.uri_through(&layer, "unsynced=off");
        let mut run = place.db_bench_at(&uri);
        run.args(SEQUENTIAL).args(["--num=100000", "--sync=1", "--write_buffer_size=262144"]);
        let ended = run.output().unwrap();
        let report = String::from_utf8_lossy(&ended.stderr);
        assert!(!ended.status.success(), "seed {seed}: the power was not cut");
        let keys = place.count_keys();
        place.check();
        let reported = finished(&report);
        assert!(
            keys >= reported,
            "seed {seed}: {keys} keys of {reported} that were synced\n{report}"
        );
        most = most.max(reported);
    }
    assert!(most >= 100, "only {most} puts before any cut");
}

#[test]
fn full_drive_is_reported_and_recovers_with_room() {
    Kind::ALL.into_iter().for_each(fill_with_ballast);
}

fn fill_with_ballast(kind: Kind) {
    // Zones as small as a table: on zonefs each table takes whole ones.
    let Some(place) = Place::new(kind, "zone=1M,zones=256") else { return };
    let few = ["--num=2000", "--write_buffer_size=1048576"];
    output(place.db_bench().args(SEQUENTIAL).args(few));
    let volume = place.mount();
    let ballast = volume.create("/ballast").unwrap();
    let mut end = 0;
    let piece = vec![1; 1 << 20];
    while ballast.write_all_at(&piece, end).is_ok() {
        end += piece.len() as u64;
    }
    let free = volume.space().unwrap();
    assert!(free.blocks_free * u64::from(free.block_size) < 2 << 20);
    drop(ballast);
    volume.close().unwrap();
    let again =
        ["--benchmarks=overwrite", "--use_existing_db=1", "--num=20000", "--value_size=1000"];
    let again = [&again[..], &["--compression_type=none", "--write_buffer_size=1048576"]].concat();
    let refused = place.db_bench().args(&again).output().unwrap();
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && said.contains("No space left"), "{said}");
    let volume = place.mount();
    volume.remove_file("/ballast").unwrap();
    volume.close().unwrap();
    output(place.db_bench().args(&again));
    // The keys from before the drive was full, and the keys from after it.
    assert!(place.count_keys() > 10_000);
    place.check();
}

#[test]
fn filled_drive_goes_on_and_opens_again() {
    for kind in Kind::ALL {
        let Some(place) = Place::new(kind, "zone=1M,zones=64") else { return };
        let program = place.compile("tests/db/full.cc");
        let said = output(place.compiled(&program).arg(place.uri()));
        assert_eq!(said.matches("No space left on device").count(), 3, "{said}");
        assert!(said.contains("opened again"), "{said}");
        place.check();
    }
}
