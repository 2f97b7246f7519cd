//! Reads of the view: a row, a range, the last row of a range, each at one moment.
//!
//! A read copies the rows of its range that are in memory and takes a reference to the levels, under
//! the lock of the layers. It then merges them with the rows of the runs, with no lock held.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;

use super::{Layers, View};
use crate::furrow::drive::Drive;
use crate::furrow::table::cache::CacheCounts;
use crate::furrow::table::key::Key;
use crate::furrow::table::levels::{Levels, Part};
use crate::furrow::table::memtable::Value;
use crate::furrow::table::merge::{Cursor, Merge, RowsCursor};
use crate::furrow::table::part::{KeyRange, PartError, Section, corrupt};
use crate::furrow::table::part_store::PartStore;
use crate::furrow::table::run::{Downwards, Source, Upwards};
use crate::furrow::table::store::DriveStore;
use crate::vfs::Result;

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
        Ok(found?.map(|(key, value)| (key, self.with_remaps(key, value))))
    }

    /// The value of a row.
    pub(in crate::furrow) fn row(&self, drive: &Drive, key: Key) -> Result<Option<Box<[u8]>>> {
        let value = self.with_store(drive, |store| self.row_in(store, key))?;
        Ok(value.map(|value| self.with_remaps(key, value)))
    }

    pub(in crate::furrow) fn cache_counts(&self) -> CacheCounts {
        self.cache.counts()
    }

    pub(super) fn with_store<'a, R>(
        &self,
        drive: &'a Drive,
        read: impl FnOnce(&DriveStore<'a>) -> R,
    ) -> R {
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

    pub(in crate::furrow::table) fn rows_in<S: PartStore>(
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

    pub(in crate::furrow::table) fn last_row_in<S: PartStore>(
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

    pub(in crate::furrow::table) fn row_in<S: PartStore>(
        &self,
        store: &S,
        key: Key,
    ) -> Result<Option<Box<[u8]>>> {
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
pub(super) struct Runs<'a, S> {
    pub(super) source: Source<'a, S>,
    pub(super) levels: &'a Levels,
}

impl<'a, S: PartStore> Runs<'a, S> {
    /// The first range of a span that parts know to be lost.
    pub(super) fn known_lost(&self, span: (Key, Key)) -> Option<(KeyRange, PartError)> {
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
