//! Lost rows: which files have rows in a lost range, and which rules cannot be judged then.
//!
//! A leaf that is bad in both copies hides all rows between its first and its last key, even rows
//! that an older run has, as they may be outdated. So each inode in the range may lack rows, and so
//! may each file that shares an extent in it. Comparisons leave out rows whose counterpart may be
//! in a lost range.

use std::collections::BTreeSet;

use crate::furrow::format::row::{Place, Row};
use crate::furrow::invariant::{self as rule, Problems};
use crate::furrow::table::key::{Key, KeySpan, RowKind};
use crate::furrow::tools::check::CheckPhase;
use crate::furrow::tools::check::pass::{Item, RowSource};
use crate::vfs::{Ino, Result};

/// Most inodes that are reported by name.
const NAMED_MAX: usize = 1000;

/// The lost ranges: spans whose rows no copy gives. In order, with keys between them.
#[derive(Clone, Debug, Default)]
pub(super) struct LostRows(Vec<KeySpan>);

impl LostRows {
    /// Adds a span, which must not begin before those added earlier.
    pub(super) fn add(&mut self, span: KeySpan) {
        match self.0.last_mut() {
            Some(last) if span.from <= last.below => last.below = span.below.max(last.below),
            Some(_) | None => self.0.push(span),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a key of a span is lost.
    pub(super) fn touch(&self, span: KeySpan) -> bool {
        let next = self.0.partition_point(|lost| lost.below <= span.from);
        self.0.get(next).is_some_and(|lost| lost.from < span.below)
    }

    pub(super) fn cover(&self, key: Key) -> bool {
        self.touch(KeySpan::of(key))
    }

    pub(super) fn cover_inode(&self, ino: u64) -> bool {
        self.cover(Key::new(RowKind::Inode, ino, 0))
    }

    /// Whether an inode may lack rows.
    pub(super) fn touch_inode(&self, ino: u64) -> bool {
        let last = Key::new(RowKind::Entry, ino, u64::MAX);
        self.touch(KeySpan::new(Key::new(RowKind::Inode, ino, 0), last.successor()))
    }

    /// Whether any inode may lack rows.
    pub(super) fn touch_inodes(&self) -> bool {
        self.touch(KeySpan::INODES)
    }

    /// Whether rows may be lost that own blocks.
    pub(super) fn touch_places(&self) -> bool {
        self.touch(KeySpan::new(Key::BASE_END, Key::new(RowKind::Backrefs, 0, 0)))
            || self.touch_remaps()
    }

    /// Whether remap tables may be lost, and with them the places of blocks.
    pub(super) fn touch_remaps(&self) -> bool {
        self.touch(KeySpan::REMAPS)
    }

    /// Whether back-references of a zone, or its row, may be lost.
    pub(super) fn touch_zone(&self, zone: u64) -> bool {
        let owners = Key::new(RowKind::Backrefs, zone, 0);
        let end = Key::new(RowKind::Backrefs, zone, u64::MAX).successor();
        self.touch(KeySpan::new(owners, end)) || self.cover(Key::new(RowKind::Zone, zone, 0))
    }

    /// The rules that cannot be judged, in words. `large` are the large directories.
    fn unjudged(&self, large: &[u64]) -> Vec<String> {
        let mut what: Vec<String> = Vec::new();
        let mut add = |is_so: bool, text: &str| {
            if is_so {
                what.push(text.into());
            }
        };
        add(self.touch(KeySpan::BASE), "sums in the lost range");
        add(self.touch_inodes(), "entries that are missing, and what is reachable");
        add(self.touch_inodes(), "references of shared extents that are missing");
        add(self.touch_places(), "sums that are too high");
        add(self.touch_remaps(), "where blocks are that were moved");
        let owners = KeySpan::new(Key::new(RowKind::Backrefs, 0, 0), Key::REMAPS);
        add(self.touch(owners), "lists of owners in the lost range");
        let names = large.iter().filter(|&&ino| self.touch_inode(ino));
        what.extend(names.map(|ino| format!("names of directory {ino}")));
        what
    }
}

/// The first and the last number of a group's owners with rows in a span.
fn owners(span: KeySpan, group: u8) -> Option<(u64, u64)> {
    let KeySpan { from, below } = span;
    let first = if from.kind().group() < group { 0 } else { from.owner() };
    let last = if below.kind().group() > group { u64::MAX } else { below.owner() };
    // A span that ends where the rows of an owner begin has no row of it.
    let first_kind = if group == RowKind::Inode.group() { RowKind::Inode } else { RowKind::Extent };
    let ends_before = below.kind().group() == group && below == Key::new(first_kind, last, 0);
    let last = if ends_before { last.checked_sub(1)? } else { last };
    let is_in = from.kind().group() <= group && below.kind().group() >= group && first <= last;
    is_in.then_some((first, last))
}

/// Reports the lost ranges, and the inodes with rows in them.
pub(super) fn report(
    source: &mut RowSource<'_>,
    lost: &LostRows,
    large: &[u64],
    problems: &mut Problems,
) -> Result<()> {
    for KeySpan { from, below } in &lost.0 {
        let what = format!("no copy has the rows from {from:?} up to {below:?}");
        problems.add(rule::PARTS, what);
    }
    let what = lost.unjudged(large).join("; ");
    problems.add(rule::PARTS, format!("so this cannot be judged: {what}"));
    let of = |group: RowKind| -> Vec<(u64, u64)> {
        lost.0.iter().filter_map(|&span| owners(span, group.group())).collect()
    };
    let (inodes, extents) = (of(RowKind::Inode), of(RowKind::Extent));
    let is_in = |ranges: &[(u64, u64)], number: u64| {
        let next = ranges.partition_point(|(_, last)| *last < number);
        ranges.get(next).is_some_and(|(first, _)| *first <= number)
    };
    let (mut hurt, mut more) = (BTreeSet::new(), 0_u64);
    if inodes.iter().any(|&(first, last)| (first..=last).contains(&Ino::ROOT.get())) {
        hurt.insert(Ino::ROOT.get());
    }
    source.pass(CheckPhase::Paths, KeySpan::INODES, &mut |item| {
        let Item::Row(key, row, _) = item else { return };
        let ino = match row {
            Row::Entry(row, _) if is_in(&inodes, row.ino.get()) => row.ino.get(),
            Row::Map(_, Place::Shared(place, _)) if is_in(&extents, place.extent.get()) => {
                key.owner()
            }
            _ => return,
        };
        if hurt.len() < NAMED_MAX {
            hurt.insert(ino);
        } else if !hurt.contains(&ino) {
            more += 1;
        }
    })?;
    for &ino in &hurt {
        let what = format!("inode {ino} may lack something: no copy has some of its rows");
        problems.add_of(rule::PARTS, Ino::new(ino), what);
    }
    if more > 0 {
        problems.add(rule::PARTS, format!("and so may {more} more"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_rows_touch_only_affected_owners() {
        let key = |number, at| Key::new(RowKind::Map, number, at);
        let mut lost = LostRows::default();
        lost.add(KeySpan::new(key(5, 7), key(5, 9)));
        lost.add(KeySpan::new(key(5, 8), key(8, 0)));
        lost.add(KeySpan::new(
            Key::new(RowKind::Backrefs, 3, 1),
            Key::new(RowKind::Backrefs, 3, 2),
        ));
        assert_eq!(lost.0.len(), 2);
        assert_eq!(
            [4, 5, 7, 8, 9].map(|ino| lost.touch_inode(ino)),
            [false, true, true, true, false]
        );
        assert_eq!([5, 6, 8].map(|ino| lost.cover_inode(ino)), [false, true, true]);
        assert_eq!([2, 3, 4].map(|zone| lost.touch_zone(zone)), [false, true, false]);
        assert!(lost.touch_places() && !lost.cover(key(8, 0)) && lost.cover(key(7, 99)));
    }

    #[test]
    fn lost_range_yields_owners_between_keys() {
        let inode = |number| Key::new(RowKind::Inode, number, 0);
        let map = |number, at| Key::new(RowKind::Map, number, at);
        let extent = |number| Key::new(RowKind::Extent, number, 0);
        let [inodes, extents] = [RowKind::Inode.group(), RowKind::Extent.group()];
        assert_eq!(owners(KeySpan::new(inode(5), inode(9)), inodes), Some((5, 8)));
        assert_eq!(owners(KeySpan::new(map(5, 7), map(9, 1)), inodes), Some((5, 9)));
        assert_eq!(owners(KeySpan::new(map(5, 7), map(5, 8)), inodes), Some((5, 5)));
        assert_eq!(owners(KeySpan::new(inode(5), extent(3)), inodes), Some((5, u64::MAX)));
        assert_eq!(owners(KeySpan::new(inode(5), extent(3)), extents), Some((0, 2)));
        assert_eq!(owners(KeySpan::new(inode(5), extent(0)), extents), None);
        assert_eq!(owners(KeySpan::new(inode(5), inode(9)), extents), None);
        assert_eq!(owners(KeySpan::new(Key::MIN, inode(1)), inodes), Some((0, 0)));
    }
}
