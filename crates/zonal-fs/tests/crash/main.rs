//! Power cuts, failing I/O and failing zones.
//!
//! A workload is recorded, and after each change of the drive all states that a power cut can leave
//! are tried (`zonal::layer::record`): all of them where they are few, a sample where they are
//! many. Each is mounted and must be exactly a state between two operations, no earlier than at the
//! last promise (`sync`, `fsync`); `check` must find nothing. Some recoveries are cut again, some
//! drives are then filled and emptied.
//!
//! | file | question |
//! | --- | --- |
//! | `run` | which changes did a workload make, and which states were seen in between? |
//! | `check` | does every state after a cut recover to a legal one? |
//! | `sequences` | short workloads, exhaustively; they are made of `steps` |
//! | `planted` | does the checker notice mistakes that are made on purpose? |
//! | `nth` | what if the n-th I/O fails? |
//! | `bursts` | what if a drive refuses many calls, and then goes on? |
//! | `zones` | what if zones fail, or the drive is full? |
//! | `journal` | what if records of the journal are bad? |
//! | `fresh` | what if a batch is there and its data is not? |
//! | `liveness` | does a drive go on after any number of cuts, however full it is? |
//! | `recovery` | what if a recovery is cut off, and the recovery of that? |
//! | `concat` | what if one of two joined drives loses power, or fails? |
//! | `conventional` | what if data is in conventional zones, of which a cut leaves any blocks? |
//! | `copy` | what if the source or target of a copy changes meanwhile? |
//! | `copies` | what if one or both copies of other metadata are bad? |
//! | `reclaim` | what if reclaim reads bad blocks? |
//! | `together` | which states does a cut leave while several threads work? |
//!
//! In the environment: `SEED` chooses the random workloads (it is printed), `COUNT` multiplies how
//! many there are. Tests that take long are ignored by default; `cargo xtask test --soak` runs them
//! too.
#![expect(clippy::print_stdout, reason = "how much was tried is a part of the result")]
#![expect(clippy::cast_possible_truncation, reason = "random numbers below small limits")]

#[path = "../ops/mod.rs"]
mod ops;

mod bursts;
mod check;
mod concat;
mod conventional;
mod copies;
mod copy;
mod fresh;
mod hooked;
mod journal;
mod liveness;
mod nth;
mod planted;
mod reclaim;
mod recovery;
mod run;
mod sequences;
mod steps;
mod together;
mod truncation;
mod zones;

use bench_support::thread_ns;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

use check::{Checker, Effort};
use ops::Op;
use ops::drives::{PREFERRED, SHAPES, Shape};
use run::{Start, end_of};
use zonal::repeat;
use zonal_fs::furrow::{Eviction, MountOptions};

/// The seed from the environment, or a fresh one.
fn seed() -> u64 {
    repeat::seed(rand::random())
}

/// `default` times `COUNT`.
fn count(default: u64) -> u64 {
    default * repeat::count(1)
}

/// Checks and prints how fast that went, in processor time of the thread.
struct Report {
    name: &'static str,
    start_ns: u64,
    workloads: u64,
    /// Of these, with a step that failed.
    refused: u64,
    /// Of these, not looked at because another one made the same changes.
    same: u64,
}

impl Report {
    fn begin(name: &'static str) -> Self {
        Self { name, start_ns: thread_ns(), workloads: 0, refused: 0, same: 0 }
    }

    #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
    fn end(&self, checker: &Checker) {
        let seconds = (thread_ns() - self.start_ns) as f64 / 1e9;
        let states = checker.states + checker.again;
        let Self { name, workloads, refused, same, .. } = self;
        println!(
            "{name}: {workloads} workloads ({refused} refused, {same} as another), {states} states \
             ({} of them cut again, {} drives used up) in {seconds:.1} s: {:.0} workloads/s, {:.0} \
             states/s",
            checker.again,
            checker.used,
            *workloads as f64 / seconds,
            states as f64 / seconds
        );
    }
}

/// Every other round evicts metadata at every lock, and every third one spares the head of a disk.
fn options(round: u64) -> MountOptions {
    let eviction = if round.is_multiple_of(2) { Eviction::AtEveryLock } else { Eviction::ByNeed };
    let rotational = Some(round.is_multiple_of(3));
    MountOptions { eviction, rotational, ..MountOptions::default() }
}

/// Thirty random operations, and up to `more` more.
fn random_ops(seed: u64, more: u64) -> Vec<Op> {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut number = || random.next_u64();
    (0..30 + number() % more)
        .map(|_| Op::decode(std::array::from_fn(|_| (number() >> 40) as u16)))
        .collect()
}

/// Random operations on a drive of this shape, filled to `percent` beforehand.
fn check_random(
    report: &mut Report,
    seed: u64,
    checker: &mut Checker,
    shape: &Shape,
    percent: u64,
) {
    report.workloads += 1;
    let ops = random_ops(seed, 150);
    let options = options(seed);
    let start = Start::new(shape, shape.ballast_max() * percent / 100, &[]).with(options);
    checker.options = options;
    let run = start.run(&ops, None);
    let moments = run.recording.steps.len() as u64;
    let effort = Effort {
        exhaustive: 24,
        samples: 6,
        moments_one_in: 1 + moments / 120,
        again_one_in: 12,
        use_one_in: 400,
    };
    if let Err(violation) = checker.check_run(&run, effort) {
        panic!("SEED={seed}, {}, {percent} % ballast: {violation}", shape.name);
    }
}

#[test]
fn workloads_at_random_survive_cuts() {
    let mut report = Report::begin("random workloads");
    let seed = seed();
    let mut checker = Checker::new(seed, None);
    for index in 0..count(12) {
        let shape = SHAPES[(index % SHAPES.len() as u64) as usize];
        let percent = checker.below(60);
        check_random(&mut report, seed + index, &mut checker, &shape, percent);
    }
    report.end(&checker);
}

/// Furrow writes preferred zones in order, as it writes required ones, and takes a write pointer
/// for the end of a zone's data.
#[test]
fn workloads_on_preferred_zones_survive_cuts() {
    let mut report = Report::begin("sequential write preferred zones");
    let seed = seed();
    let mut checker = Checker::new(seed, None);
    for index in 0..count(3) {
        let percent = [20, 60, 95][(index % 3) as usize];
        check_random(&mut report, seed + index, &mut checker, &PREFERRED, percent);
    }
    report.end(&checker);
}

#[test]
fn read_never_serves_bad_bits() {
    let mut report = Report::begin("bad bits");
    let seed = seed();
    let mut checker = Checker::new(seed, None);
    for index in 0..count(8) {
        report.workloads += 1;
        let shape = SHAPES[(index % SHAPES.len() as u64) as usize];
        let run = Start::new(&shape, 50, &[]).run(&random_ops(seed + index, 100), None);
        let end = end_of(&run.recording);
        for _ in 0..100 {
            if let Err(violation) = checker.check_bad_bit(&run, &end) {
                panic!("SEED={seed}, {}: {violation}", shape.name);
            }
        }
    }
    report.end(&checker);
}

#[test]
fn zone_gone_stale_makes_nothing_up() {
    let mut report = Report::begin("stale zones");
    let seed = seed();
    let mut checker = Checker::new(seed, None);
    for index in 0..count(6) {
        report.workloads += 1;
        let shape = SHAPES[(index % SHAPES.len() as u64) as usize];
        let run = Start::new(&shape, 50, &[]).run(&random_ops(seed + index, 300), None);
        if let Err(violation) = checker.check_stale_zones(&run, 12) {
            panic!("SEED={seed}, {}: {violation}", shape.name);
        }
    }
    report.end(&checker);
}

#[test]
fn nearly_full_drives_survive_cuts() {
    let mut report = Report::begin("nearly full drives");
    let seed = seed();
    let mut checker = Checker::new(seed, None);
    for index in 0..count(12) {
        let shape = SHAPES[(index % SHAPES.len() as u64) as usize];
        let percent = 90 + checker.below(11);
        check_random(&mut report, seed + index, &mut checker, &shape, percent);
    }
    report.end(&checker);
}
