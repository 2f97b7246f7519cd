//! `zonal sim show`: what a config makes, before anything is simulated.

use anyhow::Result;
use serde::Serialize;
use zonal_sim::Config;
use zonal_sim::config::Kind;
use zonal_sim::ftl::ZoneMapped;

use crate::args::Global;
use crate::args::sim::SimShow;
use crate::output::{count, json, size, table};

/// An entry of a page-mapped table: a place in flash. The talk's 1 GB per TB is this at 4 KiB.
const ENTRY_BYTES: u64 = 4;

#[derive(Serialize)]
struct Shown {
    name: String,
    kind: Kind,
    raw_bytes: u64,
    user_bytes: u64,
    op_nominal: f64,
    op_effective: f64,
    dies: u32,
    superblock_bytes: u64,
    superblocks: u32,
    /// Of these, always free, open, or kept for bad ones.
    superblocks_kept: u32,
    zones: Option<u32>,
    zone_bytes: Option<u64>,
    unit_bytes: u64,
    table_entries: u64,
    /// Memory of the drive for its table.
    dram_bytes: u64,
}

/// Prints it.
pub(crate) fn run(global: &Global, args: &SimShow) -> Result<()> {
    let config = super::load(&args.simulated)?;
    let shown = Shown::new(&config)?;
    if global.json {
        return json::document(&shown);
    }
    say!("{}", shown.text());
    Ok(())
}

impl Shown {
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
            kind: config.drive.kind,
            raw_bytes: flash.raw_bytes(),
            user_bytes: layout.user_bytes(),
            op_nominal: layout.op_nominal(),
            op_effective: layout.op_effective(),
            dies: flash.dies(),
            superblock_bytes: flash.superblock_bytes(),
            superblocks: layout.raw_blocks,
            superblocks_kept: layout.kept_blocks + layout.raw_blocks - layout.blocks,
            zones: zoned.then_some(zones),
            zone_bytes: zoned.then_some(zone),
            unit_bytes: layout.unit,
            table_entries,
            dram_bytes,
        })
    }

    fn text(&self) -> String {
        let percent = |share: f64| format!("{:.1} %", 100.0 * share);
        let mut lines = vec![
            ("name", self.name.clone()),
            ("kind", kind(self.kind).to_owned()),
            ("flash", format!("{} on {} dies", capacity(self.raw_bytes), self.dies)),
            ("user", capacity(self.user_bytes)),
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
        if let (Some(zones), Some(bytes)) = (self.zones, self.zone_bytes) {
            lines.push(("zones", format!("{} of {}", count(zones.into()), mebibytes(bytes))));
        }
        let of = if self.zones.is_some() { "a zone".into() } else { size(self.unit_bytes) };
        lines.push(("table", format!("{} entries, each for {of}", count(self.table_entries))));
        lines.push(("table's DRAM", size(self.dram_bytes)));
        table::properties(&lines)
    }
}

/// Drives are sold by 10^9 bytes, and flash is made of powers of two: both.
fn capacity(bytes: u64) -> String {
    format!("{}.{} GB ({})", count(bytes / 1_000_000_000), bytes / 100_000_000 % 10, size(bytes))
}

/// Zones and superblocks as people name them: 1077 MiB, and not 1.1 GiB.
fn mebibytes(bytes: u64) -> String {
    if bytes.is_multiple_of(1 << 20) { format!("{} MiB", bytes >> 20) } else { size(bytes) }
}

/// What a kind is called.
fn kind(kind: Kind) -> &'static str {
    match kind {
        Kind::Conventional => "conventional: page-mapped, with GC",
        Kind::Zns => "zoned: no GC, no over-provisioning",
        Kind::Fdp => "FDP: page-mapped, with GC and reclaim unit handles",
    }
}
