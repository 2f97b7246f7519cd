//! The entries of a directory that are in memory, found by the hash of their names.
//!
//! A hash table that grows and shrinks by a bucket at a time (linear hashing, Litwin, 1980): no
//! change of a large directory moves all of its entries. With `n` buckets a hash belongs to the one
//! that its low bits name, of as many bits as `n` has; if there is none of that number yet, one bit
//! less counts.

use crate::furrow::memory::in_list;
use crate::vfs::{FileKind, Ino};

/// Entries of a bucket on average: as many when one is added, and a quarter when one is taken away.
const ENTRIES: usize = 8;

/// An entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::furrow) struct Named {
    pub(in crate::furrow::metadata) hash: u64,
    pub(in crate::furrow) name: Box<[u8]>,
    pub(in crate::furrow) ino: Ino,
    pub(in crate::furrow) cookie: u64,
    pub(in crate::furrow) kind: FileKind,
}

/// Entries by hash.
#[derive(Clone, Debug, Default)]
pub(in crate::furrow) struct Buckets {
    /// The entries of each.
    lists: Vec<Vec<Named>>,
    entries: usize,
    /// Bytes of memory of the buckets, without the names.
    bytes: usize,
}

impl Buckets {
    /// The entry with a name, which has this hash.
    pub(super) fn find(&self, hash: u64, name: &[u8]) -> Option<&Named> {
        self.of_hash(hash).find(|named| named.name[..] == *name)
    }

    /// The entry with a cookie, whose name has this hash.
    pub(super) fn get(&self, hash: u64, cookie: u64) -> Option<&Named> {
        self.of_hash(hash).find(|named| named.cookie == cookie)
    }

    /// How many entries have a hash.
    pub(in crate::furrow::metadata) fn count(&self, hash: u64) -> usize {
        self.of_hash(hash).count()
    }

    /// Their cookies, in order.
    pub(super) fn cookies(&self, hash: u64) -> Vec<u64> {
        let mut cookies: Vec<u64> = self.of_hash(hash).map(|named| named.cookie).collect();
        cookies.sort_unstable();
        cookies
    }

    /// All entries, in no order.
    pub(in crate::furrow::metadata) fn iter(&self) -> impl Iterator<Item = &Named> {
        self.lists.iter().flatten()
    }

    fn of_hash(&self, hash: u64) -> impl Iterator<Item = &Named> {
        let bucket = self.bucket_of(hash).map_or(&[][..], |bucket| &self.lists[bucket]);
        bucket.iter().filter(move |named| named.hash == hash)
    }

    /// Adds an entry; returns how many have its hash now.
    pub(super) fn add(&mut self, named: Named) -> usize {
        if self.entries >= self.lists.len() * ENTRIES {
            self.split();
        }
        let hash = named.hash;
        let bucket = self.bucket_of(hash).expect("there is one now");
        self.change(bucket, |bucket| bucket.push(named));
        self.entries += 1;
        self.count(hash)
    }

    /// Removes an entry; returns how many have the hash now.
    pub(super) fn remove(&mut self, hash: u64, cookie: u64) -> usize {
        let Some(bucket) = self.bucket_of(hash) else { return 0 };
        let is_it = |named: &Named| named.hash == hash && named.cookie == cookie;
        if let Some(at) = self.lists[bucket].iter().position(is_it) {
            self.lists[bucket].swap_remove(at);
            self.entries -= 1;
            if self.entries == 0 {
                *self = Self::default();
            } else if self.lists.len() > 1 && self.entries < self.lists.len() * ENTRIES / 4 {
                self.join();
            }
        }
        self.count(hash)
    }

    /// Bytes of memory, without the names.
    pub(super) fn held_bytes(&self) -> usize {
        self.bytes + in_list(&self.lists)
    }

    /// The bucket that a hash belongs to; `None` if there are none.
    fn bucket_of(&self, hash: u64) -> Option<usize> {
        let count = self.lists.len() as u64;
        if count == 0 {
            return None;
        }
        let mask = count.next_power_of_two() - 1;
        let bucket = if hash & mask < count { hash & mask } else { hash & (mask >> 1) };
        Some(usize::try_from(bucket).expect("one of those there are"))
    }

    /// Adds a bucket, and moves the entries there whose hashes belong to it now.
    fn split(&mut self) {
        let added = self.lists.len();
        self.lists.push(Vec::new());
        if let Some(from) = parent_of(added) {
            for named in self.take(from) {
                let bucket = self.bucket_of(named.hash).expect("there are some");
                self.change(bucket, |bucket| bucket.push(named));
            }
        }
    }

    /// Removes the last bucket, and moves its entries to the one that it was split from.
    fn join(&mut self) {
        let last = self.lists.len() - 1;
        let entries = self.take(last);
        self.lists.pop();
        if let Some(to) = parent_of(last) {
            self.change(to, |bucket| bucket.extend(entries));
        }
        if self.lists.capacity() > 4 * self.lists.len() {
            self.lists.shrink_to(2 * self.lists.len());
        }
    }

    fn take(&mut self, bucket: usize) -> Vec<Named> {
        let mut entries = Vec::new();
        self.change(bucket, |bucket| std::mem::swap(bucket, &mut entries));
        entries
    }

    fn change(&mut self, bucket: usize, change: impl FnOnce(&mut Vec<Named>)) {
        let bucket = &mut self.lists[bucket];
        self.bytes -= in_list(bucket);
        change(bucket);
        self.bytes += in_list(bucket);
    }
}

/// The bucket whose entries a bucket takes over when it is added; `None` for the first.
fn parent_of(bucket: usize) -> Option<usize> {
    Some(bucket - (1 << bucket.checked_ilog2()?))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn named(hash: u64, cookie: u64) -> Named {
        let name = cookie.to_le_bytes().into();
        Named { hash, name, ino: Ino::new(cookie), cookie, kind: FileKind::Regular }
    }

    proptest! {
        #[test]
        fn buckets_match_model_at_any_size(
            steps in prop::collection::vec((any::<bool>(), 0..400_u64, 0..4_u64), 1..3000),
        ) {
            let mut buckets = Buckets::default();
            let mut model: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
            let mut total = 0;
            for (adds, hash, cookie) in steps {
                // Few differ in their lowest bits alone.
                let hash = hash.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
                let same = model.entry(hash).or_default();
                match (adds, same.iter().position(|&other| other == cookie)) {
                    (true, None) => {
                        same.push(cookie);
                        total += 1;
                        prop_assert_eq!(buckets.add(named(hash, cookie)), same.len());
                    }
                    (false, Some(at)) => {
                        same.remove(at);
                        total -= 1;
                        prop_assert_eq!(buckets.remove(hash, cookie), same.len());
                    }
                    (true, Some(_)) => {}
                    (false, None) => prop_assert_eq!(buckets.remove(hash, cookie), same.len()),
                }
                prop_assert_eq!(buckets.iter().count(), total);
            }
            for (hash, mut same) in model {
                same.sort_unstable();
                for cookie in &same {
                    let found = buckets.find(hash, &cookie.to_le_bytes());
                    prop_assert!(found.is_some() && found == buckets.get(hash, *cookie));
                }
                prop_assert_eq!(buckets.cookies(hash), same);
            }
            let held: usize = buckets.lists.iter().map(in_list).sum();
            prop_assert_eq!(buckets.bytes, held);
        }
    }

    #[test]
    fn buckets_entries_with_equal_hash_share_row() {
        let mut buckets = Buckets::default();
        for cookie in [9, 3, 7] {
            buckets.add(named(1, cookie));
        }
        buckets.add(named(2, 4));
        assert_eq!((buckets.cookies(1), buckets.cookies(2)), (vec![3, 7, 9], vec![4]));
        buckets.remove(1, 7);
        buckets.remove(2, 4);
        assert_eq!((buckets.cookies(1), buckets.cookies(2)), (vec![3, 9], vec![]));
        assert!(buckets.iter().all(|named| named.hash == 1));
    }

    #[test]
    fn buckets_shrink_when_emptied() {
        let mut buckets = Buckets::default();
        let hash = |number: u64| number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 7;
        for number in 0..100_000 {
            buckets.add(named(hash(number), number));
        }
        assert!(buckets.held_bytes() < 100_000 * 120, "{}", buckets.held_bytes());
        let longest = buckets.lists.iter().map(Vec::len).max();
        assert!(longest < Some(64), "{longest:?}");
        for number in 0..100_000 {
            assert_eq!(buckets.remove(hash(number), number), 0);
        }
        assert!(buckets.held_bytes() < 4096, "{}", buckets.held_bytes());
    }
}
