//! The steps that move rows between levels: read parts, merge, write parts.
//!
//! Each step takes the current levels and returns the new ones; what it has written counts once a
//! manifest names it. Only one step runs at a time.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::ops::Range;

use super::key::Key;
use super::levels::{Levels, Limits, Part, Run, Span};
use super::memtable::Memtable;
use super::merge::{Cursor, Merge, RowsCursor};
use super::part::{BuiltPart, PartBuilder, PartCursor, PartError, PartId, PartReader, PartSource};
use crate::FsError;
use crate::furrow::format::Address;
use crate::furrow::planted::{Planted, PlantedBug};
use crate::vfs::Result;

/// Parts that a step of the sweep writes at most, about.
const STEP_PARTS_MAX: usize = 4;

/// Where parts are read from and written to.
pub(in crate::furrow) trait PartStore {
    /// Both copies of a part.
    type Source: PartSource;

    fn source(&self, part: &Part) -> Self::Source;

    /// Identity of the file system.
    fn uuid(&self) -> [u8; 16];

    /// A number that no part has had.
    fn next_number(&self) -> u64;

    /// Writes both copies of a part.
    fn write(&self, bytes: &[u8]) -> Result<[Address; 2]>;

    /// A copy of a part is bad, and was read from the other one; or it is not what its summary says.
    fn note_bad(&self, _: &Part) {}

    /// No copy gives something of a part.
    fn note_lost(&self, _: &PartError) {}
}

/// What a step works with.
pub(in crate::furrow) struct Compaction<'a, S: PartStore> {
    pub(in crate::furrow) store: &'a S,
    pub(in crate::furrow) limits: Limits,
    pub(in crate::furrow) planted: Planted,
}

#[expect(clippy::needless_pass_by_value, reason = "as map_err hands it on")]
pub(in crate::furrow) fn corrupt(error: PartError) -> FsError {
    FsError::Corrupt { what: "part", why: error.to_string() }
}

/// The rows of a run in a span, part after part.
struct RunCursor<'a, S: PartStore> {
    store: &'a S,
    parts: std::slice::Iter<'a, Part>,
    span: Span,
    current: Option<(&'a Part, PartCursor<S::Source>)>,
    /// Rows and tombstones of the part that it is in, so far.
    seen: (u32, u32),
    /// Counts the rows that are left behind.
    count: Option<&'a Cell<u64>>,
}

impl<'a, S: PartStore> RunCursor<'a, S> {
    fn new(
        store: &'a S,
        parts: &'a [Part],
        span: Span,
        count: Option<&'a Cell<u64>>,
    ) -> std::result::Result<Self, PartError> {
        let first = parts.partition_point(|part| part.summary.last < span.from);
        let parts = parts[first..].iter();
        let mut cursor = Self { store, parts, span, current: None, seen: (0, 0), count };
        cursor.open_next()?;
        Ok(cursor)
    }

    /// Goes on to the next part that has rows in the span.
    fn open_next(&mut self) -> std::result::Result<(), PartError> {
        if let Some((part, cursor)) = self.current.take() {
            let is_whole = part.summary.first >= self.span.from;
            let is_counted = self.seen == (part.summary.rows, part.summary.tombstones);
            if (is_whole && !is_counted) || !cursor.reader().bad_copies().is_empty() {
                self.store.note_bad(part);
            }
        }
        self.seen = (0, 0);
        for part in self.parts.by_ref() {
            let reader =
                PartReader::open(&part.summary, self.store.uuid(), self.store.source(part))?;
            let cursor = reader.cursor_from(self.span.from)?;
            if cursor.peek().is_some() {
                self.current = Some((part, cursor));
                return Ok(());
            }
        }
        Ok(())
    }
}

impl<S: PartStore> Cursor for RunCursor<'_, S> {
    fn peek(&self) -> Option<(Key, Option<&[u8]>)> {
        let (_, cursor) = self.current.as_ref()?;
        cursor.peek().filter(|(key, _)| self.span.contains(*key))
    }

    fn advance(&mut self) -> std::result::Result<(), PartError> {
        let Some((_, cursor)) = &mut self.current else { return Ok(()) };
        let is_tombstone = cursor.peek().is_some_and(|(_, value)| value.is_none());
        self.seen.0 += 1;
        self.seen.1 += u32::from(is_tombstone);
        if let Some(count) = self.count {
            count.set(count.get() + 1);
        }
        cursor.advance()?;
        if cursor.peek().is_none() { self.open_next() } else { Ok(()) }
    }
}

/// Rows on their way into parts.
struct Output<'a, S: PartStore> {
    store: &'a S,
    part_bytes: usize,
    builder: Option<PartBuilder>,
    parts: Vec<Part>,
    rows: u64,
}

impl<'a, S: PartStore> Output<'a, S> {
    fn new(store: &'a S, part_bytes: usize) -> Self {
        Self { store, part_bytes, builder: None, parts: Vec::new(), rows: 0 }
    }

    fn push(&mut self, key: Key, value: Option<&[u8]>) -> Result<()> {
        let (store, part_bytes) = (self.store, self.part_bytes);
        let builder = self.builder.get_or_insert_with(|| {
            let id = PartId { uuid: store.uuid(), number: store.next_number() };
            PartBuilder::new(id, part_bytes)
        });
        builder.push(key, value);
        self.rows += 1;
        if builder.is_full() { self.end_part() } else { Ok(()) }
    }

    fn end_part(&mut self) -> Result<()> {
        let Some(builder) = self.builder.take() else { return Ok(()) };
        let BuiltPart { bytes, summary } = builder.finish();
        let at = self.store.write(&bytes)?;
        self.parts.push(Part { summary, at });
        Ok(())
    }

    fn finish(mut self) -> Result<(Vec<Part>, u64)> {
        self.end_part()?;
        Ok((self.parts, self.rows))
    }
}

/// Takes the least row off a merge.
fn take_row<R>(merge: &mut Merge<'_>, each: impl FnOnce(Key, Option<&[u8]>) -> R) -> Result<R> {
    let (key, value) = merge.peek().expect("the caller has seen one");
    let answer = each(key, value);
    merge.advance().map_err(corrupt)?;
    Ok(answer)
}

impl<'a, S: PartStore> Compaction<'a, S> {
    /// Cursors over what counts of a run.
    fn run_cursors<'b>(
        &self,
        (levels, run): (&Levels, &'b Run),
        count: Option<&'b Cell<u64>>,
        cursors: &mut Vec<Box<dyn Cursor + 'b>>,
    ) -> Result<()>
    where
        'a: 'b,
    {
        for span in levels.spans_since(run.born) {
            let cursor = RunCursor::new(self.store, &run.parts, span, count).map_err(corrupt)?;
            cursors.push(Box::new(cursor));
        }
        Ok(())
    }

    /// Hands on every row, in order, each as the newest of `memtables` (newest first) and levels
    /// has it, without tombstones.
    #[cfg(test)]
    pub(in crate::furrow) fn scan(
        &self,
        levels: &Levels,
        memtables: &[&Memtable],
        each: &mut dyn FnMut(Key, &[u8]),
    ) -> Result<()> {
        let mut merge = self.merge_of_all(levels, memtables)?;
        while merge.peek().is_some() {
            take_row(&mut merge, |key, value| {
                if let Some(value) = value {
                    each(key, value);
                }
            })?;
        }
        Ok(())
    }

    fn merge_of_all<'b>(&self, levels: &'b Levels, memtables: &[&'b Memtable]) -> Result<Merge<'b>>
    where
        'a: 'b,
    {
        let mut cursors: Vec<Box<dyn Cursor + 'b>> = Vec::new();
        for memtable in memtables {
            cursors.push(Box::new(RowsCursor::new(memtable.range_from(Key::MIN))));
        }
        for run in &levels.upper {
            self.run_cursors((levels, run), None, &mut cursors)?;
        }
        let last = RunCursor::new(self.store, &levels.last, Span::ALL, None).map_err(corrupt)?;
        cursors.push(Box::new(last));
        Ok(Merge::new(cursors))
    }

    /// Writes a memtable as the newest run; where all rows together are few, and can be read, as the last
    /// level, with all that was there before.
    pub(in crate::furrow) fn flush(&self, levels: &Levels, memtable: &Memtable) -> Result<Levels> {
        let mut next = levels.clone();
        let is_small = levels.bytes() + memtable.bytes() as u64 <= self.limits.whole_bytes;
        let mut output = Output::new(self.store, self.limits.part_bytes);
        let whole = is_small.then(|| self.scan_into(levels, memtable, &mut output));
        match whole {
            Some(Ok(())) => {
                next.upper.clear();
                (next.last, _) = output.finish()?;
                next.sweep.turn += 1;
                next.sweep.key = Key::MIN;
                return Ok(next);
            }
            // The journal has to come to an end all the same.
            Some(Err(FsError::Corrupt { .. })) | None => {}
            Some(Err(error)) => return Err(error),
        }
        let mut output = Output::new(self.store, self.limits.part_bytes);
        for (key, value) in memtable.rows() {
            if value.is_some() || !self.planted.has(PlantedBug::DropTombstonesEarly) {
                output.push(key, value)?;
            }
        }
        let (parts, rows_left) = output.finish()?;
        if !parts.is_empty() {
            next.upper.insert(0, Run { tier: 0, born: levels.sweep, rows_left, parts });
        }
        Ok(next)
    }

    fn scan_into(
        &self,
        levels: &Levels,
        memtable: &Memtable,
        output: &mut Output<'_, S>,
    ) -> Result<()> {
        let mut merge = self.merge_of_all(levels, &[memtable])?;
        while merge.peek().is_some() {
            take_row(&mut merge, |key, value| match value {
                Some(value) => output.push(key, Some(value)),
                None => Ok(()),
            })??;
        }
        Ok(())
    }

    /// Merges the runs of a tier into one of the next. Tombstones stay: what they delete lies below.
    pub(in crate::furrow) fn merge_tier(&self, levels: &Levels, tier: u32) -> Result<Levels> {
        let mut next = levels.clone();
        let first = levels.upper.partition_point(|run| run.tier < tier);
        let count = levels.upper[first..].iter().take_while(|run| run.tier == tier).count();
        let mut cursors: Vec<Box<dyn Cursor + '_>> = Vec::new();
        for run in &levels.upper[first..first + count] {
            self.run_cursors((levels, run), None, &mut cursors)?;
        }
        let mut merge = Merge::new(cursors);
        let mut output = Output::new(self.store, self.limits.part_bytes);
        while merge.peek().is_some() {
            take_row(&mut merge, |key, value| output.push(key, value))??;
        }
        let (parts, rows_left) = output.finish()?;
        let merged = Run { tier: tier + 1, born: levels.sweep, rows_left, parts };
        let merged = (!merged.parts.is_empty()).then_some(merged);
        next.upper.splice(first..first + count, merged);
        Ok(next)
    }

    /// Lets the sweep go on: merges what lies above with the last level, until a part is full or the
    /// keys are at their end. Parts that nothing lies above are left as they are.
    pub(in crate::furrow) fn sweep(&self, levels: &Levels) -> Result<Levels> {
        let from = levels.sweep.key;
        let counts: Vec<Cell<u64>> = levels.upper.iter().map(|_| Cell::new(0)).collect();
        let mut cursors: Vec<Box<dyn Cursor + '_>> = Vec::new();
        for (run, count) in levels.upper.iter().zip(&counts) {
            for span in levels.spans_since(run.born).filter(|span| span.from >= from) {
                let cursor = RunCursor::new(self.store, &run.parts, span, Some(count));
                cursors.push(Box::new(cursor.map_err(corrupt)?));
            }
        }
        let mut above = Merge::new(cursors);
        // Parts below the pointer stay, and so do those that nothing lies above.
        let mut kept = levels.last.partition_point(|part| part.summary.last < from);
        while let Some(part) = levels.last.get(kept)
            && above.peek().is_none_or(|(key, _)| key > part.summary.last)
        {
            kept += 1;
        }
        let mut output = Output::new(self.store, self.limits.part_bytes);
        let rest = &levels.last[kept..];
        let last = RunCursor::new(self.store, rest, Span::ALL, None).map_err(corrupt)?;
        let mut below = Merge::new(vec![Box::new(last) as Box<dyn Cursor + '_>]);
        // The last key of the part of the last level that the merge is in.
        let mut inside = None;
        let mut taken = kept;
        let end = loop {
            let keys = [above.peek(), below.peek()].map(|row| row.map(|(key, _)| key));
            let Some(key) = keys.into_iter().flatten().min() else { break None };
            let is_between = inside.is_none_or(|last| key > last);
            if is_between && self.is_enough(&output, levels.last.get(taken)) {
                break Some(key);
            }
            let is_above = keys[0] == Some(key);
            if keys[1] == Some(key) {
                if is_between {
                    inside = levels.last.get(taken).map(|part| part.summary.last);
                    taken += 1;
                }
                take_row(&mut below, |_, value| match value {
                    Some(value) if !is_above => output.push(key, Some(value)),
                    _ => Ok(()),
                })??;
            }
            if is_above {
                take_row(&mut above, |_, value| match value {
                    Some(value) => output.push(key, Some(value)),
                    None => Ok(()),
                })??;
            }
        };
        drop((above, below));
        let (parts, _) = output.finish()?;
        Ok(swept(levels, (kept..taken, parts), &counts, end))
    }

    /// Whether the sweep may stop before the part `next` of the last level: it has written a part,
    /// and it would not leave a small one, of which there would be more after each turn.
    fn is_enough(&self, output: &Output<'_, S>, next: Option<&Part>) -> bool {
        let is_small =
            next.is_some_and(|part| 2 * part.summary.bytes as usize <= self.limits.part_bytes);
        !output.parts.is_empty() && (!is_small || output.parts.len() >= STEP_PARTS_MAX)
    }

    /// Writes parts again elsewhere, those with these numbers.
    pub(in crate::furrow) fn rewrite(
        &self,
        levels: &Levels,
        numbers: &BTreeSet<u64>,
    ) -> Result<Levels> {
        let mut next = levels.clone();
        let runs = next.upper.iter_mut().map(|run| &mut run.parts);
        for parts in runs.chain([&mut next.last]) {
            for part in std::mem::take(parts) {
                let is_suspect = numbers.contains(&part.summary.number);
                match is_suspect.then(|| self.rewrite_part(&part)) {
                    Some(Ok(written)) => parts.extend(written),
                    // What no copy gives is not written again, and stays what it is: an error.
                    Some(Err(FsError::Corrupt { .. })) | None => parts.push(part),
                    Some(Err(error)) => return Err(error),
                }
            }
        }
        Ok(next)
    }

    fn rewrite_part(&self, part: &Part) -> Result<Vec<Part>> {
        let one = std::slice::from_ref(part);
        let mut cursor = RunCursor::new(self.store, one, Span::ALL, None).map_err(corrupt)?;
        // It stays one part: the rows are the same, so it is about as big.
        let part_bytes = self.limits.part_bytes.max(part.summary.bytes as usize);
        let mut output = Output::new(self.store, 2 * part_bytes);
        while let Some((key, value)) = cursor.peek() {
            output.push(key, value)?;
            cursor.advance().map_err(corrupt)?;
        }
        Ok(output.finish()?.0)
    }
}

/// The levels after the sweep, up to `end`, has replaced some parts of the last level by others.
fn swept(
    levels: &Levels,
    (replaced, parts): (Range<usize>, Vec<Part>),
    counts: &[Cell<u64>],
    end: Option<Key>,
) -> Levels {
    let mut next = levels.clone();
    for (run, count) in next.upper.iter_mut().zip(counts) {
        run.rows_left = run.rows_left.saturating_sub(count.get());
    }
    next.last.splice(replaced, parts);
    next.move_sweep(end);
    next
}
