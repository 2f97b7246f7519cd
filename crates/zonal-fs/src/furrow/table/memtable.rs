//! The memtable: committed rows that are in the journal and in no run yet.

use std::collections::BTreeMap;
use std::collections::btree_map::Range;

use super::key::Key;
use crate::furrow::metadata::held::{allocated, in_tree};

/// A row in memory; `None` is a tombstone.
pub(in crate::furrow) type Value = Option<Box<[u8]>>;

/// Bytes of a row in a record beside its value, at most about.
pub(in crate::furrow) const ROW_BYTES: usize = 64;

/// Rows by key, the latest of each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::furrow) struct Memtable {
    rows: BTreeMap<Key, Value>,
    bytes: usize,
}

impl Memtable {
    /// Of rows in order, each once.
    pub(in crate::furrow) fn of_rows(rows: Vec<(Key, Value)>) -> Self {
        let bytes = rows.iter().map(|(_, value)| size(value)).sum();
        Self { rows: rows.into_iter().collect(), bytes }
    }

    /// Enters a row, in place of an earlier one.
    pub(in crate::furrow) fn insert(&mut self, key: Key, value: Value) {
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

    /// What it has of a row.
    pub(in crate::furrow) fn get(&self, key: Key) -> Option<&Value> {
        self.rows.get(&key)
    }

    /// Rows from a key on.
    #[cfg(test)]
    pub(in crate::furrow) fn range_from(&self, from: Key) -> Range<'_, Key, Value> {
        self.rows.range(from..)
    }

    /// Rows from a key on, below another that is not lower.
    pub(in crate::furrow) fn range(&self, from: Key, below: Key) -> Range<'_, Key, Value> {
        self.rows.range(from..below)
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

    /// Takes out the first row.
    pub(in crate::furrow) fn pop_first(&mut self) -> Option<(Key, Value)> {
        let (key, value) = self.rows.pop_first()?;
        self.bytes -= size(&value);
        Some((key, value))
    }
}

fn size(value: &Value) -> usize {
    let value = value.as_ref().map_or(0, |value| value.len());
    in_tree(size_of::<(Key, Value)>()) + if value == 0 { 0 } else { allocated(value) }
}
