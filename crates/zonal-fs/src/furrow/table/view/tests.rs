//! Reads against a map in memory: steps in between, a cache of a few leaves, copies that are bad.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use proptest::prelude::*;

use super::super::compaction::Compaction;
use super::super::key::{Key, KeySpan, RowKind};
use super::super::levels::{CompactionKind, Part};
use super::super::part::PartReader;
use super::super::part_store::PartStore;
use super::super::store::DriveStore;
use super::super::tests::model::{MemoryStore, tiny, value};
use super::read::RowWindow;
use super::*;
use crate::furrow::Furrow;
use crate::furrow::MountOptions;
use crate::furrow::Work as FurrowWork;
use crate::furrow::drive::layout::Limits;
use crate::furrow::planted::Planted;
use crate::furrow::sample::formatted;
use crate::furrow::zones::Role;
use crate::vfs::{FileSystem, Result};

/// A view in memory, with the rows that it should have.
struct Fixture {
    store: MemoryStore,
    view: View,
    expected: BTreeMap<Key, Vec<u8>>,
    seed: u64,
}

/// An action between reads.
#[derive(Clone, Debug)]
enum Action {
    /// Rows of an owner, each `step` places from the one before.
    Put {
        owner: u64,
        at: u64,
        count: u64,
        step: u64,
    },
    Delete {
        owner: u64,
        at: u64,
        count: u64,
    },
    EndBatch,
    Freeze,
    /// Writes the frozen memtable as a run.
    Flush,
    Step,
    Rewrite,
    Read {
        from: (u64, u64),
        below: (u64, u64),
        max: usize,
    },
    Row {
        owner: u64,
        at: u64,
    },
    Last {
        at_least: (u64, u64),
        at_most: (u64, u64),
    },
}

fn key(owner: u64, at: u64) -> Key {
    Key::new(RowKind::Map, owner, at)
}

fn actions() -> impl Strategy<Value = Vec<Action>> {
    let owner = 0..12u64;
    let at = 0..400u64;
    let place = || (owner.clone(), at.clone());
    let action = prop_oneof![
        4 => (place(), 1..150u64, 1..4u64)
            .prop_map(|((owner, at), count, step)| Action::Put { owner, at, count, step }),
        2 => (place(), 1..200u64)
            .prop_map(|((owner, at), count)| Action::Delete { owner, at, count }),
        2 => Just(Action::EndBatch),
        2 => Just(Action::Freeze),
        2 => Just(Action::Flush),
        4 => Just(Action::Step),
        1 => Just(Action::Rewrite),
        6 => (place(), place(), prop_oneof![1..5usize, Just(50), Just(10_000)])
            .prop_map(|(from, below, max)| Action::Read { from, below, max }),
        4 => place().prop_map(|(owner, at)| Action::Row { owner, at }),
        6 => (place(), place()).prop_map(|(at_least, at_most)| Action::Last { at_least, at_most }),
    ];
    prop::collection::vec(action, 1..60)
}

impl Fixture {
    fn new(cache_bytes: usize) -> Self {
        let view = View::new([7; 16], Levels::new(), Memtable::default(), cache_bytes);
        Self { store: MemoryStore::default(), view, expected: BTreeMap::new(), seed: 0 }
    }

    fn put(&mut self, rows: impl Iterator<Item = (Key, Option<Vec<u8>>)>) {
        let mut batch = Memtable::default();
        for (key, value) in rows {
            match &value {
                Some(value) => self.expected.insert(key, value.clone()),
                None => self.expected.remove(&key),
            };
            batch.insert(key, value.map(Vec::into_boxed_slice));
        }
        self.view.add_unwritten(batch);
    }

    fn compaction(&self) -> Compaction<'_, MemoryStore> {
        Compaction { store: &self.store, limits: tiny(), planted: Planted::default() }
    }

    fn install(&self, levels: Levels) {
        self.view.install(Arc::new(levels), Frozen::InLevels);
        // The store drops all other parts: a read of one fails.
        self.store.keep(&self.view.levels());
    }

    fn flush(&self) {
        if let Some(frozen) = self.view.frozen() {
            self.install(self.compaction().flush(&self.view.levels(), &frozen).unwrap());
        }
    }

    /// Does the compaction that is due, unless the memtable is being written.
    fn step(&self) -> bool {
        let levels = self.view.levels();
        if self.view.frozen().is_some() {
            return false;
        }
        let next = match levels.due(&tiny()) {
            Some(CompactionKind::Tier(tier)) => self.compaction().merge_tier(&levels, tier),
            Some(CompactionKind::Sweep) => self.compaction().sweep(&levels),
            None => return false,
        };
        self.install(next.unwrap());
        true
    }

    fn rewrite(&self) {
        let levels = self.view.levels();
        let numbers = levels.parts().map(|part| part.summary.number);
        let numbers = numbers.filter(|number| number % 2 == 0).collect();
        if self.view.frozen().is_none() {
            self.install(self.compaction().rewrite(&levels, &numbers).unwrap());
        }
    }

    fn act(&mut self, action: &Action) {
        self.seed += 1 << 32;
        let seed = self.seed;
        match *action {
            Action::Put { owner, at, count, step } => {
                let row = |n| (key(owner, at + n * step), Some(value(seed | n, 40)));
                self.put((0..count).map(row));
            }
            Action::Delete { owner, at, count } => {
                self.put((at..at + count).map(|at| (key(owner, at), None)));
            }
            Action::EndBatch => self.view.end_batch(),
            Action::Freeze if self.view.frozen().is_none() => self.view.freeze(),
            Action::Freeze => {}
            Action::Flush => self.flush(),
            Action::Step => drop(self.step()),
            Action::Rewrite => self.rewrite(),
            Action::Read { from, below, max } => {
                self.check_rows(key(from.0, from.1), key(below.0, below.1), max);
            }
            Action::Row { owner, at } => {
                let found = self.view.row_in(&self.store, key(owner, at)).unwrap();
                let expected = self.expected.get(&key(owner, at));
                assert_eq!(found.as_deref(), expected.map(Vec::as_slice));
            }
            Action::Last { at_least, at_most } => {
                self.check_last(key(at_least.0, at_least.1), key(at_most.0, at_most.1));
            }
        }
    }

    /// Reads a range, `max` rows at a time.
    fn check_rows(&self, from: Key, below: Key, max: usize) {
        let span = KeySpan::new(from, below);
        let mut found = Vec::new();
        let mut next = from;
        while next < below {
            let window = self.view.rows_in(&self.store, span.starting_at(next), max).unwrap();
            assert!(window.rows.len() <= max && window.end > next && window.end <= below);
            assert!(window.rows.iter().all(|&(key, _)| key >= next && key < window.end));
            next = window.end;
            found.extend(window.rows);
        }
        let expected = self.expected.iter().filter(|&(&key, _)| key >= from && key < below);
        let expected: Vec<(Key, Box<[u8]>)> =
            expected.map(|(&key, value)| (key, value.as_slice().into())).collect();
        assert!(found == expected, "{} rows of {}", found.len(), expected.len());
    }

    fn check_last(&self, at_least: Key, at_most: Key) {
        let found = self.view.last_row_in(&self.store, at_least, at_most).unwrap();
        let mut rows = self.expected.iter().filter(|&(&key, _)| key >= at_least && key <= at_most);
        let expected = rows.next_back().map(|(&key, value)| (key, value.as_slice().into()));
        assert_eq!(found, expected, "{at_least:?} to {at_most:?}");
    }
}

fn play(actions: &[Action], cache_bytes: usize) -> Fixture {
    let mut fixture = Fixture::new(cache_bytes);
    for action in actions {
        fixture.act(action);
    }
    fixture.check_rows(Key::MIN, Key::MAX, 100);
    fixture.check_last(Key::MIN, Key::MAX);
    fixture
}

/// Some 4,000 rows in a last level, in runs above it, and in memory, much of it deleted again.
fn layered() -> Fixture {
    let mut fixture = Fixture::new(30_000);
    for round in 0..9u64 {
        for owner in 0..8 {
            let at = round * 37 % 100;
            fixture.act(&Action::Put { owner, at, count: 150, step: 1 + round % 3 });
            fixture.act(&Action::Delete { owner, at: at + 20, count: 50 });
        }
        fixture.act(&Action::EndBatch);
        if round < 8 {
            fixture.act(&Action::Freeze);
            fixture.act(&Action::Flush);
            fixture.act(&Action::Step);
        }
    }
    let levels = fixture.view.levels();
    assert!(!levels.upper.is_empty() && levels.last.len() > 3);
    fixture
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn snapshot_reads_match_map(actions in actions()) {
        // Few leaves, then none that stays.
        play(&actions, 60_000);
        play(&actions, 0);
    }
}

#[test]
fn snapshot_range_and_point_reads_agree() {
    let fixture = layered();
    let all = fixture.view.rows_in(&fixture.store, KeySpan::ALL, usize::MAX).unwrap();
    assert_eq!(all.end, Key::MAX);
    assert_eq!(all.rows.len(), fixture.expected.len());
    for owner in 0..9 {
        for at in 0..500 {
            let key = key(owner, at);
            let row = fixture.view.row_in(&fixture.store, key).unwrap();
            assert_eq!(row.as_deref(), fixture.expected.get(&key).map(Vec::as_slice));
            if at % 7 == 0 {
                fixture.check_last(Key::MIN, key);
                fixture.check_rows(key, Key::MAX, 3_000);
            }
        }
    }
}

#[test]
fn snapshot_empty_range_ends_at_once() {
    let fixture = layered();
    for (from, below) in [(5, 5), (6, 5)] {
        let (from, below) = (key(from, 0), key(below, 0));
        let found = fixture.view.rows_in(&fixture.store, KeySpan::new(from, below), 10).unwrap();
        assert_eq!(found, RowWindow { rows: Vec::new(), end: below });
        let found = fixture.view.last_row_in(&fixture.store, from.successor(), below).unwrap();
        assert_eq!(found, None);
    }
}

#[test]
fn snapshot_one_good_copy_suffices_and_bad_is_noted() {
    let fixture = layered();
    let levels = fixture.view.levels();
    for part in levels.parts() {
        let copy = usize::try_from(part.summary.number % 2).unwrap();
        let zone = part.at[0].zone;
        fixture.store.faults.borrow_mut().extend((0..1000).map(|block| (zone, copy, block)));
    }
    fixture.check_rows(Key::MIN, Key::MAX, 300);
    fixture.check_last(Key::MIN, key(3, 77));
    let expected: BTreeSet<u64> =
        levels.parts().map(|part| part.summary.number).filter(|number| number % 2 == 0).collect();
    let noted = fixture.store.bad.borrow();
    assert!(expected.is_subset(&noted) && !expected.is_empty(), "{noted:?}");
}

#[test]
fn snapshot_lost_leaf_fails_only_its_reads() {
    let fixture = layered();
    let levels = fixture.view.levels();
    let part = &levels.last[levels.last.len() / 2];
    let zone = part.at[0].zone;
    // Leaves and index. The cache holds none of them, or only the ones that compactions read.
    let blocks = (0..1000).flat_map(|block| [(zone, 0, block), (zone, 1, block)]);
    fixture.store.faults.borrow_mut().extend(blocks);
    let (first, last) = (part.summary.first, part.summary.last);
    let read =
        |from, below| fixture.view.rows_in(&fixture.store, KeySpan::new(from, below), 10_000);
    let before = read(Key::MIN, Key::MAX).unwrap();
    assert!(before.end <= first, "it ends where the fault is");
    assert!(!before.rows.is_empty());
    // Newer rows are found where the others are lost.
    let mut from = before.end;
    while let Ok(found) = read(from, Key::MAX) {
        from = found.end;
        assert!(from <= last, "behind the fault at {from:?}");
    }
    fixture.check_rows(Key::MIN, first, 100);
    fixture.check_rows(last.successor(), Key::MAX, 100);
    fixture.check_last(last.successor(), Key::MAX);
}

thread_local! {
    static LAYERED: Fixture = layered();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// Reads return the rows that were written, or an error, whatever the drive returns.
    #[test]
    fn snapshot_damage_is_error_or_other_copy(
        flips in prop::collection::vec(
            (any::<prop::sample::Index>(), 0..3usize, any::<prop::sample::Index>(), 0..8u8),
            1..30,
        ),
        in_one_copy in any::<bool>(),
    ) {
        LAYERED.with(|fixture| {
            let levels = fixture.view.levels();
            let parts: Vec<&Part> = levels.parts().collect();
            let mut bits = BTreeSet::new();
            for (part, copies, at, bit) in &flips {
                let part = part.get(&parts);
                let at = at.index(part.summary.bytes as usize);
                let copies = if in_one_copy { 0..1 } else { *copies..3 };
                bits.extend(copies.map(|copy| (part.at[0].zone, copy % 2, at, *bit)));
            }
            fixture.store.flips.replace(bits);
            let rows = (*levels).clone();
            let view = View::new([7; 16], rows, Memtable::default(), 20_000);
            view.add_unwritten(fixture.view.read_layers().memtable.clone());
            let mut errors = 0;
            let mut note = |is_right: Result<bool>| match is_right {
                Ok(is_right) => assert!(is_right, "wrong rows"),
                Err(_) => errors += 1,
            };
            let expected = &fixture.expected;
            for owner in 0..9 {
                let (from, below) = (key(owner, 0), key(owner + 1, 0));
                let mut next = from;
                while next < below {
                    let found = view.rows_in(&fixture.store, KeySpan::new(next, below), 70);
                    let end = found.as_ref().map_or(below, |found| found.end);
                    note(found.map(|found| {
                        let range = expected.range(next..end);
                        found.rows.iter().map(|(key, value)| (key, &**value))
                            .eq(range.map(|(key, value)| (key, &**value)))
                    }));
                    next = end;
                }
                for at in (0..400).step_by(31) {
                    let key = key(owner, at);
                    let row = view.row_in(&fixture.store, key);
                    note(row.map(|row| row.as_deref() == expected.get(&key).map(Vec::as_slice)));
                    let last = view.last_row_in(&fixture.store, from, key);
                    let before = expected.range(from..=key).next_back();
                    note(last.map(|last| last.map(|(key, _)| key) == before.map(|(key, _)| *key)));
                }
            }
            fixture.store.flips.take();
            assert!(errors == 0 || !in_one_copy, "{errors} errors with one good copy");
        });
    }
}

#[test]
fn snapshot_scan_reads_many_leaves_at_once() {
    let mut fixture = Fixture::new(10 << 20);
    let limits = Limits { part_bytes: 4 << 20, whole_bytes: 4 << 20, ..tiny() };
    let rows = (0..30_000).map(|at| (key(1, at), Some(value(at, 40))));
    let mut memtable = Memtable::default();
    for (key, value) in rows {
        memtable.insert(key, value.map(Vec::into_boxed_slice));
    }
    let compaction = Compaction { store: &fixture.store, limits, planted: Planted::default() };
    let levels = compaction.flush(&Levels::new(), &memtable).unwrap();
    let leaves = {
        let part = &levels.last[0];
        let source = fixture.store.source(part);
        PartReader::open(&part.summary, [7; 16], source).unwrap().leaves() as u64
    };
    fixture.view.install(Arc::new(levels), Frozen::InLevels);
    fixture.expected.extend((0..30_000).map(|at| (key(1, at), value(at, 40))));
    let before = fixture.store.reads.get();
    fixture.check_rows(Key::MIN, Key::MAX, 500);
    let reads = fixture.store.reads.get() - before;
    assert!(leaves > 60 && reads < leaves / 4, "{reads} reads of {leaves} leaves");
    // Here and there: one leaf each.
    let (levels, rows) = ((*fixture.view.levels()).clone(), Memtable::default());
    fixture.view = View::new([7; 16], levels, rows, 10 << 20);
    let before = fixture.store.reads.get();
    for at in [20_000, 3_000, 28_000, 11_000] {
        assert!(fixture.view.row_in(&fixture.store, key(1, at)).unwrap().is_some());
    }
    assert_eq!(fixture.store.reads.get() - before, 5, "with the index");
}

#[test]
fn cache_answers_repeated_reads_within_bound() {
    let mut fixture = layered();
    let bound = 200_000;
    let (levels, memtable) = ((*fixture.view.levels()).clone(), Memtable::default());
    fixture.view = View::new([7; 16], levels, memtable, bound);
    let read = |owner| {
        let range = KeySpan::new(key(owner, 0), key(owner + 1, 0));
        fixture.view.rows_in(&fixture.store, range, 10_000).unwrap();
        fixture.view.cache_counts()
    };
    let first = read(1);
    assert!(first.misses > 0 && first.bytes > 0);
    let again = read(1);
    assert_eq!((again.misses, again.bytes), (first.misses, first.bytes));
    assert_eq!(again.hits, 2 * first.hits + first.misses, "every leaf and index once more");
    for owner in (0..8).cycle().take(24) {
        assert!(read(owner).bytes <= bound as u64);
    }
}

fn mounted() -> Furrow {
    let (drive, clock) = formatted(48, 128);
    Furrow::mount(drive, clock, MountOptions::default()).unwrap()
}

/// Commits rows of an inode that does not exist.
fn commit_rows(fs: &Furrow, generation: u64, count: u64) {
    let mut rows = Memtable::default();
    for at in 0..count {
        let value = value(generation << 32 | at, 200);
        rows.insert(
            key(1 << 40, at),
            Some([&generation.to_le_bytes(), &value[..]].concat().into()),
        );
    }
    fs.tree.view.add_unwritten(rows);
    // A change, so that there is something to commit.
    fs.tree.write_state().mark(RowKind::Totals, 0, 0);
    fs.sync().unwrap();
}

fn generation_of(value: &[u8]) -> u64 {
    u64::from_le_bytes(value[..8].try_into().unwrap())
}

/// A reader takes the levels, then others put new ones in their place.
#[test]
fn snapshot_zones_are_reset_after_last_reader() {
    let fs = mounted();
    (0..6).for_each(|generation| commit_rows(&fs, generation, 2_000));
    let levels = fs.tree.view.levels();
    let part = levels.parts().last().unwrap();
    let is_meta = || part.at.map(|at| fs.tree.read_state().zones.slot(at.zone).role == Role::Meta);
    let mut generation = 6;
    while generation < 40 {
        commit_rows(&fs, generation, 2_000);
        generation += 1;
    }
    assert!(
        !fs.tree.view.levels().parts().any(|other| other.at == part.at),
        "it has been replaced"
    );
    assert_eq!(is_meta(), [true; 2], "but it can still be read");
    let source = DriveStore::new(&fs.drive, fs.tree.uuid).source(part);
    let reader = PartReader::open(&part.summary, fs.tree.uuid, source).unwrap();
    assert!((0..reader.leaves()).all(|leaf| reader.leaf(leaf).is_ok()));
    assert_eq!(reader.bad_copies(), []);
    let zones = part.at;
    let resets = zones.map(|at| fs.tree.read_state().zones.slot(at.zone).resets);
    drop(levels);
    fs.step(FurrowWork::Compact).unwrap();
    let resets_after = zones.map(|at| fs.tree.read_state().zones.slot(at.zone).resets);
    assert!(resets < resets_after, "nobody has it any more");
    assert!(fs.log.lock_committer().table.earlier.is_empty());
}

/// A read during commits and steps sees all rows of one batch, never of two.
#[test]
fn snapshot_range_is_of_one_moment() {
    let fs = mounted();
    let count = 1_500;
    commit_rows(&fs, 1, count);
    let is_done = AtomicBool::new(false);
    let below = key((1 << 40) + 1, 0);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut last = 1;
                while !is_done.load(Ordering::Relaxed) {
                    let found = fs.tree.rows(key(1 << 40, 0), below, usize::MAX).unwrap();
                    assert_eq!((found.rows.len() as u64, found.end), (count, below));
                    let generation = generation_of(&found.rows[0].1);
                    assert!(generation >= last, "older than what was read before");
                    assert!(found.rows.iter().all(|(_, value)| generation_of(value) == generation));
                    last = generation;
                    let row = fs.tree.row(key(1 << 40, count / 2)).unwrap().unwrap();
                    assert!(generation_of(&row) >= last);
                    last = generation_of(&row);
                    let (key_of_last, row) =
                        fs.tree.last_row(key(1 << 40, 0), below).unwrap().unwrap();
                    assert_eq!(key_of_last, key(1 << 40, count - 1));
                    assert!(generation_of(&row) >= last);
                }
            });
        }
        (2..60).for_each(|generation| commit_rows(&fs, generation, count));
        is_done.store(true, Ordering::Relaxed);
    });
}
