//! A count of events, for threads that wait for the next one.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Counter of events.
#[derive(Debug, Default)]
pub(super) struct EventCount {
    count: AtomicU64,
    waiting: AtomicUsize,
    turn: Mutex<()>,
    more: Condvar,
}

impl EventCount {
    /// Events so far.
    pub(super) fn count(&self) -> u64 {
        self.count.load(Ordering::SeqCst)
    }

    /// Counts an event, and wakes all threads that wait.
    pub(super) fn add(&self) {
        self.count.fetch_add(1, Ordering::SeqCst);
        if self.waiting.load(Ordering::SeqCst) > 0 {
            let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
            self.more.notify_all();
        }
    }

    /// Waits up to `limit` for an event after the first `seen`. Returns `false` without waiting if
    /// `most` threads wait already.
    pub(super) fn wait(&self, seen: u64, limit: Duration, most: usize) -> bool {
        let may_wait = self.waiting.fetch_add(1, Ordering::SeqCst) < most;
        if may_wait {
            let turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
            // The caller looks again, so the outcome does not matter.
            drop(self.more.wait_timeout_while(turn, limit, |()| self.count() == seen));
        }
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        may_wait
    }
}
