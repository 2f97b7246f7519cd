//! Opening and closing.
//!
//! A close reaches us some time after close(2) has returned. So an open that finds no room, because
//! the device allows only so many open zones, waits a little for closes that are on their way.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use zonal_fs::vfs::{Attr, FileModel, FileSystem, InodeFlags, OpenFor, WriteFlags};
use zonal_fs::{FsError, protect};
use zonal_fuse_transport::reply::Opened;
use zonal_fuse_transport::{Errno, NodeId};

use super::openings::Wish;
use super::reply::{Route, opened};
use super::{Front, convert};
use crate::control;
use crate::latency::Operation;
use crate::options::Atime;

/// How long an open waits for closes on their way. After that it fails, which changes nothing.
const CLOSE_TIMEOUT: Duration = Duration::from_millis(100);

/// Counts closed files, and wakes opens that wait for one.
#[derive(Default)]
pub(super) struct Closings {
    count: Mutex<u64>,
    more: Condvar,
}

impl Closings {
    fn count(&self) -> u64 {
        *self.count.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self) {
        *self.count.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.more.notify_all();
    }

    /// Waits for a closing after the first `seen`, for so long at most.
    fn wait(&self, seen: u64, limit: Duration) {
        let count = self.count.lock().unwrap_or_else(PoisonError::into_inner);
        // The next attempt shows whether there was one.
        drop(self.more.wait_timeout_while(count, limit, |count| *count == seen));
    }
}

impl Front {
    /// Opens a file as these open(2) flags say.
    pub(super) fn open_file(&self, node: NodeId, flags: i32) -> Result<Opened, Errno> {
        let (wish, model) = self.open_in_time(node, flags)?;
        let ino = self.ino(node);
        let (route, backing) = match (model, wish) {
            (FileModel::Zones, _) => self.shared.openings.add((node, ino), wish, flags),
            (FileModel::Posix, Wish::DirectReads) => (Route::Direct, None),
            (FileModel::Posix, Wish::Other(route)) => (route, None),
        };
        if route == Route::Cached {
            self.note_reader(node, flags);
        }
        if has_pages(route, flags) {
            self.shared.pins.open_cached(ino);
        }
        if route == Route::Cached && purpose(flags) == OpenFor::Writing {
            self.add_writer(node);
        }
        Ok(opened((route, backing), model, self.shared.atime))
    }

    /// What the kernel has in its pages is read without our seeing it. So an access time that is
    /// due moves when such a file is opened for reading.
    fn note_reader(&self, node: NodeId, flags: i32) {
        let reads = flags & convert::O_ACCMODE != convert::O_WRONLY;
        let leaves_traces = reads && flags & convert::O_NOATIME == 0;
        if !leaves_traces
            || self.shared.atime != Atime::Relative
            || !self.shared.pins.may_have_pages(self.ino(node))
        {
            return;
        }
        if let Ok(true) = self.call(Operation::Open, node, |fs, ino| fs.note_read(ino)) {
            self.forget_attributes(node);
        }
    }

    /// Takes back an [`open_file`](Self::open_file).
    pub(super) fn close_file(&self, ino: NodeId, handle: u64, flags: i32) {
        let (route, purpose) = (Route::from(handle), purpose(flags));
        if has_pages(route, flags) {
            self.shared.pins.close_cached(self.ino(ino));
        }
        if self.shared.model == FileModel::Zones {
            self.shared.openings.remove(self.ino(ino), route, flags);
        }
        if route == Route::Cached && purpose == OpenFor::Writing {
            self.remove_writer(ino);
        }
        // A stopped file system has been closed with all its files.
        let _ = self.run(Operation::Release, ino, |fs, ino| {
            fs.close(ino, purpose);
            Ok(())
        });
        if purpose == OpenFor::Writing {
            self.shared.closings.add();
            self.watch_access();
        }
    }

    fn open_in_time(&self, ino: NodeId, flags: i32) -> Result<(Wish, FileModel), Errno> {
        let purpose = purpose(flags);
        let deadline = now() + CLOSE_TIMEOUT;
        loop {
            let seen = self.shared.closings.count();
            let mut full = false;
            let opened = self.run(Operation::Open, ino, |fs, ino| {
                let attr = fs.getattr(ino)?;
                check(&attr, flags)?;
                let outcome = fs.open(ino, purpose);
                full = matches!(outcome, Err(FsError::TooManyOpen { .. } | FsError::ZoneLimit(_)));
                let late = purpose == OpenFor::Writing && self.is_nearly_full(fs);
                let wish = if late { Wish::Other(Route::Direct) } else { wish(fs, &attr, flags) };
                outcome.map(|()| (wish, fs.model(ino)))
            });
            let left = deadline.saturating_duration_since(now());
            if !full || left.is_zero() {
                return opened;
            }
            self.shared.closings.wait(seen, left);
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "how long a process waits is real time")]
pub(super) fn now() -> Instant {
    Instant::now()
}

fn purpose(flags: i32) -> OpenFor {
    match flags & convert::O_ACCMODE {
        convert::O_RDONLY => OpenFor::Reading,
        _ => OpenFor::Writing,
    }
}

/// Whether the inode's flags let it be opened so.
fn check(attr: &Attr, flags: i32) -> Result<(), FsError> {
    if purpose(flags) == OpenFor::Reading {
        return Ok(());
    }
    let mut how = WriteFlags::empty();
    how.set(WriteFlags::APPEND, flags & convert::O_APPEND != 0);
    protect::check_open(attr.flags, how)
}

/// How the data of a file is to travel.
fn wish(fs: &dyn FileSystem, attr: &Attr, flags: i32) -> Wish {
    let direct = flags & convert::O_DIRECT != 0 || control::is_own(attr.ino);
    let route = |direct| if direct { Route::Direct } else { Route::Cached };
    match fs.model(attr.ino) {
        FileModel::Posix => Wish::Other(route(direct)),
        FileModel::Zones if direct && purpose(flags) == OpenFor::Reading => Wish::DirectReads,
        // What writes a zone must not go through pages. And reads of a zone that is offline must reach
        // us to fail: the kernel would find the file empty.
        FileModel::Zones => {
            let gone = attr.size == 0 && attr.flags.contains(InodeFlags::IMMUTABLE);
            Wish::Other(route(gone || purpose(flags) == OpenFor::Writing))
        }
    }
}

/// Whether pages of a file may come into the page cache by it: sendfile(2) goes there though reads are direct.
fn has_pages(route: Route, flags: i32) -> bool {
    match route {
        Route::Cached => true,
        Route::Beside => purpose(flags) == OpenFor::Reading,
        Route::Direct | Route::Backed => false,
    }
}
