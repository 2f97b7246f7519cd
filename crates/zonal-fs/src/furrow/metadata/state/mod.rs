//! The state: steps that cross the parts of the metadata.
//!
//! A step that changes a row marks it first ([`State::mark`]), then changes the part that has the
//! content, and counts what that adds: in the totals, in memory, in the live blocks of a zone.

pub(in crate::furrow) mod buffer;
pub(in crate::furrow) mod commit;
pub(in crate::furrow) mod discard;
pub(in crate::furrow) mod enter;
pub(in crate::furrow) mod entries;
pub(in crate::furrow) mod evict;
pub(in crate::furrow) mod mapping;
pub(in crate::furrow) mod relocation;
pub(in crate::furrow) mod sums;
pub(in crate::furrow) mod target;
pub(in crate::furrow) mod truncation;

use zonal_placement::learned::Learned;

use crate::FsError;
use crate::furrow::metadata::directory::names::{NameKey, NameRules};
use crate::furrow::metadata::inode::Inode;
use crate::furrow::metadata::inode::inodes::Inodes;
use crate::furrow::metadata::map::{File, Maps};
use crate::furrow::metadata::missing::{Lookup, Missing, Stop};
use crate::furrow::metadata::residency::Residency;
use crate::furrow::metadata::rows::ChangedRows;
use crate::furrow::options::Eviction;
use crate::furrow::planted::{Planted, mistake};
use crate::furrow::sync::UnderLock;
use crate::furrow::table::key::RowKind;
use crate::furrow::zones::Zones;
use crate::vfs::Ino;

/// The metadata in memory: all changes since the last commit, and a cache of the rest.
///
/// Each part owns its fields. Methods of the state keep the rules between two parts.
#[derive(Debug)]
pub(in crate::furrow) struct State {
    pub(in crate::furrow) inodes: Inodes,
    pub(in crate::furrow) maps: Maps,
    pub(in crate::furrow) names: NameRules,
    pub(in crate::furrow) rows: ChangedRows,
    pub(in crate::furrow) residency: Residency,
    pub(in crate::furrow) zones: Zones,
    /// Lives and sizes of deleted files, which predict the lives and sizes of new files.
    learned: Learned,
    pub(in crate::furrow) planted: Planted,
}

impl UnderLock for State {}

impl State {
    pub(in crate::furrow) fn new(zones: Zones, key: NameKey) -> Self {
        Self {
            inodes: Inodes::default(),
            maps: Maps::default(),
            names: NameRules::new(key, zones.zone_blocks()),
            rows: ChangedRows::default(),
            residency: Residency::default(),
            zones,
            learned: Learned::default(),
            planted: Planted::default(),
        }
    }

    /// This state, as a mount with these options uses it.
    pub(in crate::furrow) fn with_options(mut self, planted: Planted, eviction: Eviction) -> Self {
        self.planted = planted;
        self.residency.set_policy(eviction);
        self
    }

    /// The planted mistakes, and the eviction policy.
    pub(in crate::furrow) fn options(&self) -> (Planted, Eviction) {
        (self.planted, self.residency.policy())
    }

    /// Looks up an inode: `NotFound` if it is deleted, `NotLoaded` if it is not in memory.
    pub(in crate::furrow) fn inode(&self, ino: Ino) -> Lookup<&Inode> {
        match self.inodes.peek(ino) {
            Some(inode) if self.inodes.awaits_removal(ino, inode) => Err(FsError::NotFound.into()),
            Some(inode) => {
                inode.used.note(self.residency.loads.count());
                Ok(inode)
            }
            None => self.inodes.stored(ino),
        }
    }

    pub(in crate::furrow) fn inode_mut(&mut self, ino: Ino) -> Lookup<&mut Inode> {
        self.inode(ino)?;
        Ok(self.inodes.peek_mut(ino).expect("just seen"))
    }

    /// Looks up a file whose map entries in `first..limit` are in memory, with the shared extents
    /// that they name. None of these blocks has an entry that a discard has left behind.
    pub(in crate::furrow) fn mapped_file(&self, ino: Ino, first: u64, limit: u64) -> Lookup<&File> {
        self.maps.discards.check(ino, first..limit)?;
        self.resident_file(ino, first, limit)
    }

    /// As [`mapped_file`](Self::mapped_file), also where the file was discarded.
    pub(in crate::furrow) fn resident_file(
        &self,
        ino: Ino,
        first: u64,
        limit: u64,
    ) -> Lookup<&File> {
        let file = self.inode(ino)?.file()?;
        if let Some(block) = file.resident.first_missing(first..limit) {
            return Err(Stop::NotLoaded(Missing::Map(ino, block)));
        }
        for (_, entry) in file.overlapping(first, limit) {
            self.maps.shared.check(ino, &entry)?;
        }
        Ok(file)
    }

    /// An inode that the caller is about to change. Marks its row.
    pub(in crate::furrow) fn change_inode(&mut self, ino: Ino) -> Lookup<&mut Inode> {
        self.inode(ino)?;
        self.mark(RowKind::Inode, ino.get(), 0);
        self.inode_mut(ino)
    }

    /// Enters a new inode.
    pub(in crate::furrow) fn insert_inode(&mut self, ino: Ino, inode: Inode) {
        self.rows.totals.add_inode();
        self.rows.totals.add_row_bytes(inode.row_bytes());
        self.residency.count(0, inode.held_bytes());
        inode.used.note(self.residency.loads.advance());
        self.mark(RowKind::Inode, ino.get(), 0);
        for slot in inode.xattrs.slots() {
            self.mark(RowKind::Xattr, ino.get(), slot);
        }
        self.inodes.insert(ino, inode);
    }

    /// Removes an inode with its content and attributes.
    pub(in crate::furrow) fn remove_inode(&mut self, ino: Ino) {
        if self.inodes.peek_file(ino).is_some() {
            self.unmap(ino, 0, u64::MAX);
            self.maps.discards.cut(ino, 0..u64::MAX, &mut self.rows);
        }
        let Some(inode) = self.inodes.peek(ino) else { return };
        let slots: Vec<u64> = inode.xattrs.slots().collect();
        self.mark(RowKind::Inode, ino.get(), 0);
        for slot in slots {
            self.mark(RowKind::Xattr, ino.get(), slot);
        }
        let inode = self.inodes.delete(ino).expect("just seen");
        self.rows.totals.remove_inode();
        self.rows.totals.remove_row_bytes(inode.row_bytes());
        self.residency.count(inode.held_bytes(), 0);
        self.maps.buffered.remove(ino);
        if self.inodes.lives.remove(ino) {
            self.mark_orphan(ino);
        }
    }

    /// Deletes an inode of which memory knows nothing. For tests.
    #[cfg(test)]
    pub(in crate::furrow) fn delete_unknown(&mut self, ino: Ino) {
        self.inodes.delete(ino);
        self.mark(RowKind::Inode, ino.get(), 0);
    }

    /// Marks the row that tells recovery to remove an inode, or to finish its truncation.
    pub(in crate::furrow) fn mark_orphan(&mut self, ino: Ino) {
        self.rows.mark_base(RowKind::Orphan, ino.get(), 0);
    }

    /// An inode has got a link. If it was a file without a name, recovery is not to delete it any
    /// more.
    pub(in crate::furrow) fn note_linked(&mut self, ino: Ino) {
        let mut has_ended = self.inodes.lives.end_unnamed(ino);
        mistake!(self, LinkStaysOrphan, has_ended = false);
        if has_ended {
            self.inodes.lives.remove_unlinked(ino);
            self.mark_orphan(ino);
        }
    }

    /// Sets or, with `None`, removes an extended attribute.
    pub(in crate::furrow) fn set_xattr(
        &mut self,
        ino: Ino,
        name: &[u8],
        value: Option<&[u8]>,
    ) -> Lookup<()> {
        let slot = self.inode(ino)?.xattrs.slot_of(name);
        self.mark(RowKind::Xattr, ino.get(), slot);
        let xattrs = &mut self.inode_mut(ino)?.xattrs;
        let (held, rows) = (xattrs.held_bytes(), xattrs.row_bytes());
        xattrs.set(name, value);
        let (held_now, rows_now) = (xattrs.held_bytes(), xattrs.row_bytes());
        self.residency.count(held, held_now);
        self.rows.totals.add_row_bytes(rows_now);
        self.rows.totals.remove_row_bytes(rows);
        self.rows.batch.add_bytes(value.map_or(0, <[u8]>::len));
        Ok(())
    }

    /// Deletes an inode without links, now or in steps, unless it has a user.
    pub(in crate::furrow) fn delete_if_unused(&mut self, ino: Ino) {
        if self.inodes.peek(ino).is_none_or(|inode| inode.nlink > 0) {
            return;
        }
        let mut is_pinned = self.inodes.lives.is_pinned(ino);
        mistake!(self, DeletePinned, is_pinned = false);
        if is_pinned {
            self.inodes.lives.add_unlinked(ino);
            self.mark_orphan(ino);
        } else if self.is_deleted_in_steps(ino) {
            self.inodes.lives.remove_unlinked(ino);
            self.begin_truncation(ino, 0);
        } else {
            self.remove_inode(ino);
        }
    }
}
