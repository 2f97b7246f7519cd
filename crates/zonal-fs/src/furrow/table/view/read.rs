//! Reads of the view: a row, a range, the last row of a range, each at one moment.
//!
//! A read copies the rows of its range that are in memory and takes a reference to the levels,
//! under the lock of the layers. It then merges them with the rows of the runs, with no lock held.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;

use super::{Layers, View};
use crate::furrow::drive::Drive;
use crate::furrow::table::cache::CacheCounts;
use crate::furrow::table::key::{Key, KeySpan};
use crate::furrow::table::levels::{Levels, Part};
use crate::furrow::table::memtable::Value;
use crate::furrow::table::merge::{Cursor, Merge, RowsCursor};
use crate::furrow::table::part::{KeyRange, PartError, Section, unread};
use crate::furrow::table::part_store::PartStore;
use crate::furrow::table::run::{AscendingRows, CachedParts, DescendingRows};
use crate::furrow::table::store::DriveStore;
use crate::vfs::Result;

/// A row, and its value.
pub(in crate::furrow) type FoundRow = (Key, Box<[u8]>);

/// A callback for each row. It says whether the read goes on.
pub(in crate::furrow) type Visit<'a> = dyn FnMut(Key, &[u8]) -> Result<ControlFlow<()>> + 'a;

/// How a caller takes metadata that the device refuses to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::furrow) enum Refused {
    /// A later read may return it.
    MayReturn,
    /// It counts as lost.
    IsLost,
}

/// Rows of a span, from its start up to some key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::furrow) struct RowWindow {
    /// In the order of their keys.
    pub(in crate::furrow) rows: Vec<FoundRow>,
    /// `rows` is complete below this key.
    pub(in crate::furrow) end: Key,
}

impl View {
    /// Reads at most `max` rows of a span, from its start on. The read may stop early, with fewer
    /// rows or none, but always gets ahead: [`RowWindow::end`] is above the start of the span, and
    /// equal to its end once all rows have been read. An error means that the first row cannot be
    /// read.
    pub(in crate::furrow) fn rows(
        &self,
        drive: &Drive,
        span: KeySpan,
        max: usize,
    ) -> Result<RowWindow> {
        self.with_store(drive, |store| self.rows_in(store, span, max))
    }

    /// As [`rows`](Self::rows), but calls `each` for every row. Returns the end that the window
    /// would have.
    pub(in crate::furrow) fn visit(
        &self,
        drive: &Drive,
        span: KeySpan,
        max: usize,
        each: &mut Visit<'_>,
    ) -> Result<Key> {
        self.with_store(drive, |store| self.visit_in(store, span, max, each))
    }

    /// The last row with a key from `at_least` to `at_most`, both included.
    pub(in crate::furrow) fn last_row(
        &self,
        drive: &Drive,
        at_least: Key,
        at_most: Key,
    ) -> Result<Option<FoundRow>> {
        let found = self.with_store(drive, |store| self.last_row_in(store, at_least, at_most));
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
        self.refusals.note(&store.refused.take());
        answer
    }

    fn note_lost(&self, lost: BTreeSet<(u64, Section)>) {
        for (part, section) in lost {
            if self.lost.lock().expect("no holder panicked").insert((part, section)) {
                tracing::error!(part, %section, "no copy of a piece of the metadata can be read");
            }
        }
    }

    /// How many leaves and indexes are lost: ranges that parts record as lost, and sections that
    /// could not be read since the mount.
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

    /// The first key behind the lost range at the start of a span, if there is a lost range.
    pub(in crate::furrow) fn past_lost(
        &self,
        drive: &Drive,
        span: KeySpan,
        refused: Refused,
    ) -> Option<Key> {
        let levels = self.levels();
        self.with_store(drive, |store| {
            let source = CachedParts { store, cache: &self.cache };
            let known = Runs { source, levels: &levels }.known_lost(span);
            let known = known.filter(|(range, _)| range.0 <= span.from);
            let mut past = known.map(|(range, _)| range.1);
            for (parts, span) in runs_in(&levels, span) {
                let Some((range, error)) = source.lost_at(parts, span) else { continue };
                if range.0 > span.from {
                    continue;
                }
                if error.is_refused() && refused == Refused::MayReturn {
                    return None;
                }
                past = past.max(Some(range.1));
            }
            past.map(Key::successor)
        })
    }

    pub(in crate::furrow::table) fn rows_in<S: PartStore>(
        &self,
        store: &S,
        span: KeySpan,
        max: usize,
    ) -> Result<RowWindow> {
        let mut rows = Vec::new();
        let mut each = |key, value: &[u8]| {
            rows.push((key, Box::from(value)));
            Ok(ControlFlow::Continue(()))
        };
        let end = self.visit_in(store, span, max, &mut each)?;
        Ok(RowWindow { rows, end })
    }

    /// [`visit`](Self::visit) of parts in any store.
    fn visit_in<S: PartStore>(
        &self,
        store: &S,
        span: KeySpan,
        max: usize,
        each: &mut Visit<'_>,
    ) -> Result<Key> {
        if span.is_empty() {
            return Ok(span.below);
        }
        let from = span.from;
        let each: &mut Visit<'_> = &mut |key, value| {
            let moved = self.moved_value(key, value, u64::MAX);
            each(key, moved.as_deref().unwrap_or(value))
        };
        let (memory, end, levels) = {
            let layers = self.read_layers();
            let (memory, end) = copy_rows(&layers, span, max.max(1));
            (memory, end, Arc::clone(&layers.levels))
        };
        let runs = Runs { source: CachedParts { store, cache: &self.cache }, levels: &levels };
        let (limit, cursors) = match runs.up_to_lost(KeySpan::new(from, end)) {
            Ok((limit, cursors)) if limit > from => (limit, cursors),
            // No run gives the first key, but a newer layer may.
            Ok(_) => {
                if let Some(value) = self.row_in(store, from)? {
                    let _ = each(from, &value)?;
                }
                return Ok(from.successor());
            }
            Err(error) => return Err(unread(error)),
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
        at_least: Key,
        at_most: Key,
    ) -> Result<Option<FoundRow>> {
        let span = KeySpan::new(at_least, at_most.successor());
        if span.is_empty() {
            return Ok(None);
        }
        let (deleted, in_memory, levels) = {
            let layers = self.read_layers();
            let (deleted, row) = last_in_memory(&layers, span);
            (deleted, row, Arc::clone(&layers.levels))
        };
        // Rows of runs below the last row in memory are not the last row.
        let from = in_memory.as_ref().map_or(at_least, |(key, _)| key.successor());
        let source = CachedParts { store, cache: &self.cache };
        let mut cursors = Vec::new();
        for (parts, span) in runs_in(&levels, span.starting_at(from)) {
            cursors.push(DescendingRows::new(source, parts, span).map_err(unread)?);
        }
        let found = last_in_runs(&mut cursors, &deleted).map_err(unread)?.or(in_memory);
        // A lost range above it may hide a later row, and one around it a newer value.
        let from = found.as_ref().map_or(at_least, |(key, _)| key.successor());
        let runs = Runs { source, levels: &levels };
        if let Some((_, error)) = runs.known_lost(span.starting_at(from)) {
            return Err(unread(error));
        }
        if let Some((key, _)) = &found
            && runs.known_lost(KeySpan::new(*key, from)).is_some()
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
        let source = CachedParts { store, cache: &self.cache };
        for (parts, span) in runs_in(&levels, KeySpan::of(key)) {
            let cursor = AscendingRows::new(source, parts, span).map_err(unread)?;
            if let Some((_, value)) = cursor.peek() {
                return Ok(value.map(Box::from));
            }
            if let Some((_, error)) = source.known_lost(parts, span) {
                // The lost range may have held a newer value than older runs have.
                store.note_lost(&error);
                return Err(unread(error));
            }
        }
        Ok(None)
    }
}

/// Copies at most `max` rows of a span from memory, tombstones included. Also returns the key below
/// which the copy is complete.
fn copy_rows(layers: &Layers, span: KeySpan, max: usize) -> (Vec<(Key, Value)>, Key) {
    let cursors = layers.memory().map(|memtable| {
        let rows = RowsCursor::new(memtable.range(span.from, span.below));
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
    (rows, span.below)
}

/// The runs that may have rows in a span, the newest first, each with the part of the span in which
/// its rows count.
fn runs_in(levels: &Levels, span: KeySpan) -> impl Iterator<Item = (&[Part], KeySpan)> {
    let upper = levels.upper.iter().flat_map(move |run| {
        let spans = levels.spans_since(run.born);
        spans.filter_map(move |since| Some((&run.parts[..], since.intersection(&span)?)))
    });
    upper.chain([(&levels.last[..], span)])
}

/// The runs of some levels, read through the cache.
pub(super) struct Runs<'a, S> {
    pub(super) source: CachedParts<'a, S>,
    pub(super) levels: &'a Levels,
}

impl<'a, S: PartStore> Runs<'a, S> {
    /// The first range in a span that parts record as lost.
    pub(super) fn known_lost(&self, span: KeySpan) -> Option<(KeyRange, PartError)> {
        if self.levels.parts().all(|part| part.summary.lost == 0) {
            return None;
        }
        let runs = runs_in(self.levels, span);
        let lost = runs.filter_map(|(parts, span)| self.source.known_lost(parts, span));
        lost.min_by_key(|(range, _)| *range)
    }

    /// Cursors over all runs from the start of a span up to the first lost range, and the key at
    /// which that begins: the end of the span if nothing is lost. If the first key is in a lost
    /// range, the limit is not above it and there are no cursors. An error has another cause than
    /// lost rows.
    fn up_to_lost(
        &self,
        span: KeySpan,
    ) -> std::result::Result<(Key, Vec<Box<dyn Cursor + 'a>>), PartError> {
        let mut limit = self.known_lost(span).map_or(span.below, |(range, _)| range.0);
        while span.from < limit {
            let span = KeySpan::new(span.from, limit);
            let open = |(parts, span)| -> std::result::Result<Box<dyn Cursor + 'a>, PartError> {
                Ok(Box::new(AscendingRows::new(self.source, parts, span)?))
            };
            let error = match runs_in(self.levels, span).map(open).collect() {
                Ok(cursors) => return Ok((limit, cursors)),
                Err(error) => error,
            };
            let lost = runs_in(self.levels, span)
                .filter_map(|(parts, span)| self.source.lost_at(parts, span));
            let first = lost.map(|((first, _), _)| first).min();
            limit = first.filter(|first| *first < limit).ok_or(error)?;
        }
        Ok((limit, Vec::new()))
    }
}

/// Calls `each` for at most `max` rows of a merge up to `end`. Returns early at a read error.
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

/// The last row in memory, and the keys of the tombstones above it in descending order.
fn last_in_memory(layers: &Layers, span: KeySpan) -> (Vec<Key>, Option<FoundRow>) {
    let mut deleted = Vec::new();
    let mut ranges: Vec<_> = layers
        .memory()
        .map(|memtable| memtable.range(span.from, span.below).rev().peekable())
        .collect();
    loop {
        let last = ranges.iter_mut().filter_map(|rows| rows.peek().map(|(key, _)| **key)).max();
        let Some(last) = last else { return (deleted, None) };
        // The newest layer comes first.
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

/// The last row of some runs, given newest first, that no newer run and no tombstone in memory
/// deletes.
fn last_in_runs<S: PartStore>(
    cursors: &mut [DescendingRows<'_, S>],
    deleted: &[Key],
) -> std::result::Result<Option<FoundRow>, PartError> {
    let mut deleted = deleted.iter().copied().peekable();
    loop {
        let Some(last) = cursors.iter().filter_map(|cursor| Some(cursor.peek()?.0)).max() else {
            return Ok(None);
        };
        while deleted.next_if(|&key| key > last).is_some() {}
        let newest = cursors.iter().filter_map(DescendingRows::peek).find(|&(key, _)| key == last);
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
