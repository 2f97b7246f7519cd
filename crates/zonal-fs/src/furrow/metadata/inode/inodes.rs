//! The inodes in memory, and deletions of inodes that the table does not know yet.
//!
//! An inode that is not in memory is either in the table or deleted. Deletions are kept here until
//! readers of the table see them, so that no operation reads the row of a deleted inode.

use std::collections::{BTreeMap, BTreeSet};

use crate::FsError;
use crate::furrow::metadata::directory::Directory;
use crate::furrow::metadata::inode::lives::Lives;
use crate::furrow::metadata::inode::{Body, Inode};
use crate::furrow::metadata::map::File;
use crate::furrow::metadata::missing::{Lookup, Missing, Stop};
use crate::vfs::Ino;

/// Inodes of which memory has the attributes, or a deletion.
#[derive(Debug, Default)]
pub(in crate::furrow) struct Inodes {
    loaded: BTreeMap<Ino, Box<Inode>>,
    /// Deleted, and readers of the table still find the row.
    deleted: BTreeSet<Ino>,
    pub(in crate::furrow) lives: Lives,
}

impl Inodes {
    /// An inode, deleted or not, if it happens to be in memory.
    pub(in crate::furrow) fn peek(&self, ino: Ino) -> Option<&Inode> {
        self.loaded.get(&ino).map(|inode| &**inode)
    }

    /// The content of a file, if it happens to be in memory.
    pub(in crate::furrow) fn peek_file(&self, ino: Ino) -> Option<&File> {
        self.peek(ino)?.file().ok()
    }

    /// How many are in memory.
    pub(in crate::furrow::metadata) fn len(&self) -> usize {
        self.loaded.len()
    }

    /// All in memory, in the order of their numbers.
    pub(in crate::furrow) fn iter(&self) -> impl Iterator<Item = (Ino, &Inode)> {
        self.loaded.iter().map(|(&ino, inode)| (ino, &**inode))
    }

    /// The number of the first one in memory from `ino` on.
    pub(in crate::furrow::metadata) fn next_from(&self, ino: Ino) -> Option<Ino> {
        self.loaded.range(ino..).next().map(|(&ino, _)| ino)
    }

    pub(in crate::furrow::metadata) fn peek_mut(&mut self, ino: Ino) -> Option<&mut Inode> {
        self.loaded.get_mut(&ino).map(|inode| &mut **inode)
    }

    pub(in crate::furrow::metadata) fn file_mut(&mut self, ino: Ino) -> Option<&mut File> {
        match &mut self.loaded.get_mut(&ino)?.body {
            Body::File(file) => Some(file),
            Body::Directory(_) | Body::Symlink(_) | Body::Special => None,
        }
    }

    pub(in crate::furrow::metadata) fn directory_mut(
        &mut self,
        ino: Ino,
    ) -> Option<&mut Directory> {
        match &mut self.loaded.get_mut(&ino)?.body {
            Body::Directory(directory) => Some(directory),
            Body::File(_) | Body::Symlink(_) | Body::Special => None,
        }
    }

    /// Looks up an inode that has rows, deleted or not.
    pub(in crate::furrow) fn stored(&self, ino: Ino) -> Lookup<&Inode> {
        match self.peek(ino) {
            Some(inode) => Ok(inode),
            None if self.is_deleted(ino) => Err(FsError::NotFound.into()),
            None => Err(Stop::NotLoaded(Missing::Inode(ino))),
        }
    }

    /// Whether an inode has neither link nor user: its rest waits to be removed.
    pub(in crate::furrow) fn awaits_removal(&self, ino: Ino, inode: &Inode) -> bool {
        inode.nlink == 0 && !self.lives.is_pinned(ino)
    }

    /// Looks up a file, deleted or not, whose map of `first..limit` is in memory; `None` if there
    /// is no such file.
    pub(in crate::furrow::metadata) fn stored_file(
        &self,
        ino: Ino,
        first: u64,
        limit: u64,
    ) -> Lookup<Option<&File>> {
        let inode = match self.stored(ino) {
            Ok(inode) => inode,
            Err(Stop::Failed(_)) => return Ok(None),
            Err(stop @ Stop::NotLoaded(_)) => return Err(stop),
        };
        let Ok(file) = inode.file() else { return Ok(None) };
        match file.resident.first_missing(first..limit) {
            Some(block) => Err(Stop::NotLoaded(Missing::Map(ino, block))),
            None => Ok(Some(file)),
        }
    }

    /// Whether a directory that is in memory has an index.
    pub(in crate::furrow) fn is_indexed(&self, ino: Ino) -> bool {
        let directory = self.peek(ino).and_then(|inode| inode.directory().ok());
        directory.is_some_and(|directory| directory.index.is_some())
    }

    /// Whether an inode is deleted although readers of the table still find it.
    pub(in crate::furrow::metadata) fn is_deleted(&self, ino: Ino) -> bool {
        self.deleted.contains(&ino)
    }

    /// Enters a new one.
    pub(in crate::furrow::metadata) fn insert(&mut self, ino: Ino, inode: Inode) {
        let before = self.loaded.insert(ino, Box::new(inode));
        assert!(before.is_none(), "inode numbers are never used twice");
    }

    /// Enters an inode that was read, unless it was entered or deleted meanwhile. Returns it if it
    /// was entered.
    pub(in crate::furrow::metadata) fn enter(
        &mut self,
        ino: Ino,
        inode: Box<Inode>,
    ) -> Option<&Inode> {
        if self.loaded.contains_key(&ino) || self.deleted.contains(&ino) {
            return None;
        }
        Some(self.loaded.entry(ino).or_insert(inode))
    }

    /// Deletes an inode. Returns it if it was in memory.
    pub(in crate::furrow::metadata) fn delete(&mut self, ino: Ino) -> Option<Box<Inode>> {
        self.deleted.insert(ino);
        self.loaded.remove(&ino)
    }

    /// Removes an unchanged inode from memory, and returns it.
    pub(in crate::furrow::metadata) fn evict(&mut self, ino: Ino) -> Option<Box<Inode>> {
        self.loaded.remove(&ino)
    }

    /// Forgets a deletion: readers of the table no longer find the row.
    pub(in crate::furrow::metadata) fn forget_deleted(&mut self, ino: Ino) {
        self.deleted.remove(&ino);
    }
}
