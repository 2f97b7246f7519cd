//! How often the kernel has looked each inode up, and the one pin that keeps each of them alive.
//!
//! Every reply that names an inode adds one to its count; the kernel takes them back with FORGET.
//! An inode with a count has exactly one pin in the file system. Beside the count stands how often
//! the file is open through the page cache. The counts are spread over shards so that threads
//! rarely meet.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::{Mutex, MutexGuard, PoisonError};

use zonal_fs::vfs::{FileSystem, Ino, Result};

const SHARDS: usize = 64;

/// What the kernel has of an inode.
#[derive(Clone, Copy, Debug)]
struct Counts {
    lookups: u64,
    /// Open files that go through the page cache.
    cached_opens: u64,
}

#[derive(Debug)]
pub(super) struct Pins {
    shards: [Mutex<BTreeMap<Ino, Counts>>; SHARDS],
}

impl Default for Pins {
    fn default() -> Self {
        Self { shards: std::array::from_fn(|_| Mutex::default()) }
    }
}

impl Pins {
    /// Counts one more lookup. Fails if the inode is gone: then the kernel must not hear of it.
    pub(super) fn add(&self, fs: &dyn FileSystem, ino: Ino) -> Result<()> {
        match self.shard(ino).entry(ino) {
            Entry::Occupied(mut counts) => counts.get_mut().lookups += 1,
            Entry::Vacant(counts) => {
                fs.pin(ino)?;
                counts.insert(Counts { lookups: 1, cached_opens: 0 });
            }
        }
        Ok(())
    }

    /// Takes back `lookups` of the inode's count.
    pub(super) fn forget(&self, fs: &dyn FileSystem, ino: Ino, lookups: u64) {
        let gone = match self.shard(ino).entry(ino) {
            // The root, which the kernel knows without lookup, may be forgotten on unmount.
            Entry::Vacant(_) => false,
            Entry::Occupied(mut counts) if counts.get().lookups > lookups => {
                counts.get_mut().lookups -= lookups;
                false
            }
            Entry::Occupied(counts) => {
                counts.remove();
                true
            }
        };
        // Outside the lock: the last unpin of a large deleted file takes its time. Pins are
        // counted, so a lookup in between is safe.
        if gone {
            fs.unpin(ino);
        }
    }

    /// A file was opened through the page cache.
    pub(super) fn open_cached(&self, ino: Ino) {
        if let Some(counts) = self.shard(ino).get_mut(&ino) {
            counts.cached_opens += 1;
        }
    }

    /// A file that was opened through the page cache was closed.
    pub(super) fn close_cached(&self, ino: Ino) {
        if let Some(counts) = self.shard(ino).get_mut(&ino) {
            counts.cached_opens = counts.cached_opens.saturating_sub(1);
        }
    }

    /// Whether a file is open through the page cache.
    pub(super) fn is_open_cached(&self, ino: Ino) -> bool {
        self.shard(ino).get(&ino).is_some_and(|counts| counts.cached_opens > 0)
    }

    /// Lets go of every inode.
    pub(super) fn release_all(&self, fs: &dyn FileSystem) {
        for shard in &self.shards {
            let counts = std::mem::take(&mut *shard.lock().unwrap_or_else(PoisonError::into_inner));
            for ino in counts.into_keys() {
                fs.unpin(ino);
            }
        }
    }

    fn shard(&self, ino: Ino) -> MutexGuard<'_, BTreeMap<Ino, Counts>> {
        let shard = usize::try_from(ino.get() % SHARDS as u64).expect("less than the shards");
        self.shards[shard].lock().unwrap_or_else(PoisonError::into_inner)
    }
}
