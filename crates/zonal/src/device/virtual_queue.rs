//! Requests in flight on a device in virtual time.
//!
//! A device in virtual time knows when a request ends as soon as it begins, so nothing waits: the
//! caller gives each request the time at which it begins, and gets the time at which it ends. It
//! keeps a queue by beginning the next request when an earlier one has ended, and it moves the
//! [clock](ManualClock) itself. [`workload::queued`](crate::workload::queued) does that.

use super::Select;
use super::batch::Io;
use crate::error::Result;
use crate::{ManualClock, ZoneAction, ZoneId};

/// The queue of a device in virtual time.
///
/// No call begins before the one that was made before it. No call moves the clock.
pub trait VirtualQueue: Send + Sync {
    /// The clock of the device.
    fn clock(&self) -> &ManualClock;

    /// Performs a request that begins at `at_ns`, gives it its result and returns when it ends.
    fn perform_at(&self, io: &mut Io<'_>, at_ns: u64) -> u64;

    /// Changes the condition of zones from `at_ns` on, and returns when that ends.
    fn manage_at(&self, zones: Select, action: ZoneAction, at_ns: u64) -> Result<u64>;

    /// Makes an empty zone full of zeroes, as if they had been written long ago: it takes no
    /// virtual time, and nothing of it is in a write buffer. The counts of the device have it.
    fn mark_written(&self, zone: ZoneId) -> Result<()>;
}
