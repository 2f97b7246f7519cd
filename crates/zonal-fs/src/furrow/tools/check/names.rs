//! Names of large directories: whether rows of names and entries lead to each other, and whether a name is
//! there twice.
//!
//! Rows of names are in the order of hashes, entries are not. So of all hashes those are looked at first of
//! which there is memory for the entries, from the lowest on; then the next ones.

use std::iter::Peekable;

use crate::furrow::format::row::{Row, decode};
use crate::furrow::invariant::{self as rule, Problems};
use crate::furrow::metadata::names::NameKey;
use crate::furrow::table::key::{Key, RowKind};
use crate::furrow::tools::check::CheckPhase;
use crate::furrow::tools::check::pass::{Item, Source};
use crate::vfs::{Ino, Result};

/// A large directory.
#[derive(Clone, Copy, Debug)]
pub(in crate::furrow) struct Large {
    pub(in crate::furrow) ino: Ino,
    /// It has rows of names.
    pub(in crate::furrow) is_indexed: bool,
}

/// Bytes of a name while it is compared.
const PAIR_BYTES: u64 = 32;

/// Hash and cookie.
type Pair = (u64, u64);

impl Large {
    pub(in crate::furrow) fn check(
        &self,
        source: &mut Source<'_>,
        (key, memory): (NameKey, u64),
        problems: &mut Problems,
    ) -> Result<()> {
        let most = usize::try_from(memory / PAIR_BYTES).unwrap_or(usize::MAX).max(16);
        let mut low = Some(0);
        while let Some(from) = low {
            let (pairs, below) = self.least(source, key, (from, most))?;
            self.compare(source, (from, below), &pairs, problems)?;
            low = below;
        }
        Ok(())
    }

    /// The entries with the lowest hashes from `from` on, at most so many, and up to which hash these are
    /// all.
    fn least(
        &self,
        source: &mut Source<'_>,
        key: NameKey,
        (from, most): (u64, usize),
    ) -> Result<(Vec<Pair>, Option<u64>)> {
        let (mut pairs, mut below): (Vec<Pair>, Option<u64>) = (Vec::new(), None);
        let mut most = most;
        let owner = self.ino.get();
        let range = (Key::new(RowKind::Entry, owner, 0), Key::new(RowKind::Inode, owner + 1, 0));
        source.pass(CheckPhase::Names, range, &mut |item| {
            let Item::Row(row_key, Row::Entry(_, name), _) = item else { return };
            let hash = key.hash(name);
            if hash < from || below.is_some_and(|below| hash >= below) {
                return;
            }
            pairs.push((hash, row_key.at()));
            if pairs.len() >= most {
                pairs.sort_unstable();
                let bound = pairs[pairs.len() / 2].0;
                if bound > from {
                    pairs.retain(|(hash, _)| *hash < bound);
                    below = Some(bound);
                } else {
                    // All these have one hash.
                    most *= 2;
                }
            }
        })?;
        pairs.sort_unstable();
        Ok((pairs, below))
    }

    /// Compares the rows of names in a range of hashes with the entries there.
    fn compare(
        &self,
        source: &mut Source<'_>,
        (from, below): (u64, Option<u64>),
        pairs: &[Pair],
        problems: &mut Problems,
    ) -> Result<()> {
        for same in pairs.chunk_by(|left, right| left.0 == right.0).filter(|same| same.len() > 1) {
            self.check_twice(source, same, problems)?;
        }
        if !self.is_indexed {
            return Ok(());
        }
        let owner = self.ino.get();
        let mut groups = pairs.chunk_by(|left, right| left.0 == right.0).peekable();
        let end = below.map_or(Key::new(RowKind::Entry, owner, 0), |below| {
            Key::new(RowKind::Name, owner, below)
        });
        let range = (Key::new(RowKind::Name, owner, from), end);
        source.pass(CheckPhase::Names, range, &mut |item| {
            let Item::Row(key, Row::Name(cookies), _) = item else { return };
            let stated: Vec<u64> = cookies.iter().map(|cookie| cookie.get()).collect();
            self.pass_over(&mut groups, Some(key.at()), problems);
            let found = groups.next_if(|group| group[0].0 == key.at());
            self.compare_row(key.at(), &stated, found.unwrap_or_default(), problems);
        })?;
        self.pass_over(&mut groups, None, problems);
        Ok(())
    }

    /// Entries with lower hashes than the next row of names.
    fn pass_over<'a>(
        &self,
        groups: &mut Peekable<impl Iterator<Item = &'a [Pair]>>,
        below: Option<u64>,
        problems: &mut Problems,
    ) {
        while let Some(group) = groups.next_if(|group| below.is_none_or(|below| group[0].0 < below))
        {
            self.compare_row(group[0].0, &[], group, problems);
        }
    }

    fn compare_row(&self, hash: u64, stated: &[u64], found: &[Pair], problems: &mut Problems) {
        let ino = self.ino;
        let cookies: Vec<u64> = found.iter().map(|(_, cookie)| *cookie).collect();
        let what = if cookies.is_empty() {
            format!("hash {hash:016x} of inode {ino} leads to {stated:?}, and nothing has it")
        } else if stated != cookies {
            format!("hash {hash:016x} of inode {ino} leads to {stated:?} and not to {cookies:?}")
        } else {
            return;
        };
        problems.add_of(rule::NAMES, ino, what);
    }

    /// Reads the names of entries whose hashes are the same.
    fn check_twice(
        &self,
        source: &Source<'_>,
        same: &[Pair],
        problems: &mut Problems,
    ) -> Result<()> {
        let mut names: Vec<Box<[u8]>> = Vec::new();
        for (_, cookie) in same {
            let key = Key::new(RowKind::Entry, self.ino.get(), *cookie);
            let Some(value) = source.view.row(source.drive, key)? else { continue };
            if let Ok(Row::Entry(_, name)) = decode(key, &value) {
                names.push(name.into());
            }
        }
        names.sort_unstable();
        for two in names.windows(2).filter(|two| two[0] == two[1]) {
            let name = String::from_utf8_lossy(&two[0]);
            let what = format!("entry {name:?} of inode {} is there twice", self.ino);
            problems.add_of(rule::ENTRIES, self.ino, what);
        }
        Ok(())
    }
}
