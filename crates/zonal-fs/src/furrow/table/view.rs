//! The view: all rows of the table as readers find them, without the committer's lock.
//!
//! Rows lie in four layers, from the newest to the oldest: rows of a commit that is not durable
//! yet, the memtable, the frozen memtable that a step writes as a run, and the levels on the drive.
//! Only the committer changes the layers, under its lock. The view is no snapshot: the next read
//! finds the rows of the next commit. A single read sees one moment: it copies rows from memory and
//! takes a reference to the levels ([`read`]), then reads parts through the cache with no lock
//! held. The zones of levels that a reader holds are not reset, even if a step has replaced the
//! levels.
//!
//! Where both copies of a leaf are bad, a read of a key in it fails, unless a newer layer has the
//! key.

mod read;
pub(super) mod remap;
pub(in crate::furrow) mod scan;
mod sizes;

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};

use self::read::Runs;
pub(in crate::furrow) use self::read::{FoundRow, Refused, RowWindow, Visit};
use super::cache::LeafCache;
use super::levels::Levels;
use super::lost::Remade;
use super::memtable::{Frozen, Memtable};
use super::part::Section;
use super::refused::Refusals;
use super::run::CachedParts;
use crate::furrow::sync::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Rows that enter the memtable in one taking of the lock, while readers wait.
const ROWS_AT_ONCE: usize = 1024;

/// All rows, the newest layer first.
#[derive(Debug)]
struct Layers {
    /// Rows of the running commit, or of one that failed.
    unwritten: Memtable,
    /// Rows that the journal holds, and no run.
    memtable: Memtable,
    /// Rows that a step is writing as a run.
    frozen: Option<Arc<Memtable>>,
    levels: Arc<Levels>,
    /// Bytes of one copy of all parts of `levels`.
    levels_bytes: u64,
    /// Which remap tables the rows of each layer need.
    moved: remap::RemapMarks,
}

impl Layers {
    fn memory(&self) -> impl Iterator<Item = &Memtable> {
        [&self.unwritten, &self.memtable].into_iter().chain(self.frozen.as_deref())
    }
}

/// The rows of the table, for any number of readers.
#[derive(Debug)]
pub(in crate::furrow) struct View {
    uuid: [u8; 16],
    /// A thread may take it with any other lock held, and never does device I/O under it.
    layers: RwLock<Layers>,
    cache: LeafCache,
    /// Numbers of parts with a bad copy, which a step writes again.
    suspects: Mutex<BTreeSet<u64>>,
    /// Part and section that could not be read from either copy since the mount.
    lost: Mutex<BTreeSet<(u64, Section)>>,
    pub(in crate::furrow) refusals: Refusals,
    /// The span of rows that the mount has rebuilt.
    remade: OnceLock<Remade>,
    /// The remap tables of all layers. A thread changes them with the layers locked.
    moved: remap::RemapState,
}

/// The committer's side.
impl View {
    /// A view of the file system with this identity, with a cache of `cache_bytes` bytes.
    pub(in crate::furrow) fn new(
        uuid: [u8; 16],
        levels: Levels,
        memtable: Memtable,
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

    /// From now on a lost range of these rows is no error: the mount has rebuilt them, and adds
    /// them as [unwritten](Self::add_unwritten) rows.
    pub(in crate::furrow) fn note_remade(&self, remade: Remade) {
        self.remade.set(remade).expect("a mount rebuilds rows once");
    }

    pub(in crate::furrow) fn remade(&self) -> Option<Remade> {
        self.remade.get().copied()
    }

    /// Whether the mount has rebuilt rows, or does without remap tables, that a later read may
    /// return.
    pub(in crate::furrow) fn lacks_refused(&self) -> bool {
        (self.remade().is_some() || self.has_lost_remaps()) && self.refusals.any()
    }

    /// Sets the size of the cache.
    pub(in crate::furrow) fn limit_cache(&self, bytes: usize) {
        self.cache.limit(bytes);
    }

    /// Whether a thread has panicked while it changed data of readers.
    pub(in crate::furrow) fn is_poisoned(&self) -> bool {
        self.layers.is_poisoned() || self.cache.is_poisoned() || self.moved.is_poisoned()
    }

    fn read_layers(&self) -> RwLockReadGuard<'_, Layers> {
        self.layers.read().expect("no holder panicked")
    }

    fn write_layers(&self) -> RwLockWriteGuard<'_, Layers> {
        self.layers.write().expect("no holder panicked")
    }

    /// The present levels.
    pub(in crate::furrow) fn levels(&self) -> Arc<Levels> {
        Arc::clone(&self.read_layers().levels)
    }

    /// Adds rows of a commit. Readers find them from now on.
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

    /// Shows `look` the rows that are not durable yet.
    pub(in crate::furrow) fn with_unwritten<R>(&self, look: impl FnOnce(&Memtable) -> R) -> R {
        look(&self.read_layers().unwritten)
    }

    /// Moves the unwritten rows, which are durable now, to the memtable, a few at a time. A reader
    /// finds each row in one of the two at every moment.
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

    /// Freezes the memtable, for a step to write it as a run. There must be no frozen one.
    pub(in crate::furrow) fn freeze(&self) {
        let mut layers = self.write_layers();
        assert!(layers.frozen.is_none(), "one at a time");
        layers.frozen = Some(Arc::new(std::mem::take(&mut layers.memtable)));
        layers.moved.freeze();
    }

    /// Replaces the levels, and drops the frozen memtable if they hold its rows. Returns the
    /// earlier levels.
    pub(in crate::furrow) fn install(&self, levels: Arc<Levels>, frozen: Frozen) -> Arc<Levels> {
        let bytes = levels.bytes();
        let mut layers = self.write_layers();
        layers.levels_bytes = bytes;
        let before = std::mem::replace(&mut layers.levels, levels);
        let flushed = (frozen == Frozen::InLevels).then(|| layers.frozen.take());
        drop(layers);
        // Freeing a large memtable takes time: do it with no lock held.
        drop(flushed);
        before
    }

    fn lock_suspects(&self) -> MutexGuard<'_, BTreeSet<u64>> {
        self.suspects.lock().expect("no holder panicked")
    }

    /// Notes parts with a bad copy.
    pub(in crate::furrow) fn suspect(&self, numbers: BTreeSet<u64>) {
        // There are hardly ever any: do not take the lock for none.
        if !numbers.is_empty() {
            self.lock_suspects().extend(numbers);
        }
    }

    pub(in crate::furrow) fn has_suspects(&self) -> bool {
        !self.lock_suspects().is_empty()
    }

    /// Takes the numbers of parts with a bad copy that the levels still have.
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
