//! Compaction: reads parts, merges their rows, writes other parts.
//!
//! Each function takes the present levels and returns the next ones; the parts that it has written
//! count once a manifest names them. Only one step runs at a time. Damage stops no step: where both
//! copies of a leaf are bad, the new part records [a lost range](super::lost) in place of the rows.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::ops::Range;

use super::key::{Key, KeySpan};
use super::levels::{Levels, Part, Run, SweepPosition};
use super::lost::LostRanges;
use super::memtable::Memtable;
use super::merge::{Cursor, Merge, RowsCursor};
use super::part::{
    BuiltPart, KeyRange, PartBuilder, PartCursor, PartError, PartId, PartReader, unread,
};
use super::part_store::PartStore;
use crate::FsError;
use crate::furrow::drive::layout::Limits;
use crate::furrow::planted::{Planted, mistake};
use crate::furrow::table::remaps::has_place;
use crate::vfs::Result;

/// Parts that one step of the sweep writes, about, at most.
const STEP_PARTS_MAX: usize = 4;

/// Rows between two calls of [`PartStore::meanwhile`]: writing them takes a fraction of a
/// millisecond.
const MEANWHILE_ROWS: u64 = 256;

/// A compaction: where it reads and writes parts, and its limits.
pub(in crate::furrow) struct Compaction<'a, S: PartStore> {
    pub(in crate::furrow) store: &'a S,
    pub(in crate::furrow) limits: Limits,
    pub(in crate::furrow) planted: Planted,
}

/// A cursor over the rows of a run in a span, part by part, which skips leaves that no copy gives.
struct RunCursor<'a, S: PartStore> {
    store: &'a S,
    parts: std::slice::Iter<'a, Part>,
    span: KeySpan,
    current: Option<(&'a Part, PartCursor<S::Source>)>,
    /// Rows and tombstones of the current part so far.
    seen: (u32, u32),
    has_lost: bool,
    /// Counts the rows that the cursor has passed.
    count: Option<&'a Cell<u64>>,
    losses: LossSink<'a>,
}

/// Where a cursor of a merge reports ranges that no copy gives.
#[derive(Clone, Copy)]
struct LossSink<'a> {
    ranges: &'a LostRanges,
    /// The number of the cursor in the merge: a higher one has older rows.
    age: usize,
}

impl<'a, S: PartStore> RunCursor<'a, S> {
    fn new(
        store: &'a S,
        parts: &'a [Part],
        span: KeySpan,
        count: Option<&'a Cell<u64>>,
        losses: LossSink<'a>,
    ) -> Self {
        let first = parts.partition_point(|part| part.summary.last < span.from);
        let parts = parts[first..].iter();
        let (current, seen, has_lost) = (None, (0, 0), false);
        let mut cursor = Self { store, parts, span, current, seen, has_lost, count, losses };
        cursor.open_next();
        cursor
    }

    /// Reports a lost range of a part, as far as it is in the span and was not rebuilt.
    fn lose(&mut self, part: &Part, range: KeyRange) {
        self.has_lost = true;
        let Some((first, last)) = self.store.missed(part, range) else { return };
        let first = first.max(self.span.from);
        let last = last.min(self.span.below.predecessor());
        if first <= last && self.span.contains(first) {
            self.losses.ranges.add((first, last), self.losses.age);
        }
    }

    /// Reports rows of the current part that were found lost since the last call.
    fn lose_new(&mut self) {
        let Some((part, cursor)) = &mut self.current else { return };
        let (part, lost) = (*part, cursor.take_lost());
        for (range, error) in lost {
            self.store.note_lost(&error);
            self.lose(part, range);
        }
    }

    /// Opens the next part with rows in the span.
    fn open_next(&mut self) {
        if let Some((part, cursor)) = self.current.take() {
            let is_whole = part.summary.first >= self.span.from && !self.has_lost;
            let is_counted = self.seen == (part.summary.rows, part.summary.tombstones);
            if (is_whole && !is_counted) || !cursor.reader().bad_copies().is_empty() {
                self.store.note_bad(part);
            }
        }
        while let Some(part) = self.parts.next() {
            (self.seen, self.has_lost) = ((0, 0), false);
            if part.summary.first >= self.span.below {
                return;
            }
            let open =
                || PartReader::open(&part.summary, self.store.uuid(), self.store.source(part));
            let reader = match open().or_else(|_| open()) {
                Ok(reader) => reader,
                Err(error) => {
                    self.store.note_lost(&error);
                    self.lose(part, (part.summary.first, part.summary.last));
                    continue;
                }
            };
            for &range in reader.index().clone().lost() {
                self.lose(part, range);
            }
            let cursor = reader.cursor_past_losses(self.span.from);
            let has_rows = cursor.peek().is_some();
            self.current = Some((part, cursor));
            self.lose_new();
            if has_rows {
                return;
            }
            self.current = None;
        }
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
        let is_through = cursor.peek().is_none();
        self.lose_new();
        if is_through {
            self.open_next();
        }
        Ok(())
    }
}

/// Writes rows to parts, one part after the other.
struct PartWriter<'a, S: PartStore> {
    store: &'a S,
    part_bytes: usize,
    builder: Option<PartBuilder>,
    /// The lost range that the rows are in.
    lost: Option<KeyRange>,
    /// The current part has rows whose blocks reclaim may have moved.
    has_places: bool,
    parts: Vec<Part>,
    rows: u64,
}

impl<'a, S: PartStore> PartWriter<'a, S> {
    fn new(store: &'a S, part_bytes: usize) -> Self {
        let (builder, lost, has_places) = (None, None, false);
        Self { store, part_bytes, builder, lost, has_places, parts: Vec::new(), rows: 0 }
    }

    fn builder(&mut self) -> &mut PartBuilder {
        let (store, part_bytes) = (self.store, self.part_bytes);
        self.builder.get_or_insert_with(|| {
            let id = PartId { uuid: store.uuid(), number: store.next_number() };
            PartBuilder::new(id, part_bytes)
        })
    }

    /// Notes a lost range, which must begin above all rows so far and not below the previous range.
    fn lose(&mut self, (first, last): KeyRange) {
        match &mut self.lost {
            Some((_, end)) if first <= *end => *end = last.max(*end),
            Some(_) | None => {
                self.end_lost();
                self.lost = Some((first, last));
            }
        }
    }

    fn end_lost(&mut self) {
        if let Some(range) = self.lost.take() {
            self.builder().push_lost(range);
        }
    }

    fn push(&mut self, key: Key, value: Option<&[u8]>) -> Result<()> {
        if self.lost.is_some_and(|(_, last)| last < key) {
            self.end_lost();
        }
        let is_in_lost = self.lost.is_some();
        let moved = value.and_then(|value| self.store.moved_value(key, value));
        let value = moved.as_deref().or(value);
        self.has_places |= has_place(key, value);
        let builder = self.builder();
        builder.push(key, value);
        let is_full = if is_in_lost { builder.is_overfull() } else { builder.is_full() };
        self.rows += 1;
        if self.rows.is_multiple_of(MEANWHILE_ROWS) {
            self.store.meanwhile();
        }
        if is_full { self.end_part() } else { Ok(()) }
    }

    fn end_part(&mut self) -> Result<()> {
        let row = self.builder.as_ref().and_then(PartBuilder::last);
        if let (Some((first, last)), Some(row)) = (self.lost, row)
            && last > row
        {
            // The next part records the rest of the range.
            self.builder().push_lost((first, row));
            self.lost = Some((row.successor(), last));
        } else {
            self.end_lost();
        }
        self.write_part()
    }

    fn write_part(&mut self) -> Result<()> {
        let Some(builder) = self.builder.take() else { return Ok(()) };
        let BuiltPart { bytes, mut summary } = builder.finish();
        if std::mem::take(&mut self.has_places) {
            summary.moved_below = self.store.moved_below();
        }
        let at = self.store.write(&bytes)?;
        self.parts.push(Part { summary, at });
        Ok(())
    }

    fn finish(mut self) -> Result<(Vec<Part>, u64)> {
        self.end_lost();
        self.write_part()?;
        Ok((self.parts, self.rows))
    }
}

/// Takes the next row off a merge, which must have one.
fn take_row<R>(merge: &mut Merge<'_>, each: impl FnOnce(Key, Option<&[u8]>) -> R) -> Result<R> {
    let (key, value) = merge.peek().expect("the caller has seen one");
    let answer = each(key, value);
    merge.advance().map_err(unread)?;
    Ok(answer)
}

/// Skips rows that may be outdated because a newer run has lost the range of their keys.
fn skip_hidden(merge: &mut Merge<'_>, lost: &LostRanges) -> Result<()> {
    while let (Some((key, _)), Some(age)) = (merge.peek(), merge.age())
        && lost.hide(key, age)
    {
        merge.advance().map_err(unread)?;
    }
    Ok(())
}

/// Whether a merge writes tombstones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tombstones {
    /// It does: a lower run may have the rows that they delete.
    Keep,
    /// It does not: nothing lies below. Only in a lost range a tombstone stays, to say that its row
    /// is deleted and not lost.
    Drop,
}

/// A merge of runs that reports lost ranges and continues behind them.
struct LossyMerge<'a> {
    merge: Merge<'a>,
    lost: &'a LostRanges,
}

/// A row of a merge, or a lost range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Merged<'a> {
    /// The newest row of a key.
    Row(Key, Option<&'a [u8]>),
    /// Rows of this range, both keys included, are lost, except the rows that follow.
    Lost(Key, Key),
}

impl LossyMerge<'_> {
    fn run(mut self, each: &mut dyn FnMut(Merged<'_>) -> Result<()>) -> Result<()> {
        loop {
            skip_hidden(&mut self.merge, self.lost)?;
            let key = self.merge.peek().map_or(Key::MAX, |(key, _)| key);
            for (first, last) in self.lost.take_up_to(key) {
                each(Merged::Lost(first, last))?;
            }
            if self.merge.peek().is_none() {
                return Ok(());
            }
            take_row(&mut self.merge, |key, value| each(Merged::Row(key, value)))??;
        }
    }

    fn run_into<S: PartStore>(
        self,
        output: &mut PartWriter<'_, S>,
        tombstones: Tombstones,
    ) -> Result<()> {
        let lost = self.lost;
        self.run(&mut |merged| match merged {
            Merged::Lost(first, last) => {
                output.lose((first, last));
                Ok(())
            }
            Merged::Row(key, None) if tombstones == Tombstones::Drop && !lost.cover(key) => Ok(()),
            Merged::Row(key, value) => output.push(key, value),
        })
    }
}

impl<'a, S: PartStore> Compaction<'a, S> {
    /// Adds to the cursors of a merge one for each of some spans of a run.
    fn run_cursors<'b>(
        &self,
        run: &'b Run,
        spans: impl Iterator<Item = KeySpan>,
        count: Option<&'b Cell<u64>>,
        ranges: &'b LostRanges,
        cursors: &mut Vec<Box<dyn Cursor + 'b>>,
    ) where
        'a: 'b,
    {
        for span in spans {
            let losses = LossSink { ranges, age: cursors.len() };
            cursors.push(Box::new(RunCursor::new(self.store, &run.parts, span, count, losses)));
        }
    }

    /// Calls `each` for every row of a span in order, with the newest value that `memtables`
    /// (newest first) and the levels have, and for every lost range.
    pub(super) fn scan(
        &self,
        levels: &Levels,
        memtables: &[&Memtable],
        span: KeySpan,
        each: &mut dyn FnMut(Merged<'_>) -> Result<()>,
    ) -> Result<()> {
        let lost = LostRanges::default();
        self.merge_of_all(levels, memtables, span, &lost).run(each)
    }

    fn merge_of_all<'b>(
        &self,
        levels: &'b Levels,
        memtables: &[&'b Memtable],
        span: KeySpan,
        lost: &'b LostRanges,
    ) -> LossyMerge<'b>
    where
        'a: 'b,
    {
        let mut cursors: Vec<Box<dyn Cursor + 'b>> = Vec::new();
        for memtable in memtables {
            cursors.push(Box::new(RowsCursor::new(memtable.range(span.from, span.below))));
        }
        for run in &levels.upper {
            let spans = levels.spans_since(run.born).filter_map(|since| since.intersection(&span));
            self.run_cursors(run, spans, None, lost, &mut cursors);
        }
        let losses = LossSink { ranges: lost, age: cursors.len() };
        cursors.push(Box::new(RunCursor::new(self.store, &levels.last, span, None, losses)));
        LossyMerge { merge: Merge::new(cursors), lost }
    }

    /// Writes a memtable as the newest run. If all rows of the table are few
    /// ([`Limits::whole_bytes`]), it merges them all into a new last level instead, unless the
    /// device refuses to read them: a run needs no reads, and commits wait for its end.
    pub(in crate::furrow) fn flush(&self, levels: &Levels, memtable: &Memtable) -> Result<Levels> {
        if levels.bytes() + memtable.bytes() as u64 <= self.limits.whole_bytes {
            match self.flush_whole(levels, memtable) {
                Err(error @ FsError::Refused { .. }) => {
                    tracing::warn!(%error, "rows of the journal are not merged with the others");
                }
                outcome => return outcome,
            }
        }
        let mut next = levels.clone();
        let mut output = PartWriter::new(self.store, self.limits.part_bytes);
        for (key, value) in memtable.rows() {
            mistake!(self, DropTombstonesEarly, {
                if value.is_none() {
                    continue;
                }
            });
            output.push(key, value)?;
        }
        let (parts, rows_left) = output.finish()?;
        if !parts.is_empty() {
            next.upper.insert(0, Run { tier: 0, born: levels.sweep, rows_left, parts });
        }
        Ok(next)
    }

    /// Merges a memtable and all levels into a new last level.
    fn flush_whole(&self, levels: &Levels, memtable: &Memtable) -> Result<Levels> {
        let mut output = PartWriter::new(self.store, self.limits.part_bytes);
        let lost = LostRanges::default();
        let all = self.merge_of_all(levels, &[memtable], KeySpan::ALL, &lost);
        all.run_into(&mut output, Tombstones::Drop)?;
        // It has read everything, and has hardly written anything yet.
        self.store.check_refused()?;
        let (last, _) = output.finish()?;
        let sweep = SweepPosition { turn: levels.sweep.turn + 1, key: Key::MIN };
        Ok(Levels { upper: Vec::new(), last, sweep })
    }

    /// Merges all runs of a tier into one run of the next.
    pub(in crate::furrow) fn merge_tier(&self, levels: &Levels, tier: u32) -> Result<Levels> {
        let mut next = levels.clone();
        let first = levels.upper.partition_point(|run| run.tier < tier);
        let count = levels.upper[first..].iter().take_while(|run| run.tier == tier).count();
        let lost = LostRanges::default();
        let mut cursors: Vec<Box<dyn Cursor + '_>> = Vec::new();
        for run in &levels.upper[first..first + count] {
            self.run_cursors(run, levels.spans_since(run.born), None, &lost, &mut cursors);
        }
        let mut output = PartWriter::new(self.store, self.limits.part_bytes);
        let merge = LossyMerge { merge: Merge::new(cursors), lost: &lost };
        merge.run_into(&mut output, Tombstones::Keep)?;
        let (parts, rows_left) = output.finish()?;
        let merged = Run { tier: tier + 1, born: levels.sweep, rows_left, parts };
        let merged = (!merged.parts.is_empty()).then_some(merged);
        next.upper.splice(first..first + count, merged);
        Ok(next)
    }

    /// Continues the sweep: merges upper runs with the last level until it has written a part or
    /// has reached the last key. It leaves parts as they are that no row of an upper run falls
    /// into.
    pub(in crate::furrow) fn sweep(&self, levels: &Levels) -> Result<Levels> {
        let from = levels.sweep.key;
        let counts: Vec<Cell<u64>> = levels.upper.iter().map(|_| Cell::new(0)).collect();
        let lost = LostRanges::default();
        let mut cursors: Vec<Box<dyn Cursor + '_>> = Vec::new();
        for (run, count) in levels.upper.iter().zip(&counts) {
            let spans = levels.spans_since(run.born).filter(|span| span.from >= from);
            self.run_cursors(run, spans, Some(count), &lost, &mut cursors);
        }
        let mut above = Merge::new(cursors);
        // Parts that the sweep has passed stay, and so do those without rows of upper runs.
        let next_above = above.peek().map(|(key, _)| key).into_iter().chain(lost.next()).min();
        let mut kept = levels.last.partition_point(|part| part.summary.last < from);
        while let Some(part) = levels.last.get(kept)
            && next_above.is_none_or(|key| key > part.summary.last)
        {
            kept += 1;
        }
        let mut output = PartWriter::new(self.store, self.limits.part_bytes);
        let rest = &levels.last[kept..];
        let losses = LossSink { ranges: &lost, age: usize::MAX };
        let last = RunCursor::new(self.store, rest, KeySpan::ALL, None, losses);
        let mut below = Merge::new(vec![Box::new(last) as Box<dyn Cursor + '_>]);
        let end = loop {
            skip_hidden(&mut above, &lost)?;
            let keys = [above.peek(), below.peek()].map(|row| row.map(|(key, _)| key));
            let key = keys.into_iter().flatten().min();
            if let Some(key) = key
                && self.is_enough(&output, &levels.last, key)
                && !lost.cover(key)
            {
                for range in lost.take_up_to(key) {
                    output.lose(range);
                }
                break Some(key);
            }
            for range in lost.take_up_to(key.unwrap_or(Key::MAX)) {
                output.lose(range);
            }
            let Some(key) = key else { break None };
            let is_kept = |value: Option<&[u8]>| value.is_some() || lost.cover(key);
            let is_above = keys[0] == Some(key);
            if keys[1] == Some(key) {
                let is_hidden = is_above || lost.hide(key, usize::MAX);
                take_row(&mut below, |key, value| {
                    if !is_hidden && is_kept(value) { output.push(key, value) } else { Ok(()) }
                })??;
            }
            if is_above {
                take_row(&mut above, |key, value| {
                    if is_kept(value) { output.push(key, value) } else { Ok(()) }
                })??;
            }
        };
        drop((above, below));
        let taken = end.map_or(levels.last.len(), |end| {
            levels.last.partition_point(|part| part.summary.last < end)
        });
        let (parts, _) = output.finish()?;
        Ok(after_sweep(levels, kept..taken.max(kept), parts, &counts, end))
    }

    /// Whether the sweep may stop before a key: it has written a part, the key is between two parts
    /// of the last level, and the next of these is not small. Small parts would become more with
    /// each turn.
    fn is_enough(&self, output: &PartWriter<'_, S>, last: &[Part], key: Key) -> bool {
        if output.parts.is_empty() {
            return false;
        }
        let next = last.get(last.partition_point(|part| part.summary.last < key));
        let is_between = next.is_none_or(|next| next.summary.first >= key);
        let is_small =
            next.is_some_and(|part| 2 * part.summary.bytes as usize <= self.limits.part_bytes);
        is_between && (!is_small || output.parts.len() >= STEP_PARTS_MAX)
    }

    /// Writes the parts with these numbers again, in other zones.
    pub(in crate::furrow) fn rewrite(
        &self,
        levels: &Levels,
        numbers: &BTreeSet<u64>,
    ) -> Result<Levels> {
        let mut next = levels.clone();
        let runs = next.upper.iter_mut().map(|run| &mut run.parts);
        for parts in runs.chain([&mut next.last]) {
            for part in std::mem::take(parts) {
                if numbers.contains(&part.summary.number) {
                    parts.extend(self.rewrite_part(&part)?);
                } else {
                    parts.push(part);
                }
            }
        }
        next.drop_empty_runs();
        Ok(next)
    }

    fn rewrite_part(&self, part: &Part) -> Result<Vec<Part>> {
        let (one, lost) = (std::slice::from_ref(part), LostRanges::default());
        let losses = LossSink { ranges: &lost, age: 0 };
        let cursor = RunCursor::new(self.store, one, KeySpan::ALL, None, losses);
        // The rows are the same, so one part holds them again, at about the same size.
        let part_bytes = self.limits.part_bytes.max(part.summary.bytes as usize);
        let mut output = PartWriter::new(self.store, 2 * part_bytes);
        let merge = LossyMerge { merge: Merge::new(vec![Box::new(cursor)]), lost: &lost };
        merge.run_into(&mut output, Tombstones::Keep)?;
        Ok(output.finish()?.0)
    }
}

/// The levels after the sweep has come to `end` and has replaced some parts of the last level.
fn after_sweep(
    levels: &Levels,
    replaced: Range<usize>,
    parts: Vec<Part>,
    counts: &[Cell<u64>],
    end: Option<Key>,
) -> Levels {
    let mut next = levels.clone();
    for (run, count) in next.upper.iter_mut().zip(counts) {
        run.rows_left = run.rows_left.saturating_sub(count.get());
    }
    next.last.splice(replaced, parts);
    next.advance_sweep(end);
    next
}
