//! Discarded ranges of files: they read as zeroes, and their map entries wait to be removed.
//!
//! A discard of many entries takes effect at once. Each range has a row, so it is as durable as any
//! other change, and a mount after a crash continues. Readers skip the ranges. A change of blocks
//! in a range first removes the entries around these blocks, and the [truncate
//! worker](crate::furrow::truncate) removes the others in steps.
//!
//! The rows are in the group that a mount reads, so all ranges are always in memory.

use std::collections::BTreeMap;
use std::ops::Range;

use zerocopy::byteorder::little_endian::U64;

use zonal::retry::{Attempt, Retries};

use crate::furrow::format::row::DiscardRow;
use crate::furrow::metadata::missing::{Lookup, Missing, Stop};
use crate::furrow::metadata::rows::ChangedRows;
use crate::furrow::table::key::{Key, RowKind};
use crate::vfs::Ino;

/// Ranges of all files up to which a discard may leave entries for later.
const RANGES_MAX: usize = 4096;

/// The space of a file in a range that was discarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::furrow) enum DiscardedSpace {
    /// A hole.
    Free,
    /// Preallocated space, wherever it had space before.
    Kept,
}

/// A discarded range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::furrow::metadata) struct Discarded {
    /// The block behind the range.
    pub(in crate::furrow::metadata) limit: u64,
    pub(in crate::furrow::metadata) space: DiscardedSpace,
}

/// Discarded ranges, by file and first block. They do not overlap.
#[derive(Clone, Debug, Default)]
pub(in crate::furrow) struct Discards {
    files: BTreeMap<Ino, BTreeMap<u64, Discarded>>,
    /// Files of which a step has failed.
    failed: Retries<Ino>,
}

impl Discards {
    /// Enters a range that the drive has.
    pub(in crate::furrow::metadata) fn restore(&mut self, key: Key, row: &DiscardRow) {
        let space = if row.keeps_space == 0 { DiscardedSpace::Free } else { DiscardedSpace::Kept };
        let discarded = Discarded { limit: row.limit.get(), space };
        self.insert(Ino::new(key.owner()), key.at(), discarded);
    }

    /// Ranges on the drive that are empty or overlap.
    pub(in crate::furrow::metadata) fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        for (ino, ranges) in &self.files {
            let mut end = 0;
            for (&first, discarded) in ranges {
                if first < end || discarded.limit <= first {
                    let limit = discarded.limit;
                    problems.push(format!("blocks {first} to {limit} of inode {ino}"));
                }
                end = discarded.limit;
            }
        }
        problems
    }

    fn insert(&mut self, ino: Ino, first: u64, discarded: Discarded) {
        self.files.entry(ino).or_default().insert(first, discarded);
    }

    fn remove(&mut self, ino: Ino, first: u64) {
        let Some(ranges) = self.files.get_mut(&ino) else { return };
        ranges.remove(&first);
        if ranges.is_empty() {
            self.files.remove(&ino);
            self.failed.settle(ino);
        }
    }

    fn get(&self, ino: Ino, first: u64) -> Option<Discarded> {
        self.files.get(&ino)?.get(&first).copied()
    }

    /// The first range with blocks in `blocks`.
    pub(in crate::furrow::metadata) fn find(
        &self,
        ino: Ino,
        blocks: &Range<u64>,
    ) -> Option<(u64, Discarded)> {
        if blocks.is_empty() {
            return None;
        }
        let ranges = self.files.get(&ino)?;
        let before = ranges.range(..=blocks.start).next_back();
        let before = before.filter(|(_, discarded)| discarded.limit > blocks.start);
        let found = before.or_else(|| ranges.range(blocks.clone()).next());
        found.map(|(&first, &discarded)| (first, discarded))
    }

    /// The first blocks of `blocks` that were discarded and lie side by side.
    pub(in crate::furrow) fn first_in(&self, ino: Ino, blocks: &Range<u64>) -> Option<Range<u64>> {
        let (first, discarded) = self.find(ino, blocks)?;
        Some(first.max(blocks.start)..discarded.limit.min(blocks.end))
    }

    /// The parts of a range that were not discarded.
    pub(in crate::furrow) fn shown(
        &self,
        ino: Ino,
        blocks: Range<u64>,
    ) -> impl Iterator<Item = Range<u64>> {
        let mut rest = blocks;
        std::iter::from_fn(move || {
            while !rest.is_empty() {
                let end = rest.end;
                let hidden = self.first_in(ino, &rest).unwrap_or(end..end);
                let part = rest.start..hidden.start;
                rest.start = hidden.end;
                if !part.is_empty() {
                    return Some(part);
                }
            }
            None
        })
    }

    /// Whether there are more than `RANGES_MAX` ranges: then a discard removes entries itself.
    pub(in crate::furrow) fn are_many(&self) -> bool {
        self.files.values().map(BTreeMap::len).sum::<usize>() > RANGES_MAX
    }

    /// A file with discarded ranges, unless an attempt to remove their entries has failed just now.
    pub(in crate::furrow) fn next_file(&self, now_ns: u64) -> Option<Ino> {
        self.files.keys().copied().find(|&ino| self.failed.is_due(ino, now_ns))
    }

    /// Notes the outcome of a step that removes entries of a file.
    pub(in crate::furrow) fn note_step(&mut self, ino: Ino, attempt: Attempt, now_ns: u64) -> u64 {
        if attempt == Attempt::Succeeded || !self.files.contains_key(&ino) {
            self.failed.settle(ino);
            return 0;
        }
        self.failed.put_off(ino, now_ns)
    }

    /// Files of which a step has failed and is owed.
    pub(in crate::furrow) fn failed(&self) -> &Retries<Ino> {
        &self.failed
    }

    /// The value of the row of a range.
    pub(in crate::furrow::metadata) fn row(&self, ino: Ino, first: u64) -> Option<DiscardRow> {
        let Discarded { limit, space } = self.get(ino, first)?;
        let keeps_space = u8::from(space == DiscardedSpace::Kept);
        Some(DiscardRow { limit: U64::new(limit), keeps_space })
    }

    /// Checks that no blocks of a range are discarded ones with their entries.
    pub(in crate::furrow) fn check(&self, ino: Ino, blocks: Range<u64>) -> Lookup<()> {
        match self.first_in(ino, &blocks) {
            Some(discarded) => Err(Stop::NotLoaded(Missing::Discard(ino, discarded.start))),
            None => Ok(()),
        }
    }

    /// Adds a range, in which no other lies, and merges it with its neighbours.
    pub(in crate::furrow::metadata) fn add(
        &mut self,
        ino: Ino,
        blocks: Range<u64>,
        space: DiscardedSpace,
        rows: &mut ChangedRows,
    ) {
        let Range { start: mut first, end: mut limit } = blocks;
        let before = first.checked_sub(1).and_then(|last| self.find(ino, &(last..first)));
        if let Some((start, _)) = before.filter(|(_, before)| before.space == space) {
            first = start;
        }
        let after = self.get(ino, limit).filter(|after| after.space == space);
        if let Some(after) = after {
            rows.mark_base(RowKind::Discard, ino.get(), limit);
            self.remove(ino, limit);
            limit = after.limit;
        }
        rows.mark_base(RowKind::Discard, ino.get(), first);
        self.insert(ino, first, Discarded { limit, space });
    }

    /// Takes blocks out of the discarded ranges of a file.
    pub(in crate::furrow::metadata) fn cut(
        &mut self,
        ino: Ino,
        blocks: Range<u64>,
        rows: &mut ChangedRows,
    ) {
        while let Some((first, discarded)) = self.find(ino, &blocks) {
            rows.mark_base(RowKind::Discard, ino.get(), first);
            if discarded.limit > blocks.end {
                rows.mark_base(RowKind::Discard, ino.get(), blocks.end);
                self.insert(ino, blocks.end, discarded);
            }
            if first < blocks.start {
                let left = Discarded { limit: blocks.start, ..discarded };
                self.insert(ino, first, left);
            } else {
                self.remove(ino, first);
            }
        }
    }
}
