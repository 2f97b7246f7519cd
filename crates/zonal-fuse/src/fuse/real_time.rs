//! Real time, for how long threads wait for the kernel.

use std::time::Instant;

#[expect(clippy::disallowed_methods, reason = "the kernel and its processes run in real time")]
pub(super) fn now() -> Instant {
    Instant::now()
}
