//! Random configs, most of them odd: the simulator refuses each with its field, value and allowed
//! values, or runs it to its end, in both modes, and the counters agree.
//!
//! `SEED=n COUNT=n` choose the configs and how many there are.

#![expect(clippy::unwrap_used, reason = "a test")]

use std::io::Write;
use std::panic::catch_unwind;

use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use zonal::repeat;
use zonal_sim::config::{Config, Kind, Mode, Pattern, Permutation};
use zonal_sim::ftl::{Counters, Frontier, Isolation, Victim, Wear};
use zonal_sim::trace::{Fit, ReplayTimes};
use zonal_sim::{SimError, Size, counting, timed};

fn one_of<T: Copy>(random: &mut ChaCha8Rng, all: &[T]) -> T {
    *all.choose(random).unwrap()
}

/// At most some 100 MiB of flash.
fn flash(random: &mut ChaCha8Rng, config: &mut Config) {
    let flash = &mut config.flash;
    flash.channels = random.random_range(1..=3);
    flash.dies_per_channel = random.random_range(1..=3);
    flash.planes = one_of(random, &[1, 2, 3]);
    flash.page = Size(one_of(random, &[4096, 16 << 10]));
    flash.pages_per_program = one_of(random, &[1, 2, 3]);
    flash.programs_per_block = random.random_range(1..=4);
    flash.superblocks = random.random_range(16..=64);
    flash.erase_us = one_of(random, &[1.0, 100.0, 10_000.0, 1e5]);
    flash.suspend_us = one_of(random, &[0.0, 250.0]);
}

fn drive(random: &mut ChaCha8Rng, config: &mut Config) {
    let drive = &mut config.drive;
    drive.kind = one_of(random, &[Kind::Conventional, Kind::Zns, Kind::Zns, Kind::Fdp]);
    drive.op = one_of(random, &[0.07, 0.28, 0.5, 1.0, 1.0, 3.0]);
    drive.reserved = one_of(random, &[0.0, 0.0, 0.03, 0.3]);
    drive.unit = Size(one_of(random, &[512, 4096, 4096, 4096, 16 << 10]));
    drive.buffer_programs = one_of(random, &[1, 3, 50]);
    drive.gc_reads = one_of(random, &[1, 2, 64]);
    let gc = &mut config.gc;
    gc.victim = match random.random_range(0..6) {
        0 => Victim::CostBenefit,
        1 => Victim::Fifo,
        2 => Victim::Random,
        3 => Victim::Choices(random.random_range(1..9)),
        4 => Victim::Windowed(random.random_range(1..9)),
        _ => Victim::Greedy,
    };
    gc.frontier = one_of(random, &[Frontier::Mixed, Frontier::Separate]);
    gc.low_water = random.random_range(2..=4);
    gc.streams = one_of(random, &[1, 1, 2, 5]);
    gc.wear_gap = one_of(random, &[0, 0, 1, 4]);
    config.zones.superblocks = one_of(random, &[1, 1, 2, 3]);
    config.zones.spare = one_of(random, &[0, 1, 2, 5]);
    config.zones.max_active = one_of(random, &[1, 2, 3, 14]);
    config.zones.max_open = random.random_range(1..=config.zones.max_active);
    config.fdp.handles = random.random_range(1..=8);
    config.fdp.isolation = one_of(random, &[Isolation::Initially, Isolation::Persistently]);
}

fn workload(random: &mut ChaCha8Rng, config: &mut Config) {
    let workload = &mut config.workload;
    workload.kind = one_of(
        random,
        &[
            Pattern::Uniform,
            Pattern::Sequential,
            Pattern::Zipf,
            Pattern::HotCold,
            Pattern::Zones,
            Pattern::Zones,
            Pattern::Mixed,
            Pattern::Files,
            Pattern::Trace,
            Pattern::Trace,
        ],
    );
    workload.io = Size(one_of(random, &[512, 4096, 64 << 10, 100_000, 1 << 20]));
    workload.theta = one_of(random, &[0.5, 0.99, 1.0, 2.5]);
    workload.open_zones = one_of(random, &[1, 2, 14]);
    workload.zone = Size(one_of(random, &[0, 0, 1 << 20]));
    workload.permutation = one_of(random, &[Permutation::Any, Permutation::EachOnce]);
    workload.write_mb_s = one_of(random, &[0.0, 0.0, 50.0]);
    workload.read_depth = one_of(random, &[0, 1, 16]);
    workload.write_depth = one_of(random, &[0, 1, 32, 300]);
    workload.read_share = one_of(random, &[0.0, 0.5]);
    workload.fill = one_of(random, &[0.1, 0.9, 1.0]);
    config.run.drive_writes = one_of(random, &[0.0, 1.0, 4.0]);
    config.run.warm_up = config.run.drive_writes * one_of(random, &[0.0, 0.5, 0.9]);
    config.run.seconds = one_of(random, &[0.0, 0.0, 0.05]);
}

/// A few hundred requests of MSR Cambridge's form, anywhere up to 100 GB, some of them large.
fn trace(random: &mut ChaCha8Rng, config: &mut Config) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    let mut at = 128_166_372_000_000_000_u64;
    for _ in 0..random.random_range(1..300) {
        at += one_of(random, &[0, 1, 1000, 10_000]);
        let disk = random.random_range(0..2);
        let op = one_of(random, &["Read", "Write", "Write"]);
        let end = one_of(random, &[1 << 20, 1 << 25, 100_000_000_000_u64]);
        let offset = random.random_range(0..end);
        let bytes = one_of(random, &[1, 512, 4096, 65536, 1_000_000]);
        writeln!(file, "{at},usr,{disk},{op},{offset},{bytes},100").unwrap();
    }
    config.workload.trace = file.path().display().to_string();
    let trace = &mut config.trace;
    trace.fit = one_of(random, &[Fit::Compact, Fit::Modulo]);
    trace.times = one_of(random, &[ReplayTimes::Own, ReplayTimes::Closed]);
    trace.speed = one_of(random, &[0.1, 1.0, 1e6]);
    trace.loops = one_of(random, &[0, 1, 3]);
    trace.volume = one_of(random, &["", "usr_0", "usr_1"]).into();
    file
}

/// Asserts the invariants of any run. The layers themselves assert that they lose and double no
/// unit.
fn plausible(counters: &Counters, wa: [f64; 3], erases: Wear) {
    let [host, drive, whole] = wa;
    if counters.host == 0 {
        assert!(whole.is_nan(), "of nothing: {wa:?}");
    } else {
        assert!(host >= 1.0 && drive >= 1.0 && (host * drive - whole).abs() < 1e-9, "{wa:?}");
    }
    assert!(f64::from(erases.min) <= erases.mean && erases.mean <= f64::from(erases.max));
    assert!(counters.erased == 0 || erases.max > 0, "{counters:?} {erases:?}");
}

fn run_it(config: &Config) -> Result<(), SimError> {
    match config.run.mode {
        Mode::Counting => {
            let report = counting::run(config, &mut |_| {})?;
            let wa = [report.host_wa, report.drive_wa, report.wa];
            plausible(&report.measured, wa, report.erases);
        }
        Mode::Timed => {
            let measured = timed::run(config)?;
            let outcome = &measured.outcome;
            let wa = [outcome.amplification.host, outcome.amplification.drive, outcome.wa()];
            plausible(&outcome.counters, wa, outcome.erases);
        }
    }
    Ok(())
}

#[test]
fn configs_at_random_run_or_are_refused() {
    let (seed, count) = (repeat::seed(1), repeat::count(600));
    let mut ran = [0; 2];
    for turn in 0..count {
        let mut random = ChaCha8Rng::seed_from_u64(seed ^ (turn << 32));
        let mut config = Config { seed, ..Config::default() };
        flash(&mut random, &mut config);
        drive(&mut random, &mut config);
        workload(&mut random, &mut config);
        let _trace = trace(&mut random, &mut config);
        for mode in [Mode::Counting, Mode::Timed] {
            config.run.mode = mode;
            let outcome = catch_unwind(|| run_it(&config));
            assert!(outcome.is_ok(), "turn {turn}, SEED={seed}:\n{}", config.to_toml());
            match outcome.unwrap() {
                Ok(()) => ran[mode as usize] += 1,
                Err(SimError::Field { .. }) => {}
                // The trace has no request, or only reads where the run counts drive writes.
                Err(SimError::Trace { what, .. }) if what.contains("the trace ends") => {}
                Err(error) => panic!("turn {turn}, SEED={seed}: {error}"),
            }
        }
    }
    println!("{} counting and {} timed runs", ran[0], ran[1]);
    assert!(ran.iter().all(|ran| *ran * 5 > count), "most are refused: {ran:?} of {count}");
}
