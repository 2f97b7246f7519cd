//! The memtable: committed rows that are in the journal and in no run yet.

use std::collections::BTreeMap;
use std::collections::btree_map::Range;

use super::key::Key;

/// A row in memory; `None` is a tombstone.
pub(in crate::furrow) type Value = Option<Box<[u8]>>;

/// Bytes that a row takes beside its value: the key, and its share of the tree.
pub(in crate::furrow) const ROW_BYTES: usize = 64;

/// Rows by key, the latest of each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::furrow) struct Memtable {
    rows: BTreeMap<Key, Value>,
    bytes: usize,
}

impl Memtable {
    /// Enters a row, in place of an earlier one.
    pub(in crate::furrow) fn insert(&mut self, key: Key, value: Value) {
        let size = |value: &Value| ROW_BYTES + value.as_ref().map_or(0, |value| value.len());
        self.bytes += size(&value);
        if let Some(before) = self.rows.insert(key, value) {
            self.bytes -= size(&before);
        }
    }

    /// Bytes of memory, about.
    pub(in crate::furrow) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(in crate::furrow) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Rows from a key on.
    pub(in crate::furrow) fn range_from(&self, from: Key) -> Range<'_, Key, Value> {
        self.rows.range(from..)
    }

    /// All rows.
    pub(in crate::furrow) fn rows(&self) -> impl Iterator<Item = (Key, Option<&[u8]>)> {
        self.rows.iter().map(|(&key, value)| (key, value.as_deref()))
    }

    /// Enters all rows of a newer one.
    pub(in crate::furrow) fn append(&mut self, newer: Self) {
        for (key, value) in newer.rows {
            self.insert(key, value);
        }
    }
}
