//! The levels of the table: which runs and parts there are, and what is due next. Plain data.
//!
//! Above are runs, newest first, in tiers: [`Limits::tier_runs`] runs of a tier are merged into one
//! of the next. Below is the last level, one run that covers everything. The *sweep* goes round the
//! keys and merges the runs with the last level, a part at a time. Rows of a run that the sweep has
//! passed since the run was written are in the last level and no longer count in the run; a run
//! that the sweep has passed completely is dropped. A tombstone ends in the last level.

use crate::furrow::drive::layout::Limits;
use std::collections::BTreeSet;
use std::sync::Arc;

use super::key::Key;
use super::memtable::Memtable;
use super::part::PartSummary;
use crate::furrow::format::Address;

/// A part, and where it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::furrow) struct Part {
    pub(in crate::furrow) summary: PartSummary,
    /// Both copies: at the same block of both zones of a pair.
    pub(in crate::furrow) at: [Address; 2],
}

/// A place of the sweep: how often it has been round, and the first key that it has not passed in
/// this turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::furrow) struct Mark {
    pub(in crate::furrow) turn: u64,
    pub(in crate::furrow) key: Key,
}

/// Keys from one on up to, but without, another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::furrow) struct Span {
    pub(in crate::furrow) from: Key,
    /// `None`: to the end.
    pub(in crate::furrow) below: Option<Key>,
}

impl Span {
    pub(in crate::furrow) const ALL: Self = Self { from: Key::MIN, below: None };

    pub(in crate::furrow) fn contains(&self, key: Key) -> bool {
        key >= self.from && self.below.is_none_or(|below| key < below)
    }

    /// The part of it in [from, below), as bounds: if the first is not below the second, nothing.
    pub(in crate::furrow) fn within(&self, from: Key, below: Key) -> (Key, Key) {
        (self.from.max(from), self.below.map_or(below, |end| end.min(below)))
    }

    /// What is in both, if anything.
    pub(in crate::furrow) fn common(&self, other: &Self) -> Option<Self> {
        let from = self.from.max(other.from);
        let below = self.below.into_iter().chain(other.below).min();
        below.is_none_or(|below| from < below).then_some(Self { from, below })
    }

    fn overlaps(&self, first: Key, last: Key) -> bool {
        last >= self.from && self.below.is_none_or(|below| first < below)
    }
}

/// A run above the last level.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::furrow) struct Run {
    /// How often its rows were merged with those of other runs.
    pub(in crate::furrow) tier: u32,
    /// Where the sweep was when it was written.
    pub(in crate::furrow) born: Mark,
    /// Rows that the sweep has not passed.
    pub(in crate::furrow) rows_left: u64,
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
    pub(in crate::furrow) sweep: Mark,
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
        let sweep = Mark { turn: 0, key: Key::MIN };
        Self { upper: Vec::new(), last: Vec::new(), sweep }
    }

    /// What is due, if anything.
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

    /// Whether so much is due that a commit has to wait before it adds more.
    pub(in crate::furrow) fn is_behind(&self, limits: &Limits) -> bool {
        self.upper.len() > 2 * limits.runs_max
            || (self.bytes_of_last() > 4 * limits.part_bytes as u64
                && self.rows_above().saturating_mul(limits.share) > 2 * self.rows_last())
    }

    pub(in crate::furrow) fn rows_above(&self) -> u64 {
        self.upper.iter().map(|run| run.rows_left).sum()
    }

    pub(in crate::furrow) fn rows_last(&self) -> u64 {
        self.last.iter().map(|part| u64::from(part.summary.rows)).sum()
    }

    fn bytes_of_last(&self) -> u64 {
        self.last.iter().map(|part| u64::from(part.summary.bytes)).sum()
    }

    /// Bytes of a copy of all parts.
    pub(in crate::furrow) fn bytes(&self) -> u64 {
        self.parts().map(|part| u64::from(part.summary.bytes)).sum()
    }

    /// All parts.
    pub(in crate::furrow) fn parts(&self) -> impl Iterator<Item = &Part> {
        self.upper.iter().flat_map(|run| &run.parts).chain(&self.last)
    }

    /// The keys that the sweep has not passed since it was at `born`: what counts of a run.
    pub(in crate::furrow) fn spans_since(&self, born: Mark) -> impl Iterator<Item = Span> + use<> {
        let at = self.sweep;
        let spans = if born.turn == at.turn {
            let before = Span { from: Key::MIN, below: Some(born.key) };
            [Some(before), Some(Span { from: at.key, below: None })]
        } else if born.turn + 1 == at.turn && at.key < born.key {
            [Some(Span { from: at.key, below: Some(born.key) }), None]
        } else {
            [None, None]
        };
        spans.into_iter().flatten().filter(|span| span.below != Some(span.from))
    }

    /// The sweep has come to `key`, or with `None` to the end. Runs and parts that it has passed go.
    pub(in crate::furrow) fn move_sweep(&mut self, key: Option<Key>) {
        self.sweep = match key {
            Some(key) => Mark { key, ..self.sweep },
            None => Mark { turn: self.sweep.turn + 1, key: Key::MIN },
        };
        let mut upper = std::mem::take(&mut self.upper);
        for run in &mut upper {
            let spans: Vec<Span> = self.spans_since(run.born).collect();
            run.parts.retain(|part| {
                let summary = &part.summary;
                spans.iter().any(|span| span.overlaps(summary.first, summary.last))
            });
        }
        self.upper = upper;
        self.settle_runs();
    }

    /// Drops runs without parts; a run does not have more rows left than its parts have, of which some may be
    /// lost.
    pub(in crate::furrow) fn settle_runs(&mut self) {
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
        Levels { sweep: Mark { turn, key: key(at) }, ..Levels::new() }
    }

    #[test]
    fn run_counts_beyond_compaction_mark_only() {
        let born = Mark { turn: 3, key: key(10) };
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
