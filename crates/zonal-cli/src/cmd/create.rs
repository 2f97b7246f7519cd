//! `zonal create`: an emulated zoned drive in a sparse file, or on a disk that has no zones.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::Path;

use anyhow::{Context, Error, Result};
use schemars::JsonSchema;
use serde::Serialize;
use zonal::file::{self, CreateOptions, FileDrive, Overwrite};
use zonal::profile::{Changes, ZoneLimit};
use zonal::{ByteCount, Geometry, Profile};
use zonal_fs::{FsError, signature};

use crate::args::{Create, Global};
use crate::output::{count, json, progress, size};

/// Zone size on a disk, unless an option sets it.
const DISK_ZONE: ByteCount = ByteCount::new(256 << 20);

/// A new drive.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Created<'a> {
    /// The file, or the disk that was given zones.
    device: &'a Path,
    /// Identity of the drive.
    uuid: String,
    /// From the start of the first zone to the end of the last one.
    size_bytes: u64,
    /// Number of zones.
    zones: u32,
    /// From the start of a zone to that of the next.
    zone_size_bytes: u64,
    /// Writable part of a zone.
    zone_capacity_bytes: u64,
    /// Number of files in the directory, if the drive is not one file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pieces: Option<usize>,
}

/// Makes the drive.
pub(crate) fn run(global: &Global, args: &Create) -> Result<()> {
    let name = args.file.display();
    let cannot = || format!("cannot create {name}");
    let is_disk = args.file.metadata().is_ok_and(|found| found.file_type().is_block_device());
    let mut changes = changes(args);
    if is_disk {
        cut(&mut changes, args).with_context(cannot)?;
    }
    let spec = changes.geometry().with_context(cannot)?;
    let uuid = args.uuid.unwrap_or_else(uuid::Uuid::new_v4);
    let options = CreateOptions {
        geometry: spec,
        rules: changes.profile.rules(),
        uuid: uuid.into_bytes(),
        overwrite: if args.force { Overwrite::Replace } else { Overwrite::Refuse },
    };
    tracing::debug!(file = %name, profile = changes.profile.name(), "creating a drive");
    let created = match args.piece_size {
        Some(_) if is_disk => anyhow::bail!("{name} is a disk: it has no pieces"),
        Some(piece) => FileDrive::create_in_pieces(&args.file, &options, piece),
        None => create_with_bar(&args.file, &options),
    };
    created.map_err(|error| what_it_holds(&args.file, error)).with_context(cannot)?;
    let geometry = Geometry::new(spec).context("the shape was checked when the drive was made")?;
    let created = Created {
        device: &args.file,
        uuid: uuid.to_string(),
        size_bytes: geometry.bytes(geometry.block_count()).get(),
        zones: geometry.zone_count(),
        zone_size_bytes: geometry.bytes(geometry.zone_size()).get(),
        zone_capacity_bytes: geometry.bytes(spec.zone_capacity).get(),
        pieces: fs::read_dir(&args.file).ok().map(Iterator::count),
    };
    tracing::info!(
        file = %name, bytes = created.size_bytes, zones = created.zones, "created a drive"
    );
    if global.json {
        return json::document(&created);
    }
    let zones = count(created.zones.into());
    let zone = size(created.zone_size_bytes);
    let form = match created.pieces {
        _ if is_disk => String::new(),
        None => ", sparse".to_owned(),
        Some(pieces) => format!(", a directory of {pieces} sparse files"),
    };
    sayln!("{name}: {} in {zones} zones of {zone}{form}", size(created.size_bytes));
    Ok(())
}

fn create_with_bar(path: &Path, options: &CreateOptions) -> Result<(), zonal::DeviceError> {
    let bar = progress::bar(0, progress::Unit::Bytes, "zeroing");
    let created = FileDrive::create_with(path, options, &mut |done, total| {
        bar.set_length(total);
        bar.set_position(done);
    });
    bar.finish_and_clear();
    created
}

/// Sets the defaults of a disk: as many zones as fit, and without a profile no limits, because the
/// disk has none.
fn cut(changes: &mut Changes, args: &Create) -> Result<()> {
    if args.profile.is_none() {
        changes.zone = changes.zone.or(Some(DISK_ZONE));
        changes.open = changes.open.or(Some(ZoneLimit::Unlimited));
        changes.active = changes.active.or(Some(ZoneLimit::Unlimited));
    }
    if changes.size.is_some() || changes.zones.is_some() {
        return Ok(());
    }
    let disk = file::disk_len(&args.file)?;
    let spec = changes.geometry()?;
    let zone = ByteCount::new(spec.zone_size.get() << spec.block_size.shift());
    changes.zones = Some(match file::zones_that_fit(disk, zone) {
        0 => anyhow::bail!("no zone of {} fits on {}", size(zone.get()), size(disk.get())),
        zones => zones,
    });
    Ok(())
}

/// The failure to create a drive on a disk that holds something; the error names its content.
fn what_it_holds(path: &Path, error: zonal::DeviceError) -> Error {
    let exists = matches!(&error, zonal::DeviceError::Io { source, .. }
        if source.kind() == std::io::ErrorKind::AlreadyExists);
    let mut start = vec![0; signature::LOOKED_AT];
    let is_disk = path.metadata().is_ok_and(|found| found.file_type().is_block_device());
    if !exists || !is_disk {
        return error.into();
    }
    let read = File::open(path).and_then(|disk| disk.read_exact_at(&mut start, 0));
    let found = read.ok().and_then(|()| signature::of_bytes(&start));
    let what =
        found.map_or_else(|| "data of an unknown kind".to_owned(), |found| found.to_string());
    FsError::Occupied { what }.into()
}

/// Properties of the profile that the options replace.
fn changes(args: &Create) -> Changes {
    let limit = |zones: Option<u32>| {
        zones.map(|zones| match zones {
            0 => ZoneLimit::Unlimited,
            zones => ZoneLimit::AtMost(zones),
        })
    };
    Changes {
        profile: args.profile.unwrap_or(Profile::Zns),
        size: args.size,
        zones: args.zones,
        block: args.block_size,
        zone: args.zone_size,
        capacity: args.zone_capacity,
        conventional: args.conventional,
        open: limit(args.max_open),
        active: limit(args.max_active),
        append: args.max_append,
    }
}
