//! Instructions of one operation, of the library and of the bare device below it, in memory.
//!
//! Counted by callgrind, which needs no counters of the processor: those of a long run less those
//! of a short one. They do not depend on what else the machine does.

use std::process::Command;
use std::sync::Arc;

use zonal::ManualClock;
use zonal_fs::zonefs::{MkfsOptions, MountOptions, ZoneFs, mkfs};

use crate::daemon;
use crate::target::{Kind, Op, Target};
use crate::zone_files::{fill, work};

/// What this process is to do while its instructions are counted.
const COUNT: &str = "ZONAL_BENCH_COUNT";

const ROWS: [(&str, Op, usize); 4] = [
    ("write_4k", Op::Write, 4 << 10),
    ("write_128k", Op::Write, 128 << 10),
    ("random_read_4k", Op::RandomRead, 4 << 10),
    ("random_read_128k", Op::RandomRead, 128 << 10),
];
const TARGETS: [&str; 2] = ["device", "library"];

/// Prints the counts.
pub(crate) fn print() {
    println!("instructions per operation in memory (valgrind --tool=callgrind)\n");
    for (name, _, bytes) in ROWS {
        let long = (16 << 20) / bytes as u64;
        match TARGETS.map(|target| of_one(name, target, long)) {
            [Some(device), Some(library)] => println!(
                "    {name:26}device {device:9.1}   library {library:9.1}{:8.3}",
                library / device
            ),
            _ => println!("    {name:26}valgrind is not there"),
        }
    }
    println!();
}

fn of_one(row: &str, target: &str, long: u64) -> Option<f64> {
    let short = long / 4;
    let count = |operations| count(row, target, operations);
    Some((count(long)? as f64 - count(short)? as f64) / (long - short) as f64)
}

fn count(row: &str, target: &str, operations: u64) -> Option<u64> {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(std::env::current_exe().ok()?)
        .env(COUNT, format!("{row} {target} {operations}"))
        .output()
        .ok()?;
    let text = String::from_utf8_lossy(&output.stderr);
    let (_, count) = text.split_once("Collected : ")?;
    count.split_whitespace().next()?.parse().ok()
}

/// Whether this process is one whose instructions are counted; if so, its work is done by then.
pub(crate) fn are_asked_for() -> bool {
    let Some(what) = std::env::var_os(COUNT) else { return false };
    run(&what.into_string().expect("we have set it"));
    true
}

/// Does what `what` says: row, target, operations.
fn run(what: &str) {
    let words: Vec<&str> = what.split(' ').collect();
    let [row, target, operations] = words[..] else { panic!("row, target, operations") };
    let (_, op, bytes) =
        ROWS.into_iter().find(|(name, ..)| *name == row).expect("the row is one of ours");
    let device = daemon::zones("mem:", "".as_ref());
    mkfs(&*device, &MkfsOptions::default(), &mut |_| ()).expect("formatted");
    let kind = if target == TARGETS[0] {
        Kind::Device(device)
    } else {
        // Not the machine's clock: valgrind has no place for the fast one.
        let clock = Arc::new(ManualClock::new(0));
        Kind::Library(Arc::new(
            ZoneFs::mount(device, clock, MountOptions::default()).expect("mounted"),
        ))
    };
    let target = Target { name: "", kind, daemon: None };
    if op == Op::RandomRead {
        fill(&target, 0);
    }
    work(&target.open(0, op), op, bytes, operations.parse().expect("a number"), 0);
}
