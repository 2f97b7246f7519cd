//! Fetching: reads rows from the table and decodes them into parts of the
//! [`State`](crate::furrow::metadata::State).
//!
//! Each function reads the rows for one [`Missing`] and some of their neighbours: an operation that
//! needs one block of a map, or one entry, often needs the next ones too. Rows are checked here, so
//! that nothing in memory can lie outside a zone or overlap.

use std::ops::{ControlFlow, Range};

use crate::FsError;
use crate::furrow::format::row::{Row, decode, zone_place_of};
use crate::furrow::format::{Address, BLOCK_BYTES};
use crate::furrow::metadata::directory::FoundEntry;
use crate::furrow::metadata::directory::names::NameKey;
use crate::furrow::metadata::directory::row::directory_entry;
use crate::furrow::metadata::inode::row::inode_of;
use crate::furrow::metadata::map::place::MapEntry;
use crate::furrow::metadata::map::{MAP_ROWS_FIRST, row};
use crate::furrow::metadata::missing::Missing;
use crate::furrow::metadata::state::enter::Fetched;
use crate::furrow::metadata::{Body, Inode};
use crate::furrow::table::key::{Key, KeySpan, RowKind};
use crate::furrow::table::view::{FoundRow, RowWindow, Visit};
use crate::furrow::tree::Tree;
use crate::rules::{self, FILE_SIZE_MAX};
use crate::vfs::{Ino, Result};

/// Rows of an inode or a directory that one read returns: some tens of KiB.
const ROWS_MAX: usize = 1024;

/// Rows of a map that come with an inode.
pub(super) const MAP_ROWS: usize = 16;

/// A directory with this many entries or fewer comes with all of them.
const WITH_INODE_MAX: u64 = 32;

impl Tree {
    /// Reads missing metadata.
    pub(super) fn fetch(&self, missing: &Missing) -> Result<Fetched> {
        match missing {
            &Missing::Inode(ino) => {
                self.read_inode(ino).map(|inode| Fetched::Inode(Box::new(inode)))
            }
            &Missing::Map(ino, block) | &Missing::Discard(ino, block) => self.read_map(ino, block),
            &Missing::Entries(ino, cookie) => {
                let (entries, resident) = self.read_entries(ino, cookie)?;
                Ok(Fetched::Entries(entries, resident))
            }
            Missing::Name(ino, name) => {
                // A directory that has an index keeps it.
                let is_indexed = self.read_state().inodes.is_indexed(*ino);
                if is_indexed { self.read_names(*ino, name) } else { self.search(*ino, name) }
            }
            &Missing::Extent(id) => {
                let key = Key::new(RowKind::Extent, id.0, 0);
                let value = self.row(key)?.ok_or(FsError::NotFound)?;
                let Row::Extent(row, crcs) = decoded(key, &value)? else {
                    return Err(broken(key, "no extent"));
                };
                let extent = row::extent_of(&row, crcs);
                let at = Address { zone: extent.zone, block: extent.block };
                self.check_place(key, at, extent.crcs.blocks())?;
                Ok(Fetched::Extent(extent))
            }
        }
    }

    /// An inode with its attributes, and the start of its map or a small directory's entries.
    fn read_inode(&self, ino: Ino) -> Result<Inode> {
        let start = Key::new(RowKind::Inode, ino.get(), 0);
        let end = Key::new(RowKind::Name, ino.get(), 0);
        let mut found = self.rows(start, end, MAP_ROWS)?;
        while found.end < end && found.end.kind() <= RowKind::Xattr {
            let more = self.rows(found.end, end, ROWS_MAX)?;
            found.rows.extend(more.rows);
            found.end = more.end;
        }
        let mut rows = found.rows.into_iter();
        let (key, value) = rows.next().ok_or(FsError::NotFound)?;
        let Row::Inode(row, target) = decoded(key, &value)? else {
            // Rows without an inode: no entry leads to them.
            return Err(FsError::NotFound);
        };
        let mut inode = inode_of(&row, target).map_err(|(_, why)| broken(key, &why))?;
        let mut map = MapRows::default();
        for (key, value) in rows {
            match key.kind() {
                RowKind::Xattr => {
                    if let Row::Xattr(name, value) = decoded(key, &value)? {
                        inode.xattrs.enter(key.at(), name, value);
                    }
                }
                RowKind::Map if self.is_lost_piece(&value) => {
                    found.end = key;
                    break;
                }
                RowKind::Map => self.add_map_row(&mut map, key, &value)?,
                RowKind::Totals
                | RowKind::Zone
                | RowKind::Orphan
                | RowKind::Learned
                | RowKind::Discard
                | RowKind::Inode
                | RowKind::Name
                | RowKind::Entry
                | RowKind::Extent
                | RowKind::Backrefs
                | RowKind::Remap => {}
            }
        }
        match &mut inode.body {
            Body::File(file) => {
                let resident = if found.end < end { found.end.at().max(map.end) } else { u64::MAX };
                file.enter(map.entries, 0..resident);
            }
            Body::Directory(directory)
                if directory.index.is_none() && directory.entries <= WITH_INODE_MAX =>
            {
                let (entries, resident) = self.read_entries(ino, 0)?;
                directory.enter(entries, resident, NameKey::of(self.uuid));
            }
            Body::Directory(_) | Body::Symlink(_) | Body::Special => {}
        }
        Ok(inode)
    }

    /// The map entry that covers a block, and those behind it.
    fn read_map(&self, ino: Ino, block: u64) -> Result<Fetched> {
        let key = |at| Key::new(RowKind::Map, ino.get(), at);
        let state = self.read_state();
        let wanted =
            state.inodes.peek_file(ino).map_or(MAP_ROWS_FIRST, |file| file.rows_wanted(block));
        drop(state);
        let (mut map, mut lost) = (MapRows::default(), None);
        let end = self.visit(key(block), key(u64::MAX), wanted, &mut |key, value| {
            if !map.entries.is_empty() && self.is_lost_piece(value) {
                lost = Some(key);
                return Ok(ControlFlow::Break(()));
            }
            self.add_map_row(&mut map, key, value)?;
            Ok(ControlFlow::Continue(()))
        })?;
        let end = lost.unwrap_or(end);
        let mut start = block;
        let first = map.entries.first().map_or(u64::MAX, |(first, _)| *first);
        // If no entry begins at the block, the one before may cover it.
        if first > block {
            let below = block.checked_sub(1).map(key);
            let before = below.map_or(Ok(None), |below| self.last_row(key(0), below))?;
            start = before.as_ref().map_or(0, |(key, _)| key.at());
            if let Some((key, value)) = &before {
                let mut before = MapRows::default();
                self.add_map_row(&mut before, *key, value)?;
                if first < before.end {
                    return Err(broken(*key, "it overlaps the entry behind it"));
                }
                map.entries.splice(0..0, before.entries);
                map.end = map.end.max(before.end);
            }
        }
        // The last entry counts up to its end, not only up to the key of its row. It may be the one
        // before the block: the rows behind may all be deleted ones.
        let end = if end < key(u64::MAX) { end.at().max(map.end) } else { u64::MAX };
        Ok(Fetched::Map { entries: map.entries, resident: start..end, wanted })
    }

    /// Entries of a directory from a cookie on.
    fn read_entries(&self, ino: Ino, cookie: u64) -> Result<(Vec<FoundEntry>, Range<u64>)> {
        let key = |at| Key::new(RowKind::Entry, ino.get(), at);
        let found = self.rows(key(cookie), key(u64::MAX), ROWS_MAX)?;
        let rows = found.rows.iter();
        let entries = rows.map(|(key, value)| entry_of_row(*key, value)).collect::<Result<_>>()?;
        let end = if found.end < key(u64::MAX) { found.end.at() } else { u64::MAX };
        Ok((entries, cookie..end))
    }

    /// The entry with a name, by a search through a directory without an index.
    fn search(&self, ino: Ino, name: &[u8]) -> Result<Fetched> {
        let key = |at| Key::new(RowKind::Entry, ino.get(), at);
        let (mut from, mut found) = (key(0), None);
        while found.is_none() && from < key(u64::MAX) {
            from = self.visit(from, key(u64::MAX), ROWS_MAX, &mut |key, value| {
                // The name is the last thing in the row.
                if value.ends_with(name) {
                    let (other, entry) = entry_of_row(key, value)?;
                    if *other == *name {
                        found = Some((other, entry));
                        return Ok(ControlFlow::Break(()));
                    }
                }
                Ok(ControlFlow::Continue(()))
            })?;
        }
        Ok(Fetched::Name(found))
    }

    /// The entries of an indexed directory whose names have the same hash as this name.
    fn read_names(&self, ino: Ino, name: &[u8]) -> Result<Fetched> {
        let name_key = NameKey::of(self.uuid);
        let hash = name_key.hash(name);
        let key = Key::new(RowKind::Name, ino.get(), hash);
        let mut entries = Vec::new();
        if let Some(value) = self.row(key)? {
            let Row::Name(cookies) = decoded(key, &value)? else {
                return Err(broken(key, "no names"));
            };
            for cookie in cookies {
                let at = Key::new(RowKind::Entry, ino.get(), cookie.get());
                let value = self.row(at)?.ok_or_else(|| broken(key, "an entry is not there"))?;
                let (name, entry) = entry_of_row(at, &value)?;
                if name_key.hash(&name) != hash {
                    return Err(broken(key, "an entry has another hash"));
                }
                entries.push((name, entry));
            }
        }
        Ok(Fetched::Names(entries, hash))
    }

    /// Adds the map entry of a row, if it lies in a zone and behind the entry before.
    fn add_map_row(&self, map: &mut MapRows, key: Key, value: &[u8]) -> Result<()> {
        let Row::Map(blocks, place) = decoded(key, value)? else {
            return Err(broken(key, "no map entry"));
        };
        let entry = row::entry_of(blocks, &place);
        let limit = FILE_SIZE_MAX.div_ceil(BLOCK_BYTES as u64);
        let end = key.at().checked_add(u64::from(blocks)).filter(|end| blocks > 0 && *end <= limit);
        let end = end.ok_or_else(|| broken(key, "no blocks, or behind the largest file's end"))?;
        if key.at() < map.end {
            return Err(broken(key, "it overlaps the entry before it"));
        }
        if let MapEntry::At { zone, block, .. } = &entry {
            self.check_place(key, Address { zone: *zone, block: *block }, blocks)?;
        }
        if self.is_lost_piece(value) {
            return Err(broken(key, "its blocks were moved, and no copy says where to"));
        }
        map.end = end;
        map.entries.push((key.at(), entry));
        Ok(())
    }

    fn check_place(&self, key: Key, at: Address, blocks: u32) -> Result<()> {
        let Address { zone, block } = at;
        let layout = self.layout();
        let is_zone = layout.is_on_data_drive(zone) && !layout.is_superblock(zone);
        let fits =
            is_zone && block.checked_add(blocks).is_some_and(|end| end <= layout.capacity(zone));
        if fits && blocks > 0 { Ok(()) } else { Err(broken(key, "blocks that no zone has")) }
    }
}

impl Tree {
    /// Rows from `from` on and below `below`, at most `max` of them: see
    /// [`View::rows`](crate::furrow::table::view::View::rows).
    pub(in crate::furrow) fn rows(&self, from: Key, below: Key, max: usize) -> Result<RowWindow> {
        self.view.rows(&self.drive, KeySpan::new(from, below), max)
    }

    /// Calls `each` with these rows one by one: see
    /// [`View::visit`](crate::furrow::table::view::View::visit).
    pub(super) fn visit(
        &self,
        from: Key,
        below: Key,
        max: usize,
        each: &mut Visit<'_>,
    ) -> Result<Key> {
        self.view.visit(&self.drive, KeySpan::new(from, below), max, each)
    }

    /// The last row from `at_least` on, up to and with `at_most`.
    pub(in crate::furrow) fn last_row(
        &self,
        at_least: Key,
        at_most: Key,
    ) -> Result<Option<FoundRow>> {
        self.view.last_row(&self.drive, at_least, at_most)
    }

    /// The value of a row.
    pub(in crate::furrow) fn row(&self, key: Key) -> Result<Option<Box<[u8]>>> {
        self.view.row(&self.drive, key)
    }

    /// Whether a map row, as readers get it, has lost its blocks with a remap table: the zone that
    /// it names has been reset since.
    pub(in crate::furrow) fn is_lost_piece(&self, value: &[u8]) -> bool {
        if !self.view.has_lost_remaps() {
            return false;
        }
        let Some((_, place)) = zone_place_of(value) else { return false };
        let zone = place.generation().zone();
        let state = self.read_state();
        state.zones.ids().contains(&zone) && state.zones.generation(zone) != place.generation()
    }
}

/// Map entries of a file, in order.
#[derive(Default)]
struct MapRows {
    entries: Vec<(u64, MapEntry)>,
    end: u64,
}

fn entry_of_row(key: Key, value: &[u8]) -> Result<FoundEntry> {
    let Row::Entry(row, name) = decoded(key, value)? else {
        return Err(broken(key, "no entry"));
    };
    rules::check_name(name).map_err(|error| broken(key, &error.to_string()))?;
    let entry = directory_entry(key.at(), &row);
    let entry = entry.ok_or_else(|| broken(key, "a kind that there is not"))?;
    Ok((name.into(), entry))
}

/// Decodes a row; the error names its key.
fn decoded(key: Key, value: &[u8]) -> Result<Row<'_>> {
    decode(key, value).map_err(|why| broken(key, &why))
}

pub(super) fn broken(key: Key, why: &str) -> FsError {
    FsError::Corrupt { what: "row", why: format!("{key:?}: {why}") }
}
