//! zonefs: every zone a file, as Linux's file system of that name has it.
//!
//! The state of the file system is that of the zones: the size of a sequential file is its zone's
//! write pointer, and writes go there; truncation to 0 resets the zone, truncation to the largest
//! size finishes it. The device holds a super block and nothing else. Changes by `chmod`, `chown`
//! and `utime` last until the unmount.
//!
//! - `format`, `mkfs`: the super block, and making it.
//! - `tree`, `file`: the files, and the state of each one with its locks.
//! - `io`, `zones`: reading and writing; opening, closing, resetting and finishing.
//! - `recover`: the state of a file after its zone has failed.
//! - `ops`: [`FileSystem`](crate::vfs::FileSystem), in terms of these.
//!
//! Zones may have any size, a power of two or not. `docs/semantics.md` has the result of each
//! operation, and the few differences from Linux.

mod file;
pub mod format;
mod io;
mod mkfs;
mod ops;
mod options;
mod recover;
mod tree;
mod zones;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use serde::{Deserialize, Serialize};
use zonal::layer::elevator::{self, Elevator};
use zonal::{Clock, Select, Zone, ZoneAction, ZoneCond, ZoneId, ZonedDevice};

use self::file::{Owned, ZoneFile};
use self::format::PERM_DEFAULT;
use self::tree::ZoneTree;
use self::zones::{InUse, Unclosed};
use crate::vfs::{Access, Ino, Result, Timestamp};

pub use self::file::{Group, Health};
pub use self::format::{Aggregate, Label, MAGIC, Superblock, SuperblockError};
pub use self::mkfs::{MkfsOptions, MkfsReport, mkfs};
pub use crate::mkfs::{Overwrite, Progress};

/// Result of an operation of the device.
type DeviceResult<T> = std::result::Result<T, zonal::DeviceError>;

/// Policy for a file whose zone has failed or was changed by another program (`errors=`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ErrorPolicy {
    /// The whole file system becomes read-only.
    #[default]
    RemountRo,
    /// The file becomes read-only.
    ZoneRo,
    /// The file becomes unusable.
    ZoneOffline,
    /// The size of the file becomes the write pointer, and it stays writable.
    Repair,
}

/// Whether opening a file for writing opens its zone (`explicit-open`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OpenPolicy {
    /// Zones open when they are written.
    #[default]
    Implicit,
    /// A zone is opened with its file, so there are at most as many files open for writing as the
    /// device can have open zones.
    Explicit,
}

/// Options of a mount. Serde leaves out the options that zonefs shares with other file systems.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MountOptions {
    /// Policy for failures.
    pub errors: ErrorPolicy,
    /// Whether to open zones explicitly. Ignored where the device has no limit.
    pub open: OpenPolicy,
    /// Whether to spare the head of a disk; `None` to ask the drive whether it rotates.
    pub rotational: Option<bool>,
    /// Whether to write.
    #[serde(skip)]
    pub access: Access,
}

/// Statistics of a mounted file system; a limit of 0 means none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stats {
    /// Zones that the device can have open: with explicit open, files that can be open for writing.
    pub max_wro_seq_files: u32,
    /// Sequential files open for writing.
    pub nr_wro_seq_files: u32,
    /// Zones that the device can have active.
    pub max_active_seq_files: u32,
    /// Sequential files that are partly written, or whose zone the file system has opened.
    pub nr_active_seq_files: u32,
    /// Conventional files.
    pub conventional_files: u32,
    /// Sequential files.
    pub sequential_files: u32,
    /// Files that can only be read.
    pub read_only_files: u32,
    /// Files that can be neither read nor written.
    pub offline_files: u32,
    /// Bytes that all files can hold.
    pub capacity_bytes: u64,
    /// Bytes that they hold.
    pub used_bytes: u64,
}

/// A mounted zonefs.
///
/// ```
/// use std::sync::Arc;
/// use zonal::{ManualClock, OpenMode, spec};
/// use zonal_fs::vfs::{Caller, FileSystem, SetAttr, WriteFlags};
/// use zonal_fs::zonefs::{Group, MkfsOptions, MountOptions, ZoneFs, mkfs};
///
/// let clock = Arc::new(ManualClock::new(0));
/// let device = spec::open("mem:zone=3M,zones=10", OpenMode::ReadWrite, clock.clone())?;
/// mkfs(&*device, &MkfsOptions::default(), &mut |_| ())?;
/// let fs = ZoneFs::mount(device, clock, MountOptions::default())?;
/// let file = fs.file(Group::Sequential, 4).expect("nine of ten zones are files");
/// let direct = WriteFlags::DIRECT;
/// fs.write(file, 0, &[1; 4096], direct)?;
/// assert_eq!(fs.write(file, 0, &[2; 4096], direct | WriteFlags::APPEND)?.offset, 4096);
/// assert!(fs.write(file, 0, &[3; 4096], direct).is_err(), "not at the write pointer");
/// assert_eq!(fs.getattr(file)?.size, 8192);
/// let reset = SetAttr { size: Some(0), ..SetAttr::default() };
/// assert_eq!(fs.setattr(&Caller::ROOT, file, &reset)?.size, 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct ZoneFs {
    device: Arc<dyn ZonedDevice>,
    /// The same, if it gathers writes for a disk.
    elevator: Option<Arc<Elevator<Arc<dyn ZonedDevice>>>>,
    /// When the worker last wrote out what the elevator had gathered.
    written_out_ns: AtomicU64,
    clock: Arc<dyn Clock>,
    superblock: Superblock,
    options: RwLock<MountOptions>,
    access: Latch,
    tree: ZoneTree,
    /// Attributes of the root, `cnv` and `seq`.
    directories: [std::sync::Mutex<Owned>; 3],
    /// Bytes of the largest file.
    capacity_max: u64,
    in_use: InUse,
    unclosed: std::sync::Mutex<Unclosed>,
}

/// The present access of the file system.
struct Latch(AtomicBool);

impl Latch {
    const fn new(access: Access) -> Self {
        Self(AtomicBool::new(matches!(access, Access::ReadWrite)))
    }

    fn get(&self) -> Access {
        if self.0.load(Ordering::Acquire) { Access::ReadWrite } else { Access::ReadOnly }
    }

    /// Sets it, and returns the previous access.
    fn replace(&self, new: Access) -> Access {
        let was_writable = self.0.swap(new == Access::ReadWrite, Ordering::AcqRel);
        if was_writable { Access::ReadWrite } else { Access::ReadOnly }
    }
}

impl ZoneFs {
    /// Mounts the file system on a device, and closes its open zones.
    pub fn mount(
        device: Arc<dyn ZonedDevice>,
        clock: Arc<dyn Clock>,
        options: MountOptions,
    ) -> Result<Self> {
        let superblock = Superblock::read(&*device)?;
        let spares = options.rotational.unwrap_or_else(|| device.rotates());
        let elevator = match options.access {
            Access::ReadWrite if spares => {
                Some(Arc::new(Elevator::new(device.clone(), elevator::BUFFER)?))
            }
            Access::ReadWrite | Access::ReadOnly => None,
        };
        let device = elevator.clone().map_or(device, |elevator| elevator as _);
        let now = Timestamp::from_ns(clock.wall_ns());
        let file = owned(&superblock, now);
        let directory = Owned { perm: 0o555, uid: 0, gid: 0, ..file };
        let mut zones = device.report_all()?;
        if options.access == Access::ReadWrite && close_open_zones(&*device, &zones)? > 0 {
            zones = device.report_all()?;
        }
        let tree = ZoneTree::new(device.geometry(), &zones, superblock.aggregate, file);
        let capacity_max = tree.files().iter().map(|file| file.capacity).max().unwrap_or(0);
        let fs = Self {
            options: RwLock::new(checked(&*device, options)),
            access: Latch::new(options.access),
            device,
            elevator,
            written_out_ns: AtomicU64::new(0),
            clock,
            superblock,
            tree,
            directories: std::array::from_fn(|_| std::sync::Mutex::new(directory)),
            capacity_max,
            in_use: InUse::default(),
            unclosed: std::sync::Mutex::default(),
        };
        for file in fs.tree.files() {
            fs.in_use.account(file, &mut file.writer());
        }
        Ok(fs)
    }

    /// The super block.
    pub fn superblock(&self) -> &Superblock {
        &self.superblock
    }

    /// A file by its group and name.
    pub fn file(&self, group: Group, number: u32) -> Option<Ino> {
        self.tree.files_of(group).get(number as usize).map(ZoneFile::ino)
    }

    /// Whether the mount spares the head of a disk.
    pub fn is_rotational(&self) -> bool {
        self.elevator.is_some()
    }

    /// Health of a file.
    pub fn health(&self, ino: Ino) -> Result<Health> {
        self.tree.file(ino).map(ZoneFile::health)
    }

    /// Identity of the file system, from its super block.
    pub fn uuid(&self) -> [u8; 16] {
        self.superblock.uuid
    }

    /// The options in force.
    pub fn options(&self) -> MountOptions {
        *self.options.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the options of the mount. The health of files stays.
    pub fn set_options(&self, options: MountOptions) {
        let options = checked(&*self.device, options);
        self.access.replace(options.access);
        *self.options.write().unwrap_or_else(PoisonError::into_inner) = options;
    }

    /// Present statistics.
    pub fn stats(&self) -> Stats {
        let geometry = self.device.geometry();
        let count = |files: usize| u32::try_from(files).unwrap_or(u32::MAX);
        let files = self.tree.files();
        let of = |health| count(files.iter().filter(|file| file.health() == health).count());
        Stats {
            max_wro_seq_files: geometry.max_open().unwrap_or(0),
            nr_wro_seq_files: self.in_use.writing.load(Ordering::Acquire),
            max_active_seq_files: geometry.max_active().unwrap_or(0),
            nr_active_seq_files: self.in_use.active.load(Ordering::Relaxed),
            conventional_files: count(self.tree.files_of(Group::Conventional).len()),
            sequential_files: count(self.tree.files_of(Group::Sequential).len()),
            read_only_files: of(Health::ReadOnly),
            offline_files: of(Health::Offline),
            capacity_bytes: files.iter().map(|file| file.capacity).sum(),
            used_bytes: files.iter().map(ZoneFile::size).sum(),
        }
    }

    /// Mask of the bits of an offset within a block.
    fn block_mask(&self) -> u64 {
        self.device.geometry().block_size().bytes() - 1
    }
}

/// Initial attributes of a file.
fn owned(superblock: &Superblock, now: Timestamp) -> Owned {
    let perm = superblock.perm.unwrap_or(PERM_DEFAULT) & 0o7777;
    Owned {
        perm: u16::try_from(perm).expect("twelve bits"),
        uid: superblock.uid.unwrap_or(0),
        gid: superblock.gid.unwrap_or(0),
        atime: now,
        mtime: now,
        ctime: now,
    }
}

/// The options that take effect: explicit open has none on a device without limits.
fn checked(device: &dyn ZonedDevice, mut options: MountOptions) -> MountOptions {
    let geometry = device.geometry();
    let limited = geometry.max_open().is_some() || geometry.max_active().is_some();
    if options.open == OpenPolicy::Explicit && !limited {
        tracing::info!("the device has no limit on open or active zones: explicit-open is ignored");
        options.open = OpenPolicy::Implicit;
    }
    options
}

/// Closes open zones, and resets those without data, which would stay active. Returns their number.
fn close_open_zones(device: &dyn ZonedDevice, zones: &[Zone]) -> Result<u32> {
    let mut closed = 0;
    for zone in zones {
        let sequential = zone.kind.is_sequential() && zone.id > ZoneId::ZERO;
        if sequential && matches!(zone.cond, ZoneCond::ImplicitOpen | ZoneCond::ExplicitOpen) {
            let empty = zone.wp == Some(zone.start);
            let action = if empty { ZoneAction::Reset } else { ZoneAction::Close };
            device.manage(Select::One(zone.id), action)?;
            closed += 1;
        }
    }
    Ok(closed)
}
