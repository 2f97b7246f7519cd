//! The view: the rows of the table at one moment, for readers, without the committer's lock.
//!
//! Rows are in layers, the newest first: those of a commit that is not durable yet, the memtable,
//! the memtable that is being written as a run, and the levels. Only the committer changes the
//! layers, under its lock. A reader copies what it needs from memory, takes a reference to the
//! current levels, and reads their parts through the cache with no lock held. Parts of levels that
//! a reader refers to are not reset, even if a step has replaced them meanwhile.
//!
//! Where no copy gives a leaf, a reader gets an error for each key in its range that no newer layer has.

mod read;
pub(in crate::furrow) mod remap;
pub(in crate::furrow) mod scan;
mod sizes;

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};

use self::read::Runs;
pub(in crate::furrow) use self::read::{Found, FoundRow, Visit};
use super::Frozen;
use super::cache::LeafCache;
use super::levels::Levels;
use super::lost::Remade;
use super::memtable::Memtable;
use super::part::Section;
use super::refused::Refusals;
use super::run::Source;
use crate::furrow::sync::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Rows that become part of the memtable while readers wait.
const ROWS_AT_ONCE: usize = 1024;

/// All rows, the newest layer first.
#[derive(Debug)]
struct Layers {
    /// Taken from the state and not durable yet: all, after a commit that failed.
    unwritten: Memtable,
    /// In the journal, and in no run yet.
    memtable: Memtable,
    /// Being written as a run.
    frozen: Option<Arc<Memtable>>,
    levels: Arc<Levels>,
    /// Bytes of a copy of all their parts.
    levels_bytes: u64,
    /// Which of the moved blocks it tells.
    moved: remap::RemapMarks,
}

impl Layers {
    fn memory(&self) -> impl Iterator<Item = &Memtable> {
        [&self.unwritten, &self.memtable].into_iter().chain(self.frozen.as_deref())
    }
}

/// The rows of the table, for readers.
#[derive(Debug)]
pub(in crate::furrow) struct View {
    uuid: [u8; 16],
    /// Never held during device I/O. May be taken with any other lock held.
    layers: RwLock<Layers>,
    cache: LeafCache,
    /// Parts of which a copy is bad: they are written again.
    suspects: Mutex<BTreeSet<u64>>,
    /// What no copy gave since the mount: part and section.
    lost: Mutex<BTreeSet<(u64, Section)>>,
    pub(in crate::furrow) refusals: Refusals,
    /// Rows that the mount has made anew.
    remade: OnceLock<Remade>,
    /// Where blocks are that were moved, as the rows of all layers say it. Changed with the layers locked.
    moved: remap::RemapState,
}

/// What the committer does.
impl View {
    /// Of a file system with this identity, with a cache of so many bytes.
    pub(in crate::furrow) fn new(
        uuid: [u8; 16],
        (levels, memtable): (Levels, Memtable),
        cache_bytes: usize,
    ) -> Self {
        let (levels, moved, frozen) = (Arc::new(levels), remap::RemapMarks::default(), None);
        let (unwritten, levels_bytes) = (Memtable::default(), levels.bytes());
        let layers = Layers { unwritten, memtable, frozen, levels, levels_bytes, moved };
        let (layers, cache) = (RwLock::new(layers), LeafCache::new(cache_bytes));
        let (suspects, lost, remade) = (Mutex::default(), Mutex::default(), OnceLock::new());
        let (refusals, moved) = (Refusals::default(), remap::RemapState::default());
        Self { uuid, layers, cache, suspects, lost, refusals, remade, moved }
    }

    /// From now on what was lost of these rows is not missed. The rows themselves are added as
    /// [unwritten](Self::add_unwritten) ones.
    pub(in crate::furrow) fn note_remade(&self, remade: Remade) {
        self.remade.set(remade).expect("a mount makes rows anew once");
    }

    pub(in crate::furrow) fn remade(&self) -> Option<Remade> {
        self.remade.get().copied()
    }

    /// Whether rows were made anew although the device may still give the lost ones back.
    pub(in crate::furrow) fn is_remade_for_now(&self) -> bool {
        self.remade().is_some() && self.refusals.any()
    }

    /// The cache has so many bytes from now on.
    pub(in crate::furrow) fn limit_cache(&self, bytes: usize) {
        self.cache.limit(bytes);
    }

    /// Whether a thread has panicked while it changed what readers see.
    pub(in crate::furrow) fn is_poisoned(&self) -> bool {
        self.layers.is_poisoned() || self.cache.is_poisoned() || self.moved.is_poisoned()
    }

    fn read_layers(&self) -> RwLockReadGuard<'_, Layers> {
        self.layers.read().expect("no holder panicked")
    }

    fn write_layers(&self) -> RwLockWriteGuard<'_, Layers> {
        self.layers.write().expect("no holder panicked")
    }

    /// The levels as they are.
    pub(in crate::furrow) fn levels(&self) -> Arc<Levels> {
        Arc::clone(&self.read_layers().levels)
    }

    /// Adds rows that were taken from the state. Readers find them from now on.
    pub(in crate::furrow) fn add_unwritten(&self, rows: Memtable) {
        let mut layers = self.write_layers();
        self.enter_remaps(&mut layers.moved, &rows);
        if layers.unwritten.is_empty() {
            layers.unwritten = rows;
        } else {
            layers.unwritten.append(rows);
        }
    }

    pub(in crate::furrow) fn has_unwritten(&self) -> bool {
        !self.read_layers().unwritten.is_empty()
    }

    /// Looks at the rows that are not durable yet.
    pub(in crate::furrow) fn with_unwritten<R>(&self, look: impl FnOnce(&Memtable) -> R) -> R {
        look(&self.read_layers().unwritten)
    }

    /// They are durable: makes them part of the memtable, a few at a time. Each row is in one of the two
    /// at every moment.
    pub(in crate::furrow) fn end_batch(&self) {
        loop {
            let mut layers = self.write_layers();
            for _ in 0..ROWS_AT_ONCE {
                let Some((key, value)) = layers.unwritten.pop_first() else {
                    layers.moved.note_durable();
                    return;
                };
                layers.memtable.insert(key, value);
            }
        }
    }

    /// From now on the memtable is one that is being written as a run; there is none before.
    pub(in crate::furrow) fn freeze(&self) {
        let mut layers = self.write_layers();
        assert!(layers.frozen.is_none(), "one at a time");
        layers.frozen = Some(Arc::new(std::mem::take(&mut layers.memtable)));
        layers.moved.freeze();
    }

    /// Replaces the levels, and the frozen memtable if they hold it. Returns the levels before.
    pub(in crate::furrow) fn install(&self, levels: Arc<Levels>, frozen: Frozen) -> Arc<Levels> {
        let bytes = levels.bytes();
        let mut layers = self.write_layers();
        layers.levels_bytes = bytes;
        let before = std::mem::replace(&mut layers.levels, levels);
        let flushed = (frozen == Frozen::InLevels).then(|| layers.frozen.take());
        drop(layers);
        // It can be large: not while readers wait.
        drop(flushed);
        before
    }

    fn lock_suspects(&self) -> MutexGuard<'_, BTreeSet<u64>> {
        self.suspects.lock().expect("no holder panicked")
    }

    /// Notes parts of which a copy is bad.
    pub(in crate::furrow) fn suspect(&self, numbers: BTreeSet<u64>) {
        // Nearly always none: no lock for them.
        if !numbers.is_empty() {
            self.lock_suspects().extend(numbers);
        }
    }

    pub(in crate::furrow) fn has_suspects(&self) -> bool {
        !self.lock_suspects().is_empty()
    }

    /// Those of them that the levels have: what is done about them is the caller's now.
    pub(in crate::furrow) fn take_suspects(&self, levels: &Levels) -> BTreeSet<u64> {
        let mut suspects = std::mem::take(&mut *self.lock_suspects());
        if !suspects.is_empty() {
            let live: BTreeSet<u64> = levels.parts().map(|part| part.summary.number).collect();
            suspects.retain(|number| live.contains(number));
        }
        suspects
    }
}

#[cfg(test)]
mod tests;
