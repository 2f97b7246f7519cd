//! Retries an operation that found no space while the space of deleted files may still be freed.
//!
//! The kernel reports the last close of a deleted file only after close(2) has returned. So the
//! space may not be free yet for a program that deletes a file, closes it and writes at once. While
//! deleted files are in use, a request that fails with ENOSPC waits for them a moment and tries
//! again.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use zonal_fs::FsError;
use zonal_fs::vfs::{FileSystem, Result};

use super::lookup_counts::Forgotten;

/// The time between two attempts.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Most waits of a request, half a second in all: a program may keep a deleted file open.
const WAITS_MAX: usize = 50;

/// Most requests that wait at once. Each blocks a thread, and one must be free to take FORGETs.
const WAITING_MAX: usize = 2;

/// Counter of inodes that the kernel has forgotten.
#[derive(Debug, Default)]
pub(super) struct ReleaseCount {
    count: AtomicU64,
    /// FORGETs in progress.
    under_way: AtomicUsize,
    waiting: AtomicUsize,
    turn: Mutex<()>,
    changed: Condvar,
}

impl ReleaseCount {
    /// Runs a FORGET, and counts it if the kernel forgot the inode wholly.
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

    /// Runs an operation, and again while it finds no space and inodes are being released.
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

    /// Waits a moment for more releases than `seen`. Returns `false` if no release can come, or if
    /// too many requests wait.
    fn wait(&self, fs: &dyn FileSystem, seen: u64) -> bool {
        let none_came = |(): &mut ()| self.count.load(Ordering::SeqCst) == seen;
        // The last deleted file may have been released since the operation, or be about to be
        // counted. Order matters: `note` counts it before it lowers `under_way`.
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
