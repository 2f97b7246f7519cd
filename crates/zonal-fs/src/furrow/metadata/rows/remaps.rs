//! Remap tables in memory: how reclaim moves blocks without a map row for each.
//!
//! Reclaim records the move of a whole map entry in a remap table and leaves the map row, which
//! still names the old place, unchanged; the entry in memory has the new place. Until readers of
//! the table find the remap table, the entry stays in memory like a changed one.
//!
//! Reclaim writes a map row instead if the row has changed anyway, if several entries merge, or if
//! remap tables have no memory left.

use std::collections::{BTreeMap, BTreeSet};

use crate::furrow::format::ZoneGeneration;
use crate::furrow::format::remap::{REMAP_BLOCKS_MAX, RemapRun, encode};
use crate::furrow::format::row::{self, Row, ZonePlace};
use crate::furrow::table::key::{Key, RowKind};
use crate::furrow::table::memtable::Value;
use crate::furrow::table::view::View;

/// Bytes of a remap table in memory without its bits, about.
const TABLE_BYTES: usize = 128;

/// Bytes that remap tables may take in any case, and bytes of all rows for each further one: the
/// totals of rows leave them out.
const BYTES_MIN: u64 = 16 << 10;
const ROW_BYTES_SHARE: u64 = 32;

/// A remap table that reclaim adds to.
#[derive(Clone, Debug)]
struct OpenTable {
    to: ZoneGeneration,
    block: u32,
    blocks: u32,
    runs: Vec<RemapRun>,
}

/// Moves since the last commit, and the bound for all remap tables.
#[derive(Debug, Default)]
pub(in crate::furrow) struct Remaps {
    /// Remap tables that readers of the table do not find yet.
    tables: BTreeMap<Key, OpenTable>,
    /// For each victim the table that may still get runs: reclaim empties several victims at once.
    open: BTreeMap<ZoneGeneration, Key>,
    /// Map rows that name an old place and are not part of the next batch.
    moved: BTreeSet<Key>,
    /// Map rows that name an old place, in the batch of the running commit.
    committing: BTreeSet<Key>,
    /// Number of the next table.
    next: u64,
    /// Bytes of memory that all remap tables take, about.
    held_bytes: usize,
    /// Bytes that they may take.
    held_max: usize,
}

impl Remaps {
    /// Enters the remap tables that a mount finds, and their bound in bytes.
    pub(in crate::furrow) fn restore(&mut self, view: &View, held_max: usize) {
        (self.next, self.held_bytes) = (view.remap_end(), view.moved_bytes());
        self.held_max = held_max;
    }

    /// Map rows of moved entries in a range.
    pub(super) fn moved_in(&self, first: Key, last: Key) -> impl Iterator<Item = Key> {
        let range = || first..=last;
        self.moved.range(range()).chain(self.committing.range(range())).copied()
    }

    /// Number of moved entries, which stay in memory until the next commit.
    pub(in crate::furrow::metadata) fn count(&self) -> usize {
        self.moved.len()
    }

    /// Bytes of memory that all remap tables take, about.
    #[cfg(test)]
    pub(in crate::furrow::metadata) fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    /// The row of a remap table; `None` if it was dropped.
    pub(in crate::furrow::metadata) fn value(&self, key: Key) -> Value {
        let table = self.tables.get(&key)?;
        let (row, tail) = encode(table.to, table.block, &table.runs);
        Some(row::encode(&Row::Remap(row, &tail)))
    }

    /// Begins a batch: its tables get no more runs.
    pub(super) fn freeze(&mut self) -> &BTreeSet<Key> {
        self.open.clear();
        self.committing = std::mem::take(&mut self.moved);
        &self.committing
    }

    /// Ends a batch: readers of the table find its rows. Returns memory to drop.
    pub(in crate::furrow::metadata) fn thaw(&mut self, taken: &BTreeSet<Key>) -> BTreeSet<Key> {
        for key in taken.range(Key::REMAPS..) {
            self.tables.remove(key);
        }
        std::mem::take(&mut self.committing)
    }

    /// Whether remap tables may take more memory, where all rows take `row_bytes` bytes.
    pub(super) fn has_room(&self, row_bytes: u64) -> bool {
        let max = usize::try_from(BYTES_MIN + row_bytes / ROW_BYTES_SHARE);
        self.held_bytes < self.held_max.min(max.unwrap_or(usize::MAX))
    }

    /// Sets the bytes of memory that the tables take which readers find.
    pub(super) fn set_held(&mut self, bytes: usize) {
        self.held_bytes = bytes + self.tables.len() * TABLE_BYTES;
    }

    /// Records the move of a map row's run. Returns the key of the remap table's row, and whether
    /// the table is new.
    pub(super) fn record(
        &mut self,
        row: Key,
        from: ZoneGeneration,
        run: RemapRun,
        to: ZonePlace,
    ) -> (Key, bool) {
        self.moved.insert(row);
        let next = self.next;
        let table = self.add_run(from, run, to);
        (table, self.next != next)
    }

    /// Adds a run to a remap table. Returns the key of the table's row.
    fn add_run(&mut self, from: ZoneGeneration, run: RemapRun, to: ZonePlace) -> Key {
        let goes_on = self.open.get(&from).copied().filter(|open| {
            let table = &self.tables[open];
            ZonePlace::new(table.to, table.block + table.blocks) == to
                && table.blocks + run.blocks <= REMAP_BLOCKS_MAX
        });
        let key = goes_on.unwrap_or_else(|| {
            let key = Key::new(RowKind::Remap, from.raw().into(), self.next);
            self.next += 1;
            let block = to.block.get();
            let table = OpenTable { to: to.generation(), block, blocks: 0, runs: Vec::new() };
            self.tables.insert(key, table);
            self.held_bytes += TABLE_BYTES;
            key
        });
        let table = self.tables.get_mut(&key).expect("it is there or was inserted");
        table.blocks += run.blocks;
        match table.runs.last_mut() {
            Some(last) if last.end() == run.block => last.blocks += run.blocks,
            Some(_) | None => {
                table.runs.push(run);
                self.held_bytes += 1;
            }
        }
        self.open.insert(from, key);
        key
    }
}
