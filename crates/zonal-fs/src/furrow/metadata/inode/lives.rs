//! Users of inodes, and the inodes that are to be removed.
//!
//! An inode without a link lives as long as it has a user. A large one is removed in steps. Both
//! have a row, so that a mount finishes the removal that a power cut has interrupted.

use std::collections::{BTreeMap, BTreeSet};

use zonal::retry::{Attempt, Retries};

use crate::furrow::memory::in_tree;
use crate::vfs::Ino;

/// Bytes of one entry in the table of users of inodes.
const PIN_BYTES: usize = in_tree(size_of::<(Ino, u32)>());

/// Users of inodes, and inodes that are to be removed.
#[derive(Debug, Default)]
pub(in crate::furrow) struct Lives {
    /// Users of inodes, which keep them alive without a link.
    pins: BTreeMap<Ino, u32>,
    /// Inodes without a link that pins keep alive, or that recovery is to delete.
    unlinked: BTreeSet<Ino>,
    /// Of these, the files that never had a name: they may get one.
    unnamed: BTreeSet<Ino>,
    /// Files of which something waits to be removed.
    truncating: BTreeSet<Ino>,
    /// Of these, the files of which a step has failed.
    failed: Retries<Ino>,
    /// Deleted files of which blocks that no row names are still to be freed.
    pub(in crate::furrow) lost_blocks: Retries<Ino>,
}

/// The fate of an inode that loses a user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::furrow) enum Unpinned {
    /// It stays: it has a link, or other users.
    Stays,
    /// Nothing leads to it any more: it is to be deleted.
    Unused,
}

impl Lives {
    /// As a mount finds them: inodes that it is to look after.
    pub(in crate::furrow::metadata) fn of_orphans(orphans: BTreeSet<Ino>) -> Self {
        Self { unlinked: orphans, ..Self::default() }
    }

    /// Whether an inode has a user.
    pub(in crate::furrow::metadata) fn is_pinned(&self, ino: Ino) -> bool {
        self.pins.contains_key(&ino)
    }

    /// Adds a user of an inode.
    pub(in crate::furrow) fn pin(&mut self, ino: Ino) {
        *self.pins.entry(ino).or_default() += 1;
    }

    /// Takes a user of an inode away.
    pub(in crate::furrow) fn unpin(&mut self, ino: Ino) -> Unpinned {
        let Some(pins) = self.pins.get_mut(&ino) else { return Unpinned::Stays };
        *pins -= 1;
        if *pins > 0 {
            return Unpinned::Stays;
        }
        self.pins.remove(&ino);
        if self.unlinked.contains(&ino) { Unpinned::Unused } else { Unpinned::Stays }
    }

    /// Bytes of memory.
    pub(in crate::furrow::metadata) fn held_bytes(&self) -> usize {
        self.pins.len() * PIN_BYTES
    }

    /// A pinned inode has no link any more.
    pub(in crate::furrow::metadata) fn add_unlinked(&mut self, ino: Ino) {
        self.unlinked.insert(ino);
    }

    /// An unlinked inode has a link again, or is removed in steps.
    pub(in crate::furrow::metadata) fn remove_unlinked(&mut self, ino: Ino) {
        self.unlinked.remove(&ino);
    }

    /// How many inodes have no link and are in use.
    pub(in crate::furrow) fn unlinked_count(&self) -> usize {
        self.unlinked.len()
    }

    /// A new file has one user and no name, and may get one.
    pub(in crate::furrow) fn add_unnamed(&mut self, ino: Ino) {
        self.pins.insert(ino, 1);
        self.unnamed.insert(ino);
    }

    /// Whether an inode without a link may get one.
    pub(in crate::furrow) fn is_unnamed(&self, ino: Ino) -> bool {
        self.unnamed.contains(&ino)
    }

    /// An inode has a name now. Says whether it had none before.
    pub(in crate::furrow::metadata) fn end_unnamed(&mut self, ino: Ino) -> bool {
        self.unnamed.remove(&ino)
    }

    /// Something of a file waits to be removed.
    pub(in crate::furrow::metadata) fn begin_truncation(&mut self, ino: Ino) {
        self.truncating.insert(ino);
    }

    /// Nothing of a file waits to be removed any more.
    pub(in crate::furrow) fn end_truncation(&mut self, ino: Ino) {
        self.truncating.remove(&ino);
        self.failed.settle(ino);
    }

    /// An inode without links and users could not be deleted: the worker tries again.
    pub(in crate::furrow) fn owe_deletion(&mut self, ino: Ino, now_ns: u64) {
        if self.unlinked.remove(&ino) {
            self.truncating.insert(ino);
            self.failed.put_off(ino, now_ns);
        }
    }

    /// Notes the outcome of a step of a truncation. After a failure, returns the nanoseconds since
    /// the first one.
    pub(in crate::furrow) fn note_step(&mut self, ino: Ino, attempt: Attempt, now_ns: u64) -> u64 {
        if attempt == Attempt::Succeeded || !self.truncating.contains(&ino) {
            self.failed.settle(ino);
            return 0;
        }
        self.failed.put_off(ino, now_ns)
    }

    /// The next step of a truncation is due, although one has failed.
    pub(in crate::furrow) fn end_pause(&mut self, ino: Ino) {
        self.failed.end_pause(ino);
    }

    /// A file of which something waits to be removed, unless an attempt has failed just now.
    pub(in crate::furrow) fn next_truncation(&self, now_ns: u64) -> Option<Ino> {
        self.truncating.iter().copied().find(|&ino| self.failed.is_due(ino, now_ns))
    }

    /// Files of which a step has failed and is owed.
    pub(in crate::furrow) fn failed(&self) -> &Retries<Ino> {
        &self.failed
    }

    /// Whether something of a file waits to be removed.
    pub(in crate::furrow::metadata) fn is_truncating(&self, ino: Ino) -> bool {
        self.truncating.contains(&ino)
    }

    /// Files of which something waits to be removed.
    pub(in crate::furrow) fn truncating(&self) -> &BTreeSet<Ino> {
        &self.truncating
    }

    /// Has all inodes without a link removed in steps: after a mount they have no user.
    pub(in crate::furrow) fn truncate_unlinked(&mut self) {
        self.truncating.append(&mut self.unlinked);
    }

    /// An inode is gone. Says whether it had a row for recovery.
    pub(in crate::furrow::metadata) fn remove(&mut self, ino: Ino) -> bool {
        self.unnamed.remove(&ino);
        self.failed.settle(ino);
        self.unlinked.remove(&ino) | self.truncating.remove(&ino)
    }
}
