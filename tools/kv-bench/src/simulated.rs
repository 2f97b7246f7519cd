//! RocksDB's files on simulated flash, in virtual time: Furrow on zones beside a file system that
//! overwrites in place on a conventional drive of the same flash.
//!
//! The files are those of a real run: `db_bench` fills a store and overwrites it several times, and
//! its `LOG` says which tables were written and deleted ([`event_log`](crate::event_log)). They are
//! written again on each set-up, one command at a time; reads are left out.

use std::fmt::Write;

use anyhow::{Context, Result, ensure};
use bench_support::Figure;
use zonal_eval::Verify;
use zonal_eval::compare::{Row, SetUp, replay};
use zonal_sim::Config;
use zonal_sim::config::Kind;
use zonal_sim::files::{Discard, Lifetimes};
use zonal_sim::report::chart::{Axis, Bars, Picture};

use crate::event_log::Trace;
use crate::place::{Made, Place, Shape};
use crate::sample::{Bound, Goal};
use crate::{Bench, child, ratio, rocksdb};

/// The set-ups; the first one is compared with the others.
const SET_UPS: [(&str, SetUp); 3] = [
    ("Furrow, ZNS", SetUp::Furrow),
    (
        "in place with TRIM, conventional",
        SetUp::InPlace(Kind::Conventional, Discard::Online, Lifetimes::Unknown),
    ),
    (
        "in place without TRIM, conventional",
        SetUp::InPlace(Kind::Conventional, Discard::Never, Lifetimes::Unknown),
    ),
];

/// Bytes of a key and a value.
const PAIR: u64 = 16 + 4096;

/// Programs of a die that fill an erase block, and dies of each of the channels.
const PROGRAMS: u32 = 3;
const CHANNELS: u32 = 4;
const DIES: u32 = 2;

/// Bytes of a zone: a superblock. Tables are a little smaller.
const ZONE: u64 = 3 * 4 * 2 * (96 << 10);

/// Overwrites of the whole store: one belongs to the warm-up.
const OVERWRITES: u64 = 4;

/// What the files made of the drives.
#[derive(Debug)]
pub(crate) struct Flash {
    /// One row per set-up.
    rows: Vec<Row>,
    /// Bytes that a host can use of the conventional drive.
    user_bytes: u64,
    /// Bytes of all files, in the mean, while it was measured.
    mean_bytes: u64,
    /// The most.
    peak_bytes: u64,
}

/// Records the files, and writes them on every set-up.
pub(crate) fn measure(bench: &mut Bench) -> Result<()> {
    if !rocksdb::is_there(bench, "RocksDB's files on simulated flash") {
        return Ok(());
    }
    let pairs = bench.choose(40_000, 100_000);
    println!("recording the files of RocksDB: {pairs} pairs, overwritten {OVERWRITES} times");
    let trace = record(bench, pairs)?;
    let warm_up = trace.after(2 * pairs * PAIR);
    let (mean_bytes, peak_bytes) = trace.live_bytes(warm_up);
    let config = config(mean_bytes)?;
    let user_bytes = config.layout()?.user_bytes();
    let mut running = String::new();
    let mut progress = |name: &str, _| {
        if running != name {
            println!("writing them on {name}");
            name.clone_into(&mut running);
        }
    };
    let work = (&trace.ops[..], warm_up);
    let rows = replay(&config, &SET_UPS, work, Verify::Everything, &mut progress)?;
    child::check_interrupted()?;
    let flash = Flash { rows, user_bytes, mean_bytes, peak_bytes };
    for (at, (name, _)) in SET_UPS.iter().enumerate().skip(1) {
        let what = format!("rate of Furrow beside: {name}");
        let (found, wanted) = (flash.rate_beside(at), 2.0);
        bench.goal(Goal { what, found, wanted, bound: Bound::AtLeast });
    }
    bench.flash = Some(flash);
    Ok(())
}

/// The files of a store that is filled and overwritten.
fn record(bench: &Bench, pairs: u64) -> Result<Trace> {
    let shape = Shape { zone: ZONE, zones: 0 };
    let made = Made::new(Place::Directly, &bench.built, bench.scratch(), shape)?;
    let mut command = rocksdb::program(&made);
    rocksdb::scale(&mut command, ZONE);
    let overwrites = vec!["overwrite"; usize::try_from(OVERWRITES)?].join(",");
    command.arg(format!("--benchmarks=filluniquerandom,{overwrites}"));
    command.arg(format!("--num={pairs}")).args(["--key_size=16", "--value_size=4096", "--seed=1"]);
    child::run(&mut command, bench.scratch())?;
    let log = std::fs::read_to_string(made.file("kv/LOG")).context("RocksDB's LOG")?;
    let trace = Trace::parse(&log)?;
    ensure!(trace.after(2 * pairs * PAIR) < trace.ops.len(), "RocksDB's LOG has too few events");
    Ok(trace)
}

/// Drives for files of so many bytes, which are 80 % of what a host can use of the conventional
/// one. Its flash is that of the published drive with fewer dies and smaller blocks; a zone is a
/// superblock.
fn config(bytes: u64) -> Result<Config> {
    let mut config = Config::default();
    (config.flash.channels, config.flash.dies_per_channel) = (CHANNELS, DIES);
    config.flash = config.flash.shrunk(PROGRAMS);
    let user = bytes * 10 / 8;
    // 7 % of over-provisioning.
    config.flash.superblocks = u32::try_from((user * 107 / 100).div_ceil(ZONE))?;
    config.check()?;
    Ok(config)
}

impl Flash {
    /// How many times as fast the first set-up is.
    fn rate_beside(&self, other: usize) -> f64 {
        self.rows[other].virtual_s / self.rows[0].virtual_s
    }

    /// In Markdown.
    pub(crate) fn table(&self) -> String {
        let mut text = String::from(
            "| set-up | virtual s | MB/s of files | file system's amplification | drive's | product |\n\
             | --- | --- | --- | --- | --- | --- |\n",
        );
        for row in &self.rows {
            let rate = ratio(row.outcome.app_bytes, row.outcome.virtual_ns) * 1e3;
            let Row { outcome, virtual_s, fs_wa, drive_wa, total_wa, .. } = row;
            writeln!(
                text,
                "| {} | {virtual_s:.1} | {rate:.0} | {fs_wa:.3} | {drive_wa:.3} | {total_wa:.3} |",
                outcome.name
            )
            .expect("a string takes all");
        }
        let of = |bytes| 100.0 * ratio(bytes, self.user_bytes);
        let (mean, peak) = (of(self.mean_bytes), of(self.peak_bytes));
        let mib = self.user_bytes >> 20;
        writeln!(
            text,
            "\nfiles take {mean:.0} % of the conventional drive's {mib} MiB, {peak:.0} % at most"
        )
        .expect("a string takes all");
        text
    }

    /// The rows as figures of a results file.
    pub(crate) fn figures(&self) -> Vec<Figure> {
        let row = |row: &Row| {
            let rate = ratio(row.outcome.app_bytes, row.outcome.virtual_ns) * 1e3;
            let columns = [
                ("MB/s of files", rate),
                ("file system's amplification", row.fs_wa),
                ("drive's", row.drive_wa),
                ("product", row.total_wa),
            ];
            columns.map(|(variant, value)| Figure {
                name: row.outcome.name.clone(),
                variant: variant.to_owned(),
                samples: vec![value],
                ..Figure::default()
            })
        };
        self.rows.iter().flat_map(row).collect()
    }

    /// Rates and amplification as bars.
    pub(crate) fn picture(&self) -> Picture {
        let of = |value: fn(&Row) -> f64| self.rows.iter().map(value).collect();
        let rates = (0..self.rows.len()).map(|at| 1.0 / self.rate_beside(at)).collect();
        Picture::Bars(Bars {
            title: "RocksDB's files on simulated flash".into(),
            y: Axis::linear("ratio"),
            names: self.rows.iter().map(|row| row.outcome.name.clone()).collect(),
            ranges: Vec::new(),
            groups: vec![
                ("rate beside Furrow".into(), rates),
                ("file system's amplification".into(), of(|row| row.fs_wa)),
                ("drive's amplification".into(), of(|row| row.drive_wa)),
            ],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn config_fills_wanted_share_of_conventional_drive() {
        let bytes = 900 << 20;
        let config = config(bytes).unwrap();
        assert_eq!(config.flash.superblock_bytes(), ZONE);
        let share = ratio(bytes, config.layout().unwrap().user_bytes());
        assert!((share - 0.8).abs() < 0.005, "{share}");
    }
}
