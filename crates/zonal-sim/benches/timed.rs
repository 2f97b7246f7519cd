//! How fast is timed mode? Requests, 4 KiB of them, and events for each second of processor time,
//! with GC in its steady state (write amplification about 4) and without.
//!
//! Run it with `cargo bench -p zonal-sim --bench timed`. The cases take turns within each round, so
//! that what else the machine does meets all of them; medians are printed. Warming the drives up by
//! counting is not in the times.

#![expect(clippy::print_stdout, reason = "it is its result")]

use zonal::Clock;
use zonal_sim::config::{Kind, Pattern};
use zonal_sim::counting::{Counting, Drive};
use zonal_sim::ftl::Translation;
use zonal_sim::load::Workload;
use zonal_sim::timed::{Job, Outcome, Pacing, Reads, Timed, Until};
use zonal_sim::{Config, Size};

/// Rounds of which the median is taken.
const ROUNDS: usize = 7;

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

/// What is measured.
#[derive(Clone, Copy)]
struct Case {
    name: &'static str,
    kind: Kind,
    unit: u64,
    io: u64,
    write_depth: u32,
    read_depth: u32,
    /// Simulated seconds of one round.
    seconds: f64,
}

const CASES: [Case; 6] = [
    Case {
        name: "gc_write_64k",
        kind: Kind::Conventional,
        unit: 32 << 10,
        io: 64 << 10,
        write_depth: 32,
        read_depth: 0,
        seconds: 20.0,
    },
    Case {
        name: "gc_write_64k_unit_4k",
        kind: Kind::Conventional,
        unit: 4 << 10,
        io: 64 << 10,
        write_depth: 32,
        read_depth: 0,
        seconds: 10.0,
    },
    Case {
        name: "gc_write_8k_unit_4k",
        kind: Kind::Conventional,
        unit: 4 << 10,
        io: 8 << 10,
        write_depth: 32,
        read_depth: 0,
        seconds: 10.0,
    },
    Case {
        name: "gc_write_64k_read_4k",
        kind: Kind::Conventional,
        unit: 32 << 10,
        io: 64 << 10,
        write_depth: 32,
        read_depth: 1,
        seconds: 20.0,
    },
    Case {
        name: "read_4k",
        kind: Kind::Conventional,
        unit: 4 << 10,
        io: 64 << 10,
        write_depth: 0,
        read_depth: 32,
        seconds: 2.0,
    },
    Case {
        name: "zoned_write_64k",
        kind: Kind::Zns,
        unit: 32 << 10,
        io: 64 << 10,
        write_depth: 32,
        read_depth: 0,
        seconds: 10.0,
    },
];

/// A drive of 94 GiB with the superblocks of one of 2 TiB: 14.5 % of over-provisioning.
fn config(case: &Case) -> Config {
    let mut config = Config { seed: 1, ..Config::default() };
    config.flash = config.flash.shrunk(16);
    config.drive.kind = case.kind;
    config.drive.op = 0.1453;
    config.drive.unit = Size(case.unit);
    config.zones.spare = 4;
    config.workload.io = Size(case.io);
    config.workload.kind = if case.kind == Kind::Zns { Pattern::Zones } else { Pattern::Uniform };
    config
}

/// Something that can be measured again and again.
trait Measure {
    fn run(&mut self, seconds: f64) -> Outcome;
}

impl<T: Translation> Measure for Timed<T> {
    fn run(&mut self, seconds: f64) -> Outcome {
        Timed::run(self, Until::Seconds(seconds)).expect("generators do not fail")
    }
}

/// A drive in its steady state.
fn prepare(case: &Case) -> Box<dyn Measure> {
    let config = config(case);
    let mut counting = Counting::new(&config).expect("the config is possible");
    let units = u64::from(counting.drive().layout().user_units);
    let drive_writes = if case.kind == Kind::Zns { 1 } else { 5 };
    counting.until(drive_writes * units).expect("generators do not fail");
    let (drive, workload) = counting.into_parts();
    match drive {
        Drive::Page(drive) => timed(case, &config, *drive, workload),
        Drive::Zones(drive) => timed(case, &config, *drive, workload),
        Drive::Log(log) => timed(case, &config, *log, workload),
    }
}

fn timed<T: Translation + 'static>(
    case: &Case,
    config: &Config,
    drive: T,
    workload: Box<dyn Workload>,
) -> Box<dyn Measure> {
    let user = config.layout().expect("the config is possible").user_bytes();
    let reads = Reads { depth: case.read_depth, seed: 1 };
    let jobs = vec![
        Job::new("write", workload, Pacing::Depth(case.write_depth)),
        Job::random_reads("read", 0..user, 4096, reads),
    ];
    let mut timed = Timed::new(config, drive, jobs).expect("the config is possible");
    Measure::run(&mut timed, case.seconds / 4.0);
    Box::new(timed)
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

#[expect(clippy::cast_precision_loss, reason = "rates for people")]
fn main() {
    let only = std::env::args().skip(1).find(|argument| !argument.starts_with('-'));
    let chosen = |case: &&Case| only.as_ref().is_none_or(|only| case.name == only);
    let cases: Vec<&Case> = CASES.iter().filter(chosen).collect();
    let mut drives: Vec<Box<dyn Measure>> = cases.iter().map(|case| prepare(case)).collect();
    let mut rates: Vec<[Vec<f64>; 3]> = cases.iter().map(|_| Default::default()).collect();
    let mut wa = vec![0.0; cases.len()];
    for _ in 0..ROUNDS {
        for (at, case) in cases.iter().enumerate() {
            let begin_ns = ProcessorTime.monotonic_ns();
            let outcome = drives[at].run(case.seconds);
            let seconds = (ProcessorTime.monotonic_ns() - begin_ns) as f64 / 1e9;
            let requests = outcome.reads.count() + outcome.writes.count();
            let blocks = (outcome.read_bytes + outcome.written_bytes) / 4096;
            for (list, count) in rates[at].iter_mut().zip([requests, blocks, outcome.events]) {
                list.push(count as f64 / seconds);
            }
            wa[at] = outcome.wa();
        }
    }
    println!("for each second of processor time, medians of {ROUNDS} rounds");
    println!("{:24}{:>12}{:>14}{:>14}{:>8}", "", "requests", "4 KiB", "events", "wa");
    for ((case, rates), wa) in cases.iter().zip(&mut rates).zip(wa) {
        let [requests, blocks, events] = rates.each_mut().map(|list| median(list));
        println!("{:24}{requests:12.0}{blocks:14.0}{events:14.0}{wa:8.2}", case.name);
    }
}
