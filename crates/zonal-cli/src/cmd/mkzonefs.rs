//! `zonal mkzonefs`: a new zonefs. Options and output are those of mkzonefs(8).

use anyhow::{Context, Result};
use schemars::JsonSchema;
use serde::Serialize;
use zonal::{ZoneKind, ZonedDevice};
use zonal_fs::zonefs::format::PERM_DEFAULT;
use zonal_fs::zonefs::{self, Aggregate, MkfsOptions, MkfsReport, Overwrite};

use crate::args::features::Features;
use crate::args::{Global, Mkzonefs};
use crate::device::{self, OpenMode};
use crate::output::{json, progress};

/// A new zonefs.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Made<'a> {
    /// The device, without layers in front.
    device: &'a str,
    /// UUID of the file system.
    uuid: String,
    /// Label of the file system.
    label: &'a str,
    /// From the start of the first zone to the end of the last one.
    size_bytes: u64,
    /// Number of zones of the device.
    zones: u32,
    /// From the start of a zone to that of the next.
    zone_size_bytes: u64,
    /// Size of a last zone that is smaller than the others.
    last_zone_size_bytes: Option<u64>,
    /// Zones that take writes anywhere.
    conventional_zones: u32,
    /// Zones that take writes at their write pointers.
    sequential_zones: u32,
    /// Zones that can only be read.
    read_only_zones: u32,
    /// Zones that can neither be read nor written.
    offline_zones: u32,
    /// Zones that become files.
    usable_zones: u32,
    /// Zones that were reset.
    zones_reset: u32,
    /// Whether conventional zones that are neighbours are one file.
    aggregated: bool,
    /// Owner of all files.
    uid: u32,
    /// Group of all files.
    gid: u32,
    /// Permission bits of all files, in octal digits.
    mode: String,
    #[serde(skip)]
    perm: u32,
    /// The kind of zones that are not conventional.
    #[serde(skip)]
    sequential_kind: ZoneKind,
}

/// Makes the file system.
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
        tracing::debug!(done = progress.done, of = progress.total, "zones reset");
    });
    bar.finish_and_clear();
    let made = made.with_context(|| format!("cannot make a zonefs on {name}"))?;
    let made = describe(&name, &*device, &options, &made);
    tracing::info!(uuid = made.uuid, zones_reset = made.zones_reset, "zonefs made");
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
    let perm = options.perm.unwrap_or(PERM_DEFAULT);
    Made {
        device: name,
        uuid: uuid::Uuid::from_bytes(options.uuid).to_string(),
        label: &options.label,
        size_bytes: geometry.bytes(geometry.block_count()).get(),
        zones: made.zones,
        zone_size_bytes: geometry.bytes(geometry.zone_size()).get(),
        last_zone_size_bytes: made.runt_bytes,
        conventional_zones: made.conventional,
        sequential_zones: made.sequential,
        read_only_zones: made.read_only,
        offline_zones: made.offline,
        usable_zones: made.usable,
        zones_reset: made.zones_reset,
        aggregated: options.aggregate == Aggregate::Conventional,
        uid: options.uid.unwrap_or(0),
        gid: options.gid.unwrap_or(0),
        mode: format!("{perm:04o}"),
        perm,
        sequential_kind: geometry.sequential_kind(),
    }
}

/// Prints line by line the output of mkzonefs(8), for scripts that read it.
fn print(made: &Made<'_>) {
    let sectors = |bytes: u64| bytes >> 9;
    let mib = |bytes: u64| bytes >> 20;
    let Made { device, zones, zone_size_bytes, last_zone_size_bytes: runt, .. } = *made;
    let (size, size_gib) = (sectors(made.size_bytes), made.size_bytes >> 30);
    sayln!("{device}: {size} 512-byte sectors ({size_gib} GiB)");
    sayln!("  {} device", model(made.sequential_kind));
    let whole = if runt.is_some() { zones - 1 } else { zones };
    let (size, size_mib) = (sectors(zone_size_bytes), mib(zone_size_bytes));
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
    sayln!("  File access permissions: {:o}", made.perm);
    if !made.label.is_empty() {
        sayln!("  FS label: {}", made.label);
    }
    sayln!("  FS UUID: {}", made.uuid);
    sayln!("Resetting sequential zones");
    sayln!("Writing super block");
}

/// The model of a device, by the kind of its zones that are not conventional.
const fn model(kind: ZoneKind) -> &'static str {
    match kind {
        ZoneKind::SequentialPreferred => "Host-aware",
        ZoneKind::SequentialRequired | ZoneKind::Conventional => "Host-managed",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zonal::Profile;

    #[test]
    fn model_of_each_profile_is_that_of_its_zones() {
        for profile in Profile::ALL {
            let wanted = if profile == Profile::HostAware { "Host-aware" } else { "Host-managed" };
            assert_eq!(model(profile.geometry().sequential_kind), wanted, "{profile}");
        }
    }
}
