//! The rows that have changed since the last commit, and the sums and numbers that only rows of
//! group 0 have.
//!
//! A part of the metadata marks its row *before* it changes it: a commit encodes the rows that it
//! has taken later, and a row that changes meanwhile gets its value of that moment.

pub(in crate::furrow) mod batch;
pub(in crate::furrow) mod remaps;
pub(in crate::furrow) mod totals;

use std::collections::BTreeSet;

use crate::furrow::format::ZoneGeneration;
use crate::furrow::format::remap::RemapRun;
use crate::furrow::format::row::ZonePlace;
use crate::furrow::metadata::rows::batch::Batch;
use crate::furrow::metadata::rows::remaps::Remaps;
use crate::furrow::metadata::rows::totals::{Numbers, Totals};
use crate::furrow::table::key::{Key, RowKind};
use crate::furrow::table::memtable::Value;
use crate::furrow::table::remaps::MovedKey;
use crate::furrow::zones::Zones;

/// Changed rows, remap tables that replace them, and the contents of the row of totals.
#[derive(Debug, Default)]
pub(in crate::furrow) struct ChangedRows {
    pub(in crate::furrow) batch: Batch,
    pub(in crate::furrow) totals: Totals,
    pub(in crate::furrow) numbers: Numbers,
    pub(in crate::furrow) remaps: Remaps,
}

impl ChangedRows {
    /// Marks a row that is about to change, of which the value is now `value`.
    pub(super) fn mark(&mut self, key: Key, value: impl FnOnce() -> Value) {
        if self.batch.awaits_encoding(key) {
            self.batch.enter_encoded(key, value());
        }
        self.batch.mark(key);
    }

    /// Marks a row of group 0. A commit encodes these at once, so no change is too early.
    pub(super) fn mark_base(&mut self, kind: RowKind, owner: u64, at: u64) {
        let key = Key::new(kind, owner, at);
        debug_assert!(!self.batch.awaits_encoding(key), "{key:?} is encoded when it is taken");
        self.batch.mark(key);
    }

    /// Changed rows and moved entries, which stay in memory until the next commit.
    pub(in crate::furrow) fn count(&self) -> usize {
        self.batch.changed().len() + self.remaps.count()
    }

    /// Keys in a span whose rows stay in memory: the table has older ones. Some come twice.
    pub(super) fn changed_in(&self, first: Key, last: Key) -> impl Iterator<Item = Key> {
        self.batch.changed_in(first, last).chain(self.remaps.moved_in(first, last))
    }

    /// The places (`at`) of these keys.
    pub(super) fn places_changed_in(&self, first: Key, last: Key) -> BTreeSet<u64> {
        self.changed_in(first, last).map(Key::at).collect()
    }

    /// A commit takes all rows that have changed. Returns the keys of the rows, and of the map rows
    /// that remap tables spare it.
    pub(super) fn freeze(&mut self) -> (&BTreeSet<Key>, &BTreeSet<Key>) {
        if !self.batch.is_empty() {
            self.mark_base(RowKind::Totals, 0, 0);
        }
        (self.batch.take(), self.remaps.freeze())
    }

    /// Records that reclaim moves the blocks of a map row. Its row names the old place, so it stays
    /// as it is. Returns whether that began a remap table.
    pub(super) fn record_move(
        &mut self,
        row: Key,
        from: ZoneGeneration,
        run: RemapRun,
        to: ZonePlace,
    ) -> bool {
        let (table, is_new) = self.remaps.record(row, from, run, to);
        self.batch.mark(table);
        is_new
    }

    /// Whether a remap table, and not its row, can record the move of a map entry.
    pub(super) fn spares_row(&self, row: Key) -> bool {
        self.remaps.has_room(self.totals.row_bytes()) && !self.batch.changed().contains(&row)
    }

    /// Deletes remap tables that no row needs any more with the next batch. All others take
    /// `held_bytes` bytes of memory.
    pub(in crate::furrow) fn drop_remaps(
        &mut self,
        tables: &[MovedKey],
        held_bytes: usize,
        zones: &mut Zones,
    ) {
        for &(zone, number) in tables {
            let key = Key::new(RowKind::Remap, zone.raw().into(), number);
            // One that is changed was dropped before, and no commit has written that yet.
            if !self.batch.is_changed(key) {
                self.batch.mark(key);
                zones.remove_remap(zone);
            }
        }
        self.remaps.set_held(held_bytes);
    }
}
