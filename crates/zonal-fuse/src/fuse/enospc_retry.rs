//! Retries an operation that found no space while the space of deleted files may still be freed.
//!
//! The kernel reports the last close of a deleted file only after close(2) has returned. So the
//! space may not be free yet for a program that deletes a file, closes it and writes at once. While
//! deleted files are in use, a request that fails with ENOSPC waits for them a moment and tries
//! again.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use zonal_fs::FsError;
use zonal_fs::vfs::{FileSystem, Result};

use super::event_count::EventCount;
use super::lookup_counts::Forgotten;

/// The time between two attempts.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Most waits of a request, half a second in all: a program may keep a deleted file open.
const WAITS_MAX: usize = 50;

/// Most requests that wait at once. Each blocks a thread, and one must be free to take FORGETs.
const WAITING_MAX: usize = 2;

/// Inodes that the kernel has forgotten.
#[derive(Debug, Default)]
pub(super) struct ReleaseCount {
    released: EventCount,
    /// FORGETs in progress.
    under_way: AtomicUsize,
}

impl ReleaseCount {
    /// Runs a FORGET, and counts it if the kernel forgot the inode wholly.
    pub(super) fn note(&self, forget: impl FnOnce() -> Forgotten) {
        self.under_way.fetch_add(1, Ordering::SeqCst);
        if forget() == Forgotten::Wholly {
            self.released.add();
        }
        self.under_way.fetch_sub(1, Ordering::SeqCst);
    }

    /// Runs an operation, and again while it finds no space and inodes are being released.
    pub(super) fn with_space<T>(
        &self,
        fs: &dyn FileSystem,
        mut run: impl FnMut() -> Result<T>,
    ) -> Result<T> {
        let mut waits = WAITS_MAX;
        loop {
            let seen = self.released.count();
            let outcome = run();
            if !matches!(outcome, Err(FsError::NoSpace)) {
                return outcome;
            }
            loop {
                if waits == 0 || !self.wait(fs, seen) {
                    return outcome;
                }
                waits -= 1;
                if self.released.count() != seen {
                    break;
                }
            }
        }
    }

    /// Waits a moment for more releases than `seen`. Returns `false` if no release can come, or if
    /// too many requests wait.
    fn wait(&self, fs: &dyn FileSystem, seen: u64) -> bool {
        // The last deleted file may have been released since the operation, or be about to be
        // counted. Order matters: `note` counts it before it lowers `under_way`.
        let unlinked = fs.statfs().map_or(0, |stat| stat.inodes_unlinked);
        let under_way = self.under_way.load(Ordering::SeqCst);
        if unlinked == 0 && under_way == 0 && self.released.count() == seen {
            return false;
        }
        self.released.wait(seen, POLL_INTERVAL, WAITING_MAX)
    }
}
