//! Requests in flight on a device in virtual time.
//!
//! Nothing waits: a program begins each request at a time of its choice, and asks for the next end
//! of one. It keeps a queue by beginning the next request when an earlier one has ended, and it
//! moves the [clock](ManualClock) itself. [`workload::queued`](crate::workload::queued) does that.

use super::Select;
use super::batch::Io;
use crate::error::Result;
use crate::{ManualClock, ZoneAction, ZoneId};

/// Work of the head of a disk since the disk was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeadWork {
    /// Operations to which the arm had to move, or for which it waited for a turn.
    pub jumps: u64,
    /// Nanoseconds that the arm moved and settled.
    pub seek_ns: u64,
    /// Nanoseconds that the head waited for a turn.
    pub turn_ns: u64,
    /// Nanoseconds of transfers.
    pub transfer_ns: u64,
}

impl HeadWork {
    /// The work since an earlier count.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Self {
        Self {
            jumps: self.jumps - earlier.jumps,
            seek_ns: self.seek_ns - earlier.seek_ns,
            turn_ns: self.turn_ns - earlier.turn_ns,
            transfer_ns: self.transfer_ns - earlier.transfer_ns,
        }
    }
}

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

    /// The work of the head, of a device that has one.
    fn head_work(&self) -> Option<HeadWork> {
        None
    }
}
