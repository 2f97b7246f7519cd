//! Counts closed files, so that an open can wait for a close that is on its way.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Counter of closed files.
#[derive(Default)]
pub(super) struct Closings {
    count: Mutex<u64>,
    more: Condvar,
}

impl Closings {
    /// Files closed so far.
    pub(super) fn count(&self) -> u64 {
        *self.count.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A file was closed. Wakes all that wait.
    pub(super) fn add(&self) {
        *self.count.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.more.notify_all();
    }

    /// Waits up to `limit` for a close after the first `seen`.
    pub(super) fn wait(&self, seen: u64, limit: Duration) {
        let count = self.count.lock().unwrap_or_else(PoisonError::into_inner);
        // The caller looks again, so the outcome does not matter.
        drop(self.more.wait_timeout_while(count, limit, |count| *count == seen));
    }
}
