//! RocksDB, Debian's `db_bench`: the cost of a put that waits for no disk, and the benchmarks of
//! the talk about zoned XFS with a store that fills a drive to 80 %.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use xtask::tools::require;

use crate::child;
use crate::db_bench::{self, benches};
use crate::place::{Cache, Counts, Engine, Hints, Made, Place, Shape};
use crate::sample::{Bound, Goal, Sample};
use crate::{Bench, micros, ratio, step};

/// The program.
pub(crate) const PROGRAM: &str = "/usr/bin/db_bench";

const PUT_PLACES: [Place; 5] = [
    Place::Directly,
    Place::Zonefs,
    Place::Plugin(Hints::Followed),
    Place::Mount(Cache::Through, Hints::Followed),
    Place::Mount(Cache::Back, Hints::Followed),
];

// Not zone files: with a table to a zone the results of compactions find no room at 80 %.
const FULL_PLACES: [Place; 6] = [
    Place::Ext4,
    Place::Plugin(Hints::Followed),
    Place::Plugin(Hints::Ignored),
    Place::Mount(Cache::Through, Hints::Followed),
    Place::Mount(Cache::Back, Hints::Followed),
    Place::Mount(Cache::Back, Hints::Ignored),
];

/// Bytes of keys and values, and the name of the pair.
const SIZES: [(u64, u64, &str); 2] = [(16, 4096, "16 B/4 KiB"), (20, 800, "20 B/800 B")];

/// The part of the drive that files may take.
const FILL: f64 = 0.8;

/// Bytes of all files for each byte of distinct keys and values, in the mean while they are
/// overwritten: pairs of which there is a newer one, tables that are being replaced, and the log.
/// Measured.
const SPACE: f64 = 1.15;

/// Whether there is a `db_bench`. Installs its package, or prints why that failed.
pub(crate) fn is_there(bench: &mut Bench, what: &str) -> bool {
    let found = require(&[(PROGRAM, "rocksdb-tools")]);
    if let Err(error) = &found {
        bench.skip(what, &format!("no db_bench: {error:#}"));
    }
    found.is_ok()
}

/// `db_bench` in a place.
pub(crate) fn program(made: &Made) -> Command {
    let mut command = buffered(made);
    command.args(["--use_direct_io_for_flush_and_compaction=1", "--use_direct_reads=1"]);
    command
}

/// The same without direct I/O.
pub(crate) fn buffered(made: &Made) -> Command {
    let mut command = made.command(Engine::Rocks, Path::new(PROGRAM));
    command.args(["--compression_type=none", "--histogram=1", "--statistics=1"]);
    command
}

/// Tables that fill a zone each, and levels in proportion: a large store, made small.
pub(crate) fn scale(command: &mut Command, zone: u64) {
    command.arg(format!("--write_buffer_size={zone}"));
    command.arg(format!("--target_file_size_base={}", zone / 32 * 31));
    command.arg(format!("--max_bytes_for_level_base={}", 4 * zone));
    command.args(["--level_compaction_dynamic_level_bytes=true", "--max_background_jobs=2"]);
    // The bytes that wait for compaction, and the bytes that one compaction writes in addition to
    // its inputs, are a small part of the drive.
    command.args(["--level0_slowdown_writes_trigger=6", "--level0_stop_writes_trigger=10"]);
    command.arg(format!("--max_compaction_bytes={}", 8 * zone));
    command.arg(format!("--soft_pending_compaction_bytes_limit={}", 16 * zone));
    command.arg(format!("--hard_pending_compaction_bytes_limit={}", 32 * zone));
    command.arg("--delayed_write_rate=67108864");
}

/// Measures the cost of a put.
pub(crate) fn measure_puts(bench: &mut Bench) -> Result<()> {
    if !is_there(bench, "puts of RocksDB") {
        return Ok(());
    }
    let places = bench.possible("puts of RocksDB", &PUT_PLACES);
    let shape = Shape { zone: 128 << 20, zones: 60 };
    for round in 1..=bench.rounds {
        for (key, value, sizes) in SIZES {
            let puts = bench.choose(16 << 20, 160 << 20) / (key + value);
            for &place in &places {
                step(round, place, &format!("RocksDB fillrandom {sizes}"));
                let made = Made::new(place, &bench.built, bench.scratch(), shape)?;
                let mut command = program(&made);
                command.arg("--benchmarks=fillrandom").arg(format!("--num={puts}"));
                command.arg(format!("--key_size={key}")).arg(format!("--value_size={value}"));
                command.arg(format!("--seed={round}"));
                let workload = format!("RocksDB, {sizes}");
                let measured = Step { made: &made, workload, round, count: puts };
                let sample = measured.run(bench, &mut command)?;
                bench.samples.0.push(sample);
            }
        }
    }
    put_goals(bench);
    Ok(())
}

fn put_goals(bench: &mut Bench) {
    let [tmpfs, _, plugin, _, back] = PUT_PLACES.map(Place::name);
    for (_, _, sizes) in SIZES {
        let workload = format!("RocksDB, {sizes}");
        for (place, goal) in [(plugin, 1.0), (back, 1.5)] {
            let at = (workload.as_str(), "fillrandom");
            if let Some(found) = bench.samples.ratio(at, (place, tmpfs), |sample| sample.cpu_us) {
                let what = format!("{place}, {sizes}: processor time per put beside tmpfs");
                bench.goal(Goal { what, found: found.median, wanted: goal, bound: Bound::AtMost });
            }
        }
    }
}

/// Measures stores on a drive that they fill to 80 %.
pub(crate) fn measure_full(bench: &mut Bench) -> Result<()> {
    if !is_there(bench, "RocksDB at 80 %") {
        return Ok(());
    }
    let places = bench.possible("RocksDB at 80 %", &FULL_PLACES);
    let shape = Shape { zone: bench.choose(2 << 20, 4 << 20), zones: 256 };
    let rounds = bench.full_rounds();
    for round in 1..=rounds {
        for &place in &places {
            let ran = full(bench, place, shape, round);
            child::check_interrupted()?;
            if let Err(error) = ran {
                bench.skip(&format!("RocksDB at 80 %, {}", place.name()), &format!("{error:#}"));
            }
        }
    }
    let at = (FULL, "overwrite");
    for &place in &places {
        let goal = match place {
            Place::Plugin(Hints::Ignored) | Place::Mount(_, Hints::Ignored) => 1.1,
            Place::Plugin(Hints::Followed) | Place::Mount(_, Hints::Followed) => 1.05,
            Place::Directly | Place::Ext4 | Place::Zonefs => continue,
        };
        if let Some(found) = bench.samples.spread(at, place.name(), |sample| sample.furrow_wa) {
            let what = format!("{}: write amplification of Furrow at 80 %", place.name());
            bench.goal(Goal { what, found: found.median, wanted: goal, bound: Bound::AtMost });
        }
    }
    let (plugin, ext4) = (Place::Plugin(Hints::Followed).name(), Place::Ext4.name());
    let steady = (FULL, STEADY);
    if let Some(found) = bench.samples.ratio(steady, (plugin, ext4), |sample| sample.p999_us) {
        let what = format!("{plugin}: p99.9 of steady puts at 80 % beside ext4");
        bench.goal(Goal { what, found: found.median, wanted: 0.5, bound: Bound::AtMost });
    }
    Ok(())
}

/// Keys of 16 bytes and values of 4 KiB.
pub(crate) const FULL: &str = "RocksDB at 80 %";

/// A part of the work on a full drive.
struct Phase {
    name: &'static str,
    /// The name in `db_bench`.
    benchmark: &'static str,
    /// Pairs for each operation.
    share: u64,
    /// The option for the number of operations, if that is not the number of pairs.
    counter: Option<&'static str>,
    options: &'static [&'static str],
}

/// Overwrites at a rate that every place can sustain: a put is slowed by concurrent flushes and
/// compactions, but does not wait for room.
const STEADY: &str = "steady overwrite";

const PHASES: [Phase; 4] = [
    Phase {
        name: "filluniquerandom",
        benchmark: "filluniquerandom",
        share: 1,
        counter: None,
        options: &[],
    },
    Phase {
        name: "overwrite",
        benchmark: "overwrite",
        share: 1,
        counter: None,
        options: &["--use_existing_db=1"],
    },
    Phase {
        name: STEADY,
        benchmark: "overwrite",
        share: 4,
        counter: Some("writes"),
        options: &["--use_existing_db=1", "--benchmark_write_rate_limit=6000000"],
    },
    Phase {
        name: "readwhilewriting",
        benchmark: "readwhilewriting",
        share: 4,
        counter: Some("reads"),
        options: &["--use_existing_db=1", "--threads=1", "--benchmark_write_rate_limit=20000000"],
    },
];

/// Fill, overwrite, and read while something writes, in one place.
fn full(bench: &mut Bench, place: Place, shape: Shape, round: u32) -> Result<()> {
    let (key, value, _) = SIZES[0];
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "a share of a small drive"
    )]
    let pairs = (shape.bytes() as f64 * FILL / SPACE) as u64 / (key + value);
    let made = Made::new(place, &bench.built, bench.scratch(), shape)?;
    for Phase { name, benchmark, share, counter, options } in PHASES {
        step(round, place, &format!("RocksDB at 80 %: {name}"));
        let count = pairs / share;
        let mut command = program(&made);
        scale(&mut command, shape.zone);
        command.arg(format!("--benchmarks={benchmark}")).arg(format!("--num={pairs}"));
        command.arg(format!("--key_size={key}")).arg(format!("--value_size={value}"));
        command.arg(format!("--seed={round}")).args(options);
        if let Some(counter) = counter {
            command.arg(format!("--{counter}={count}"));
        }
        let measured = Step { made: &made, workload: FULL.to_owned(), round, count };
        let sample = measured.run(bench, &mut command)?;
        let store = made.store_bytes()?;
        bench.samples.0.push(Sample {
            space: Some(ratio(store, pairs * (key + value))),
            fill: Some(ratio(store, shape.bytes())),
            phase: name.to_owned(),
            ..sample
        });
    }
    Ok(())
}

/// One benchmark in a place.
struct Step<'a> {
    made: &'a Made,
    workload: String,
    round: u32,
    /// Operations.
    count: u64,
}

impl Step<'_> {
    fn run(&self, bench: &Bench, command: &mut Command) -> Result<Sample> {
        let made = self.made;
        // A plugin counts from the start of its process on.
        let counts_before =
            if made.is_served() { made.counts()? } else { None }.unwrap_or_default();
        let device_before = made.device_bytes()?;
        let (ended, daemon) = made.run(command, bench.scratch())?;
        let device = made.device_bytes()?.zip(device_before).map(|(after, before)| after - before);
        let counts = made.counts()?.map(|after| Counts {
            user: after.user - counts_before.user,
            all: after.all - counts_before.all,
        });
        let benches = benches(&ended.stdout);
        let found = benches.first().with_context(|| format!("{command:?} printed no result"))?;
        let written = db_bench::bytes_written(&ended.stdout);
        let below = counts.map(|counts| counts.all).or(device);
        Ok(Sample {
            workload: self.workload.clone(),
            phase: found.name.clone(),
            place: made.place().name(),
            round: self.round,
            ops_s: Some(found.rate()),
            cpu_us: Some(micros(ended.cpu + daemon.unwrap_or_default(), self.count)),
            daemon_us: daemon.map(|daemon| micros(daemon, self.count)),
            p50_us: found.p50_us,
            p99_us: found.p99_us,
            p999_us: found.p999_us,
            device_wa: below.zip(written).map(|(below, written)| ratio(below, written)),
            furrow_wa: counts
                .filter(|_| made.place() != Place::Zonefs)
                .map(|counts| ratio(counts.all, counts.user)),
            ..Sample::default()
        })
    }
}
