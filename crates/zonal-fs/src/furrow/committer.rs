//! The state that commits and steps of the table share: superblock, journal, table. And whose turn it
//! is to commit.

use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use super::format::superblock::Superblock;
use super::format::{BLOCK_BYTES, blocks_for};
use super::io::Drive;
use super::journal::Journal;
use super::planted::{Planted, PlantedBug};
use super::superlog::SuperLog;
use super::sync::{Condvar, Mutex};
use super::table::Table;
use super::table::pairs::Pairs;

/// What a commit writes to, behind one lock.
#[derive(Debug)]
pub(super) struct Committer {
    pub(super) superblock: Superblock,
    pub(super) superlog: SuperLog,
    pub(super) journal: Journal,
    pub(super) table: Table,
    /// Number of the last record that is durable.
    pub(super) durable_record: u64,
    /// The last manifest may be durable or not: nothing is written before another one is.
    pub(super) is_unnamed: bool,
    pub(super) planted: Planted,
}

/// What journal and parts can write to the pairs that they have, as it was when these were written last. Read without
/// their locks.
#[derive(Debug, Default)]
pub(super) struct PairRoom {
    /// Blocks of the journal's.
    journal: AtomicU32,
    /// A manifest fits in that of the parts.
    takes_manifest: AtomicBool,
}

impl PairRoom {
    /// The journal has been written, or has got another pair.
    pub(super) fn note_journal(&self, journal: &Journal, drive: &Drive) {
        let blocks = if journal.is_impaired() { 0 } else { journal.room(drive) };
        self.journal.store(blocks, Ordering::Release);
    }

    /// Parts or a manifest have been written.
    pub(super) fn note_parts(&self, pairs: &Pairs, committer: &Committer, drive: &Drive) {
        let last = committer.superblock.manifest[0].bytes.get() as usize;
        let room = pairs.open.map_or(0, |pair| pair.room(drive));
        // It may be longer than the last one.
        let takes_manifest = room as usize > blocks_for(last) + 1;
        self.takes_manifest.store(takes_manifest, Ordering::Release);
    }

    /// Free zones that a commit of `bytes` bytes takes: a pair for the journal if it does not fit in the one there is,
    /// and then one for the manifest that names it.
    pub(super) fn zones_for(&self, bytes: usize) -> usize {
        if self.journal.load(Ordering::Acquire) as usize * BLOCK_BYTES >= bytes {
            0
        } else if self.takes_manifest.load(Ordering::Acquire) {
            2
        } else {
            4
        }
    }
}

/// Turns at committing: one caller commits for all, the others wait until it has ended.
#[derive(Debug, Default)]
pub(super) struct CommitTurns {
    is_taken: Mutex<bool>,
    ended: Condvar,
    planted: Planted,
}

/// A turn. It ends when this is dropped, and all who wait look again.
pub(super) struct CommitTurn<'a>(&'a CommitTurns);

impl CommitTurns {
    pub(super) fn new(planted: Planted) -> Self {
        Self { planted, ..Self::default() }
    }

    /// Waits for a turn as long as `is_needed` says; `None` once it is not.
    pub(super) fn take(&self, is_needed: impl Fn() -> bool) -> Option<CommitTurn<'_>> {
        let mut is_taken = self.is_taken.lock().expect("no holder panicked");
        while is_needed() {
            if !*is_taken {
                *is_taken = true;
                return Some(CommitTurn(self));
            }
            is_taken = self.ended.wait(is_taken).expect("no holder panicked");
        }
        None
    }
}

impl Drop for CommitTurn<'_> {
    fn drop(&mut self) {
        // Also where this thread panics: a second panic would end the process.
        *self.0.is_taken.lock().unwrap_or_else(PoisonError::into_inner) = false;
        if !self.0.planted.has(PlantedBug::KeepCommitWaiting) {
            self.0.ended.notify_all();
        }
    }
}

/// What a commit ends in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// A journal record.
    Record,
    /// The same, and a superblock that says the drive was left clean.
    Clean,
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    #[test]
    fn who_needs_a_commit_that_has_ended_does_not_wait_for_the_next() {
        let (turns, durable) = (CommitTurns::default(), &AtomicU64::new(0));
        let needs = |batch| move || durable.load(Ordering::Acquire) < batch;
        let first = turns.take(needs(1)).expect("nobody else commits");
        std::thread::scope(|scope| {
            let waiting: Vec<_> =
                (0..8).map(|_| scope.spawn(|| turns.take(needs(1)).is_none())).collect();
            durable.store(1, Ordering::Release);
            drop(first);
            // It runs as long as they wait.
            let second = turns.take(needs(2)).expect("nobody else needs it");
            for waiting in waiting {
                assert!(waiting.join().unwrap(), "it got a turn");
            }
            drop(second);
        });
    }
}
