//! Requests in flight on a device in virtual time.
//!
//! Nothing waits: a program begins each request at a time of its choice, and asks for the next end
//! of one. It keeps a queue by beginning the next request when an earlier one has ended, and it
//! moves the [clock](ManualClock) itself. [`workload::queued`](crate::workload::queued) does that.

use super::Select;
use super::batch::Io;
use crate::error::Result;
use crate::{ManualClock, ZoneAction, ZoneId};

/// The queue of a device in virtual time.
///
/// No request begins before the one before it. No call moves the clock.
pub trait VirtualQueue: Send + Sync {
    /// The clock of the device.
    fn clock(&self) -> &ManualClock;

    /// Begins a request at `at_ns`: its data moves and it gets its result at once, and
    /// [`next_end`](Self::next_end) says later when it ends. `tag` names it, below 2^63.
    fn begin(&self, io: &mut Io<'_>, at_ns: u64, tag: u64);

    /// The next request that ends, and when, if that is not after `until_ns`. To be asked with the
    /// time of the next request: which one the device takes first can depend on all that are there.
    fn next_end(&self, until_ns: u64) -> Option<(u64, u64)>;

    /// Changes the condition of zones from `at_ns` on, and returns when that ends.
    fn manage_at(&self, zones: Select, action: ZoneAction, at_ns: u64) -> Result<u64>;

    /// Makes an empty zone full of zeroes, as if they had been written long ago: it takes no
    /// virtual time, and nothing of it is in a write buffer. The counts of the device have it.
    fn mark_written(&self, zone: ZoneId) -> Result<()>;
}
