//! Shared extents: runs of blocks that several map entries name, with the number of these.
//!
//! Memory has some of the extents, the table all that were committed. An extent that is not in
//! memory is either in the table or deleted. Deletions stay here until readers of the table see
//! them, so that no operation reads the row of a deleted extent, and only a loaded extent gets
//! another count.

use std::collections::{BTreeMap, BTreeSet};

use crate::FsError;
use crate::furrow::metadata::map::File;
use crate::furrow::metadata::map::place::{Extent, ExtentId, MapEntry, Stored};
use crate::furrow::metadata::map::row::encode_extent;
use crate::furrow::metadata::missing::{Lookup, Missing, Stop};
use crate::furrow::metadata::rows::ChangedRows;
use crate::furrow::table::key::{Key, RowKind};
use crate::furrow::table::memtable::Value;
use crate::vfs::Ino;

/// The shared extents of which memory holds the count or a deletion.
#[derive(Debug, Default)]
pub(in crate::furrow) struct SharedExtents {
    loaded: BTreeMap<ExtentId, Extent>,
    /// Deleted, and readers of the table still find the row.
    deleted: BTreeSet<ExtentId>,
    /// Extents below buffered blocks, with the number of these. They stay in memory: when the
    /// buffered blocks have their place, the count of the extent changes.
    below_buffered: BTreeMap<ExtentId, u32>,
}

/// Outcome of dropping a reference.
pub(in crate::furrow::metadata) enum Released {
    /// Others name the extent, or it was deleted before, if the drive had a wrong count.
    Stays,
    /// No entry names it any more: it is deleted.
    Deleted(Extent),
}

impl SharedExtents {
    /// An extent; `None` if it is deleted.
    pub(in crate::furrow::metadata) fn find(&self, id: ExtentId) -> Lookup<Option<&Extent>> {
        match self.loaded.get(&id) {
            Some(extent) => Ok(Some(extent)),
            None if self.deleted.contains(&id) => Ok(None),
            None => Err(Stop::NotLoaded(Missing::Extent(id))),
        }
    }

    /// An extent that the caller has loaded; `None` if it is deleted.
    pub(super) fn get(&self, id: ExtentId) -> Option<&Extent> {
        let extent = self.loaded.get(&id);
        assert!(extent.is_some() || self.deleted.contains(&id), "{id:?} is used and not loaded");
        extent
    }

    fn get_mut(&mut self, id: ExtentId) -> Option<&mut Extent> {
        let extent = self.loaded.get_mut(&id);
        assert!(extent.is_some() || self.deleted.contains(&id), "{id:?} changes and is not loaded");
        extent
    }

    /// An extent, if it happens to be in memory.
    pub(in crate::furrow::metadata) fn peek(&self, id: ExtentId) -> Option<&Extent> {
        self.loaded.get(&id)
    }

    /// Enters an extent that the load `now` has read. Returns `false` if it was in memory, or
    /// deleted.
    pub(in crate::furrow::metadata) fn enter(
        &mut self,
        id: ExtentId,
        extent: Extent,
        now: u64,
    ) -> bool {
        let is_new = !self.loaded.contains_key(&id) && !self.deleted.contains(&id);
        if is_new {
            self.loaded.insert(id, Extent { used: now, ..extent });
        }
        is_new
    }

    /// Enters a new one, to which nothing refers yet.
    pub(in crate::furrow::metadata) fn insert(
        &mut self,
        id: ExtentId,
        extent: Extent,
        rows: &mut ChangedRows,
    ) {
        self.mark(id, rows);
        let before = self.loaded.insert(id, extent);
        assert!(before.is_none(), "numbers of extents are never used twice");
    }

    /// One more map entry refers to it.
    pub(in crate::furrow::metadata) fn add_reference(
        &mut self,
        id: ExtentId,
        rows: &mut ChangedRows,
    ) {
        self.mark(id, rows);
        if let Some(extent) = self.get_mut(id) {
            extent.refs = extent.refs.saturating_add(1);
        }
    }

    /// A map entry no longer refers to it.
    pub(in crate::furrow::metadata) fn release(
        &mut self,
        id: ExtentId,
        rows: &mut ChangedRows,
    ) -> Released {
        self.mark(id, rows);
        let Some(extent) = self.get_mut(id) else { return Released::Stays };
        extent.refs = extent.refs.saturating_sub(1);
        if extent.refs > 0 {
            return Released::Stays;
        }
        self.deleted.insert(id);
        self.loaded.remove(&id).map_or(Released::Stays, Released::Deleted)
    }

    /// Checks that the extent which an entry shares is in memory, and long enough.
    pub(in crate::furrow) fn check(&self, ino: Ino, entry: &MapEntry) -> Lookup<()> {
        let MapEntry::Shared { extent: id, skip, blocks, .. } = entry else { return Ok(()) };
        let extent = self.find(*id)?;
        let end = skip.checked_add(*blocks);
        if extent.zip(end).is_some_and(|(extent, end)| end <= extent.crcs.blocks()) {
            return Ok(());
        }
        let why = format!("inode {ino} has {blocks} blocks behind {skip} of extent {}", id.0);
        Err(FsError::Corrupt { what: "row", why }.into())
    }

    /// Whether another entry names the same extent.
    pub(in crate::furrow::metadata) fn is_shared(&self, entry: &MapEntry) -> bool {
        match entry {
            MapEntry::Preallocated { .. } | MapEntry::At { .. } => false,
            MapEntry::Shared { extent, .. } => {
                self.get(*extent).is_some_and(|extent| extent.refs > 1)
            }
        }
    }

    /// The stored blocks of an entry; `None` for preallocated space.
    pub(in crate::furrow) fn stored<'a>(&'a self, entry: &'a MapEntry) -> Option<Stored<'a>> {
        match entry {
            MapEntry::Preallocated { .. } => None,
            MapEntry::At { zone, block, crcs } => {
                Some(Stored { zone: *zone, block: *block, crcs: crcs.as_slice() })
            }
            MapEntry::Shared { extent, skip, blocks, .. } => {
                let extent = self.get(*extent)?;
                let end = skip.checked_add(*blocks)?;
                let crcs = extent.crcs.as_slice().get(*skip as usize..end as usize)?;
                Some(Stored { zone: extent.zone, block: extent.block + skip, crcs })
            }
        }
    }

    /// The zone of an entry, if its blocks have a zone and memory has the extent.
    pub(in crate::furrow::metadata) fn zone_of(&self, entry: &MapEntry) -> Option<u32> {
        match entry {
            MapEntry::Preallocated { .. } => None,
            MapEntry::At { zone, .. } => Some(*zone),
            MapEntry::Shared { extent, .. } => Some(self.peek(*extent)?.zone),
        }
    }

    /// Whether the shared extents that a file names from a block on are in memory.
    pub(in crate::furrow::metadata) fn has_all_of(&self, file: &File, first: u64) -> bool {
        let mut shared = file.overlapping(first, u64::MAX);
        shared.all(|(_, entry)| match *entry {
            MapEntry::Shared { extent, .. } => self.find(extent).is_ok(),
            MapEntry::Preallocated { .. } | MapEntry::At { .. } => true,
        })
    }

    /// The row of an extent that the caller has loaded.
    pub(in crate::furrow::metadata) fn row(&self, id: ExtentId) -> Value {
        self.get(id).map(encode_extent)
    }

    fn mark(&self, id: ExtentId, rows: &mut ChangedRows) {
        rows.mark(Key::new(RowKind::Extent, id.0, 0), || self.row(id));
    }

    /// Changes the place of its blocks. Returns their old zone; `None` if it is deleted.
    pub(in crate::furrow::metadata) fn relocate(
        &mut self,
        id: ExtentId,
        zone: u32,
        block: u32,
        rows: &mut ChangedRows,
    ) -> Option<u32> {
        self.mark(id, rows);
        let extent = self.get_mut(id)?;
        extent.block = block;
        Some(std::mem::replace(&mut extent.zone, zone))
    }

    /// Keeps it in memory for a buffered block that is to replace one of its blocks.
    pub(in crate::furrow::metadata) fn keep_below(&mut self, id: ExtentId) {
        *self.below_buffered.entry(id).or_default() += 1;
    }

    /// Takes back one [`keep_below`](Self::keep_below).
    pub(in crate::furrow::metadata) fn let_go_below(&mut self, id: ExtentId) {
        if let Some(blocks) = self.below_buffered.get_mut(&id) {
            *blocks -= 1;
            if *blocks == 0 {
                self.below_buffered.remove(&id);
            }
        }
    }

    /// Numbers of those in memory from one on.
    pub(in crate::furrow::metadata) fn ids_from(
        &self,
        id: ExtentId,
    ) -> impl Iterator<Item = ExtentId> {
        self.loaded.range(id..).map(|(&id, _)| id)
    }

    /// Removes an unchanged extent from memory and returns it, unless it was used from the load
    /// `kept_from` on.
    pub(in crate::furrow::metadata) fn evict(
        &mut self,
        id: ExtentId,
        kept_from: u64,
    ) -> Option<Extent> {
        let is_needed = self.below_buffered.contains_key(&id);
        let is_recent = self.loaded.get(&id).is_none_or(|extent| extent.used >= kept_from);
        if is_needed || is_recent { None } else { self.loaded.remove(&id) }
    }

    /// Readers of the table no longer find it.
    pub(in crate::furrow::metadata) fn forget_deleted(&mut self, id: ExtentId) {
        self.deleted.remove(&id);
    }
}

#[cfg(test)]
mod tests {
    use zonal::ByteCount;

    use super::*;
    use crate::furrow::sample::formatted;
    use crate::furrow::{DataCheck, Eviction, Furrow, MountOptions, check};
    use crate::vfs::{Caller, FileKind, FileSystem, Ino, NewInode, WriteFlags};

    const ID: ExtentId = ExtentId(7);

    fn extents(refs: u32) -> SharedExtents {
        let mut extents = SharedExtents::default();
        let extent = Extent { zone: 3, block: 1, refs, crcs: [1, 2][..].into(), used: 5 };
        extents.insert(ID, extent, &mut ChangedRows::default());
        extents
    }

    #[test]
    fn shared_extent_stays_deleted_until_table_agrees() {
        let (mut extents, mut rows) = (extents(1), ChangedRows::default());
        let Released::Deleted(extent) = extents.release(ID, &mut rows) else {
            panic!("it was the last")
        };
        assert!(matches!(extents.find(ID), Ok(None)));
        assert!(!extents.enter(ID, extent, 0), "an older row does not bring it back");
        assert!(
            matches!(extents.release(ID, &mut rows), Released::Stays),
            "a drive counted too few"
        );
        extents.forget_deleted(ID);
        assert!(matches!(extents.find(ID), Err(Stop::NotLoaded(Missing::Extent(ID)))));
    }

    #[test]
    fn shared_extent_below_buffered_blocks_stays_loaded() {
        let mut extents = extents(2);
        (0..2).for_each(|_| extents.keep_below(ID));
        extents.let_go_below(ID);
        assert!(extents.evict(ID, u64::MAX).is_none());
        extents.let_go_below(ID);
        assert!(extents.evict(ID, 5).is_none(), "it was used then");
        assert!(extents.evict(ID, 6).is_some());
    }

    /// A write to a copy is buffered. Before it gets its place, memory is needed for others, and
    /// the shared extent below it must not go: the commit would delete the blocks that both files
    /// have.
    #[test]
    fn shared_extent_keeps_row_under_buffered_write() {
        let least = MountOptions { memory: ByteCount::new(1 << 14), ..MountOptions::default() };
        let all = MountOptions { eviction: Eviction::AtEveryLock, ..MountOptions::default() };
        for (options, others) in [(least, 2000), (all, 0)] {
            let (drive, clock) = formatted(60, 200);
            let mount = || Furrow::mount(drive.clone(), clock.clone(), options).unwrap();
            let fs = mount();
            let new = NewInode { kind: FileKind::Regular, perm: 0o644, rdev: 0, target: b"" };
            let create = |name: &[u8]| fs.create(&Caller::ROOT, Ino::ROOT, name, &new).unwrap().ino;
            let (original, copy) = (create(b"original"), create(b"copy"));
            fs.write(original, 0, &[7; 8192], WriteFlags::empty()).unwrap();
            let copied = fs.copy_range((original, 0), (copy, 0), 8192, WriteFlags::empty());
            assert_eq!(copied.unwrap(), 8192);
            let others: Vec<Ino> = (0..others).map(|n| create(format!("{n}").as_bytes())).collect();
            fs.shutdown().unwrap();
            drop(fs);
            let fs = mount();
            fs.write(copy, 5, b"eleven bytes", WriteFlags::empty()).unwrap();
            for other in others {
                fs.getattr(other).unwrap();
            }
            fs.sync().unwrap();
            let mut data = [0; 8192];
            fs.read(original, 0, &mut data).unwrap();
            assert_eq!(data, [7; 8192]);
            data[5..17].copy_from_slice(b"eleven bytes");
            let mut found = [0; 8192];
            fs.read(copy, 0, &mut found).unwrap();
            assert_eq!(found, data);
            drop(fs);
            let report = check(drive, DataCheck::Read, &mut |_| ()).unwrap();
            assert!(report.is_clean(), "{report:?}");
        }
    }

    #[test]
    #[should_panic(expected = "not loaded")]
    fn shared_extent_count_change_needs_it_loaded() {
        let mut extents = extents(2);
        extents.evict(ID, u64::MAX);
        extents.release(ID, &mut ChangedRows::default());
    }
}
