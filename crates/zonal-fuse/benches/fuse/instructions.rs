//! Instructions of one operation, of the library and of the bare device below it, in memory.
//!
//! They do not depend on other programs on the machine.

use std::sync::Arc;

use bench_support::{Report, callgrind};
use zonal::ManualClock;
use zonal_fs::zonefs::{MkfsOptions, MountOptions, ZoneFs, mkfs};

use crate::daemon;
use crate::target::{Kind, Op, Target};
use crate::zone_files::{fill, work};

const ROWS: [(&str, Op, usize); 4] = [
    ("4 KiB write", Op::Write, 4 << 10),
    ("128 KiB write", Op::Write, 128 << 10),
    ("4 KiB random read", Op::RandomRead, 4 << 10),
    ("128 KiB random read", Op::RandomRead, 128 << 10),
];
const TARGETS: [&str; 2] = ["device", "library"];

/// Reports the counts.
pub(crate) fn count(report: &mut Report) {
    report.subject("instructions", 1);
    for (name, _, bytes) in ROWS {
        let long = (16 << 20) / bytes as u64;
        for target in TARGETS {
            let what = format!("{name} of the {target}");
            match callgrind::per_operation(&what, (long / 4, long)) {
                Some(count) => report.add_variant((name, target), "instructions", &[count]),
                None => println!("SKIP {what}: instructions need valgrind"),
            }
        }
    }
}

/// Does the work whose instructions are counted, if this process was started for it; returns
/// whether it was.
pub(crate) fn are_counted() -> bool {
    let Some((what, operations)) = callgrind::requested() else { return false };
    run(&what, operations);
    true
}

/// Does a row of a target.
fn run(what: &str, operations: u64) {
    let (row, target) = what.split_once(" of the ").expect("a row of the target");
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
    work(&target.open(0, op), op, bytes, operations, 0);
}
