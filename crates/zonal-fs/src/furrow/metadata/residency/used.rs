//! When cached metadata was used last.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::furrow::memory::in_list;

/// When something was used: the number of loads before it.
#[derive(Debug, Default)]
pub(in crate::furrow) struct Used {
    pub(in crate::furrow::metadata) last: AtomicU64,
    /// The value of `last` when the hand last passed.
    pub(in crate::furrow::metadata) seen: u64,
}

impl Clone for Used {
    fn clone(&self) -> Self {
        Self { last: AtomicU64::new(self.last.load(Ordering::Relaxed)), seen: self.seen }
    }
}

impl Used {
    pub(in crate::furrow::metadata) fn note(&self, now: u64) {
        if self.last.load(Ordering::Relaxed) != now {
            self.last.store(now, Ordering::Relaxed);
        }
    }
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
    pub(in crate::furrow::metadata) fn note(&mut self, place: T, is_needed: impl Fn(&T) -> bool) {
        while self.0.len() >= LOADED_MAX && !is_needed(&self.0[0]) {
            self.0.remove(0);
        }
        self.0.push(place);
    }

    /// All that are remembered, the latest first.
    pub(in crate::furrow::metadata) fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.iter().rev()
    }

    /// Forgets those for which a condition is true.
    pub(in crate::furrow::metadata) fn forget(&mut self, is_gone: impl Fn(&T) -> bool) {
        self.0.retain(|place| !is_gone(place));
    }

    /// Bytes of memory.
    pub(in crate::furrow::metadata) fn held_bytes(&self) -> usize {
        in_list(&self.0)
    }
}
