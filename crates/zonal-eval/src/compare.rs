//! The same files on every set-up: a file system on a drive, all drives of the same flash.

use serde::Serialize;
use zonal_sim::config::Kind;
use zonal_sim::files::{self, Amount, Discard, FileLoad, FileStore, InPlace, Lifetimes, Outcome};
use zonal_sim::report::chart::{Axis, Bars, Picture};
use zonal_sim::report::{Cell, Table};
use zonal_sim::{Config, Progress};

use crate::furrow::FurrowStore;
use crate::zonefs::ZonefsStore;
use crate::{EvalError, Result};

/// A file system on a drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetUp {
    /// Furrow on a ZNS SSD.
    Furrow,
    /// A program's log on zonefs on a ZNS SSD.
    Zonefs,
    /// A file system that overwrites in place; on a ZNS SSD it is on a log of the host.
    InPlace(Kind, Discard, Lifetimes),
}

/// Every set-up, and its name.
pub const SET_UPS: [(&str, SetUp); 6] = [
    ("Furrow, ZNS", SetUp::Furrow),
    ("a program's log on zonefs, ZNS", SetUp::Zonefs),
    (
        "in place on the host's log, ZNS",
        SetUp::InPlace(Kind::Zns, Discard::Online, Lifetimes::Unknown),
    ),
    (
        "in place with TRIM, conventional",
        SetUp::InPlace(Kind::Conventional, Discard::Online, Lifetimes::Unknown),
    ),
    (
        "in place without TRIM, conventional",
        SetUp::InPlace(Kind::Conventional, Discard::Never, Lifetimes::Unknown),
    ),
    (
        "in place, handles by lifetime, FDP",
        SetUp::InPlace(Kind::Fdp, Discard::Online, Lifetimes::Handles),
    ),
];

/// Whether every file is read again and the file system checked after its run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verify {
    /// It is.
    Everything,
    /// It is not.
    Nothing,
}

/// The results of every set-up with the files.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Comparison {
    /// The drives and the files.
    #[cfg_attr(
        feature = "schema",
        schemars(with = "std::collections::BTreeMap<String, serde_json::Value>")
    )]
    pub config: Config,
    /// Spare flash as drives are sold: (raw − user) / user, from the config.
    pub op_nominal: f64,
    /// The same after rounding to superblocks.
    pub op_effective: f64,
    /// Bytes of flash.
    #[serde(rename = "raw_capacity_bytes")]
    pub raw_bytes: u64,
    /// Bytes of the conventional drive.
    #[serde(rename = "user_capacity_bytes")]
    pub user_bytes: u64,
    /// One row per set-up, in the order of [`SET_UPS`].
    pub set_ups: Vec<Row>,
}

/// One set-up.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Row {
    /// The counts.
    #[serde(flatten)]
    pub outcome: Outcome,
    /// Bytes written to the drive per byte of the programs; null where they wrote nothing, as the
    /// ratios after it.
    #[cfg_attr(feature = "schema", schemars(with = "Option<f64>"))]
    pub fs_wa: f64,
    /// Bytes programmed per byte written to the drive.
    #[cfg_attr(feature = "schema", schemars(with = "Option<f64>"))]
    pub drive_wa: f64,
    /// Bytes programmed per byte of the programs.
    #[serde(rename = "wa")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<f64>"))]
    pub total_wa: f64,
    /// Flash erased per byte of the programs.
    #[cfg_attr(feature = "schema", schemars(with = "Option<f64>"))]
    pub wear: f64,
    /// Virtual seconds, one command at a time. JSON has the same as `virtual_ns`.
    #[serde(skip)]
    pub virtual_s: f64,
}

/// Runs every set-up. `progress` gets the name of the set-up that runs and how far it is, in bytes.
pub fn compare(
    config: &Config,
    verify: Verify,
    progress: &mut dyn FnMut(&str, Progress),
) -> Result<Comparison> {
    files::check(config)?;
    let conventional = of_kind(config, Kind::Conventional).layout()?;
    let user_bytes = conventional.user_bytes();
    let mut set_ups = Vec::new();
    for (name, set_up) in SET_UPS {
        let mut advance = |at| progress(name, at);
        let outcome = measure(config, (name, set_up), user_bytes, verify, &mut advance);
        let outcome = outcome.map_err(|source| {
            let (fill, source) = (config.workload.fill, Box::new(source));
            EvalError::SetUp { set_up: name, fill, source }
        })?;
        set_ups.push(Row::new(outcome));
    }
    Ok(Comparison {
        config: config.clone(),
        op_nominal: conventional.op_nominal(),
        op_effective: conventional.op_effective(),
        raw_bytes: config.flash.raw_bytes(),
        user_bytes,
        set_ups,
    })
}

fn of_kind(config: &Config, kind: Kind) -> Config {
    let mut config = config.clone();
    config.drive.kind = kind;
    config
}

fn measure(
    config: &Config,
    (name, set_up): (&str, SetUp),
    user_bytes: u64,
    verify: Verify,
    progress: &mut dyn FnMut(Progress),
) -> Result<Outcome> {
    match set_up {
        SetUp::Furrow => {
            let mut store = FurrowStore::new(config)?;
            let outcome = drive(config, name, &mut store, user_bytes, progress)?;
            if verify == Verify::Everything {
                store.verify()?;
            }
            Ok(outcome)
        }
        SetUp::Zonefs => {
            let mut store = ZonefsStore::new(config)?;
            let outcome = drive(config, name, &mut store, user_bytes, progress)?;
            if verify == Verify::Everything {
                store.verify()?;
            }
            Ok(outcome)
        }
        SetUp::InPlace(kind, discard, lifetimes) => {
            let mut config = of_kind(config, kind);
            if kind == Kind::Conventional || kind == Kind::Zns {
                // Neither the drive nor the log knows lifetimes.
                config.gc.streams = 1;
            }
            let mut store = InPlace::new(&config, discard, lifetimes)?;
            Ok(drive(&config, name, &mut store, user_bytes, progress)?)
        }
    }
}

/// Runs the files on a store.
fn drive<S: FileStore>(
    config: &Config,
    name: &str,
    store: &mut S,
    user_bytes: u64,
    progress: &mut dyn FnMut(Progress),
) -> std::result::Result<Outcome, S::Error> {
    let mut load = FileLoad::new(config, user_bytes)?;
    files::run(name, store, &mut load, amount(config, user_bytes), progress)
}

/// Bytes that the programs write.
fn amount(config: &Config, user_bytes: u64) -> Amount {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "drive writes: bytes below 2^52"
    )]
    let bytes = |drive_writes: f64| (user_bytes as f64 * drive_writes) as u64;
    Amount { warm_up: bytes(config.run.warm_up), total: bytes(config.run.drive_writes) }
}

impl Row {
    fn new(outcome: Outcome) -> Self {
        Self {
            fs_wa: outcome.fs_wa(),
            drive_wa: outcome.drive_wa(),
            total_wa: outcome.total_wa(),
            wear: outcome.wear(),
            virtual_s: outcome.seconds(),
            outcome,
        }
    }
}

impl Comparison {
    /// The rows as a table.
    pub fn table(&self) -> Table {
        let columns = [
            "set_up",
            "app_bytes",
            "fs_bytes",
            "flash_bytes",
            "fs_wa",
            "drive_wa",
            "total_wa",
            "erased_superblocks",
            "wear",
            "virtual_s",
        ];
        let mut table = Table::new("fs", &columns);
        for row in &self.set_ups {
            let outcome = &row.outcome;
            #[expect(clippy::cast_precision_loss, reason = "bytes below 2^52")]
            let number = |count: u64| Cell::from(count as f64);
            table.row(vec![
                Cell::from(outcome.name.as_str()),
                number(outcome.app_bytes),
                number(outcome.fs_bytes),
                number(outcome.flash_bytes),
                Cell::from(row.fs_wa),
                Cell::from(row.drive_wa),
                Cell::from(row.total_wa),
                number(outcome.erased),
                Cell::from(row.wear),
                Cell::from(row.virtual_s),
            ]);
        }
        table
    }

    /// Write amplification of every set-up as bars.
    pub fn picture(&self) -> Picture {
        let of = |wa: fn(&Row) -> f64| self.set_ups.iter().map(wa).collect();
        Picture::Bars(Bars {
            title: "Write amplification by file system and drive".into(),
            y: Axis::linear("bytes written below per byte of a program"),
            names: self.set_ups.iter().map(|row| row.outcome.name.clone()).collect(),
            ranges: Vec::new(),
            groups: vec![
                ("file system".into(), of(|row| row.fs_wa)),
                ("drive".into(), of(|row| row.drive_wa)),
                ("product".into(), of(|row| row.total_wa)),
            ],
        })
    }
}

#[cfg(test)]
mod tests {
    use zonal::repeat;
    use zonal_sim::Size;

    use super::*;

    /// 96 MiB of flash in 256 zones.
    fn config(seed: u64) -> Config {
        let mut config = Config::default();
        (config.seed, config.drive.op) = (seed, 0.15);
        let flash = &mut config.flash;
        (flash.channels, flash.dies_per_channel) = (2, 2);
        (flash.programs_per_block, flash.superblocks) = (1, 256);
        (config.gc.streams, config.fdp.handles) = (2, 3);
        let workload = &mut config.workload;
        (workload.fill, workload.io) = (0.7, Size(16 << 10));
        (config.run.drive_writes, config.run.warm_up) = (3.0, 1.5);
        config.check().unwrap();
        config
    }

    fn comparison(seed: u64) -> Comparison {
        compare(&config(seed), Verify::Everything, &mut |_, _| ()).unwrap()
    }

    #[test]
    fn compare_runs_same_files_on_every_set_up() {
        let rows = comparison(1).set_ups;
        for row in &rows {
            let outcome = &row.outcome;
            assert_eq!(outcome.app_bytes, rows[0].outcome.app_bytes, "the same files");
            assert!(row.fs_wa >= 1.0 && row.drive_wa >= 1.0, "{row:?}");
            assert!((row.fs_wa * row.drive_wa - row.total_wa).abs() < 1e-9, "{row:?}");
            // Programmed flash is erased sooner or later.
            assert!((row.wear / row.total_wa - 1.0).abs() < 0.1, "{row:?}");
            assert!(outcome.virtual_ns > 0, "{outcome:?}");
        }
        let [_, zonefs, log, trim, no_trim, _] = &rows[..] else { panic!("six set-ups") };
        assert!(log.drive_wa < 1.001, "a zoned drive moves nothing: {log:?}");
        assert!(zonefs.total_wa < log.total_wa, "streams help: {zonefs:?} {log:?}");
        assert!(trim.total_wa < no_trim.total_wa, "TRIM helps: {trim:?} {no_trim:?}");
    }

    /// `SEED` chooses the files, `COUNT` is how often the drive is written over.
    #[test]
    #[ignore = "takes minutes; run by cargo xtask test --soak"]
    fn compare_keeps_every_file_over_long_virtual_time() {
        let mut config = config(repeat::seed(1));
        config.run.drive_writes = repeat::count(1000_u32).into();
        for row in compare(&config, Verify::Everything, &mut |_, _| ()).unwrap().set_ups {
            let name = &row.outcome.name;
            println!("{name}: {:.0} s of virtual time, {:.3}", row.virtual_s, row.total_wa);
        }
    }

    #[test]
    fn compare_same_seed_gives_same_bytes() {
        let text = |seed| {
            // One config for both, so that only the results can differ.
            let comparison = Comparison { config: config(2), ..comparison(seed) };
            serde_json::to_string(&comparison).unwrap() + &comparison.table().csv()
        };
        let first = text(2);
        assert_eq!(text(2), first);
        assert_ne!(text(3), first);
    }

    #[test]
    fn compare_refuses_too_many_files() {
        let mut config = config(1);
        config.workload.fill = 1.0;
        let error = compare(&config, Verify::Nothing, &mut |_, _| ()).unwrap_err().to_string();
        assert!(error.contains("workload.fill = 1"), "{error}");
    }

    #[test]
    fn compare_refuses_blocks_unlike_mapping_units() {
        let mut config = config(1);
        config.drive.unit.0 = 512;
        let error = compare(&config, Verify::Nothing, &mut |_, _| ()).unwrap_err().to_string();
        assert!(error.starts_with("drive.unit = 512B is not possible: 4KiB"), "{error}");
    }
}
