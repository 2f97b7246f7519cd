//! Rules that hold on a drive with a Furrow file system, numbered. `zonal check` names them.

use std::collections::BTreeSet;

use crate::vfs::Ino;

/// A rule that the structures on the drive obey.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Invariant {
    /// Its number.
    pub id: &'static str,
    /// The rule, in words.
    pub rule: &'static str,
}

macro_rules! invariants {
    ($($name:ident $id:literal $rule:literal;)*) => {
        $(pub(super) const $name: Invariant = Invariant { id: $id, rule: $rule };)*
        /// All of them, by number.
        pub const INVARIANTS: &[Invariant] = &[$($name),*];
    };
}

invariants! {
    SUPERBLOCKS "C01" "both pairs of superblock zones hold the current superblock";
    MANIFESTS "C02" "both copies of the manifest are whole";
    PARTS "C03" "both copies of every leaf and index of the table are whole";
    JOURNAL "C04" "both copies of the journal hold the same batches";
    ROWS "C05" "every row can be read";
    BATCHES "C06" "no batch of the journal is missing";
    NEWEST "C07" "the newest superblock can be read in one of the pairs";
    LEVELS "C08" "parts of the table hold the rows that the manifest says, and those of the last level no deleted ones";
    INODES "C10" "every inode has a known kind and a number below the next one";
    ROOT "C11" "inode 1 is a directory and its own parent";
    ENTRIES "C12" "every entry is in a directory, has a possible name and leads to an inode of the kind it says";
    COOKIES "C13" "cookies are unique in a directory and below its next one";
    PARENTS "C14" "a directory has one entry, in the directory it names as its parent";
    LINKS "C15" "an inode's link count is the number of its entries, plus those of a directory";
    REACHABLE "C16" "every linked inode is reachable from the root";
    XATTRS "C17" "every extended attribute belongs to an inode";
    COUNTS "C18" "an inode's row says how many blocks are mapped, that of a directory how many entries it has";
    ORPHANS "C19" "inodes that have no link, or of which something waits to be removed, are in the list of orphans, and no others";
    EXTENTS "C20" "every extent lies inside a data zone's capacity";
    WRITTEN "C21" "every extent lies below its zone's write pointer";
    DISJOINT "C22" "no two extents overlap";
    MAPS "C23" "every map entry belongs to a file, and what it shares lies inside an extent";
    MAP_ORDER "C24" "map entries of a file do not overlap";
    REFERENCES "C25" "a shared extent's reference count is the number of its map entries, never 0";
    SIZES "C26" "a file has data beyond its size only if a truncation frees it, a truncation frees no block before the size, and no file is mapped beyond the largest size";
    META_ZONES "C27" "no extent lies in a zone of the superblocks, the journal or the table";
    ZONE_ROWS "C28" "a zone's row says how many of its blocks somebody has, and reaches to the last of them";
    TOTALS "C29" "the row of totals holds the sums of all other rows";
    DATA "C30" "every mapped block is what its checksum says";
    ZONES "C31" "every zone that holds something can be read";
    OWNERS "C32" "rows of owners belong to zones that hold something, which say how many there are and how long";
    LISTED "C33" "whose the blocks of a zone are is in its rows of owners, where it says so";
    NAMES "C34" "an indexed directory has the cookie of each entry in the row of its name's hash, and no others";
    LEARNED "C35" "rows of what was learned have possible numbers, and so have the contexts of files";
    MOVED "C36" "where a piece of a file is, with its moves, is in the generation of a zone in which something lives, and each table of moves has a number of its own";
    DISCARDS "C37" "discarded ranges of a file do not overlap, and none is empty";
}

/// A rule that does not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The rule.
    pub invariant: Invariant,
    /// Where the rule fails, and how.
    pub what: String,
    /// The inode that it is about, if it is about one.
    pub ino: Option<Ino>,
    /// A path that leads there, if one does.
    pub path: Option<String>,
}

/// Collects problems, up to a bound, for a destroyed drive has millions. The first one of each rule
/// is always kept.
#[derive(Debug, Default)]
pub(super) struct Problems {
    pub(super) found: Vec<Problem>,
    /// Problems beyond the bound.
    pub(super) more: u64,
    rules: BTreeSet<Invariant>,
}

impl Problems {
    const KEPT_MAX: usize = 1000;

    /// How many were added.
    pub(super) fn count(&self) -> u64 {
        self.found.len() as u64 + self.more
    }

    pub(super) fn add(&mut self, invariant: Invariant, what: String) {
        self.push(Problem { invariant, what, ino: None, path: None });
    }

    /// Adds one that is about an inode.
    pub(super) fn add_of(&mut self, invariant: Invariant, ino: Ino, what: String) {
        self.push(Problem { invariant, what, ino: Some(ino), path: None });
    }

    fn push(&mut self, problem: Problem) {
        if self.rules.insert(problem.invariant) || self.found.len() < Self::KEPT_MAX {
            self.found.push(problem);
        } else {
            self.more += 1;
        }
    }

    /// Adds all of others.
    pub(super) fn append(&mut self, others: Self) {
        others.found.into_iter().for_each(|problem| self.push(problem));
        self.more += others.more;
    }

    /// Whether the bound is reached, so that further problems are only counted.
    pub(super) fn is_full(&self) -> bool {
        self.more > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invariant_ids_are_unique() {
        let mut ids: Vec<_> = INVARIANTS.iter().map(|invariant| invariant.id).collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), INVARIANTS.len());
    }

    #[test]
    fn problems_of_one_invariant_do_not_hide_others() {
        let mut problems = Problems::default();
        for batch in 0..5000 {
            problems.add(JOURNAL, format!("batch {batch} is in one copy only"));
        }
        problems.add(BATCHES, "batch 5000 is in neither".into());
        assert_eq!((problems.found.len(), problems.more), (Problems::KEPT_MAX + 1, 4000));
        assert_eq!(problems.found.last().map(|problem| problem.invariant), Some(BATCHES));
    }
}
