//! The inodes in memory, and deletions of inodes that the table does not know yet.
//!
//! An inode that is not in memory is either in the table or deleted. Deletions are kept here until
//! readers of the table see them, so that no operation reads the row of a deleted inode.

use std::collections::{BTreeMap, BTreeSet};

use crate::furrow::metadata::{Body, Directory, File, Inode};
use crate::vfs::Ino;

/// Inodes of which memory has the attributes, or a deletion.
#[derive(Debug, Default)]
pub(in crate::furrow) struct Inodes {
    loaded: BTreeMap<Ino, Box<Inode>>,
    /// Deleted, and readers of the table still find the row.
    deleted: BTreeSet<Ino>,
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
    pub(super) fn len(&self) -> usize {
        self.loaded.len()
    }

    /// All in memory, in the order of their numbers.
    pub(in crate::furrow) fn iter(&self) -> impl Iterator<Item = (Ino, &Inode)> {
        self.loaded.iter().map(|(&ino, inode)| (ino, &**inode))
    }

    /// The number of the first one in memory from `ino` on.
    pub(super) fn next_from(&self, ino: Ino) -> Option<Ino> {
        self.loaded.range(ino..).next().map(|(&ino, _)| ino)
    }

    pub(super) fn peek_mut(&mut self, ino: Ino) -> Option<&mut Inode> {
        self.loaded.get_mut(&ino).map(|inode| &mut **inode)
    }

    pub(super) fn file_mut(&mut self, ino: Ino) -> Option<&mut File> {
        match &mut self.loaded.get_mut(&ino)?.body {
            Body::File(file) => Some(file),
            Body::Directory(_) | Body::Symlink(_) | Body::Special => None,
        }
    }

    pub(super) fn directory_mut(&mut self, ino: Ino) -> Option<&mut Directory> {
        match &mut self.loaded.get_mut(&ino)?.body {
            Body::Directory(directory) => Some(directory),
            Body::File(_) | Body::Symlink(_) | Body::Special => None,
        }
    }

    /// Whether an inode is deleted although readers of the table still find it.
    pub(super) fn is_deleted(&self, ino: Ino) -> bool {
        self.deleted.contains(&ino)
    }

    /// Enters a new one.
    pub(super) fn insert(&mut self, ino: Ino, inode: Inode) {
        let before = self.loaded.insert(ino, Box::new(inode));
        assert!(before.is_none(), "inode numbers are never used twice");
    }

    /// Enters an inode that was read, unless it was entered or deleted meanwhile. Returns it if it
    /// was entered.
    pub(super) fn enter(&mut self, ino: Ino, inode: Box<Inode>) -> Option<&Inode> {
        if self.loaded.contains_key(&ino) || self.deleted.contains(&ino) {
            return None;
        }
        Some(self.loaded.entry(ino).or_insert(inode))
    }

    /// Deletes an inode. Returns it if it was in memory.
    pub(super) fn delete(&mut self, ino: Ino) -> Option<Box<Inode>> {
        self.deleted.insert(ino);
        self.loaded.remove(&ino)
    }

    /// Removes an unchanged inode from memory, and returns it.
    pub(super) fn evict(&mut self, ino: Ino) -> Option<Box<Inode>> {
        self.loaded.remove(&ino)
    }

    /// Forgets a deletion: readers of the table no longer find the row.
    pub(super) fn forget_deleted(&mut self, ino: Ino) {
        self.deleted.remove(&ino);
    }
}
