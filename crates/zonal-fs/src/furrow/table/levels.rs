//! The levels of the table: which runs and parts exist, and which compaction is due. Plain data.
//!
//! Upper runs lie in tiers, the newest first: [`Limits::tier_runs`] runs of a tier become one run
//! of the next. Below them is the last level, one run that covers all keys. The *sweep* is the
//! compaction into the last level: it goes round the keys and merges the upper runs with the last
//! level, a few parts at a time. When it has passed a key of a run, the row is in the last level
//! and no longer counts in the run; a run that it has passed completely is dropped. A tombstone
//! ends in the last level.

use crate::furrow::drive::layout::Limits;
use std::collections::BTreeSet;
use std::sync::Arc;

use super::key::{Key, KeySpan};
use super::memtable::Memtable;
use super::part::PartSummary;
use crate::furrow::format::Address;

/// A part and its addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::furrow) struct Part {
    pub(in crate::furrow) summary: PartSummary,
    /// Address of each copy: the same block in both zones of a pair.
    pub(in crate::furrow) at: [Address; 2],
}

/// How far the sweep has got.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::furrow) struct SweepPosition {
    /// Turns round all keys that it has completed.
    pub(in crate::furrow) turn: u64,
    /// The first key that it has not passed in this turn.
    pub(in crate::furrow) key: Key,
}

/// A run above the last level.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::furrow) struct Run {
    /// Merges that its rows have been through: 0 for a flushed memtable.
    pub(in crate::furrow) tier: u32,
    /// Where the sweep was when the run was written.
    pub(super) born: SweepPosition,
    /// Rows that the sweep has not passed since.
    pub(super) rows_left: u64,
    /// In ascending order, disjoint.
    pub(in crate::furrow) parts: Vec<Part>,
}

/// All levels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::furrow) struct Levels {
    /// Newest first.
    pub(in crate::furrow) upper: Vec<Run>,
    /// In ascending order, disjoint.
    pub(in crate::furrow) last: Vec<Part>,
    pub(in crate::furrow) sweep: SweepPosition,
}

/// A compaction that the levels are due for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::furrow) enum CompactionKind {
    /// Merges the runs of this tier into one run of the next.
    Tier(u32),
    /// Merges the runs with the last level, from where the sweep is.
    Sweep,
}

/// A step of the table's maintenance. Each writes parts and then installs other levels.
#[derive(Clone, Debug)]
pub(in crate::furrow) enum TableStep {
    /// Writes a frozen memtable as a run.
    Flush(Arc<Memtable>),
    /// Merges runs.
    Compact(CompactionKind),
    /// Writes the parts with these numbers again, in other zones.
    Rewrite(BTreeSet<u64>),
}

impl Levels {
    /// A table without rows.
    pub(in crate::furrow) fn new() -> Self {
        let sweep = SweepPosition { turn: 0, key: Key::MIN };
        Self { upper: Vec::new(), last: Vec::new(), sweep }
    }

    /// The compaction that is due, if one is.
    pub(in crate::furrow) fn due(&self, limits: &Limits) -> Option<CompactionKind> {
        let tier_of = |run: &Run| run.tier;
        let full = self
            .upper
            .chunk_by(|left, right| tier_of(left) == tier_of(right))
            .find(|runs| runs.len() >= limits.tier_runs);
        if let Some(runs) = full {
            return Some(CompactionKind::Tier(runs[0].tier));
        }
        let is_due = self.upper.len() > limits.runs_max
            || self.rows_above().saturating_mul(limits.share) > self.rows_last();
        (is_due && !self.upper.is_empty()).then_some(CompactionKind::Sweep)
    }

    /// Whether compaction is so far behind that a commit has to help before it adds rows.
    pub(in crate::furrow) fn is_behind(&self, limits: &Limits) -> bool {
        self.upper.len() > 2 * limits.runs_max
            || (self.bytes_of_last() > 4 * limits.part_bytes as u64
                && self.rows_above().saturating_mul(limits.share) > 2 * self.rows_last())
    }

    pub(super) fn rows_above(&self) -> u64 {
        self.upper.iter().map(|run| run.rows_left).sum()
    }

    pub(super) fn rows_last(&self) -> u64 {
        self.last.iter().map(|part| u64::from(part.summary.rows)).sum()
    }

    fn bytes_of_last(&self) -> u64 {
        self.last.iter().map(|part| u64::from(part.summary.bytes)).sum()
    }

    /// Bytes of one copy of all parts.
    pub(in crate::furrow) fn bytes(&self) -> u64 {
        self.parts().map(|part| u64::from(part.summary.bytes)).sum()
    }

    /// All parts.
    pub(in crate::furrow) fn parts(&self) -> impl Iterator<Item = &Part> {
        self.upper.iter().flat_map(|run| &run.parts).chain(&self.last)
    }

    /// The keys that the sweep has not passed since it was at `born`: those at which a run that was
    /// written then counts. At most two spans, which are not empty.
    pub(super) fn spans_since(&self, born: SweepPosition) -> impl Iterator<Item = KeySpan> + use<> {
        let at = self.sweep;
        let spans = if born.turn == at.turn {
            [Some(KeySpan::new(Key::MIN, born.key)), Some(KeySpan::new(at.key, Key::MAX))]
        } else if born.turn + 1 == at.turn {
            [Some(KeySpan::new(at.key, born.key)), None]
        } else {
            [None, None]
        };
        spans.into_iter().flatten().filter(|span| !span.is_empty())
    }

    /// Moves the sweep to `key`, or with `None` to the end of its turn, and drops the runs and
    /// parts that it has passed.
    pub(super) fn advance_sweep(&mut self, key: Option<Key>) {
        self.sweep = match key {
            Some(key) => SweepPosition { key, ..self.sweep },
            None => SweepPosition { turn: self.sweep.turn + 1, key: Key::MIN },
        };
        let mut upper = std::mem::take(&mut self.upper);
        for run in &mut upper {
            let spans: Vec<KeySpan> = self.spans_since(run.born).collect();
            run.parts.retain(|part| {
                let summary = &part.summary;
                spans.iter().any(|span| summary.last >= span.from && summary.first < span.below)
            });
        }
        self.upper = upper;
        self.drop_empty_runs();
    }

    /// Drops runs without parts, and corrects `rows_left` where rows of a run were lost.
    pub(super) fn drop_empty_runs(&mut self) {
        self.upper.retain(|run| !run.parts.is_empty());
        for run in &mut self.upper {
            let rows = run.parts.iter().map(|part| u64::from(part.summary.rows)).sum();
            run.rows_left = run.rows_left.min(rows);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::key::RowKind;
    use super::*;

    fn key(owner: u64) -> Key {
        Key::new(RowKind::Inode, owner, 0)
    }

    fn levels(turn: u64, at: u64) -> Levels {
        Levels { sweep: SweepPosition { turn, key: key(at) }, ..Levels::new() }
    }

    #[test]
    fn run_counts_beyond_compaction_mark_only() {
        let born = SweepPosition { turn: 3, key: key(10) };
        let counts = |turn, at, owner| {
            levels(turn, at).spans_since(born).any(|span| span.contains(key(owner)))
        };
        // Just written: all of it.
        assert!([0, 9, 10, 11].into_iter().all(|owner| counts(3, 10, owner)));
        // The sweep has passed 10 to 19, then the end, then the beginning, then all.
        assert_eq!([5, 10, 19, 20].map(|owner| counts(3, 20, owner)), [true, false, false, true]);
        assert_eq!([0, 9, 10, 30].map(|owner| counts(4, 0, owner)), [true, true, false, false]);
        assert_eq!([3, 4, 9, 10].map(|owner| counts(4, 4, owner)), [false, true, true, false]);
        assert!(![0, 4, 9, 10, 20].into_iter().any(|owner| counts(4, 10, owner)));
        assert!(![0, 4, 9, 10, 20].into_iter().any(|owner| counts(5, 1, owner)));
    }
}
