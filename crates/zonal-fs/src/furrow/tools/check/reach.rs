//! Whether all linked inodes are reachable from the root.
//!
//! A pass gets directories in the order of their numbers, and most are younger than their parents:
//! then the check already knows that a directory is reachable when it gets its entries. Entries of
//! other directories wait in memory; another pass finds entries that do not fit.

use crate::furrow::format::row::Row;
use crate::furrow::invariant::{self as rule, Problems};
use crate::furrow::metadata::directory::row::directory_entry;
use crate::furrow::recovery::ino_set::InoSet;
use crate::furrow::table::key::KeySpan;
use crate::furrow::tools::check::CheckPhase;
use crate::furrow::tools::check::pass::{Item, RowSource};
use crate::vfs::{FileKind, Ino, Result};

/// The directories that are reachable as far as the pass has got.
pub(super) struct Reach {
    reached: InoSet,
    count: u64,
    /// Parent and child, for parents that are not known to be reachable yet.
    waiting: Vec<(u64, u64)>,
    waiting_max: usize,
    /// Some pairs did not fit into `waiting`.
    is_cut: bool,
}

impl Reach {
    /// With `memory` bytes for pairs that wait.
    pub(super) fn new(memory: u64) -> Self {
        let mut reached = InoSet::default();
        reached.insert(Ino::ROOT.get());
        let waiting_max = usize::try_from(memory / 16).unwrap_or(usize::MAX).max(1);
        Self { reached, count: 1, waiting: Vec::new(), waiting_max, is_cut: false }
    }

    /// Enters a directory `child` that has an entry in `parent`.
    pub(super) fn edge(&mut self, parent: u64, child: u64) {
        if self.reached.contains(parent) {
            self.count += u64::from(self.reached.insert(child));
        } else if self.waiting.len() < self.waiting_max {
            self.waiting.push((parent, child));
        } else {
            self.is_cut = true;
        }
    }

    /// Reaches the waiting children of reachable parents.
    fn reach_waiting(&mut self) {
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

    /// Reports linked inodes that are not reachable, after all edges have been entered once.
    /// `directories` is the number of linked directories, if links and inodes match: if so many are
    /// reachable, all inodes are.
    pub(super) fn check(
        mut self,
        source: &mut RowSource<'_>,
        directories: Option<u64>,
        problems: &mut Problems,
    ) -> Result<()> {
        self.reach_waiting();
        while self.is_cut {
            let before = self.count;
            self.is_cut = false;
            each_entry(source, &mut |parent, child, kind| {
                if kind == FileKind::Directory && !self.reached.contains(child) {
                    self.edge(parent, child);
                }
            })?;
            self.reach_waiting();
            if self.count == before {
                break;
            }
        }
        if directories == Some(self.count) {
            return Ok(());
        }
        // Files are reachable through reachable directories.
        let Self { mut reached, .. } = self;
        let mut files = InoSet::default();
        each_entry(source, &mut |parent, child, kind| {
            if kind != FileKind::Directory && reached.contains(parent) {
                files.insert(child);
            }
        })?;
        reached.insert(Ino::ROOT.get());
        source.pass(CheckPhase::Links, KeySpan::INODES, &mut |item| {
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

fn each_entry(source: &mut RowSource<'_>, each: &mut dyn FnMut(u64, u64, FileKind)) -> Result<()> {
    source.pass(CheckPhase::Links, KeySpan::INODES, &mut |item| {
        if let Item::Row(key, Row::Entry(row, _), _) = item
            && let Some(entry) = directory_entry(key.at(), &row)
        {
            each(key.owner(), entry.ino.get(), entry.kind);
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reach_accepts_any_order_but_no_cycle() {
        let mut reach = Reach::new(1 << 10);
        for (parent, child) in [(9, 5), (5, 4), (1, 9), (20, 21), (21, 20), (4, 3)] {
            reach.edge(parent, child);
        }
        reach.reach_waiting();
        assert_eq!(reach.count, 5);
        assert!([1, 3, 4, 5, 9].into_iter().all(|ino| reach.reached.contains(ino)));
        assert!(!reach.reached.contains(20));
    }
}
