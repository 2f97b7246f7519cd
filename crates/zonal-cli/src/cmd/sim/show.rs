//! `zonal sim show`: the drive that a config describes, before anything is simulated.

use std::collections::BTreeMap;

use anyhow::Result;
use schemars::JsonSchema;
use serde::Serialize;
use zonal_sim::Config;
use zonal_sim::config::{Disk, Kind};
use zonal_sim::ftl::ZoneMapped;

use crate::args::Global;
use crate::args::sim::SimShow;
use crate::output::{count, json, size, table};

/// An entry of a page-mapped table: a place in flash. At 4 KiB that is the talk's 1 GB per TB.
const ENTRY_BYTES: u64 = 4;

/// The output: an SSD or a disk.
#[derive(Serialize, JsonSchema)]
#[serde(untagged)]
pub(crate) enum Shown {
    /// A drive of flash.
    Flash(Flash),
    /// A spinning disk.
    Disk(Spinning),
}

/// A spinning disk that a config describes.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Spinning {
    /// Name of the config.
    name: String,
    /// Capacity that the host sees.
    user_capacity_bytes: u64,
    /// From the start of a zone to that of the next.
    zone_size_bytes: u64,
    /// Platters, arm, cache and command times, by the fields of the config file.
    #[schemars(with = "BTreeMap<String, serde_json::Value>")]
    disk: Disk,
}

/// A drive of flash that a config describes.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Flash {
    /// Name of the config.
    name: String,
    /// `conventional`, `zns` or `fdp`.
    #[schemars(with = "String")]
    drive_kind: Kind,
    /// Flash of the drive.
    raw_capacity_bytes: u64,
    /// Capacity that the host sees.
    user_capacity_bytes: u64,
    /// (raw − user) / user of all the flash.
    op_nominal: f64,
    /// The same of the flash in which data can rest.
    op_effective: f64,
    /// Dies of the drive.
    dies: u32,
    /// Size of a superblock.
    superblock_bytes: u64,
    /// Superblocks of the flash.
    superblocks: u32,
    /// Superblocks that are always free, open, or kept for bad ones.
    superblocks_kept: u32,
    /// Number of zones of a zoned drive.
    zones: Option<u32>,
    /// From the start of a zone to that of the next.
    zone_size_bytes: Option<u64>,
    /// Bytes of a mapping unit.
    unit_bytes: u64,
    /// Entries of the drive's mapping table.
    table_entries: u64,
    /// Memory of the drive for its table.
    dram_bytes: u64,
    /// Memory of the drive for random write areas of zones.
    area_bytes: u64,
}

/// Prints the drive.
pub(crate) fn run(global: &Global, args: &SimShow) -> Result<()> {
    let config = super::load(&args.simulated)?;
    let shown = match &config.disk {
        Some(disk) => Shown::Disk(Spinning::new(&config, disk)),
        None => Shown::Flash(Flash::new(&config)?),
    };
    if global.json {
        return json::document(&shown);
    }
    say!("{}", shown.text());
    Ok(())
}

impl Shown {
    fn text(&self) -> String {
        match self {
            Self::Flash(flash) => flash.text(),
            Self::Disk(disk) => disk.text(),
        }
    }
}

impl Spinning {
    fn new(config: &Config, disk: &Disk) -> Self {
        let zone_size_bytes = config.zones.size.0;
        Self {
            name: config.name.clone(),
            user_capacity_bytes: u64::from(disk.zones) * zone_size_bytes,
            zone_size_bytes,
            disk: disk.clone(),
        }
    }

    fn text(&self) -> String {
        let disk = &self.disk;
        let conventional = match disk.conventional {
            0 => "none".to_owned(),
            all if all == disk.zones => "all".to_owned(),
            some => format!(
                "{}, at {:.0} % of the way from the outer edge to the inner one",
                count(some.into()),
                100.0 * disk.conventional_at
            ),
        };
        let zones = format!("{} of {}", count(disk.zones.into()), mebibytes(self.zone_size_bytes));
        let turn = format!("{:.1} ms, {:.0} times a minute", 60e3 / disk.rpm, disk.rpm);
        let seek = format!(
            "{} ms to the next track, {} ms over a third, {} ms over all; {} ms more before a write",
            disk.track_seek_ms, disk.average_seek_ms, disk.full_seek_ms, disk.write_settle_ms
        );
        let cache = format!(
            "{} of writes in {} pieces; reads on for {}, for {} readers",
            size(disk.write_cache.0),
            count(disk.write_pieces.into()),
            size(disk.read_ahead.0),
            disk.read_segments
        );
        table::properties(&[
            ("name", self.name.clone()),
            ("kind", "a spinning disk".to_owned()),
            ("user", capacity(self.user_capacity_bytes)),
            ("zones", zones),
            ("conventional", conventional),
            ("heads", disk.heads.to_string()),
            ("rate", format!("{} MB/s outside, {} inside", disk.outer_mb_s, disk.inner_mb_s)),
            ("turn", turn),
            ("seek", seek),
            ("cache", cache),
            ("queue", format!("{} commands", disk.queue)),
        ])
    }
}

impl Flash {
    fn new(config: &Config) -> Result<Self> {
        let (flash, layout) = (&config.flash, config.layout()?);
        let zone = flash.superblock_bytes() * u64::from(config.zones.superblocks);
        let zones = u32::try_from(layout.user_bytes() / zone).expect("fewer than superblocks");
        let zoned = config.drive.kind == Kind::Zns;
        let entries = layout.user_units.into();
        let (table_entries, dram_bytes) = if zoned {
            (zones.into(), ZoneMapped::new(config)?.table_bytes())
        } else {
            (entries, ENTRY_BYTES * entries)
        };
        Ok(Self {
            name: config.name.clone(),
            drive_kind: config.drive.kind,
            raw_capacity_bytes: flash.raw_bytes(),
            user_capacity_bytes: layout.user_bytes(),
            op_nominal: layout.op_nominal(),
            op_effective: layout.op_effective(),
            dies: flash.dies(),
            superblock_bytes: flash.superblock_bytes(),
            superblocks: layout.raw_blocks,
            superblocks_kept: layout.kept_blocks + layout.raw_blocks - layout.blocks,
            zones: zoned.then_some(zones),
            zone_size_bytes: zoned.then_some(zone),
            unit_bytes: layout.unit,
            table_entries,
            dram_bytes,
            area_bytes: if zoned { config.zones.area_bytes() } else { 0 },
        })
    }

    fn text(&self) -> String {
        let percent = |share: f64| format!("{:.1} %", 100.0 * share);
        let mut lines = vec![
            ("name", self.name.clone()),
            ("kind", kind(self.drive_kind).to_owned()),
            ("flash", format!("{} on {} dies", capacity(self.raw_capacity_bytes), self.dies)),
            ("user", capacity(self.user_capacity_bytes)),
            ("nominal OP", format!("{} of the user capacity", percent(self.op_nominal))),
            (
                "effective OP",
                format!("{}, without what is kept free, open or bad", percent(self.op_effective)),
            ),
            (
                "superblocks",
                format!(
                    "{} of {}, {} of them kept",
                    count(self.superblocks.into()),
                    mebibytes(self.superblock_bytes),
                    self.superblocks_kept
                ),
            ),
        ];
        if let (Some(zones), Some(bytes)) = (self.zones, self.zone_size_bytes) {
            lines.push(("zones", format!("{} of {}", count(zones.into()), mebibytes(bytes))));
        }
        let of = if self.zones.is_some() { "a zone".into() } else { size(self.unit_bytes) };
        lines.push(("table", format!("{} entries, each for {of}", count(self.table_entries))));
        lines.push(("table's DRAM", size(self.dram_bytes)));
        if self.area_bytes > 0 {
            lines.push(("areas' DRAM", size(self.area_bytes)));
        }
        table::properties(&lines)
    }
}

/// Vendors count 10^9 bytes, flash has powers of two: this shows both.
fn capacity(bytes: u64) -> String {
    format!("{}.{} GB ({})", count(bytes / 1_000_000_000), bytes / 100_000_000 % 10, size(bytes))
}

/// Zones and superblocks as people name them: 1077 MiB, and not 1.1 GiB.
fn mebibytes(bytes: u64) -> String {
    if bytes.is_multiple_of(1 << 20) { format!("{} MiB", bytes >> 20) } else { size(bytes) }
}

/// The kind of drive, in words.
fn kind(kind: Kind) -> &'static str {
    match kind {
        Kind::Conventional => "conventional: page-mapped, with GC",
        Kind::Zns => "zoned: no GC, no over-provisioning",
        Kind::Fdp => "FDP: page-mapped, with GC and reclaim unit handles",
    }
}
