//! Failed writes to zone files, after which the kernel may have a wrong length.
//!
//! After a failed asynchronous write that was to extend a file, the kernel sets the length of the
//! file back to the old one. On a zone that has grown without the kernel's knowledge this would be
//! a reset. In this case the kernel's length is 0 and ours is not; [`ZoneWrites::take_failed`]
//! detects it. Any other length is refused anyway.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use zonal_fs::vfs::Ino;

/// Failed writes of all zone files.
#[derive(Default)]
pub(super) struct ZoneWrites {
    failures: Mutex<Failures>,
    /// Whether `unseen` has an element: every answer with attributes checks this.
    any_unseen: AtomicBool,
}

#[derive(Default)]
struct Failures {
    /// Files that are empty to the kernel and not empty here.
    unseen: BTreeSet<Ino>,
    /// For each of these files, the thread whose write failed last.
    failed: BTreeMap<Ino, u32>,
}

/// A write that failed.
#[derive(Clone, Copy)]
pub(super) struct FailedWrite {
    pub(super) ino: Ino,
    pub(super) size_before: u64,
    pub(super) size_after: u64,
    /// Thread of the caller.
    pub(super) thread: u32,
}

impl ZoneWrites {
    fn failures(&self) -> MutexGuard<'_, Failures> {
        self.failures.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records a failed write.
    pub(super) fn fail(&self, write: FailedWrite) {
        let FailedWrite { ino, size_before, size_after, thread } = write;
        let mut failures = self.failures();
        if size_before == 0 && size_after > 0 {
            failures.unseen.insert(ino);
            self.any_unseen.store(true, Ordering::Release);
        }
        if failures.unseen.contains(&ino) {
            failures.failed.insert(ino, thread);
        }
    }

    /// The kernel learns the length of a file.
    pub(super) fn see(&self, ino: Ino) {
        if self.any_unseen.load(Ordering::Acquire) {
            let mut failures = self.failures();
            failures.unseen.remove(&ino);
            failures.failed.remove(&ino);
            self.any_unseen.store(!failures.unseen.is_empty(), Ordering::Release);
        }
    }

    /// Whether setting the length of a file to 0 is the kernel undoing a failed write of `thread`,
    /// although the file is not empty. Only the first call after the failure says so: a second one
    /// comes from a program.
    pub(super) fn take_failed(&self, ino: Ino, thread: u32) -> bool {
        self.failures().failed.remove(&ino) == Some(thread)
    }
}
