//! Names of directories, found by a hash: of large ones without all entries in memory.
//!
//! A directory of more entries than a bound is *indexed*, from then on: for each hash there is a
//! row with the cookies of the entries whose names have it.
//! [`index`](crate::furrow::metadata::index) keeps them.

use std::collections::{BTreeSet, VecDeque};
use std::mem::size_of;

use crate::furrow::metadata::held::in_tree;

/// Hashes that are kept because they were looked up a moment ago.
const FOUND_MAX: usize = 16;

/// Bytes of a row of names without its cookies, and of a cookie.
const ROW_BYTES: u64 = 8;
const COOKIE_BYTES: u64 = 8;

/// What names are hashed with: the file system's identity, so that nobody makes names for all
/// drives that have the same hash.
#[derive(Clone, Copy, Debug)]
pub(in crate::furrow) struct NameKey([u64; 2]);

impl NameKey {
    pub(in crate::furrow) fn of(uuid: [u8; 16]) -> Self {
        let both = u128::from_le_bytes(uuid);
        let word = |bits: u128| u64::try_from(bits & u128::from(u64::MAX)).expect("64 bits");
        Self([word(both), word(both >> 64)])
    }

    /// SipHash-2-4.
    pub(in crate::furrow) fn hash(&self, name: &[u8]) -> u64 {
        let [low, high] = self.0;
        let mut words = [
            low ^ 0x736f_6d65_7073_6575,
            high ^ 0x646f_7261_6e64_6f6d,
            low ^ 0x6c79_6765_6e65_7261,
            high ^ 0x7465_6462_7974_6573,
        ];
        let (chunks, rest) = name.as_chunks::<8>();
        for chunk in chunks {
            absorb(&mut words, u64::from_le_bytes(*chunk));
        }
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        last[7] = name.len().to_le_bytes()[0];
        absorb(&mut words, u64::from_le_bytes(last));
        words[2] ^= 0xff;
        (0..4).for_each(|_| mix(&mut words));
        words.into_iter().fold(0, |sum, word| sum ^ word)
    }
}

fn absorb(words: &mut [u64; 4], word: u64) {
    words[3] ^= word;
    (0..2).for_each(|_| mix(words));
    words[0] ^= word;
}

fn mix([a, b, c, d]: &mut [u64; 4]) {
    *a = a.wrapping_add(*b);
    *c = c.wrapping_add(*d);
    *b = b.rotate_left(13) ^ *a;
    *d = d.rotate_left(16) ^ *c;
    *a = a.rotate_left(32);
    *c = c.wrapping_add(*b);
    *a = a.wrapping_add(*d);
    *b = b.rotate_left(17) ^ *c;
    *d = d.rotate_left(21) ^ *a;
    *c = c.rotate_left(32);
}

/// What is known of the index of a directory.
#[derive(Clone, Debug, Default)]
pub(in crate::furrow) struct Names {
    /// Hashes of which all entries are in memory, or none exist, although others are not.
    known: BTreeSet<u64>,
    /// The last ones that were found, and the number of loads before each.
    found: VecDeque<(u64, u64)>,
}

impl Names {
    /// From now on all entries with this hash are in memory. Of the hashes that were found, those
    /// stay that were found from the load `needed` on: some operation waits for them.
    pub(in crate::furrow) fn note_known(&mut self, hash: u64, now: u64, needed: u64) {
        self.known.insert(hash);
        let is_needed = |(_, at): &(u64, u64)| *at >= needed;
        while self.found.len() >= FOUND_MAX && !self.found.front().is_some_and(is_needed) {
            self.found.pop_front();
        }
        self.found.push_back((hash, now));
    }

    /// Whether all entries with this hash are in memory, or none exist.
    pub(in crate::furrow) fn knows(&self, hash: u64) -> bool {
        self.known.contains(&hash)
    }

    /// Whether names with this hash were looked up a moment ago.
    pub(in crate::furrow) fn is_found(&self, hash: u64) -> bool {
        self.found.iter().any(|(found, _)| *found == hash)
    }

    /// How many hashes are known.
    pub(in crate::furrow) fn known_count(&self) -> usize {
        self.known.len()
    }

    /// An entry with this hash is no longer in memory.
    pub(in crate::furrow) fn forget(&mut self, hash: u64) {
        self.known.remove(&hash);
    }

    /// Lets go of what is known of hashes, but for those that must be kept and the last ones that
    /// were found.
    pub(in crate::furrow) fn forget_known(&mut self, must_keep: impl Fn(u64) -> bool) {
        let is_found = |hash| self.found.iter().any(|(found, _)| *found == hash);
        self.known.retain(|&hash| is_found(hash) || must_keep(hash));
    }

    /// Bytes of memory.
    pub(in crate::furrow) fn held_bytes(&self) -> usize {
        self.known.len() * in_tree(size_of::<u64>())
    }
}

/// Bytes of a row of so many cookies.
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
