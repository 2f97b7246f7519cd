//! Loads of metadata that are under way, and the operations that have loaded something.
//!
//! Their number is the clock of eviction.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::{Arc, PoisonError};

use crate::furrow::sync::Mutex;
use crate::furrow::table::key::Key;

/// Loads that are under way, and operations that have loaded something.
#[derive(Debug, Default)]
pub(in crate::furrow) struct Loads {
    under_way: Vec<Load>,
    next_ticket: u64,
    operations: Arc<Mutex<BTreeSet<u64>>>,
}

/// An operation, from its first load to its end. Everything that it loads stays in memory until
/// then: so each time that it runs again it misses less, and it ends however little memory there
/// is.
#[derive(Debug)]
pub(in crate::furrow) struct Operation {
    /// The ticket of its first load.
    since: u64,
    all: Arc<Mutex<BTreeSet<u64>>>,
}

impl Drop for Operation {
    fn drop(&mut self) {
        // Also where this thread panics: a second panic would end the process.
        self.all.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.since);
    }
}

#[derive(Debug)]
struct Load {
    ticket: u64,
    keys: Range<Key>,
    is_stale: bool,
}

impl Loads {
    /// How much was loaded and made so far: a clock.
    pub(in crate::furrow::metadata) fn count(&self) -> u64 {
        self.next_ticket
    }

    pub(in crate::furrow::metadata) fn advance(&mut self) -> u64 {
        self.next_ticket += 1;
        self.next_ticket
    }

    pub(in crate::furrow) fn begin(&mut self, keys: Range<Key>) -> u64 {
        self.next_ticket += 1;
        self.under_way.push(Load { ticket: self.next_ticket, keys, is_stale: false });
        self.next_ticket
    }

    /// Begins an operation with the load that was begun last.
    pub(in crate::furrow) fn begin_operation(&self, since: u64) -> Operation {
        let all = Arc::clone(&self.operations);
        all.lock().expect("no holder panicked").insert(since);
        Operation { since, all }
    }

    /// The load from which on everything that was loaded stays, as some operation still needs it.
    pub(in crate::furrow::metadata) fn oldest_needed(&self) -> u64 {
        let operations = self.operations.lock().expect("no holder panicked");
        operations.first().copied().unwrap_or(u64::MAX)
    }

    /// Ends a load. Returns whether the rows that it has read are still current.
    pub(in crate::furrow) fn end(&mut self, ticket: u64) -> bool {
        let place = self.under_way.iter().position(|load| load.ticket == ticket);
        let load = self.under_way.swap_remove(place.expect("it was begun"));
        !load.is_stale
    }

    /// A commit takes these rows.
    pub(in crate::furrow::metadata) fn note_taken(&mut self, rows: &BTreeSet<Key>) {
        for load in &mut self.under_way {
            load.is_stale |= rows.range(load.keys.clone()).next().is_some();
        }
    }
}
