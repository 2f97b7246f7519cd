//! A file system as a library: what a program links against when it needs files on a zoned drive
//! and neither a mount nor a kernel.
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
//! What holds for all of it:
//!
//! - A [`Volume`] and its handles may be used from any number of threads. A handle keeps its file
//!   alive: what is removed while it is open can be read and written until the last handle goes.
//! - Paths follow the rules in [`path`]; names are bytes.
//! - Mode bits and owners are kept, not enforced: the program that has the drive open could read it
//!   all anyway. [`Volume::acting_as`] says who owns what is created.
//! - Nothing is durable before a sync, a [`close`](Volume::close), or the commit that the background
//!   thread makes about five seconds after a change.
//! - An [`Error`] becomes an [`io::Error`](std::io::Error) with the errno that a program on a mount
//!   would get, by `?`; the path and the sentence stay behind.
//! - zonefs has files that only take whole blocks at their end; its writes and appends are direct
//!   without being asked for.
//!
//! | module | question |
//! | --- | --- |
//! | [`path`] | where does a path lead? |
//! | `names` | making, moving and removing entries |
//! | [`File`], [`Node`], [`Dir`] | handles |
//! | `stream` | a file as [`Read`](std::io::Read), [`Write`](std::io::Write), [`Seek`](std::io::Seek) |
//! | `lifetime`, `lock` | hints and locks of files |
//! | `upkeep` | the background thread |

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
use self::path::Place;
use self::upkeep::Ticker;
use crate::FsError;
use crate::furrow::{self, AtimePolicy, Furrow};
use crate::signature::{self, Content};
use crate::vfs::{self, Access, Caller, FileSystem, StatFs};
use crate::zonefs::{self, ZoneFs};

pub use self::error::{Error, Result};
pub use self::file::File;
pub use self::flags::{OpenFlags, UnusableFlags};
pub use self::node::{Dir, Entries, Entry, Node};
pub use self::path::Links;
pub use crate::lifetime::{LIFETIME_XATTR, WriteLifetime};

/// What does the work that is due by time, such as the commit of data written five seconds ago.
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
    /// Whether to write. `ReadOnly` writes nothing at all, not even recovery.
    pub access: Access,
    /// When reads move access times (Furrow).
    pub atime: AtimePolicy,
    /// Memory for what is read of the metadata (Furrow): see [`furrow::MountOptions::memory`].
    pub memory: ByteCount,
    /// The owner of what is created, and the umask.
    pub caller: Caller,
    /// What does the background work.
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
/// [`close`](Self::close) ends it and tells whether the last commit worked; so does dropping the
/// last clone, which can only log a failure. Handles that are still open then answer
/// [`FsError::BadHandle`].
#[derive(Clone)]
pub struct Volume {
    owner: Arc<Owner>,
    caller: Caller,
}

/// What is counted about the file system of a volume.
#[derive(Clone, Copy, Debug)]
pub enum Stats {
    /// Bytes written and read, flushes, zones by use.
    Furrow(furrow::Stats),
    /// Zones and files by condition.
    Zonefs(zonefs::Stats),
}

impl Volume {
    /// Mounts the file system that `device` holds: Furrow or zonefs.
    ///
    /// `clock` gives the times that files get. A program takes [`zonal::SystemClock`].
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
        let shared = Arc::new(Shared { fs: RwLock::new(Some(fs)), locks: Locks::default() });
        let ticker = match options.upkeep {
            Upkeep::Thread => Some(Ticker::start(Arc::clone(&shared))),
            Upkeep::Caller => None,
        };
        let owner = Arc::new(Owner { shared, ticker: Mutex::new(ticker) });
        Self { owner, caller: options.caller }
    }

    /// The same volume, with another owner for what is created.
    #[must_use]
    pub fn acting_as(&self, caller: Caller) -> Self {
        Self { owner: Arc::clone(&self.owner), caller }
    }

    /// Makes everything durable, leaves the drive clean and lets go of it, for every clone.
    /// The error is that of the last commit.
    pub fn close(self) -> Result<()> {
        self.owner.close().map_err(|error| whole("closing the volume", error))
    }

    /// Makes everything durable.
    pub fn sync(&self) -> Result<()> {
        self.whole("syncing the volume", |fs| fs.sync())
    }

    /// Does the work that is due by time. Only with [`Upkeep::Caller`] is there a need for it.
    pub fn tick(&self) -> Result<()> {
        self.whole("doing periodic work", |fs| fs.tick())
    }

    /// Space and inodes, used and free.
    pub fn space(&self) -> Result<StatFs> {
        self.whole("asking for the free space", |fs| fs.statfs())
    }

    /// Whether it can be written to now: a failure of the drive can take that away.
    pub fn access(&self) -> Result<Access> {
        self.whole("asking for access", |fs| Ok(fs.access()))
    }

    /// What is counted; `None` for a file system that was handed to [`new`](Self::new), whose owner
    /// can ask it.
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

    /// Runs `action` on what stands at `path`.
    fn at<T>(
        &self,
        doing: &'static str,
        (path, links): (&Path, Links),
        action: impl FnOnce(&dyn FileSystem, Place) -> vfs::Result<T>,
    ) -> Result<T> {
        let bytes = path.as_os_str().as_bytes();
        self.owner
            .shared
            .run(|fs| action(fs, path::find(fs, bytes, links)?))
            .map_err(|error| Error::new(doing, path, error))
    }
}

fn whole(doing: &'static str, error: FsError) -> Error {
    Error::new(doing, Path::new(""), error)
}

/// Mounts what a device holds.
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
        // What Furrow says about a device without a signature is the best there is to say.
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

/// What the volume and its handles share.
struct Shared {
    /// `None` once closed. A call holds the lock for reading and must not take it again:
    /// a close may be waiting in between.
    fs: RwLock<Option<Mounted>>,
    locks: Locks,
}

impl Shared {
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

/// A volume that is not closed while this lives.
struct Entered<'a>(RwLockReadGuard<'a, Option<Mounted>>);

impl Entered<'_> {
    fn mounted(&self) -> &Mounted {
        self.0.as_ref().expect("entering has looked")
    }
}

/// Ends the volume when the last clone goes.
struct Owner {
    shared: Arc<Shared>,
    ticker: Mutex<Option<Ticker>>,
}

impl Owner {
    /// Ends it; the second time there is nothing to do.
    fn close(&self) -> vfs::Result<()> {
        let ticker = self.ticker.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(ticker);
        let mut fs = self.shared.fs.write().unwrap_or_else(PoisonError::into_inner);
        fs.take().map_or(Ok(()), |mounted| mounted.fs().shutdown())
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        if let Err(error) = self.close() {
            tracing::error!(%error, "closing a volume that was not closed");
        }
    }
}
