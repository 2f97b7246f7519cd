//! How fast is timed mode? Requests, 4 KiB of them, and events for each second of processor time,
//! with GC in its steady state (write amplification about 4) and without.
//!
//! Run it with `cargo bench -p zonal-sim --bench timed`. The cases take turns within each round, so
//! that other load of the machine meets all of them; the bench prints medians. The times leave out
//! warming the drives up by counting.

use bench_support::{Report, WarmUp, interleave, timed};
use zonal_sim::config::{Kind, Pattern};
use zonal_sim::counting::{Counting, Drive};
use zonal_sim::ftl::Translation;
use zonal_sim::load::Workload;
use zonal_sim::timed::{Job, Outcome, Pacing, Reads, Timed, Until};
use zonal_sim::{Config, Size};

/// Rounds of which the median is taken.
const ROUNDS: usize = 7;

/// A drive and its load.
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
        name: "writes of 64 KiB, GC, unit of 32 KiB",
        kind: Kind::Conventional,
        unit: 32 << 10,
        io: 64 << 10,
        write_depth: 32,
        read_depth: 0,
        seconds: 20.0,
    },
    Case {
        name: "writes of 64 KiB, GC, unit of 4 KiB",
        kind: Kind::Conventional,
        unit: 4 << 10,
        io: 64 << 10,
        write_depth: 32,
        read_depth: 0,
        seconds: 10.0,
    },
    Case {
        name: "writes of 8 KiB, GC, unit of 4 KiB",
        kind: Kind::Conventional,
        unit: 4 << 10,
        io: 8 << 10,
        write_depth: 32,
        read_depth: 0,
        seconds: 10.0,
    },
    Case {
        name: "writes of 64 KiB, GC, beside reads of 4 KiB",
        kind: Kind::Conventional,
        unit: 32 << 10,
        io: 64 << 10,
        write_depth: 32,
        read_depth: 1,
        seconds: 20.0,
    },
    Case {
        name: "reads of 4 KiB",
        kind: Kind::Conventional,
        unit: 4 << 10,
        io: 64 << 10,
        write_depth: 0,
        read_depth: 32,
        seconds: 2.0,
    },
    Case {
        name: "zoned, writes of 64 KiB",
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
        Drive::Page(drive) => in_time(case, &config, *drive, workload),
        Drive::Zones(drive) => in_time(case, &config, *drive, workload),
        Drive::Log(log) => in_time(case, &config, *log, workload),
    }
}

fn in_time<T: Translation + 'static>(
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

#[expect(clippy::cast_precision_loss, reason = "rates for people")]
fn main() {
    let mut arguments = std::env::args().skip(1).collect();
    let command = "cargo bench -p zonal-sim --bench timed";
    let mut report = Report::begin(command, &mut arguments);
    let chosen =
        |case: &&Case| arguments.first().is_none_or(|only| case.name.contains(only.as_str()));
    let cases: Vec<&Case> = CASES.iter().filter(chosen).collect();
    let mut drives: Vec<Box<dyn Measure>> = cases.iter().map(|case| prepare(case)).collect();
    // The drives are warm: preparing them took their first steps.
    let turns = interleave(ROUNDS, cases.len(), WarmUp::None, |at| {
        let (took, outcome) = timed(|| drives[at].run(cases[at].seconds));
        let requests = outcome.reads.count() + outcome.writes.count();
        let blocks = (outcome.read_bytes + outcome.written_bytes) / 4096;
        let rates = [requests, blocks, outcome.events];
        let [requests, blocks, events] = rates.map(|count| count as f64 / took.processor / 1e3);
        Some([requests, blocks, events, outcome.wa()])
    });
    report.subject("timed", ROUNDS);
    let columns = ["requests, k/s", "4 KiB, k/s", "events, k/s", "wa"];
    for (case, turns) in cases.iter().zip(&turns) {
        for (nth, column) in columns.into_iter().enumerate() {
            let samples: Vec<f64> = turns.iter().map(|turn| turn[nth]).collect();
            report.add_variant((case.name, column), "", &samples);
        }
    }
    report.end();
}
