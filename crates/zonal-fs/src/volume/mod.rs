//! A file system as a library, for programs that need files on a zoned drive and neither a mount
//! nor a kernel.
//!
//! A [`Volume`] is a mounted [`FileSystem`] with paths, handles and its own background work:
//!
//! ```
//! use std::sync::Arc;
//! use zonal::{ManualClock, OpenMode, spec};
//! use zonal_fs::furrow::{self, MkfsOptions};
//! use zonal_fs::volume::{Volume, VolumeOptions};
//!
//! let clock = Arc::new(ManualClock::new(0)); // a program takes zonal::SystemClock
//! let drive = spec::open("mem:zone=4M,zones=64", OpenMode::ReadWrite, clock.clone())?;
//! furrow::mkfs(drive.clone(), &*clock, &MkfsOptions::default(), &mut |_| ())?;
//!
//! let volume = Volume::mount(drive, clock, &VolumeOptions::default())?;
//! volume.create_dir("logs")?;
//! let log = volume.create("logs/today")?;
//! log.append(b"one\n")?;
//! let second = log.append(b"two\n")?;
//! assert_eq!(second.offset, 4);
//! log.sync_data()?;
//! let mut line = [0; 4];
//! log.read_exact_at(&mut line, second.offset)?;
//! assert_eq!(&line, b"two\n");
//! volume.close()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Rules for all of it:
//!
//! - A [`Volume`] and its handles may be used from any number of threads. A handle keeps its file
//!   alive: a removed file can be read and written until its last handle is dropped.
//! - Paths follow the rules in [`path`]; names are bytes.
//! - Mode bits and owners are stored, not enforced: the program that has the drive open could read
//!   it all anyway. [`Volume::acting_as`] sets the owner of new files.
//! - Nothing is durable before a sync, a [`close`](Volume::close), or the commit that the
//!   background thread makes about five seconds after a change.
//! - An [`Error`] becomes an [`io::Error`](std::io::Error) with the errno that a program on a mount
//!   would get, by `?`; the path and the sentence stay behind.
//! - Files of zonefs only take whole blocks at their end; a volume writes to them without a
//!   buffer, even without [`OpenFlags::DIRECT`].
//!
//! | module | question |
//! | --- | --- |
//! | [`path`] | where does a path lead? |
//! | `names` | how do programs create, move and remove entries? |
//! | [`File`], [`Node`], [`Dir`] | what can a program do with an open file or directory? |
//! | `stream` | how does a file implement `Read`, `Write` and `Seek`? |
//! | `lifetime`, `lock` | how do files carry hints and locks? |
//! | `upkeep` | which thread does the background work? |

mod error;
mod file;
mod flags;
mod lifetime;
mod lock;
mod names;
mod node;
pub mod path;
mod stream;
mod upkeep;

use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard};

use zonal::{ByteCount, Clock, ZonedDevice};

use self::lock::Locks;
use self::path::{PathEnd, Purpose};
use self::upkeep::Ticker;
use crate::FsError;
use crate::furrow::stats::ZoneUse;
use crate::furrow::{self, AtimePolicy, Furrow};
use crate::signature::{self, Content};
use crate::vfs::{self, Access, Caller, FileExtent, FileModel, FileSystem, Ino, Listing, StatFs};
use crate::zonefs::{self, ZoneFs};

pub use self::error::{Error, Result};
pub use self::file::File;
pub use self::flags::{OpenFlags, UnusableFlags};
pub use self::node::{Dir, Entries, Entry, Node};
pub use self::path::Links;
pub use crate::lifetime::{LIFETIME_XATTR, WriteLifetime};

/// Which thread does work that is due by time, such as the commit of data that is five seconds old.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Upkeep {
    /// A thread of the volume, about once a second.
    #[default]
    Thread,
    /// The program, by [`Volume::tick`]: for tests and for programs with a loop of their own.
    Caller,
}

/// How to mount a volume.
#[derive(Clone, Copy, Debug)]
pub struct VolumeOptions {
    /// Whether to write. `ReadOnly` writes nothing at all; recovery happens in memory.
    pub access: Access,
    /// When reads move access times (Furrow).
    pub atime: AtimePolicy,
    /// Bytes of memory for cached metadata (Furrow): see [`furrow::MountOptions::memory`].
    pub memory: ByteCount,
    /// Owner of new files, and umask.
    pub caller: Caller,
    /// Which thread does the background work.
    pub upkeep: Upkeep,
}

/// Reading and writing, no access times, as the superuser, with a thread.
impl Default for VolumeOptions {
    fn default() -> Self {
        Self {
            access: Access::ReadWrite,
            atime: AtimePolicy::Never,
            memory: furrow::MountOptions::MEMORY,
            caller: Caller::ROOT,
            upkeep: Upkeep::Thread,
        }
    }
}

/// A mounted file system with paths. A clone is the same volume.
///
/// [`close`](Self::close) ends it and returns the error of the last commit. Dropping the last clone
/// ends it, too, but can only log the error. Handles that are still open then fail with
/// [`FsError::BadHandle`].
#[derive(Clone)]
pub struct Volume {
    owner: Arc<VolumeOwner>,
    caller: Caller,
}

/// Statistics of the file system of a volume.
#[derive(Clone, Copy, Debug)]
pub enum Stats {
    /// Bytes written and read, flushes, zones by use.
    Furrow(furrow::Stats),
    /// Zones and files by condition.
    Zonefs(zonefs::Stats),
}

impl Volume {
    /// Mounts the file system on `device`: Furrow or zonefs.
    ///
    /// `clock` gives files their times; programs pass a [`zonal::SystemClock`].
    ///
    /// # Errors
    ///
    /// The device has neither file system ([`FsError::Foreign`]), cannot be read, or needs repair.
    pub fn mount(
        device: Arc<dyn ZonedDevice>,
        clock: Arc<dyn Clock>,
        options: &VolumeOptions,
    ) -> Result<Self> {
        mounted(device, clock, options)
            .map(|fs| Self::of(fs, options))
            .map_err(|error| whole("mounting the volume", error))
    }

    /// A volume over a file system that is mounted already. Closing the volume shuts it down.
    pub fn new(fs: Arc<dyn FileSystem>, options: &VolumeOptions) -> Self {
        Self::of(Mounted::Other(fs), options)
    }

    fn of(fs: Mounted, options: &VolumeOptions) -> Self {
        let shared = Arc::new(VolumeState { fs: RwLock::new(Some(fs)), locks: Locks::default() });
        let ticker = match options.upkeep {
            Upkeep::Thread => Some(Ticker::start(Arc::clone(&shared))),
            Upkeep::Caller => None,
        };
        let owner = Arc::new(VolumeOwner { shared, ticker: Mutex::new(ticker) });
        Self { owner, caller: options.caller }
    }

    /// The same volume, with another owner for new files.
    #[must_use]
    pub fn acting_as(&self, caller: Caller) -> Self {
        Self { owner: Arc::clone(&self.owner), caller }
    }

    /// Makes everything durable, leaves the drive clean and releases it, for all clones.
    ///
    /// # Errors
    ///
    /// The error of the last commit: changes that it should have made durable may be lost.
    pub fn close(self) -> Result<()> {
        self.owner.close().map_err(|error| whole("closing the volume", error))
    }

    /// Makes everything durable.
    pub fn sync(&self) -> Result<()> {
        self.whole("syncing the volume", |fs| fs.sync())
    }

    /// Does the work that is due by time. Programs need to call it only with [`Upkeep::Caller`].
    pub fn tick(&self) -> Result<()> {
        self.whole("doing periodic work", |fs| fs.tick())
    }

    /// Space and inodes, used and free.
    pub fn space(&self) -> Result<StatFs> {
        self.whole("asking for the free space", |fs| fs.statfs())
    }

    /// The use of each zone of a Furrow; `None` of another file system.
    pub fn zone_uses(&self) -> Result<Option<Vec<ZoneUse>>> {
        let entered = self.owner.shared.enter();
        let entered = entered.map_err(|error| whole("asking for the zones", error))?;
        Ok(match entered.mounted() {
            Mounted::Furrow(fs) => Some(fs.zone_uses(0, usize::MAX)),
            Mounted::Zonefs(_) | Mounted::Other(_) => None,
        })
    }

    /// Extents of files, as of the last [`sync`](Self::sync): see [`FileSystem::extents`].
    pub fn extents(
        &self,
        start: (Ino, u64),
        end: Ino,
        each: &mut dyn FnMut(FileExtent) -> Listing,
    ) -> Result<()> {
        self.whole("listing the extents of files", |fs| fs.extents(start, end, each))
    }

    /// Bytes of a write of which a power cut leaves all or nothing; 0 if it may leave any part.
    pub fn atomic_write(&self) -> Result<u64> {
        self.whole("asking for the size of atomic writes", |fs| Ok(fs.atomic_write()))
    }

    /// Rules for writes to its files.
    pub fn model(&self) -> Result<FileModel> {
        self.whole("asking for the rules of writes", |fs| Ok(fs.model(fs.root())))
    }

    /// Whether it can be written to now. It may become read-only after a failure of the drive.
    pub fn access(&self) -> Result<Access> {
        self.whole("asking for access", |fs| Ok(fs.access()))
    }

    /// The UUID of Furrow; `None` for another file system.
    pub fn uuid(&self) -> Result<Option<[u8; 16]>> {
        let entered = self.owner.shared.enter();
        let entered = entered.map_err(|error| whole("asking for the UUID", error))?;
        Ok(match entered.mounted() {
            Mounted::Furrow(fs) => Some(fs.uuid()),
            Mounted::Zonefs(_) | Mounted::Other(_) => None,
        })
    }

    /// Statistics; `None` for a file system that was passed to [`new`](Self::new): its owner can
    /// ask it.
    pub fn stats(&self) -> Result<Option<Stats>> {
        let entered = self.owner.shared.enter();
        let entered = entered.map_err(|error| whole("asking for statistics", error))?;
        Ok(match entered.mounted() {
            Mounted::Furrow(fs) => Some(Stats::Furrow(fs.stats())),
            Mounted::Zonefs(fs) => Some(Stats::Zonefs(fs.stats())),
            Mounted::Other(_) => None,
        })
    }

    /// Runs `action` on the whole file system.
    fn whole<T>(
        &self,
        doing: &'static str,
        action: impl FnOnce(&dyn FileSystem) -> vfs::Result<T>,
    ) -> Result<T> {
        self.owner.shared.run(action).map_err(|error| whole(doing, error))
    }

    /// Runs `action` on the end of `path`. `doing` describes it in an error.
    fn at<T>(
        &self,
        doing: &'static str,
        path: &Path,
        purpose: Purpose,
        action: impl FnOnce(&dyn FileSystem, PathEnd) -> vfs::Result<T>,
    ) -> Result<T> {
        let bytes = path.as_os_str().as_bytes();
        self.owner
            .shared
            .run(|fs| action(fs, path::find(fs, bytes, purpose)?))
            .map_err(|error| Error::new(doing, path, error))
    }
}

fn whole(doing: &'static str, error: FsError) -> Error {
    Error::new(doing, Path::new(""), error)
}

/// Mounts the file system on a device.
fn mounted(
    device: Arc<dyn ZonedDevice>,
    clock: Arc<dyn Clock>,
    options: &VolumeOptions,
) -> vfs::Result<Mounted> {
    match signature::find(&*device)?.map(|found| found.kind) {
        Some(Content::Zonefs) => {
            let options =
                zonefs::MountOptions { access: options.access, ..zonefs::MountOptions::default() };
            Ok(Mounted::Zonefs(Arc::new(ZoneFs::mount(device, clock, options)?)))
        }
        // Without a signature, the error of Furrow's mount says best why the device cannot be
        // mounted.
        Some(Content::Furrow) | None => {
            let options = furrow::MountOptions {
                access: options.access,
                atime: options.atime,
                memory: options.memory,
                ..furrow::MountOptions::default()
            };
            Ok(Mounted::Furrow(Arc::new(Furrow::mount(device, clock, options)?)))
        }
        Some(Content::Foreign(name)) => {
            Err(FsError::Foreign { what: "Furrow or zonefs", why: format!("it holds {name}") })
        }
    }
}

/// The file system below a volume.
enum Mounted {
    Furrow(Arc<Furrow>),
    Zonefs(Arc<ZoneFs>),
    Other(Arc<dyn FileSystem>),
}

impl Mounted {
    fn fs(&self) -> &dyn FileSystem {
        match self {
            Self::Furrow(fs) => &**fs,
            Self::Zonefs(fs) => &**fs,
            Self::Other(fs) => &**fs,
        }
    }
}

/// State that a volume shares with its handles.
struct VolumeState {
    /// `None` once closed. A call holds the lock for reading and must not take it a second time: it
    /// would deadlock with a close that waits in between.
    fs: RwLock<Option<Mounted>>,
    locks: Locks,
}

impl VolumeState {
    fn enter(&self) -> vfs::Result<Entered<'_>> {
        let guard = self.fs.read().unwrap_or_else(PoisonError::into_inner);
        if guard.is_some() {
            Ok(Entered(guard))
        } else {
            Err(FsError::BadHandle { what: "the volume is closed" })
        }
    }

    fn run<T>(&self, action: impl FnOnce(&dyn FileSystem) -> vfs::Result<T>) -> vfs::Result<T> {
        action(self.enter()?.mounted().fs())
    }
}

/// A guard: the volume is not closed while it lives.
struct Entered<'a>(RwLockReadGuard<'a, Option<Mounted>>);

impl Entered<'_> {
    fn mounted(&self) -> &Mounted {
        self.0.as_ref().expect("entering has looked")
    }
}

/// Closes the volume when the last clone is dropped.
struct VolumeOwner {
    shared: Arc<VolumeState>,
    ticker: Mutex<Option<Ticker>>,
}

impl VolumeOwner {
    /// Closes the volume. A second call does nothing.
    fn close(&self) -> vfs::Result<()> {
        let ticker = self.ticker.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(ticker);
        let mut fs = self.shared.fs.write().unwrap_or_else(PoisonError::into_inner);
        fs.take().map_or(Ok(()), |mounted| mounted.fs().shutdown())
    }
}

impl Drop for VolumeOwner {
    fn drop(&mut self) {
        if let Err(error) = self.close() {
            tracing::error!(%error, "closing a volume that was not closed");
        }
    }
}
