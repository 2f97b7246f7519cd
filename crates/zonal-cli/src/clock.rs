//! The machine's clocks, for libraries that read none of their own.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use zonal::Clock;

/// The wall clock and the monotonic clock of the machine.
pub(crate) struct SystemClock {
    start: Instant,
}

impl SystemClock {
    pub(crate) fn new() -> Self {
        Self { start: now() }
    }
}

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is the clock that libraries are handed")]
    fn wall_ns(&self) -> i64 {
        match SystemTime::now().duration_since(UNIX_EPOCH) {
            Ok(since) => i64::try_from(since.as_nanos()).unwrap_or(i64::MAX),
            Err(before) => -i64::try_from(before.duration().as_nanos()).unwrap_or(i64::MAX),
        }
    }

    fn monotonic_ns(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

/// The monotonic clock, for the command's own measurements.
#[expect(clippy::disallowed_methods, reason = "the command measures real time")]
pub(crate) fn now() -> Instant {
    Instant::now()
}
