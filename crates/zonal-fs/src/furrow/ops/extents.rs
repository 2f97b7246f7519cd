//! Extents of files: one pass over the rows of maps, which are in the order of inodes and blocks.

use crate::FsError;
use crate::furrow::Furrow;
use crate::furrow::format::row::{Place, Row, decode};
use crate::furrow::format::{Address, BLOCK_BYTES};
use crate::furrow::table::key::{Key, KeySpan, RowKind};
use crate::furrow::table::view::Refused;
use crate::vfs::{FileExtent, Ino, Listing, Result};

/// Rows that one read returns.
const ROWS_AT_ONCE: usize = 1024;

const BLOCK: u64 = BLOCK_BYTES as u64;

/// Extents that go on where the last one ends become one.
struct Joiner<'a> {
    pending: Option<FileExtent>,
    each: &'a mut dyn FnMut(FileExtent) -> Listing,
}

impl Joiner<'_> {
    fn take(&mut self, next: FileExtent) -> Listing {
        let joined = self.pending.and_then(|last| last.joined(&next));
        let before = self.pending.replace(joined.unwrap_or(next));
        match before {
            Some(before) if joined.is_none() => (self.each)(before),
            Some(_) | None => Listing::More,
        }
    }
}

impl Furrow {
    /// [`FileSystem::extents`](crate::vfs::FileSystem::extents). Leaves out rows that are lost.
    pub(super) fn list_extents(
        &self,
        (first, offset): (Ino, u64),
        end: Ino,
        each: &mut dyn FnMut(FileExtent) -> Listing,
    ) -> Result<()> {
        let mut from = Key::new(RowKind::Map, first.get(), offset.div_ceil(BLOCK));
        let end = Key::new(RowKind::Inode, end.get(), 0);
        let mut joiner = Joiner { pending: None, each };
        while from < end {
            let found = match self.tree.rows(from, end, ROWS_AT_ONCE) {
                Ok(found) => found,
                Err(error) => {
                    let rest = KeySpan::new(from, end);
                    let past = self.tree.view.past_lost(&self.drive, rest, Refused::MayReturn);
                    from = past.ok_or(error)?;
                    continue;
                }
            };
            for (key, value) in &found.rows {
                if key.kind() == RowKind::Map
                    && let Some(extent) = self.extent_of(*key, value)?
                    && joiner.take(extent) == Listing::Enough
                {
                    return Ok(());
                }
            }
            from = found.end;
        }
        if let Some(last) = joiner.pending {
            (joiner.each)(last);
        }
        Ok(())
    }

    /// The extent of a map row; `None` if it has no place, or has lost it.
    fn extent_of(&self, key: Key, value: &[u8]) -> Result<Option<FileExtent>> {
        let corrupt = |why| FsError::Corrupt { what: "table", why };
        if self.tree.is_lost_piece(value) {
            return Ok(None);
        }
        let Row::Map(blocks, place) = decode(key, value).map_err(corrupt)? else {
            return Ok(None);
        };
        let (Address { zone, block }, shared) = match place {
            Place::Preallocated => return Ok(None),
            Place::Zone(place, _) => (place.address(), false),
            Place::Shared(place, _) => {
                let key = Key::new(RowKind::Extent, place.extent.get(), 0);
                let Some(value) = self.tree.row(key)? else { return Ok(None) };
                let Row::Extent(row, _) = decode(key, &value).map_err(corrupt)? else {
                    return Ok(None);
                };
                let block = row.block.get().saturating_add(place.skip.get());
                (Address { zone: row.zone.get(), block }, true)
            }
        };
        Ok(Some(FileExtent {
            ino: Ino::new(key.owner()),
            offset: key.at() * BLOCK,
            len: u64::from(blocks) * BLOCK,
            zone: zonal::ZoneId::new(zone),
            zone_offset: u64::from(block) * BLOCK,
            shared,
        }))
    }
}
