//! How much memory an inode's cached metadata takes, and when it was last used.
//!
//! [`memory`](crate::furrow::memory) counts, [`evict`](crate::furrow::metadata::evict) frees it.

use std::mem::size_of;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::furrow::memory::{allocated, in_list, in_tree};
use crate::furrow::metadata::names::Names;
use crate::furrow::metadata::place::{Crcs, Extent, ExtentId, MapEntry};
use crate::furrow::metadata::{Body, Directory, File, Inode};
use crate::vfs::Ino;

/// Bytes of one entry in the table of users of inodes.
pub(super) const PIN_BYTES: usize = in_tree(size_of::<(Ino, u32)>());

/// When something was used: the number of loads before it.
#[derive(Debug, Default)]
pub(in crate::furrow) struct Used {
    pub(super) last: AtomicU64,
    /// The value of `last` when the hand last passed.
    pub(super) seen: u64,
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
    pub(super) ino: Ino,
    pub(super) block: u64,
    pub(super) extent: u64,
    /// Looks since it has evicted something.
    pub(super) in_vain: usize,
}

/// Loads of a file or a directory that are remembered.
const LOADED_MAX: usize = 16;

/// The latest of something, up to a few. Most inodes have none.
#[derive(Clone, Debug)]
pub(in crate::furrow) struct Loaded<T>(Vec<T>);

impl<T> Default for Loaded<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> Loaded<T> {
    /// Adds one. If there are many, the oldest goes, unless an operation still needs it.
    pub(super) fn note(&mut self, place: T, is_needed: impl Fn(&T) -> bool) {
        while self.0.len() >= LOADED_MAX && !is_needed(&self.0[0]) {
            self.0.remove(0);
        }
        self.0.push(place);
    }

    /// All that are remembered, the latest first.
    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.iter().rev()
    }

    /// Forgets those for which a condition is true.
    pub(super) fn forget(&mut self, is_gone: impl Fn(&T) -> bool) {
        self.0.retain(|place| !is_gone(place));
    }

    fn held_bytes(&self) -> usize {
        in_list(&self.0)
    }
}

fn crcs_bytes(crcs: &Crcs) -> usize {
    let count = crcs.as_slice().len();
    if count > 1 { allocated(4 * count) } else { 0 }
}

impl MapEntry {
    /// Bytes of memory in addition to its place in the map.
    pub(super) fn held_bytes(&self) -> usize {
        match self {
            Self::At { crcs, .. } => crcs_bytes(crcs),
            Self::Preallocated { .. } | Self::Shared { .. } => 0,
        }
    }
}

impl Extent {
    /// Bytes of memory.
    pub(super) fn held_bytes(&self) -> usize {
        in_tree(size_of::<(ExtentId, Self)>()) + crcs_bytes(&self.crcs)
    }
}

impl File {
    /// Bytes of its trees, without the allocations of their entries.
    pub(super) fn frame_bytes(&self) -> usize {
        self.map.held_bytes() + self.known.held_bytes() + self.loaded.held_bytes()
    }
}

impl Directory {
    /// Bytes of its trees, without the allocations of their entries.
    pub(super) fn frame_bytes(&self) -> usize {
        let trees = self.by_cookie.held_bytes() + self.by_hash.held_bytes();
        let names = self.names.as_ref().map_or(0, Names::held_bytes);
        let recent = self.loaded.held_bytes() + self.absent.held_bytes();
        trees + names + self.known.held_bytes() + recent
    }
}

impl Inode {
    /// Bytes of memory.
    pub(super) fn held_bytes(&self) -> usize {
        let body = match &self.body {
            Body::File(file) => file.frame_bytes() + file.map.entry_bytes(),
            Body::Directory(directory) => {
                let names = directory.by_hash.iter().map(|named| name_held_bytes(&named.name));
                allocated(size_of::<Directory>()) + directory.frame_bytes() + names.sum::<usize>()
            }
            Body::Symlink(target) => allocated(target.len()),
            Body::Special => 0,
        };
        let frame = in_tree(size_of::<(Ino, Box<Self>)>()) + allocated(size_of::<Self>());
        frame + body + self.xattrs.held_bytes()
    }
}

/// Bytes of memory of a name in a directory, in addition to its places in the trees.
pub(super) fn name_held_bytes(name: &[u8]) -> usize {
    allocated(name.len())
}
