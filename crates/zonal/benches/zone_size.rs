//! The cost of a zone size: 128 MiB zones, 96 MiB zones, and 96 MiB zones under `PowerOfTwo`, on a
//! drive in memory: sequential write, sequential read and random read of 4 KiB, with 4 and 8
//! threads.
//!
//! Run it with `cargo bench -p zonal --bench zone_size`. The three drives take turns within each
//! round, so that other load of the machine meets all of them; it prints the medians, and the
//! median of the ratios of each round. Time is processor time of all threads: on a drive in memory
//! that is all there is, and it leaves out other programs. The benchmark starts itself again with
//! an allocator that keeps the memory that a reset frees: otherwise the writes measure the kernel's
//! page faults. Times still move by some percent; the number of instructions of one operation,
//! which does not move, follows where valgrind is installed.

#![expect(clippy::print_stdout, reason = "it is its result")]

use bench_support::{
    ProcessorTime, Report, WarmUp, callgrind, interleave, keep_freed, median, ratio,
};
use zonal::layer::po2::PowerOfTwo;
use zonal::profile::Changes;
use zonal::workload::{Latency, Pattern, Stop, Workload, prepare, run};
use zonal::{LbaCount, ManualClock, MemoryDrive, ZoneId, ZonedDevice};

const DRIVES: [&str; 3] = ["128 MiB", "96 MiB", "PowerOfTwo"];
const PATTERNS: [(&str, Pattern); 3] = [
    ("sequential write", Pattern::Write),
    ("sequential read", Pattern::Read),
    ("random read", Pattern::RandomRead),
];
const ROUNDS: usize = 31;
/// Operations of all threads together in one turn of one drive.
const OPERATIONS: u64 = 40_000;
/// Operations of a short and of a long run whose instructions are counted.
const COUNTED: (u64, u64) = (20_000, 60_000);

fn drive(name: &str) -> Box<dyn ZonedDevice> {
    let zone = if name == DRIVES[0] { "128M" } else { "96M" };
    let changes = format!("zones=10,zone={zone}").parse::<Changes>().expect("options are right");
    let spec = changes.geometry().expect("the shape is possible");
    let drive = MemoryDrive::new(spec).expect("the shape is possible");
    // Boxed once more, so that the drives differ in the layer alone.
    if name == DRIVES[2] {
        let adapted = PowerOfTwo::new(drive).expect("the shape is possible");
        return Box::new(adapted);
    }
    Box::new(drive)
}

fn workload(pattern: Pattern, threads: u32, operations: u64) -> Workload {
    Workload {
        pattern,
        blocks: LbaCount::new(1),
        threads,
        zones: (0..8).map(ZoneId::new).collect(),
        // The same number of bytes on each drive: 48 MiB of each zone.
        span: LbaCount::new(12_288),
        stop: Stop::AfterOperations(operations / u64::from(threads)),
        latency: Latency::Skip,
        seed: 1,
    }
}

/// Times of the drives, and ratios of them.
type Comparison = ([f64; 3], [f64; 2]);

/// Times of the drives, and the ratios of the second to the first and of the third to the second.
/// Which drive is filled first has a hand in how its memory lies, by up to a third; so this is done
/// with each drive in each place, and the results are averaged.
fn compare(pattern: Pattern, threads: u32) -> Comparison {
    let orders = [[0, 1, 2], [1, 2, 0], [2, 0, 1]];
    let results = orders.map(|order| compare_once(pattern, threads, order));
    let mean = |value: fn(&Comparison, usize) -> f64, at: usize| {
        results.iter().map(|result| value(result, at)).product::<f64>().cbrt()
    };
    let times = std::array::from_fn(|at| mean(|result, at| result.0[at], at));
    (times, std::array::from_fn(|at| mean(|result, at| result.1[at], at)))
}

#[expect(clippy::cast_precision_loss, reason = "a time for people")]
fn compare_once(pattern: Pattern, threads: u32, order: [usize; 3]) -> Comparison {
    let workload = workload(pattern, threads, OPERATIONS);
    let mut drives = [None, None, None];
    for at in order {
        let drive = drive(DRIVES[at]);
        prepare(&*drive, &workload).expect("a drive in memory takes this");
        drives[at] = Some(drive);
    }
    let times = interleave(ROUNDS, DRIVES.len(), WarmUp::Round, |at| {
        let drive = drives[at].as_deref().expect("every drive is in the order");
        let measured = run(drive, &ProcessorTime, &workload).expect("a drive in memory works");
        Some(measured.time_ns as f64 / measured.operations as f64)
    });
    let ratios = [ratio(&times[1], &times[0]), ratio(&times[2], &times[1])];
    (std::array::from_fn(|at| median(&times[at])), ratios)
}

/// Runs the part that callgrind counts: a pattern on a drive.
fn count(what: &str, operations: u64) {
    let (pattern, name) = what.split_once(" on ").expect("a pattern on a drive");
    let known = PATTERNS.into_iter().find(|(name, _)| *name == pattern);
    let (drive, (_, pattern)) = (drive(name), known.expect("the pattern is one of ours"));
    // Little data: under valgrind, filling the drive takes longer than reading it.
    let workload = Workload { span: LbaCount::new(1_024), ..workload(pattern, 1, operations) };
    prepare(&*drive, &workload).expect("a drive in memory takes this");
    run(&*drive, &ManualClock::new(0), &workload).expect("a drive in memory works");
}

fn main() {
    if let Some((what, operations)) = callgrind::requested() {
        return count(&what, operations);
    }
    keep_freed();
    let mut arguments = std::env::args().skip(1).collect();
    let command = "cargo bench -p zonal --bench zone_size";
    let mut report = Report::begin(command, &mut arguments);
    report.subject("zone size", 3 * ROUNDS);
    for (name, pattern) in PATTERNS {
        for threads in [1, 4, 8] {
            let (times, [size, layer]) = compare(pattern, threads);
            let name = format!("{name}, {threads} threads");
            for (drive, time) in DRIVES.into_iter().zip(times) {
                report.add_variant((&name, drive), "ns", &[time]);
            }
            report.add_variant((&name, "96 MiB ÷ 128 MiB"), "ratio", &[size]);
            report.add_variant((&name, "PowerOfTwo ÷ 96 MiB"), "ratio", &[layer]);
        }
    }
    report.subject("zone size, instructions", 1);
    for (name, _) in PATTERNS {
        for drive in DRIVES {
            match callgrind::per_operation(&format!("{name} on {drive}"), COUNTED) {
                Some(count) => report.add_variant((name, drive), "instructions", &[count]),
                None => println!("SKIP {name} on {drive}: instructions need valgrind"),
            }
        }
    }
    report.end();
}
