//! Truncation in memory: entries that are removed at once, and entries that wait to be removed in
//! steps.
//!
//! [`truncate`](crate::furrow::truncate) does the steps.

use crate::FsError;
use crate::furrow::metadata::State;
use crate::furrow::metadata::map::block_map::EntryRef;
use crate::furrow::metadata::missing::{Lookup, Missing, Stop};
use crate::furrow::options::Eviction;
use crate::furrow::planted::mistake;
use crate::furrow::table::key::RowKind;
use crate::vfs::Ino;

/// Map entries that one step removes: well under a millisecond's work. A file with no more than
/// these needs only one step. On small drives the number is smaller, so that they take steps too.
pub(in crate::furrow) const ENTRIES_MAX: usize = 1024;

impl State {
    /// Checks that the map entries which [`begin_truncation`](Self::begin_truncation) needs are
    /// resident.
    pub(in crate::furrow) fn check_truncation(&self, ino: Ino, first: u64) -> Lookup<()> {
        let file = self.inode(ino)?.file()?;
        let from = file.truncate_from.map_or(first, |before| before.min(first));
        self.check_waiting(ino, from)
    }

    /// Checks that the map entries which the next step removes are resident: those from a block on,
    /// one step's worth or all that there are.
    fn check_waiting(&self, ino: Ino, first: u64) -> Lookup<()> {
        self.waiting(ino, first)?.try_for_each(|(_, entry)| self.maps.shared.check(ino, &entry))
    }

    /// These entries, of which memory may lack the shared extents.
    pub(in crate::furrow) fn waiting(
        &self,
        ino: Ino,
        first: u64,
    ) -> Lookup<impl Iterator<Item = (u64, EntryRef<'_>)>> {
        let file = self.inodes.stored(ino)?.file()?;
        let end = file.resident.end_of(first).unwrap_or(first);
        let has_enough = file.map.range(first..end).nth(self.step_entries_max() + 1).is_some();
        if end < u64::MAX && !has_enough {
            return Err(Stop::NotLoaded(Missing::Map(ino, end)));
        }
        Ok(file.overlapping(first, end).take(self.step_entries_max() + 2))
    }

    /// Removes the blocks of a file from `first` on: few at once, many in later steps.
    pub(in crate::furrow) fn begin_truncation(&mut self, ino: Ino, first: u64) {
        self.drop_buffered(ino, first, u64::MAX);
        self.maps.discards.cut(ino, first..u64::MAX, &mut self.rows);
        let max = self.step_entries_max();
        let Some(file) = self.inodes.peek_file(ino) else { return };
        let is_known = file.resident.first_missing(first..u64::MAX).is_none();
        if file.truncate_from.is_none()
            && is_known
            && self.maps.shared.has_all_of(file, first)
            && file.map.range(first..u64::MAX).nth(max).is_none()
        {
            self.unmap_stored(ino, first, u64::MAX);
            return;
        }
        self.mark_truncating(ino);
        // A step may have failed for a reason that this ends.
        self.inodes.lives.end_pause(ino);
        let Some(file) = self.inodes.file_mut(ino) else { return };
        file.truncate_from = Some(file.truncate_from.map_or(first, |before| before.min(first)));
        let covering = file.covering(first).filter(|(start, _)| *start < first);
        let end = covering.map(|(start, entry)| start + u64::from(entry.blocks()));
        if let Some(end) = end {
            self.unmap_stored(ino, first, end);
        }
    }

    /// Removes one step's worth of a file's remaining entries, and at the end an unused file.
    pub(in crate::furrow) fn truncate_step(&mut self, ino: Ino) -> Lookup<()> {
        if !self.inodes.lives.is_truncating(ino) {
            // Another thread has finished it.
            return Ok(());
        }
        let max = self.step_entries_max();
        let file = self.inodes.stored(ino)?.file().ok();
        let Some(first) = file.and_then(|file| file.truncate_from) else {
            // The mount has found it: it was open without a link.
            self.inodes.lives.end_truncation(ino);
            self.mark_orphan(ino);
            self.delete_if_unused(ino);
            return Ok(());
        };
        let inode = self.inodes.stored(ino)?;
        let is_linked = inode.nlink > 0;
        if is_linked {
            inode.check_shown(ino, inode.block_end())?;
        }
        self.check_waiting(ino, first)?;
        let file = self.inodes.stored(ino)?.file()?;
        let mut waiting = file.map.range(first..u64::MAX);
        let last = waiting.nth(max - 1).map(|(start, entry)| start + u64::from(entry.blocks()));
        if let Some(limit) = last
            && waiting.next().is_some()
        {
            self.unmap_stored(ino, first, limit);
            if is_linked && let Some(file) = self.inodes.file_mut(ino) {
                file.truncate_from = Some(limit);
            }
            return Ok(());
        }
        self.unmap_stored(ino, first, u64::MAX);
        self.mark_truncating(ino);
        self.inodes.lives.end_truncation(ino);
        if let Some(file) = self.inodes.file_mut(ino) {
            file.truncate_from = None;
        }
        self.delete_if_unused(ino);
        Ok(())
    }

    /// Whether entries below `limit` of a file are still to be removed.
    pub(in crate::furrow) fn awaits_truncation(&self, ino: Ino, limit: u64) -> bool {
        let Some(inode) = self.inodes.peek(ino) else {
            return self.inodes.lives.is_truncating(ino);
        };
        let from = inode.file().ok().and_then(|file| file.truncate_from);
        mistake!(self, GrowOverFailed, {
            if self.inodes.lives.failed().has(ino) {
                return false;
            }
        });
        from.is_some_and(|from| from < limit)
    }

    /// Checks, before a file grows to `limit`, that no data is mapped between its end and there. A
    /// damaged map would show old content.
    pub(in crate::furrow) fn check_growth_over(&self, ino: Ino, limit: u64) -> Lookup<()> {
        let inode = self.inode(ino)?;
        let (file, end) = (inode.file()?, inode.block_end());
        mistake!(self, GrowOverFailed, return Ok(()));
        if limit <= end {
            return Ok(());
        }
        if let Some(block) = file.resident.first_missing(end..limit) {
            return Err(Stop::NotLoaded(Missing::Map(ino, block)));
        }
        if file.overlapping(end, limit).all(|(_, entry)| entry.is_preallocated()) {
            return Ok(());
        }
        let why = format!("inode {ino} has data beyond its end at block {end}");
        Err(FsError::Corrupt { what: "map", why }.into())
    }

    /// Ends the removal of an inode that has no row.
    pub(in crate::furrow) fn end_orphan(&mut self, ino: Ino) {
        self.inodes.lives.end_truncation(ino);
        self.mark_orphan(ino);
    }

    /// Whether steps delete a file: it is large, or memory lacks something of its map.
    pub(super) fn is_deleted_in_steps(&self, ino: Ino) -> bool {
        let file = self.inodes.peek_file(ino);
        file.is_some_and(|file| {
            file.truncate_from.is_some()
                || file.map.len() > self.step_entries_max()
                || !file.resident.is_all()
                || !self.maps.shared.has_all_of(file, 0)
        })
    }

    fn mark_truncating(&mut self, ino: Ino) {
        self.inodes.lives.begin_truncation(ino);
        self.mark_orphan(ino);
        self.mark(RowKind::Inode, ino.get(), 0);
    }

    pub(super) fn step_entries_max(&self) -> usize {
        match self.residency.policy() {
            Eviction::ByNeed => ENTRIES_MAX.min(self.zones.zone_blocks() as usize),
            // So that the small files of tests take several steps too.
            Eviction::AtEveryLock => 2,
        }
    }
}
