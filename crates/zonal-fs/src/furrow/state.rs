//! Metadata in memory: inodes, extents, zones, and which rows changed since the last commit.
//!
//! It is a cache: what is not here is in the table ([`loading`](super::loading) reads it,
//! [`evict`](super::evict) evicts it). What has changed since the last commit is always here.
//!
//! Operations change [`State`] under one lock and mark the rows they changed; a commit writes the
//! current values of the marked rows as one batch. So everything between two commits becomes
//! durable as a whole or not at all. Nothing here does I/O.
//!
//! Structure of a file: [`File::map`] leads from file blocks to zones, by way of [`State::extents`]
//! where several files share blocks. See [`place`](super::place).

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use zonal_placement::learned::{Context, Learned};

use super::alloc::Zones;
use super::buckets::Buckets;
use super::evict::Eviction;
use super::format::BLOCK_BYTES;
use super::format::row::INODE_BYTES;
use super::held::{Hand, Loaded, PIN_BYTES, Used};
use super::known::Known;
use super::layout::Rows;
use super::missing::{Loads, Lookup, Missing, Stop};
use super::moving::Moving;
use super::names::{NameKey, Names};
use super::place::{ExtentId, MapEntry};
use super::planted::{Planted, PlantedBug};
use super::shared::SharedExtents;
use super::small::SmallMap;
use super::sync::{Locked, Mutex};
use super::table::key::{Key, RowKind};
use super::table::memtable::Value;
use super::xattrs::Xattrs;
use crate::FsError;
use crate::vfs::{Attr, FileKind, Ino, InodeFlags, Result, Timestamp};

/// A block in the write buffer.
#[derive(Clone, Debug)]
pub(super) struct DirtyBlock {
    /// Changes when the block leaves the buffer and comes back, so that a write-back that took
    /// long does not mistake a new block for the one it wrote.
    pub(super) id: u64,
    pub(super) data: Arc<[u8; BLOCK_BYTES]>,
    /// Blocks of logical space held for it: 0 if it replaces a block of this file alone.
    pub(super) reserved: u64,
    /// The shared extent a block of which it is to replace.
    pub(super) over: Option<ExtentId>,
}

/// A piece of a map that was loaded.
#[derive(Clone, Debug)]
pub(super) struct Piece {
    /// For this block.
    pub(super) block: u64,
    /// Up to here.
    pub(super) end: u64,
    /// Entries that were wanted of it.
    pub(super) wanted: usize,
    /// When: the number of loads before.
    pub(super) at: u64,
}

/// Content of a regular file.
#[derive(Clone, Debug, Default)]
pub(super) struct File {
    /// What is mapped of the blocks that are known.
    pub(super) map: SmallMap<u64, MapEntry>,
    /// Blocks of which `map` has everything.
    pub(super) known: Known,
    /// Pieces of the map that were loaded last.
    pub(super) loaded: Loaded<Piece>,
    pub(super) dirty: SmallMap<u64, DirtyBlock>,
    /// Blocks mapped, preallocated ones included.
    pub(super) mapped: u64,
    /// Sum of the buffered blocks' `reserved`: what the file will grow by.
    pub(super) growing: u64,
    /// What is mapped from this block on waits to be removed. See [`reap`](super::reap).
    pub(super) reap_from: Option<u64>,
    /// Held by an appending writer; made by the first one.
    pub(super) appending: Option<Arc<Mutex<()>>>,
}

impl File {
    /// A new one.
    pub(super) fn empty() -> Self {
        Self { known: Known::all(), ..Self::default() }
    }
}

/// An entry of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) ino: Ino,
    pub(super) cookie: u64,
    pub(super) kind: FileKind,
}

/// Content of a directory.
#[derive(Clone, Debug, Default)]
pub(super) struct Directory {
    pub(super) parent: Ino,
    /// Cookies of which the entries are here.
    pub(super) known: Known,
    /// Entries that are here.
    pub(super) by_hash: Buckets,
    /// The hashes of their names, in the order of listings.
    pub(super) by_cookie: SmallMap<u64, u64>,
    pub(super) next_cookie: u64,
    /// How many entries it has.
    pub(super) entries: u64,
    /// Cookies whose entries were loaded last, and the number of loads before: they are kept for
    /// the operation that waits for them.
    pub(super) loaded: Loaded<(Range<u64>, u64)>,
    /// What is known of its index, if it has one.
    pub(super) names: Option<Names>,
    /// Names that were looked for last in one that is not indexed, and are not there, and the
    /// number of loads before.
    pub(super) absent: Loaded<(Box<[u8]>, u64)>,
    /// How often its rows were searched for a name, with few loads in between, and the number of
    /// loads before the last time.
    pub(super) searches: (u32, u64),
}

impl Directory {
    /// A new one.
    pub(super) fn empty() -> Self {
        Self { known: Known::all(), ..Self::default() }
    }
}

/// What an inode holds beside its attributes.
#[derive(Clone, Debug)]
pub(super) enum Body {
    File(File),
    /// Larger than the others, and there are few.
    Directory(Box<Directory>),
    Symlink(Box<[u8]>),
    Special,
}

/// An inode.
#[derive(Clone, Debug)]
pub(super) struct Inode {
    pub(super) kind: FileKind,
    pub(super) perm: u16,
    pub(super) nlink: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) rdev: u32,
    pub(super) size: u64,
    pub(super) atime: Timestamp,
    pub(super) mtime: Timestamp,
    pub(super) ctime: Timestamp,
    pub(super) btime: Timestamp,
    pub(super) flags: InodeFlags,
    /// Which kind of file it was created as. It stays so when the file is renamed: what is learned from its
    /// end is for files that are created as it was.
    pub(super) context: Option<Context>,
    pub(super) xattrs: Xattrs,
    pub(super) body: Body,
    /// When it was used, to know what memory can do without.
    pub(super) used: Used,
}

impl Inode {
    pub(super) fn attr(&self, ino: Ino) -> Attr {
        let per_block = (BLOCK_BYTES / 512) as u64;
        let blocks = match &self.body {
            Body::File(file) => (file.mapped + file.growing) * per_block,
            Body::Directory(_) | Body::Symlink(_) | Body::Special => 0,
        };
        Attr {
            ino,
            kind: self.kind,
            perm: self.perm,
            nlink: self.nlink,
            uid: self.uid,
            gid: self.gid,
            rdev: self.rdev,
            size: self.size,
            blocks,
            atime: self.atime,
            mtime: self.mtime,
            ctime: self.ctime,
            btime: self.btime,
            flags: self.flags,
        }
    }

    /// Blocks mapped, or entries.
    pub(super) fn count(&self) -> u64 {
        match &self.body {
            Body::File(file) => file.mapped,
            Body::Directory(directory) => directory.entries,
            Body::Symlink(_) | Body::Special => 0,
        }
    }

    /// The directory's content, or an error.
    pub(super) fn directory(&self) -> Result<&Directory> {
        match &self.body {
            Body::Directory(directory) => Ok(directory),
            Body::File(_) | Body::Symlink(_) | Body::Special => Err(FsError::NotDirectory),
        }
    }

    /// The directory's content, or an error.
    pub(super) fn directory_mut(&mut self) -> Result<&mut Directory> {
        match &mut self.body {
            Body::Directory(directory) => Ok(directory),
            Body::File(_) | Body::Symlink(_) | Body::Special => Err(FsError::NotDirectory),
        }
    }

    /// The file's content, or an error.
    pub(super) fn file(&self) -> Result<&File> {
        match &self.body {
            Body::File(file) => Ok(file),
            Body::Directory(_) => Err(FsError::IsDirectory),
            Body::Symlink(_) | Body::Special => {
                Err(FsError::Invalid { what: "not a regular file" })
            }
        }
    }

    /// The file's content, or an error.
    pub(super) fn file_mut(&mut self) -> Result<&mut File> {
        match &mut self.body {
            Body::File(file) => Ok(file),
            Body::Directory(_) => Err(FsError::IsDirectory),
            Body::Symlink(_) | Body::Special => {
                Err(FsError::Invalid { what: "not a regular file" })
            }
        }
    }
}

/// Rows changed since the last commit.
#[derive(Debug, Default)]
pub(super) struct Changes {
    pub(super) rows: BTreeSet<Key>,
    /// About how many bytes they will take.
    pub(super) bytes: usize,
}

impl Changes {
    /// Marks a row as changed. None is longer than an inode, what it names aside.
    pub(super) fn mark(&mut self, key: Key) {
        if self.rows.insert(key) {
            self.bytes += INODE_BYTES;
        }
    }
}

/// Sums over everything, in blocks of 4 KiB unless named otherwise.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Totals {
    /// Inodes, those without a link too.
    pub(super) inodes: u64,
    /// Stored (F2: the sum of all zones' live blocks).
    pub(super) live: u64,
    /// Preallocated to files.
    pub(super) preallocated: u64,
    /// Held for buffered or running writes that will add to `live`.
    pub(super) reserved: u64,
    /// Buffered or running writes: room that must be found in open or free zones.
    pub(super) pending: u64,
    /// Bytes of all rows, before they are compressed.
    pub(super) row_bytes: u64,
    /// Those of them that say where data lies: rows of extents and of maps.
    pub(super) place_bytes: u64,
    /// Written by users over the file system's life: the data clock.
    pub(super) data_clock: u64,
}

impl Totals {
    /// Blocks that count as used: stored, promised to files, or about to be stored.
    pub(super) fn used(&self) -> u64 {
        self.live + self.preallocated + self.reserved
    }

    /// Bytes of all rows, by purpose, if they take about `packed` bytes in a copy of the table.
    /// They never take more than uncompressed.
    pub(super) fn rows(&self, packed: u64) -> Rows {
        let packed = packed.min(self.row_bytes);
        let share = u128::from(packed) * u128::from(self.place_bytes);
        let places = share / u128::from(self.row_bytes.max(1));
        let places = u64::try_from(places).expect("no more than all").min(packed);
        Rows { places, others: packed - places }
    }

    /// Takes back bytes of rows that were counted. All sums come from a drive, and are not trusted.
    pub(super) fn remove_row_bytes(&mut self, bytes: u64) {
        self.row_bytes = self.row_bytes.saturating_sub(bytes);
    }

    /// Counts the row of an extent or of a map entry.
    pub(super) fn add_place_bytes(&mut self, bytes: u64) {
        self.row_bytes += bytes;
        self.place_bytes += bytes;
    }

    /// Takes back what [`add_place_bytes`](Self::add_place_bytes) counted.
    pub(super) fn remove_place_bytes(&mut self, bytes: u64) {
        self.row_bytes = self.row_bytes.saturating_sub(bytes);
        self.place_bytes = self.place_bytes.saturating_sub(bytes);
    }
}

/// What memory has of the metadata: all that has changed since the last commit, and what was read.
#[derive(Debug)]
pub(super) struct State {
    pub(super) name_key: NameKey,
    pub(super) inodes: BTreeMap<Ino, Box<Inode>>,
    /// Inodes that are deleted, and that readers of the table still find.
    pub(super) removed: BTreeSet<Ino>,
    /// Blocks that several map entries have.
    pub(super) extents: SharedExtents,
    /// Bytes of memory that these take.
    pub(super) held_bytes: usize,
    /// Bytes held below which nothing would be let go of: 0 after a commit.
    pub(super) trim_from: usize,
    pub(super) hand: Hand,
    pub(super) loads: Loads,
    pub(super) zones: Zones,
    pub(super) changes: Changes,
    /// What reclaim has moved without a row for each.
    pub(super) moving: Moving,
    /// Rows that a commit has taken and that readers of the table do not find yet.
    pub(super) committing: BTreeSet<Key>,
    /// Those of them that are encoded already, most because they have changed again.
    pub(super) frozen: BTreeMap<Key, Value>,
    pub(super) planted: Planted,
    pub(super) eviction: Eviction,
    /// Users of inodes, which keep them alive without a link.
    pub(super) pins: BTreeMap<Ino, u32>,
    pub(super) totals: Totals,
    /// What data that died teaches of data to come.
    pub(super) learned: Learned,
    /// Files with buffered blocks.
    pub(super) buffered: BTreeSet<Ino>,
    /// Inodes without a link that pins keep alive, or that recovery is to delete.
    pub(super) unlinked: BTreeSet<Ino>,
    /// Of these, the files that never had a name: they may get one.
    pub(super) linkable: BTreeSet<Ino>,
    /// Files of which something waits to be removed.
    pub(super) reaping: BTreeSet<Ino>,
    /// Number of the batch that collects [`Self::changes`].
    pub(super) batch: u64,
    pub(super) next_ino: u64,
    pub(super) next_extent: u64,
    pub(super) next_dirty: u64,
}

impl State {
    pub(super) fn new(zones: Zones, name_key: NameKey) -> Self {
        Self {
            name_key,
            inodes: BTreeMap::new(),
            removed: BTreeSet::new(),
            extents: SharedExtents::default(),
            held_bytes: 0,
            trim_from: 0,
            hand: Hand::default(),
            loads: Loads::default(),
            zones,
            changes: Changes::default(),
            moving: Moving::default(),
            committing: BTreeSet::new(),
            frozen: BTreeMap::new(),
            planted: Planted::default(),
            eviction: Eviction::default(),
            pins: BTreeMap::new(),
            totals: Totals::default(),
            learned: Learned::default(),
            buffered: BTreeSet::new(),
            unlinked: BTreeSet::new(),
            linkable: BTreeSet::new(),
            reaping: BTreeSet::new(),
            batch: 1,
            next_ino: Ino::ROOT.get() + 1,
            next_extent: 1,
            next_dirty: 1,
        }
    }

    /// Says that the state is locked: nobody has it otherwise.
    pub(super) const fn locked(&self) -> Locked<'_> {
        Locked::of(self)
    }

    /// Takes what has changed since the last call, with the sums that go with it.
    pub(super) fn take_changes(&mut self) -> Changes {
        let mut changes = std::mem::take(&mut self.changes);
        for zone in self.zones.take_changed() {
            changes.mark(Key::new(RowKind::Zone, zone.into(), 0));
        }
        if !changes.rows.is_empty() {
            changes.mark(Key::new(RowKind::Totals, 0, 0));
        }
        changes
    }

    /// Something that took so many bytes of memory takes another number of them now.
    pub(super) fn count_held(&mut self, before: usize, now: usize) {
        self.held_bytes = (self.held_bytes + now).saturating_sub(before);
    }

    /// Bytes of memory that are taken, with what users of inodes take.
    pub(super) fn taken_bytes(&self) -> usize {
        self.held_bytes + self.pins.len() * PIN_BYTES
    }

    /// An inode that exists, or why it cannot be had.
    pub(super) fn inode(&self, ino: Ino) -> Lookup<&Inode> {
        match self.inodes.get(&ino) {
            Some(inode) if self.is_deleted(ino, inode) => Err(FsError::NotFound.into()),
            Some(inode) => {
                inode.used.note(self.loads.count());
                Ok(inode)
            }
            None => self.stored_inode(ino),
        }
    }

    /// An inode, deleted or not, of which there are still rows; why it cannot be had otherwise.
    pub(super) fn stored_inode(&self, ino: Ino) -> Lookup<&Inode> {
        match self.inodes.get(&ino) {
            Some(inode) => Ok(inode),
            None if self.removed.contains(&ino) => Err(FsError::NotFound.into()),
            None => Err(Stop::NotLoaded(Missing::Inode(ino))),
        }
    }

    pub(super) fn inode_mut(&mut self, ino: Ino) -> Lookup<&mut Inode> {
        self.inode(ino)?;
        Ok(self.inodes.get_mut(&ino).expect("just seen"))
    }

    /// Whether nothing leads to an inode any more: what is left of it waits to be removed.
    pub(super) fn is_deleted(&self, ino: Ino, inode: &Inode) -> bool {
        inode.nlink == 0 && !self.pins.contains_key(&ino)
    }

    /// A file of which everything that is mapped in `first..limit` is in memory, shared extents
    /// included.
    pub(super) fn mapped_file(&self, ino: Ino, first: u64, limit: u64) -> Lookup<&File> {
        let file = self.inode(ino)?.file()?;
        if let Some(block) = file.known.first_unknown(first..limit) {
            return Err(Stop::NotLoaded(Missing::Map(ino, block)));
        }
        for (_, entry) in file.overlapping(first, limit) {
            self.check_shared(ino, entry)?;
        }
        Ok(file)
    }

    /// Whether the extent that an entry shares is in memory, and long enough.
    pub(super) fn check_shared(&self, ino: Ino, entry: &MapEntry) -> Lookup<()> {
        let MapEntry::Shared { extent: id, skip, blocks } = entry else { return Ok(()) };
        let extent = self.extents.find(*id)?;
        let end = skip.checked_add(*blocks);
        if extent.zip(end).is_some_and(|(extent, end)| end <= extent.crcs.blocks()) {
            return Ok(());
        }
        let why = format!("inode {ino} has {blocks} blocks behind {skip} of extent {}", id.0);
        Err(FsError::Corrupt { what: "row", why }.into())
    }

    /// An inode that is about to change: its row is marked.
    pub(super) fn change_inode(&mut self, ino: Ino) -> Lookup<&mut Inode> {
        self.inode(ino)?;
        self.mark(RowKind::Inode, ino.get(), 0);
        self.inode_mut(ino)
    }

    /// Enters a new inode.
    pub(super) fn insert_inode(&mut self, ino: Ino, inode: Inode) {
        self.totals.inodes += 1;
        self.totals.row_bytes += inode_bytes(&inode);
        self.held_bytes += inode.held_bytes();
        inode.used.note(self.loads.advance());
        self.mark(RowKind::Inode, ino.get(), 0);
        for slot in inode.xattrs.slots() {
            self.mark(RowKind::Xattr, ino.get(), slot);
        }
        let before = self.inodes.insert(ino, Box::new(inode));
        assert!(before.is_none(), "inode numbers are never used twice");
    }

    /// Takes out an inode with its content and attributes.
    pub(super) fn remove_inode(&mut self, ino: Ino) {
        if self.inodes.get(&ino).is_some_and(|inode| matches!(inode.body, Body::File(_))) {
            self.unmap(ino, 0, u64::MAX);
        }
        let Some(inode) = self.inodes.get(&ino) else { return };
        let slots: Vec<u64> = inode.xattrs.slots().collect();
        self.mark(RowKind::Inode, ino.get(), 0);
        for slot in slots {
            self.mark(RowKind::Xattr, ino.get(), slot);
        }
        let inode = self.inodes.remove(&ino).expect("just seen");
        self.removed.insert(ino);
        self.totals.inodes = self.totals.inodes.saturating_sub(1);
        self.totals.remove_row_bytes(inode_bytes(&inode));
        self.count_held(inode.held_bytes(), 0);
        self.buffered.remove(&ino);
        self.linkable.remove(&ino);
        if self.unlinked.remove(&ino) | self.reaping.remove(&ino) {
            self.mark_orphan(ino);
        }
    }

    /// Whether an inode is to be looked after has changed.
    pub(super) fn mark_orphan(&mut self, ino: Ino) {
        self.mark(RowKind::Orphan, ino.get(), 0);
    }

    /// Sets or, with `None`, removes an extended attribute.
    pub(super) fn set_xattr(&mut self, ino: Ino, name: &[u8], value: Option<&[u8]>) -> Lookup<()> {
        let slot = self.inode(ino)?.xattrs.slot_of(name);
        self.mark(RowKind::Xattr, ino.get(), slot);
        let xattrs = &mut self.inode_mut(ino)?.xattrs;
        let (held, rows) = (xattrs.held_bytes(), xattrs.row_bytes());
        xattrs.set(name, value);
        let (held_now, rows_now) = (xattrs.held_bytes(), xattrs.row_bytes());
        self.count_held(held, held_now);
        self.totals.row_bytes += rows_now;
        self.totals.remove_row_bytes(rows);
        self.changes.bytes += value.map_or(0, <[u8]>::len);
        Ok(())
    }

    /// Deletes an inode that nothing leads to any more.
    pub(super) fn delete_if_unused(&mut self, ino: Ino) {
        if self.inodes.get(&ino).is_none_or(|inode| inode.nlink > 0) {
            return;
        }
        if self.pins.contains_key(&ino) && !self.planted.has(PlantedBug::DeletePinned) {
            self.unlinked.insert(ino);
            self.mark_orphan(ino);
        } else if self.is_deleted_in_steps(ino) {
            self.unlinked.remove(&ino);
            self.cut_off(ino, 0);
        } else {
            self.remove_inode(ino);
        }
    }
}

/// Bytes of an inode's rows, those of entries and content aside.
pub(super) fn inode_bytes(inode: &Inode) -> u64 {
    let target = match &inode.body {
        Body::Symlink(target) => target.len(),
        Body::File(_) | Body::Directory(_) | Body::Special => 0,
    };
    (INODE_BYTES + target) as u64 + inode.xattrs.row_bytes()
}
