//! The table against a map in memory, and how much its policy writes.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use proptest::prelude::*;
use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use zonal::{DeviceError, Lba};

use super::super::compaction::{Compaction, Merged};
use super::super::key::{Key, KeySpan, RowKind};
use super::super::levels::{CompactionKind, Levels, Part};
use super::super::memtable::Memtable;
use super::super::merge::Cursor;
use super::super::part::unread;
use super::super::part::{PartReader, PartSource};
use super::super::part_store::PartStore;
use crate::furrow::drive::layout::Limits;
use crate::furrow::format::{Address, BLOCK_BYTES};
use crate::furrow::planted::Planted;
use crate::vfs::Result;

/// Parts in memory, by their number: a zone each.
#[derive(Default)]
pub(in super::super) struct MemoryStore {
    parts: RefCell<BTreeMap<u32, Rc<[u8]>>>,
    next: Cell<u64>,
    bytes: Cell<u64>,
    /// Zone, copy and block that cannot be read.
    pub(in super::super) faults: RefCell<BTreeSet<(u32, usize, usize)>>,
    /// Zone, copy, byte and bit that reads return inverted.
    pub(in super::super) flips: RefCell<BTreeSet<(u32, usize, usize, u8)>>,
    pub(in super::super) bad: RefCell<BTreeSet<u64>>,
    pub(in super::super) reads: Rc<Cell<u64>>,
}

pub(in super::super) struct MemorySource {
    bytes: Rc<[u8]>,
    /// Copy and block.
    faults: BTreeSet<(usize, usize)>,
    /// Copy, byte and bit.
    flips: BTreeSet<(usize, usize, u8)>,
    reads: Rc<Cell<u64>>,
}

impl PartSource for MemorySource {
    fn read(
        &self,
        copy: usize,
        offset: u64,
        buffer: &mut [u8],
    ) -> std::result::Result<(), DeviceError> {
        self.reads.set(self.reads.get() + 1);
        let offset = usize::try_from(offset).unwrap();
        let end = offset + buffer.len();
        let blocks = (copy, offset / BLOCK_BYTES)..(copy, end / BLOCK_BYTES);
        if let Some(&(_, block)) = self.faults.range(blocks).next() {
            let lba = Lba::new(block as u64);
            return Err(DeviceError::Medium { lba });
        }
        buffer.copy_from_slice(&self.bytes[offset..end]);
        for &(_, byte, bit) in self.flips.range((copy, offset, 0)..(copy, end, 0)) {
            buffer[byte - offset] ^= 1 << bit;
        }
        Ok(())
    }
}

impl PartStore for MemoryStore {
    type Source = MemorySource;

    fn source(&self, part: &Part) -> MemorySource {
        let zone = part.at[0].zone;
        let faults = self.faults.borrow();
        let faults = faults.range((zone, 0, 0)..(zone + 1, 0, 0));
        let faults = faults.map(|&(_, copy, block)| (copy, block)).collect();
        let flips = self.flips.borrow();
        let flips = flips.range((zone, 0, 0, 0)..(zone + 1, 0, 0, 0));
        let flips = flips.map(|&(_, copy, byte, bit)| (copy, byte, bit)).collect();
        let bytes = Rc::clone(&self.parts.borrow()[&zone]);
        MemorySource { bytes, faults, flips, reads: Rc::clone(&self.reads) }
    }

    fn uuid(&self) -> [u8; 16] {
        [7; 16]
    }

    fn next_number(&self) -> u64 {
        self.next.set(self.next.get() + 1);
        self.next.get()
    }

    fn write(&self, bytes: &[u8]) -> Result<[Address; 2]> {
        self.bytes.set(self.bytes.get() + bytes.len() as u64);
        let mut parts = self.parts.borrow_mut();
        let zone = parts.last_key_value().map_or(1, |(zone, _)| zone + 1);
        parts.insert(zone, bytes.into());
        Ok([Address { zone, block: 0 }; 2])
    }

    fn note_bad(&self, part: &Part) {
        self.bad.borrow_mut().insert(part.summary.number);
    }
}

impl MemoryStore {
    /// Drops parts that the levels do not have: reading one is a mistake.
    pub(in super::super) fn keep(&self, levels: &Levels) {
        let live: BTreeSet<u32> = levels.parts().map(|part| part.at[0].zone).collect();
        self.parts.borrow_mut().retain(|zone, _| live.contains(zone));
    }
}

/// A table in memory, with the rows that it should have.
struct Fixture {
    store: MemoryStore,
    limits: Limits,
    levels: Levels,
    memtable: Memtable,
    expected: BTreeMap<Key, Vec<u8>>,
    seen: BTreeSet<&'static str>,
}

impl Fixture {
    fn new(limits: Limits) -> Self {
        Self {
            store: MemoryStore::default(),
            limits,
            levels: Levels::new(),
            memtable: Memtable::default(),
            expected: BTreeMap::new(),
            seen: BTreeSet::new(),
        }
    }

    fn compaction(&self) -> Compaction<'_, MemoryStore> {
        Compaction { store: &self.store, limits: self.limits, planted: Planted::default() }
    }

    fn put(&mut self, key: Key, value: Option<Vec<u8>>) {
        match &value {
            Some(value) => self.expected.insert(key, value.clone()),
            None => self.expected.remove(&key),
        };
        self.memtable.insert(key, value.map(Vec::into_boxed_slice));
    }

    fn flush(&mut self) {
        self.levels = self.compaction().flush(&self.levels, &self.memtable).unwrap();
        self.memtable = Memtable::default();
        self.settle(if self.levels.upper.is_empty() { "whole" } else { "flush" });
    }

    /// Does the compaction that is due, if one is.
    fn step(&mut self) -> bool {
        let Some(work) = self.levels.due(&self.limits) else { return false };
        let (next, name) = match work {
            CompactionKind::Tier(tier) => {
                let name = if tier == 0 { "merge" } else { "merge again" };
                (self.compaction().merge_tier(&self.levels, tier), name)
            }
            CompactionKind::Sweep => (self.compaction().sweep(&self.levels), "sweep"),
        };
        let next = next.unwrap();
        if name == "sweep" && next.sweep.turn == self.levels.sweep.turn {
            self.seen.insert("sweep in the middle");
        }
        if name == "sweep" && next.upper.len() < self.levels.upper.len() {
            self.seen.insert("a run that has been swept");
        }
        self.levels = next;
        self.settle(name);
        true
    }

    fn rewrite(&mut self, one_in: u64) {
        let numbers = self.levels.parts().map(|part| part.summary.number);
        let numbers: BTreeSet<u64> = numbers.filter(|number| number % one_in == 0).collect();
        self.levels = self.compaction().rewrite(&self.levels, &numbers).unwrap();
        self.settle("rewrite");
    }

    fn settle(&mut self, name: &'static str) {
        self.seen.insert(name);
        self.store.keep(&self.levels);
        // As a mount finds them.
        let manifest = self.levels.to_manifest();
        assert_eq!(Levels::from_manifest(&manifest).as_ref(), Ok(&self.levels));
    }

    fn check(&self) {
        let mut found = Vec::new();
        let mut each = |merged: Merged<'_>| {
            match merged {
                Merged::Row(key, Some(value)) => found.push((key, value.to_vec())),
                Merged::Row(_, None) => {}
                Merged::Lost(first, last) => panic!("{first:?} to {last:?} is lost"),
            }
            Ok(())
        };
        self.compaction().scan(&self.levels, &[&self.memtable], KeySpan::ALL, &mut each).unwrap();
        let expected: Vec<(Key, Vec<u8>)> =
            self.expected.iter().map(|(&key, value)| (key, value.clone())).collect();
        assert!(found == expected, "a scan finds {} rows of {}", found.len(), expected.len());
        for part in &self.levels.last {
            assert_eq!(part.summary.tombstones, 0, "none gets below");
        }
    }

    /// The row of a key, as a reader finds it: in the newest run that has it.
    fn get(&self, key: Key) -> Option<Vec<u8>> {
        if let Some((found, value)) = self.memtable.range_from(key).next()
            && *found == key
        {
            return value.as_ref().map(|value| value.to_vec());
        }
        let counts = |run: &&super::super::levels::Run| {
            self.levels.spans_since(run.born).any(|span: KeySpan| span.contains(key))
        };
        let runs = self.levels.upper.iter().filter(counts).map(|run| &run.parts);
        for parts in runs.chain([&self.levels.last]) {
            let at = parts.partition_point(|part| part.summary.last < key);
            let Some(part) = parts.get(at) else { continue };
            let reader = PartReader::open(&part.summary, [7; 16], self.store.source(part));
            let cursor = reader.and_then(|reader| reader.cursor_from(key));
            let cursor = cursor.map_err(unread).unwrap();
            if let Some((found, value)) = cursor.peek()
                && found == key
            {
                return value.map(<[u8]>::to_vec);
            }
        }
        None
    }
}

#[derive(Clone, Debug)]
enum Action {
    Put { owner: u64, at: u64, len: usize },
    Delete { owner: u64, at: u64 },
    PutMany { owner: u64, count: u64 },
    DeleteMany { owner: u64, count: u64 },
    Flush,
    Step,
    Rewrite,
}

fn actions() -> impl Strategy<Value = Vec<Action>> {
    let (owner, at) = (0..24u64, 0..6u64);
    let action = prop_oneof![
        6 => (owner.clone(), at.clone(), 0..300usize)
            .prop_map(|(owner, at, len)| Action::Put { owner, at, len }),
        3 => (owner.clone(), at).prop_map(|(owner, at)| Action::Delete { owner, at }),
        3 => (owner.clone(), 1..200u64).prop_map(|(owner, count)| Action::PutMany { owner, count }),
        1 => (owner, 1..200u64).prop_map(|(owner, count)| Action::DeleteMany { owner, count }),
        6 => Just(Action::Flush),
        5 => Just(Action::Step),
        1 => Just(Action::Rewrite),
    ];
    prop::collection::vec(action, 1..80)
}

/// Values that do not compress, so that a few hundred rows are several parts.
pub(in super::super) fn value(seed: u64, len: usize) -> Vec<u8> {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    (0..len).map(|_| random.random()).collect()
}

pub(in super::super) fn tiny() -> Limits {
    Limits { part_bytes: 12 << 10, whole_bytes: 12 << 10, tier_runs: 3, share: 2, runs_max: 5 }
}

fn play(actions: &[Action]) -> Fixture {
    let mut fixture = Fixture::new(tiny());
    for (seed, action) in (0..).zip(actions) {
        let key = |owner, at| Key::new(RowKind::Map, owner, at);
        match *action {
            Action::Put { owner, at, len } => fixture.put(key(owner, at), Some(value(seed, len))),
            Action::Delete { owner, at } => fixture.put(key(owner, at), None),
            Action::PutMany { owner, count } => {
                for at in 0..count {
                    fixture.put(key(owner, at), Some(value(seed << 32 | at, 60)));
                }
            }
            Action::DeleteMany { owner, count } => {
                (0..count).for_each(|at| fixture.put(key(owner, at), None));
            }
            Action::Flush => fixture.flush(),
            Action::Step => drop(fixture.step()),
            Action::Rewrite => fixture.rewrite(2),
        }
        if !matches!(action, Action::Put { .. } | Action::Delete { .. }) {
            fixture.check();
        }
    }
    while fixture.step() {
        fixture.check();
    }
    for owner in 0..24 {
        for at in [0, 1, 5, 60, 150] {
            let key = Key::new(RowKind::Map, owner, at);
            assert_eq!(fixture.get(key), fixture.expected.get(&key).cloned(), "{key:?}");
        }
    }
    fixture
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]

    #[test]
    fn table_equals_map_after_every_step(actions in actions()) {
        play(&actions);
    }
}

#[test]
fn table_policy_exercises_every_rule() {
    let mut random = ChaCha8Rng::seed_from_u64(3);
    let mut fixture = Fixture::new(Limits { share: 1, ..tiny() });
    for round in 0..300 {
        for _ in 0..40 {
            let key =
                Key::new(RowKind::Map, random.random_range(0..24), random.random_range(0..100));
            let is_delete = random.random_range(0..4) == 0;
            fixture.put(key, (!is_delete).then(|| value(random.random(), 60)));
        }
        fixture.flush();
        // Now behind, now on time.
        if round % 40 < 30 {
            fixture.step();
        } else {
            while fixture.step() {}
        }
        if round % 10 == 0 {
            fixture.rewrite(3);
            fixture.check();
        }
        for owner in 0..24 {
            let key = Key::new(RowKind::Map, owner, round % 100);
            assert_eq!(fixture.get(key), fixture.expected.get(&key).cloned(), "{key:?}");
        }
    }
    let all = [
        "whole",
        "flush",
        "merge",
        "merge again",
        "sweep",
        "sweep in the middle",
        "a run that has been swept",
        "rewrite",
    ];
    for name in all {
        assert!(fixture.seen.contains(name), "{name} was not seen: {:?}", fixture.seen);
    }
}

/// Uniform random overwrites of map rows: bytes written per row, both copies together. A row of
/// about 9 bytes is written once in each of two tiers. At a share f of a quarter, a simulation of
/// the policy says that the sweep writes 8 / (2 f) = 16 bytes more: 34 bytes, twice. The peak of
/// space is the last level, upper runs with a quarter as many rows, which take more bytes each, and
/// the ends of small runs.
#[test]
#[expect(clippy::cast_precision_loss, reason = "figures for people")]
fn table_random_overwrites_write_each_row_few_times() {
    const ROWS: u64 = 60_000;
    let limits = Limits {
        part_bytes: 64 << 10,
        whole_bytes: 64 << 10,
        tier_runs: 8,
        share: 4,
        runs_max: 16,
    };
    let mut fixture = Fixture::new(limits);
    let mut random = ChaCha8Rng::seed_from_u64(1);
    let row = |random: &mut ChaCha8Rng| {
        let (zone, block): (u32, u32) =
            (random.random_range(0..256), random.random_range(0..65_536));
        let crc: u32 = random.random();
        let fields = [zone, block, 1, crc];
        fields.iter().flat_map(|field| field.to_le_bytes()).collect::<Vec<u8>>()
    };
    for at in 0..ROWS {
        let value = row(&mut random);
        fixture.put(Key::new(RowKind::Map, at / 1000, at % 1000), Some(value));
    }
    fixture.flush();
    while fixture.step() {}
    let bytes_before = fixture.store.bytes.get();
    let mut peak = 0;
    for turn in 0..100 {
        // A memtable is a fiftieth of the table.
        for _ in 0..ROWS / 50 {
            let at = random.random_range(0..ROWS);
            let value = row(&mut random);
            fixture.put(Key::new(RowKind::Map, at / 1000, at % 1000), Some(value));
        }
        fixture.flush();
        while fixture.step() {}
        peak = peak.max(fixture.levels.bytes());
        if turn % 20 == 0 {
            fixture.check();
        }
    }
    assert_eq!(fixture.levels.rows_last(), ROWS);
    let written = (fixture.store.bytes.get() - bytes_before) as f64;
    let per_row = 2.0 * written / (2 * ROWS) as f64;
    let last: u64 = fixture.levels.last.iter().map(|part| u64::from(part.summary.bytes)).sum();
    let space = peak as f64 / last as f64;
    println!(
        "{per_row:.1} B a row in two copies, {:.1} B a row in the last level, space {space:.2}",
        last as f64 / ROWS as f64
    );
    assert!(per_row <= 2.0 * (16.0 + 2.0 * 9.0), "{per_row} B a row");
    assert!(space <= 1.7, "{space} times the last level");
}
