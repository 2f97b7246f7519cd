//! Metadata in memory: inodes, extents, zones, and which rows changed since the last commit.
//!
//! It is a cache: what is not here is in the table ([`Tree`](crate::furrow::tree::Tree) reads it,
//! [`evict`] evicts it). What has changed since the last commit is always here.
//!
//! Operations change [`State`] under one lock and mark the rows they changed; a commit writes the
//! current values of the marked rows as one batch. So everything between two commits becomes
//! durable as a whole or not at all. Nothing here does I/O.
//!
//! Structure of a file: [`File::map`] leads from file blocks to zones, by way of [`State::extents`]
//! where several files share blocks. See [`place`].

pub(in crate::furrow) mod backrefs;
pub(in crate::furrow) mod buckets;
pub(in crate::furrow) mod decode;
pub(in crate::furrow) mod encode;
pub(in crate::furrow) mod evict;
pub(in crate::furrow) mod extent;
pub(in crate::furrow) mod held;
pub(in crate::furrow) mod index;
pub(in crate::furrow) mod ino_set;
pub(in crate::furrow) mod known;
pub(in crate::furrow) mod missing;
pub(in crate::furrow) mod names;
pub(in crate::furrow) mod paths;
pub(in crate::furrow) mod place;
pub(in crate::furrow) mod remaps;
pub(in crate::furrow) mod shared;
pub(in crate::furrow) mod small;
pub(in crate::furrow) mod sums;
pub(in crate::furrow) mod target;
pub(in crate::furrow) mod xattrs;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use zonal_placement::learned::{Context, Learned};

use crate::FsError;
use crate::furrow::drive::layout::RowBytes;
use crate::furrow::format::BLOCK_BYTES;
use crate::furrow::format::row::INODE_BYTES;
use crate::furrow::metadata::buckets::Buckets;
use crate::furrow::metadata::held::{Hand, Loaded, PIN_BYTES, Used};
use crate::furrow::metadata::known::Known;
use crate::furrow::metadata::missing::{Loads, Lookup, Missing, Stop};
use crate::furrow::metadata::names::{NameKey, Names};
use crate::furrow::metadata::place::{ExtentId, MapEntry};
use crate::furrow::metadata::remaps::Moving;
use crate::furrow::metadata::shared::SharedExtents;
use crate::furrow::metadata::small::SmallMap;
use crate::furrow::metadata::xattrs::Xattrs;
use crate::furrow::options::Eviction;
use crate::furrow::planted::{Planted, PlantedBug};
use crate::furrow::sync::{Mutex, UnderLock};
use crate::furrow::table::key::{Key, RowKind};
use crate::furrow::table::memtable::Value;
use crate::furrow::zones::Zones;
use crate::vfs::{Attr, FileKind, Ino, InodeFlags, Result, Timestamp};

/// A block in the write buffer.
#[derive(Clone, Debug)]
pub(in crate::furrow) struct DirtyBlock {
    /// Changes when the block leaves the buffer and comes back, so that a write-back that took
    /// long does not mistake a new block for the one it wrote.
    pub(in crate::furrow) id: u64,
    pub(in crate::furrow) data: Arc<[u8; BLOCK_BYTES]>,
    /// Blocks of logical space held for it: 0 if it replaces a block of this file alone.
    pub(in crate::furrow) reserved: u64,
    /// The shared extent a block of which it is to replace.
    pub(in crate::furrow) over: Option<ExtentId>,
}

/// A piece of a map that was loaded.
#[derive(Clone, Debug)]
pub(in crate::furrow) struct Piece {
    /// For this block.
    pub(in crate::furrow) block: u64,
    /// Up to here.
    pub(in crate::furrow) end: u64,
    /// Entries that were wanted of it.
    pub(in crate::furrow) wanted: usize,
    /// When: the number of loads before.
    pub(in crate::furrow) at: u64,
}

/// Content of a regular file.
#[derive(Clone, Debug, Default)]
pub(in crate::furrow) struct File {
    /// What is mapped of the blocks that are known.
    pub(in crate::furrow) map: SmallMap<u64, MapEntry>,
    /// Blocks of which `map` has everything.
    pub(in crate::furrow) known: Known,
    /// Pieces of the map that were loaded last.
    pub(in crate::furrow) loaded: Loaded<Piece>,
    pub(in crate::furrow) dirty: SmallMap<u64, DirtyBlock>,
    /// Blocks mapped, preallocated ones included.
    pub(in crate::furrow) mapped: u64,
    /// Sum of the buffered blocks' `reserved`: what the file will grow by.
    pub(in crate::furrow) growing: u64,
    /// What is mapped from this block on waits to be removed. See
    /// [`truncate`](crate::furrow::truncate).
    pub(in crate::furrow) reap_from: Option<u64>,
    /// Held by an appending writer; made by the first one.
    pub(in crate::furrow) appending: Option<Arc<Mutex<()>>>,
}

impl File {
    /// A new one.
    pub(in crate::furrow) fn empty() -> Self {
        Self { known: Known::all(), ..Self::default() }
    }
}

/// An entry of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::furrow) struct Entry {
    pub(in crate::furrow) ino: Ino,
    pub(in crate::furrow) cookie: u64,
    pub(in crate::furrow) kind: FileKind,
}

/// Content of a directory.
#[derive(Clone, Debug, Default)]
pub(in crate::furrow) struct Directory {
    pub(in crate::furrow) parent: Ino,
    /// Cookies of which the entries are here.
    pub(in crate::furrow) known: Known,
    /// Entries that are here.
    pub(in crate::furrow) by_hash: Buckets,
    /// The hashes of their names, in the order of listings.
    pub(in crate::furrow) by_cookie: SmallMap<u64, u64>,
    pub(in crate::furrow) next_cookie: u64,
    /// How many entries it has.
    pub(in crate::furrow) entries: u64,
    /// Cookies whose entries were loaded last, and the number of loads before: they are kept for
    /// the operation that waits for them.
    pub(in crate::furrow) loaded: Loaded<(Range<u64>, u64)>,
    /// What is known of its index, if it has one.
    pub(in crate::furrow) names: Option<Names>,
    /// Names that were looked for last in one that is not indexed, and are not there, and the
    /// number of loads before.
    pub(in crate::furrow) absent: Loaded<(Box<[u8]>, u64)>,
    /// How often its rows were searched for a name, with few loads in between, and the number of
    /// loads before the last time.
    pub(in crate::furrow) searches: (u32, u64),
}

impl Directory {
    /// A new one.
    pub(in crate::furrow) fn empty() -> Self {
        Self { known: Known::all(), ..Self::default() }
    }
}

/// What an inode holds beside its attributes.
#[derive(Clone, Debug)]
pub(in crate::furrow) enum Body {
    File(File),
    /// Larger than the others, and there are few.
    Directory(Box<Directory>),
    Symlink(Box<[u8]>),
    Special,
}

/// An inode.
#[derive(Clone, Debug)]
pub(in crate::furrow) struct Inode {
    pub(in crate::furrow) kind: FileKind,
    pub(in crate::furrow) perm: u16,
    pub(in crate::furrow) nlink: u32,
    pub(in crate::furrow) uid: u32,
    pub(in crate::furrow) gid: u32,
    pub(in crate::furrow) rdev: u32,
    pub(in crate::furrow) size: u64,
    pub(in crate::furrow) atime: Timestamp,
    pub(in crate::furrow) mtime: Timestamp,
    pub(in crate::furrow) ctime: Timestamp,
    pub(in crate::furrow) btime: Timestamp,
    pub(in crate::furrow) flags: InodeFlags,
    /// Which kind of file it was created as. It stays so when the file is renamed: what is learned
    /// from its end is for files that are created as it was.
    pub(in crate::furrow) context: Option<Context>,
    pub(in crate::furrow) xattrs: Xattrs,
    pub(in crate::furrow) body: Body,
    /// When it was used, to know what memory can do without.
    pub(in crate::furrow) used: Used,
}

impl Inode {
    pub(in crate::furrow) fn attr(&self, ino: Ino) -> Attr {
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
    pub(in crate::furrow) fn count(&self) -> u64 {
        match &self.body {
            Body::File(file) => file.mapped,
            Body::Directory(directory) => directory.entries,
            Body::Symlink(_) | Body::Special => 0,
        }
    }

    /// The directory's content, or an error.
    pub(in crate::furrow) fn directory(&self) -> Result<&Directory> {
        match &self.body {
            Body::Directory(directory) => Ok(directory),
            Body::File(_) | Body::Symlink(_) | Body::Special => Err(FsError::NotDirectory),
        }
    }

    /// The directory's content, or an error.
    pub(in crate::furrow) fn directory_mut(&mut self) -> Result<&mut Directory> {
        match &mut self.body {
            Body::Directory(directory) => Ok(directory),
            Body::File(_) | Body::Symlink(_) | Body::Special => Err(FsError::NotDirectory),
        }
    }

    /// The file's content, or an error.
    pub(in crate::furrow) fn file(&self) -> Result<&File> {
        match &self.body {
            Body::File(file) => Ok(file),
            Body::Directory(_) => Err(FsError::IsDirectory),
            Body::Symlink(_) | Body::Special => {
                Err(FsError::Invalid { what: "not a regular file" })
            }
        }
    }

    /// The file's content, or an error.
    pub(in crate::furrow) fn file_mut(&mut self) -> Result<&mut File> {
        match &mut self.body {
            Body::File(file) => Ok(file),
            Body::Directory(_) => Err(FsError::IsDirectory),
            Body::Symlink(_) | Body::Special => {
                Err(FsError::Invalid { what: "not a regular file" })
            }
        }
    }
}

/// What a commit ends in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::furrow) enum Ending {
    /// A journal record.
    Record,
    /// The same, and a superblock that says the drive was left clean.
    Clean,
}

/// Rows changed since the last commit.
#[derive(Debug, Default)]
pub(in crate::furrow) struct Changes {
    pub(in crate::furrow) rows: BTreeSet<Key>,
    /// About how many bytes they will take.
    pub(in crate::furrow) bytes: usize,
}

impl Changes {
    /// Marks a row as changed. None is longer than an inode, what it names aside.
    pub(in crate::furrow) fn mark(&mut self, key: Key) {
        if self.rows.insert(key) {
            self.bytes += INODE_BYTES;
        }
    }
}

/// Sums over everything, in blocks of 4 KiB unless named otherwise.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::furrow) struct Totals {
    /// Inodes, those without a link too.
    pub(in crate::furrow) inodes: u64,
    /// Stored (F2: the sum of all zones' live blocks).
    pub(in crate::furrow) live: u64,
    /// Preallocated to files.
    pub(in crate::furrow) preallocated: u64,
    /// Held for buffered or running writes that will add to `live`.
    pub(in crate::furrow) reserved: u64,
    /// Buffered or running writes: room that must be found in open or free zones.
    pub(in crate::furrow) pending: u64,
    /// Bytes of all rows, before they are compressed.
    pub(in crate::furrow) row_bytes: u64,
    /// Those of them that say where data lies: rows of extents and of maps.
    pub(in crate::furrow) place_bytes: u64,
    /// Written by users over the file system's life: the data clock.
    pub(in crate::furrow) data_clock: u64,
}

impl Totals {
    /// Blocks that count as used: stored, promised to files, or about to be stored.
    pub(in crate::furrow) fn used(&self) -> u64 {
        self.live + self.preallocated + self.reserved
    }

    /// Bytes of all rows, by purpose, if they take about `packed` bytes in a copy of the table.
    /// They never take more than uncompressed.
    pub(in crate::furrow) fn rows(&self, packed: u64) -> RowBytes {
        let packed = packed.min(self.row_bytes);
        let share = u128::from(packed) * u128::from(self.place_bytes);
        let places = share / u128::from(self.row_bytes.max(1));
        let places = u64::try_from(places).expect("no more than all").min(packed);
        RowBytes { places, others: packed - places }
    }

    /// Takes back bytes of rows that were counted. All sums come from a drive, and are not trusted.
    pub(in crate::furrow) fn remove_row_bytes(&mut self, bytes: u64) {
        self.row_bytes = self.row_bytes.saturating_sub(bytes);
    }

    /// Counts the row of an extent or of a map entry.
    pub(in crate::furrow) fn add_place_bytes(&mut self, bytes: u64) {
        self.row_bytes += bytes;
        self.place_bytes += bytes;
    }

    /// Takes back what [`add_place_bytes`](Self::add_place_bytes) counted.
    pub(in crate::furrow) fn remove_place_bytes(&mut self, bytes: u64) {
        self.row_bytes = self.row_bytes.saturating_sub(bytes);
        self.place_bytes = self.place_bytes.saturating_sub(bytes);
    }
}

/// What memory has of the metadata: all that has changed since the last commit, and what was read.
#[derive(Debug)]
pub(in crate::furrow) struct State {
    pub(in crate::furrow) name_key: NameKey,
    pub(in crate::furrow) inodes: BTreeMap<Ino, Box<Inode>>,
    /// Inodes that are deleted, and that readers of the table still find.
    pub(in crate::furrow) removed: BTreeSet<Ino>,
    /// Blocks that several map entries have.
    pub(in crate::furrow) extents: SharedExtents,
    /// Bytes of memory that these take.
    pub(in crate::furrow) held_bytes: usize,
    /// Bytes held below which nothing would be let go of: 0 after a commit.
    pub(in crate::furrow) trim_from: usize,
    pub(in crate::furrow) hand: Hand,
    pub(in crate::furrow) loads: Loads,
    pub(in crate::furrow) zones: Zones,
    pub(in crate::furrow) changes: Changes,
    /// What reclaim has moved without a row for each.
    pub(in crate::furrow) moving: Moving,
    /// Rows that a commit has taken and that readers of the table do not find yet.
    pub(in crate::furrow) committing: BTreeSet<Key>,
    /// Those of them that are encoded already, most because they have changed again.
    pub(in crate::furrow) frozen: BTreeMap<Key, Value>,
    pub(in crate::furrow) planted: Planted,
    pub(in crate::furrow) eviction: Eviction,
    /// Users of inodes, which keep them alive without a link.
    pub(in crate::furrow) pins: BTreeMap<Ino, u32>,
    pub(in crate::furrow) totals: Totals,
    /// What data that died teaches of data to come.
    pub(in crate::furrow) learned: Learned,
    /// Files with buffered blocks.
    pub(in crate::furrow) buffered: BTreeSet<Ino>,
    /// Inodes without a link that pins keep alive, or that recovery is to delete.
    pub(in crate::furrow) unlinked: BTreeSet<Ino>,
    /// Of these, the files that never had a name: they may get one.
    pub(in crate::furrow) linkable: BTreeSet<Ino>,
    /// Files of which something waits to be removed.
    pub(in crate::furrow) reaping: BTreeSet<Ino>,
    /// Number of the batch that collects [`Self::changes`].
    pub(in crate::furrow) batch: u64,
    pub(in crate::furrow) next_ino: u64,
    pub(in crate::furrow) next_extent: u64,
    pub(in crate::furrow) next_dirty: u64,
}

impl UnderLock for State {}

impl State {
    pub(in crate::furrow) fn new(zones: Zones, name_key: NameKey) -> Self {
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

    /// Takes what has changed since the last call, with the sums that go with it.
    pub(in crate::furrow) fn take_changes(&mut self) -> Changes {
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
    pub(in crate::furrow) fn count_held(&mut self, before: usize, now: usize) {
        self.held_bytes = (self.held_bytes + now).saturating_sub(before);
    }

    /// Bytes of memory that are taken, with what users of inodes take.
    pub(in crate::furrow) fn taken_bytes(&self) -> usize {
        self.held_bytes + self.pins.len() * PIN_BYTES
    }

    /// An inode that exists, or why it cannot be had.
    pub(in crate::furrow) fn inode(&self, ino: Ino) -> Lookup<&Inode> {
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
    pub(in crate::furrow) fn stored_inode(&self, ino: Ino) -> Lookup<&Inode> {
        match self.inodes.get(&ino) {
            Some(inode) => Ok(inode),
            None if self.removed.contains(&ino) => Err(FsError::NotFound.into()),
            None => Err(Stop::NotLoaded(Missing::Inode(ino))),
        }
    }

    pub(in crate::furrow) fn inode_mut(&mut self, ino: Ino) -> Lookup<&mut Inode> {
        self.inode(ino)?;
        Ok(self.inodes.get_mut(&ino).expect("just seen"))
    }

    /// Whether nothing leads to an inode any more: what is left of it waits to be removed.
    pub(in crate::furrow) fn is_deleted(&self, ino: Ino, inode: &Inode) -> bool {
        inode.nlink == 0 && !self.pins.contains_key(&ino)
    }

    /// A file of which everything that is mapped in `first..limit` is in memory, shared extents
    /// included.
    pub(in crate::furrow) fn mapped_file(&self, ino: Ino, first: u64, limit: u64) -> Lookup<&File> {
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
    pub(in crate::furrow) fn check_shared(&self, ino: Ino, entry: &MapEntry) -> Lookup<()> {
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
    pub(in crate::furrow) fn change_inode(&mut self, ino: Ino) -> Lookup<&mut Inode> {
        self.inode(ino)?;
        self.mark(RowKind::Inode, ino.get(), 0);
        self.inode_mut(ino)
    }

    /// Enters a new inode.
    pub(in crate::furrow) fn insert_inode(&mut self, ino: Ino, inode: Inode) {
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
    pub(in crate::furrow) fn remove_inode(&mut self, ino: Ino) {
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
    pub(in crate::furrow) fn mark_orphan(&mut self, ino: Ino) {
        self.mark(RowKind::Orphan, ino.get(), 0);
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
        self.count_held(held, held_now);
        self.totals.row_bytes += rows_now;
        self.totals.remove_row_bytes(rows);
        self.changes.bytes += value.map_or(0, <[u8]>::len);
        Ok(())
    }

    /// Deletes an inode that nothing leads to any more.
    pub(in crate::furrow) fn delete_if_unused(&mut self, ino: Ino) {
        if self.inodes.get(&ino).is_none_or(|inode| inode.nlink > 0) {
            return;
        }
        if self.pins.contains_key(&ino) && !self.planted.has(PlantedBug::DeletePinned) {
            self.unlinked.insert(ino);
            self.mark_orphan(ino);
        } else if self.is_deleted_in_steps(ino) {
            self.unlinked.remove(&ino);
            self.begin_truncation(ino, 0);
        } else {
            self.remove_inode(ino);
        }
    }
}

/// Bytes of an inode's rows, those of entries and content aside.
pub(in crate::furrow) fn inode_bytes(inode: &Inode) -> u64 {
    let target = match &inode.body {
        Body::Symlink(target) => target.len(),
        Body::File(_) | Body::Directory(_) | Body::Special => 0,
    };
    (INODE_BYTES + target) as u64 + inode.xattrs.row_bytes()
}
