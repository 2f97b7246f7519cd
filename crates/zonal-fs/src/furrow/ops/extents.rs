//! Extents of files: one pass over the rows of inodes and of their maps, which are in the order of
//! inodes and blocks.

use crate::FsError;
use crate::furrow::Furrow;
use crate::furrow::format::row::{Place, Row, decode};
use crate::furrow::format::{Address, BLOCK_BYTES};
use crate::furrow::table::key::{Key, KeySpan, RowKind};
use crate::furrow::table::view::Refused;
use crate::rules::FILE_SIZE_MAX;
use crate::vfs::{FileExtent, Ino, Listing, Result};

/// Rows that one read returns.
const ROWS_AT_ONCE: usize = 1024;

const BLOCK: u64 = BLOCK_BYTES as u64;

/// A pass over the rows of some inodes.
struct Pass<'a> {
    fs: &'a Furrow,
    start: (Ino, u64),
    /// The inode whose row came last, and the block behind the last one that belongs to it: blocks
    /// behind that wait to be freed.
    limit: (u64, u64),
    /// The last extent: later ones may go on where it ends.
    pending: Option<FileExtent>,
    each: &'a mut dyn FnMut(FileExtent) -> Listing,
}

impl Furrow {
    /// [`FileSystem::extents`](crate::vfs::FileSystem::extents). Leaves out rows that are lost.
    pub(super) fn list_extents(
        &self,
        start: (Ino, u64),
        end: Ino,
        each: &mut dyn FnMut(FileExtent) -> Listing,
    ) -> Result<()> {
        let (first, offset) = start;
        let inode = Key::new(RowKind::Inode, first.get(), 0);
        let mut from = Key::new(RowKind::Map, first.get(), offset / BLOCK);
        let end = Key::new(RowKind::Inode, end.get(), 0);
        let mut pass = Pass { fs: self, start, limit: (0, 0), pending: None, each };
        if let Some(value) = self.row_unless_lost(inode)? {
            pass.add(inode, &value)?;
        }
        while from < end {
            let found = match self.tree.rows(from, end, ROWS_AT_ONCE) {
                Ok(found) => found,
                Err(error) => {
                    let rest = KeySpan::new(from, end);
                    let past = self.tree.view.past_lost(&self.drive, rest, Refused::MayReturn);
                    from = past.filter(|past| *past > from).ok_or(error)?;
                    continue;
                }
            };
            for (key, value) in &found.rows {
                if pass.add(*key, value)? == Listing::Enough {
                    return Ok(());
                }
            }
            from = found.end;
        }
        if let Some(last) = pass.pending {
            (pass.each)(last);
        }
        Ok(())
    }

    /// A row; `None` if there is none, or it is lost.
    fn row_unless_lost(&self, key: Key) -> Result<Option<Box<[u8]>>> {
        let past = || self.tree.view.past_lost(&self.drive, KeySpan::of(key), Refused::MayReturn);
        match self.tree.row(key) {
            Err(_) if past().is_some() => Ok(None),
            found => found,
        }
    }

    /// The place of a map row; `None` if it has none, or has lost it.
    fn place_of(&self, place: &Place<'_>) -> Result<Option<(Address, bool)>> {
        match place {
            Place::Preallocated => Ok(None),
            Place::Zone(place, _) => Ok(Some((place.address(), false))),
            Place::Shared(place, _) => {
                let key = Key::new(RowKind::Extent, place.extent.get(), 0);
                let Some(value) = self.row_unless_lost(key)? else { return Ok(None) };
                let Row::Extent(row, _) = decode(key, &value).map_err(corrupt)? else {
                    return Ok(None);
                };
                let block = row.block.get().saturating_add(place.skip.get());
                Ok(Some((Address { zone: row.zone.get(), block }, true)))
            }
        }
    }
}

fn corrupt(why: impl Into<String>) -> FsError {
    FsError::Corrupt { what: "table", why: why.into() }
}

impl Pass<'_> {
    /// Takes a row.
    fn add(&mut self, key: Key, value: &[u8]) -> Result<Listing> {
        let fs = self.fs;
        if !matches!(key.kind(), RowKind::Inode | RowKind::Map) || fs.tree.is_lost_piece(value) {
            return Ok(Listing::More);
        }
        match decode(key, value).map_err(corrupt)? {
            Row::Inode(row, _) => {
                let size = row.size.get().div_ceil(BLOCK);
                let is_deleted = row.nlink.get() == 0;
                let kept = row.truncate_from().map(|from| if is_deleted { 0 } else { from });
                self.limit = (key.owner(), kept.map_or(size, |kept| kept.min(size)));
                Ok(Listing::More)
            }
            Row::Map(blocks, place) => {
                let end = key.at().checked_add(blocks.into()).filter(|_| blocks > 0);
                let end = end.filter(|end| *end <= FILE_SIZE_MAX.div_ceil(BLOCK));
                let why = "a map row has no blocks, or blocks behind the end of the largest file";
                let end = end.ok_or_else(|| corrupt(why))?;
                let Some(found) = fs.place_of(&place)? else { return Ok(Listing::More) };
                let limit = if self.limit.0 == key.owner() { self.limit.1 } else { u64::MAX };
                Ok(self.add_blocks(Ino::new(key.owner()), key.at()..end.min(limit), found))
            }
            _ => Ok(Listing::More),
        }
    }

    /// Takes the blocks of a file at a place, without discarded ones.
    fn add_blocks(
        &mut self,
        ino: Ino,
        blocks: std::ops::Range<u64>,
        (at, shared): (Address, bool),
    ) -> Listing {
        let first = blocks.start;
        let shown: Vec<_> = {
            let state = self.fs.tree.read_state();
            state.maps.discards.shown(ino, blocks).collect()
        };
        for part in shown.into_iter().filter(|part| !part.is_empty()) {
            let extent = FileExtent {
                ino,
                offset: part.start * BLOCK,
                len: (part.end - part.start) * BLOCK,
                zone: zonal::ZoneId::new(at.zone),
                zone_offset: (u64::from(at.block) + part.start - first) * BLOCK,
                shared,
            };
            if (ino, extent.offset) >= self.start && self.take(extent) == Listing::Enough {
                return Listing::Enough;
            }
        }
        Listing::More
    }

    /// Joins an extent to the last one, or passes that on.
    fn take(&mut self, next: FileExtent) -> Listing {
        let joined = self.pending.and_then(|last| last.joined(&next));
        let before = self.pending.replace(joined.unwrap_or(next));
        match before {
            Some(before) if joined.is_none() => (self.each)(before),
            Some(_) | None => Listing::More,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::furrow::MountOptions;
    use crate::furrow::sample::formatted;
    use crate::vfs::{Allocate, Caller, FileKind, FileSystem, NewInode, SetAttr, WriteFlags};

    #[test]
    fn extents_leave_out_blocks_that_wait_to_be_freed() {
        let (drive, clock) = formatted(64, 1024);
        let fs = Furrow::mount(drive, clock, MountOptions::default()).unwrap();
        // The worker of a mount or a volume, which does nothing here.
        fs.on_work(std::sync::Arc::new(|| ()));
        let new = NewInode { kind: FileKind::Regular, perm: 0o600, rdev: 0, target: b"" };
        let ino = fs.create(&Caller::ROOT, Ino::ROOT, b"file", &new).unwrap().ino;
        // Each block has a map entry of its own, so that most of them wait to be removed.
        for block in (0..16 * 256).rev() {
            fs.write(ino, block * BLOCK, &[1; BLOCK_BYTES], WriteFlags::DIRECT).unwrap();
        }
        let bytes = || {
            fs.sync().unwrap();
            let mut bytes = 0;
            let each = &mut |extent: FileExtent| {
                bytes += extent.len;
                Listing::More
            };
            fs.extents((Ino::ROOT, 0), Ino::new(1 << 63), each).unwrap();
            bytes / BLOCK
        };
        assert_eq!(bytes(), 16 * 256);
        fs.fallocate(ino, Allocate::PunchLater, BLOCK, 2000 * BLOCK).unwrap();
        assert_eq!(bytes(), 16 * 256 - 2000);
        let set = SetAttr { size: Some(3000 * BLOCK), ..SetAttr::default() };
        fs.setattr(&Caller::ROOT, ino, &set).unwrap();
        assert_eq!(bytes(), 1000);
        let mut found = Vec::new();
        let each = &mut |extent: FileExtent| {
            found.push(extent.offset / BLOCK);
            Listing::More
        };
        fs.extents((ino, 2500 * BLOCK), Ino::new(ino.get() + 1), each).unwrap();
        assert!(found.iter().all(|block| *block >= 2500) && !found.is_empty(), "{found:?}");
    }
}
