//! The two maps of file data: file block → extent, extent → zone.
//!
//! An extent with one reference is *exclusive*: cutting its map entry cuts the extent, and the
//! blocks cut off are dead at once. A shared extent lives as a whole until its last reference goes.
//! Zone live counts are the sum of the extents in the zone (F2).

use super::format::BLOCK_BYTES;
use super::state::{Extent, ExtentId, File, MAP_BYTES, MapEntry, RowKey, State, extent_bytes};
use crate::vfs::{Ino, Result};

/// A run of blocks that the device has taken, not yet mapped.
#[derive(Clone, Copy, Debug)]
pub(super) struct Placed {
    pub(super) zone: u32,
    pub(super) block: u32,
    pub(super) blocks: u32,
}

/// CRC-32C of each block of `data`.
pub(super) fn checksums(data: &[u8]) -> Vec<u32> {
    data.chunks(BLOCK_BYTES).map(crc32c::crc32c).collect()
}

impl File {
    /// The map entry that covers `block`, with its first block.
    pub(super) fn covering(&self, block: u64) -> Option<(u64, MapEntry)> {
        let (&first, &entry) = self.map.range(..=block).next_back()?;
        (block < first + u64::from(entry.blocks)).then_some((first, entry))
    }

    /// Map entries that overlap `first..limit`, with their first blocks.
    pub(super) fn overlapping(
        &self,
        first: u64,
        limit: u64,
    ) -> impl Iterator<Item = (u64, MapEntry)> {
        // An empty range overlaps nothing, not even the entry it lies in.
        let from = if first < limit {
            self.covering(first).map_or(first, |(start, _)| start)
        } else {
            limit
        };
        self.map.range(from..limit).map(|(&start, &entry)| (start, entry))
    }
}

impl State {
    /// Blocks of logical space that writing `first..limit` of a file would add: those that are
    /// not mapped, and those whose extent is shared and so stays when they are replaced.
    pub(super) fn growth(&self, ino: Ino, first: u64, limit: u64) -> Result<u64> {
        let file = self.inode(ino)?.file()?;
        let mut held = 0;
        for (start, entry) in file.overlapping(first, limit) {
            let shared = self.extents.get(&entry.extent).is_some_and(|extent| extent.refs > 1);
            if !shared {
                let end = (start + u64::from(entry.blocks)).min(limit);
                held += end - start.max(first);
            }
        }
        let buffered: u64 = file.dirty.range(first..limit).map(|(_, block)| block.reserved).sum();
        Ok((limit - first).saturating_sub(held + buffered))
    }

    /// Removes what is mapped or buffered in `first..limit` of a file.
    pub(super) fn unmap(&mut self, ino: Ino, first: u64, limit: u64) {
        self.drop_buffered(ino, first, limit);
        self.unmap_stored(ino, first, limit);
    }

    /// Removes what is mapped in `first..limit` of a file; what is buffered stays.
    pub(super) fn unmap_stored(&mut self, ino: Ino, first: u64, limit: u64) {
        let Some(file) = self.inodes.get(&ino).and_then(|inode| inode.file().ok()) else { return };
        let cut: Vec<(u64, MapEntry)> = file.overlapping(first, limit).collect();
        for (start, entry) in cut {
            self.cut_entry(ino, (start, entry), first, limit);
        }
    }

    /// Forgets buffered blocks in `first..limit` of a file.
    pub(super) fn drop_buffered(&mut self, ino: Ino, first: u64, limit: u64) {
        let Some(file) = self.inodes.get_mut(&ino).and_then(|inode| inode.file_mut().ok()) else {
            return;
        };
        let blocks: Vec<u64> = file.dirty.range(first..limit).map(|(&block, _)| block).collect();
        for block in &blocks {
            let Some(dirty) = file.dirty.remove(block) else { continue };
            file.growing -= dirty.reserved;
            self.totals.reserved -= dirty.reserved;
            self.totals.pending -= 1;
        }
        if !blocks.is_empty() && file.dirty.is_empty() {
            self.buffered.remove(&ino);
        }
    }

    /// Maps `first..` of a file, where nothing is mapped, to a piece of an extent.
    pub(super) fn map(&mut self, ino: Ino, first: u64, mut entry: MapEntry) {
        if let Some(extent) = self.extents.get_mut(&entry.extent) {
            extent.refs += 1;
            extent.owner = (ino, first);
            self.changes.mark(RowKey::Extent(entry.extent));
        } else {
            assert!(entry.extent == ExtentId::PREALLOCATED, "a map entry leads to an extent");
            // A piece of preallocated space is preallocated too: there is nothing to skip.
            entry.skip = 0;
            self.totals.preallocated += u64::from(entry.blocks);
        }
        let file = self.file_mut(ino);
        file.mapped += u64::from(entry.blocks);
        let before = file.map.insert(first, entry);
        assert!(before.is_none(), "a range is unmapped before it is mapped");
        self.totals.add_place_bytes(MAP_BYTES);
        self.changes.mark(RowKey::Map(ino, first));
    }

    /// Makes an extent of blocks that the device has taken. Nothing refers to it yet.
    pub(super) fn insert_extent(&mut self, placed: Placed, crcs: Vec<u32>) -> ExtentId {
        let id = ExtentId(self.next_extent);
        self.next_extent += 1;
        let Placed { zone, block, blocks } = placed;
        assert!(crcs.len() == blocks as usize, "a checksum per block");
        self.zones.add_live(zone, block, blocks, id);
        self.totals.live += u64::from(blocks);
        self.totals.add_place_bytes(extent_bytes(blocks));
        self.changes.bytes += 4 * crcs.len();
        self.changes.mark(RowKey::Extent(id));
        let owner = (Ino::default(), 0);
        self.extents.insert(id, Extent { zone, block, refs: 0, owner, crcs });
        id
    }

    /// Cuts the map entry at `block` of a file in two, so that one begins there. Cuts the extent
    /// too if it is exclusive, so that what is shared later is shared whole.
    pub(super) fn split_map(&mut self, ino: Ino, block: u64) {
        let Some((start, entry)) = self.file_mut(ino).covering(block) else { return };
        if start == block {
            return;
        }
        let left = u32::try_from(block - start).expect("inside the entry");
        self.take_entry(ino, start);
        let keep = MapEntry { blocks: left, ..entry };
        let rest = MapEntry { skip: entry.skip + left, blocks: entry.blocks - left, ..entry };
        if self.is_whole(entry) {
            let right = self.split_extent(entry.extent, left);
            self.restore_entry(ino, start, keep);
            self.map(ino, block, MapEntry { extent: right, skip: 0, blocks: rest.blocks });
        } else {
            self.restore_entry(ino, start, keep);
            self.map(ino, block, rest);
        }
    }

    /// Moves an extent, or the part of it that reclaim has copied, to its new place.
    pub(super) fn relocate(&mut self, id: ExtentId, zone: u32, block: u32) {
        let Some(extent) = self.extents.get_mut(&id) else { return };
        let blocks = extent.blocks();
        self.zones.remove_live(extent.zone, extent.block, blocks);
        (extent.zone, extent.block) = (zone, block);
        self.zones.add_live(zone, block, blocks, id);
        self.changes.bytes += 4 * blocks as usize;
        self.changes.mark(RowKey::Extent(id));
    }

    /// Whether an entry maps all of an exclusive extent.
    pub(super) fn is_whole(&self, entry: MapEntry) -> bool {
        self.extents.get(&entry.extent).is_some_and(|extent| {
            extent.refs == 1 && entry.skip == 0 && entry.blocks == extent.blocks()
        })
    }

    fn file_mut(&mut self, ino: Ino) -> &mut File {
        self.inodes
            .get_mut(&ino)
            .and_then(|inode| inode.file_mut().ok())
            .expect("the caller has found the file under this lock")
    }

    /// Takes a map entry out without touching its extent.
    fn take_entry(&mut self, ino: Ino, start: u64) {
        let file = self.file_mut(ino);
        let entry = file.map.remove(&start).expect("the caller has found the entry");
        file.mapped -= u64::from(entry.blocks);
        if entry.extent == ExtentId::PREALLOCATED {
            self.totals.preallocated -= u64::from(entry.blocks);
        }
        self.totals.remove_place_bytes(MAP_BYTES);
        self.changes.mark(RowKey::Map(ino, start));
    }

    /// Puts a shortened entry back: the extent's reference is the one it had.
    fn restore_entry(&mut self, ino: Ino, start: u64, entry: MapEntry) {
        if let Some(extent) = self.extents.get_mut(&entry.extent) {
            extent.refs -= 1;
        }
        self.map(ino, start, entry);
    }

    /// Removes the part of a map entry that lies in `first..limit`.
    fn cut_entry(&mut self, ino: Ino, (start, entry): (u64, MapEntry), first: u64, limit: u64) {
        let end = start + u64::from(entry.blocks);
        let narrow = |blocks: u64| u32::try_from(blocks).expect("inside the entry");
        let left = narrow(first.saturating_sub(start));
        let right = narrow(end.saturating_sub(limit));
        let dead = entry.blocks - left - right;
        let whole = self.is_whole(entry);
        self.take_entry(ino, start);
        let tail = MapEntry { skip: entry.skip + left + dead, blocks: right, ..entry };
        if whole {
            self.cut_extent(ino, (start, entry), (left, dead), right);
            return;
        }
        if left > 0 {
            self.map(ino, start, MapEntry { blocks: left, ..entry });
        }
        if right > 0 {
            self.map(ino, limit, tail);
        }
        self.release(entry.extent);
    }

    /// Cuts the middle out of an exclusive extent whose map entry was just taken out.
    fn cut_extent(
        &mut self,
        ino: Ino,
        (start, entry): (u64, MapEntry),
        (left, dead): (u32, u32),
        right: u32,
    ) {
        let first = start + u64::from(left);
        let middle = if left > 0 { self.split_extent(entry.extent, left) } else { entry.extent };
        let tail = (right > 0).then(|| self.split_extent(middle, dead));
        if left > 0 {
            self.restore_entry(ino, start, MapEntry { blocks: left, ..entry });
        }
        self.remove_extent(middle);
        if let Some(extent) = tail {
            let limit = first + u64::from(dead);
            self.map(ino, limit, MapEntry { extent, skip: 0, blocks: right });
        }
    }

    /// Cuts an extent after `left` blocks; the new one holds the rest and has no references.
    pub(super) fn split_extent(&mut self, id: ExtentId, left: u32) -> ExtentId {
        let extent = self.extents.get_mut(&id).expect("the caller has found the extent");
        let (zone, block, blocks) = (extent.zone, extent.block, extent.blocks());
        let crcs = extent.crcs.split_off(left as usize);
        self.zones.remove_live(zone, block, blocks);
        self.zones.add_live(zone, block, left, id);
        self.totals.live -= u64::from(blocks - left);
        self.totals.remove_place_bytes(extent_bytes(blocks) - extent_bytes(left));
        self.changes.mark(RowKey::Extent(id));
        let placed = Placed { zone, block: block + left, blocks: blocks - left };
        self.insert_extent(placed, crcs)
    }

    /// Drops one reference; the last one frees the extent.
    fn release(&mut self, id: ExtentId) {
        let Some(extent) = self.extents.get_mut(&id) else { return };
        extent.refs -= 1;
        self.changes.mark(RowKey::Extent(id));
        if extent.refs == 0 {
            self.remove_extent(id);
        }
    }

    fn remove_extent(&mut self, id: ExtentId) {
        let extent = self.extents.remove(&id).expect("the caller has found the extent");
        let blocks = extent.blocks();
        self.zones.remove_live(extent.zone, extent.block, blocks);
        self.totals.live -= u64::from(blocks);
        self.totals.remove_place_bytes(extent_bytes(blocks));
        self.changes.mark(RowKey::Extent(id));
    }
}
