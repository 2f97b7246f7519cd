//! Waiting for the space of deleted files.
//!
//! The kernel reports the last close of a deleted file only after close(2) has returned, so a
//! program that deletes a file, closes it and writes at once may find its space not yet free. A
//! request without space waits a moment for that, if deleted files are in use.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use zonal_fs::FsError;
use zonal_fs::vfs::{FileSystem, Result};

use super::pins::Forgotten;

/// One wait.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// How often to wait at most, half a second in all: a program may keep a deleted file open.
const WAITS_MAX: usize = 50;

/// Requests that wait at once. Each takes a thread, and one must be left to hear of releases.
const WAITING_MAX: usize = 2;

/// Counts the inodes that the kernel has let go of.
#[derive(Debug, Default)]
pub(super) struct Releases {
    count: AtomicU64,
    /// Those that it is letting go of: the file system may have their space already.
    under_way: AtomicUsize,
    waiting: AtomicUsize,
    turn: Mutex<()>,
    changed: Condvar,
}

impl Releases {
    /// Tells the file system that the kernel has let go of an inode, perhaps wholly.
    pub(super) fn note(&self, forget: impl FnOnce() -> Forgotten) {
        self.under_way.fetch_add(1, Ordering::SeqCst);
        let forgotten = forget();
        if forgotten == Forgotten::Wholly {
            self.count.fetch_add(1, Ordering::SeqCst);
        }
        self.under_way.fetch_sub(1, Ordering::SeqCst);
        if forgotten == Forgotten::Wholly && self.waiting.load(Ordering::SeqCst) > 0 {
            let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
            self.changed.notify_all();
        }
    }

    /// Runs an operation, and again whenever it found no space and some may have come.
    pub(super) fn with_space<T>(
        &self,
        fs: &dyn FileSystem,
        mut run: impl FnMut() -> Result<T>,
    ) -> Result<T> {
        let mut waits = WAITS_MAX;
        loop {
            let seen = self.count.load(Ordering::SeqCst);
            let outcome = run();
            if !matches!(outcome, Err(FsError::NoSpace)) {
                return outcome;
            }
            loop {
                if waits == 0 || !self.wait(fs, seen) {
                    return outcome;
                }
                waits -= 1;
                if self.count.load(Ordering::SeqCst) != seen {
                    break;
                }
            }
        }
    }

    /// Waits a moment for more releases than `seen`; `false` if there is none to wait for, or too
    /// many wait.
    fn wait(&self, fs: &dyn FileSystem, seen: u64) -> bool {
        let none_came = |(): &mut ()| self.count.load(Ordering::SeqCst) == seen;
        // The last may have been released between the operation and this look, or be about to be
        // counted. In this order, for it is counted before it is under way no more.
        let unlinked = fs.statfs().map_or(0, |stat| stat.inodes_unlinked);
        let under_way = self.under_way.load(Ordering::SeqCst);
        if unlinked == 0 && under_way == 0 && none_came(&mut ()) {
            return false;
        }
        let may_wait = self.waiting.fetch_add(1, Ordering::SeqCst) < WAITING_MAX;
        if may_wait {
            let turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
            drop(self.changed.wait_timeout_while(turn, POLL_INTERVAL, none_came));
        }
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        may_wait
    }
}
