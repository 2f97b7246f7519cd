//! Letting go of what was read, so that memory stays within its bound.
//!
//! A hand goes round the inodes and lets go of those that nobody has used since it came by last
//! (second chance), and of pieces of the maps of large files. What an uncommitted row names stays,
//! and so does what was loaded a moment ago: an operation that needs several things finds them all.

use std::mem::size_of;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::Furrow;
use super::names::Names;
use super::place::{Crcs, Extent, ExtentId, MapEntry};
use super::state::{Body, Directory, File, Inode, State};
use super::table::key::{Key, RowKind};
use crate::vfs::Ino;

/// What was used within so many loads stays.
const KEPT_LOADS: u64 = 64;

/// Entries and inodes that are looked at in one go: well under a millisecond.
const LOOKS_MAX: usize = 4096;

/// Map entries that go at once.
const PIECE_ENTRIES: usize = 1024;

/// Bytes of a node of a tree for each entry, about.
const NODE_BYTES: usize = 16;

/// When something was used: the number of loads before it.
#[derive(Debug, Default)]
pub(super) struct Used {
    last: AtomicU64,
    /// What it was when the hand came by.
    seen: u64,
}

impl Clone for Used {
    fn clone(&self) -> Self {
        Self { last: AtomicU64::new(self.last.load(Ordering::Relaxed)), seen: self.seen }
    }
}

impl Used {
    pub(super) fn note(&self, now: u64) {
        if self.last.load(Ordering::Relaxed) != now {
            self.last.store(now, Ordering::Relaxed);
        }
    }
}

/// Where the hand is.
#[derive(Debug, Default)]
pub(super) struct Hand {
    ino: Ino,
    block: u64,
    extent: u64,
}

fn crcs_bytes(crcs: &Crcs) -> usize {
    let count = crcs.as_slice().len();
    if count > 1 { 4 * count } else { 0 }
}

impl MapEntry {
    /// Bytes of memory, about.
    pub(super) fn held_bytes(&self) -> usize {
        let crcs = match self {
            Self::At { crcs, .. } => crcs_bytes(crcs),
            Self::Preallocated { .. } | Self::Shared { .. } => 0,
        };
        size_of::<u64>() + size_of::<Self>() + NODE_BYTES + crcs
    }
}

impl Extent {
    /// Bytes of memory, about.
    pub(super) fn held_bytes(&self) -> usize {
        size_of::<ExtentId>() + size_of::<Self>() + NODE_BYTES + crcs_bytes(&self.crcs)
    }
}

/// Bytes of memory of an entry of a directory, about.
pub(super) fn entry_held_bytes(name: &[u8]) -> usize {
    // Two trees and the count of users before the name.
    name.len() + 16 + 16 + 32 + 8 + 16 + 2 * NODE_BYTES
}

/// Bytes of memory of an extended attribute, about.
pub(super) fn xattr_held_bytes(name: &[u8], value: &[u8]) -> usize {
    name.len() + value.len() + 40 + NODE_BYTES
}

impl Inode {
    /// Bytes of memory, about.
    pub(super) fn held_bytes(&self) -> usize {
        let body = match &self.body {
            Body::File(file) => file.map.values().map(MapEntry::held_bytes).sum(),
            Body::Directory(Directory { by_name, names, .. }) => {
                let entries: usize = by_name.keys().map(|name| entry_held_bytes(name)).sum();
                entries + names.as_ref().map_or(0, Names::held_bytes)
            }
            Body::Symlink(target) => target.len(),
            Body::Special => 0,
        };
        let xattrs = self.xattrs.iter();
        let xattrs: usize = xattrs.map(|(name, xattr)| xattr_held_bytes(name, xattr)).sum();
        size_of::<Ino>() + size_of::<Self>() + NODE_BYTES + body + xattrs
    }
}

impl Furrow {
    /// Lets go of some of what was read if there is too much of it.
    pub(super) fn trim(&self, state: &mut State) {
        if state.held_bytes > self.held_max {
            state.evict(self.held_max / 8 * 7);
        }
    }

    /// The same for who does not have the state.
    pub(super) fn trim_after_change(&self) {
        if self.read_state().held_bytes > self.held_max {
            self.trim(&mut self.write_accounts());
        }
    }
}

impl State {
    /// Whether a row is to be committed, or being committed: it is not in the table as it is.
    pub(super) fn is_changed(&self, key: Key) -> bool {
        self.changes.rows.contains(&key) || self.committing.contains(&key)
    }

    fn is_any_changed(&self, first: Key, last: Key) -> bool {
        let range = || first..=last;
        self.changes.rows.range(range()).next().is_some()
            || self.committing.range(range()).next().is_some()
    }

    /// Lets go of what nobody uses until `target` bytes are left, or most of it was looked at.
    fn evict(&mut self, target: usize) {
        let mut looks = LOOKS_MAX;
        let mut rounds = 0;
        while self.held_bytes > target && looks > 0 && rounds < 3 {
            looks -= 1;
            let Some((&ino, _)) = self.inodes.range(self.hand.ino..).next() else {
                self.hand = Hand { extent: self.hand.extent, ..Hand::default() };
                self.evict_extents();
                rounds += 1;
                continue;
            };
            if ino != self.hand.ino {
                (self.hand.ino, self.hand.block) = (ino, 0);
            }
            let pieces = self.evict_pieces(ino);
            looks = looks.saturating_sub(pieces);
            if pieces == 0 {
                self.evict_inode(ino);
                (self.hand.ino, self.hand.block) = (Ino::new(ino.get() + 1), 0);
            }
        }
    }

    /// Lets go of an inode that nobody has used since the hand came by.
    fn evict_inode(&mut self, ino: Ino) {
        let now = self.loads.count();
        let keys = [(RowKind::Inode, 0), (RowKind::Entry, u64::MAX)];
        let [first, last] = keys.map(|(kind, at)| Key::new(kind, ino.get(), at));
        let is_changed = self.is_any_changed(first, last);
        let is_waiting = self.reaping.contains(&ino);
        let Some(inode) = self.inodes.get_mut(&ino) else { return };
        let used = inode.used.last.load(Ordering::Relaxed);
        let is_recent = used + KEPT_LOADS > now || inode.used.seen != used;
        inode.used.seen = used;
        if is_recent || is_changed || is_waiting || inode.nlink == 0 || inode.is_being_written() {
            return;
        }
        if let Some(inode) = self.inodes.remove(&ino) {
            self.held_bytes -= inode.held_bytes().min(self.held_bytes);
        }
    }

    /// Lets go of a piece of the map of a large file; returns how many entries were looked at, none
    /// if there is no further piece.
    fn evict_pieces(&mut self, ino: Ino) -> usize {
        let from = self.hand.block;
        let Some(file) = self.inodes.get(&ino).and_then(|inode| inode.file().ok()) else {
            return 0;
        };
        if file.map.len() <= 2 * PIECE_ENTRIES {
            return 0;
        }
        let mut entries = file.map.range(from..);
        let Some((&first, _)) = entries.next() else { return 0 };
        let last = entries.nth(PIECE_ENTRIES - 2).or_else(|| file.map.iter().next_back());
        let Some((&last, entry)) = last.filter(|(last, _)| **last > first) else { return 0 };
        let end = last + u64::from(entry.blocks());
        self.hand.block = end;
        let is_recent = file.loaded.iter().any(|block| (first..end).contains(block));
        let is_buffered = file.dirty.range(first..end).next().is_some();
        let key = |at| Key::new(RowKind::Map, ino.get(), at);
        if is_recent || is_buffered || self.is_any_changed(key(first), key(end - 1)) {
            return PIECE_ENTRIES;
        }
        let entries: Vec<u64> = file.map.range(first..end).map(|(&start, _)| start).collect();
        let Some(Body::File(file)) = self.inodes.get_mut(&ino).map(|inode| &mut inode.body) else {
            return 0;
        };
        for start in entries {
            let entry = file.map.remove(&start).expect("just seen");
            self.held_bytes -= entry.held_bytes().min(self.held_bytes);
        }
        file.known.remove(first..end);
        PIECE_ENTRIES
    }

    /// Lets go of shared extents. They are few, and soon read again.
    fn evict_extents(&mut self) {
        let range = self.extents.range(ExtentId(self.hand.extent)..).take(LOOKS_MAX);
        let ids: Vec<ExtentId> = range.map(|(&id, _)| id).collect();
        self.hand.extent = ids.get(LOOKS_MAX - 1).map_or(0, |last| last.0 + 1);
        for id in ids {
            let extent = &self.extents[&id];
            let is_recent = extent.used + KEPT_LOADS > self.loads.count();
            if !is_recent && !self.is_changed(Key::new(RowKind::Extent, id.0, 0)) {
                self.held_bytes -= extent.held_bytes().min(self.held_bytes);
                self.extents.remove(&id);
            }
        }
    }
}

impl File {
    /// Whether memory has something of it that the table has not.
    fn is_being_written(&self) -> bool {
        let is_appended_to =
            self.appending.as_ref().is_some_and(|lock| Arc::strong_count(lock) > 1);
        !self.dirty.is_empty() || is_appended_to
    }
}

impl Inode {
    fn is_being_written(&self) -> bool {
        self.file().is_ok_and(File::is_being_written)
    }
}
