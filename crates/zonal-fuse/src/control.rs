//! The control directory: `.zonal` in the root of a mount. It shows counters and zones, and takes
//! commands for which there is no system call.
//!
//! | file | content |
//! | --- | --- |
//! | `stats` | type of the file system, its settings, all its counters and latencies, as JSON: [`Report`] |
//! | `page` | the same for people, in at most 80 columns |
//! | `metrics` | the same for Prometheus |
//! | `map` | what Furrow uses each zone for, one short line for each zone: [`map`] |
//! | `zones` | the zone report, one line for each zone |
//! | `command` | for writing: one command for each write(2) |
//! | others | one counter each, as Linux has them in sysfs: see [`Inspect::attributes`] |
//!
//! It is found by its name and never listed, and takes no part in sizes. It lies over the file system:
//! its inodes have numbers from 2⁶³ on, which no file system uses, and requests for them never reach the
//! file system. What its files hold is made when it is read, so nothing of it may be cached. It
//! belongs to the user who mounted.

mod command;
mod content;
mod files;
mod inspect;
pub mod map;
pub mod metrics;
pub mod page;
mod report;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock};

use zonal::spec::Stack;
use zonal::{Clock, FailZone, ZonedDevice};
use zonal_fs::FsError;
use zonal_fs::vfs::{
    Access, Allocate, Attr, Caller, DirEntry, FileModel, FileSystem, Ino, Listing, NewInode,
    OpenFor, ReadFlags, Remains, RenameFlags, Result, Seek, SetAttr, StatFs, SyncKind, Timestamp,
    Wake, WriteFlags, Written, XattrMode,
};

pub use self::inspect::{Inspect, ReclaimOrder};
pub use self::report::Report;

use crate::latency::Latencies;
use crate::mount::Served;

/// Name of the directory.
pub const NAME: &str = ".zonal";

/// Number of the directory; its files follow. No file system has so many inodes.
const OWN: Ino = Ino::new(1 << 63);

/// Whether an inode is the directory or a file in it.
pub(crate) const fn is_own(ino: Ino) -> bool {
    ino.get() >= OWN.get()
}

/// A file system with a control directory in its root.
pub struct Control {
    fs: Arc<dyn FileSystem>,
    inspected: Arc<dyn Inspect>,
    device: Arc<dyn ZonedDevice>,
    failing: Option<Arc<dyn FailZone>>,
    latencies: Arc<Latencies>,
    /// Texts of files that are being read.
    made: Mutex<BTreeMap<Ino, Arc<str>>>,
    /// Where metrics are served.
    metrics: OnceLock<SocketAddr>,
    /// How many threads answer requests, where that was decided.
    threads: OnceLock<u16>,
    /// Options that hold until it is unmounted.
    options: OnceLock<String>,
    /// How requests come.
    served: OnceLock<Served>,
    /// With which message it has panicked.
    panicked: OnceLock<String>,
    /// Where it is mounted.
    point: OnceLock<PathBuf>,
    /// Whether the device can be written to at all.
    device_access: Access,
    /// Owner of the directory: user and group.
    owner: (u32, u32),
    born: Timestamp,
}

impl Control {
    /// Puts the directory into `fs`, which lies on `stack`. If `fs` is read-only now, the device is
    /// taken to be so. `latencies` is shown; the front end fills it.
    pub fn new<F>(fs: Arc<F>, stack: &Stack, latencies: Arc<Latencies>, clock: &dyn Clock) -> Self
    where
        F: FileSystem + Inspect + 'static,
    {
        let (uid, gid) = (rustix::process::getuid(), rustix::process::getgid());
        Self {
            device_access: fs.access(),
            inspected: Arc::clone(&fs) as _,
            fs,
            device: Arc::clone(&stack.device),
            failing: stack.failing.clone(),
            latencies,
            made: Mutex::default(),
            metrics: OnceLock::new(),
            threads: OnceLock::new(),
            options: OnceLock::new(),
            served: OnceLock::new(),
            panicked: OnceLock::new(),
            point: OnceLock::new(),
            owner: (uid.as_raw(), gid.as_raw()),
            born: Timestamp::from_ns(clock.wall_ns()),
        }
    }

    /// Shows where metrics are served.
    pub fn set_metrics(&self, address: SocketAddr) {
        let first = self.metrics.set(address);
        assert!(first.is_ok(), "metrics are served at one address");
    }

    /// Shows how many threads answer requests.
    pub fn set_threads(&self, threads: u16) {
        let first = self.threads.set(threads);
        assert!(first.is_ok(), "the number of threads stays");
    }

    /// Shows which options hold until it is unmounted.
    pub fn set_options(&self, options: String) {
        let first = self.options.set(options);
        assert!(first.is_ok(), "these options stay");
    }

    /// Shows how requests come.
    pub fn set_served(&self, served: Served) {
        let first = self.served.set(served);
        assert!(first.is_ok(), "a mount has one session");
    }

    /// Shows where it is mounted.
    pub fn set_mount(&self, point: PathBuf) {
        let first = self.point.set(point);
        assert!(first.is_ok(), "a mount has one place");
    }

    /// Whether this entry is the directory or in it. Nothing there is made, moved or removed.
    fn owns(&self, parent: Ino, name: &[u8]) -> bool {
        is_own(parent) || (parent == self.fs.root() && name == NAME.as_bytes())
    }

    fn keep_out(&self, parent: Ino, name: &[u8]) -> Result<()> {
        if self.owns(parent, name) {
            return Err(FsError::NotPermitted { what: "changing the control directory" });
        }
        Ok(())
    }
}

/// An error for what the files of the directory do not do.
fn refuse(ino: Ino) -> Result<()> {
    if is_own(ino) {
        return Err(FsError::Unsupported { what: "this, in the control directory" });
    }
    Ok(())
}

impl FileSystem for Control {
    fn model(&self, ino: Ino) -> FileModel {
        if is_own(ino) { FileModel::Posix } else { self.fs.model(ino) }
    }

    fn root(&self) -> Ino {
        self.fs.root()
    }

    fn access(&self) -> Access {
        self.fs.access()
    }

    fn open(&self, ino: Ino, purpose: OpenFor) -> Result<()> {
        if is_own(ino) { Ok(()) } else { self.fs.open(ino, purpose) }
    }

    fn close(&self, ino: Ino, purpose: OpenFor) {
        if !is_own(ino) {
            self.fs.close(ino, purpose);
        }
    }

    fn path(&self, ino: Ino) -> Option<String> {
        if is_own(ino) { Some(format!("/{NAME}")) } else { self.fs.path(ino) }
    }

    fn lookup(&self, parent: Ino, name: &[u8]) -> Result<Attr> {
        if self.owns(parent, name) { self.find(parent, name) } else { self.fs.lookup(parent, name) }
    }

    fn getattr(&self, ino: Ino) -> Result<Attr> {
        if is_own(ino) { self.attr(ino) } else { self.fs.getattr(ino) }
    }

    fn setattr(&self, caller: &Caller, ino: Ino, set: &SetAttr) -> Result<Attr> {
        if !is_own(ino) {
            return self.fs.setattr(caller, ino, set);
        }
        // As a shell opens what it redirects to.
        let emptied =
            SetAttr { size: Some(0), kill_privileges: set.kill_privileges, ..SetAttr::default() };
        // A kernel that keeps the times says them too.
        if (SetAttr { mtime: None, ctime: None, ..*set }) != emptied {
            return Err(FsError::NotPermitted { what: "changing the control directory" });
        }
        self.attr(ino)
    }

    fn note_read(&self, ino: Ino) -> Result<bool> {
        if is_own(ino) { Ok(false) } else { self.fs.note_read(ino) }
    }

    fn readlink(&self, ino: Ino) -> Result<Vec<u8>> {
        refuse(ino)?;
        self.fs.readlink(ino)
    }

    fn create(
        &self,
        caller: &Caller,
        parent: Ino,
        name: &[u8],
        new: &NewInode<'_>,
    ) -> Result<Attr> {
        self.keep_out(parent, name)?;
        self.fs.create(caller, parent, name, new)
    }

    fn create_unnamed(&self, caller: &Caller, parent: Ino, new: &NewInode<'_>) -> Result<Attr> {
        refuse(parent)?;
        self.fs.create_unnamed(caller, parent, new)
    }

    fn unlink(&self, parent: Ino, name: &[u8]) -> Result<()> {
        self.keep_out(parent, name)?;
        self.fs.unlink(parent, name)
    }

    fn rmdir(&self, parent: Ino, name: &[u8]) -> Result<()> {
        self.keep_out(parent, name)?;
        self.fs.rmdir(parent, name)
    }

    fn rename(&self, source: (Ino, &[u8]), target: (Ino, &[u8]), flags: RenameFlags) -> Result<()> {
        self.keep_out(source.0, source.1)?;
        self.keep_out(target.0, target.1)?;
        self.fs.rename(source, target, flags)
    }

    fn link(&self, ino: Ino, parent: Ino, name: &[u8]) -> Result<Attr> {
        refuse(ino)?;
        self.keep_out(parent, name)?;
        self.fs.link(ino, parent, name)
    }

    fn pin(&self, ino: Ino) -> Result<()> {
        if is_own(ino) { Ok(()) } else { self.fs.pin(ino) }
    }

    fn unpin(&self, ino: Ino) {
        if !is_own(ino) {
            self.fs.unpin(ino);
        }
    }

    fn read_with(
        &self,
        ino: Ino,
        offset: u64,
        buffer: &mut [u8],
        flags: ReadFlags,
    ) -> Result<usize> {
        if is_own(ino) {
            return self.read_own(ino, offset, buffer);
        }
        self.fs.read_with(ino, offset, buffer, flags)
    }

    fn write(&self, ino: Ino, offset: u64, data: &[u8], flags: WriteFlags) -> Result<Written> {
        if is_own(ino) {
            self.command(ino, data)?;
            return Ok(Written { offset, len: data.len() as u64 });
        }
        self.fs.write(ino, offset, data, flags)
    }

    /// Of a file of the control directory: everything becomes durable, so that whoever is about to
    /// unmount can find out whether it did.
    fn fsync(&self, ino: Ino, kind: SyncKind) -> Result<()> {
        if is_own(ino) { self.fs.sync() } else { self.fs.fsync(ino, kind) }
    }

    fn sync(&self) -> Result<()> {
        self.fs.sync()
    }

    fn readdir_with(
        &self,
        ino: Ino,
        cookie: u64,
        flags: ReadFlags,
        each: &mut dyn FnMut(DirEntry<'_>) -> Listing,
    ) -> Result<()> {
        if is_own(ino) {
            return self.list(ino, cookie, each);
        }
        self.fs.readdir_with(ino, cookie, flags, each)
    }

    fn fallocate(&self, ino: Ino, how: Allocate, offset: u64, len: u64) -> Result<()> {
        refuse(ino)?;
        self.fs.fallocate(ino, how, offset, len)
    }

    fn seek(&self, ino: Ino, what: Seek, offset: u64) -> Result<u64> {
        refuse(ino)?;
        self.fs.seek(ino, what, offset)
    }

    fn copy_range(
        &self,
        source: (Ino, u64),
        target: (Ino, u64),
        len: u64,
        flags: WriteFlags,
    ) -> Result<u64> {
        refuse(source.0)?;
        refuse(target.0)?;
        self.fs.copy_range(source, target, len, flags)
    }

    fn statfs(&self) -> Result<StatFs> {
        self.fs.statfs()
    }

    fn getxattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>> {
        if is_own(ino) { Err(FsError::NoAttribute) } else { self.fs.getxattr(ino, name) }
    }

    fn setxattr(
        &self,
        caller: &Caller,
        ino: Ino,
        name: &[u8],
        value: &[u8],
        mode: XattrMode,
    ) -> Result<()> {
        refuse(ino)?;
        self.fs.setxattr(caller, ino, name, value, mode)
    }

    fn listxattr(&self, ino: Ino) -> Result<Vec<Vec<u8>>> {
        if is_own(ino) { Ok(Vec::new()) } else { self.fs.listxattr(ino) }
    }

    fn removexattr(&self, ino: Ino, name: &[u8]) -> Result<()> {
        refuse(ino)?;
        self.fs.removexattr(ino, name)
    }

    fn tick(&self) -> Result<()> {
        self.latencies.sample();
        self.fs.tick()
    }

    fn on_work(&self, wake: Wake) {
        self.fs.on_work(wake);
    }

    fn shutdown(&self) -> Result<()> {
        self.fs.shutdown()
    }

    fn give_up(&self, message: &str) -> Remains {
        self.panicked.get_or_init(|| message.to_owned());
        self.fs.give_up(message)
    }
}

#[cfg(test)]
mod tests;
