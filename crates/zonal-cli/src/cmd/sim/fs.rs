//! `zonal sim fs`: the same files on every kind of drive, all of the same flash. What the file
//! system writes, times what the drive makes of it, is what wears the flash.

mod content;
mod furrow;
mod zonefs;

use std::fs;
use std::path::Path;

use anyhow::{Context, Error, Result};
use serde::Serialize;
use zonal_sim::Config;
use zonal_sim::config::Kind;
use zonal_sim::files::{self, Amount, Discard, FileLoad, FileStore, InPlace, Lifetimes, Outcome};
use zonal_sim::ftl::Layout;
use zonal_sim::report::chart::{Axis, Bars, Picture};
use zonal_sim::report::{Cell, Table as Report, svg};

use self::furrow::FurrowStore;
use self::zonefs::ZonefsStore;
use crate::args::Global;
use crate::args::sim::{SimFs, Simulated};
use crate::output::progress::{self, Unit};
use crate::output::table::Table;
use crate::output::{json, size};

/// A file system on a drive.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SetUp {
    Furrow,
    Zonefs,
    InPlace(Kind, Discard, Lifetimes),
}

/// Every set-up, and its name.
const SET_UPS: [(&str, SetUp); 6] = [
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

/// What is printed as JSON.
#[derive(Serialize)]
struct Compared<'a> {
    config: &'a Config,
    op_nominal: f64,
    op_effective: f64,
    raw_bytes: u64,
    user_bytes: u64,
    set_ups: Vec<Row<'a>>,
}

#[derive(Serialize)]
struct Row<'a> {
    #[serde(flatten)]
    outcome: &'a Outcome,
    fs_wa: f64,
    drive_wa: f64,
    total_wa: f64,
    wear: f64,
    virtual_s: f64,
}

/// Runs every set-up and prints the comparison.
pub(crate) fn run(global: &Global, args: &SimFs) -> Result<()> {
    let SimFs { config, set, seed, .. } = args;
    let simulated = Simulated { config: config.clone(), set: set.clone(), seed: *seed };
    let config = super::load(&simulated)?;
    files::check(&config)?;
    let conventional = of_kind(&config, Kind::Conventional).layout()?;
    let user_bytes = conventional.user_bytes();
    let mut outcomes = Vec::new();
    for (name, set_up) in SET_UPS {
        let outcome = measure(args, &config, (name, set_up), user_bytes);
        let fill = config.workload.fill;
        outcomes.push(outcome.with_context(|| format!("{name}, workload.fill = {fill}"))?);
    }
    let compared = Compared::new(&config, &conventional, &outcomes);
    if let Some(folder) = &args.out {
        write_all(folder, &compared, &outcomes)
            .with_context(|| format!("writing to {}", folder.display()))?;
    }
    if global.json {
        return json::document(&compared);
    }
    say!("{}", compared.text());
    Ok(())
}

fn of_kind(config: &Config, kind: Kind) -> Config {
    let mut config = config.clone();
    config.drive.kind = kind;
    config
}

fn measure(
    args: &SimFs,
    config: &Config,
    (name, set_up): (&str, SetUp),
    user_bytes: u64,
) -> Result<Outcome> {
    match set_up {
        SetUp::Furrow => {
            let mut store = FurrowStore::new(config)?;
            let outcome = drive(config, name, &mut store, user_bytes)?;
            if !args.no_verify {
                store.verify().context("reading all files again")?;
            }
            Ok(outcome)
        }
        SetUp::Zonefs => {
            let mut store = ZonefsStore::new(config)?;
            let outcome = drive(config, name, &mut store, user_bytes)?;
            if !args.no_verify {
                store.verify().context("reading all files again")?;
            }
            Ok(outcome)
        }
        SetUp::InPlace(kind, discard, lifetimes) => {
            let mut config = of_kind(config, kind);
            if kind == Kind::Conventional || kind == Kind::Zns {
                // Nobody tells the drive, or the log, about lifetimes.
                config.gc.streams = 1;
            }
            let mut store = InPlace::new(&config, discard, lifetimes)?;
            Ok(drive(&config, name, &mut store, user_bytes)?)
        }
    }
}

/// Runs the files on a store, with a progress bar.
fn drive<S: FileStore>(
    config: &Config,
    name: &str,
    store: &mut S,
    user_bytes: u64,
) -> Result<Outcome, S::Error>
where
    Error: From<S::Error>,
{
    let mut load = FileLoad::new(config, user_bytes)?;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "drive writes: bytes below 2^52"
    )]
    let bytes = |drive_writes: f64| (user_bytes as f64 * drive_writes) as u64;
    let amount =
        Amount { warm_up: bytes(config.run.warm_up), total: bytes(config.run.drive_writes) };
    let bar = progress::bar(amount.total, Unit::Bytes, name);
    let outcome = files::run(name, store, &mut load, amount, &mut |progress| {
        bar.set_position(progress.done);
    });
    bar.finish_and_clear();
    outcome
}

impl<'a> Compared<'a> {
    fn new(config: &'a Config, layout: &Layout, outcomes: &'a [Outcome]) -> Self {
        let row = |outcome: &'a Outcome| Row {
            fs_wa: outcome.fs_wa(),
            drive_wa: outcome.drive_wa(),
            total_wa: outcome.total_wa(),
            wear: outcome.wear(),
            virtual_s: outcome.seconds(),
            outcome,
        };
        Self {
            config,
            op_nominal: layout.op_nominal(),
            op_effective: layout.op_effective(),
            raw_bytes: config.flash.raw_bytes(),
            user_bytes: layout.user_bytes(),
            set_ups: outcomes.iter().map(row).collect(),
        }
    }

    fn text(&self) -> String {
        let heads = [
            "set-up", "written", "fs wrote", "fs wa", "drive wa", "product", "erases", "wear", "s",
        ];
        let mut table = Table::new(1, &heads);
        for row in &self.set_ups {
            table.row(vec![
                row.outcome.name.clone(),
                size(row.outcome.app_bytes),
                size(row.outcome.fs_bytes),
                format!("{:.2}", row.fs_wa),
                format!("{:.2}", row.drive_wa),
                format!("{:.2}", row.total_wa),
                row.outcome.erased.to_string(),
                format!("{:.2}", row.wear),
                format!("{:.1}", row.virtual_s),
            ]);
        }
        let Self { config, op_nominal, op_effective, raw_bytes, user_bytes, .. } = self;
        format!(
            "{}\nflash {}, user capacity {}: over-provisioning {:.1} % nominal, {:.1} % effective; \
             files take {:.0} %\nwear: flash erased per byte written by programs; s: virtual \
             seconds, one command at a time; seed {}\n",
            table.text(),
            size(*raw_bytes),
            size(*user_bytes),
            op_nominal * 100.0,
            op_effective * 100.0,
            config.workload.fill * 100.0,
            config.seed,
        )
    }

    fn report(&self) -> Report {
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
        let mut report = Report::new("fs", &columns);
        for row in &self.set_ups {
            let outcome = row.outcome;
            #[expect(clippy::cast_precision_loss, reason = "bytes below 2^52")]
            let number = |count: u64| Cell::from(count as f64);
            report.row(vec![
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
        report
    }
}

/// `fs.csv`, `fs.json`, `fs.svg`, and the config with which they are made again.
fn write_all(folder: &Path, compared: &Compared<'_>, outcomes: &[Outcome]) -> Result<()> {
    fs::create_dir_all(folder)?;
    fs::write(folder.join("fs.csv"), compared.report().csv())?;
    fs::write(folder.join("fs.json"), serde_json::to_string_pretty(compared)? + "\n")?;
    fs::write(folder.join("fs.toml"), compared.config.to_toml())?;
    let of = |wa: fn(&Outcome) -> f64| outcomes.iter().map(wa).collect();
    let bars = Bars {
        title: "Write amplification by file system and drive".into(),
        y: Axis::linear("bytes written below per byte of a program"),
        names: outcomes.iter().map(|outcome| outcome.name.clone()).collect(),
        groups: vec![
            ("file system".into(), of(Outcome::fs_wa)),
            ("drive".into(), of(Outcome::drive_wa)),
            ("product".into(), of(Outcome::total_wa)),
        ],
    };
    fs::write(folder.join("fs.svg"), svg::draw(&Picture::Bars(bars)))?;
    Ok(())
}

#[cfg(test)]
mod tests {
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

    fn outcomes(seed: u64) -> Vec<Outcome> {
        let config = config(seed);
        let user_bytes = config.layout().unwrap().user_bytes();
        let args = SimFs {
            config: String::new(),
            set: Vec::new(),
            seed: None,
            out: None,
            no_verify: false,
        };
        SET_UPS.map(|set_up| measure(&args, &config, set_up, user_bytes).unwrap()).into()
    }

    #[test]
    fn every_set_up_runs_the_same_files_and_keeps_them() {
        let found = outcomes(1);
        for outcome in &found {
            assert_eq!(outcome.app_bytes, found[0].app_bytes, "the same files");
            assert!(outcome.fs_wa() >= 1.0 && outcome.drive_wa() >= 1.0, "{outcome:?}");
            let product = outcome.fs_wa() * outcome.drive_wa();
            assert!((product - outcome.total_wa()).abs() < 1e-9, "{outcome:?}");
            // What is programmed is erased, one time or another.
            assert!((outcome.wear() / outcome.total_wa() - 1.0).abs() < 0.1, "{outcome:?}");
            assert!(outcome.virtual_ns > 0, "{outcome:?}");
        }
        let [_, zonefs, log, trim, no_trim, _] = &found[..] else { panic!("six set-ups") };
        assert!(log.drive_wa() < 1.001, "a zoned drive moves nothing: {log:?}");
        assert!(zonefs.total_wa() < log.total_wa(), "streams help: {zonefs:?} {log:?}");
        assert!(trim.total_wa() < no_trim.total_wa(), "TRIM helps: {trim:?} {no_trim:?}");
    }

    #[test]
    fn a_seed_gives_the_same_report_byte_for_byte() {
        let text = |outcomes: &[Outcome]| {
            let config = config(2);
            let layout = config.layout().unwrap();
            let compared = Compared::new(&config, &layout, outcomes);
            serde_json::to_string(&compared).unwrap() + &compared.text() + &compared.report().csv()
        };
        let first = text(&outcomes(2));
        assert_eq!(text(&outcomes(2)), first);
        assert_ne!(text(&outcomes(3)), first);
    }

    #[test]
    fn too_many_files_are_an_error() {
        let mut config = config(1);
        config.workload.fill = 1.0;
        let mut store = InPlace::new(&config, Discard::Online, Lifetimes::Unknown).unwrap();
        let user_bytes = config.layout().unwrap().user_bytes();
        let error = drive(&config, "full", &mut store, user_bytes).unwrap_err().to_string();
        assert!(error.starts_with("workload.fill = 1 is not possible"), "{error}");
    }

    #[test]
    fn blocks_that_are_no_mapping_units_are_refused() {
        let mut config = config(1);
        config.drive.unit.0 = 512;
        let error = files::check(&config).unwrap_err().to_string();
        assert!(error.starts_with("drive.unit = 512B is not possible: 4KiB"), "{error}");
    }
}
