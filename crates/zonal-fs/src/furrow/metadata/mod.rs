//! Metadata in memory: inodes, extents, zones, and the rows that have changed since the last
//! commit.
//!
//! It is a cache: everything else is in the table ([`Tree`](crate::furrow::tree::Tree) reads it,
//! [`evict`] evicts it). Changes since the last commit are always here.
//!
//! Operations change [`State`] under one lock and mark the rows they changed; a commit writes the
//! current values of the marked rows as one batch. So everything between two commits becomes
//! durable as a whole or not at all. Nothing here does I/O.
//!
//! Structure of a file: [`File::map`] leads from file blocks to zones, by way of [`SharedExtents`]
//! where several files share blocks. See [`block_map`] and [`place`].

pub(super) mod block_map;
pub(super) mod buckets;
pub(super) mod buffered;
pub(super) mod decode;
pub(super) mod discards;
pub(super) mod encode;
pub(super) mod enter;
pub(super) mod evict;
pub(super) mod extent;
pub(super) mod held;
pub(super) mod index;
pub(super) mod ino_set;
pub(super) mod inodes;
pub(super) mod known;
pub(super) mod lives;
pub(super) mod missing;
pub(super) mod names;
pub(super) mod paths;
pub(super) mod place;
pub(super) mod relocation;
pub(super) mod rows;
pub(super) mod shared;
pub(super) mod small;
pub(super) mod sums;
pub(super) mod target;
pub(super) mod truncation;
pub(super) mod xattrs;

use std::ops::Range;
use std::sync::Arc;

use zonal_placement::learned::{Context, Learned};

use crate::FsError;
use crate::furrow::format::BLOCK_BYTES;
use crate::furrow::format::row::INODE_BYTES;
use crate::furrow::metadata::block_map::BlockMap;
use crate::furrow::metadata::buckets::Buckets;
use crate::furrow::metadata::buffered::Buffered;
use crate::furrow::metadata::discards::Discards;
use crate::furrow::metadata::evict::Residency;
use crate::furrow::metadata::held::{Loaded, Used};
use crate::furrow::metadata::inodes::Inodes;
use crate::furrow::metadata::known::Known;
use crate::furrow::metadata::lives::Lives;
use crate::furrow::metadata::missing::{Loads, Lookup, Missing, Stop};
use crate::furrow::metadata::names::{NameKey, Names};
use crate::furrow::metadata::place::{ExtentId, MapEntry};
use crate::furrow::metadata::rows::ChangedRows;
use crate::furrow::metadata::shared::SharedExtents;
use crate::furrow::metadata::small::SmallMap;
use crate::furrow::metadata::xattrs::Xattrs;
use crate::furrow::options::Eviction;
use crate::furrow::planted::{Planted, PlantedBug};
use crate::furrow::sync::{Mutex, UnderLock};
use crate::furrow::table::key::RowKind;
use crate::furrow::zones::Zones;
use crate::vfs::{Attr, FileKind, Ino, InodeFlags, Result, Timestamp};

/// A block in the write buffer.
#[derive(Clone, Debug)]
pub(super) struct DirtyBlock {
    /// Changes when the block leaves the buffer and comes back, so that a slow write-back does not
    /// take a new block for the one that it wrote.
    pub(super) id: u64,
    pub(super) data: Arc<[u8; BLOCK_BYTES]>,
    /// Blocks of logical space reserved for it: 0 if it replaces a block that is this file's alone.
    pub(super) reserved: u64,
    /// The shared extent of which it replaces a block.
    pub(super) over: Option<ExtentId>,
}

/// A load of a piece of a map.
#[derive(Clone, Debug)]
pub(super) struct MapLoad {
    /// The block that an operation needed.
    pub(super) block: u64,
    /// The end of the range that it loaded.
    pub(super) end: u64,
    /// Entries that the load asked for.
    pub(super) wanted: usize,
    /// The number of loads before it.
    pub(super) at: u64,
}

/// Content of a regular file.
#[derive(Clone, Debug, Default)]
pub(super) struct File {
    /// Map entries of the blocks in `known`.
    pub(super) map: BlockMap,
    /// Blocks whose map entries are in memory, if they have any.
    pub(super) known: Known,
    /// The last loads of pieces of the map.
    pub(super) loaded: Loaded<MapLoad>,
    pub(super) dirty: SmallMap<u64, DirtyBlock>,
    /// Blocks mapped, preallocated ones included.
    pub(super) mapped: u64,
    /// Sum of the buffered blocks' `reserved`: the blocks by which the file will grow.
    pub(super) growing: u64,
    /// The block from which on mapped blocks wait to be removed. See
    /// [`truncate`](crate::furrow::truncate).
    pub(super) truncate_from: Option<u64>,
    /// Held by an appending writer; made by the first one.
    pub(super) appending: Option<Arc<Mutex<()>>>,
}

impl File {
    /// An empty one, of which memory knows everything.
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
    /// Cookies whose entries are in memory, if they have any.
    pub(super) known: Known,
    /// Entries in memory.
    pub(super) by_hash: Buckets,
    /// The hashes of their names, by cookie: the order of listings.
    pub(super) by_cookie: SmallMap<u64, u64>,
    pub(super) next_cookie: u64,
    /// Number of all its entries.
    pub(super) entries: u64,
    /// The last loads of entries: cookies, and the number of loads before. They stay for the
    /// operation that waits for them.
    pub(super) loaded: Loaded<(Range<u64>, u64)>,
    /// The loaded part of its index, if it has one.
    pub(super) names: Option<Names>,
    /// Names without an entry, as the last searches of a directory without an index have found, and
    /// the number of loads before.
    pub(super) absent: Loaded<(Box<[u8]>, u64)>,
    /// Searches of its rows for a name that came shortly one after the other, and the number of
    /// loads before the last of them.
    pub(super) searches: (u32, u64),
}

impl Directory {
    /// A new one.
    pub(super) fn empty() -> Self {
        Self { known: Known::all(), ..Self::default() }
    }
}

/// Content of an inode, by its kind.
#[derive(Clone, Debug)]
pub(super) enum Body {
    File(File),
    /// Boxed: larger than the others, and there are few.
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
    /// Directory, name and owner with which it was created. A rename does not change it: the end of
    /// this file teaches of files that are created like it.
    pub(super) context: Option<Context>,
    pub(super) xattrs: Xattrs,
    pub(super) body: Body,
    /// The last use, for eviction.
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

/// The end of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// A journal record.
    Record,
    /// A journal record, and a superblock that says that the drive was left clean.
    Clean,
}

/// The metadata in memory: all changes since the last commit, and a cache of the rest.
///
/// Each part owns its fields. Methods of the state keep the rules between two parts.
#[derive(Debug)]
pub(super) struct State {
    name_key: NameKey,
    pub(super) inodes: Inodes,
    pub(super) lives: Lives,
    pub(super) discards: Discards,
    /// Blocks that several map entries have.
    extents: SharedExtents,
    pub(super) buffered: Buffered,
    pub(super) zones: Zones,
    pub(super) rows: ChangedRows,
    /// Lives and sizes of deleted files, which predict the lives and sizes of new files.
    learned: Learned,
    pub(super) loads: Loads,
    residency: Residency,
    planted: Planted,
}

impl UnderLock for State {}

impl State {
    pub(super) fn new(zones: Zones, name_key: NameKey) -> Self {
        Self {
            name_key,
            inodes: Inodes::default(),
            lives: Lives::default(),
            discards: Discards::default(),
            extents: SharedExtents::default(),
            buffered: Buffered::default(),
            zones,
            rows: ChangedRows::default(),
            learned: Learned::default(),
            loads: Loads::default(),
            residency: Residency::default(),
            planted: Planted::default(),
        }
    }

    /// This state, as a mount with these options uses it.
    pub(super) fn with_options(mut self, planted: Planted, eviction: Eviction) -> Self {
        self.planted = planted;
        self.residency.set_policy(eviction);
        self
    }

    pub(super) fn has_planted(&self, bug: PlantedBug) -> bool {
        self.planted.has(bug)
    }

    /// The planted mistakes, and the eviction policy.
    pub(super) fn options(&self) -> (Planted, Eviction) {
        (self.planted, self.residency.policy())
    }

    /// Looks up an inode: `NotFound` if it is deleted, `NotLoaded` if it is not in memory.
    pub(super) fn inode(&self, ino: Ino) -> Lookup<&Inode> {
        match self.inodes.peek(ino) {
            Some(inode) if self.is_deleted(ino, inode) => Err(FsError::NotFound.into()),
            Some(inode) => {
                inode.used.note(self.loads.count());
                Ok(inode)
            }
            None => self.stored_inode(ino),
        }
    }

    /// Looks up an inode that has rows, deleted or not.
    pub(super) fn stored_inode(&self, ino: Ino) -> Lookup<&Inode> {
        match self.inodes.peek(ino) {
            Some(inode) => Ok(inode),
            None if self.inodes.is_deleted(ino) => Err(FsError::NotFound.into()),
            None => Err(Stop::NotLoaded(Missing::Inode(ino))),
        }
    }

    pub(super) fn inode_mut(&mut self, ino: Ino) -> Lookup<&mut Inode> {
        self.inode(ino)?;
        Ok(self.inodes.peek_mut(ino).expect("just seen"))
    }

    /// Whether an inode has neither link nor user: its rest waits to be removed.
    pub(super) fn is_deleted(&self, ino: Ino, inode: &Inode) -> bool {
        inode.nlink == 0 && !self.lives.is_pinned(ino)
    }

    /// Looks up a file whose map entries in `first..limit` are in memory, with the shared extents
    /// that they name. None of these blocks has an entry that a discard has left behind.
    pub(super) fn mapped_file(&self, ino: Ino, first: u64, limit: u64) -> Lookup<&File> {
        self.check_discards(ino, first..limit)?;
        self.resident_file(ino, first, limit)
    }

    /// As [`mapped_file`](Self::mapped_file), also where the file was discarded.
    pub(super) fn resident_file(&self, ino: Ino, first: u64, limit: u64) -> Lookup<&File> {
        let file = self.inode(ino)?.file()?;
        if let Some(block) = file.known.first_unknown(first..limit) {
            return Err(Stop::NotLoaded(Missing::Map(ino, block)));
        }
        for (_, entry) in file.overlapping(first, limit) {
            self.check_shared(ino, &entry)?;
        }
        Ok(file)
    }

    /// Checks that the extent which an entry shares is in memory, and long enough.
    pub(super) fn check_shared(&self, ino: Ino, entry: &MapEntry) -> Lookup<()> {
        let MapEntry::Shared { extent: id, skip, blocks, .. } = entry else { return Ok(()) };
        let extent = self.extents.find(*id)?;
        let end = skip.checked_add(*blocks);
        if extent.zip(end).is_some_and(|(extent, end)| end <= extent.crcs.blocks()) {
            return Ok(());
        }
        let why = format!("inode {ino} has {blocks} blocks behind {skip} of extent {}", id.0);
        Err(FsError::Corrupt { what: "row", why }.into())
    }

    /// An inode that the caller is about to change. Marks its row.
    pub(super) fn change_inode(&mut self, ino: Ino) -> Lookup<&mut Inode> {
        self.inode(ino)?;
        self.mark(RowKind::Inode, ino.get(), 0);
        self.inode_mut(ino)
    }

    /// Enters a new inode.
    pub(super) fn insert_inode(&mut self, ino: Ino, inode: Inode) {
        self.rows.totals.add_inode();
        self.rows.totals.add_row_bytes(inode_bytes(&inode));
        self.count_held(0, inode.held_bytes());
        inode.used.note(self.loads.advance());
        self.mark(RowKind::Inode, ino.get(), 0);
        for slot in inode.xattrs.slots() {
            self.mark(RowKind::Xattr, ino.get(), slot);
        }
        self.inodes.insert(ino, inode);
    }

    /// Removes an inode with its content and attributes.
    pub(super) fn remove_inode(&mut self, ino: Ino) {
        if self.inodes.peek_file(ino).is_some() {
            self.unmap(ino, 0, u64::MAX);
            self.cut_discards(ino, 0..u64::MAX);
        }
        let Some(inode) = self.inodes.peek(ino) else { return };
        let slots: Vec<u64> = inode.xattrs.slots().collect();
        self.mark(RowKind::Inode, ino.get(), 0);
        for slot in slots {
            self.mark(RowKind::Xattr, ino.get(), slot);
        }
        let inode = self.inodes.delete(ino).expect("just seen");
        self.rows.totals.remove_inode();
        self.rows.totals.remove_row_bytes(inode_bytes(&inode));
        self.count_held(inode.held_bytes(), 0);
        self.buffered.remove(ino);
        if self.lives.remove(ino) {
            self.mark_orphan(ino);
        }
    }

    /// Deletes an inode of which memory knows nothing. For tests.
    #[cfg(test)]
    pub(super) fn delete_unknown(&mut self, ino: Ino) {
        self.inodes.delete(ino);
        self.mark(RowKind::Inode, ino.get(), 0);
    }

    /// Marks the row that tells recovery to remove an inode, or to finish its truncation.
    pub(super) fn mark_orphan(&mut self, ino: Ino) {
        self.mark(RowKind::Orphan, ino.get(), 0);
    }

    /// An inode has got a link. If it was a file without a name, recovery is not to delete it any
    /// more.
    pub(super) fn note_linked(&mut self, ino: Ino) {
        if self.lives.end_unnamed(ino) && !self.planted.has(PlantedBug::LinkStaysOrphan) {
            self.lives.remove_unlinked(ino);
            self.mark_orphan(ino);
        }
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
        self.rows.totals.add_row_bytes(rows_now);
        self.rows.totals.remove_row_bytes(rows);
        self.rows.batch.add_bytes(value.map_or(0, <[u8]>::len));
        Ok(())
    }

    /// Deletes an inode without links, now or in steps, unless it has a user.
    pub(super) fn delete_if_unused(&mut self, ino: Ino) {
        if self.inodes.peek(ino).is_none_or(|inode| inode.nlink > 0) {
            return;
        }
        if self.lives.is_pinned(ino) && !self.planted.has(PlantedBug::DeletePinned) {
            self.lives.add_unlinked(ino);
            self.mark_orphan(ino);
        } else if self.is_deleted_in_steps(ino) {
            self.lives.remove_unlinked(ino);
            self.begin_truncation(ino, 0);
        } else {
            self.remove_inode(ino);
        }
    }
}

/// Bytes of an inode's own row and of its attributes.
pub(super) fn inode_bytes(inode: &Inode) -> u64 {
    let target = match &inode.body {
        Body::Symlink(target) => target.len(),
        Body::File(_) | Body::Directory(_) | Body::Special => 0,
    };
    (INODE_BYTES + target) as u64 + inode.xattrs.row_bytes()
}
