//! A sorted map that takes little memory while it has few entries.
//!
//! Nearly all files have few map entries, and a tree node has room for eleven. So the first few
//! entries lie in a list of exact length.

use std::borrow::Borrow;
use std::collections::{BTreeMap, btree_map};
use std::mem::size_of;
use std::ops::{Bound, RangeBounds};
use std::slice;

use crate::furrow::memory::{in_list, in_tree};

/// Entries of a list at most.
const FEW_MAX: usize = 6;

/// A sorted map.
#[derive(Clone, Debug)]
pub(in crate::furrow) struct SmallMap<K, V>(Repr<K, V>);

#[derive(Clone, Debug)]
enum Repr<K, V> {
    Few(Vec<(K, V)>),
    Many(BTreeMap<K, V>),
}

impl<K, V> Default for SmallMap<K, V> {
    fn default() -> Self {
        Self(Repr::Few(Vec::new()))
    }
}

impl<K: Ord, V: PartialEq> PartialEq for SmallMap<K, V> {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl<K: Ord, V: Eq> Eq for SmallMap<K, V> {}

impl<K: Ord, V> SmallMap<K, V> {
    pub(in crate::furrow) fn len(&self) -> usize {
        match &self.0 {
            Repr::Few(list) => list.len(),
            Repr::Many(tree) => tree.len(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of memory, without the allocations of keys and values.
    pub(super) fn held_bytes(&self) -> usize {
        match &self.0 {
            Repr::Few(list) => in_list(list),
            Repr::Many(tree) => tree.len() * in_tree(size_of::<(K, V)>()),
        }
    }

    pub(in crate::furrow) fn get<Q: Ord + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        match &self.0 {
            Repr::Few(list) => place(list, key).ok().map(|at| &list[at].1),
            Repr::Many(tree) => tree.get(key),
        }
    }

    /// The entry of a key, or of the last one before it. In a large tree the key itself is looked
    /// for first: where nearly every key has an entry, one way down is enough, and a range takes
    /// two.
    pub(in crate::furrow) fn at_or_before(&self, key: K) -> Option<(&K, &V)> {
        match &self.0 {
            Repr::Few(_) => self.range(..=key).next_back(),
            Repr::Many(tree) => tree.get_key_value(&key).or_else(|| tree.range(..=key).next_back()),
        }
    }

    pub(in crate::furrow) fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        match &mut self.0 {
            Repr::Few(list) => place(list, key).ok().map(|at| &mut list[at].1),
            Repr::Many(tree) => tree.get_mut(key),
        }
    }

    pub(in crate::furrow) fn contains_key<Q: Ord + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.get(key).is_some()
    }

    pub(super) fn insert(&mut self, key: K, value: V) -> Option<V> {
        match &mut self.0 {
            Repr::Few(list) => match place(list, &key) {
                Ok(at) => return Some(std::mem::replace(&mut list[at].1, value)),
                Err(at) if list.len() < FEW_MAX => {
                    list.reserve_exact(1);
                    list.insert(at, (key, value));
                    return None;
                }
                Err(_) => self.0 = Repr::Many(std::mem::take(list).into_iter().collect()),
            },
            Repr::Many(_) => {}
        }
        let Repr::Many(tree) = &mut self.0 else { unreachable!("it has just become a tree") };
        tree.insert(key, value)
    }

    pub(super) fn remove<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        match &mut self.0 {
            Repr::Few(list) => place(list, key).ok().map(|at| list.remove(at).1),
            Repr::Many(tree) => {
                let found = tree.remove(key);
                // Fewer than a list may have, so that it does not go to and fro.
                if tree.len() <= FEW_MAX / 2 {
                    self.0 = Repr::Few(std::mem::take(tree).into_iter().collect());
                }
                found
            }
        }
    }

    /// Entries with keys in a range, in order.
    pub(in crate::furrow) fn range(&self, range: impl RangeBounds<K>) -> Iter<'_, K, V> {
        match &self.0 {
            Repr::Few(list) => {
                let start = match range.start_bound() {
                    Bound::Included(from) => list.partition_point(|(key, _)| key < from),
                    Bound::Excluded(from) => list.partition_point(|(key, _)| key <= from),
                    Bound::Unbounded => 0,
                };
                let end = match range.end_bound() {
                    Bound::Included(to) => list.partition_point(|(key, _)| key <= to),
                    Bound::Excluded(to) => list.partition_point(|(key, _)| key < to),
                    Bound::Unbounded => list.len(),
                };
                Iter::Few(list[start..end.max(start)].iter())
            }
            Repr::Many(tree) => Iter::Many(tree.range(range)),
        }
    }

    pub(super) fn iter(&self) -> Iter<'_, K, V> {
        self.range(..)
    }

    pub(super) fn values(&self) -> impl DoubleEndedIterator<Item = &V> {
        self.iter().map(|(_, value)| value)
    }
}

/// Where a key is in a list, or belongs.
fn place<K: Borrow<Q>, V, Q: Ord + ?Sized>(list: &[(K, V)], key: &Q) -> Result<usize, usize> {
    list.binary_search_by(|(other, _)| other.borrow().cmp(key))
}

impl<K: Ord, V> From<(K, V)> for SmallMap<K, V> {
    fn from(entry: (K, V)) -> Self {
        Self(Repr::Few(vec![entry]))
    }
}

impl<'a, K: Ord, V> IntoIterator for &'a SmallMap<K, V> {
    type Item = (&'a K, &'a V);
    type IntoIter = Iter<'a, K, V>;

    fn into_iter(self) -> Iter<'a, K, V> {
        self.iter()
    }
}

#[cfg(test)]
thread_local! {
    /// How many entries this thread has walked over: work that tests count.
    pub(super) static WALKED: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// Entries of a part of a map.
pub(in crate::furrow) enum Iter<'a, K, V> {
    Few(slice::Iter<'a, (K, V)>),
    Many(btree_map::Range<'a, K, V>),
}

impl<'a, K, V> Iterator for Iter<'a, K, V> {
    type Item = (&'a K, &'a V);

    fn next(&mut self) -> Option<Self::Item> {
        #[cfg(test)]
        WALKED.set(WALKED.get() + 1);
        match self {
            Self::Few(list) => list.next().map(|(key, value)| (key, value)),
            Self::Many(tree) => tree.next(),
        }
    }
}

impl<K, V> DoubleEndedIterator for Iter<'_, K, V> {
    fn next_back(&mut self) -> Option<Self::Item> {
        #[cfg(test)]
        WALKED.set(WALKED.get() + 1);
        match self {
            Self::Few(list) => list.next_back().map(|(key, value)| (key, value)),
            Self::Many(tree) => tree.next_back(),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn small_map_matches_btree_map(changes in vec((any::<bool>(), 0_u8..20), 0..60), from in 0_u8..20, to in 0_u8..20) {
            let (mut map, mut tree) = (SmallMap::default(), BTreeMap::new());
            for (number, (adds, key)) in changes.into_iter().enumerate() {
                if adds {
                    prop_assert_eq!(map.insert(key, number), tree.insert(key, number));
                } else {
                    prop_assert_eq!(map.remove(&key), tree.remove(&key));
                }
                prop_assert!(map.iter().eq(&tree) && map.iter().rev().eq(tree.iter().rev()));
                prop_assert_eq!(map.get(&key), tree.get(&key));
                prop_assert_eq!(map.get_mut(&from), tree.get_mut(&from));
                prop_assert_eq!(map.len(), tree.len());
                prop_assert_eq!(map.at_or_before(from), tree.range(..=from).next_back());
                if from <= to {
                    prop_assert!(map.range(from..to).eq(tree.range(from..to)));
                    prop_assert!(map.range(from..=to).rev().eq(tree.range(from..=to).rev()));
                }
                prop_assert!(map.range(..from).eq(tree.range(..from)));
                prop_assert!(map.is_empty() || map.held_bytes() >= map.len() * 16);
            }
        }
    }
}
