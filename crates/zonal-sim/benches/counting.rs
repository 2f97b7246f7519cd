//! How fast does counting mode count? A drive of 256 GiB, 4 KiB units, at 7, 28 and 100 %
//! over-provisioning: uniform writes at their steady state, sequential writes, and 14 zones.
//!
//! Run it with `cargo bench -p zonal-sim --bench counting`. Beside the drives stands what the
//! machine allows: entries of an array of the size of the mapping table read and written at random,
//! in batches of the same size, and nothing else. All take turns in each round, so that what else
//! the machine does meets all of them; the medians are printed, and the medians of the ratios of
//! each round. Time is processor time.

#![expect(
    clippy::print_stdout,
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    reason = "numbers for people, and of units far below 2^32"
)]

use memmap2::{Advice, MmapMut};
use zerocopy::FromBytes;
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

fn processor_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
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

/// What fills a batch of units.
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
            let start = processor_seconds();
            self.drive.write(&self.units, 0);
            seconds += processor_seconds() - start;
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

    /// Accesses and processor time.
    fn run(&mut self, accesses: u64) -> (f64, f64) {
        let (mut done, mut seconds, mut sum) = (0, 0.0, 0_u32);
        let table = <[u32]>::mut_from_bytes(&mut self.table).expect("a mapping is aligned");
        let limit = table.len() as u32;
        while done < accesses {
            self.units.clear();
            self.units.extend((0..BATCH).map(|_| self.random.below(limit)));
            let start = processor_seconds();
            for (slot, unit) in (0..).zip(&self.units) {
                sum = sum.wrapping_add(std::mem::replace(&mut table[*unit as usize], slot));
            }
            seconds += processor_seconds() - start;
            done += BATCH as u64;
        }
        assert!(sum != 1, "the accesses are not left out");
        (done as f64, seconds)
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() {
    let only = std::env::args().nth(1).filter(|name| !name.starts_with("--"));
    let drives = DRIVES.iter().filter(|(name, op, _)| {
        only.as_ref().is_none_or(|only| format!("{name} {op}").starts_with(only))
    });
    let drives: Vec<_> = drives.collect();
    let mut subjects: Vec<Subject> =
        drives.iter().map(|(name, op, workload)| Subject::new(*op, name, workload)).collect();
    let mut limit = Limit::new(config(0.28, "").layout().expect("checked").user_units);
    let (mut limits, mut lines) = (Vec::new(), vec![[const { Vec::new() }; 4]; drives.len()]);
    for _ in 0..ROUNDS {
        let (accesses, seconds) = limit.run(WRITES);
        let allowed = accesses / seconds;
        limits.push(allowed);
        for (subject, line) in subjects.iter_mut().zip(&mut lines) {
            let (programs, writes, seconds) = subject.run(WRITES);
            let values = [
                programs / seconds,
                writes / seconds,
                programs / writes,
                programs / seconds / allowed,
            ];
            for (values, value) in line.iter_mut().zip(values) {
                values.push(value);
            }
        }
    }
    println!("256 GiB of flash, 4 KiB units, one core; medians of {ROUNDS} interleaved rounds");
    println!("random accesses to the table alone: {:.1} M/s", median(limits) / 1e6);
    println!(
        "{:12}{:>8}{:>14}{:>14}{:>8}{:>10}{:>14}",
        "", "op", "programs M/s", "writes M/s", "wa", "of limit", "bytes/page"
    );
    for (((name, op, _), subject), line) in drives.iter().zip(&subjects).zip(lines) {
        let [programs, writes, wa, share] = line.map(median);
        let layout = subject.drive.layout();
        let bytes = subject.drive.memory_bytes() as f64
            / f64::from(layout.blocks)
            / f64::from(layout.block_units);
        println!(
            "{name:12}{:>7.0}%{:14.1}{:14.1}{wa:8.3}{share:10.2}{bytes:14.2}",
            op * 100.0,
            programs / 1e6,
            writes / 1e6
        );
    }
}
