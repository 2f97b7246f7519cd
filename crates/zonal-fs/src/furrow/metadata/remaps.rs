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
use crate::furrow::format::backref::Backref;
use crate::furrow::format::remap::{REMAP_BLOCKS_MAX, RemapRun, encode};
use crate::furrow::format::row::{self, Row, ZonePlace};
use crate::furrow::metadata::State;
use crate::furrow::metadata::extent::Placed;
use crate::furrow::metadata::place::{MapEntry, Owner};
use crate::furrow::table::key::{Key, RowKind};
use crate::furrow::table::memtable::Value;
use crate::furrow::table::remaps::MovedKey;
use crate::furrow::table::view::View;
use crate::vfs::Ino;

/// Bytes of a remap table in memory without its bits, about.
const TABLE_BYTES: usize = 128;

/// Bytes that remap tables may take in any case, and bytes of all rows for each further one: the
/// totals of rows leave them out.
const BYTES_MIN: u64 = 16 << 10;
const ROW_BYTES_SHARE: u64 = 32;

/// Where a move is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::furrow) enum Noted {
    /// In remap tables, as far as possible.
    InTables,
    /// In map rows: many of them merge.
    InRows,
}

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
pub(super) struct Moving {
    /// Remap tables that readers of the table do not find yet.
    tables: BTreeMap<Key, OpenTable>,
    /// For each victim the table that may still get runs: reclaim empties several victims at once.
    open: BTreeMap<ZoneGeneration, Key>,
    /// Map rows that name an old place and are not part of the next batch.
    moved: BTreeSet<Key>,
    /// The same of the batch that is being committed.
    committing: BTreeSet<Key>,
    /// Number of the next table.
    next: u64,
    /// Bytes of memory that all remap tables take, about.
    held_bytes: usize,
    /// Bytes that they may take.
    held_max: usize,
}

impl Moving {
    /// Enters the remap tables that a mount finds, and their bound in bytes.
    pub(super) fn restore(&mut self, view: &View, held_max: usize) {
        (self.next, self.held_bytes) = (view.remap_end(), view.moved_bytes());
        self.held_max = held_max;
    }

    /// Map rows of moved entries in a range.
    pub(super) fn moved_in(&self, first: Key, last: Key) -> impl Iterator<Item = Key> {
        let range = || first..=last;
        self.moved.range(range()).chain(self.committing.range(range())).copied()
    }

    /// Number of moved entries, which stay in memory until the next commit.
    pub(super) fn count(&self) -> usize {
        self.moved.len()
    }

    /// The row of a remap table; `None` if it was dropped.
    pub(super) fn value(&self, key: Key) -> Value {
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
    pub(super) fn thaw(&mut self, taken: &BTreeSet<Key>) -> BTreeSet<Key> {
        for key in taken.range(Key::REMAPS..) {
            self.tables.remove(key);
        }
        std::mem::take(&mut self.committing)
    }

    /// Records the move of a run. Returns the key of the remap table's row.
    fn note(&mut self, from: ZoneGeneration, run: RemapRun, to: ZonePlace) -> Key {
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

impl State {
    /// Changed rows and moved entries, which stay in memory until the next commit.
    pub(in crate::furrow) fn changed_count(&self) -> usize {
        self.batch.changed().len() + self.moving.count()
    }

    /// Moves a map entry to where reclaim has copied all its blocks, and records that in a remap
    /// table. Returns whether it did: if not, nothing has changed.
    pub(super) fn move_entry(&mut self, ino: Ino, first: u64, to: Placed) -> bool {
        let key = Key::new(RowKind::Map, ino.get(), first);
        let Some((zone, block)) = self.movable(key, to) else { return false };
        let run = RemapRun { block, blocks: to.blocks };
        let (from, place) = (self.zones.generation(zone), self.zones.generation(to.zone));
        // A commit that has yet to encode the row gets it with the old place.
        self.encode_if_taken(key);
        self.moving.moved.insert(key);
        let next = self.moving.next;
        let table = self.moving.note(from, run, ZonePlace::new(place, to.block));
        if self.moving.next != next {
            self.zones.add_remap(from);
        }
        self.mark(RowKind::Remap, table.owner(), table.at());
        if let Some(file) = self.inodes.file_mut(ino) {
            file.map.change(first, |entry| {
                if let MapEntry::At { zone, block, .. } = entry {
                    (*zone, *block) = (to.zone, to.block);
                }
            });
        }
        self.zones.remove_live(zone, to.blocks);
        self.zones.add_live(to.zone, to.block, to.blocks);
        let owner = Owner::Entry(ino, first);
        let record = Backref { owner, block: to.block, blocks: to.blocks };
        self.zones.record_owner(to.zone, record);
        true
    }

    /// The place of an entry, if a remap table can record the move of all its blocks and its row
    /// needs no write.
    fn movable(&self, key: Key, to: Placed) -> Option<(u32, u32)> {
        let file = self.inodes.peek_file(Ino::new(key.owner()))?;
        let entry = file.map.get(key.at())?;
        let MapEntry::At { zone, block, crcs } = &*entry else { return None };
        let is_whole = crcs.blocks() == to.blocks;
        let limit = self.moving.held_max.min(self.moving_bytes_for_rows());
        let has_room = self.moving.held_bytes < limit && self.zones.has_free_generation(*zone);
        let is_written = self.batch.changed().contains(&key);
        if !is_whole || !has_room || is_written || self.would_join(key, to) {
            return None;
        }
        Some((*zone, *block))
    }

    fn moving_bytes_for_rows(&self) -> usize {
        let bytes = BYTES_MIN + self.totals.row_bytes() / ROW_BYTES_SHARE;
        usize::try_from(bytes).unwrap_or(usize::MAX)
    }

    /// Whether an entry at its new place continues a neighbour, so that both merge into one row.
    fn would_join(&self, key: Key, to: Placed) -> bool {
        let Some(file) = self.inodes.peek_file(Ino::new(key.owner())) else { return false };
        let fits = |entry: &MapEntry| entry.blocks() + to.blocks <= self.zones.extent_max();
        let before = key.at().checked_sub(1).and_then(|last| file.map.at_or_before(last));
        let before = before.filter(|(start, entry)| {
            let is_next = *start + u64::from(entry.blocks()) == key.at();
            is_next && entry.ends_at(to.zone, to.block) && fits(entry)
        });
        let after = file.map.get(key.at() + u64::from(to.blocks));
        let after =
            after.filter(|entry| entry.begins_at(to.zone, to.block + to.blocks) && fits(entry));
        before.is_some() || after.is_some()
    }

    /// Deletes remap tables that no row needs any more with the next batch. All others take
    /// `held_bytes` bytes of memory.
    pub(in crate::furrow) fn drop_moved(&mut self, tables: &[MovedKey], held_bytes: usize) {
        for &(zone, number) in tables {
            let key = Key::new(RowKind::Remap, zone.raw().into(), number);
            if self.batch.is_changed(key) {
                // It was dropped before, and no commit has written that yet.
                continue;
            }
            self.mark(RowKind::Remap, zone.raw().into(), number);
            self.zones.remove_remap(zone);
        }
        self.moving.held_bytes = held_bytes + self.moving.tables.len() * TABLE_BYTES;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use zonal::{ManualClock, ZonedDevice};

    use super::*;
    use crate::furrow::format::BLOCK_BYTES;
    use crate::furrow::log::maintenance::StepBudget;
    use crate::furrow::planted::PlantedBug;
    use crate::furrow::sample::formatted;
    use crate::furrow::zones::Urgency;
    use crate::furrow::{DataCheck, Furrow, MountOptions, check};
    use crate::vfs::{Caller, FileKind, FileSystem, NewInode, SetAttr, WriteFlags};

    const BLOCK: u64 = 4096;

    fn content(block: u64, turn: u64) -> [u8; BLOCK_BYTES] {
        let mut data = [0; BLOCK_BYTES];
        data[..8].copy_from_slice(&block.to_le_bytes());
        data[8..16].copy_from_slice(&turn.to_le_bytes());
        data
    }

    /// A file in which each block has a row of its own, and the last content of each.
    struct Overwritten {
        drive: Arc<dyn ZonedDevice>,
        clock: Arc<ManualClock>,
        fs: Furrow,
        ino: Ino,
        turns: Vec<u64>,
        dice: u64,
        options: MountOptions,
    }

    impl Overwritten {
        fn new() -> Self {
            Self::of(48, 6000, MountOptions::default())
        }

        /// A file of `blocks` blocks on `zones` zones.
        fn of(zones: u64, blocks: u64, options: MountOptions) -> Self {
            let (drive, clock) = formatted(zones, 256);
            let fs = Furrow::mount(drive.clone(), clock.clone(), options).unwrap();
            let new = NewInode { kind: FileKind::Regular, perm: 0o600, rdev: 0, target: b"" };
            let ino = fs.create(&Caller::ROOT, Ino::ROOT, b"file", &new).unwrap().ino;
            let turns = vec![0; usize::try_from(blocks).unwrap()];
            let mut made = Self { drive, clock, fs, ino, turns, dice: 1, options };
            // No two neighbours of the file lie side by side.
            (0..blocks).for_each(|number| made.write(number * 2741 % blocks, 0));
            made.fs.sync().unwrap();
            made
        }

        fn write(&mut self, block: u64, turn: u64) {
            self.turns[usize::try_from(block).unwrap()] = turn;
            let data = content(block, turn);
            self.fs.write(self.ino, block * BLOCK, &data, WriteFlags::DIRECT).unwrap();
        }

        /// Overwrites blocks at random.
        fn overwrite(&mut self, count: u64) {
            for turn in 1..=count {
                self.dice =
                    self.dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695);
                let block = (self.dice >> 33) % self.turns.len() as u64;
                self.write(block, turn);
            }
        }

        fn remount(&mut self) {
            self.fs = Furrow::mount(self.drive.clone(), self.clock.clone(), self.options).unwrap();
        }

        fn assert_is_right(&self) {
            for (block, &turn) in (0..).zip(&self.turns) {
                let mut found = [0; BLOCK_BYTES];
                self.fs.read(self.ino, block * BLOCK, &mut found).unwrap();
                assert!(found == content(block, turn), "block {block}");
            }
            let report = check(self.drive.clone(), DataCheck::Read, &mut |_| ()).unwrap();
            assert!(report.is_clean(), "{:?}", report.problems);
        }

        fn changed_pieces(&self) -> usize {
            let state = self.fs.tree.read_state();
            state.batch.changed().iter().filter(|key| key.kind() == RowKind::Map).count()
        }
    }

    #[test]
    fn remap_spares_rows_of_wholly_moved_extents() {
        let mut file = Overwritten::new();
        file.overwrite(2000);
        file.fs.sync().unwrap();
        let moved = file.fs.reclaimer.reclaim_some(u32::MAX, Urgency::Emergency).unwrap();
        assert!(moved > 50, "{moved} blocks");
        let (kept, rows) = (file.fs.tree.read_state().moving.count(), file.changed_pieces());
        assert!(kept > 50 && rows < 5, "{kept} pieces without a row, {rows} rows");
        file.fs.sync().unwrap();
        assert_eq!(file.fs.tree.read_state().moving.count(), 0);
        assert!(
            file.fs.tree.view.moved_bytes() < 20 * 100,
            "{} bytes",
            file.fs.tree.view.moved_bytes()
        );
        file.assert_is_right();
        // After a power cut a mount finds them.
        file.remount();
        assert!(!file.fs.tree.view.remaps_below(u64::MAX).is_empty());
        file.assert_is_right();
    }

    #[test]
    fn remap_finds_blocks_after_many_moves() {
        let mut file = Overwritten::new();
        let mut most = 0;
        for round in 0..40 {
            file.overwrite(700);
            if round % 3 == 0 {
                file.fs.sync().unwrap();
            }
            most = most.max(file.fs.tree.view.remaps_below(u64::MAX).len());
            if round % 8 == 7 {
                file.assert_is_right_after_sync();
                file.remount();
                file.assert_is_right();
            }
        }
        assert!(most > 20, "{most} tables at once");
        assert!(file.fs.tree.read_state().moving.held_bytes < 40_000);
    }

    impl Overwritten {
        fn assert_is_right_after_sync(&self) {
            self.fs.sync().unwrap();
            self.assert_is_right();
        }
    }

    #[test]
    fn remap_tables_are_dropped_once_unneeded() {
        let mut file = Overwritten::new();
        file.overwrite(6000);
        file.fs.sync().unwrap();
        assert!(!file.fs.tree.view.remaps_below(u64::MAX).is_empty());
        // Each flush writes parts of the table again; nothing is moved meanwhile.
        for round in 0..400 {
            for number in 0..40 {
                let size = Some(6000 * BLOCK + round * 40 + number);
                let set = SetAttr { size, ..SetAttr::default() };
                file.fs.setattr(&Caller::ROOT, file.ino, &set).unwrap();
                file.fs.sync().unwrap();
            }
            file.fs.log.compact(StepBudget::All);
            if file.fs.tree.view.remaps_below(u64::MAX).is_empty() {
                break;
            }
        }
        assert_eq!(file.fs.tree.view.remaps_below(u64::MAX), []);
        assert!(file.fs.tree.read_state().zones.has_no_remaps());
        file.assert_is_right();
        file.remount();
        assert_eq!(file.fs.tree.view.remaps_below(u64::MAX), []);
        file.assert_is_right();
    }

    /// Parts that the sweep has yet to come to need tables that those before them do not need any
    /// more.
    #[test]
    fn remap_tables_stay_while_any_part_needs_them() {
        for bug in [None, Some(PlantedBug::DropMovedEarly)] {
            let options = MountOptions { planted: bug.into(), ..MountOptions::default() };
            let mut file = Overwritten::of(160, 24_000, options);
            let mut is_clean = true;
            for _ in 0..12 {
                file.overwrite(2500);
                file.fs.sync().unwrap();
                file.fs.log.compact(StepBudget::Bounded);
                file.fs.sync().unwrap();
                let report = check(file.drive.clone(), DataCheck::Skip, &mut |_| ()).unwrap();
                is_clean &= report.is_clean();
                assert!(bug.is_some() || is_clean, "{:?}", report.problems);
            }
            assert!(file.fs.tree.view.levels().parts().count() > 3);
            assert!(!file.fs.tree.view.remaps_below(u64::MAX).is_empty());
            assert_eq!(is_clean, bug.is_none());
        }
    }
}
