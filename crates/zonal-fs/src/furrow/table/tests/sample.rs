//! Rows for tests: as in real loads, and at random.

use std::collections::BTreeMap;

use proptest::collection::{btree_map, vec};
use proptest::option::weighted;
use proptest::prelude::*;
use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;

use super::super::key::{Key, RowKind};
use super::super::leaf::LeafBuilder;

/// Rows as a table has them: a deleted one has no value.
pub(in super::super) type Rows = BTreeMap<Key, Option<Vec<u8>>>;

/// The rows as builders and cursors take them.
pub(in super::super) fn borrowed(rows: &Rows) -> impl Iterator<Item = (Key, Option<&[u8]>)> {
    rows.iter().map(|(&key, value)| (key, value.as_deref()))
}

/// A leaf of the rows.
pub(in super::super) fn leaf_of(rows: &Rows) -> Vec<u8> {
    let mut builder = LeafBuilder::new();
    borrowed(rows).for_each(|(key, value)| builder.push(key, value));
    builder.finish()
}

/// Which blocks of a file the map rows are of, and where they lie.
#[derive(Clone, Copy)]
pub(in super::super) enum Maps {
    /// Each block, wherever the last random overwrite put it.
    Scattered,
    /// One block of 16, likewise: an upper run.
    OneOf16,
    /// Each block, written in order.
    Sequential,
}

/// Map rows of one block each, with a random CRC: zone, block, blocks, CRC.
pub(in super::super) fn map_rows(count: u64, maps: Maps) -> Rows {
    let mut rng = ChaCha8Rng::seed_from_u64(7);
    let mut first = 0;
    let row = |index: u64| {
        let (step, place) = match maps {
            Maps::Scattered => (1, rng.random_range(0..4096 << 16)),
            Maps::OneOf16 => (rng.random_range(1..32), rng.random_range(0..4096 << 16)),
            Maps::Sequential => (1, (40 << 16) + index),
        };
        first += step;
        let place = u32::try_from(place).unwrap();
        let words = [place >> 16, place & 0xffff, 1, rng.random()];
        let value = words.into_iter().flat_map(u32::to_le_bytes).collect();
        (Key::new(RowKind::Map, 300, first), Some(value))
    };
    (0..count).map(row).collect()
}

/// Rows of `count` new files of one block in one directory: inode, map row and entry of each. They
/// were made one after the other, a few hundred microseconds apart.
pub(in super::super) fn file_rows(count: u64) -> Rows {
    let mut rng = ChaCha8Rng::seed_from_u64(8);
    let mut rows = Rows::new();
    let mut ns = 1_790_000_000_123_456_789u64;
    for (index, ino) in (0..count).zip(1000..) {
        ns += rng.random_range(200_000..600_000);
        let written = ns + rng.random_range(20_000..90_000);
        let size = rng.random_range(200u64..4096);
        let (seconds, nanos) = (|ns: u64| ns / 1_000_000_000, |ns: u64| ns % 1_000_000_000);
        let mut inode = Vec::with_capacity(104);
        for long in [size, seconds(ns), seconds(written), seconds(written), seconds(ns), 0, 0, 1] {
            inode.extend(long.to_le_bytes());
        }
        inode.extend([1u32, 1000, 1000, 0].into_iter().flat_map(u32::to_le_bytes));
        inode.extend([0o644u16.to_le_bytes(), [1, 0]].concat());
        for ns in [ns, written, written, ns] {
            inode.extend(u32::try_from(nanos(ns)).unwrap().to_le_bytes());
        }
        inode.extend([0; 4]);
        rows.insert(Key::new(RowKind::Inode, ino, 0), Some(inode));
        let words = [40, u32::try_from(index).unwrap(), 1, rng.random()];
        let map = words.into_iter().flat_map(u32::to_le_bytes).collect();
        rows.insert(Key::new(RowKind::Map, ino, 0), Some(map));
        let letters = rng.random_range(4..16);
        let name: String = (0..letters).map(|_| rng.random_range('a'..='z')).collect();
        let entry = [&ino.to_le_bytes()[..], &[1], name.as_bytes(), b".txt"].concat();
        rows.insert(Key::new(RowKind::Entry, 5, index + 3), Some(entry));
    }
    rows
}

/// Any key of a row: often near others, sometimes anywhere.
pub(in super::super) fn any_key() -> impl Strategy<Value = Key> {
    let number = prop_oneof![8 => 0u64..6, 2 => 0u64..2000, 1 => any::<u64>(), 1 => Just(u64::MAX)];
    (proptest::sample::select(&RowKind::ALL[..]), number.clone(), number)
        .prop_map(|(kind, owner, at)| Key::new(kind, owner, at))
        .prop_filter("a bound, not a row", |&key| key < Key::MAX)
}

/// Any value, deleted ones included: of few lengths mostly, of few bytes mostly.
pub(in super::super) fn any_value() -> impl Strategy<Value = Option<Vec<u8>>> {
    let byte = prop_oneof![3 => Just(0u8), 1 => any::<u8>()];
    let length = prop_oneof![4 => Just(16usize), 4 => 0usize..20, 1 => 0usize..3000];
    weighted(0.8, length.prop_flat_map(move |length| vec(byte.clone(), length)))
}

/// Any sorted rows.
pub(in super::super) fn any_rows(count: usize) -> impl Strategy<Value = Rows> {
    btree_map(any_key(), any_value(), 0..count)
}
