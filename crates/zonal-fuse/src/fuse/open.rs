//! Opening and closing.
//!
//! A close reaches us some time after close(2) has returned. So an open that finds no room, because
//! the device allows only so many open zones, waits a little for closes that are on their way.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use zonal_fs::vfs::{Attr, FileModel, FileSystem, InodeFlags, OpenFor, WriteFlags};
use zonal_fs::{FsError, protect};
use zonal_fuse_transport::abi::FopenFlags;
use zonal_fuse_transport::{Errno, NodeId};

use super::reply::{Route, opened};
use super::{Front, convert};
use crate::control;
use crate::latency::Operation;

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
    pub(super) fn open_file(&self, ino: NodeId, flags: i32) -> Result<(u64, FopenFlags), Errno> {
        let route = self.open_in_time(ino, flags)?;
        if route == Route::Cached {
            self.shared.pins.open_cached(self.ino(ino));
            if purpose(flags) == OpenFor::Writing {
                self.add_writer(ino);
            }
        }
        Ok(opened(route, self.shared.atime))
    }

    /// Takes back an [`open_file`](Self::open_file).
    pub(super) fn close_file(&self, ino: NodeId, handle: u64, flags: i32) {
        if Route::from(handle) == Route::Cached {
            self.shared.pins.close_cached(self.ino(ino));
        }
        let purpose = purpose(flags);
        if Route::from(handle) == Route::Cached && purpose == OpenFor::Writing {
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

    fn open_in_time(&self, ino: NodeId, flags: i32) -> Result<Route, Errno> {
        let purpose = purpose(flags);
        let deadline = now() + CLOSE_TIMEOUT;
        loop {
            let seen = self.shared.closings.count();
            let mut full = false;
            let route = self.run(Operation::Open, ino, |fs, ino| {
                let attr = fs.getattr(ino)?;
                check(&attr, flags)?;
                let outcome = fs.open(ino, purpose);
                full = matches!(outcome, Err(FsError::TooManyOpen { .. } | FsError::ZoneLimit(_)));
                let late = purpose == OpenFor::Writing && self.is_nearly_full(fs);
                outcome.map(|()| if late { Route::Direct } else { route(fs, &attr, flags) })
            });
            let left = deadline.saturating_duration_since(now());
            if !full || left.is_zero() {
                return route;
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

/// How the data of a file travels.
fn route(fs: &dyn FileSystem, attr: &Attr, flags: i32) -> Route {
    let direct = flags & convert::O_DIRECT != 0 || control::is_own(attr.ino);
    let direct = match fs.model(attr.ino) {
        FileModel::Posix => direct,
        // What writes a zone must not go through pages. And reads of a zone that is offline must reach
        // us to fail: the kernel would find the file empty.
        FileModel::Zones => {
            let gone = attr.size == 0 && attr.flags.contains(InodeFlags::IMMUTABLE);
            direct || gone || purpose(flags) == OpenFor::Writing
        }
    };
    if direct { Route::Direct } else { Route::Cached }
}
