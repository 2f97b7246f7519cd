//! Changes of the maps of files: mapping, cutting, sharing, moving.
//!
//! Blocks of one map entry alone die as soon as the entry is cut. A shared extent stays whole until
//! only one reference is left; the next change of that entry makes the blocks the entry's own. The
//! live count of a zone is the sum of the live runs in it (F2).

use std::ops::Range;

use crate::furrow::format::backref::Backref;
use crate::furrow::format::row::{CopySpace, extent_bytes};
use crate::furrow::metadata::map::place::{Extent, ExtentId, MapEntry, Owner};
use crate::furrow::metadata::map::shared::Released;
use crate::furrow::metadata::missing::{Lookup, Missing, Stop};
use crate::furrow::metadata::{File, State};
use crate::furrow::planted::PlantedBug;
use crate::furrow::table::key::RowKind;
use crate::vfs::Ino;

/// Map entries that one step changes.
pub(in crate::furrow) const STEP_ENTRIES: usize = 1024;

impl State {
    /// Blocks of logical space that a write of `first..limit` would add: blocks that are not
    /// mapped, and shared ones without space for a copy, which stay when the write replaces them.
    pub(in crate::furrow) fn growth(&self, ino: Ino, first: u64, limit: u64) -> Lookup<u64> {
        let file = self.mapped_file(ino, first, limit)?;
        let mut held = 0;
        for (start, entry) in file.overlapping(first, limit) {
            let is_forgotten =
                entry.blocks() > 1 && self.planted.has(PlantedBug::OverwriteUnreserved);
            if !self.maps.shared.is_shared(&entry) || entry.preallocated() > 0 || is_forgotten {
                let end = (start + u64::from(entry.blocks())).min(limit);
                held += end - start.max(first);
            }
        }
        let buffered: u64 = file.dirty.range(first..limit).map(|(_, block)| block.reserved).sum();
        Ok((limit - first).saturating_sub(held + buffered))
    }

    /// The end of one step that changes the map from `first` on: `limit`, or after [`STEP_ENTRIES`]
    /// entries. Everything up to there is in memory.
    pub(in crate::furrow) fn step_end(&self, ino: Ino, first: u64, limit: u64) -> Lookup<u64> {
        let end = self.stored_step_end(ino, first, limit)?;
        self.maps.discards.check(ino, first..end)?;
        Ok(end)
    }

    /// As [`step_end`](Self::step_end), also where the file was discarded.
    pub(super) fn stored_step_end(&self, ino: Ino, first: u64, limit: u64) -> Lookup<u64> {
        let file = self.inode(ino)?.file()?;
        let resident =
            file.resident.end_of(first).ok_or(Stop::NotLoaded(Missing::Map(ino, first)))?;
        let ahead = file.map.range(first..resident.min(limit)).nth(STEP_ENTRIES);
        let end = match ahead {
            Some((start, _)) => start,
            // The step needs more of the map than memory has.
            None if resident < limit => return Err(Stop::NotLoaded(Missing::Map(ino, resident))),
            None => limit,
        };
        self.resident_file(ino, first, end)?;
        Ok(end)
    }

    /// Removes mapped and buffered blocks in `first..limit` of a file, whose map is in memory
    /// there, as for all methods that follow.
    pub(in crate::furrow) fn unmap(&mut self, ino: Ino, first: u64, limit: u64) {
        self.drop_buffered(ino, first, limit);
        self.unmap_stored(ino, first, limit);
    }

    /// Removes mapped blocks in `first..limit` of a file; buffered ones stay.
    pub(in crate::furrow) fn unmap_stored(&mut self, ino: Ino, first: u64, limit: u64) {
        let Some(file) = self.inodes.peek_file(ino) else { return };
        assert!(
            file.resident.first_missing(first..limit).is_none(),
            "the caller has loaded the map"
        );
        let cut: Vec<u64> = file.overlapping(first, limit).map(|(start, _)| start).collect();
        for start in cut {
            self.cut_entry(ino, start, first, limit);
        }
    }

    /// Maps blocks of a file from `first` on, where nothing is mapped. Merges the entry with
    /// neighbours that it continues in file and zone: one row, however many writes it came in.
    pub(in crate::furrow) fn map(&mut self, ino: Ino, first: u64, entry: MapEntry) {
        self.mark_count(ino);
        self.join_entry(ino, first, entry);
    }

    /// Preallocates space in `blocks` of a file: in holes, and for copies of shared blocks. Blocks
    /// that only this file has left become its own, and need no space for a copy.
    pub(in crate::furrow) fn preallocate(&mut self, ino: Ino, blocks: Range<u64>) {
        for edge in [blocks.start, blocks.end] {
            let covering = self.file_mut(ino).covering(edge);
            if covering.is_some_and(|(_, entry)| matches!(*entry, MapEntry::Shared { .. })) {
                self.split_map(ino, edge);
            }
        }
        let Some(file) = self.inodes.peek_file(ino) else { return };
        let (mut holes, mut shared, mut own) = (Vec::new(), Vec::new(), Vec::new());
        let mut at = blocks.start;
        for (start, entry) in file.overlapping(blocks.start, blocks.end) {
            if start > at {
                holes.push(at..start);
            }
            if self.maps.shared.is_shared(&entry) {
                if entry.preallocated() == 0 {
                    shared.push(start);
                }
            } else if matches!(*entry, MapEntry::Shared { .. }) {
                own.push(start);
            }
            at = start + u64::from(entry.blocks());
        }
        if at < blocks.end {
            holes.push(at..blocks.end);
        }
        for hole in holes {
            let mut first = hole.start;
            while first < hole.end {
                let blocks = u32::try_from(hole.end - first).unwrap_or(u32::MAX);
                self.map(ino, first, MapEntry::Preallocated { blocks });
                first += u64::from(blocks);
            }
        }
        for start in shared {
            self.preallocate_copy(ino, start);
        }
        for start in own {
            let entry = self.take_entry_of_file(ino, start);
            self.put_entry(ino, start, entry);
        }
    }

    /// Preallocates space for a copy of the shared blocks of an entry.
    fn preallocate_copy(&mut self, ino: Ino, start: u64) {
        let mut added = 0;
        self.file_mut(ino).map.change(start, |entry| {
            if let MapEntry::Shared { blocks, space, .. } = entry {
                *space = CopySpace::Preallocated;
                added = space.preallocated(*blocks);
            }
        });
        self.rows.totals.add_preallocated(added);
        self.mark(RowKind::Map, ino.get(), start);
    }

    /// Marks the inode's row, which has the number of mapped blocks.
    fn mark_count(&mut self, ino: Ino) {
        self.mark(RowKind::Inode, ino.get(), 0);
    }

    /// Enters an entry where nothing is mapped, merged with the neighbours that it continues.
    pub(super) fn join_entry(&mut self, ino: Ino, mut first: u64, mut entry: MapEntry) {
        self.record_owner(ino, first, &entry);
        let blocks_max = self.zones.extent_max();
        let file = self.file_mut(ino);
        let before = first.checked_sub(1).and_then(|last| file.map.at_or_before(last));
        let before = before.and_then(|(start, before)| {
            let is_next = start + u64::from(before.blocks()) == first;
            let joined = is_next.then(|| before.joined(&entry, blocks_max)).flatten();
            joined.map(|joined| (start, joined))
        });
        if let Some((start, joined)) = before {
            self.take_entry(ino, start);
            (first, entry) = (start, joined);
        }
        let end = first + u64::from(entry.blocks());
        let after = self.file_mut(ino).map.get(end);
        if let Some(joined) = after.and_then(|after| entry.joined(&after, blocks_max)) {
            self.take_entry(ino, end);
            entry = joined;
        }
        self.put_entry(ino, first, entry);
    }

    /// Cuts the map entry at `block` of a file in two, so that one begins there.
    pub(in crate::furrow) fn split_map(&mut self, ino: Ino, block: u64) {
        let covering = self.file_mut(ino).covering(block).map(|(start, _)| start);
        let Some(start) = covering.filter(|&start| start < block) else { return };
        let left = narrow(block - start);
        let entry = self.take_entry_of_file(ino, start);
        self.put_entry(ino, start, entry.part(0, left));
        self.put_entry(ino, block, entry.part(left, entry.blocks() - left));
    }

    /// Maps the blocks of `target` from `to` on, where nothing is mapped, to the blocks of `source`
    /// in the entry that begins at `start`, which become a shared extent. Preallocated space stays
    /// with its file: the other gets a hole, which reads the same, or no space for a copy.
    pub(in crate::furrow) fn share_entry(&mut self, source: Ino, start: u64, target: Ino, to: u64) {
        let entry = self.file_mut(source).map.get(start).expect("the caller has found it");
        let entry = (*entry).clone();
        let shared = match entry {
            MapEntry::Preallocated { .. } => return,
            MapEntry::Shared { extent, skip, blocks, .. } => {
                MapEntry::Shared { extent, skip, blocks, space: CopySpace::None }
            }
            MapEntry::At { .. } => {
                self.take_entry(source, start);
                let shared = self.insert_extent(entry);
                self.put_entry(source, start, shared.clone());
                shared
            }
        };
        self.mark_count(target);
        self.put_entry(target, to, shared);
    }

    /// Makes a shared extent of the blocks of an entry that was taken out. Returns the entry that
    /// names all of it.
    fn insert_extent(&mut self, entry: MapEntry) -> MapEntry {
        let MapEntry::At { zone, block, crcs } = entry else { return entry };
        let (id, blocks) = (self.rows.numbers.new_extent(), crcs.blocks());
        self.zones.add_live(zone, block, blocks);
        self.zones.record_owner(zone, Backref { owner: Owner::Extent(id), block, blocks });
        self.rows.totals.add_live(blocks);
        self.rows.totals.add_place_bytes(extent_bytes(blocks));
        self.rows.batch.add_bytes(4 * blocks as usize);
        let used = self.residency.loads.count();
        let extent = Extent { zone, block, refs: 0, crcs, used };
        self.residency.count(0, extent.held_bytes());
        self.maps.shared.insert(id, extent, &mut self.rows);
        MapEntry::Shared { extent: id, skip: 0, blocks, space: CopySpace::None }
    }

    /// Adds a back-reference for the blocks of an entry.
    fn record_owner(&mut self, ino: Ino, first: u64, entry: &MapEntry) {
        if let MapEntry::At { zone, block, crcs } = entry {
            let owner = Owner::Entry(ino, first);
            let record = Backref { owner, block: *block, blocks: crcs.blocks() };
            self.zones.record_owner(*zone, record);
        }
    }

    fn file_mut(&mut self, ino: Ino) -> &mut File {
        self.inodes.file_mut(ino).expect("the caller has found the file under this lock")
    }

    /// Enters an entry where nothing is mapped.
    pub(super) fn put_entry(&mut self, ino: Ino, first: u64, entry: MapEntry) {
        let blocks = u64::from(entry.blocks());
        let entry_bytes = entry.held_bytes();
        self.rows.totals.add_place_bytes(entry.row_bytes());
        self.mark(RowKind::Map, ino.get(), first);
        self.rows.totals.add_preallocated(entry.preallocated());
        match &entry {
            MapEntry::Preallocated { .. } => {}
            MapEntry::At { zone, block, crcs } => {
                self.zones.add_live(*zone, *block, crcs.blocks());
                self.rows.totals.add_live(crcs.blocks());
                self.rows.batch.add_bytes(4 * crcs.as_slice().len());
            }
            MapEntry::Shared { extent, .. } => {
                self.maps.shared.add_reference(*extent, &mut self.rows);
            }
        }
        let file = self.file_mut(ino);
        file.mapped += blocks;
        let held = file.map.held_bytes();
        let before = file.map.insert(first, entry);
        assert!(before.is_none(), "a range is unmapped before it is mapped");
        let held_now = file.map.held_bytes() + entry_bytes;
        self.residency.count(held, held_now);
    }

    /// Takes an entry out of a map. If it names a shared extent, that still counts it.
    fn take_from_map(&mut self, ino: Ino, start: u64) -> MapEntry {
        self.mark(RowKind::Map, ino.get(), start);
        let planted = self.planted;
        let file = self.file_mut(ino);
        let held = file.map.held_bytes();
        let entry = file.map.remove(start, planted).expect("the caller has found the entry");
        let blocks = u64::from(entry.blocks());
        file.mapped = file.mapped.saturating_sub(blocks);
        let held_now = file.map.held_bytes();
        self.residency.count(held + entry.held_bytes(), held_now);
        self.rows.totals.remove_place_bytes(entry.row_bytes());
        self.rows.totals.remove_preallocated(entry.preallocated());
        entry
    }

    /// Removes entries that name a shared extent of which the row is lost. Its blocks stay in use,
    /// since nothing says whether other files have them.
    pub(in crate::furrow) fn forget_shared(&mut self, ino: Ino, entries: &[u64]) -> Lookup<()> {
        let file = self.inodes.stored(ino)?.file()?;
        if let Some(&start) = entries.iter().find(|start| file.resident.end_of(**start).is_none()) {
            return Err(Stop::NotLoaded(Missing::Map(ino, start)));
        }
        for &start in entries {
            let entry = self.inodes.peek_file(ino).and_then(|file| file.map.get(start));
            if entry.is_some_and(|entry| matches!(*entry, MapEntry::Shared { .. })) {
                self.mark_count(ino);
                self.take_from_map(ino, start);
            }
        }
        Ok(())
    }

    /// Takes an entry out. The last reference to a shared extent comes back as blocks of its own;
    /// the rest of the extent is dead.
    pub(super) fn take_entry(&mut self, ino: Ino, start: u64) -> MapEntry {
        let entry = self.take_from_map(ino, start);
        match &entry {
            MapEntry::Preallocated { .. } => {}
            MapEntry::At { zone, crcs, .. } => {
                self.zones.remove_live(*zone, crcs.blocks());
                self.rows.totals.remove_live(crcs.blocks());
            }
            MapEntry::Shared { extent, skip, blocks, .. } => {
                if let Some(Extent { zone, block, crcs, .. }) = self.release(*extent)
                    && skip.checked_add(*blocks).is_some_and(|end| end <= crcs.blocks())
                {
                    let crcs = crcs.part(*skip, *blocks);
                    return MapEntry::At { zone, block: block + skip, crcs };
                }
            }
        }
        entry
    }

    /// Takes out an entry of which a part stays with the file: the blocks of a last reference to a
    /// shared extent belong to the file from now on.
    fn take_entry_of_file(&mut self, ino: Ino, start: u64) -> MapEntry {
        let entry = self.file_mut(ino).map.get(start);
        let was_shared = entry.is_some_and(|entry| matches!(*entry, MapEntry::Shared { .. }));
        let entry = self.take_entry(ino, start);
        if was_shared {
            self.record_owner(ino, start, &entry);
        }
        entry
    }

    /// Removes the part of a map entry that lies in `first..limit`.
    fn cut_entry(&mut self, ino: Ino, start: u64, first: u64, limit: u64) {
        self.mark_count(ino);
        self.learn_life(ino, start);
        let entry = self.inodes.peek_file(ino).and_then(|file| file.map.get(start));
        let entry = entry.expect("the caller has found the entry");
        let end = start + u64::from(entry.blocks());
        let left = narrow(first.saturating_sub(start));
        let right = narrow(end.saturating_sub(limit));
        if let MapEntry::At { zone, .. } = *entry {
            let died = entry.blocks() - left - right;
            self.zones.note_death(zone, died, self.rows.totals.data_clock());
        }
        if left + right == 0 {
            self.take_entry(ino, start);
            return;
        }
        let entry = self.take_entry_of_file(ino, start);
        if left > 0 {
            self.put_entry(ino, start, entry.part(0, left));
        }
        if right > 0 {
            self.put_entry(ino, limit, entry.part(entry.blocks() - right, right));
        }
    }

    /// Drops one reference, and with the last one the extent. Counts and sums come from a drive:
    /// wrong ones may lead to wrong sums, and to nothing worse.
    fn release(&mut self, id: ExtentId) -> Option<Extent> {
        let Released::Deleted(extent) = self.maps.shared.release(id, &mut self.rows) else {
            return None;
        };
        self.residency.count(extent.held_bytes(), 0);
        let blocks = extent.crcs.blocks();
        self.zones.remove_live(extent.zone, blocks);
        self.rows.totals.remove_live(blocks);
        self.rows.totals.remove_place_bytes(extent_bytes(blocks));
        Some(extent)
    }
}

/// A number of blocks inside an entry.
fn narrow(blocks: u64) -> u32 {
    u32::try_from(blocks).expect("inside the entry")
}
