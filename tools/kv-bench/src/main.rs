//! `cargo xtask bench kv`: LevelDB and RocksDB on Zonal compared with files of the kernel.
//!
//! | module | question |
//! | --- | --- |
//! | `leveldb`, `rocksdb`, `reads` | which benchmarks run, and with which sizes? |
//! | `simulated` | how fast is a store on simulated drives? |
//! | `ingest` | how fast is LevelDB filled on simulated drives? |
//! | `timeline`, `stores`, `setups` | how do jobs run in virtual time, and on which drives? |
//! | `place` | where can a store be, and how is that made? |
//! | `child` | how much processor time did a program use? |
//! | `db_bench`, `jobs` | which figures does a program print? |
//! | `sample` | which results do all rounds give together? |
//!
//! Rounds are interleaved: each round measures every place once, so a disturbance that lasts longer
//! than a round affects all of them. Processor time comes first in the output, since it depends
//! least on other load.

#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "a command-line program: its output is its result")]
#![cfg_attr(test, allow(clippy::unwrap_used, reason = "this is test code"))]

mod child;
mod db_bench;
mod ingest;
mod jobs;
mod leveldb;
mod place;
mod reads;
mod rocksdb;
mod sample;
mod setups;
mod simulated;
mod stores;
mod timeline;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use bench_support::{Figure, Report};
use clap::{Parser, ValueEnum};
use tempfile::TempDir;
use zonal_sim::report::chart::Picture;
use zonal_sim::report::draw;

use crate::place::Place;
use crate::sample::{Column, Field, Goal, Samples};

#[derive(Parser)]
#[command(name = "cargo xtask bench kv", about = "Benchmarks of LevelDB and RocksDB")]
struct Args {
    /// Small sizes and one round, to try it
    #[arg(long)]
    quick: bool,
    /// How often each place is measured; at 80 % of a drive, twice at most
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: Option<u32>,
    /// Where drives and stores are made; best in tmpfs
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Put the figures into this file, such as bench/results/kv.json
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Draw pictures, as SVG, into this directory
    #[arg(long, value_name = "DIR")]
    pictures: Option<PathBuf>,
    /// Measure only this; can be repeated
    #[arg(long, value_name = "PART")]
    only: Vec<Part>,
}

/// What can be measured by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// LevelDB: fill, read in sequence, at random and beside a writer
    Leveldb,
    /// RocksDB: what a put costs
    Puts,
    /// RocksDB: reads in sequence, at random and beside a writer
    Reads,
    /// RocksDB on a drive that its store fills to 80 %
    Full,
    /// RocksDB on simulated drives, in virtual time
    Simulated,
    /// LevelDB filled on simulated drives, in virtual time
    Ingest,
}

/// A run of this program.
struct Bench {
    samples: Samples,
    goals: Vec<Goal>,
    skipped: Vec<String>,
    flash: Option<simulated::Flash>,
    /// Rates of LevelDB on simulated drives.
    ingest: Vec<Figure>,
    rounds: u32,
    is_quick: bool,
    folder: TempDir,
    /// `zonal`, and the libraries.
    built: PathBuf,
    /// Programs that were built for benchmarks.
    tools: PathBuf,
}

const COLUMNS: [Column; 10] = [
    ("µs of processor time per operation", |sample| sample.cpu_us),
    ("of these in the daemon", |sample| sample.daemon_us),
    ("operations/s", |sample| sample.ops_s),
    ("p50, µs", |sample| sample.p50_us),
    ("p99, µs", |sample| sample.p99_us),
    ("p99.9, µs", |sample| sample.p999_us),
    ("bytes to the device per byte of RocksDB", |sample| sample.device_wa),
    ("write amplification of Furrow", |sample| sample.furrow_wa),
    ("files per byte of pairs", |sample| sample.space),
    ("files, of the drive", |sample| sample.fill),
];

/// A load, as results name it.
struct Load {
    subject: &'static str,
    /// The beginning of the names of its workloads.
    workload: &'static str,
    /// The place with which others are compared, and the figure for it.
    base: Place,
    compared: Field,
}

const LOADS: [Load; 4] = [
    Load {
        subject: "LevelDB",
        workload: "LevelDB, ",
        base: Place::Ext4,
        compared: |sample| sample.ops_s,
    },
    Load {
        subject: "puts",
        workload: "RocksDB, ",
        base: Place::Directly,
        compared: |sample| sample.cpu_us,
    },
    Load {
        subject: "reads",
        workload: "RocksDB reads, ",
        base: Place::Ext4,
        compared: |sample| sample.ops_s,
    },
    Load {
        subject: "full",
        workload: rocksdb::FULL,
        base: Place::Ext4,
        compared: |sample| sample.p999_us,
    },
];

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1).collect();
    let report = Report::begin("cargo xtask bench kv", &mut arguments);
    let arguments = std::iter::once("kv-bench".to_owned()).chain(arguments);
    match measure(&Args::parse_from(arguments), report) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Measures, prints the results, and writes the requested files.
fn measure(args: &Args, mut report: Report) -> Result<()> {
    child::catch_signals()?;
    let mut bench = Bench::new(args)?;
    for part in Part::value_variants() {
        if !args.only.is_empty() && !args.only.contains(part) {
            continue;
        }
        match part {
            Part::Leveldb => leveldb::measure(&mut bench)?,
            Part::Puts => rocksdb::measure_puts(&mut bench)?,
            Part::Reads => reads::measure(&mut bench)?,
            Part::Full => rocksdb::measure_full(&mut bench)?,
            Part::Simulated => simulated::measure(&mut bench)?,
            Part::Ingest => ingest::measure(&mut bench)?,
        }
    }
    bench.tell();
    for Load { subject, workload, base, compared } in &LOADS {
        let samples = bench.of(workload);
        let rounds = usize::try_from(samples.rounds())?;
        if rounds == 0 {
            continue;
        }
        report.subject(subject, rounds);
        for figure in samples.figures(workload, &COLUMNS) {
            report.record(figure);
        }
        report.subject(&format!("{subject} beside {}", base.name()), rounds);
        for figure in samples.beside(workload, base.name(), *compared) {
            report.record(figure);
        }
    }
    if let Some(flash) = &bench.flash {
        report.subject("simulated", 1);
        flash.figures().into_iter().for_each(|figure| report.record(figure));
    }
    if !bench.ingest.is_empty() {
        report.subject("LevelDB, simulated", 1);
        bench.ingest.iter().for_each(|figure| report.record(figure.clone()));
    }
    report.write();
    if let Some(folder) = &args.pictures {
        std::fs::create_dir_all(folder)?;
        for (name, picture) in bench.pictures() {
            let path = folder.join(name);
            let text = draw::svg(&picture);
            std::fs::write(&path, text).with_context(|| format!("writing {}", path.display()))?;
        }
    }
    Ok(())
}

impl Bench {
    fn new(args: &Args) -> Result<Self> {
        let dir = args.dir.clone().unwrap_or_else(|| {
            let memory = Path::new("/dev/shm");
            if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() }
        });
        let dir = dir.canonicalize().with_context(|| format!("{}", dir.display()))?;
        let folder = tempfile::Builder::new().prefix("zonal-kv-").tempdir_in(&dir);
        let program = std::env::current_exe().context("finding this program")?;
        let built = program.parent().context("this program is in no directory")?.to_owned();
        let tools = built.parent().unwrap_or(&built).join("tools");
        Ok(Self {
            samples: Samples::default(),
            goals: Vec::new(),
            skipped: Vec::new(),
            flash: None,
            ingest: Vec::new(),
            rounds: args.rounds.unwrap_or(if args.quick { 1 } else { 5 }),
            is_quick: args.quick,
            folder: folder.with_context(|| format!("a directory in {}", dir.display()))?,
            built,
            tools,
        })
    }

    fn scratch(&self) -> &Path {
        self.folder.path()
    }

    /// The size for a quick run, or for a whole one.
    const fn choose<T: Copy>(&self, quick: T, whole: T) -> T {
        if self.is_quick { quick } else { whole }
    }

    /// Rounds of benchmarks that take long.
    fn full_rounds(&self) -> u32 {
        self.rounds.min(2)
    }

    /// The `places` that this machine has; prints why others are missing.
    fn possible(&mut self, what: &str, places: &[Place]) -> Vec<Place> {
        let mut possible = Vec::new();
        for &place in places {
            match place.refusal() {
                None => possible.push(place),
                Some(why) => self.skip(&format!("{what}, {}", place.name()), why),
            }
        }
        possible
    }

    fn skip(&mut self, what: &str, why: &str) {
        let line = format!("skipped {what}: {why}");
        println!("{line}");
        self.skipped.push(line);
    }

    fn goal(&mut self, goal: Goal) {
        self.goals.push(goal);
    }

    fn tell(&self) {
        if !self.samples.0.is_empty() {
            println!("\nmedian (least to most)\n\n{}", self.samples.table(&COLUMNS));
        }
        if let Some(flash) = &self.flash {
            println!("{}", flash.table());
        }
        if !self.ingest.is_empty() {
            println!("{}", bench_support::table(&self.ingest.iter().collect::<Vec<_>>()));
        }
        for goal in &self.goals {
            println!("{}", goal.text());
        }
        for line in &self.skipped {
            println!("{line}");
        }
    }

    /// The samples of a load, by the start of its name.
    fn of(&self, load: &str) -> Samples {
        let samples = self.samples.0.iter().filter(|one| one.workload.starts_with(load));
        Samples(samples.cloned().collect())
    }

    fn pictures(&self) -> Vec<(&'static str, Picture)> {
        let [level, puts, full] =
            ["LevelDB, 16 B", "RocksDB,", "RocksDB at"].map(|load| self.of(load));
        let mut pictures = Vec::new();
        if !level.0.is_empty() {
            let title = "LevelDB, 16 B/4 KiB: operations a second beside ext4";
            let label = "times as many as on ext4";
            let picture = level.picture(title, label, Place::Ext4.name(), |sample| sample.ops_s);
            pictures.push(("kv-leveldb.svg", picture));
        }
        if !puts.0.is_empty() {
            let title = "RocksDB: processor time per put beside tmpfs";
            let label = "times as much as in tmpfs";
            let base = Place::Directly.name();
            pictures
                .push(("kv-puts.svg", puts.picture(title, label, base, |sample| sample.cpu_us)));
        }
        if !full.0.is_empty() {
            let title = "RocksDB at 80 %: processor time per operation beside ext4";
            let label = "times as much as on ext4";
            let picture = full.picture(title, label, Place::Ext4.name(), |sample| sample.cpu_us);
            pictures.push(("kv-full.svg", picture));
        }
        if let Some(flash) = &self.flash {
            pictures.push(("kv-flash.svg", flash.picture()));
        }
        pictures
    }
}

/// Announces the next measurement.
fn step(round: u32, place: Place, what: &str) {
    println!("round {round}: {what}: {}", place.name());
}

/// Microseconds for each of `count` operations.
#[expect(clippy::cast_precision_loss, reason = "counts below 2^52")]
fn micros(time: Duration, count: u64) -> f64 {
    time.as_secs_f64() * 1e6 / count.max(1) as f64
}

#[expect(clippy::cast_precision_loss, reason = "bytes below 2^52")]
fn ratio(above: u64, below: u64) -> f64 {
    above as f64 / below.max(1) as f64
}
