//! Whether all linked inodes are reachable from the root.
//!
//! Directories come in the order of their numbers, and most have been made after the one they are in:
//! then it is known that one is reachable when its entries come by. What leads the other way waits,
//! as far as there is memory; what did not fit is found in another pass. Numbers of inodes are a set
//! that takes a bit each where they lie close together.

use std::collections::BTreeMap;

use crate::furrow::format::row::Row;
use crate::furrow::invariant::{self as rule, Problems};
use crate::furrow::metadata::decode::directory_entry;
use crate::furrow::table::key::{Key, RowKind};
use crate::furrow::tools::check::CheckPhase;
use crate::furrow::tools::check::pass::{Item, Source};
use crate::vfs::{FileKind, Ino, Result};

/// Words of a chunk of the set, and numbers that share one.
const WORDS: usize = 64;
const CHUNK: u64 = 64 * WORDS as u64;

/// Numbers of a chunk that are listed one by one, at most.
const FEW_MAX: usize = 128;

#[derive(Debug)]
enum Chunk {
    Few(Vec<u16>),
    Many(Box<[u64; WORDS]>),
}

/// A set of inode numbers.
#[derive(Debug, Default)]
pub(in crate::furrow) struct Inos(BTreeMap<u64, Chunk>);

impl Inos {
    fn place(ino: u64) -> (u64, u16) {
        (ino / CHUNK, u16::try_from(ino % CHUNK).expect("below the chunk's size"))
    }

    /// Adds one; `false` if it was there.
    pub(in crate::furrow) fn insert(&mut self, ino: u64) -> bool {
        let (chunk, at) = Self::place(ino);
        let chunk = self.0.entry(chunk).or_insert(Chunk::Few(Vec::new()));
        if let Chunk::Few(few) = chunk {
            let Err(place) = few.binary_search(&at) else { return false };
            if few.len() < FEW_MAX {
                few.insert(place, at);
                return true;
            }
            let mut many = Box::new([0; WORDS]);
            for &at in few.iter() {
                many[usize::from(at) / 64] |= 1 << (at % 64);
            }
            *chunk = Chunk::Many(many);
        }
        let Chunk::Many(many) = chunk else { unreachable!("just made") };
        let (word, bit) = (&mut many[usize::from(at) / 64], 1 << (at % 64));
        let is_new = *word & bit == 0;
        *word |= bit;
        is_new
    }

    pub(in crate::furrow) fn contains(&self, ino: u64) -> bool {
        let (chunk, at) = Self::place(ino);
        match self.0.get(&chunk) {
            None => false,
            Some(Chunk::Few(few)) => few.binary_search(&at).is_ok(),
            Some(Chunk::Many(many)) => many[usize::from(at) / 64] & (1 << (at % 64)) != 0,
        }
    }
}

/// What is reachable so far.
pub(in crate::furrow) struct Reach {
    reached: Inos,
    count: u64,
    /// Directories with one in each of which it is not known yet whether it is reachable.
    waiting: Vec<(u64, u64)>,
    waiting_max: usize,
    /// Some did not fit.
    is_cut: bool,
}

impl Reach {
    /// With so many bytes for what waits.
    pub(in crate::furrow) fn new(memory: u64) -> Self {
        let mut reached = Inos::default();
        reached.insert(Ino::ROOT.get());
        let waiting_max = usize::try_from(memory / 16).unwrap_or(usize::MAX).max(1);
        Self { reached, count: 1, waiting: Vec::new(), waiting_max, is_cut: false }
    }

    /// A directory has an entry that leads to another one.
    pub(in crate::furrow) fn edge(&mut self, parent: u64, child: u64) {
        if self.reached.contains(parent) {
            self.count += u64::from(self.reached.insert(child));
        } else if self.waiting.len() < self.waiting_max {
            self.waiting.push((parent, child));
        } else {
            self.is_cut = true;
        }
    }

    /// Reaches what it can of what waits.
    fn settle(&mut self) {
        self.waiting.sort_unstable();
        let waiting = std::mem::take(&mut self.waiting);
        let children = |parent: u64| {
            let first = waiting.partition_point(|(other, _)| *other < parent);
            waiting[first..].iter().take_while(move |(other, _)| *other == parent)
        };
        let parents = waiting.iter().map(|(parent, _)| *parent);
        let mut queue: Vec<u64> = parents.filter(|&ino| self.reached.contains(ino)).collect();
        queue.dedup();
        while let Some(parent) = queue.pop() {
            for &(_, child) in children(parent) {
                if self.reached.insert(child) {
                    self.count += 1;
                    queue.push(child);
                }
            }
        }
    }

    /// All edges have come once. Names what is linked and not reachable. If links fit, that is nothing if
    /// all linked directories are reachable, of which there are so many.
    pub(in crate::furrow) fn check(
        mut self,
        source: &mut Source<'_>,
        directories: Option<u64>,
        problems: &mut Problems,
    ) -> Result<()> {
        self.settle();
        while self.is_cut {
            let before = self.count;
            self.is_cut = false;
            each_entry(source, &mut |parent, child, kind| {
                if kind == FileKind::Directory && !self.reached.contains(child) {
                    self.edge(parent, child);
                }
            })?;
            self.settle();
            if self.count == before {
                break;
            }
        }
        if directories == Some(self.count) {
            return Ok(());
        }
        // What is in a directory that is reachable, too.
        let Self { mut reached, .. } = self;
        let mut files = Inos::default();
        each_entry(source, &mut |parent, child, kind| {
            if kind != FileKind::Directory && reached.contains(parent) {
                files.insert(child);
            }
        })?;
        reached.insert(Ino::ROOT.get());
        let range = (Key::BASE_END, Key::new(RowKind::Extent, 0, 0));
        source.pass(CheckPhase::Links, range, &mut |item| {
            if let Item::Row(key, Row::Inode(row, _), _) = item
                && row.nlink.get() > 0
                && !reached.contains(key.owner())
                && !files.contains(key.owner())
            {
                let ino = Ino::new(key.owner());
                problems.add_of(rule::REACHABLE, ino, format!("inode {ino}"));
            }
        })
    }
}

fn each_entry(source: &mut Source<'_>, each: &mut dyn FnMut(u64, u64, FileKind)) -> Result<()> {
    let range = (Key::BASE_END, Key::new(RowKind::Extent, 0, 0));
    source.pass(CheckPhase::Links, range, &mut |item| {
        if let Item::Row(key, Row::Entry(row, _), _) = item
            && let Some(entry) = directory_entry(key.at(), &row)
        {
            each(key.owner(), entry.ino.get(), entry.kind);
        }
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn inode_set_holds_inserted_numbers() {
        let (mut set, mut expected) = (Inos::default(), BTreeSet::new());
        let mut number = 1_u64;
        for turn in 0..20_000 {
            number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            // Close together, and far from each other.
            let ino = if turn % 2 == 0 { number >> 49 } else { number >> 20 };
            assert_eq!(set.insert(ino), expected.insert(ino), "{ino}");
        }
        assert!(expected.iter().all(|&ino| set.contains(ino)));
        let absent = (0..40_000).filter(|ino| !expected.contains(ino));
        assert_eq!(absent.filter(|&ino| set.contains(ino)).count(), 0);
    }

    #[test]
    fn reach_accepts_any_order_but_no_cycle() {
        let mut reach = Reach::new(1 << 10);
        for (parent, child) in [(9, 5), (5, 4), (1, 9), (20, 21), (21, 20), (4, 3)] {
            reach.edge(parent, child);
        }
        reach.settle();
        assert_eq!(reach.count, 5);
        assert!([1, 3, 4, 5, 9].into_iter().all(|ino| reach.reached.contains(ino)));
        assert!(!reach.reached.contains(20));
    }
}
