//! How fast does counting mode count? A drive of 256 GiB, 4 KiB units, at 7, 28 and 100 %
//! over-provisioning: uniform writes at their steady state, sequential writes, and 14 zones.
//!
//! Run it with `cargo bench -p zonal-sim --bench counting`. A baseline shows the limit of the
//! machine: it reads and writes random entries of an array as large as the mapping table, in
//! batches of the same size, and does nothing else. The baseline and all drives take turns in each
//! round, so that other load of the machine meets all of them. The bench prints medians, and the
//! medians of the ratios of each round. Time is processor time.

#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    reason = "numbers for people, and of units far below 2^32"
)]

use bench_support::{ProcessorTime, Report, WarmUp, interleave};
use memmap2::{Advice, MmapMut};
use zerocopy::FromBytes;
use zonal::Clock;
use zonal_sim::Config;
use zonal_sim::ftl::{PageMapped, Translation};
use zonal_sim::load::{self, Request, Workload};

const ROUNDS: usize = 9;
/// Host writes of one drive in one turn.
const WRITES: u64 = 4 << 20;
const BATCH: usize = 4096;

const DRIVES: [(&str, f64, &str); 7] = [
    ("uniform", 0.07, "kind = \"uniform\""),
    ("uniform", 0.28, "kind = \"uniform\""),
    ("uniform", 1.00, "kind = \"uniform\""),
    ("sequential", 0.07, "kind = \"sequential\""),
    ("14 zones", 0.07, "kind = \"zones\"\nio = 65536"),
    ("14 zones", 0.28, "kind = \"zones\"\nio = 65536"),
    ("14 zones", 1.00, "kind = \"zones\"\nio = 65536"),
];

/// A drive of 256 GiB of flash in 1024 superblocks.
fn config(op: f64, workload: &str) -> Config {
    Config::parse(&format!(
        "[flash]\nchannels = 8\ndies_per_channel = 4\nplanes = 2\npage = 16384\n\
         pages_per_program = 1\nprograms_per_block = 256\nsuperblocks = 1024\n\
         [drive]\nop = {op}\n[workload]\n{workload}"
    ))
    .expect("the config is right")
}

/// A generator that costs next to nothing: Marsaglia's xorshift, and the high half of a product.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u32) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((u128::from(self.0) * u128::from(limit)) >> 64) as u32
    }
}

/// The source of a batch of units.
enum Source {
    Uniform(Random, u32),
    Load(Box<dyn Workload>, Vec<Request>),
}

impl Source {
    fn fill(&mut self, units: &mut Vec<u32>) {
        units.clear();
        match self {
            Self::Uniform(random, limit) => units.extend((0..BATCH).map(|_| random.below(*limit))),
            Self::Load(workload, requests) => {
                workload.fill(requests).expect("endless");
                for request in requests {
                    let first = (request.offset / 4096) as u32;
                    units.extend(first..first + request.bytes / 4096);
                }
            }
        }
    }
}

/// A drive at its steady state.
struct Subject {
    drive: PageMapped,
    source: Source,
    units: Vec<u32>,
}

impl Subject {
    fn new(op: f64, pattern: &str, workload: &str) -> Self {
        let config = config(op, workload);
        let mut drive = PageMapped::new(&config).expect("the config is right");
        let users = drive.layout().user_units;
        let source = if pattern == "uniform" {
            Source::Uniform(Random(1), users)
        } else {
            let workload = load::build(&config, drive.layout()).expect("the config is right");
            let io = config.workload.io.bytes() as usize;
            Source::Load(workload, Vec::with_capacity(BATCH * 4096 / io))
        };
        let mut units: Vec<u32> = (0..users).collect();
        drive.write(&units, 0);
        units.truncate(BATCH);
        let mut subject = Self { drive, source, units };
        subject.run(3 * u64::from(users));
        subject
    }

    /// Programs, host writes and processor time, of the drive alone.
    fn run(&mut self, writes: u64) -> (f64, f64, f64) {
        let before = self.drive.counters();
        let mut seconds = 0.0;
        // Batches are made outside of the measured time, few enough to stay in the cache.
        while self.drive.counters().since(&before).host < writes {
            self.source.fill(&mut self.units);
            let start = ProcessorTime.monotonic_ns();
            self.drive.write(&self.units, 0);
            seconds += (ProcessorTime.monotonic_ns() - start) as f64 / 1e9;
        }
        let done = self.drive.counters().since(&before);
        ((done.host + done.moved) as f64, done.host as f64, seconds)
    }
}

/// The machine's limit: the table's accesses of host writes, and nothing else.
struct Limit {
    table: MmapMut,
    random: Random,
    units: Vec<u32>,
}

impl Limit {
    fn new(units: u32) -> Self {
        let mut table = MmapMut::map_anon(4 * units as usize).expect("there is memory");
        // The same kind of memory as the drive has.
        let _ = table.advise(Advice::HugePage);
        table.fill(1);
        Self { table, random: Random(1), units: Vec::with_capacity(BATCH) }
    }

    /// Accesses, twice, and processor time.
    fn run(&mut self, accesses: u64) -> (f64, f64, f64) {
        let (mut done, mut seconds, mut sum) = (0, 0.0, 0_u32);
        let table = <[u32]>::mut_from_bytes(&mut self.table).expect("a mapping is aligned");
        let limit = table.len() as u32;
        while done < accesses {
            self.units.clear();
            self.units.extend((0..BATCH).map(|_| self.random.below(limit)));
            let start = ProcessorTime.monotonic_ns();
            for (slot, unit) in (0..).zip(&self.units) {
                sum = sum.wrapping_add(std::mem::replace(&mut table[*unit as usize], slot));
            }
            seconds += (ProcessorTime.monotonic_ns() - start) as f64 / 1e9;
            done += BATCH as u64;
        }
        assert!(sum != 1, "the accesses are not left out");
        (done as f64, done as f64, seconds)
    }
}

fn main() {
    let mut arguments = std::env::args().skip(1).collect();
    let command = "cargo bench -p zonal-sim --bench counting";
    let mut report = Report::begin(command, &mut arguments);
    let drives = DRIVES.iter().filter(|(name, op, _)| {
        arguments.first().is_none_or(|only| format!("{name} {op}").starts_with(only))
    });
    let drives: Vec<_> = drives.collect();
    let mut subjects: Vec<Subject> =
        drives.iter().map(|(name, op, workload)| Subject::new(*op, name, workload)).collect();
    let mut limit = Limit::new(config(0.28, "").layout().expect("checked").user_units);
    // A drive counts programs and host writes a second, the limit counts accesses.
    let turns = interleave(ROUNDS, 1 + subjects.len(), WarmUp::None, |at| {
        let (programs, writes, seconds) = match at.checked_sub(1) {
            Some(drive) => subjects[drive].run(WRITES),
            None => limit.run(WRITES),
        };
        Some([programs, writes].map(|count| count / seconds / 1e6))
    });
    report.subject("counting", ROUNDS);
    let values = |at: usize, which: usize| -> Vec<f64> {
        turns[at].iter().map(|turn| turn[which]).collect()
    };
    let allowed = values(0, 0);
    report.add("random accesses to the table alone", "M/s", &allowed);
    for (at, ((name, op, _), subject)) in (1..).zip(drives.iter().zip(&subjects)) {
        let name = format!("{name}, {:.0} % over-provisioning", op * 100.0);
        let (programs, writes) = (values(at, 0), values(at, 1));
        report.add_beside((&name, "programs, M/s (÷ limit)"), "", &programs, &allowed);
        report.add_variant((&name, "host writes, M/s"), "", &writes);
        let wa = programs.iter().zip(&writes).map(|(programs, writes)| programs / writes);
        report.add_variant((&name, "wa of the drive"), "", &wa.collect::<Vec<_>>());
        let layout = subject.drive.layout();
        let units = f64::from(layout.blocks) * f64::from(layout.block_units);
        let bytes = subject.drive.memory_bytes() as f64 / units;
        report.add_variant((&name, "bytes per 4 KiB of flash"), "", &[bytes]);
    }
    report.end();
}
