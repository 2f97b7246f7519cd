//! The files with buffered blocks.
//!
//! [`buffer`](crate::furrow::write::buffer) decides when these go to the drive.

use std::collections::BTreeSet;

use crate::vfs::Ino;

/// Files with buffered blocks.
#[derive(Debug, Default)]
pub(in crate::furrow) struct Buffered {
    files: BTreeSet<Ino>,
    last_id: u64,
}

impl Buffered {
    pub(in crate::furrow) fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// All files with buffered blocks.
    pub(in crate::furrow) fn files(&self) -> impl Iterator<Item = Ino> {
        self.files.iter().copied()
    }

    /// All files with buffered blocks, those from one on first.
    pub(in crate::furrow) fn files_from(&self, first: Ino) -> impl Iterator<Item = Ino> {
        self.files.range(first..).chain(self.files.range(..first)).copied()
    }

    /// Adds a file. Returns the number of its new block.
    pub(in crate::furrow::metadata) fn add(&mut self, ino: Ino) -> u64 {
        self.files.insert(ino);
        self.last_id += 1;
        self.last_id
    }

    /// A file has no buffered blocks any more.
    pub(in crate::furrow::metadata) fn remove(&mut self, ino: Ino) {
        self.files.remove(&ino);
    }
}
