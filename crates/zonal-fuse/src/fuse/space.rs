//! Space that is on its way.
//!
//! The kernel tells that nobody uses a deleted file any more after close(2) has returned, so a
//! program that deletes a file, closes it and writes can be here before its space is. Whoever finds
//! none waits for that, for a moment, while there are deleted files in use at all.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use zonal_fs::FsError;
use zonal_fs::vfs::{FileSystem, Result};

/// How long to wait at most: a program may keep a deleted file open.
const PATIENCE: Duration = Duration::from_millis(500);

/// Requests that wait at once. Each takes a thread, and one must be left to hear of releases.
const WAITING_MAX: usize = 2;

/// Counts the inodes that the kernel has let go of.
#[derive(Debug, Default)]
pub(super) struct Releases {
    count: AtomicU64,
    waiting: AtomicUsize,
    turn: Mutex<()>,
    changed: Condvar,
}

impl Releases {
    /// The kernel has let go of an inode, and the file system knows.
    pub(super) fn note(&self) {
        self.count.fetch_add(1, Ordering::SeqCst);
        if self.waiting.load(Ordering::SeqCst) > 0 {
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
        let mut deadline = None;
        loop {
            let seen = self.count.load(Ordering::SeqCst);
            let outcome = run();
            if !matches!(outcome, Err(FsError::NoSpace)) {
                return outcome;
            }
            let deadline = *deadline.get_or_insert_with(|| Instant::now() + PATIENCE);
            if !self.wait(fs, seen, deadline) {
                return outcome;
            }
        }
    }

    /// Waits for a release after the first `seen`; `false` if none comes.
    fn wait(&self, fs: &dyn FileSystem, seen: u64, deadline: Instant) -> bool {
        let none_came = |(): &mut ()| self.count.load(Ordering::SeqCst) == seen;
        if none_came(&mut ()) && fs.statfs().map_or(0, |stat| stat.inodes_unlinked) == 0 {
            return !none_came(&mut ());
        }
        let left = deadline.saturating_duration_since(Instant::now());
        let came = self.waiting.fetch_add(1, Ordering::SeqCst) < WAITING_MAX && {
            let turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
            let waited = self.changed.wait_timeout_while(turn, left, none_came);
            !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
        };
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        came
    }
}
