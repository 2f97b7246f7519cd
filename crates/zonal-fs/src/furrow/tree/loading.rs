//! Loading: how metadata that is not in memory gets there.
//!
//! An operation is a function of the state that looks first and changes afterwards. When it needs
//! something that is not in memory it returns [`Stop::NotLoaded`] and has changed nothing;
//! [`Tree::loaded`] reads what is missing from the table, with no lock held, and runs the
//! operation again.
//!
//! By the time a load is finished, what it has read may be outdated: another thread may have loaded
//! the same rows, changed, committed and evicted them. So loads are registered, and a commit that
//! takes rows from the range of a load makes that load start over.

use std::ops::{ControlFlow, Range};

use crate::FsError;
use crate::furrow::format::BLOCK_BYTES;
use crate::furrow::format::row::{Row, decode, zone_place_of};
use crate::furrow::metadata::held::name_held_bytes;
use crate::furrow::metadata::missing::{Lookup, Missing, Operation, Stop};
use crate::furrow::metadata::names::NameKey;
use crate::furrow::metadata::place::{Extent, MapEntry};
use crate::furrow::metadata::{Body, Directory, Entry, File, Inode, Piece, State, decode};
use crate::furrow::table::key::{Key, KeySpan, RowKind};
use crate::furrow::table::view::{FoundRow, RowWindow, Visit};
use crate::furrow::tree::Tree;
use crate::rules::{self, FILE_SIZE_MAX};
use crate::vfs::{Ino, Result};

/// Rows of an inode or a directory that are read at once: some tens of KiB.
const ROWS_MAX: usize = 1024;

/// Rows of a map that are read with an inode.
const MAP_ROWS: usize = 16;

/// Rows of a map that are read where something is missing: a block with its neighbours, since who
/// uses one block of a large file often goes on elsewhere. Twice as many are read each time a load
/// goes on where the last one ended, up to a bound.
const MAP_ROWS_FIRST: usize = 4;
const MAP_ROWS_MAX: usize = 256;

/// Entries of a directory that are read together with it, at most.
const WITH_INODE_MAX: u64 = 32;

/// Attempts after which a load has commits wait for it.
const ATTEMPTS_MAX: usize = 8;

/// Rows as they were read, made into what the state consists of.
enum Decoded {
    Inode(Box<Inode>),
    Map {
        entries: Vec<(u64, MapEntry)>,
        known: Range<u64>,
        wanted: usize,
    },
    Entries(Vec<FoundEntry>, Range<u64>),
    /// All entries with a hash, of an indexed directory.
    Names(Vec<FoundEntry>, u64),
    /// An entry, of a directory without an index.
    Name(Option<FoundEntry>),
    Extent(Extent),
}

impl Tree {
    /// Runs an operation, and again after what it misses was loaded.
    pub(in crate::furrow) fn loaded<T>(&self, run: impl FnMut() -> Lookup<T>) -> Result<T> {
        self.run_loaded(run)?.map_err(|missing| match missing {
            Missing::Extent(id) => {
                broken(Key::new(RowKind::Extent, id.0, 0), "it is named and not there")
            }
            Missing::Inode(_) | Missing::Map(..) | Missing::Entries(..) | Missing::Name(..) => {
                FsError::NotFound
            }
        })
    }

    /// The same, for something that may no longer exist: `None` if it does not.
    pub(in crate::furrow) fn loaded_if_there<T>(
        &self,
        run: impl FnMut() -> Lookup<T>,
    ) -> Result<Option<T>> {
        Ok(self.run_loaded(run)?.ok())
    }

    /// What an operation answers, or what it looks for and is not there.
    fn run_loaded<T>(
        &self,
        mut run: impl FnMut() -> Lookup<T>,
    ) -> Result<std::result::Result<T, Missing>> {
        let (mut operation, mut gone) = (None, None);
        loop {
            let missing = match run() {
                Ok(answer) => return Ok(Ok(answer)),
                Err(Stop::Failed(error)) => return Err(error),
                Err(Stop::NotLoaded(missing)) => missing,
            };
            match self.load(&missing, &mut operation) {
                // Another thread may have taken the last reference before it was read. Then the
                // operation does not ask for it again.
                Err(FsError::NotFound)
                    if matches!(missing, Missing::Extent(_)) && gone.as_ref() != Some(&missing) =>
                {
                    gone = Some(missing);
                }
                Err(FsError::NotFound) => return Ok(Err(missing)),
                outcome => outcome?,
            }
        }
    }

    /// Reads something from the table into the state, for an operation that begins with its first
    /// load.
    fn load(&self, missing: &Missing, operation: &mut Option<Operation>) -> Result<()> {
        for _ in 0..ATTEMPTS_MAX {
            if self.try_load(missing, operation)? {
                return Ok(());
            }
        }
        let _no_commit = self.hold_off_changes();
        self.try_load(missing, operation).map(drop)
    }

    /// Whether what was read still counted.
    fn try_load(&self, missing: &Missing, operation: &mut Option<Operation>) -> Result<bool> {
        let ticket = {
            let loads = &mut self.write_accounts().loads;
            let ticket = loads.begin(keys_of(missing));
            operation.get_or_insert_with(|| loads.begin_operation(ticket));
            ticket
        };
        let found = self.read_missing(missing);
        let mut state = self.write_accounts();
        let counts = state.loads.end(ticket);
        if counts {
            state.enter(missing, found?);
            self.trim(&mut state);
        }
        Ok(counts)
    }

    fn read_missing(&self, missing: &Missing) -> Result<Decoded> {
        match missing {
            &Missing::Inode(ino) => {
                self.read_inode(ino).map(|inode| Decoded::Inode(Box::new(inode)))
            }
            &Missing::Map(ino, block) => self.read_map(ino, block),
            &Missing::Entries(ino, cookie) => {
                let (entries, known) = self.read_entries(ino, cookie)?;
                Ok(Decoded::Entries(entries, known))
            }
            Missing::Name(ino, name) => {
                // Whether it is does not change back.
                let is_indexed = self.read_state().is_indexed(*ino);
                if is_indexed { self.read_names(*ino, name) } else { self.search(*ino, name) }
            }
            &Missing::Extent(id) => {
                let key = Key::new(RowKind::Extent, id.0, 0);
                let value = self.row(key)?.ok_or(FsError::NotFound)?;
                let Row::Extent(row, crcs) = decoded(key, &value)? else {
                    return Err(broken(key, "no extent"));
                };
                let extent = decode::extent_of(&row, crcs);
                self.check_place(key, (extent.zone, extent.block), extent.crcs.blocks())?;
                Ok(Decoded::Extent(extent))
            }
        }
    }

    /// An inode with its attributes and, of a file, as much of the map as comes with it.
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
            // Rows of an inode that is not there: nothing leads to them.
            return Err(FsError::NotFound);
        };
        let mut inode = decode::inode_of(&row, target).map_err(|(_, why)| broken(key, &why))?;
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
                RowKind::Map => self.add_map_row(&mut map, (key, &value))?,
                RowKind::Totals
                | RowKind::Zone
                | RowKind::Orphan
                | RowKind::Learned
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
                let known = if found.end < end { found.end.at().max(map.end) } else { u64::MAX };
                file.enter(map.entries, 0..known);
            }
            Body::Directory(directory)
                if directory.names.is_none() && directory.entries <= WITH_INODE_MAX =>
            {
                let (entries, known) = self.read_entries(ino, 0)?;
                directory.enter(entries, known, NameKey::of(self.uuid));
            }
            Body::Directory(_) | Body::Symlink(_) | Body::Special => {}
        }
        Ok(inode)
    }

    /// The map entry that has a block, and those behind it.
    fn read_map(&self, ino: Ino, block: u64) -> Result<Decoded> {
        let key = |at| Key::new(RowKind::Map, ino.get(), at);
        let wanted = self.read_state().map_rows_wanted(ino, block);
        let (mut map, mut lost) = (MapRows::default(), None);
        let end = self.visit(key(block), key(u64::MAX), wanted, &mut |key, value| {
            if !map.entries.is_empty() && self.is_lost_piece(value) {
                lost = Some(key);
                return Ok(ControlFlow::Break(()));
            }
            self.add_map_row(&mut map, (key, value))?;
            Ok(ControlFlow::Continue(()))
        })?;
        let end = lost.unwrap_or(end);
        let mut start = block;
        let first = map.entries.first().map_or(u64::MAX, |(first, _)| *first);
        // Only where none begins the one before can have it.
        if first > block {
            let below = block.checked_sub(1).map(key);
            let before = below.map_or(Ok(None), |below| self.last_row(key(0), below))?;
            start = before.as_ref().map_or(0, |(key, _)| key.at());
            if let Some((key, value)) = &before {
                let mut before = MapRows::default();
                self.add_map_row(&mut before, (*key, value))?;
                if first < before.end {
                    return Err(broken(*key, "it overlaps the piece behind it"));
                }
                map.entries.splice(0..0, before.entries);
            }
        }
        // Of the last piece all is known, not just its row's place.
        let end = if end < key(u64::MAX) { end.at().max(map.end) } else { u64::MAX };
        Ok(Decoded::Map { entries: map.entries, known: start..end, wanted })
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

    /// The entry with a name among all of a directory.
    fn search(&self, ino: Ino, name: &[u8]) -> Result<Decoded> {
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
        Ok(Decoded::Name(found))
    }

    /// The entries of an indexed directory whose names have the hash of this one.
    fn read_names(&self, ino: Ino, name: &[u8]) -> Result<Decoded> {
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
        Ok(Decoded::Names(entries, hash))
    }

    /// Adds a piece of a file that can be where it says, behind the one before.
    fn add_map_row(&self, map: &mut MapRows, (key, value): (Key, &[u8])) -> Result<()> {
        let Row::Map(blocks, place) = decoded(key, value)? else {
            return Err(broken(key, "no piece of a file"));
        };
        let entry = decode::entry_of(blocks, &place);
        let limit = FILE_SIZE_MAX.div_ceil(BLOCK_BYTES as u64);
        let end = key.at().checked_add(u64::from(blocks)).filter(|end| blocks > 0 && *end <= limit);
        let end = end.ok_or_else(|| broken(key, "no blocks, or behind the largest file's end"))?;
        if key.at() < map.end {
            return Err(broken(key, "it overlaps the piece before it"));
        }
        if let MapEntry::At { zone, block, .. } = &entry {
            self.check_place(key, (*zone, *block), blocks)?;
        }
        if self.is_lost_piece(value) {
            return Err(broken(key, "its blocks were moved, and no copy says where to"));
        }
        map.end = end;
        map.entries.push((key.at(), entry));
        Ok(())
    }

    fn check_place(&self, key: Key, (zone, block): (u32, u32), blocks: u32) -> Result<()> {
        let layout = self.layout();
        let is_zone = zone < layout.geometry.zone_count() && !layout.is_superblock(zone);
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

    /// The same, handed on one by one: see
    /// [`View::visit`](crate::furrow::table::view::View::visit).
    pub(in crate::furrow) fn visit(
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
}

impl Tree {
    /// Whether the value of a map row, as readers get it, has blocks that are lost because tables
    /// of moved blocks are: the zone that it names has been reset since.
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

/// A name and its entry.
type FoundEntry = (Box<[u8]>, Entry);

/// Where the rows lie that a load reads.
fn keys_of(missing: &Missing) -> Range<Key> {
    match *missing {
        Missing::Name(ino, _) => {
            let last = Key::new(RowKind::Entry, ino.get(), u64::MAX);
            Key::new(RowKind::Name, ino.get(), 0)..last
        }
        Missing::Inode(ino) => {
            let last = Key::new(RowKind::Entry, ino.get(), u64::MAX);
            Key::new(RowKind::Inode, ino.get(), 0)..last.successor()
        }
        Missing::Map(ino, _) => {
            Key::new(RowKind::Map, ino.get(), 0)..Key::new(RowKind::Map, ino.get(), u64::MAX)
        }
        Missing::Entries(ino, cookie) => {
            Key::new(RowKind::Entry, ino.get(), cookie)
                ..Key::new(RowKind::Entry, ino.get(), u64::MAX)
        }
        Missing::Extent(id) => {
            let key = Key::new(RowKind::Extent, id.0, 0);
            key..key.successor()
        }
    }
}

/// Pieces of a file, in order.
#[derive(Default)]
struct MapRows {
    entries: Vec<(u64, MapEntry)>,
    end: u64,
}

fn entry_of_row(key: Key, value: &[u8]) -> Result<(Box<[u8]>, Entry)> {
    let Row::Entry(row, name) = decoded(key, value)? else {
        return Err(broken(key, "no entry"));
    };
    rules::check_name(name).map_err(|error| broken(key, &error.to_string()))?;
    let entry = decode::directory_entry(key.at(), &row);
    let entry = entry.ok_or_else(|| broken(key, "a kind that there is not"))?;
    Ok((name.into(), entry))
}

impl State {
    /// Nothing is known of these blocks of a file, and nothing more will be.
    pub(in crate::furrow) fn take_for_hole(&mut self, ino: Ino, blocks: Range<u64>) {
        let inode = self.inodes.get_mut(&ino);
        if let Some(Body::File(file)) = inode.map(|inode| &mut inode.body) {
            self.held_bytes += file.enter(Vec::new(), blocks);
        }
    }
}

impl File {
    /// Enters what was read of the map, where nothing was known yet. Returns the bytes it takes.
    fn enter(&mut self, entries: Vec<(u64, MapEntry)>, known: Range<u64>) -> usize {
        let (mut bytes, held) = (0, self.frame_bytes());
        for (first, entry) in entries {
            let limit = first + u64::from(entry.blocks());
            if self.known.end_of(first).is_some() {
                continue;
            }
            if self.overlapping(first, limit).next().is_some() {
                tracing::error!(
                    block = first,
                    "a piece of a file overlaps another, and is left out"
                );
                continue;
            }
            bytes += entry.held_bytes();
            self.map.insert(first, entry);
        }
        self.known.insert(known);
        (bytes + self.frame_bytes()).saturating_sub(held)
    }
}

impl Directory {
    /// Enters all entries with a hash. Returns the bytes they take.
    fn enter_names(
        &mut self,
        entries: Vec<FoundEntry>,
        hash: u64,
        key: NameKey,
        now: u64,
        needed: u64,
    ) -> usize {
        let mut bytes = 0;
        for (name, entry) in entries {
            let cookie = entry.cookie;
            bytes += self.enter(vec![(name, entry)], cookie..cookie.saturating_add(1), key);
        }
        let held = self.frame_bytes();
        if let Some(names) = &mut self.names {
            names.note_known(hash, now, needed);
        }
        bytes + self.frame_bytes() - held
    }

    /// Enters what was read of the entries, where nothing was known yet. Returns the bytes it
    /// takes.
    fn enter(&mut self, entries: Vec<FoundEntry>, known: Range<u64>, key: NameKey) -> usize {
        let (mut bytes, held) = (0, self.frame_bytes());
        for (name, entry) in entries {
            if self.known.end_of(entry.cookie).is_none() {
                bytes += name_held_bytes(&name);
                self.add(key.hash(&name), name, entry);
            }
        }
        self.known.insert(known);
        (bytes + self.frame_bytes()).saturating_sub(held)
    }
}

impl State {
    /// How many rows of a map to read for a block: more for who goes on where a load has ended.
    fn map_rows_wanted(&self, ino: Ino, block: u64) -> usize {
        let file = self.inodes.get(&ino).and_then(|inode| inode.file().ok());
        let mut loaded = file.into_iter().flat_map(|file| file.loaded.iter());
        let before = loaded.find(|piece| piece.end == block);
        before.map_or(MAP_ROWS_FIRST, |piece| (2 * piece.wanted).min(MAP_ROWS_MAX))
    }

    /// Enters what was read, unless it has come or gone meanwhile.
    fn enter(&mut self, missing: &Missing, found: Decoded) {
        let (now, needed) = (self.loads.count(), self.loads.oldest_needed());
        match (missing, found) {
            (Missing::Inode(ino), Decoded::Inode(inode)) => {
                if !self.inodes.contains_key(ino) && !self.removed.contains(ino) {
                    self.held_bytes += inode.held_bytes();
                    inode.used.note(self.loads.count());
                    self.inodes.insert(*ino, inode);
                }
            }
            (Missing::Map(ino, block), Decoded::Map { entries, known, wanted }) => {
                let inode = self.inodes.get_mut(ino);
                if let Some(Body::File(file)) = inode.map(|inode| &mut inode.body) {
                    let held = file.frame_bytes();
                    let piece = Piece { block: *block, end: known.end, wanted, at: now };
                    file.loaded.note(piece, |piece| piece.at >= needed);
                    self.held_bytes += file.frame_bytes() - held;
                    self.held_bytes += file.enter(entries, known);
                }
            }
            (Missing::Entries(ino, cookie), Decoded::Entries(entries, known)) => {
                let inode = self.inodes.get_mut(ino);
                if let Some(Body::Directory(directory)) = inode.map(|inode| &mut inode.body) {
                    let held = directory.frame_bytes();
                    let loaded = (*cookie..known.end, now);
                    directory.loaded.note(loaded, |(_, at)| *at >= needed);
                    self.held_bytes += directory.frame_bytes() - held;
                    self.held_bytes += directory.enter(entries, known, self.name_key);
                }
            }
            (Missing::Name(ino, _), Decoded::Names(entries, hash)) => {
                let inode = self.inodes.get_mut(ino);
                if let Some(Body::Directory(directory)) = inode.map(|inode| &mut inode.body) {
                    let key = self.name_key;
                    self.held_bytes += directory.enter_names(entries, hash, key, now, needed);
                }
            }
            (Missing::Name(ino, name), Decoded::Name(entry)) => {
                let inode = self.inodes.get_mut(ino);
                if let Some(Body::Directory(directory)) = inode.map(|inode| &mut inode.body)
                    && directory.names.is_none()
                {
                    let mut bytes = 0;
                    if let Some((name, entry)) = entry {
                        let known = entry.cookie..entry.cookie.saturating_add(1);
                        bytes = directory.enter(vec![(name, entry)], known, self.name_key);
                    }
                    let held = directory.frame_bytes();
                    directory.note_search((self.name_key.hash(name), name), now, needed);
                    bytes += directory.frame_bytes() - held;
                    self.held_bytes += bytes;
                }
            }
            (Missing::Extent(id), Decoded::Extent(extent)) => {
                let bytes = extent.held_bytes();
                if self.extents.enter(*id, Extent { used: now, ..extent }) {
                    self.held_bytes += bytes;
                }
            }
            (
                Missing::Inode(_)
                | Missing::Map(..)
                | Missing::Entries(..)
                | Missing::Name(..)
                | Missing::Extent(_),
                _,
            ) => {
                unreachable!("a load finds what it looks for")
            }
        }
    }
}

/// What a row says, or an error that names it.
fn decoded(key: Key, value: &[u8]) -> Result<Row<'_>> {
    decode(key, value).map_err(|why| broken(key, &why))
}

fn broken(key: Key, why: &str) -> FsError {
    FsError::Corrupt { what: "row", why: format!("{key:?}: {why}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::furrow::metadata::place::ExtentId;
    use crate::furrow::sample::formatted;
    use crate::furrow::{Eviction, Furrow, MountOptions};
    use crate::vfs::{Allocate, Caller, FileKind, FileSystem, NewInode, SetAttr, WriteFlags};

    const FILE: NewInode<'_> =
        NewInode { kind: FileKind::Regular, perm: 0o600, rdev: 0, target: b"" };

    /// Another thread takes the last reference after an operation has seen that it needs the
    /// extent, and before that is loaded.
    #[test]
    fn load_of_vanished_shared_extent_is_no_damage() {
        let (drive, clock) = formatted(32, 64);
        let fs = Furrow::mount(drive, clock, MountOptions::default()).unwrap();
        let needs_it = || Stop::NotLoaded(Missing::Extent(ExtentId(7)));
        let mut looks = 0;
        let outcome = fs.tree.loaded(|| {
            looks += 1;
            if looks == 1 { Err(needs_it()) } else { Ok(()) }
        });
        outcome.unwrap();
        // It is still named.
        let outcome = fs.tree.loaded::<()>(|| Err(needs_it()));
        assert!(matches!(outcome, Err(FsError::Corrupt { .. })), "{outcome:?}");
    }

    #[test]
    fn load_overlapping_commit_starts_over() {
        let (drive, clock) = formatted(32, 64);
        let fs = Furrow::mount(drive, clock, MountOptions::default()).unwrap();
        let [one, two] = [&b"one"[..], b"two"]
            .map(|name| fs.create(&Caller::ROOT, Ino::ROOT, name, &FILE).unwrap().ino);
        fs.sync().unwrap();
        let [of_one, of_two] = [one, two]
            .map(|ino| fs.tree.write_accounts().loads.begin(keys_of(&Missing::Inode(ino))));
        fs.setattr(&Caller::ROOT, one, &SetAttr { perm: Some(0o640), ..SetAttr::default() })
            .unwrap();
        fs.sync().unwrap();
        assert!(!fs.tree.write_accounts().loads.end(of_one), "it may have read what was before");
        assert!(fs.tree.write_accounts().loads.end(of_two));
    }

    #[test]
    fn load_does_not_revive_uncommitted_delete() {
        let (drive, clock) = formatted(32, 64);
        let fs = Furrow::mount(drive, clock, MountOptions::default()).unwrap();
        let ino = fs.create(&Caller::ROOT, Ino::ROOT, b"file", &FILE).unwrap().ino;
        fs.sync().unwrap();
        fs.unlink(Ino::ROOT, b"file").unwrap();
        assert!(fs.tree.row(Key::new(RowKind::Inode, ino.get(), 0)).unwrap().is_some());
        assert!(matches!(fs.getattr(ino), Err(FsError::NotFound)));
        assert!(matches!(fs.lookup(Ino::ROOT, b"file"), Err(FsError::NotFound)));
        // Not even through its number.
        fs.tree.load(&Missing::Inode(ino), &mut None).unwrap();
        assert!(matches!(fs.getattr(ino), Err(FsError::NotFound)));
        fs.sync().unwrap();
        assert!(matches!(fs.getattr(ino), Err(FsError::NotFound)));
    }

    /// What is cut off such a piece would else be in memory where nothing is known.
    #[test]
    fn load_of_map_covers_its_last_extent() {
        const PIECES: u64 = 3 * MAP_ROWS as u64;
        let (drive, clock) = formatted(64, 256);
        let fs = Furrow::mount(drive.clone(), clock.clone(), MountOptions::default()).unwrap();
        let ino = fs.create(&Caller::ROOT, Ino::ROOT, b"file", &FILE).unwrap().ino;
        let piece = [7; 2 * BLOCK_BYTES];
        // From the end on, so that each piece has a row of its own.
        for number in (0..PIECES).rev() {
            fs.write(ino, number * piece.len() as u64, &piece, WriteFlags::DIRECT).unwrap();
        }
        fs.sync().unwrap();
        drop(fs);
        let fs = Furrow::mount(drive, clock, MountOptions::default()).unwrap();
        let known_end = || {
            let state = fs.tree.read_state();
            state.inodes[&ino].file().unwrap().known.end_of(0).unwrap()
        };
        fs.getattr(ino).unwrap();
        let end = known_end();
        assert!(end < 2 * PIECES && end % 2 == 0, "{end} blocks are known with the inode");
        let mut found = [0; BLOCK_BYTES];
        fs.read(ino, end * BLOCK_BYTES as u64, &mut found).unwrap();
        let more = known_end();
        assert!(more > end && more % 2 == 0, "{more} blocks are known after a load");
    }

    /// A power cut between two steps would leave half of what is done to so few pieces.
    #[test]
    fn step_over_few_extents_continues_past_loaded_map() {
        const PIECES: u64 = 20 * MAP_ROWS as u64;
        let (drive, clock) = formatted(64, 256);
        let options = MountOptions { eviction: Eviction::AtEveryLock, ..MountOptions::default() };
        let fs = Furrow::mount(drive.clone(), clock.clone(), options).unwrap();
        let ino = fs.create(&Caller::ROOT, Ino::ROOT, b"file", &FILE).unwrap().ino;
        for number in (0..PIECES).rev() {
            let at = number * BLOCK_BYTES as u64;
            fs.write(ino, at, &[7; BLOCK_BYTES], WriteFlags::DIRECT).unwrap();
        }
        fs.sync().unwrap();
        drop(fs);
        let fs = Furrow::mount(drive, clock, options).unwrap();
        let end = fs.tree.loaded(|| fs.tree.read_state().step_end(ino, 3, PIECES));
        assert_eq!(end.unwrap(), PIECES);
    }

    #[test]
    fn read_of_hole_with_many_deleted_rows_succeeds() {
        const BLOCK: u64 = BLOCK_BYTES as u64;
        let (drive, clock) = formatted(64, 256);
        let fs = Furrow::mount(drive.clone(), clock.clone(), MountOptions::default()).unwrap();
        let ino = fs.create(&Caller::ROOT, Ino::ROOT, b"file", &FILE).unwrap().ino;
        // From the end on, so that each block has a row of its own.
        for block in (0..3000).rev() {
            fs.write(ino, block * BLOCK, &[7; BLOCK_BYTES], WriteFlags::DIRECT).unwrap();
        }
        fs.sync().unwrap();
        fs.fallocate(ino, Allocate::Punch, 10 * BLOCK, 2900 * BLOCK).unwrap();
        fs.sync().unwrap();
        drop(fs);
        let fs = Furrow::mount(drive, clock, MountOptions::default()).unwrap();
        for (block, content) in [(2909, 0), (2910, 7), (1500, 0), (9, 7)] {
            let mut found = [1; BLOCK_BYTES];
            fs.read(ino, block * BLOCK, &mut found).unwrap();
            assert_eq!(found, [content; BLOCK_BYTES], "block {block}");
        }
    }
}
