//! RocksDB on simulated drives, in virtual time: Furrow and files on zonefs on the preset `zn540`,
//! compared with a file system that overwrites in place on a conventional drive of the same flash,
//! and with published results of RocksDB on that drive.
//!
//! Published are the statistics of `db_bench` with 1.3 · 10^9 pairs of 20 and 800 bytes, of the
//! public raw data of arXiv 2310.19094 (MIT licence). `db_bench` runs here with 1/1024 of its
//! pairs, memtables, tables and levels; its `LOG` says what each job read and wrote
//! ([`jobs`](crate::jobs)), and the jobs are carried out with larger files
//! ([`timeline`](crate::timeline)). How fast the program is without a drive is taken from the same
//! statistics: `fillrandom` is as fast on XFS and on `ZenFS`, so no drive limits it.

use std::fmt::Write;

use anyhow::{Context, Result, ensure};
use bench_support::Figure;
use zonal_sim::report::chart::{Axis, Bars, Picture};

use crate::jobs::Recorded;
use crate::place::{Engine, Made, Place, Shape};
use crate::setups::{self, PROGRAMS, PROGRAMS_HERE, SetUp, ZONE};
use crate::timeline::{Phase, Program, Replay};
use crate::{Bench, child, ratio, rocksdb};

/// Pairs, and bytes of memtables, tables and the first level, of the published runs.
const PAIRS: u64 = 1_300_000_000;
const MEMTABLE: u64 = 2 << 30;
const TABLE: u64 = 1023 << 20;
const LEVEL: u64 = 4 << 30;

/// Bytes of published work that may wait for compaction: the defaults.
const PENDING_SOFT: u64 = 64 << 30;
const PENDING_HARD: u64 = 256 << 30;

/// Published pairs for each of ours.
const RECORDED: u64 = 1024;

/// The program without a drive. A put: `fillrandom` of XFS and of `ZenFS`, 103,900 a second. A byte
/// of a table: the mean of the four published runs (`CompMergeCPU`), 5.11 s for each GiB that a
/// flush writes and 7.39 s for a compaction. Threads as published: 32 read.
const PROGRAM: Program = Program {
    put_ns: 9_624.0,
    flush_ns: 4.76,
    merge_ns: 6.88,
    flushes: 2,
    compactions: 8,
    readers: 32,
};

/// Part of the puts that are `overwrite` with concurrent readers: the last ones.
const READ_PART: usize = 32;

/// Chooses the blocks that are read.
const SEED: u64 = 1;

/// Published figures: thousand puts a second, and µs of a get during writes at 50 and 99 %.
struct Published {
    name: &'static str,
    fill: f64,
    overwrite: f64,
    get_us: [f64; 2],
}

/// The others are compared with the last one. The figures of gets are from the first run of each.
const PUBLISHED: [Published; 3] = [
    Published {
        name: "published: F2FS, ZN540",
        fill: 94.4,
        overwrite: 81.1,
        get_us: [317.0, 1830.0],
    },
    Published {
        name: "published: ZenFS, ZN540",
        fill: 103.9,
        overwrite: 92.2,
        get_us: [352.0, 2366.0],
    },
    Published {
        name: "published: XFS, conventional",
        fill: 103.9,
        overwrite: 56.7,
        get_us: [487.0, 2745.0],
    },
];

/// A set-up, and the phases of the program on it: fill, overwrite, overwrite with readers.
#[derive(Debug)]
struct Row {
    set_up: SetUp,
    phases: Vec<Phase>,
}

/// The results on all set-ups.
#[derive(Debug)]
pub(crate) struct Flash {
    rows: Vec<Row>,
}

/// Records the jobs, and carries them out on every set-up.
pub(crate) fn measure(bench: &mut Bench) -> Result<()> {
    if !rocksdb::is_there(bench, "RocksDB on simulated drives") {
        return Ok(());
    }
    // A few zones more on the small drive: metadata takes the same number.
    let (part, superblocks) = bench.choose((8, 0.17), (1, 1.0));
    let pairs = PAIRS / RECORDED / part;
    println!("recording RocksDB: {pairs} pairs, put and overwritten");
    let recorded = record(bench, pairs)?;
    let flushes = recorded.flushes().count();
    let phases = [flushes / 2, flushes - flushes / READ_PART, flushes];
    let scale = f64::from(PROGRAMS_HERE) / f64::from(PROGRAMS) * ratio(RECORDED, 1);
    let replay =
        Replay { recorded: &recorded, program: PROGRAM, scale, phases: &phases, seed: SEED };
    let mut rows = Vec::new();
    for set_up in SetUp::ALL {
        println!("carrying its jobs out on {}", set_up.name());
        match setups::run(&replay, set_up, superblocks) {
            Ok(phases) => rows.push(Row { set_up, phases }),
            Err(error) => {
                child::check_interrupted()?;
                bench.skip(&format!("RocksDB on {}", set_up.name()), &format!("{error:#}"));
            }
        }
    }
    bench.flash = Some(Flash { rows });
    Ok(())
}

/// Records the jobs of RocksDB's threads while pairs are put and overwritten.
fn record(bench: &Bench, pairs: u64) -> Result<Recorded> {
    let shape = Shape { zone: ZONE, zones: 0 };
    let made = Made::new(Place::Directly, &bench.built, bench.scratch(), shape)?;
    let mut command = made.command(Engine::Rocks, rocksdb::PROGRAM.as_ref());
    // Tables, memtables and levels are to the pairs as published; with a part of the pairs only the
    // last levels are missing.
    let small = |bytes: u64| bytes / RECORDED;
    command.args(["--benchmarks=fillrandom,overwrite", "--seed=1", "--statistics=0"]);
    command.arg(format!("--num={pairs}"));
    command.args(["--key_size=20", "--value_size=800", "--compression_type=snappy"]);
    command.arg(format!("--write_buffer_size={}", small(MEMTABLE)));
    command.arg(format!("--target_file_size_base={}", small(TABLE)));
    command.arg(format!("--max_bytes_for_level_base={}", small(LEVEL)));
    command.args(["--max_bytes_for_level_multiplier=4", "--max_background_jobs=8"]);
    command.arg("--max_background_compactions=8");
    command.arg(format!("--soft_pending_compaction_bytes_limit={}", small(PENDING_SOFT)));
    command.arg(format!("--hard_pending_compaction_bytes_limit={}", small(PENDING_HARD)));
    child::run(&mut command, bench.scratch())?;
    let log = std::fs::read_to_string(made.file("kv/LOG")).context("RocksDB's LOG")?;
    let recorded = Recorded::parse(&log)?;
    ensure!(recorded.flushes().count() > 2 * READ_PART, "RocksDB's LOG has too few events");
    Ok(recorded)
}

impl Row {
    /// Bytes that the file system wrote, and that the flash programmed, per byte of files, while
    /// pairs were overwritten.
    fn amplification(&self) -> [f64; 2] {
        let phase = &self.phases[1];
        let [before, after] = &phase.accounts;
        let host = after.host_bytes - before.host_bytes;
        let moved = after.moved_bytes - before.moved_bytes;
        let padded = after.padded_bytes - before.padded_bytes;
        [ratio(host, phase.file_bytes), ratio(host + moved + padded, host)]
    }

    /// Thousands of puts a second of a phase.
    fn rate(&self, phase: usize) -> f64 {
        self.phases[phase].rate() / 1e3
    }

    /// Reads a second, during writes, in thousands.
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
    fn reads(&self) -> f64 {
        let phase = &self.phases[2];
        phase.reads_ns.len() as f64 * 1e6 / phase.ns.max(1) as f64
    }

    /// Time of a read during writes, at this percentile.
    fn read_us(&self, percent: usize) -> f64 {
        ratio(self.phases[2].read_ns(percent).unwrap_or(0), 1000)
    }
}

impl Flash {
    /// The rows as figures of a results file.
    pub(crate) fn figures(&self) -> Vec<Figure> {
        let figure =
            |name: &str, (variant, value): (&str, f64)| Figure::new(name, variant, vec![value]);
        let base = self.rows.iter().find(|row| row.set_up == SetUp::ALL[SetUp::ALL.len() - 1]);
        let mut figures = Vec::new();
        for row in &self.rows {
            let [files, drive] = row.amplification();
            let beside = base.map_or(f64::NAN, |base| row.rate(1) / base.rate(1));
            let columns = [
                (FILL, row.rate(0)),
                (OVERWRITE, row.rate(1)),
                (BESIDE, beside),
                ("file system's amplification", files),
                ("drive's", drive),
                ("reads beside writes, thousand/s", row.reads()),
                (P50, row.read_us(50)),
                (P99, row.read_us(99)),
            ];
            figures.extend(columns.map(|column| figure(row.set_up.name(), column)));
        }
        let xfs = PUBLISHED[PUBLISHED.len() - 1].overwrite;
        for Published { name, fill, overwrite, get_us: [p50, p99] } in PUBLISHED {
            let beside = (BESIDE, overwrite / xfs);
            let columns = [(FILL, fill), (OVERWRITE, overwrite), beside, (P50, p50), (P99, p99)];
            figures.extend(columns.map(|column| figure(name, column)));
        }
        figures
    }

    /// In Markdown.
    pub(crate) fn table(&self) -> String {
        let figures = self.figures();
        let mut text = bench_support::table(&figures.iter().collect::<Vec<_>>());
        for row in &self.rows {
            let seconds = row.phases.iter().map(|phase| ratio(phase.ns, 1_000_000) / 1e3);
            let seconds: Vec<String> = seconds.map(|one| format!("{one:.1}")).collect();
            writeln!(text, "{}: {} virtual s", row.set_up.name(), seconds.join(", "))
                .expect("a string takes all");
        }
        text
    }

    /// Rates as bars.
    pub(crate) fn picture(&self) -> Picture {
        let ours = self.rows.iter().map(|row| (row.set_up.name(), [row.rate(0), row.rate(1)]));
        let published = PUBLISHED.iter().map(|one| (one.name, [one.fill, one.overwrite]));
        let (names, rates): (Vec<_>, Vec<_>) = ours.chain(published).unzip();
        Picture::Bars(Bars {
            title: "RocksDB: thousand puts a second".into(),
            y: Axis::linear("thousand puts a second"),
            names: names.into_iter().map(str::to_owned).collect(),
            ranges: Vec::new(),
            groups: vec![
                ("fillrandom".into(), rates.iter().map(|rates| rates[0]).collect()),
                ("overwrite".into(), rates.iter().map(|rates| rates[1]).collect()),
            ],
        })
    }
}

const FILL: &str = "fillrandom, thousand/s";
const OVERWRITE: &str = "overwrite, thousand/s";
const BESIDE: &str = "overwrite ÷ last row of its kind";
const P50: &str = "read, p50, µs";
const P99: &str = "p99, µs";
