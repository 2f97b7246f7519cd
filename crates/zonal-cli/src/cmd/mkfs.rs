//! `zonal mkfs`: a new Furrow file system.

use anyhow::{Context, Result};
use schemars::JsonSchema;
use serde::Serialize;
use zonal::SystemClock;
use zonal_fs::furrow::{self, Drives, MkfsOptions, Overwrite, Owner};

use super::division::Divided;
use crate::args::{Global, Mkfs};
use crate::device::{self, OpenMode};
use crate::metadata;
use crate::output::{count, json, progress, size};

/// The output: a new file system, or with `--dry-run` its plan.
#[derive(Serialize, JsonSchema)]
#[serde(untagged)]
pub(crate) enum Answer<'a> {
    /// A new file system.
    Made(Made<'a>),
    /// How the zones would be divided.
    Planned(Divided),
}

/// A new Furrow.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Made<'a> {
    /// The device, as the command line names it.
    device: &'a str,
    /// UUID of the file system.
    uuid: String,
    /// Label of the file system.
    label: &'a str,
    /// Number of zones of the device.
    zones: u32,
    /// Zones that were reset.
    zones_reset: u32,
    /// Zones that are read-only or offline and stay unused.
    zones_failed: u32,
    /// Space that files may fill.
    available_bytes: u64,
}

/// The user of this process, who becomes the owner of the root directory and may use the file
/// system.
pub(crate) fn user() -> Owner {
    let (uid, gid) = (rustix::process::getuid(), rustix::process::getgid());
    Owner { uid: uid.as_raw(), gid: gid.as_raw() }
}

/// Makes the file system.
pub(crate) fn run(global: &Global, args: &Mkfs) -> Result<()> {
    if args.dry_run {
        return plan(global, args);
    }
    let drives = drives(args, OpenMode::ReadWrite)?;
    let uuid = args.uuid.unwrap_or_else(uuid::Uuid::new_v4);
    let options = MkfsOptions {
        label: args.label.clone(),
        uuid: uuid.into_bytes(),
        reserve_percent: args.reserve.into(),
        overwrite: overwrite(args),
        owner: user(),
        metadata: args.metadata.as_deref().map(metadata::absolute).unwrap_or_default(),
    };
    let bar = progress::bar(0, progress::Unit::Zones, "resetting zones");
    let made = furrow::mkfs(drives, &SystemClock::new(), &options, &mut |progress| {
        bar.set_length(progress.total);
        bar.set_position(progress.done);
        tracing::debug!(done = progress.done, of = progress.total, "zones reset");
    });
    bar.finish_and_clear();
    let made = made.with_context(|| format!("cannot make a file system on {}", args.device))?;
    tracing::info!(device = args.device, %uuid, zones_reset = made.zones_reset, "Furrow made");
    if global.json {
        return json::document(&Answer::Made(Made {
            device: &args.device,
            uuid: uuid.to_string(),
            label: &args.label,
            zones: made.zones,
            zones_reset: made.zones_reset,
            zones_failed: made.zones_failed,
            available_bytes: made.user_bytes,
        }));
    }
    sayln!(
        "{}: Furrow on {} zones, {} for files",
        args.device,
        count(made.zones.into()),
        size(made.user_bytes)
    );
    sayln!("UUID {uuid}");
    if made.zones_failed > 0 {
        sayln!("{} zones are read-only or offline and stay unused", made.zones_failed);
    }
    Ok(())
}

fn overwrite(args: &Mkfs) -> Overwrite {
    if args.force { Overwrite::Force } else { Overwrite::Refuse }
}

/// The drives of the new file system.
fn drives(args: &Mkfs, mode: OpenMode) -> Result<Drives> {
    let data = device::open(&args.device, mode)?;
    let Some(name) = &args.metadata else { return Ok(data.into()) };
    let metadata = match mode {
        OpenMode::ReadWrite => metadata::open_new(name, data.geometry(), overwrite(args))?,
        OpenMode::ReadOnly | OpenMode::ReadLocked => device::open(name, mode)?,
    };
    Drives::with_metadata(data, metadata).with_context(|| format!("metadata on {name}"))
}

/// Prints how the zones would be divided.
fn plan(global: &Global, args: &Mkfs) -> Result<()> {
    let division = furrow::plan(drives(args, OpenMode::ReadOnly)?, args.reserve.into())
        .with_context(|| format!("cannot make a file system on {}", args.device))?;
    let shares = Divided::from(division);
    if global.json {
        return json::document(&Answer::Planned(shares));
    }
    say!("{}", shares.text());
    Ok(())
}
