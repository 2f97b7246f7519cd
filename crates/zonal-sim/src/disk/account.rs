//! Counts of a disk: bytes, jumps, and the share of each part of its time.

use zonal::HeadWork;

use super::platters::{Access, Way};

/// The shortest way that counts as a jump: less is a rounded time.
const JUMP_NS: u64 = 1_000;

/// Positions of the arm that are kept, at most; then every second one goes.
const POSITIONS_MAX: usize = 1 << 16;

/// The arm at the begin of an operation.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct Position {
    /// When, in nanoseconds of virtual time.
    pub at_ns: u64,
    /// Where, as a share of the way from the outer edge to the inner one.
    pub share: f64,
}

/// Counts of a disk since it was made.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize)]
pub struct Account {
    /// Bytes that commands wrote.
    pub host_written_bytes: u64,
    /// Bytes that commands read.
    pub host_read_bytes: u64,
    /// Flushes.
    pub flushes: u64,
    /// Reads that needed no head.
    pub cache_hits: u64,
    /// Operations of the head.
    pub operations: u64,
    /// Operations to which the arm had to move, or for which it waited for a turn.
    pub jumps: u64,
    /// Bytes that passed from or to the platters in operations.
    pub moved_bytes: u64,
    /// The part of them that was written.
    pub destaged_bytes: u64,
    /// Time that the arm moved and settled.
    pub seek_ns: u64,
    /// Time that the head waited for a turn.
    pub turn_ns: u64,
    /// Time of transfers, with the changes of tracks in them.
    pub transfer_ns: u64,
    /// Virtual time since the disk was made.
    pub virtual_ns: u64,
    /// Where the arm was, in the order of time; all of a short run, some of a long one.
    #[serde(skip)]
    pub positions: Vec<Position>,
    /// Operations for each position that is kept.
    #[serde(skip)]
    pub(super) every: u64,
}

/// The time of a measurement on a disk, and what its head did.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HeadShares {
    /// Virtual time, in nanoseconds.
    pub virtual_ns: u64,
    /// Operations to which the arm had to move, or for which it waited for a turn.
    pub jumps: u64,
    /// Part of the time in which the arm moved and settled.
    pub seek_percent: f64,
    /// Part of the time in which the head waited for a turn.
    pub turn_percent: f64,
    /// Part of the time in which bytes passed below the head.
    pub transfer_percent: f64,
    /// The rest: commands, transfers on the link, answers of the cache, waiting for the host.
    pub rest_percent: f64,
}

impl HeadShares {
    /// The shares of the work in a time.
    #[expect(clippy::cast_precision_loss, reason = "shares for people")]
    pub fn new(work: HeadWork, virtual_ns: u64) -> Self {
        let percent = |ns: u64| 100.0 * ns as f64 / virtual_ns.max(1) as f64;
        let [seek, turn, transfer] = [work.seek_ns, work.turn_ns, work.transfer_ns].map(percent);
        Self {
            virtual_ns,
            jumps: work.jumps,
            seek_percent: seek,
            turn_percent: turn,
            transfer_percent: transfer,
            // The last operation may end after the time.
            rest_percent: (100.0 - seek - turn - transfer).max(0.0),
        }
    }
}

impl Account {
    /// The work of the head.
    pub const fn work(&self) -> HeadWork {
        let Self { jumps, seek_ns, turn_ns, transfer_ns, .. } = *self;
        HeadWork { jumps, seek_ns, turn_ns, transfer_ns }
    }

    /// An operation of the head.
    pub(super) fn operate(
        &mut self,
        position: Position,
        way: Way,
        transfer_ns: u64,
        bytes: u64,
        access: Access,
    ) {
        let every = self.every.max(1);
        if self.operations.is_multiple_of(every) {
            self.positions.push(position);
            if self.positions.len() == POSITIONS_MAX {
                let mut number = 0;
                self.positions.retain(|_| {
                    number += 1;
                    number % 2 == 1
                });
                self.every = 2 * every;
            }
        }
        self.operations += 1;
        self.jumps += u64::from(way.ns() >= JUMP_NS);
        self.moved_bytes += bytes;
        if access == Access::Write {
            self.destaged_bytes += bytes;
        }
        self.seek_ns += way.seek_ns;
        self.turn_ns += way.turn_ns;
        self.transfer_ns += transfer_ns;
    }
}
