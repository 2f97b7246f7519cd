//! Rows that no copy gives: what lies in such a range, by file.
//!
//! A leaf that is bad in both copies hides all rows between its first key and that of the next one, also
//! those that another run may have: they may be older. So each inode in the range may lack
//! something, and each file that shares an extent of it.

use std::collections::BTreeSet;

use super::super::format::row::{Place, Row};
use super::super::invariant::{self as rule, Problems};
use super::super::table::key::{Key, RowKind};
use super::CheckPhase;
use super::pass::{Item, Source};
use crate::vfs::{Ino, Result};

/// Inodes that are named, at most.
const NAMED_MAX: usize = 1000;

/// Numbers of a group's owners that have rows in a range, the last one included.
fn owners((from, below): (Key, Key), group: u8) -> Option<(u64, u64)> {
    let first = if from.kind().group() < group { 0 } else { from.owner() };
    let last = if below.kind().group() > group { u64::MAX } else { below.owner() };
    // A range that ends where the rows of an owner begin has none of it.
    let first_kind = if group == RowKind::Inode.group() { RowKind::Inode } else { RowKind::Extent };
    let ends_before = below.kind().group() == group && below == Key::new(first_kind, last, 0);
    let last = if ends_before { last.checked_sub(1)? } else { last };
    let is_in = from.kind().group() <= group && below.kind().group() >= group && first <= last;
    is_in.then_some((first, last))
}

/// Names the ranges and the inodes that have something in them.
pub(super) fn report(
    source: &mut Source<'_>,
    lost: &[(Key, Key)],
    problems: &mut Problems,
) -> Result<()> {
    for (from, below) in lost {
        let what = format!("no copy has the rows from {from:?} up to {below:?}");
        problems.add(rule::PARTS, what);
    }
    let of = |group: RowKind| -> Vec<(u64, u64)> {
        lost.iter().filter_map(|&range| owners(range, group.group())).collect()
    };
    let (inodes, extents) = (of(RowKind::Inode), of(RowKind::Extent));
    let is_in = |ranges: &[(u64, u64)], number: u64| {
        let next = ranges.partition_point(|(_, last)| *last < number);
        ranges.get(next).is_some_and(|(first, _)| *first <= number)
    };
    let (mut hurt, mut more) = (BTreeSet::new(), 0_u64);
    let range = (Key::BASE_END, Key::new(RowKind::Extent, 0, 0));
    source.pass(CheckPhase::Paths, range, &mut |item| {
        let Item::Row(key, row, _) = item else { return };
        let ino = match row {
            Row::Entry(row, _) if is_in(&inodes, row.ino.get()) => row.ino.get(),
            Row::Map(_, Place::Shared(place)) if is_in(&extents, place.extent.get()) => key.owner(),
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
    fn a_range_has_the_owners_between_its_keys() {
        let inode = |number| Key::new(RowKind::Inode, number, 0);
        let map = |number, at| Key::new(RowKind::Map, number, at);
        let extent = |number| Key::new(RowKind::Extent, number, 0);
        let [inodes, extents] = [RowKind::Inode.group(), RowKind::Extent.group()];
        assert_eq!(owners((inode(5), inode(9)), inodes), Some((5, 8)));
        assert_eq!(owners((map(5, 7), map(9, 1)), inodes), Some((5, 9)));
        assert_eq!(owners((map(5, 7), map(5, 8)), inodes), Some((5, 5)));
        assert_eq!(owners((inode(5), extent(3)), inodes), Some((5, u64::MAX)));
        assert_eq!(owners((inode(5), extent(3)), extents), Some((0, 2)));
        assert_eq!(owners((inode(5), extent(0)), extents), None);
        assert_eq!(owners((inode(5), inode(9)), extents), None);
        assert_eq!(owners((Key::MIN, inode(1)), inodes), Some((0, 0)));
    }
}
