//! How much memory an inode's cached metadata takes, and when it was last used.
//!
//! [`evict`](super::evict) frees it.

use std::mem::size_of;
use std::sync::atomic::{AtomicU64, Ordering};

use super::place::{Crcs, Extent, ExtentId, MapEntry};
use crate::vfs::Ino;

/// Bytes of a node of a tree for each entry, about.
pub(super) const NODE_BYTES: usize = 16;

/// When something was used: the number of loads before it.
#[derive(Debug, Default)]
pub(super) struct Used {
    pub(super) last: AtomicU64,
    /// What it was when the hand came by.
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
