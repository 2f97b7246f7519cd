//! Formatting: resets every zone, and writes a table with the root directory and a superblock.

use std::sync::Arc;

use zerocopy::FromZeros;
use zerocopy::byteorder::little_endian::{U16, U32, U64};
use zonal::{Clock, Zone, ZoneCond, ZonedDevice};

use crate::FsError;
use crate::furrow::drive::Drive;
use crate::furrow::drive::drives::Drives;
use crate::furrow::drive::layout::RowBytes;
use crate::furrow::format::BLOCK_SHIFT;
use crate::furrow::format::superblock::{Superblock, conventional_crc};
use crate::furrow::log::committer::Committer;
use crate::furrow::log::journal::Journal;
use crate::furrow::log::maintenance::flush_once;
use crate::furrow::log::superblock_log::SuperLog;
use crate::furrow::metadata::directory::names::NameKey;
use crate::furrow::metadata::residency::used::Used;
use crate::furrow::metadata::{Body, Directory, Ending, Inode, State};
use crate::furrow::planted::Planted;
use crate::furrow::sync::Mutex;
use crate::furrow::table::Table;
use crate::furrow::table::key::Key;
use crate::furrow::table::levels::Levels;
use crate::furrow::table::memtable::Memtable;
use crate::furrow::table::pairs::{MetaZones, Pairs};
use crate::furrow::table::view::View;
use crate::furrow::zones::{Role, ZoneSlot, Zones};
use crate::mkfs::{Overwrite, Progress, reset_used};
use crate::signature;
use crate::vfs::{FileKind, Ino, InodeFlags, Result, Timestamp};

/// The owner of the root directory. A user who mounts without being root can write only as this
/// owner.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Owner {
    /// User id; 0, the superuser, by default.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
}

/// Options of formatting.
#[derive(Clone, Debug)]
pub struct MkfsOptions {
    /// Name, at most 64 bytes of UTF-8.
    pub label: String,
    /// Identity; the caller makes it random.
    pub uuid: [u8; 16],
    /// Percent of the data zones that are reserved so that reclaim finds garbage: 7 by default.
    pub reserve_percent: u32,
    /// Whether to format a device that is not empty.
    pub overwrite: Overwrite,
    /// Owner of the root directory.
    pub owner: Owner,
    /// Name of the metadata drive, at most 256 bytes of UTF-8, if there is one: a mount looks for
    /// the drive there first.
    pub metadata: String,
}

impl Default for MkfsOptions {
    fn default() -> Self {
        let overwrite = Overwrite::Refuse;
        let (owner, metadata) = (Owner::default(), String::new());
        Self { label: String::new(), uuid: [0; 16], reserve_percent: 7, overwrite, owner, metadata }
    }
}

/// The result of formatting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MkfsReport {
    /// Zones of the device.
    pub zones: u32,
    /// Zones that had to be reset.
    pub zones_reset: u32,
    /// Zones that are read-only or offline and stay unused.
    pub zones_failed: u32,
    /// Bytes that files can fill.
    pub user_bytes: u64,
}

/// Formats one drive, or [two](Drives).
pub fn mkfs(
    drives: impl Into<Drives>,
    clock: &dyn Clock,
    options: &MkfsOptions,
    progress: &mut dyn FnMut(Progress),
) -> Result<MkfsReport> {
    let drive = Drive::of(&drives.into())?;
    format(&drive, clock, options, progress)
}

pub(super) fn format(
    drive: &Drive,
    clock: &dyn Clock,
    options: &MkfsOptions,
    progress: &mut dyn FnMut(Progress),
) -> Result<MkfsReport> {
    if options.label.len() > 64 {
        return Err(FsError::Invalid { what: "a label over 64 bytes" });
    }
    if options.metadata.len() > 256 {
        return Err(FsError::Invalid { what: "a name of a metadata drive over 256 bytes" });
    }
    if options.reserve_percent > 50 {
        return Err(FsError::Invalid { what: "a reserve over 50 percent" });
    }
    let zones = drive.device.report_all()?;
    let held = signature::find(&drive.device)?;
    options.overwrite.check(&drive.device, &zones, held.as_ref())?;
    let mut state = State::new(empty_zones(drive, &zones), NameKey::of(options.uuid));
    let usable = state.zones.usable();
    let user_blocks =
        drive.layout.user_blocks(usable, options.reserve_percent, RowBytes::default());
    if user_blocks < u64::from(drive.layout.zone_blocks) {
        let why = "after what metadata and reclaim need, less than one zone is left".into();
        return Err(FsError::Unsuitable { why });
    }
    let zones_reset = reset_used(&*drive.device, &zones, progress)?;
    if held.is_some() {
        signature::wipe(&drive.device)?;
    }
    insert_root(&mut state, clock, options.owner);
    write_first_table(drive, &mut state, clock, options)?;
    let failed = state.zones.all().filter(|(_, slot)| slot.role == Role::Failed).count();
    Ok(MkfsReport {
        zones: drive.layout.geometry.zone_count(),
        zones_reset,
        zones_failed: u32::try_from(failed).unwrap_or(u32::MAX),
        user_bytes: user_blocks << BLOCK_SHIFT,
    })
}

fn empty_zones(drive: &Drive, zones: &[Zone]) -> Zones {
    let layout = &drive.layout;
    let slot = |zone: &Zone| {
        let number = zone.id.get();
        let role = if layout.is_superblock(number) {
            Role::Super
        } else if matches!(zone.cond, ZoneCond::ReadOnly | ZoneCond::Offline) {
            Role::Failed
        } else {
            Role::Free
        };
        ZoneSlot::new(role, layout.capacity(number))
    };
    Zones::new(zones.iter().map(slot).collect(), layout.zone_limits())
}

fn insert_root(state: &mut State, clock: &dyn Clock, owner: Owner) {
    let now = Timestamp::from_ns(clock.wall_ns());
    let directory = Directory { parent: Ino::ROOT, next_cookie: 3, ..Directory::empty() };
    let root = Inode {
        kind: FileKind::Directory,
        perm: 0o755,
        nlink: 2,
        uid: owner.uid,
        gid: owner.gid,
        rdev: 0,
        size: 0,
        atime: now,
        mtime: now,
        ctime: now,
        btime: now,
        flags: InodeFlags::empty(),
        context: None,
        xattrs: crate::furrow::metadata::inode::xattrs::Xattrs::default(),
        used: Used::default(),
        body: Body::Directory(Box::new(directory)),
    };
    state.insert_inode(Ino::ROOT, root);
}

fn write_first_table(
    drive: &Drive,
    state: &mut State,
    clock: &dyn Clock,
    options: &MkfsOptions,
) -> Result<()> {
    let view = Arc::new(View::new(options.uuid, Levels::new(), Memtable::default(), 0));
    let mut committer = Committer {
        superblock: first_superblock(drive, clock, options),
        superlog: SuperLog::new(drive.layout.superblock_pairs),
        journal: Journal::new(options.uuid),
        table: Table::new(Arc::clone(&view)),
        durable_record: 0,
        trails_since_ns: None,
        is_unnamed: false,
        planted: Planted::default(),
    };
    state.freeze();
    let (rows, _) = state.frozen_rows(Key::MIN, usize::MAX);
    let rows = Memtable::of_rows(rows);
    state.thaw();
    let pairs = Mutex::new(Pairs::default());
    let mut zones = EmptyZones(state);
    flush_once(drive, &mut zones, &pairs, &mut committer, &rows)?;
    let mut pairs = pairs.lock().expect("no holder panicked");
    committer.write_manifest(drive, &mut zones, &mut pairs, &view.levels(), Ending::Clean)?;
    if drive.layout.few_open_pairs {
        pairs.seal(drive, &mut zones);
    }
    Ok(())
}

fn first_superblock(drive: &Drive, clock: &dyn Clock, options: &MkfsOptions) -> Superblock {
    let spec = drive.layout.geometry.spec();
    let mut superblock = Superblock::new_zeroed();
    let block_bytes = u16::try_from(spec.block_size.bytes()).expect("512 or 4096");
    superblock.device_block = U16::new(block_bytes);
    superblock.uuid = options.uuid;
    superblock.device_blocks = U64::new(spec.block_count.get());
    superblock.zone_size = U64::new(spec.zone_size.get());
    superblock.zone_capacity = U64::new(spec.zone_capacity.get());
    superblock.zones = U32::new(drive.layout.geometry.zone_count());
    superblock.conventional = U32::new(spec.conventional_zones.zone_count());
    superblock.conventional_crc = U32::new(conventional_crc(&spec.conventional_zones));
    superblock.created_ns = U64::new(u64::try_from(clock.wall_ns()).unwrap_or(0));
    superblock.reserve_percent = U32::new(options.reserve_percent);
    if drive.layout.has_metadata_drive() {
        superblock.data_zones = U32::new(drive.layout.data_zones);
        let name = options.metadata.as_bytes();
        superblock.metadata[..name.len()].copy_from_slice(name);
    }
    superblock.label[..options.label.len()].copy_from_slice(options.label.as_bytes());
    superblock
}

/// Zones of an empty drive.
struct EmptyZones<'a>(&'a mut State);

impl MetaZones for EmptyZones<'_> {
    fn take(&mut self, copy: usize) -> Option<u32> {
        self.0.zones.take_meta(copy)
    }

    fn taken(&self) -> Vec<u32> {
        // Nothing is given back before the first mount.
        Vec::new()
    }

    fn reset_refused(&mut self, zone: u32) {
        self.0.zones.fail(zone);
    }

    fn release(&mut self, zone: u32) {
        self.0.zones.release(zone);
    }
}
