//! `zonal zones`: the zone report as a table, as JSON, or as a picture.

use anyhow::{Context, Result};
use schemars::JsonSchema;
use serde::Serialize;
use zonal::{Geometry, Lba, LbaCount, Zone, ZoneId, ZonedDevice};
use zonal_fuse::zone_report;

use crate::args::{Global, Zones};
use crate::device::{self, OpenMode};
use crate::output::{json, map};

/// Zones in one report request: a large drive is printed as it is read.
const CHUNK: u32 = 4096;

/// One zone, as JSON has it: addresses as `--lba` takes them, lengths in bytes.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Row {
    /// Its number.
    zone: u32,
    /// Which writes it takes: `conventional`, `sequential` or `sequential-preferred`.
    zone_type: &'static str,
    /// Its condition.
    condition: &'static str,
    /// Its first block.
    start_lba: u64,
    /// From its start to that of the next.
    zone_size_bytes: u64,
    /// Its writable part.
    zone_capacity_bytes: u64,
    /// Next block to be written; null where there is no write pointer.
    write_pointer_lba: Option<u64>,
    /// Bytes written; null where there is no write pointer.
    written_bytes: Option<u64>,
    /// Whether it was written elsewhere than at its write pointer since the last reset, which only
    /// a `sequential-preferred` zone can be.
    non_sequential: bool,
}

impl Row {
    fn new(zone: &Zone, geometry: &Geometry) -> Self {
        let bytes = |blocks: LbaCount| geometry.bytes(blocks).get();
        Self {
            zone: zone.id.get(),
            zone_type: zone.kind.name(),
            condition: zone.cond.name(),
            start_lba: zone.start.get(),
            zone_size_bytes: bytes(zone.size),
            zone_capacity_bytes: bytes(zone.capacity),
            write_pointer_lba: zone.wp.map(Lba::get),
            written_bytes: zone.written().map(bytes),
            non_sequential: zone.non_sequential,
        }
    }
}

/// Prints the report.
pub(crate) fn run(global: &Global, args: &Zones) -> Result<()> {
    let device = device::open(&args.device, OpenMode::ReadOnly)?;
    if args.map && !global.json {
        let width = args.width.map_or_else(map::terminal_width, usize::from);
        say!("{}", map::draw(&device::report(&*device)?, width, map::ink()));
        return Ok(());
    }
    if !global.json {
        sayln!("{}", zone_report::HEAD);
    }
    let limit = args.first.saturating_add(args.count.unwrap_or(u32::MAX));
    each_chunk(&*device, args.first, limit, |zones| {
        for zone in zones {
            if global.json {
                json::line(&Row::new(zone, device.geometry()))?;
            } else {
                sayln!("{}", zone_report::line(zone));
            }
        }
        Ok(())
    })
}

fn each_chunk(
    device: &dyn ZonedDevice,
    first: u32,
    limit: u32,
    mut each: impl FnMut(&[Zone]) -> Result<()>,
) -> Result<()> {
    let limit = limit.min(device.geometry().zone_count());
    let mut zones = Vec::new();
    let mut next = first;
    while next < limit {
        zones.clear();
        let wanted = (limit - next).min(CHUNK);
        device
            .report(ZoneId::new(next), &mut zones, wanted as usize)
            .with_context(|| format!("reporting zones from {next} on"))?;
        each(&zones)?;
        next += wanted;
    }
    Ok(())
}
