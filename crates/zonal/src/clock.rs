//! Time, handed in: nothing in this crate reads a clock of its own, so a run can be replayed.

use std::sync::atomic::{AtomicU64, Ordering};

/// A source of time.
pub trait Clock: Send + Sync {
    /// Nanoseconds since 1970-01-01 UTC.
    fn wall_ns(&self) -> i64;

    /// Nanoseconds since an arbitrary start; never goes back.
    fn monotonic_ns(&self) -> u64;
}

/// A clock that moves only when told to; each reading is one nanosecond later than the one before,
/// so that order can be seen.
#[derive(Debug, Default)]
pub struct ManualClock(AtomicU64);

impl ManualClock {
    /// A clock that stands at `start_ns`.
    pub const fn new(start_ns: u64) -> Self {
        Self(AtomicU64::new(start_ns))
    }

    /// Moves the clock forward.
    pub fn advance_ns(&self, step_ns: u64) {
        self.0.fetch_add(step_ns, Ordering::Relaxed);
    }
}

impl Clock for ManualClock {
    fn wall_ns(&self) -> i64 {
        i64::try_from(self.monotonic_ns()).unwrap_or(i64::MAX)
    }

    fn monotonic_ns(&self) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed)
    }
}
