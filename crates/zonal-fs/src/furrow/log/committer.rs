//! The committer: superblock, journal and table, which commits and steps of the table share; and
//! the turns of threads that commit.

use std::sync::PoisonError;

use crate::furrow::format::superblock::Superblock;
use crate::furrow::log::journal::Journal;
use crate::furrow::log::superblock_log::SuperLog;
use crate::furrow::planted::{Planted, mistake};
use crate::furrow::sync::{Condvar, Mutex};
use crate::furrow::table::Table;

/// Superblock, journal and table, behind the one lock that a commit takes.
#[derive(Debug)]
pub(in crate::furrow) struct Committer {
    pub(in crate::furrow) superblock: Superblock,
    pub(in crate::furrow) superlog: SuperLog,
    pub(in crate::furrow) journal: Journal,
    pub(in crate::furrow) table: Table,
    /// Number of the last record that is durable.
    pub(in crate::furrow) durable_record: u64,
    /// Since when the second copy of the journal lacks records, if it does.
    pub(in crate::furrow) trails_since_ns: Option<u64>,
    /// The last manifest may be durable or not: nothing is written before another one is.
    pub(in crate::furrow) is_unnamed: bool,
    pub(in crate::furrow) planted: Planted,
}

/// Turns at committing: one thread commits for all, and the others wait for its end.
#[derive(Debug, Default)]
pub(in crate::furrow) struct CommitTurns {
    is_taken: Mutex<bool>,
    ended: Condvar,
    planted: Planted,
}

/// A turn. Dropping it ends the turn and wakes all waiting threads.
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
        mistake!(self.0, KeepCommitWaiting, return);
        self.0.ended.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    #[test]
    fn commit_turn_is_skipped_when_already_durable() {
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
