//! `zonal mkzonefs`: a new zonefs. Options and output are those of mkzonefs(8).

use anyhow::{Context, Result};
use serde::Serialize;
use zonal::ZonedDevice;
use zonal_fs::zonefs::format::PERM_DEFAULT;
use zonal_fs::zonefs::{self, Aggregate, MkfsOptions, MkfsReport, Overwrite};

use crate::args::features::Features;
use crate::args::{Global, Mkzonefs};
use crate::device::{self, OpenMode};
use crate::output::{json, progress};

#[derive(Serialize)]
struct Made<'a> {
    device: &'a str,
    uuid: String,
    label: &'a str,
    bytes: u64,
    zones: u32,
    zone_bytes: u64,
    last_zone_bytes: Option<u64>,
    conventional_zones: u32,
    sequential_zones: u32,
    read_only_zones: u32,
    offline_zones: u32,
    usable_zones: u32,
    zones_reset: u32,
    aggregated: bool,
    uid: u32,
    gid: u32,
    /// As chmod(1) has it.
    perm: String,
}

/// Makes it.
pub(crate) fn run(global: &Global, args: &Mkzonefs) -> Result<()> {
    let name = device::source(&args.device);
    let device = device::open(&args.device, OpenMode::ReadWrite)?;
    let features = args.features.iter().fold(Features::default(), |all, more| all.and(*more));
    let uuid = args.uuid.unwrap_or_else(uuid::Uuid::new_v4);
    let options = MkfsOptions {
        label: args.label.clone(),
        uuid: uuid.into_bytes(),
        aggregate: features.aggregate,
        uid: features.uid,
        gid: features.gid,
        perm: features.perm,
        overwrite: if args.force { Overwrite::Force } else { Overwrite::Refuse },
    };
    let bar = progress::bar(0, progress::Unit::Zones, "resetting zones");
    let made = zonefs::mkfs(&*device, &options, &mut |progress| {
        bar.set_length(progress.total);
        bar.set_position(progress.done);
    });
    bar.finish_and_clear();
    let made = made.with_context(|| format!("cannot make a zonefs on {name}"))?;
    let made = describe(&name, &*device, &options, &made);
    if global.json {
        return json::document(&made);
    }
    print(&made);
    Ok(())
}

fn describe<'a>(
    name: &'a str,
    device: &dyn ZonedDevice,
    options: &'a MkfsOptions,
    made: &MkfsReport,
) -> Made<'a> {
    let geometry = device.geometry();
    Made {
        device: name,
        uuid: uuid::Uuid::from_bytes(options.uuid).to_string(),
        label: &options.label,
        bytes: geometry.bytes(geometry.block_count()).get(),
        zones: made.zones,
        zone_bytes: geometry.bytes(geometry.zone_size()).get(),
        last_zone_bytes: made.runt_bytes,
        conventional_zones: made.conventional,
        sequential_zones: made.sequential,
        read_only_zones: made.read_only,
        offline_zones: made.offline,
        usable_zones: made.usable,
        zones_reset: made.zones_reset,
        aggregated: options.aggregate == Aggregate::Conventional,
        uid: options.uid.unwrap_or(0),
        gid: options.gid.unwrap_or(0),
        perm: format!("{:o}", options.perm.unwrap_or(PERM_DEFAULT)),
    }
}

/// Line by line what mkzonefs(8) prints, for scripts that read it.
fn print(made: &Made<'_>) {
    let sectors = |bytes: u64| bytes >> 9;
    let mib = |bytes: u64| bytes >> 20;
    let Made { device, zones, zone_bytes, last_zone_bytes: runt, .. } = *made;
    sayln!("{device}: {} 512-byte sectors ({} GiB)", sectors(made.bytes), made.bytes >> 30);
    sayln!("  Host-managed device");
    let whole = if runt.is_some() { zones - 1 } else { zones };
    let (size, size_mib) = (sectors(zone_bytes), mib(zone_bytes));
    sayln!("  {whole} zones of {size} 512-byte sectors ({size_mib} MiB)");
    if let Some(runt) = runt {
        sayln!("  1 runt zone of {} 512-byte sectors ({} MiB)", sectors(runt), mib(runt));
    }
    let (conventional, sequential) = (made.conventional_zones, made.sequential_zones);
    sayln!("  {conventional} conventional zones, {sequential} sequential zones");
    sayln!("  {} read-only zones, {} offline zones", made.read_only_zones, made.offline_zones);
    sayln!("Format:");
    sayln!("  {} usable zones", made.usable_zones);
    let aggregated = if made.aggregated { "enabled" } else { "disabled" };
    sayln!("  Aggregate conventional zones: {aggregated}");
    sayln!("  File UID: {}", made.uid);
    sayln!("  File GID: {}", made.gid);
    sayln!("  File access permissions: {}", made.perm);
    if !made.label.is_empty() {
        sayln!("  FS label: {}", made.label);
    }
    sayln!("  FS UUID: {}", made.uuid);
    sayln!("Resetting sequential zones");
    sayln!("Writing super block");
}
