//! Names of large directories: found by a hash, without all entries in memory.
//!
//! A directory of more entries than a bound is *indexed*, from then on: for each hash there is a row
//! with the cookies of the entries whose names have it. [`index`](super::index) keeps them.

use std::collections::{BTreeMap, BTreeSet, VecDeque, btree_map};
use std::mem::size_of;

use super::held::in_tree;

/// Hashes that are kept because they were looked up a moment ago.
const FOUND_MAX: usize = 16;

/// Bytes of a row of names without its cookies, and of a cookie.
const ROW_BYTES: u64 = 8;
const COOKIE_BYTES: u64 = 8;

/// What names are hashed with: the file system's identity, so that nobody makes names for all drives
/// that have the same hash.
#[derive(Clone, Copy, Debug)]
pub(super) struct NameKey([u64; 2]);

impl NameKey {
    pub(super) fn of(uuid: [u8; 16]) -> Self {
        let both = u128::from_le_bytes(uuid);
        let word = |bits: u128| u64::try_from(bits & u128::from(u64::MAX)).expect("64 bits");
        Self([word(both), word(both >> 64)])
    }

    /// SipHash-2-4.
    pub(super) fn hash(&self, name: &[u8]) -> u64 {
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

/// Cookies of entries with the same hash: nearly always one.
#[derive(Clone, Debug)]
enum Cookies {
    One(u64),
    Many(Box<[u64]>),
}

impl Cookies {
    fn as_slice(&self) -> &[u64] {
        match self {
            Self::One(cookie) => std::slice::from_ref(cookie),
            Self::Many(cookies) => cookies,
        }
    }
}

/// The index of a directory, as far as its entries are in memory.
#[derive(Clone, Debug, Default)]
pub(super) struct Names {
    by_hash: BTreeMap<u64, Cookies>,
    /// Hashes of which all entries are in memory, or none exist, although others are not.
    known: BTreeSet<u64>,
    /// The last ones that were found.
    found: VecDeque<u64>,
}

impl Names {
    /// Cookies of the entries in memory whose names have a hash, in order.
    pub(super) fn cookies(&self, hash: u64) -> &[u64] {
        self.by_hash.get(&hash).map_or(&[], Cookies::as_slice)
    }

    /// Hashes of all names in memory, with their cookies.
    pub(super) fn rows(&self) -> impl Iterator<Item = (u64, &[u64])> {
        self.by_hash.iter().map(|(&hash, cookies)| (hash, cookies.as_slice()))
    }

    /// Adds an entry; returns how many have the hash now.
    pub(super) fn add(&mut self, hash: u64, cookie: u64) -> usize {
        let mut cookies = match self.by_hash.entry(hash) {
            btree_map::Entry::Vacant(place) => {
                place.insert(Cookies::One(cookie));
                return 1;
            }
            btree_map::Entry::Occupied(place) => place,
        };
        let mut all = cookies.get().as_slice().to_vec();
        if let Err(place) = all.binary_search(&cookie) {
            all.insert(place, cookie);
        }
        let count = all.len();
        cookies.insert(Cookies::Many(all.into()));
        count
    }

    /// Removes an entry; returns how many have the hash now.
    pub(super) fn remove(&mut self, hash: u64, cookie: u64) -> usize {
        let btree_map::Entry::Occupied(mut cookies) = self.by_hash.entry(hash) else { return 0 };
        let others = cookies.get().as_slice().iter().copied().filter(|&other| other != cookie);
        let others: Vec<u64> = others.collect();
        let count = others.len();
        match others[..] {
            [] => drop(cookies.remove()),
            [one] => drop(cookies.insert(Cookies::One(one))),
            [..] => drop(cookies.insert(Cookies::Many(others.into()))),
        }
        count
    }

    /// From now on all entries with this hash are in memory.
    pub(super) fn note_known(&mut self, hash: u64) {
        self.known.insert(hash);
        if self.found.len() == FOUND_MAX {
            self.found.pop_front();
        }
        self.found.push_back(hash);
    }

    /// Whether all entries with this hash are in memory, or none exist.
    pub(super) fn knows(&self, hash: u64) -> bool {
        self.known.contains(&hash)
    }

    /// Whether names with this hash were looked up a moment ago.
    pub(super) fn is_found(&self, hash: u64) -> bool {
        self.found.contains(&hash)
    }

    /// How many hashes are known.
    pub(super) fn known_count(&self) -> usize {
        self.known.len()
    }

    /// Lets go of an entry.
    pub(super) fn forget(&mut self, hash: u64, cookie: u64) {
        self.remove(hash, cookie);
        self.known.remove(&hash);
    }

    /// Lets go of what is known of hashes, but for those that must be kept and the last ones that
    /// were found.
    pub(super) fn forget_known(&mut self, must_keep: impl Fn(u64) -> bool) {
        let found = &self.found;
        self.known.retain(|&hash| found.contains(&hash) || must_keep(hash));
    }

    /// Bytes of memory.
    pub(super) fn held_bytes(&self) -> usize {
        let by_hash = self.by_hash.len() * in_tree(size_of::<(u64, Cookies)>());
        by_hash + self.known.len() * in_tree(size_of::<u64>())
    }
}

/// Bytes of a row of so many cookies.
pub(super) fn names_bytes(cookies: usize) -> u64 {
    if cookies == 0 { 0 } else { ROW_BYTES + COOKIE_BYTES * cookies as u64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of the paper that describes the hash.
    #[test]
    fn the_hash_is_the_one_that_is_described() {
        let bytes: Vec<u8> = (0..16).collect();
        let key = NameKey::of(bytes[..].try_into().unwrap());
        assert_eq!(key.hash(&bytes[..15]), 0xa129_ca61_49be_45e5);
    }

    #[test]
    fn entries_with_the_same_hash_share_a_row() {
        let mut names = Names::default();
        for cookie in [9, 3, 7] {
            names.add(1, cookie);
        }
        names.add(2, 4);
        assert_eq!((names.cookies(1), names.cookies(2)), (&[3, 7, 9][..], &[4][..]));
        names.remove(1, 7);
        names.remove(2, 4);
        assert_eq!(names.rows().collect::<Vec<_>>(), [(1, &[3, 9][..])]);
    }
}
