//! Time, handed in: no library of this workspace reads a clock of its own, so a run can be
//! replayed.
//!
//! [`SystemClock`] is here for programs, which hand it in. No library makes one.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use rustix::time::{ClockId, clock_gettime};

/// A source of time.
pub trait Clock: Send + Sync {
    /// Nanoseconds since 1970-01-01 UTC.
    fn wall_ns(&self) -> i64;

    /// Nanoseconds since an arbitrary start; never goes back.
    fn monotonic_ns(&self) -> u64;
}

/// A clock that moves only when it is advanced; each reading is one nanosecond later than the one
/// before, so that events are ordered.
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

/// The machine's wall clock and monotonic clock.
#[derive(Debug)]
pub struct SystemClock {
    start: Instant,
    wall: ClockId,
}

impl SystemClock {
    /// The clock; its monotonic time starts now.
    #[expect(clippy::disallowed_methods, reason = "this is the clock that programs hand in")]
    pub fn new() -> Self {
        Self { start: Instant::now(), wall: ClockId::Realtime }
    }

    /// A clock whose wall clock moves in steps of some milliseconds, like the clock from which the
    /// kernel takes the times of files (`fs/inode.c`, `current_time`): times that the kernel and a
    /// file system of ours give one after the other are in order.
    pub fn coarse() -> Self {
        Self { wall: ClockId::RealtimeCoarse, ..Self::new() }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    fn wall_ns(&self) -> i64 {
        let now = clock_gettime(self.wall);
        now.tv_sec.saturating_mul(1_000_000_000).saturating_add(now.tv_nsec)
    }

    fn monotonic_ns(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}
