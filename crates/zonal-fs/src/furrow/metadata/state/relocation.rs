//! Where back-references lead: the live blocks that a back-reference still names.
//!
//! Back-references ([`zones::backrefs`](crate::furrow::zones::backrefs)) are hints, so this looks
//! each up in the map of its file.

use std::ops::Range;

use crate::furrow::format::Address;
use crate::furrow::format::backref::Backref;
use crate::furrow::format::remap::RemapRun;
use crate::furrow::format::row::ZonePlace;
use crate::furrow::metadata::State;
use crate::furrow::metadata::map::place::Placed;
use crate::furrow::metadata::map::place::{MapEntry, Owner};
use crate::furrow::metadata::missing::Lookup;
use crate::furrow::planted::PlantedBug;
use crate::furrow::table::key::{Key, RowKind};
use crate::furrow::table::memtable::Value;
use crate::vfs::Ino;

/// Where a move is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::furrow) enum Noted {
    /// In remap tables, as far as possible.
    InTables,
    /// In map rows: many of them merge.
    InRows,
}

/// A run of live blocks that a record leads to, with their checksums.
#[derive(Clone, Debug)]
pub(in crate::furrow) struct LiveRun {
    pub(in crate::furrow) owner: Owner,
    pub(in crate::furrow) block: u32,
    pub(in crate::furrow) crcs: Vec<u32>,
}

impl LiveRun {
    pub(in crate::furrow) fn blocks(&self) -> u32 {
        u32::try_from(self.crcs.len()).expect("inside a zone")
    }

    /// Whether another one is next in the file.
    pub(in crate::furrow) fn is_before_in_file(&self, next: &Self) -> bool {
        match (self.owner, next.owner) {
            (Owner::Entry(ino, first), Owner::Entry(next, next_first)) => {
                ino == next && first + u64::from(self.blocks()) == next_first
            }
            (Owner::Extent(_), _) | (_, Owner::Extent(_)) => false,
        }
    }

    /// Whether another one is next in file and zone.
    pub(in crate::furrow) fn goes_on_with(&self, next: &Self) -> bool {
        self.is_before_in_file(next) && self.block + self.blocks() == next.block
    }

    /// A record of `blocks` blocks after the first `skip`; `None` for a part of a shared extent,
    /// which only moves as a whole.
    pub(in crate::furrow) fn part(&self, skip: u32, blocks: u32) -> Option<Backref> {
        let Self { owner, block, .. } = *self;
        let whole = Backref { owner, block, blocks: self.blocks() };
        match owner {
            Owner::Entry(..) => Some(whole.part(skip, blocks)),
            Owner::Extent(_) => (blocks == whole.blocks).then_some(whole),
        }
    }
}

impl State {
    /// Takes the rows of back-references that belong to the next batch, and counts them.
    pub(in crate::furrow) fn take_backref_rows(&mut self) -> Vec<(Key, Value)> {
        let taken = self.zones.take_backref_rows();
        self.rows.totals.remove_place_bytes(taken.removed_bytes);
        self.rows.totals.add_place_bytes(taken.added_bytes);
        taken.rows
    }

    /// Whether a record may lead to live blocks. It may, if the map is not in memory.
    pub(in crate::furrow) fn leads_somewhere(&self, zone: u32, record: &Backref) -> bool {
        self.live_runs_of(zone, record).map_or(true, |runs| !runs.is_empty())
    }

    /// Live blocks that a record of a zone leads to.
    pub(in crate::furrow) fn live_runs_of(
        &self,
        zone: u32,
        record: &Backref,
    ) -> Lookup<Vec<LiveRun>> {
        match record.owner {
            Owner::Extent(id) => {
                let extent = self.maps.shared.find(id)?;
                let extent =
                    extent.filter(|extent| (extent.zone, extent.block) == (zone, record.block));
                let crcs = extent.map(|extent| extent.crcs.as_slice().to_vec());
                let run = |crcs| LiveRun { owner: record.owner, block: record.block, crcs };
                Ok(crcs.map(run).into_iter().collect())
            }
            Owner::Entry(ino, first) => {
                let limit = first.saturating_add(u64::from(record.blocks));
                let file = self.inodes.stored_file(ino, first, limit)?;
                let entries = file.into_iter().flat_map(|file| file.overlapping(first, limit));
                let takes_any = self.planted.has(PlantedBug::RelocateOverwritten);
                let runs = entries.filter_map(|(start, entry)| {
                    let (from, at, crcs) = overlap(first..limit, start, &entry)?;
                    let block = record.block.checked_add(u32::try_from(from - first).ok()?)?;
                    let owner = Owner::Entry(ino, from);
                    let is_here = at == Address { zone, block } || takes_any;
                    is_here.then(|| LiveRun { owner, block, crcs: crcs.to_vec() })
                });
                Ok(runs.collect())
            }
        }
    }

    /// Maps the live blocks of a copied part of a zone to the copy.
    pub(in crate::furrow) fn relocate_runs(
        &mut self,
        zone: u32,
        part: &Backref,
        to: Address,
        noted: Noted,
    ) -> Lookup<()> {
        for found in self.live_runs_of(zone, part)? {
            let block = to.block + (found.block - part.block);
            let to = Placed { zone: to.zone, block, blocks: found.blocks() };
            self.relocate(found.owner, to, noted);
        }
        Ok(())
    }

    /// Maps a run of blocks of an owner to the place where reclaim has copied it. Other blocks of
    /// its map entry stay where they are.
    fn relocate(&mut self, owner: Owner, to: Placed, noted: Noted) {
        let Placed { zone, block, blocks } = to;
        match owner {
            Owner::Entry(ino, first)
                if noted == Noted::InTables && self.move_entry(ino, first, to) => {}
            Owner::Entry(ino, first) => {
                self.split_map(ino, first);
                self.split_map(ino, first + u64::from(blocks));
                match self.take_entry(ino, first) {
                    MapEntry::At { crcs, .. } => {
                        self.join_entry(ino, first, MapEntry::At { zone, block, crcs });
                    }
                    other @ (MapEntry::Preallocated { .. } | MapEntry::Shared { .. }) => {
                        self.put_entry(ino, first, other);
                    }
                }
            }
            Owner::Extent(id) => {
                let shared = &mut self.maps.shared;
                let Some(from) = shared.relocate(id, zone, block, &mut self.rows) else { return };
                self.zones.remove_live(from, blocks);
                self.zones.add_live(zone, block, blocks);
                self.zones.record_owner(zone, Backref { block, blocks, owner });
                self.rows.batch.add_bytes(4 * blocks as usize);
            }
        }
    }

    /// Moves a map entry to where reclaim has copied all its blocks, and records that in a remap
    /// table. Returns whether it did: if not, nothing has changed.
    fn move_entry(&mut self, ino: Ino, first: u64, to: Placed) -> bool {
        let key = Key::new(RowKind::Map, ino.get(), first);
        let Some((zone, block)) = self.movable(key, to) else { return false };
        let run = RemapRun { block, blocks: to.blocks };
        let (from, place) = (self.zones.generation(zone), self.zones.generation(to.zone));
        // A commit that has yet to encode the row gets it with the old place.
        self.encode_if_taken(key);
        if self.rows.record_move(key, from, run, ZonePlace::new(place, to.block)) {
            self.zones.add_remap(from);
        }
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
        let is_recordable = self.zones.has_free_generation(*zone) && self.rows.spares_row(key);
        (is_whole && is_recordable && !self.would_join(key, to)).then_some((*zone, *block))
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
}

/// The overlap of file blocks with a map entry, which begins at file block `start`: the first file
/// block, its place, and the checksums.
fn overlap(blocks: Range<u64>, start: u64, entry: &MapEntry) -> Option<(u64, Address, &[u32])> {
    let MapEntry::At { zone, block, crcs } = entry else { return None };
    let from = start.max(blocks.start);
    let to = blocks.end.min(start + u64::from(entry.blocks()));
    let narrow = |blocks: u64| usize::try_from(blocks).expect("inside the entry");
    let crcs = &crcs.as_slice()[narrow(from - start)..narrow(to - start)];
    let skip = u32::try_from(from - start).expect("inside the entry");
    Some((from, Address { zone: *zone, block: block + skip }, crcs))
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
            state.rows.batch.changed().iter().filter(|key| key.kind() == RowKind::Map).count()
        }
    }

    #[test]
    fn remap_spares_rows_of_wholly_moved_extents() {
        let mut file = Overwritten::new();
        file.overwrite(2000);
        file.fs.sync().unwrap();
        let moved = file.fs.reclaimer.reclaim_some(u32::MAX, Urgency::Emergency).unwrap();
        assert!(moved > 50, "{moved} blocks");
        let (kept, rows) = (file.fs.tree.read_state().rows.remaps.count(), file.changed_pieces());
        assert!(kept > 50 && rows < 5, "{kept} pieces without a row, {rows} rows");
        file.fs.sync().unwrap();
        assert_eq!(file.fs.tree.read_state().rows.remaps.count(), 0);
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
        assert!(file.fs.tree.read_state().rows.remaps.held_bytes() < 40_000);
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
