//! Name index of directories: finds an entry by hash without all entries in memory.
//!
//! A directory of more entries than a bound is *indexed*, from then on: for each hash there is a
//! row with the cookies of the entries whose names have it.
//! [`entries`](crate::furrow::metadata::state::entries) keeps them.

use std::collections::{BTreeSet, VecDeque};
use std::mem::size_of;

use siphasher::sip::SipHasher24;

use crate::furrow::memory::in_tree;
use crate::furrow::metadata::directory::{Directory, Entry};
use crate::furrow::metadata::missing::{Lookup, Missing, Stop};
use crate::vfs::Ino;

/// Hashes that are kept because they were looked up a moment ago.
const FOUND_MAX: usize = 16;

/// Bytes of a row of names without its cookies, and of a cookie.
const ROW_BYTES: u64 = 8;
const COOKIE_BYTES: u64 = 8;

/// The hash key of names: the file system's identity, so that no set of names collides on all
/// drives.
#[derive(Clone, Copy, Debug)]
pub(in crate::furrow) struct NameKey(SipHasher24);

/// A name with its hash.
#[derive(Clone, Copy, Debug)]
pub(in crate::furrow::metadata) struct HashedName<'a> {
    pub(super) hash: u64,
    pub(super) name: &'a [u8],
}

impl NameKey {
    pub(in crate::furrow) fn of(uuid: [u8; 16]) -> Self {
        Self(SipHasher24::new_with_key(&uuid))
    }

    /// A name with its hash.
    pub(in crate::furrow::metadata) fn hashed<'a>(&self, name: &'a [u8]) -> HashedName<'a> {
        HashedName { hash: self.hash(name), name }
    }

    /// SipHash-2-4.
    pub(in crate::furrow) fn hash(&self, name: &[u8]) -> u64 {
        self.0.hash(name)
    }
}

/// Entries of a directory that is not indexed, at most. Fewer on small drives, so that tests take
/// the same path.
const ENTRIES_MAX: u64 = 8192;

/// Searches for names one after the other, from which on all entries are loaded.
const SEARCHES_MAX: u32 = 4;

/// Entries of a directory that is not indexed, at most, on a drive with zones of `zone_blocks`
/// blocks.
pub(in crate::furrow) fn entries_max(zone_blocks: u32) -> u64 {
    ENTRIES_MAX.min(u64::from(zone_blocks) / 16)
}

/// How names are found in all directories of a mount.
#[derive(Clone, Copy, Debug)]
pub(in crate::furrow) struct NameRules {
    pub(in crate::furrow) key: NameKey,
    /// Entries of a directory that is not indexed, at most.
    pub(in crate::furrow::metadata) entries_max: u64,
}

impl NameRules {
    /// The rules of a drive with zones of `zone_blocks` blocks.
    pub(in crate::furrow::metadata) fn new(key: NameKey, zone_blocks: u32) -> Self {
        Self { key, entries_max: entries_max(zone_blocks) }
    }

    /// The entry with a name in a directory.
    pub(in crate::furrow) fn find(
        &self,
        ino: Ino,
        directory: &Directory,
        name: &[u8],
    ) -> Lookup<Option<Entry>> {
        let hashed = self.key.hashed(name);
        let entry = directory.find(hashed.hash, name);
        if entry.is_some() {
            return Ok(entry);
        }
        if directory.index.is_some() {
            return directory.check_names(ino, hashed).map(|()| None);
        }
        let Some(cookie) = directory.resident.first_missing(0..u64::MAX) else { return Ok(None) };
        if directory.absent.iter().any(|(absent, _)| absent[..] == *name) {
            return Ok(None);
        }
        // One that is to be indexed needs all of its entries for it.
        let is_small = directory.entries < self.entries_max;
        let missing = if is_small && directory.searches.0 < SEARCHES_MAX {
            Missing::Name(ino, name.into())
        } else {
            Missing::Entries(ino, cookie)
        };
        Err(Stop::NotLoaded(missing))
    }
}

/// The loaded part of a directory's index.
#[derive(Clone, Debug, Default)]
pub(in crate::furrow) struct NameIndex {
    /// Hashes whose entries are all in memory, or that have none, although other entries are not.
    known: BTreeSet<u64>,
    /// The last ones that were found, and the number of loads before each.
    found: VecDeque<(u64, u64)>,
}

impl NameIndex {
    /// From now on all entries with this hash are in memory. Of the hashes that were found, those
    /// stay that were found from the load `needed` on: some operation waits for them.
    pub(super) fn note_known(&mut self, hash: u64, now: u64, needed: u64) {
        self.known.insert(hash);
        let is_needed = |(_, at): &(u64, u64)| *at >= needed;
        while self.found.len() >= FOUND_MAX && !self.found.front().is_some_and(is_needed) {
            self.found.pop_front();
        }
        self.found.push_back((hash, now));
    }

    /// Whether all entries with this hash are in memory, or none exist.
    pub(super) fn knows(&self, hash: u64) -> bool {
        self.known.contains(&hash)
    }

    /// Whether names with this hash were looked up a moment ago.
    pub(in crate::furrow::metadata) fn is_found(&self, hash: u64) -> bool {
        self.found.iter().any(|(found, _)| *found == hash)
    }

    /// How many hashes are known.
    pub(in crate::furrow::metadata) fn known_count(&self) -> usize {
        self.known.len()
    }

    /// An entry with this hash is no longer in memory.
    pub(in crate::furrow::metadata) fn forget(&mut self, hash: u64) {
        self.known.remove(&hash);
    }

    /// Forgets which hashes are known, except the last ones that were looked up and those for which
    /// `must_keep` is true.
    pub(in crate::furrow::metadata) fn forget_known(&mut self, must_keep: impl Fn(u64) -> bool) {
        let is_found = |hash| self.found.iter().any(|(found, _)| *found == hash);
        self.known.retain(|&hash| is_found(hash) || must_keep(hash));
    }

    /// Bytes of memory.
    pub(in crate::furrow::metadata) fn held_bytes(&self) -> usize {
        self.known.len() * in_tree(size_of::<u64>())
    }
}

/// Bytes of a row of `cookies` cookies.
pub(in crate::furrow) fn names_bytes(cookies: usize) -> u64 {
    if cookies == 0 { 0 } else { ROW_BYTES + COOKIE_BYTES * cookies as u64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of the paper that describes the hash.
    #[test]
    fn name_hash_matches_siphash_paper() {
        let bytes: Vec<u8> = (0..16).collect();
        let key = NameKey::of(bytes[..].try_into().unwrap());
        assert_eq!(key.hash(&bytes[..15]), 0xa129_ca61_49be_45e5);
    }
}
