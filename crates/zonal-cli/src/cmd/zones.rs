//! `zonal zones`: the zone report as a table, as JSON, or as a picture.

use anyhow::{Context, Result};
use serde::Serialize;
use zonal::{Lba, LbaCount, Zone, ZoneId, ZoneKind, ZonedDevice};
use zonal_fuse::zone_report;

use crate::args::{Global, Zones};
use crate::device::{self, OpenMode};
use crate::output::{json, map};

/// Zones that are asked for at once: a large drive is printed as it is read.
const CHUNK: u32 = 4096;

/// One zone, as JSON has it. Addresses and lengths are in blocks.
#[derive(Serialize)]
struct Row {
    zone: u32,
    kind: &'static str,
    condition: &'static str,
    start: u64,
    size: u64,
    capacity: u64,
    write_pointer: Option<u64>,
    written: Option<u64>,
}

impl Row {
    fn new(zone: &Zone) -> Self {
        Self {
            zone: zone.id.get(),
            kind: match zone.kind {
                ZoneKind::Conventional => "conventional",
                ZoneKind::SequentialRequired => "sequential",
            },
            condition: zone.cond.name(),
            start: zone.start.get(),
            size: zone.size.get(),
            capacity: zone.capacity.get(),
            write_pointer: zone.wp.map(Lba::get),
            written: zone.written().map(LbaCount::get),
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
                json::line(&Row::new(zone))?;
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
