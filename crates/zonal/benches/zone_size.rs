//! What does a zone size cost? 128 MiB zones, 96 MiB zones, and 96 MiB zones under `PowerOfTwo`,
//! on a drive in memory: sequential write, sequential read and random read of 4 KiB, with 4 and 8
//! threads.
//!
//! Run it with `cargo bench -p zonal --bench zone_size`. The three drives take turns within each
//! round, so that what else the machine does meets all of them; the medians are printed, and the
//! median of the ratios of each round. Time is processor time of all threads: on a drive in memory
//! that is all there is, and it does not count what other programs take.
//! The benchmark starts itself again with an allocator that keeps what a reset frees: otherwise the
//! writes measure the kernel's page faults. Times still move by some percent;
//! the number of instructions of one operation, which does not move, follows where valgrind is
//! installed.

#![expect(clippy::print_stdout, reason = "it is its result")]

use std::process::Command;

use zonal::layer::po2::PowerOfTwo;
use zonal::profile::Changes;
use zonal::workload::{Latency, Pattern, Stop, Workload, prepare, run};
use zonal::{Clock, LbaCount, ManualClock, MemoryDrive, ZoneId, ZonedDevice};

const DRIVES: [&str; 3] = ["128 MiB", "96 MiB", "PowerOfTwo"];
const PATTERNS: [(&str, Pattern); 3] = [
    ("write_4k", Pattern::Write),
    ("read_4k", Pattern::Read),
    ("random_read_4k", Pattern::RandomRead),
];
/// glibc's setting for when freed memory goes back to the kernel.
const KEEP_MEMORY: &str = "MALLOC_TRIM_THRESHOLD_";
const ROUNDS: usize = 31;
/// Operations of all threads together in one turn of one drive.
const OPERATIONS: u64 = 40_000;

/// Processor time of this process.
struct ProcessorTime;

impl Clock for ProcessorTime {
    fn wall_ns(&self) -> i64 {
        0
    }
    fn monotonic_ns(&self) -> u64 {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
        let ns = time.tv_sec * 1_000_000_000 + time.tv_nsec;
        u64::try_from(ns).expect("processor time is not negative")
    }
}

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

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
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
    let mut times = DRIVES.map(|_| Vec::new());
    for round in 0..=ROUNDS {
        for turn in 0..DRIVES.len() {
            let at = (round + turn) % DRIVES.len();
            let drive = drives[at].as_deref().expect("every drive is in the order");
            let measured = run(drive, &ProcessorTime, &workload).expect("a drive in memory works");
            if round > 0 {
                times[at].push(measured.time_ns as f64 / measured.operations as f64);
            }
        }
    }
    let ratio = |above: usize, below: usize| {
        median(times[above].iter().zip(&times[below]).map(|(above, below)| above / below).collect())
    };
    let ratios = [ratio(1, 0), ratio(2, 1)];
    (times.map(median), ratios)
}

/// Instructions in user space of one operation: those of a long run less those of a short one.
#[expect(clippy::cast_precision_loss, reason = "a count for people")]
fn instructions(pattern: &str, drive: &str) -> Option<f64> {
    let (short, long) = (20_000, 60_000);
    let count = |operations| count_instructions(pattern, drive, operations);
    Some((count(long)? as f64 - count(short)? as f64) / (long - short) as f64)
}

/// Instructions of a whole run, counted by callgrind, which needs no counters of the processor.
fn count_instructions(pattern: &str, drive: &str, operations: u64) -> Option<u64> {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(std::env::current_exe().ok()?)
        .args(["--only", pattern, drive, &operations.to_string()])
        .output()
        .ok()?;
    let text = String::from_utf8_lossy(&output.stderr);
    let (_, count) = text.split_once("Collected : ")?;
    count.split_whitespace().next()?.parse().ok()
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    if let Some(at) = arguments.iter().position(|argument| argument == "--only") {
        let [pattern, name, operations] = &arguments[at + 1..at + 4] else {
            panic!("--only PATTERN DRIVE OPERATIONS")
        };
        let (_, pattern) = PATTERNS
            .into_iter()
            .find(|(name, _)| name == pattern)
            .expect("the pattern is one of ours");
        let (drive, operations) = (drive(name), operations.parse().expect("a number"));
        // Little data: under valgrind, filling the drive takes longer than reading it.
        let workload = Workload { span: LbaCount::new(1_024), ..workload(pattern, 1, operations) };
        prepare(&*drive, &workload).expect("a drive in memory takes this");
        // Not timed: valgrind has no place for the fast clock of rustix.
        run(&*drive, &ManualClock::new(0), &workload).expect("a drive in memory works");
        return;
    }
    if std::env::var_os(KEEP_MEMORY).is_none() {
        let again = std::env::current_exe().expect("a program knows its path");
        let limit = (1_u64 << 40).to_string();
        let status = Command::new(again)
            .env(KEEP_MEMORY, &limit)
            .env("MALLOC_MMAP_THRESHOLD_", &limit)
            .env("MALLOC_TOP_PAD_", (64 << 20).to_string())
            .status();
        let succeeded = status.is_ok_and(|status| status.success());
        std::process::exit(i32::from(!succeeded));
    }
    println!("ns of processor time per operation; ratio to 128 MiB zones; 3 × {ROUNDS} rounds");
    println!("{:24}{:>10}{:>18}{:>18}", "", DRIVES[0], DRIVES[1], "PowerOfTwo/96 MiB");
    for (name, pattern) in PATTERNS {
        for threads in [1, 4, 8] {
            let ([native, odd, adapted], [size, layer]) = compare(pattern, threads);
            let name = format!("{name}_qd{threads}");
            println!("{name:24}{native:10.1}{odd:10.1}{size:8.3}{adapted:10.1}{layer:8.3}");
        }
    }
    println!("\ninstructions per operation (valgrind --tool=callgrind)");
    for (name, _) in PATTERNS {
        match DRIVES.map(|drive| instructions(name, drive)) {
            [Some(native), Some(odd), Some(adapted)] => println!(
                "{name:24}{native:10.1}{odd:10.1}{:8.3}{adapted:10.1}{:8.3}",
                odd / native,
                adapted / odd,
            ),
            _ => println!("{name:24}valgrind is not there"),
        }
    }
}
