//! Whether entries match inodes: each entry names an inode of the kind that it states, each inode
//! has as many entries as it states, and a directory has one, in its parent directory.
//!
//! A pass gets entries in the order of directories and inodes in that of their numbers, and there
//! may be hundreds of millions of both. So the first pass adds a hash of each entry to one of a
//! fixed number of buckets, by its inode, and subtracts the hashes that each inode expects. A
//! bucket that is not zero at the end has an inode with a mismatch, and a second pass compares the
//! inodes and entries of only these buckets. The sums have 64 bits, so damage that cancels out is
//! not to be expected.
//!
//! If rows are lost, an entry may name an inode whose row is lost, and an inode may lack entries.

use std::collections::BTreeMap;

use crate::furrow::format::row::kind_of;
use crate::furrow::format::row::{EntryRow, InodeRow, Row};
use crate::furrow::invariant::{self as rule, Problems};
use crate::furrow::metadata::directory::row::directory_entry;
use crate::furrow::table::key::{Key, KeySpan};
use crate::furrow::tools::check::lost::LostRows;
use crate::furrow::tools::check::pass::{Item, RowSource};
use crate::furrow::tools::check::{CheckPhase, mix};
use crate::rules;
use crate::vfs::{FileKind, Ino, Result};

/// log₂ of the number of buckets, which take a mebibyte.
const BUCKETS_LOG2: u32 = 17;

/// Bytes of memory of an entry or an inode while the second pass compares it, about.
const FACT_BYTES: u64 = 256;

/// The facts about links in an inode's row.
#[derive(Clone, Copy)]
pub(super) struct Linked {
    pub(super) ino: Ino,
    pub(super) kind: FileKind,
    pub(super) nlink: u32,
    pub(super) parent: u64,
    /// Entries of this directory that name directories.
    pub(super) subdirectories: u32,
}

impl Linked {
    /// Entries that must name the inode.
    fn entries(&self) -> u32 {
        match self.kind {
            FileKind::Directory => u32::from(self.nlink > 0 && self.ino != Ino::ROOT),
            _ => self.nlink,
        }
    }

    /// Links that an inode with `entries` entries must have. A directory has one more for its `.`,
    /// and one for the `..` of each subdirectory; the root has one for its own `..`.
    fn links(&self, entries: u32) -> u32 {
        let own = match self.kind {
            FileKind::Directory if self.ino == Ino::ROOT => 2,
            FileKind::Directory if entries > 0 => 1,
            _ => 0,
        };
        entries.saturating_add(own).saturating_add(self.subdirectories)
    }
}

/// Whether an entry's row is valid in a directory with this next cookie.
pub(super) fn is_entry(cookie: u64, name: &[u8], row: &EntryRow, next_cookie: u64) -> bool {
    cookie < next_cookie && rules::check_name(name).is_ok() && kind_of(row.kind).is_some()
}

pub(super) struct LinkSums {
    sums: Vec<u64>,
    facts: u64,
}

impl LinkSums {
    pub(super) fn new() -> Self {
        Self { sums: vec![0; 1 << BUCKETS_LOG2], facts: 0 }
    }

    fn bucket(ino: u64) -> usize {
        usize::try_from(mix(ino) >> (u64::BITS - BUCKETS_LOG2)).expect("a few bits")
    }

    fn hash(ino: u64, kind: FileKind, parent: u64) -> u64 {
        let parent = if kind == FileKind::Directory { parent } else { 0 };
        mix(mix(mix(ino) ^ kind as u64).wrapping_add(parent))
    }

    /// Adds an entry of a directory.
    pub(super) fn entry(&mut self, parent: u64, ino: u64, kind: FileKind) {
        let sum = &mut self.sums[Self::bucket(ino)];
        *sum = sum.wrapping_add(Self::hash(ino, kind, parent));
        self.facts += 1;
    }

    /// Subtracts the entries that an inode expects.
    pub(super) fn inode(&mut self, inode: &Linked) {
        let ino = inode.ino.get();
        let expected = u64::from(inode.entries());
        let hash = Self::hash(ino, inode.kind, inode.parent).wrapping_mul(expected);
        let sum = &mut self.sums[Self::bucket(ino)];
        *sum = sum.wrapping_sub(hash);
        self.facts += 1;
    }

    /// Reports mismatches.
    pub(super) fn check(
        self,
        source: &mut RowSource<'_>,
        memory: u64,
        lost: &LostRows,
        problems: &mut Problems,
    ) -> Result<()> {
        let wrong: Vec<usize> = (0..self.sums.len()).filter(|&at| self.sums[at] != 0).collect();
        let per_bucket = (self.facts >> BUCKETS_LOG2) + 1;
        let at_once = memory / (per_bucket * FACT_BYTES) + 1;
        for buckets in wrong.chunks(usize::try_from(at_once).unwrap_or(usize::MAX)) {
            if problems.is_full() {
                problems.add(rule::LINKS, "links of further inodes were not compared".into());
                break;
            }
            let mut facts = Facts { buckets, seen: BTreeMap::new(), directory: None };
            source.pass(CheckPhase::Links, KeySpan::INODES, &mut |item| facts.put(item))?;
            facts.end_directory();
            facts.seen.iter().for_each(|(&ino, seen)| seen.check(ino, lost, problems));
        }
        Ok(())
    }
}

/// An inode and the entries that name it.
#[derive(Default)]
struct Seen {
    inode: Option<Linked>,
    /// Directory, name and stated kind of each entry.
    entries: Vec<(u64, Box<[u8]>, FileKind)>,
}

impl Seen {
    fn check(&self, ino: u64, lost: &LostRows, problems: &mut Problems) {
        let kind = self.inode.map(|inode| inode.kind);
        let mut found = 0;
        for (parent, name, stated) in &self.entries {
            let name = String::from_utf8_lossy(name);
            if kind.is_none() && lost.cover_inode(ino) {
                continue;
            }
            if kind != Some(*stated) {
                let what = format!(
                    "entry {name:?} of inode {parent} leads to inode {ino}, of kind {stated:?}"
                );
                problems.add_of(rule::ENTRIES, Ino::new(*parent), what);
                continue;
            }
            found += 1;
            let is_astray = self.inode.is_some_and(|inode| inode.parent != *parent);
            if *stated == FileKind::Directory && (is_astray || ino == Ino::ROOT.get()) {
                let what = format!("directory {ino} is {name:?} in {parent}");
                problems.add_of(rule::PARENTS, Ino::new(ino), what);
            }
        }
        // A directory states where its entry is, any other inode does not.
        let may_lack = |inode: &Linked| match inode.kind {
            FileKind::Directory => lost.touch_inode(inode.parent) || lost.touch_inode(ino),
            _ => lost.touch_inodes(),
        };
        if let Some(inode) = self.inode
            && (found > inode.entries() || found < inode.entries() && !may_lack(&inode))
        {
            let (nlink, found) = (inode.nlink, inode.links(found));
            let what = format!("inode {ino} says {nlink} links and has {found}");
            problems.add_of(rule::LINKS, inode.ino, what);
        }
    }
}

/// The inodes of some buckets, and the entries that name them.
struct Facts<'a> {
    buckets: &'a [usize],
    seen: BTreeMap<u64, Seen>,
    /// The directory whose rows the pass is at, and its next cookie.
    directory: Option<(Linked, u64)>,
}

impl Facts<'_> {
    fn has(&self, ino: u64) -> bool {
        self.buckets.binary_search(&LinkSums::bucket(ino)).is_ok()
    }

    fn put(&mut self, item: Item<'_>) {
        let Item::Row(key, row, _) = item else { return };
        match row {
            Row::Inode(row, _) => {
                self.end_directory();
                self.begin_inode(key.owner(), &row);
            }
            Row::Entry(row, name) => self.put_entry(key, &row, name),
            _ => {}
        }
    }

    fn begin_inode(&mut self, ino: u64, row: &InodeRow) {
        let Some(kind) = kind_of(row.kind) else { return };
        let (nlink, parent) = (row.nlink.get(), row.parent.get());
        let inode = Linked { ino: Ino::new(ino), kind, nlink, parent, subdirectories: 0 };
        if kind == FileKind::Directory {
            self.directory = Some((inode, row.next.get()));
        } else if self.has(ino) {
            self.seen.entry(ino).or_default().inode = Some(inode);
        }
    }

    fn end_directory(&mut self) {
        if let Some((inode, _)) = self.directory.take()
            && self.has(inode.ino.get())
        {
            self.seen.entry(inode.ino.get()).or_default().inode = Some(inode);
        }
    }

    fn put_entry(&mut self, key: Key, row: &EntryRow, name: &[u8]) {
        let Some((directory, next_cookie)) = &mut self.directory else { return };
        let Some(entry) = directory_entry(key.at(), row) else { return };
        if directory.ino.get() != key.owner() || !is_entry(key.at(), name, row, *next_cookie) {
            return;
        }
        directory.subdirectories += u32::from(entry.kind == FileKind::Directory);
        if self.has(entry.ino.get()) {
            let seen = self.seen.entry(entry.ino.get()).or_default();
            seen.entries.push((key.owner(), name.into(), entry.kind));
        }
    }
}
