//! zonefs: every zone a file, as Linux's file system of that name has it.
//!
//! The whole state of the file system is that of the zones: the size of a sequential file is its
//! zone's write pointer, writing goes there, truncating to nothing resets the zone and truncating
//! to the largest size finishes it. On the device there is a super block, and nothing else. What
//! `chmod` and its like change is forgotten at unmount.
//!
//! - `format`, `mkfs`: the super block, and making it.
//! - `tree`, `file`: which files there are; what changes about one, and who may change it when.
//! - `io`, `zones`: reading and writing; opening, closing, resetting and finishing.
//! - `recover`: what becomes of a file whose zone has failed.
//! - `ops`: [`FileSystem`](crate::vfs::FileSystem), in terms of these.
//!
//! Any zone size will do, a power of two or not. What an operation answers, and the few
//! differences from Linux: `docs/semantics.md`.

mod file;
pub mod format;
mod io;
mod mkfs;
mod ops;
mod options;
mod recover;
mod tree;
mod zones;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use zonal::{Clock, Select, Zone, ZoneAction, ZoneCond, ZoneId, ZoneKind, ZonedDevice};

use self::file::{Owned, ZoneFile};
use self::format::PERM_DEFAULT;
use self::tree::Tree;
use self::zones::InUse;
use crate::vfs::{Access, Ino, Result, Timestamp};

pub use self::file::{Group, Health};
pub use self::format::{Aggregate, Label, MAGIC, Superblock, SuperblockError};
pub use self::mkfs::{MkfsOptions, MkfsReport, mkfs};
pub use crate::mkfs::{Overwrite, Progress};

/// Result of an operation of the device.
type DeviceResult<T> = std::result::Result<T, zonal::DeviceError>;

/// What happens to a file whose zone has failed or was changed by another program, and to the
/// file system (`errors=`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ErrorPolicy {
    /// No file can be written any more.
    #[default]
    RemountRo,
    /// That file cannot be written any more.
    ZoneRo,
    /// That file cannot be used any more.
    ZoneOffline,
    /// The file's size becomes the write pointer, and all goes on.
    Repair,
}

/// Whether opening a file for writing opens its zone (`explicit-open`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OpenPolicy {
    /// Zones open when they are written.
    #[default]
    Implicit,
    /// A zone is opened with its file: no more files than the device can have open zones.
    Explicit,
}

/// How to mount.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MountOptions {
    /// What to do about failures.
    pub errors: ErrorPolicy,
    /// Whether to open zones explicitly. Ignored where the device has no limit.
    pub open: OpenPolicy,
    /// Whether to write.
    pub access: Access,
}

/// Counts of a mounted file system; a limit of 0 is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stats {
    /// Zones that the device can have open: with explicit open, files that can be open for writing.
    pub max_wro_seq_files: u32,
    /// Sequential files open for writing.
    pub nr_wro_seq_files: u32,
    /// Zones that the device can have active.
    pub max_active_seq_files: u32,
    /// Sequential files that are partly written or held open.
    pub nr_active_seq_files: u32,
    /// Conventional files.
    pub conventional_files: u32,
    /// Sequential files.
    pub sequential_files: u32,
    /// Files that can only be read.
    pub read_only_files: u32,
    /// Files that cannot be used.
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
    clock: Arc<dyn Clock>,
    superblock: Superblock,
    options: RwLock<MountOptions>,
    access: Latch,
    tree: Tree,
    /// Attributes of the root, `cnv` and `seq`.
    directories: [std::sync::Mutex<Owned>; 3],
    /// Bytes of the largest file.
    capacity_max: u64,
    in_use: InUse,
}

/// Whether the file system can be written to now.
struct Latch(AtomicBool);

impl Latch {
    const fn new(access: Access) -> Self {
        Self(AtomicBool::new(matches!(access, Access::ReadWrite)))
    }

    fn get(&self) -> Access {
        if self.0.load(Ordering::Acquire) { Access::ReadWrite } else { Access::ReadOnly }
    }

    /// Sets it, and returns what it was.
    fn replace(&self, new: Access) -> Access {
        let was_writable = self.0.swap(new == Access::ReadWrite, Ordering::AcqRel);
        if was_writable { Access::ReadWrite } else { Access::ReadOnly }
    }
}

impl ZoneFs {
    /// Mounts the file system on a device. Zones that are open are closed.
    pub fn mount(
        device: Arc<dyn ZonedDevice>,
        clock: Arc<dyn Clock>,
        options: MountOptions,
    ) -> Result<Self> {
        let superblock = Superblock::read(&*device)?;
        let now = Timestamp::from_ns(clock.wall_ns());
        let file = owned(&superblock, now);
        let directory = Owned { perm: 0o555, uid: 0, gid: 0, ..file };
        let mut zones = device.report_all()?;
        if options.access == Access::ReadWrite && close_open_zones(&*device, &zones)? > 0 {
            zones = device.report_all()?;
        }
        let tree = Tree::new(device.geometry(), &zones, superblock.aggregate, file);
        let capacity_max = tree.files().iter().map(|file| file.capacity).max().unwrap_or(0);
        let fs = Self {
            options: RwLock::new(checked(&*device, options)),
            access: Latch::new(options.access),
            device,
            clock,
            superblock,
            tree,
            directories: std::array::from_fn(|_| std::sync::Mutex::new(directory)),
            capacity_max,
            in_use: InUse::default(),
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

    /// What can still be done with a file.
    pub fn health(&self, ino: Ino) -> Result<Health> {
        self.tree.file(ino).map(ZoneFile::health)
    }

    /// The identity that mkzonefs gave it.
    pub fn uuid(&self) -> [u8; 16] {
        self.superblock.uuid
    }

    /// The options in force.
    pub fn options(&self) -> MountOptions {
        *self.options.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the options of the mount. Files keep what failures have made of them.
    pub fn set_options(&self, options: MountOptions) {
        let options = checked(&*self.device, options);
        self.access.replace(options.access);
        *self.options.write().unwrap_or_else(PoisonError::into_inner) = options;
    }

    /// Counts of now.
    pub fn stats(&self) -> Stats {
        let geometry = self.device.geometry();
        let count = |files: usize| u32::try_from(files).unwrap_or(u32::MAX);
        let files = self.tree.files();
        let of = |health| count(files.iter().filter(|file| file.health() == health).count());
        Stats {
            max_wro_seq_files: geometry.max_open().unwrap_or(0),
            nr_wro_seq_files: self.in_use.writing.load(Ordering::Relaxed),
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

    /// The bits of an offset below a block.
    fn block_mask(&self) -> u64 {
        self.device.geometry().block_size().bytes() - 1
    }
}

/// Attributes of a file that nobody has changed.
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

/// The options as they can be: without a limit there is nothing to open explicitly for.
fn checked(device: &dyn ZonedDevice, mut options: MountOptions) -> MountOptions {
    let geometry = device.geometry();
    let limited = geometry.max_open().is_some() || geometry.max_active().is_some();
    if options.open == OpenPolicy::Explicit && !limited {
        tracing::info!("the device has no limit on open or active zones: explicit-open is ignored");
        options.open = OpenPolicy::Implicit;
    }
    options
}

/// Closes what is open, so that it does not count as active; an open zone without data would. Tells
/// how many it were.
fn close_open_zones(device: &dyn ZonedDevice, zones: &[Zone]) -> Result<u32> {
    let mut closed = 0;
    for zone in zones {
        let sequential = zone.kind == ZoneKind::SequentialRequired && zone.id > ZoneId::ZERO;
        if sequential && matches!(zone.cond, ZoneCond::ImplicitOpen | ZoneCond::ExplicitOpen) {
            let empty = zone.wp == Some(zone.start);
            let action = if empty { ZoneAction::Reset } else { ZoneAction::Close };
            device.manage(Select::One(zone.id), action)?;
            closed += 1;
        }
    }
    Ok(closed)
}
