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
//! where several files share blocks. See [`place`].

pub(in crate::furrow) mod backrefs;
pub(in crate::furrow) mod batch;
pub(in crate::furrow) mod buckets;
pub(in crate::furrow) mod buffered;
pub(in crate::furrow) mod decode;
pub(in crate::furrow) mod encode;
pub(in crate::furrow) mod enter;
pub(in crate::furrow) mod evict;
pub(in crate::furrow) mod extent;
pub(in crate::furrow) mod held;
pub(in crate::furrow) mod index;
pub(in crate::furrow) mod ino_set;
pub(in crate::furrow) mod inodes;
pub(in crate::furrow) mod known;
pub(in crate::furrow) mod lives;
pub(in crate::furrow) mod missing;
pub(in crate::furrow) mod names;
pub(in crate::furrow) mod paths;
pub(in crate::furrow) mod place;
pub(in crate::furrow) mod remaps;
pub(in crate::furrow) mod shared;
pub(in crate::furrow) mod small;
pub(in crate::furrow) mod sums;
pub(in crate::furrow) mod target;
pub(in crate::furrow) mod totals;
pub(in crate::furrow) mod truncation;
pub(in crate::furrow) mod xattrs;

use std::ops::Range;
use std::sync::Arc;

use zonal_placement::learned::{Context, Learned};

use crate::FsError;
use crate::furrow::format::BLOCK_BYTES;
use crate::furrow::format::row::INODE_BYTES;
use crate::furrow::metadata::batch::Batch;
use crate::furrow::metadata::buckets::Buckets;
use crate::furrow::metadata::buffered::Buffered;
use crate::furrow::metadata::evict::Residency;
use crate::furrow::metadata::held::{Loaded, Used};
use crate::furrow::metadata::inodes::Inodes;
use crate::furrow::metadata::known::Known;
use crate::furrow::metadata::lives::Lives;
use crate::furrow::metadata::missing::{Loads, Lookup, Missing, Stop};
use crate::furrow::metadata::names::{NameKey, Names};
use crate::furrow::metadata::place::{ExtentId, MapEntry};
use crate::furrow::metadata::remaps::Moving;
use crate::furrow::metadata::shared::SharedExtents;
use crate::furrow::metadata::small::SmallMap;
use crate::furrow::metadata::totals::{Numbers, Totals};
use crate::furrow::metadata::xattrs::Xattrs;
use crate::furrow::options::Eviction;
use crate::furrow::planted::{Planted, PlantedBug};
use crate::furrow::sync::{Mutex, UnderLock};
use crate::furrow::table::key::RowKind;
use crate::furrow::table::view::View;
use crate::furrow::zones::Zones;
use crate::vfs::{Attr, FileKind, Ino, InodeFlags, Result, Timestamp};

/// A block in the write buffer.
#[derive(Clone, Debug)]
pub(in crate::furrow) struct DirtyBlock {
    /// Changes when the block leaves the buffer and comes back, so that a slow write-back does not
    /// take a new block for the one that it wrote.
    pub(in crate::furrow) id: u64,
    pub(in crate::furrow) data: Arc<[u8; BLOCK_BYTES]>,
    /// Blocks of logical space reserved for it: 0 if it replaces a block that is this file's alone.
    pub(in crate::furrow) reserved: u64,
    /// The shared extent of which it replaces a block.
    pub(in crate::furrow) over: Option<ExtentId>,
}

/// A load of a piece of a map.
#[derive(Clone, Debug)]
pub(in crate::furrow) struct Piece {
    /// The block that an operation needed.
    pub(in crate::furrow) block: u64,
    /// The end of what was loaded.
    pub(in crate::furrow) end: u64,
    /// Entries that the load asked for.
    pub(in crate::furrow) wanted: usize,
    /// The number of loads before it.
    pub(in crate::furrow) at: u64,
}

/// Content of a regular file.
#[derive(Clone, Debug, Default)]
pub(in crate::furrow) struct File {
    /// Map entries of the blocks in `known`.
    pub(in crate::furrow) map: SmallMap<u64, MapEntry>,
    /// Blocks whose map entries are in memory, if they have any.
    pub(in crate::furrow) known: Known,
    /// The last loads of pieces of the map.
    pub(in crate::furrow) loaded: Loaded<Piece>,
    pub(in crate::furrow) dirty: SmallMap<u64, DirtyBlock>,
    /// Blocks mapped, preallocated ones included.
    pub(in crate::furrow) mapped: u64,
    /// Sum of the buffered blocks' `reserved`: the blocks by which the file will grow.
    pub(in crate::furrow) growing: u64,
    /// The block from which on mapped blocks wait to be removed. See
    /// [`truncate`](crate::furrow::truncate).
    pub(in crate::furrow) truncate_from: Option<u64>,
    /// Held by an appending writer; made by the first one.
    pub(in crate::furrow) appending: Option<Arc<Mutex<()>>>,
}

impl File {
    /// An empty one, of which memory knows everything.
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
    /// Cookies whose entries are in memory, if they have any.
    pub(in crate::furrow) known: Known,
    /// Entries in memory.
    pub(in crate::furrow) by_hash: Buckets,
    /// The hashes of their names, by cookie: the order of listings.
    pub(in crate::furrow) by_cookie: SmallMap<u64, u64>,
    pub(in crate::furrow) next_cookie: u64,
    /// Number of all its entries.
    pub(in crate::furrow) entries: u64,
    /// The last loads of entries: cookies, and the number of loads before. They stay for the
    /// operation that waits for them.
    pub(in crate::furrow) loaded: Loaded<(Range<u64>, u64)>,
    /// The loaded part of its index, if it has one.
    pub(in crate::furrow) names: Option<Names>,
    /// Names without an entry, as the last searches of a directory without an index have found, and
    /// the number of loads before.
    pub(in crate::furrow) absent: Loaded<(Box<[u8]>, u64)>,
    /// Searches of its rows for a name that came shortly one after the other, and the number of
    /// loads before the last of them.
    pub(in crate::furrow) searches: (u32, u64),
}

impl Directory {
    /// A new one.
    pub(in crate::furrow) fn empty() -> Self {
        Self { known: Known::all(), ..Self::default() }
    }
}

/// Content of an inode, by its kind.
#[derive(Clone, Debug)]
pub(in crate::furrow) enum Body {
    File(File),
    /// Boxed: larger than the others, and there are few.
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
    /// Directory, name and owner with which it was created. A rename does not change it: the end of
    /// this file teaches of files that are created like it.
    pub(in crate::furrow) context: Option<Context>,
    pub(in crate::furrow) xattrs: Xattrs,
    pub(in crate::furrow) body: Body,
    /// The last use, for eviction.
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

/// The end of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::furrow) enum Ending {
    /// A journal record.
    Record,
    /// A journal record, and a superblock that says that the drive was left clean.
    Clean,
}

/// The metadata in memory: all changes since the last commit, and a cache of the rest.
///
/// Each part owns its fields. What must hold between two parts is in the methods of the state.
#[derive(Debug)]
pub(in crate::furrow) struct State {
    name_key: NameKey,
    pub(in crate::furrow) inodes: Inodes,
    pub(in crate::furrow) lives: Lives,
    /// Blocks that several map entries have.
    extents: SharedExtents,
    pub(in crate::furrow) buffered: Buffered,
    pub(in crate::furrow) zones: Zones,
    pub(in crate::furrow) totals: Totals,
    pub(in crate::furrow) numbers: Numbers,
    pub(in crate::furrow) batch: Batch,
    /// Moves of reclaim without a map row for each.
    moving: Moving,
    /// Lives and sizes of files that are gone, to predict those of new ones.
    learned: Learned,
    pub(in crate::furrow) loads: Loads,
    residency: Residency,
    planted: Planted,
}

impl UnderLock for State {}

impl State {
    pub(in crate::furrow) fn new(zones: Zones, name_key: NameKey) -> Self {
        Self {
            name_key,
            inodes: Inodes::default(),
            lives: Lives::default(),
            extents: SharedExtents::default(),
            buffered: Buffered::default(),
            zones,
            totals: Totals::default(),
            numbers: Numbers::default(),
            batch: Batch::default(),
            moving: Moving::default(),
            learned: Learned::default(),
            loads: Loads::default(),
            residency: Residency::default(),
            planted: Planted::default(),
        }
    }

    /// This state, as a mount with these options uses it.
    pub(in crate::furrow) fn with_options(mut self, planted: Planted, eviction: Eviction) -> Self {
        self.planted = planted;
        self.residency.set_policy(eviction);
        self
    }

    /// Enters the remap tables that the view of a mount has. All tables may take `bytes_max` bytes
    /// of memory.
    pub(in crate::furrow) fn restore_remaps(&mut self, view: &View, bytes_max: usize) {
        self.moving.restore(view, bytes_max);
    }

    pub(in crate::furrow) fn has_planted(&self, bug: PlantedBug) -> bool {
        self.planted.has(bug)
    }

    /// The planted mistakes, and when what was read is evicted.
    pub(in crate::furrow) fn options(&self) -> (Planted, Eviction) {
        (self.planted, self.residency.policy())
    }

    /// Looks up an inode: `NotFound` if it is deleted, `NotLoaded` if it is not in memory.
    pub(in crate::furrow) fn inode(&self, ino: Ino) -> Lookup<&Inode> {
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
    pub(in crate::furrow) fn stored_inode(&self, ino: Ino) -> Lookup<&Inode> {
        match self.inodes.peek(ino) {
            Some(inode) => Ok(inode),
            None if self.inodes.is_deleted(ino) => Err(FsError::NotFound.into()),
            None => Err(Stop::NotLoaded(Missing::Inode(ino))),
        }
    }

    pub(in crate::furrow) fn inode_mut(&mut self, ino: Ino) -> Lookup<&mut Inode> {
        self.inode(ino)?;
        Ok(self.inodes.peek_mut(ino).expect("just seen"))
    }

    /// Whether an inode has neither link nor user: its rest waits to be removed.
    pub(in crate::furrow) fn is_deleted(&self, ino: Ino, inode: &Inode) -> bool {
        inode.nlink == 0 && !self.lives.is_pinned(ino)
    }

    /// Looks up a file whose map entries in `first..limit` are in memory, with the shared extents
    /// that they name.
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

    /// Checks that the extent which an entry shares is in memory, and long enough.
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

    /// An inode that the caller is about to change. Marks its row.
    pub(in crate::furrow) fn change_inode(&mut self, ino: Ino) -> Lookup<&mut Inode> {
        self.inode(ino)?;
        self.mark(RowKind::Inode, ino.get(), 0);
        self.inode_mut(ino)
    }

    /// Enters a new inode.
    pub(in crate::furrow) fn insert_inode(&mut self, ino: Ino, inode: Inode) {
        self.totals.add_inode();
        self.totals.add_row_bytes(inode_bytes(&inode));
        self.count_held(0, inode.held_bytes());
        inode.used.note(self.loads.advance());
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
        }
        let Some(inode) = self.inodes.peek(ino) else { return };
        let slots: Vec<u64> = inode.xattrs.slots().collect();
        self.mark(RowKind::Inode, ino.get(), 0);
        for slot in slots {
            self.mark(RowKind::Xattr, ino.get(), slot);
        }
        let inode = self.inodes.delete(ino).expect("just seen");
        self.totals.remove_inode();
        self.totals.remove_row_bytes(inode_bytes(&inode));
        self.count_held(inode.held_bytes(), 0);
        self.buffered.remove(ino);
        if self.lives.remove(ino) {
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
        self.mark(RowKind::Orphan, ino.get(), 0);
    }

    /// An inode has got a link. If it was a file without a name, recovery is not to delete it any
    /// more.
    pub(in crate::furrow) fn note_linked(&mut self, ino: Ino) {
        if self.lives.end_unnamed(ino) && !self.planted.has(PlantedBug::LinkStaysOrphan) {
            self.lives.remove_unlinked(ino);
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
        self.count_held(held, held_now);
        self.totals.add_row_bytes(rows_now);
        self.totals.remove_row_bytes(rows);
        self.batch.add_bytes(value.map_or(0, <[u8]>::len));
        Ok(())
    }

    /// Deletes an inode without links, now or in steps, unless somebody uses it.
    pub(in crate::furrow) fn delete_if_unused(&mut self, ino: Ino) {
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
pub(in crate::furrow) fn inode_bytes(inode: &Inode) -> u64 {
    let target = match &inode.body {
        Body::Symlink(target) => target.len(),
        Body::File(_) | Body::Directory(_) | Body::Special => 0,
    };
    (INODE_BYTES + target) as u64 + inode.xattrs.row_bytes()
}
