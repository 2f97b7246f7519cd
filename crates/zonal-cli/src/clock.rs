//! Real time, for the command's own measurements.

use std::time::Instant;

/// The monotonic clock.
#[expect(clippy::disallowed_methods, reason = "the command measures real time")]
pub(crate) fn now() -> Instant {
    Instant::now()
}
