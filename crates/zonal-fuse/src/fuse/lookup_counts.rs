//! Lookup counts of inodes, and the one pin that keeps each of these inodes alive.
//!
//! Every answer with an inode adds one to its count; the kernel takes lookups back with FORGET. An
//! inode with a count has exactly one pin in the file system. The count also tracks whether the
//! kernel may have cached pages of the file: pages come through open files that use the page cache.
//! Shards keep threads from contending for one lock.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::{Mutex, MutexGuard, PoisonError};

use zonal_fs::vfs::{FileSystem, Ino, Result};

use super::page_cache::PageRange;

const SHARDS: usize = 64;

/// The kernel's references to one inode.
#[derive(Clone, Copy, Debug, Default)]
struct InodeCounts {
    lookups: u64,
    /// Open files of the inode that use the page cache.
    cached_open: u64,
    /// How often such a file was opened.
    cached_opens: u64,
    /// Value of `cached_opens` when all pages were dropped while no such file was open.
    dropped: u64,
}

/// Cached pages that a direct write may have made stale.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stale {
    /// Their range: all pages if no reader is left, so that the next write finds none.
    pub(super) range: PageRange,
    /// Value for [`LookupCounts::dropped`].
    opens: Option<u64>,
}

/// Whether the kernel still knows an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Forgotten {
    /// It has lookups left.
    InPart,
    /// It has none, and its pin is gone.
    Wholly,
}

#[derive(Debug)]
pub(super) struct LookupCounts {
    shards: [Mutex<BTreeMap<Ino, InodeCounts>>; SHARDS],
}

impl Default for LookupCounts {
    fn default() -> Self {
        Self { shards: std::array::from_fn(|_| Mutex::default()) }
    }
}

impl LookupCounts {
    /// Counts one more lookup. Fails if the inode is gone: then no answer may contain it.
    pub(super) fn add(&self, fs: &dyn FileSystem, ino: Ino) -> Result<()> {
        match self.shard(ino).entry(ino) {
            Entry::Occupied(mut counts) => counts.get_mut().lookups += 1,
            Entry::Vacant(counts) => {
                fs.pin(ino)?;
                counts.insert(InodeCounts { lookups: 1, ..InodeCounts::default() });
            }
        }
        Ok(())
    }

    /// Takes back `lookups` of the inode's count.
    pub(super) fn forget(&self, fs: &dyn FileSystem, ino: Ino, lookups: u64) -> Forgotten {
        let gone = match self.shard(ino).entry(ino) {
            // The kernel may forget the root, which it knows without a lookup, on unmount.
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
        // Outside the lock: the last unpin of a large deleted file takes its time. LookupCounts are
        // counted, so a lookup in between is safe.
        if gone {
            fs.unpin(ino);
            Forgotten::Wholly
        } else {
            Forgotten::InPart
        }
    }

    /// A file was opened through the page cache.
    pub(super) fn open_cached(&self, ino: Ino) {
        if let Some(counts) = self.shard(ino).get_mut(&ino) {
            counts.cached_open += 1;
            counts.cached_opens += 1;
        }
    }

    /// A file that was opened through the page cache was closed.
    pub(super) fn close_cached(&self, ino: Ino) {
        if let Some(counts) = self.shard(ino).get_mut(&ino) {
            counts.cached_open = counts.cached_open.saturating_sub(1);
        }
    }

    /// Whether the kernel may have pages of a file.
    pub(super) fn may_have_pages(&self, ino: Ino) -> bool {
        self.stale(ino, 0, 0).is_some()
    }

    /// Pages that a direct write to these bytes may have made stale.
    pub(super) fn stale(&self, ino: Ino, offset: u64, len: u64) -> Option<Stale> {
        let counts = self.shard(ino).get(&ino).copied()?;
        if counts.cached_open > 0 {
            return Some(Stale { range: PageRange { offset, len: Some(len) }, opens: None });
        }
        let opens = counts.cached_opens;
        (opens > counts.dropped).then_some(Stale { range: PageRange::ALL, opens: Some(opens) })
    }

    /// The kernel has dropped these pages.
    pub(super) fn dropped(&self, ino: Ino, stale: Stale) {
        if let (Some(opens), Some(counts)) = (stale.opens, self.shard(ino).get_mut(&ino)) {
            counts.dropped = counts.dropped.max(opens);
        }
    }

    /// Takes the pins of all inodes back.
    pub(super) fn release_all(&self, fs: &dyn FileSystem) {
        for shard in &self.shards {
            let counts = std::mem::take(&mut *shard.lock().unwrap_or_else(PoisonError::into_inner));
            for ino in counts.into_keys() {
                fs.unpin(ino);
            }
        }
    }

    fn shard(&self, ino: Ino) -> MutexGuard<'_, BTreeMap<Ino, InodeCounts>> {
        let shard = usize::try_from(ino.get() % SHARDS as u64).expect("less than the shards");
        self.shards[shard].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INO: Ino = Ino::new(7);

    fn known() -> LookupCounts {
        let counts = LookupCounts::default();
        let one = InodeCounts { lookups: 1, ..InodeCounts::default() };
        counts.shard(INO).insert(INO, one);
        counts
    }

    #[test]
    fn pins_never_cached_file_has_no_stale_pages() {
        assert_eq!(known().stale(INO, 0, 4096), None);
        assert!(!known().may_have_pages(INO));
        assert_eq!(
            LookupCounts::default().stale(INO, 0, 4096),
            None,
            "the kernel does not know it"
        );
    }

    #[test]
    fn pins_while_open_drop_only_written_range() {
        let counts = known();
        counts.open_cached(INO);
        let stale = counts.stale(INO, 4096, 512).unwrap();
        assert_eq!(stale.range, PageRange { offset: 4096, len: Some(512) });
        counts.dropped(INO, stale);
        assert!(counts.may_have_pages(INO));
        assert!(counts.stale(INO, 4096, 512).is_some(), "a reader may bring them back at any time");
    }

    #[test]
    fn pins_drop_all_pages_once_after_last_close() {
        let counts = known();
        counts.open_cached(INO);
        counts.close_cached(INO);
        let (first, second) = (counts.stale(INO, 0, 1).unwrap(), counts.stale(INO, 9, 1).unwrap());
        assert_eq!(first.range, PageRange::ALL);
        assert_eq!(second, first, "nothing is dropped yet");
        counts.dropped(INO, first);
        assert_eq!(counts.stale(INO, 0, 1), None);
    }

    #[test]
    fn pins_keep_reader_that_came_since() {
        let counts = known();
        counts.open_cached(INO);
        counts.close_cached(INO);
        let stale = counts.stale(INO, 0, 1).unwrap();
        counts.open_cached(INO);
        counts.close_cached(INO);
        counts.dropped(INO, stale);
        assert!(counts.stale(INO, 0, 1).is_some());
    }
}
