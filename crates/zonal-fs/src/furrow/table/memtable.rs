//! The memtable: sorted rows in memory that no run has yet.

use std::collections::BTreeMap;
use std::collections::btree_map::Range;

use super::key::Key;
use crate::furrow::memory::{allocated, in_tree};

/// The value of a row in memory; `None` is a tombstone.
pub(in crate::furrow) type Value = Option<Box<[u8]>>;

/// Bytes of a row in a journal record, without its value: about the most.
pub(in crate::furrow) const ROW_BYTES: usize = 64;

/// Where the rows of the frozen memtable are once a step has been installed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::furrow) enum Frozen {
    /// In the levels: the view drops the memtable.
    InLevels,
    /// Only in the memtable, which stays.
    Stays,
}

/// The latest value of each key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::furrow) struct Memtable {
    rows: BTreeMap<Key, Value>,
    bytes: usize,
}

impl Memtable {
    /// A memtable of sorted rows with different keys.
    pub(in crate::furrow) fn of_rows(rows: Vec<(Key, Value)>) -> Self {
        let bytes = rows.iter().map(|(_, value)| size(value)).sum();
        Self { rows: rows.into_iter().collect(), bytes }
    }

    /// Enters a row. It replaces an earlier one with the same key.
    pub(in crate::furrow) fn insert(&mut self, key: Key, value: Value) {
        self.bytes += size(&value);
        if let Some(before) = self.rows.insert(key, value) {
            self.bytes -= size(&before);
        }
    }

    /// Estimated bytes of memory.
    pub(in crate::furrow) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The value of a key: `Some(None)` for a tombstone.
    pub(in crate::furrow) fn get(&self, key: Key) -> Option<&Value> {
        self.rows.get(&key)
    }

    /// Rows from a key on.
    #[cfg(test)]
    pub(super) fn range_from(&self, from: Key) -> Range<'_, Key, Value> {
        self.rows.range(from..)
    }

    /// Rows with keys from `from` on, below `below`, which must not be lower.
    pub(super) fn range(&self, from: Key, below: Key) -> Range<'_, Key, Value> {
        self.rows.range(from..below)
    }

    /// All rows.
    pub(in crate::furrow) fn rows(&self) -> impl Iterator<Item = (Key, Option<&[u8]>)> {
        self.rows.iter().map(|(&key, value)| (key, value.as_deref()))
    }

    /// Enters all rows of a newer memtable.
    pub(super) fn append(&mut self, newer: Self) {
        for (key, value) in newer.rows {
            self.insert(key, value);
        }
    }

    /// Takes out the first row.
    pub(super) fn pop_first(&mut self) -> Option<(Key, Value)> {
        let (key, value) = self.rows.pop_first()?;
        self.bytes -= size(&value);
        Some((key, value))
    }
}

fn size(value: &Value) -> usize {
    let value = value.as_ref().map_or(0, |value| value.len());
    in_tree(size_of::<(Key, Value)>()) + if value == 0 { 0 } else { allocated(value) }
}
