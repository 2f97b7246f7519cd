//! The batch of a commit: the rows that have changed, and the rows that the running commit has
//! taken.
//!
//! A commit takes all changed rows at one moment and encodes them later. A row that is about to
//! change before that is encoded first, as it was at that moment. Readers of the table find the
//! taken rows once the commit has encoded all of them; until then they stay here, so that no reader
//! takes an older row of the table for the present one.

use std::collections::{BTreeMap, BTreeSet};

use crate::furrow::format::row::INODE_BYTES;
use crate::furrow::table::key::Key;
use crate::furrow::table::memtable::Value;

/// Rows on their way into a batch.
#[derive(Debug)]
pub(in crate::furrow) struct Batch {
    /// Number of the batch that collects changes.
    number: u64,
    /// Rows that have changed since a batch was taken.
    changed: BTreeSet<Key>,
    /// About how many bytes these will take.
    bytes: usize,
    /// Rows that a commit has taken and that readers of the table do not find yet.
    taken: BTreeSet<Key>,
    /// Taken rows that are encoded already, most because they have changed again.
    encoded: BTreeMap<Key, Value>,
}

impl Default for Batch {
    fn default() -> Self {
        let (changed, taken, encoded) = (BTreeSet::new(), BTreeSet::new(), BTreeMap::new());
        Self { number: 1, changed, bytes: 0, taken, encoded }
    }
}

impl Batch {
    /// Number of the batch that collects changes.
    pub(in crate::furrow) fn number(&self) -> u64 {
        self.number
    }

    /// Changes belong to this batch from now on, as a mount finds it.
    pub(in crate::furrow) fn begin_at(&mut self, number: u64) {
        self.number = number;
    }

    /// Whether no row has changed since a batch was taken.
    pub(in crate::furrow) fn is_empty(&self) -> bool {
        self.changed.is_empty()
    }

    /// Rows that have changed since a batch was taken.
    pub(in crate::furrow) fn changed(&self) -> &BTreeSet<Key> {
        &self.changed
    }

    /// About how many bytes the changed rows will take.
    pub(in crate::furrow) fn bytes(&self) -> usize {
        self.bytes
    }

    /// How many rows the commit under way has taken.
    pub(in crate::furrow) fn taken_count(&self) -> usize {
        self.taken.len()
    }

    /// Marks a row as changed, and counts the bytes of an inode for it: no row has a longer fixed
    /// part. [`add_bytes`](Self::add_bytes) counts the rest.
    pub(in crate::furrow::metadata) fn mark(&mut self, key: Key) {
        if self.changed.insert(key) {
            self.bytes += INODE_BYTES;
        }
    }

    /// Counts the names, values and checksums in a changed row.
    pub(in crate::furrow::metadata) fn add_bytes(&mut self, bytes: usize) {
        self.bytes += bytes;
    }

    /// Whether the table has an older row than the present one.
    pub(in crate::furrow::metadata) fn is_changed(&self, key: Key) -> bool {
        self.changed.contains(&key) || self.taken.contains(&key)
    }

    /// Keys in a span of which the table has an older row than the present one. Some come twice.
    pub(super) fn changed_in(&self, first: Key, last: Key) -> impl Iterator<Item = Key> {
        let range = || first..=last;
        self.changed.range(range()).chain(self.taken.range(range())).copied()
    }

    /// Whether the commit under way has yet to encode a row.
    pub(in crate::furrow::metadata) fn awaits_encoding(&self, key: Key) -> bool {
        self.taken.contains(&key) && !self.encoded.contains_key(&key)
    }

    /// Enters the value that a taken row had when the commit took it.
    pub(in crate::furrow::metadata) fn enter_encoded(&mut self, key: Key, value: Value) {
        self.encoded.insert(key, value);
    }

    /// The value of a taken row, if it is encoded already.
    pub(in crate::furrow::metadata) fn encoded(&self, key: Key) -> Option<&Value> {
        self.encoded.get(&key)
    }

    /// A commit takes all rows that have changed. Returns them.
    pub(super) fn take(&mut self) -> &BTreeSet<Key> {
        assert!(self.taken.is_empty(), "one batch is encoded at a time");
        self.taken = std::mem::take(&mut self.changed);
        self.bytes = 0;
        self.number += 1;
        &self.taken
    }

    /// Rows that the commit under way has taken.
    pub(in crate::furrow::metadata) fn taken(&self) -> &BTreeSet<Key> {
        &self.taken
    }

    /// Taken rows that have not changed again.
    pub(in crate::furrow::metadata) fn taken_unchanged(&self) -> impl Iterator<Item = Key> {
        self.taken.difference(&self.changed).copied()
    }

    /// Ends the commit: readers of the table now find its rows. Returns memory for the caller to
    /// drop without a lock.
    pub(in crate::furrow::metadata) fn end(&mut self) -> TakenRows {
        (std::mem::take(&mut self.taken), std::mem::take(&mut self.encoded))
    }

    /// Marks rows as changed, or takes that back. For tests and planted mistakes.
    pub(in crate::furrow) fn set_changed(&mut self, rows: BTreeSet<Key>) {
        self.changed = rows;
    }
}

/// The rows of a batch, and the values of the rows that were encoded early.
pub(in crate::furrow::metadata) type TakenRows = (BTreeSet<Key>, BTreeMap<Key, Value>);

/// The end of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::furrow) enum Ending {
    /// A journal record.
    Record,
    /// A journal record, and a superblock that says that the drive was left clean.
    Clean,
}
