//! The name index of large directories: whether index rows and entries match, and whether a name
//! occurs twice.
//!
//! Index rows are in the order of hashes, entries are not. So each pass compares the entries with
//! the lowest hashes that were not compared yet, as many as there is memory for.

use std::iter::Peekable;

use crate::furrow::format::row::{Row, decode};
use crate::furrow::invariant::{self as rule, Problems};
use crate::furrow::metadata::directory::names::NameKey;
use crate::furrow::table::key::{Key, KeySpan, RowKind};
use crate::furrow::tools::check::CheckPhase;
use crate::furrow::tools::check::pass::{Item, RowSource};
use crate::vfs::{Ino, Result};

/// A large directory.
#[derive(Clone, Copy, Debug)]
pub(super) struct LargeDirectory {
    pub(super) ino: Ino,
    /// The directory has an index.
    pub(super) is_indexed: bool,
}

/// Bytes of memory of a name while it is compared, about.
const PAIR_BYTES: u64 = 32;

/// Hash and cookie.
type HashCookie = (u64, u64);

impl LargeDirectory {
    pub(super) fn check(
        &self,
        source: &mut RowSource<'_>,
        key: NameKey,
        memory: u64,
        problems: &mut Problems,
    ) -> Result<()> {
        let most = usize::try_from(memory / PAIR_BYTES).unwrap_or(usize::MAX).max(16);
        let mut low = Some(0);
        while let Some(from) = low {
            let (pairs, below) = self.least(source, key, from, most)?;
            self.compare(source, from, below, &pairs, problems)?;
            low = below;
        }
        Ok(())
    }

    /// The entries with the lowest hashes from `from` on: at most `most`, unless more have one
    /// hash. Also returns the hash below which they are all; `None` if there are no others.
    fn least(
        &self,
        source: &mut RowSource<'_>,
        key: NameKey,
        from: u64,
        most: usize,
    ) -> Result<(Vec<HashCookie>, Option<u64>)> {
        let (mut pairs, mut below): (Vec<HashCookie>, Option<u64>) = (Vec::new(), None);
        let mut most = most;
        let owner = self.ino.get();
        let (first, end) =
            (Key::new(RowKind::Entry, owner, 0), Key::new(RowKind::Inode, owner + 1, 0));
        source.pass(CheckPhase::Names, KeySpan::new(first, end), &mut |item| {
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
                    // More than half of them have one hash.
                    most *= 2;
                }
            }
        })?;
        pairs.sort_unstable();
        Ok((pairs, below))
    }

    /// Compares the index rows of a range of hashes with the entries there.
    fn compare(
        &self,
        source: &mut RowSource<'_>,
        from: u64,
        below: Option<u64>,
        pairs: &[HashCookie],
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
        let span = KeySpan::new(Key::new(RowKind::Name, owner, from), end);
        source.pass(CheckPhase::Names, span, &mut |item| {
            let Item::Row(key, Row::Name(cookies), _) = item else { return };
            let stated: Vec<u64> = cookies.iter().map(|cookie| cookie.get()).collect();
            self.pass_over(&mut groups, Some(key.at()), problems);
            let found = groups.next_if(|group| group[0].0 == key.at());
            self.compare_row(key.at(), &stated, found.unwrap_or_default(), problems);
        })?;
        self.pass_over(&mut groups, None, problems);
        Ok(())
    }

    /// Reports entries whose hashes are below that of the next index row: they have none.
    fn pass_over<'a>(
        &self,
        groups: &mut Peekable<impl Iterator<Item = &'a [HashCookie]>>,
        below: Option<u64>,
        problems: &mut Problems,
    ) {
        while let Some(group) = groups.next_if(|group| below.is_none_or(|below| group[0].0 < below))
        {
            self.compare_row(group[0].0, &[], group, problems);
        }
    }

    fn compare_row(
        &self,
        hash: u64,
        stated: &[u64],
        found: &[HashCookie],
        problems: &mut Problems,
    ) {
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

    /// Reads the names of entries with equal hashes, and reports equal names.
    fn check_twice(
        &self,
        source: &RowSource<'_>,
        same: &[HashCookie],
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
