//! Lost ranges: ranges of keys that no copy of a part gives, on their way through a merge.
//!
//! Where a leaf is bad in both copies, a merge writes the range of its keys into the new part in
//! place of the rows. For a key in such a range only newer runs have a valid row; a row of an older
//! run may be outdated, so the merge drops it. A tombstone in a lost range stays even in the last
//! level: it says that the row is deleted, not lost.

use std::cell::RefCell;

use super::key::Key;
use super::part::KeyRange;

/// A span of rows that a mount has rebuilt: a lost range in it is no loss any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::furrow) struct Remade {
    /// The first key of the span.
    pub(in crate::furrow) from: Key,
    /// The key behind its last one.
    pub(in crate::furrow) below: Key,
    /// Only parts with lower numbers have lost rows; later parts have the rebuilt ones.
    pub(in crate::furrow) parts_below: u64,
}

impl Remade {
    /// The rest of a lost range of a part that was not rebuilt.
    pub(super) fn rest(&self, part: u64, (first, last): KeyRange) -> Option<KeyRange> {
        if part >= self.parts_below || first < self.from || first >= self.below {
            return Some((first, last));
        }
        (last >= self.below).then_some((self.below, last))
    }
}

/// A lost range that a cursor of a merge has reported.
#[derive(Clone, Copy, Debug)]
struct Lost {
    range: KeyRange,
    /// Number of the cursor: a higher one has older rows.
    age: usize,
    is_taken: bool,
}

/// The lost ranges that the cursors of a merge have reported. A cursor adds a range before it
/// passes it.
#[derive(Debug, Default)]
pub(super) struct LostRanges(RefCell<Vec<Lost>>);

impl LostRanges {
    pub(super) fn add(&self, range: KeyRange, age: usize) {
        self.0.borrow_mut().push(Lost { range, age, is_taken: false });
    }

    /// Whether a row of a cursor of this age may be outdated: a newer cursor has lost its key.
    pub(super) fn hide(&self, key: Key, age: usize) -> bool {
        let lost = self.0.borrow();
        lost.iter().any(|lost| lost.age < age && lost.range.0 <= key && key <= lost.range.1)
    }

    /// Whether any cursor has lost a key.
    pub(super) fn cover(&self, key: Key) -> bool {
        self.0.borrow().iter().any(|lost| lost.range.0 <= key && key <= lost.range.1)
    }

    /// The first key of the ranges that the merge has not taken yet.
    pub(super) fn next(&self) -> Option<Key> {
        let lost = self.0.borrow();
        lost.iter().filter(|lost| !lost.is_taken).map(|lost| lost.range.0).min()
    }

    /// Takes the ranges that begin at or below `key`, at which the merge is, in order.
    pub(super) fn take_up_to(&self, key: Key) -> Vec<KeyRange> {
        let mut lost = self.0.borrow_mut();
        if lost.is_empty() {
            return Vec::new();
        }
        lost.retain(|lost| !lost.is_taken || lost.range.1 >= key);
        let due = lost.iter_mut().filter(|lost| !lost.is_taken && lost.range.0 <= key);
        let mut taken: Vec<KeyRange> = due
            .map(|lost| {
                lost.is_taken = true;
                lost.range
            })
            .collect();
        taken.sort_unstable();
        taken
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use proptest::prelude::*;

    use super::super::compaction::{Compaction, Merged};
    use super::super::key::{KeySpan, RowKind};
    use super::super::levels::{CompactionKind, Levels};
    use super::super::memtable::Memtable;
    use super::super::part::{PartReader, PartSource};
    use super::super::part_store::PartStore;
    use super::super::tests::model::{MemoryStore, tiny, value};
    use super::super::view::View;
    use super::*;
    use crate::furrow::drive::layout::Limits;
    use crate::furrow::planted::Planted;

    fn key(owner: u64) -> Key {
        Key::new(RowKind::Inode, owner, 0)
    }

    fn map(at: u64) -> Key {
        Key::new(RowKind::Map, 7, at)
    }

    /// A table in memory that loses leaves.
    #[derive(Default)]
    struct Fixture {
        store: MemoryStore,
        levels: Option<Levels>,
        memtable: Memtable,
        expected: BTreeMap<Key, Vec<u8>>,
        /// Rows, deleted ones too, that came after everything that was lost.
        sure: BTreeSet<Key>,
        lost: Vec<KeyRange>,
    }

    #[derive(Clone, Debug)]
    enum Action {
        Put { at: u64, count: u64, step: u64 },
        Delete { at: u64, count: u64 },
        Flush,
        Step,
        Rewrite,
        Lose { part: prop::sample::Index, leaf: prop::sample::Index },
        LoseIndex { part: prop::sample::Index },
    }

    fn actions() -> impl Strategy<Value = Vec<Action>> {
        let part = any::<prop::sample::Index>;
        let action = prop_oneof![
            4 => (0..900u64, 1..200u64, 1..4u64)
                .prop_map(|(at, count, step)| Action::Put { at, count, step }),
            2 => (0..900u64, 1..60u64).prop_map(|(at, count)| Action::Delete { at, count }),
            5 => Just(Action::Flush),
            5 => Just(Action::Step),
            1 => Just(Action::Rewrite),
            2 => (part(), part()).prop_map(|(part, leaf)| Action::Lose { part, leaf }),
            1 => part().prop_map(|part| Action::LoseIndex { part }),
        ];
        prop::collection::vec(action, 1..60)
    }

    impl Fixture {
        fn limits() -> Limits {
            Limits { part_bytes: 48 << 10, ..tiny() }
        }

        fn levels(&self) -> Levels {
            self.levels.clone().unwrap_or_else(Levels::new)
        }

        fn compaction(&self) -> Compaction<'_, MemoryStore> {
            let (limits, planted) = (Self::limits(), Planted::default());
            Compaction { store: &self.store, limits, planted }
        }

        fn put(&mut self, at: u64, value: Option<Vec<u8>>) {
            match &value {
                Some(value) => self.expected.insert(map(at), value.clone()),
                None => self.expected.remove(&map(at)),
            };
            self.sure.insert(map(at));
            self.memtable.insert(map(at), value.map(Vec::into_boxed_slice));
        }

        /// Damages a part in both copies, and notes the range of its lost rows.
        fn lose(&mut self, part: prop::sample::Index, leaf: Option<prop::sample::Index>) {
            let levels = self.levels();
            let parts: Vec<_> = levels.parts().cloned().collect();
            if parts.is_empty() {
                return;
            }
            let (summary, at) = (part.get(&parts).summary, part.get(&parts).at);
            let source = self.store.source(part.get(&parts));
            let Ok(reader) = PartReader::open(&summary, [7; 16], &source as &dyn PartSource) else {
                return;
            };
            let (range, byte) = match leaf {
                Some(_) if reader.leaves() == 0 => return,
                Some(leaf) => {
                    let leaf = leaf.index(reader.leaves());
                    let index = reader.index();
                    ((index.first_of(leaf), index.last_of(leaf)), index.place_of(leaf).0)
                }
                None => ((summary.first, summary.last), summary.index_at),
            };
            let flips = [0, 1].map(|copy| (at[0].zone, copy, byte as usize + 5, 3));
            self.store.flips.borrow_mut().extend(flips);
            self.sure.retain(|key| self.memtable.get(*key).is_some());
            self.lost.push(range);
        }

        fn step(&mut self) -> bool {
            let levels = self.levels();
            let Some(work) = levels.due(&Self::limits()) else { return false };
            let next = match work {
                CompactionKind::Tier(tier) => self.compaction().merge_tier(&levels, tier),
                CompactionKind::Sweep => self.compaction().sweep(&levels),
            };
            self.settle(next.expect("nothing that is lost stops a step"));
            true
        }

        fn settle(&mut self, levels: Levels) {
            self.store.keep(&levels);
            // As a mount finds them.
            assert_eq!(Levels::from_manifest(&levels.to_manifest()).as_ref(), Ok(&levels));
            self.levels = Some(levels);
        }

        fn play(&mut self, seed: u64, action: &Action) {
            match *action {
                Action::Put { at, count, step } => {
                    for number in 0..count {
                        self.put(at + number * step, Some(value(seed << 32 | number, 90)));
                    }
                }
                Action::Delete { at, count } => {
                    (at..at + count).for_each(|at| self.put(at, None));
                }
                Action::Flush => {
                    let next = self.compaction().flush(&self.levels(), &self.memtable).unwrap();
                    self.memtable = Memtable::default();
                    self.settle(next);
                }
                Action::Step => drop(self.step()),
                Action::Rewrite => {
                    let levels = self.levels();
                    let numbers = levels.parts().map(|part| part.summary.number).collect();
                    let next = self.compaction().rewrite(&levels, &numbers).unwrap();
                    self.settle(next);
                }
                Action::Lose { part, leaf } => self.lose(part, Some(leaf)),
                Action::LoseIndex { part } => self.lose(part, None),
            }
        }

        /// A scan finds rows as they were written last, and all that are not told to be lost.
        fn check_scan(&self) -> Vec<KeyRange> {
            let (mut found, mut told) = (BTreeMap::new(), Vec::new());
            let mut each = |merged: Merged<'_>| {
                match merged {
                    Merged::Row(key, Some(value)) => drop(found.insert(key, value.to_vec())),
                    Merged::Row(_, None) => {}
                    Merged::Lost(first, last) => told.push((first, last)),
                }
                Ok(())
            };
            self.compaction()
                .scan(&self.levels(), &[&self.memtable], KeySpan::ALL, &mut each)
                .unwrap();
            for (key, value) in &found {
                assert_eq!(Some(value), self.expected.get(key), "{key:?} is outdated");
            }
            for key in self.expected.keys().filter(|key| !found.contains_key(key)) {
                let is_told = told.iter().any(|(first, last)| first <= key && key <= last);
                assert!(is_told && !self.sure.contains(key), "{key:?} is not there");
            }
            for (first, last) in &told {
                let is_in =
                    |key: &Key| self.lost.iter().any(|lost| lost.0 <= *key && *key <= lost.1);
                assert!(is_in(first) && is_in(last), "{first:?} to {last:?} was never lost");
            }
            told
        }

        /// Readers find the same, row by row and in ranges.
        fn check_reads(&self, told: &[KeyRange]) {
            let view = View::new([7; 16], self.levels(), self.memtable.clone(), 8 << 10);
            let is_told = |key| told.iter().any(|(first, last)| *first <= key && key <= *last);
            for at in (0..1500).step_by(7) {
                let key = map(at);
                match view.row_in(&self.store, key) {
                    Ok(value) => {
                        assert_eq!(value.as_deref(), self.expected.get(&key).map(|v| &v[..]));
                    }
                    Err(_) => assert!(is_told(key) && !self.sure.contains(&key), "{key:?}"),
                }
                match view.rows_in(&self.store, KeySpan::new(key, map(1500)), 20) {
                    Err(_) => assert!(is_told(key) && !self.sure.contains(&key), "from {key:?}"),
                    Ok(found) => {
                        assert!(found.end > key);
                        let wanted = self.expected.range(key..found.end);
                        let wanted: Vec<_> = wanted.map(|(&key, v)| (key, v[..].into())).collect();
                        assert_eq!(found.rows, wanted, "from {key:?}");
                    }
                }
                if let Ok(last) = view.last_row_in(&self.store, map(0), key) {
                    let wanted = self.expected.range(map(0)..=key).next_back();
                    assert_eq!(last, wanted.map(|(&key, v)| (key, v[..].into())), "up to {key:?}");
                }
            }
        }
    }

    /// Ranges that overlap as one.
    fn joined(mut ranges: Vec<KeyRange>) -> Vec<KeyRange> {
        ranges.dedup_by(|next, last| {
            let is_one = next.0 <= last.1;
            if is_one {
                last.1 = last.1.max(next.1);
            }
            is_one
        });
        ranges
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]

        #[test]
        fn lost_rows_stop_no_step_and_hide_nothing_else(actions in actions()) {
            let mut fixture = Fixture::default();
            for (seed, action) in (0..).zip(&actions) {
                fixture.play(seed, action);
                if !matches!(action, Action::Put { .. } | Action::Delete { .. }) {
                    fixture.check_scan();
                }
            }
            fixture.play(0, &Action::Flush);
            let mut steps = 0;
            while fixture.step() {
                steps += 1;
                assert!(steps < 1000, "steps come to an end");
            }
            let told = fixture.check_scan();
            fixture.check_reads(&told);
            // After a rewrite all parts are whole, and they record the lost ranges.
            fixture.play(0, &Action::Rewrite);
            prop_assert_eq!(joined(fixture.check_scan()), joined(told));
            for part in fixture.levels().parts() {
                let source = fixture.store.source(part);
                let reader = PartReader::open(&part.summary, [7; 16], source).unwrap();
                let is_whole = (0..reader.leaves()).all(|leaf| reader.leaf(leaf).is_ok());
                prop_assert!(is_whole, "part {}", part.summary.number);
            }
        }
    }

    #[test]
    fn rebuilt_rows_are_not_missed_in_older_parts() {
        let remade = Remade { from: Key::MIN, below: key(2), parts_below: 9 };
        assert_eq!(remade.rest(8, (Key::MIN, key(1))), None);
        assert_eq!(remade.rest(8, (key(1), key(5))), Some((key(2), key(5))));
        assert_eq!(remade.rest(8, (key(3), key(5))), Some((key(3), key(5))));
        assert_eq!(remade.rest(9, (key(1), key(1))), Some((key(1), key(1))));
    }

    #[test]
    fn lost_range_hides_older_rows_and_is_taken_once() {
        let lost = LostRanges::default();
        lost.add((key(5), key(9)), 1);
        lost.add((key(3), key(4)), 2);
        assert_eq!(lost.next(), Some(key(3)));
        assert!(lost.hide(key(5), 2) && !lost.hide(key(5), 1) && !lost.hide(key(5), 0));
        assert_eq!(lost.take_up_to(key(2)), []);
        assert_eq!(lost.take_up_to(key(6)), [(key(3), key(4)), (key(5), key(9))]);
        assert_eq!((lost.take_up_to(key(7)), lost.next()), (Vec::new(), None));
        assert!(lost.cover(key(9)) && !lost.cover(key(10)));
    }
}
