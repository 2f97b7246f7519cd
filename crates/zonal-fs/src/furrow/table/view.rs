//! The view: the rows of the table at one moment, for readers, without the committer's lock.
//!
//! Rows are in layers, the newest first: those of a commit that is not durable yet, the memtable,
//! the memtable that is being written as a run, and the levels. Only the committer changes the
//! layers, under its lock. A reader copies what it needs from memory, takes a reference to the
//! current levels, and reads their parts through the cache with no lock held. Parts of levels that
//! a reader refers to are not reset, even if a step has replaced them meanwhile.
//!
//! Where no copy gives a leaf, a reader gets an error for each key in its range that no newer layer has.

pub(in crate::furrow) mod moved;
pub(in crate::furrow) mod scan;
mod sizes;

use crate::furrow::tree::Tree;
use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::{Arc, OnceLock};

use super::Frozen;
use super::cache::{CacheCounts, LeafCache};
use super::key::Key;
use super::levels::{Levels, Part};
use super::lost::Remade;
use super::memtable::{Memtable, Value};
use super::merge::{Cursor, Merge, RowsCursor};
use super::part::{KeyRange, PartError, Section};
use super::refused::Refusals;
use super::run::{Downwards, Source, Upwards};
use super::store::DriveStore;
use super::sweep::{PartStore, corrupt};
use crate::furrow::io::Drive;
use crate::furrow::sync::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
use crate::vfs::Result;

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
    moved: moved::Marks,
}

impl Layers {
    fn memory(&self) -> impl Iterator<Item = &Memtable> {
        [&self.unwritten, &self.memtable].into_iter().chain(self.frozen.as_deref())
    }
}

/// A row, and its value.
pub(in crate::furrow) type FoundRow = (Key, Box<[u8]>);

/// What is done with a row that is found, and whether others are wanted.
pub(in crate::furrow) type Visit<'a> = dyn FnMut(Key, &[u8]) -> Result<ControlFlow<()>> + 'a;

/// Rows that were found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::furrow) struct Found {
    /// In order.
    pub(in crate::furrow) rows: Vec<FoundRow>,
    /// All rows from where the search began up to, but without, this key are there.
    pub(in crate::furrow) end: Key,
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
    pub(super) refusals: Refusals,
    /// Rows that the mount has made anew.
    remade: OnceLock<Remade>,
    /// Where blocks are that were moved, as the rows of all layers say it. Changed with the layers locked.
    moved: moved::Moved,
}

/// What the committer does.
impl View {
    /// Of a file system with this identity, with a cache of so many bytes.
    pub(in crate::furrow) fn new(
        uuid: [u8; 16],
        (levels, memtable): (Levels, Memtable),
        cache_bytes: usize,
    ) -> Self {
        let (levels, moved, frozen) = (Arc::new(levels), moved::Marks::default(), None);
        let (unwritten, levels_bytes) = (Memtable::default(), levels.bytes());
        let layers = Layers { unwritten, memtable, frozen, levels, levels_bytes, moved };
        let (layers, cache) = (RwLock::new(layers), LeafCache::new(cache_bytes));
        let (suspects, lost, remade) = (Mutex::default(), Mutex::default(), OnceLock::new());
        let (refusals, moved) = (Refusals::default(), moved::Moved::default());
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
        self.enter_moved(&mut layers.moved, &rows);
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

/// What readers do.
impl View {
    /// Rows from `from` on and below `below`, at most `max` of them, one at least. The search may end earlier and
    /// with fewer rows or none, but always later than where it began; [`Found::end`] is `below` if it is through.
    /// An error means that the first row cannot be read.
    pub(in crate::furrow) fn rows(
        &self,
        drive: &Drive,
        (from, below): (Key, Key),
        max: usize,
    ) -> Result<Found> {
        self.with_store(drive, |store| self.rows_in(store, (from, below), max))
    }

    /// Hands on rows as [`rows`](Self::rows) gives them, and returns up to which key these are all.
    pub(in crate::furrow) fn visit(
        &self,
        drive: &Drive,
        (from, below): (Key, Key),
        max: usize,
        each: &mut Visit<'_>,
    ) -> Result<Key> {
        self.with_store(drive, |store| self.visit_in(store, (from, below), max, each))
    }

    /// The last row from `at_least` on, up to and with `at_most`.
    pub(in crate::furrow) fn last_row(
        &self,
        drive: &Drive,
        (at_least, at_most): (Key, Key),
    ) -> Result<Option<FoundRow>> {
        let found = self.with_store(drive, |store| self.last_row_in(store, (at_least, at_most)));
        Ok(found?.map(|(key, value)| (key, self.with_moves(key, value))))
    }

    /// The value of a row.
    pub(in crate::furrow) fn row(&self, drive: &Drive, key: Key) -> Result<Option<Box<[u8]>>> {
        let value = self.with_store(drive, |store| self.row_in(store, key))?;
        Ok(value.map(|value| self.with_moves(key, value)))
    }

    pub(in crate::furrow) fn cache_counts(&self) -> CacheCounts {
        self.cache.counts()
    }

    fn with_store<'a, R>(&self, drive: &'a Drive, read: impl FnOnce(&DriveStore<'a>) -> R) -> R {
        let store = DriveStore { remade: self.remade(), ..DriveStore::new(drive, self.uuid) };
        let answer = read(&store);
        self.suspect(store.bad.take());
        self.note_lost(store.lost.take());
        self.refusals.note(store.refused.take().as_ref());
        answer
    }

    fn note_lost(&self, lost: BTreeSet<(u64, Section)>) {
        for (part, section) in lost {
            if self.lost.lock().expect("no holder panicked").insert((part, section)) {
                tracing::error!(part, %section, "no copy of a piece of the metadata can be read");
            }
        }
    }

    /// Leaves and indexes that no copy gives: those that parts know of, and those that were found since
    /// the mount.
    pub(in crate::furrow) fn lost_count(&self) -> u64 {
        let levels = self.levels();
        let lost = self.lost.lock().expect("no holder panicked");
        let found = |part: &Part| {
            let number = part.summary.number;
            let found = lost.range((number, Section::Index)..(number, Section::Lost(0)));
            u64::from(part.summary.lost) + found.count() as u64
        };
        levels.parts().map(found).sum()
    }

    /// The first key behind what is lost at `from`, if that is why no row from there on can be read.
    pub(in crate::furrow) fn past_lost(
        &self,
        drive: &Drive,
        (from, below): (Key, Key),
    ) -> Option<Key> {
        let levels = self.levels();
        self.with_store(drive, |store| {
            let source = Source { store, cache: &self.cache };
            let known = Runs { source, levels: &levels }.known_lost((from, below));
            let found = runs_in(&levels, (from, below))
                .filter_map(|(parts, span)| source.lost_at(parts, span));
            let lost = found.chain(known.map(|(range, _)| range));
            lost.filter(|range| range.0 <= from).map(|range| range.1.successor()).max()
        })
    }

    pub(super) fn rows_in<S: PartStore>(
        &self,
        store: &S,
        (from, below): (Key, Key),
        max: usize,
    ) -> Result<Found> {
        let mut rows = Vec::new();
        let mut each = |key, value: &[u8]| {
            rows.push((key, Box::from(value)));
            Ok(ControlFlow::Continue(()))
        };
        let end = self.visit_in(store, (from, below), max, &mut each)?;
        Ok(Found { rows, end })
    }

    /// Hands on rows, at most `max`, as [`rows`](Self::rows) gives them. Returns up to which key these
    /// are all.
    fn visit_in<S: PartStore>(
        &self,
        store: &S,
        (from, below): (Key, Key),
        max: usize,
        each: &mut Visit<'_>,
    ) -> Result<Key> {
        if from >= below {
            return Ok(below);
        }
        let each: &mut Visit<'_> = &mut |key, value| {
            let moved = self.moved_value(key, value, u64::MAX);
            each(key, moved.as_deref().unwrap_or(value))
        };
        let (memory, end, levels) = {
            let layers = self.read_layers();
            let (memory, end) = copy_rows(&layers, (from, below), max.max(1));
            (memory, end, Arc::clone(&layers.levels))
        };
        let runs = Runs { source: Source { store, cache: &self.cache }, levels: &levels };
        let (limit, cursors) = match runs.up_to_lost((from, end)) {
            Ok((limit, cursors)) if limit > from => (limit, cursors),
            // The first row may be a newer one.
            Ok(_) => {
                if let Some(value) = self.row_in(store, from)? {
                    let _ = each(from, &value)?;
                }
                return Ok(from.successor());
            }
            Err(error) => return Err(corrupt(error)),
        };
        let memory = memory.iter().take_while(|(key, _)| *key < limit);
        let memory: Box<dyn Cursor + '_> =
            Box::new(RowsCursor::new(memory.map(|(key, value)| (key, value))));
        let cursors = std::iter::once(memory).chain(cursors).collect();
        visit(Merge::new(cursors), max.max(1), limit, each)
    }

    pub(super) fn last_row_in<S: PartStore>(
        &self,
        store: &S,
        (at_least, at_most): (Key, Key),
    ) -> Result<Option<FoundRow>> {
        let below = at_most.successor();
        if at_least >= below {
            return Ok(None);
        }
        let (deleted, in_memory, levels) = {
            let layers = self.read_layers();
            let (deleted, row) = last_in_memory(&layers, (at_least, below));
            (deleted, row, Arc::clone(&layers.levels))
        };
        // What lies below the last row in memory is not the last.
        let from = in_memory.as_ref().map_or(at_least, |(key, _)| key.successor());
        let source = Source { store, cache: &self.cache };
        let mut cursors = Vec::new();
        for (parts, span) in runs_in(&levels, (from, below)) {
            cursors.push(Downwards::new(source, parts, span).map_err(corrupt)?);
        }
        let found = last_in_runs(&mut cursors, &deleted).map_err(corrupt)?.or(in_memory);
        // Above it nothing may be lost, and it may itself be outdated.
        let from = found.as_ref().map_or(at_least, |(key, _)| key.successor());
        let runs = Runs { source, levels: &levels };
        if let Some((_, error)) = runs.known_lost((from, below)) {
            return Err(corrupt(error));
        }
        if let Some((key, _)) = &found
            && runs.known_lost((*key, from)).is_some()
        {
            return Ok(self.row_in(store, *key)?.map(|value| (*key, value)));
        }
        Ok(found)
    }

    pub(super) fn row_in<S: PartStore>(&self, store: &S, key: Key) -> Result<Option<Box<[u8]>>> {
        let levels = {
            let layers = self.read_layers();
            if let Some(value) = layers.memory().find_map(|memtable| memtable.get(key)) {
                return Ok(value.clone());
            }
            Arc::clone(&layers.levels)
        };
        let source = Source { store, cache: &self.cache };
        for (parts, span) in runs_in(&levels, (key, key.successor())) {
            let cursor = Upwards::new(source, parts, span).map_err(corrupt)?;
            if let Some((_, value)) = cursor.peek() {
                return Ok(value.map(Box::from));
            }
            if let Some((_, error)) = source.known_lost(parts, span) {
                // What older runs say may be outdated.
                store.note_lost(&error);
                return Err(corrupt(error));
            }
        }
        Ok(None)
    }
}

/// Rows in memory from a key on, deleted ones included, at most `max`, and up to where these are all.
fn copy_rows(layers: &Layers, (from, below): (Key, Key), max: usize) -> (Vec<(Key, Value)>, Key) {
    let cursors = layers.memory().map(|memtable| {
        let rows = RowsCursor::new(memtable.range(from, below));
        Box::new(rows) as Box<dyn Cursor + '_>
    });
    let mut merge = Merge::new(cursors.collect());
    let mut rows: Vec<(Key, Value)> = Vec::new();
    while let Some((key, value)) = merge.peek() {
        if rows.len() == max {
            return (rows, key);
        }
        rows.push((key, value.map(Box::from)));
        merge.advance().expect("rows in memory can be read");
    }
    (rows, below)
}

/// The runs that may have something of a range, newest first, each with what counts of it there.
fn runs_in(
    levels: &Levels,
    (from, below): (Key, Key),
) -> impl Iterator<Item = (&[Part], (Key, Key))> {
    let upper = levels.upper.iter().flat_map(move |run| {
        levels.spans_since(run.born).map(move |span| (&run.parts[..], span.within(from, below)))
    });
    let upper = upper.filter(|(_, (from, below))| from < below);
    upper.chain([(&levels.last[..], (from, below))])
}

/// The runs of levels, for a reader.
struct Runs<'a, S> {
    source: Source<'a, S>,
    levels: &'a Levels,
}

impl<'a, S: PartStore> Runs<'a, S> {
    /// The first range of a span that parts know to be lost.
    fn known_lost(&self, span: (Key, Key)) -> Option<(KeyRange, PartError)> {
        if self.levels.parts().all(|part| part.summary.lost == 0) {
            return None;
        }
        let runs = runs_in(self.levels, span);
        let lost = runs.filter_map(|(parts, span)| self.source.known_lost(parts, span));
        lost.min_by_key(|(range, _)| *range)
    }

    /// Cursors from a key on, up to what is lost, but not beyond `below`; and up to where that is. Nothing
    /// is known of the first key itself if it is not above that. An error is none of lost rows.
    fn up_to_lost(
        &self,
        (from, below): (Key, Key),
    ) -> std::result::Result<(Key, Vec<Box<dyn Cursor + 'a>>), PartError> {
        let mut limit = self.known_lost((from, below)).map_or(below, |(range, _)| range.0);
        while from < limit {
            let open = |(parts, span)| -> std::result::Result<Box<dyn Cursor + 'a>, PartError> {
                Ok(Box::new(Upwards::new(self.source, parts, span)?))
            };
            let error = match runs_in(self.levels, (from, limit)).map(open).collect() {
                Ok(cursors) => return Ok((limit, cursors)),
                Err(error) => error,
            };
            let lost = runs_in(self.levels, (from, limit))
                .filter_map(|(parts, span)| self.source.lost_at(parts, span));
            limit = lost.map(|range| range.0).min().filter(|first| *first < limit).ok_or(error)?;
        }
        Ok((limit, Vec::new()))
    }
}

/// Hands on the rows of a merge up to `end`, at most `max`. What cannot be read ends it early.
fn visit(mut merge: Merge<'_>, max: usize, end: Key, each: &mut Visit<'_>) -> Result<Key> {
    let mut count = 0;
    while let Some((key, value)) = merge.peek() {
        let mut is_enough = false;
        if let Some(value) = value {
            count += 1;
            is_enough = each(key, value)?.is_break() || count == max;
        }
        if is_enough || merge.advance().is_err() {
            return Ok(key.successor());
        }
    }
    Ok(end)
}

/// The last row in memory that is not deleted, and the deleted ones above it, from above.
fn last_in_memory(layers: &Layers, (from, below): (Key, Key)) -> (Vec<Key>, Option<FoundRow>) {
    let mut deleted = Vec::new();
    let mut ranges: Vec<_> =
        layers.memory().map(|memtable| memtable.range(from, below).rev().peekable()).collect();
    loop {
        let last = ranges.iter_mut().filter_map(|rows| rows.peek().map(|(key, _)| **key)).max();
        let Some(last) = last else { return (deleted, None) };
        // The newest has it first.
        let mut values =
            ranges.iter_mut().filter_map(|rows| rows.next_if(|(key, _)| **key == last));
        let newest = values.next().and_then(|(_, value)| value.clone());
        values.for_each(drop);
        match newest {
            Some(value) => return (deleted, Some((last, value))),
            None => deleted.push(last),
        }
    }
}

/// The last row of some runs, newest first, that is deleted neither in a newer one nor in memory.
fn last_in_runs<S: PartStore>(
    cursors: &mut [Downwards<'_, S>],
    deleted: &[Key],
) -> std::result::Result<Option<FoundRow>, PartError> {
    let mut deleted = deleted.iter().copied().peekable();
    loop {
        let Some(last) = cursors.iter().filter_map(|cursor| Some(cursor.peek()?.0)).max() else {
            return Ok(None);
        };
        while deleted.next_if(|&key| key > last).is_some() {}
        let newest = cursors.iter().filter_map(Downwards::peek).find(|&(key, _)| key == last);
        if deleted.peek() != Some(&last)
            && let Some((_, Some(value))) = newest
        {
            return Ok(Some((last, Box::from(value))));
        }
        for cursor in cursors.iter_mut() {
            if cursor.peek().is_some_and(|(key, _)| key == last) {
                cursor.step_down()?;
            }
        }
    }
}

impl Tree {
    /// Rows from `from` on and below `below`, at most `max` of them: see [`View::rows`].
    pub(in crate::furrow) fn rows(&self, from: Key, below: Key, max: usize) -> Result<Found> {
        self.view.rows(&self.drive, (from, below), max)
    }

    /// The same, handed on one by one: see [`View::visit`].
    pub(in crate::furrow) fn visit(
        &self,
        from: Key,
        below: Key,
        max: usize,
        each: &mut Visit<'_>,
    ) -> Result<Key> {
        self.view.visit(&self.drive, (from, below), max, each)
    }

    /// The last row from `at_least` on, up to and with `at_most`.
    pub(in crate::furrow) fn last_row(
        &self,
        at_least: Key,
        at_most: Key,
    ) -> Result<Option<FoundRow>> {
        self.view.last_row(&self.drive, (at_least, at_most))
    }

    /// The value of a row.
    pub(in crate::furrow) fn row(&self, key: Key) -> Result<Option<Box<[u8]>>> {
        self.view.row(&self.drive, key)
    }
}

#[cfg(test)]
mod tests;
