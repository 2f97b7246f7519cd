//! The metadata drive of a Furrow: the one that the user names, or else the one with its UUID.
//!
//! A search looks at the name that mkfs noted, at the drive files beside the data drive's file, and
//! at the disks of this machine that have zones, virtual or real ones.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use zonal::file::{CreateOptions, FileDrive, Overwrite, disk_len, zones_that_fit};
use zonal::output::is_drive;
use zonal::{
    Geometry, GeometrySpec, LbaCount, OpenMode, Rules, SystemClock, ZoneRuns, ZonedDevice, shown,
};
use zonal_fs::furrow::{self, Drives, Part, PartKind, part_of};

use crate::device::{self, Stack};
use crate::output::{progress, size};

/// The word in place of a drive that is lost.
const MISSING: &str = "missing";

/// The drives of a file system, and the files that the metadata drive adds.
pub(crate) struct Opened {
    pub(crate) drives: Drives,
    pub(crate) files: Vec<PathBuf>,
}

/// The drives of the Furrow on `stack`, which was opened with `mode`. `asked` names its metadata
/// drive, or says that it is missing.
pub(crate) fn drives(stack: &Stack, mode: OpenMode, asked: Option<&str>) -> Result<Opened> {
    let device = Arc::clone(&stack.device);
    let alone = |drives| Ok(Opened { drives, files: Vec::new() });
    let part = part_of(&*stack.plain).filter(|part| part.kind != PartKind::Whole);
    let Some(part) = &part else {
        let Some(asked) = asked else { return alone(device.into()) };
        bail!("metadata={asked}: no file system here has a metadata drive");
    };
    let PartKind::Data { metadata: name, .. } = &part.kind else {
        bail!(
            "it holds the metadata of the file system {}, whose data is on another drive: name \
             that one",
            id(part)
        )
    };
    if asked == Some(MISSING) {
        return alone(Drives::without_metadata(device)?);
    }
    let found = match asked {
        Some(asked) => asked.to_owned(),
        None => find(part, name, &stack.files)?,
    };
    let other = device::open_stack(&found, mode)?;
    if !part_of(&*other.plain).is_some_and(|other| part.belongs_to(&other)) {
        bail!("{} is not the metadata drive of the file system {}", shown(&found), id(part));
    }
    tracing::info!(device = shown(&found), "opened the metadata drive");
    let drives = Drives::with_metadata(device, other.device)?;
    Ok(Opened { drives, files: other.files })
}

/// Opens a device that a command names, and its metadata drive, if it has one.
pub(crate) fn open(spec: &str, mode: OpenMode) -> Result<Drives> {
    let stack = device::open_stack(spec, mode)?;
    drives(&stack, mode, None)
        .map(|opened| opened.drives)
        .with_context(|| format!("opening {spec}"))
}

/// The UUID of a file system.
fn id(part: &Part) -> uuid::Uuid {
    uuid::Uuid::from_bytes(part.uuid)
}

fn find(part: &Part, name: &str, files: &[PathBuf]) -> Result<String> {
    let is_it = |spec: &str| {
        let opened = device::openers().open(spec, OpenMode::ReadOnly, Arc::new(SystemClock::new()));
        let found = opened.ok().and_then(|stack| part_of(&*stack.plain));
        found.is_some_and(|other| part.belongs_to(&other))
    };
    if !name.is_empty() && is_it(name) {
        return Ok(name.to_owned());
    }
    let others = beside(files).into_iter().chain(disks());
    let specs = others.map(|path| format!("file:{}", path.display()));
    if let Some(found) = specs.into_iter().find(|spec| is_it(spec)) {
        return Ok(found);
    }
    let last = if name.is_empty() { String::new() } else { format!(", {} at mkfs", shown(name)) };
    bail!(
        "the metadata drive of the file system {}{last} is not found: name it with -o \
         metadata=DEVICE, or read what this drive has with -o ro,metadata={MISSING}",
        id(part)
    )
}

/// Drive files in the folders of `files`.
fn beside(files: &[PathBuf]) -> BTreeSet<PathBuf> {
    let folders = files.iter().filter(|file| file.is_file()).filter_map(|file| file.parent());
    let entries = folders.filter_map(|folder| {
        let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
        fs::read_dir(folder).ok()
    });
    let paths = entries.flatten().filter_map(|entry| Some(entry.ok()?.path()));
    paths.filter(|path| path.is_file() && is_drive(path)).collect()
}

/// Disks and partitions with zones, virtual or real ones.
fn disks() -> Vec<PathBuf> {
    let names = fs::read_dir("/sys/class/block").into_iter().flatten().flatten();
    let has_zones = |name: &Path| {
        let zoned =
            fs::read_to_string(Path::new("/sys/class/block").join(name).join("queue/zoned"));
        zoned.is_ok_and(|zoned| zoned.trim() != "none")
    };
    let disk = |entry: fs::DirEntry| {
        let (name, path) =
            (PathBuf::from(entry.file_name()), Path::new("/dev").join(entry.file_name()));
        (has_zones(&name) || is_drive(&path)).then_some(path)
    };
    names.filter_map(disk).collect()
}

/// Opens the drive that is to have the metadata of a new file system. A disk without zones becomes
/// a drive whose zones are as large as the zones of `data`. A disk that holds data needs
/// [`Force`](furrow::Overwrite::Force).
pub(crate) fn open_new(
    name: &str,
    data: &Geometry,
    overwrite: furrow::Overwrite,
) -> Result<Arc<dyn ZonedDevice>> {
    let path = Path::new(name);
    let is_disk = path.metadata().is_ok_and(|found| found.file_type().is_block_device());
    if is_disk && !is_drive(path) && !disks().iter().any(|disk| is_same(disk, path)) {
        let overwrite = match overwrite {
            furrow::Overwrite::Force => Overwrite::Replace,
            furrow::Overwrite::Refuse => Overwrite::Refuse,
        };
        make_zones(path, data, overwrite)?;
    }
    device::open(name, OpenMode::ReadWrite)
}

/// The name by which a later mount finds a drive from any folder. Symbolic links stay, such as
/// /dev/disk/by-id has them.
pub(crate) fn absolute(name: &str) -> String {
    let path = Path::new(name);
    let absolute = path.exists().then(|| std::path::absolute(path).ok()).flatten();
    absolute
        .and_then(|path| path.into_os_string().into_string().ok())
        .unwrap_or_else(|| name.to_owned())
}

fn is_same(disk: &Path, path: &Path) -> bool {
    disk.canonicalize().ok() == path.canonicalize().ok()
}

fn make_zones(path: &Path, data: &Geometry, overwrite: Overwrite) -> Result<()> {
    let spec = *data.spec();
    let zones = zones_that_fit(disk_len(path)?, data.bytes(spec.zone_size));
    let options = CreateOptions {
        geometry: GeometrySpec {
            block_count: LbaCount::new(u64::from(zones) * spec.zone_size.get()),
            conventional_zones: ZoneRuns::NONE,
            max_open: None,
            max_active: None,
            ..spec
        },
        rules: Rules::Zns,
        uuid: uuid::Uuid::new_v4().into_bytes(),
        overwrite,
    };
    let bar = progress::bar(0, progress::Unit::Bytes, "making zones");
    let made = FileDrive::create_with(path, &options, &mut |done, total| {
        bar.set_length(total);
        bar.set_position(done);
    });
    bar.finish_and_clear();
    let zone = size(data.bytes(spec.zone_size).get());
    made.with_context(|| format!("making {zones} zones of {zone} on {}", path.display()))
}
