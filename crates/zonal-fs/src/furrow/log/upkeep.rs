//! Upkeep: keeps memory, the write buffer and the batch within bounds after each operation, and
//! decides when a commit is due.

use std::sync::atomic::Ordering;

use crate::furrow::format::BLOCK_BYTES;
use crate::furrow::log::Log;
use crate::furrow::metadata::{Ending, State};
use crate::furrow::tree::CHANGES_MAX;
use crate::furrow::write::Writer;

/// Bytes of changed rows from which a commit is due at once, or a quarter of a zone.
const BATCH_BYTES: usize = 4 << 20;

/// Batches of that size from which an operation commits itself instead of leaving it to the worker.
const BATCHES_MAX: usize = 4;

/// Batches are smaller by this factor while room is low: writers may wait for the next commit.
const LOW_SHARE: usize = 8;

/// Which thread commits because of the size of the batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BatchDue {
    /// None yet.
    No,
    /// The worker.
    Worker,
    /// The thread that finds it due.
    Now,
}

/// Work that an operation has to do once it has unlocked the state.
#[derive(Clone, Copy, Debug)]
pub(in crate::furrow) struct Upkeep {
    /// Memory holds more metadata than the mount may use.
    holds_too_much: bool,
    /// Truncated or deleted files have entries that the worker has to remove.
    truncations_wait: bool,
    /// Bytes of rows that have changed since the last commit.
    batch_bytes: usize,
    /// The write buffer holds more than its share of memory.
    buffer_is_full: bool,
}

impl Log {
    /// Upkeep that is due after a change, while the state is still locked.
    pub(in crate::furrow) fn upkeep_due(&self, state: &State) -> Upkeep {
        Upkeep {
            holds_too_much: self.tree.holds_too_much(state),
            truncations_wait: self.truncations_wait(state),
            batch_bytes: state.rows.batch.bytes(),
            buffer_is_full: state.rows.totals.pending() > self.writer.buffer_max,
        }
    }

    /// Whether the worker has a step of a truncation to take.
    fn truncations_wait(&self, state: &State) -> bool {
        !state.inodes.lives.truncating().is_empty()
            && state.inodes.lives.next_truncation(self.clock.monotonic_ns()).is_some()
    }

    /// Does the upkeep that is due after a change.
    pub(in crate::furrow) fn after_change(&self) {
        let due = self.upkeep_due(&self.tree.read_state());
        self.do_upkeep(due);
    }

    /// Keeps memory, the buffer and the batch within bounds after an operation. The operation
    /// itself has succeeded.
    pub(in crate::furrow) fn do_upkeep(&self, due: Upkeep) {
        if due.holds_too_much {
            self.tree.trim(&mut self.tree.write_accounts());
        }
        if due.truncations_wait {
            self.tree.bell.wake_worker();
        }
        let commits = self.batch_due(due.batch_bytes);
        if commits == BatchDue::Worker {
            self.tree.bell.wake_worker();
        }
        let outcome = match commits {
            BatchDue::Now => self.commit(Ending::Record),
            // The worker commits, and yet the buffer must not grow meanwhile.
            BatchDue::No | BatchDue::Worker if due.buffer_is_full => self.writer.relieve_buffer(),
            BatchDue::No | BatchDue::Worker => Ok(()),
        };
        Writer::note_held(outcome);
    }

    /// Bytes of changed rows from which a commit is due.
    fn batch_bytes(&self) -> usize {
        BATCH_BYTES.min(self.tree.layout().zone_blocks as usize * BLOCK_BYTES / 4)
    }

    /// Which thread commits this many bytes of changed rows.
    pub(super) fn batch_due(&self, bytes: usize) -> BatchDue {
        let limit = self.batch_bytes();
        if bytes <= limit {
            BatchDue::No
        } else if self.tree.bell.has_worker() && bytes <= BATCHES_MAX * limit {
            BatchDue::Worker
        } else {
            BatchDue::Now
        }
    }

    /// Whether the last commit is old, many rows have changed since, or memory or writers wait for
    /// the next one.
    pub(in crate::furrow) fn is_commit_due(&self) -> bool {
        let last = self.last_commit_ns.load(Ordering::Acquire);
        let age_ns = self.clock.monotonic_ns().saturating_sub(last);
        let is_old = u128::from(age_ns) >= self.commit_age.as_nanos();
        if is_old || self.tree.is_held_by_changes() {
            return true;
        }
        let state = self.tree.read_state();
        let room = self.tree.space.writer_room(&state);
        let is_low = room.now < 2 * room.low;
        let share = if is_low { LOW_SHARE } else { 1 };
        let (rows, bytes) = (state.rows.count(), state.rows.batch.bytes());
        let is_large = rows * share >= CHANGES_MAX || bytes * share > self.batch_bytes();
        is_large || self.tree.space.awaits_commit(&state, |zone| self.drive.pins.is_idle(zone))
    }
}
