//! Parts are built, damaged and read.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};

use proptest::prelude::*;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

use super::*;
use crate::furrow::format::BLOCK_BYTES;
use crate::furrow::table::key::RowKind;
use crate::furrow::table::merge::Cursor;
use crate::furrow::table::tests::sample::{
    Maps, Rows, any_key, any_rows, borrowed, file_rows, map_rows,
};

const UUID: [u8; 16] = [7; 16];

/// Two copies in memory, and how often they were read.
struct Memory {
    copies: [Vec<u8>; COPIES],
    reads: AtomicUsize,
}

impl Memory {
    fn of(bytes: &[u8]) -> Self {
        Self { copies: [bytes.to_vec(), bytes.to_vec()], reads: AtomicUsize::new(0) }
    }
}

impl PartSource for Memory {
    fn read(&self, copy: usize, offset: u64, buffer: &mut [u8]) -> Result<(), DeviceError> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        let offset = usize::try_from(offset).unwrap();
        assert!(offset.is_multiple_of(BLOCK_BYTES) && buffer.len().is_multiple_of(BLOCK_BYTES));
        let bytes = self.copies[copy].get(offset..offset + buffer.len());
        let bytes = bytes.ok_or(DeviceError::NoSpace { what: "offline".into() })?;
        buffer.copy_from_slice(bytes);
        Ok(())
    }
}

fn build(rows: &Rows) -> BuiltPart {
    let mut builder = PartBuilder::new(PartId { uuid: UUID, number: 5 }, 8 << 20);
    borrowed(rows).for_each(|(key, value)| builder.push(key, value));
    builder.finish()
}

fn open<S: PartSource>(summary: &PartSummary, source: S) -> Result<PartReader<S>, PartError> {
    PartReader::open(summary, UUID, source)
}

fn rest_of(cursor: &mut impl Cursor) -> Result<Rows, PartError> {
    let mut rows = Rows::new();
    while let Some((key, value)) = cursor.peek() {
        assert!(rows.last_key_value().is_none_or(|(&last, _)| last < key), "{key:?}");
        rows.insert(key, value.map(Vec::from));
        cursor.advance()?;
    }
    Ok(rows)
}

fn all_of(summary: &PartSummary, source: &Memory) -> Result<(Rows, Vec<BadCopy>), PartError> {
    let mut cursor = open(summary, source)?.cursor_from(Key::MIN)?;
    let rows = rest_of(&mut cursor)?;
    Ok((rows, cursor.reader().bad_copies()))
}

/// Rows for several leaves, of all kinds that a new file has.
fn several_leaves() -> Rows {
    let mut rows = file_rows(300);
    rows.extend(map_rows(1500, Maps::OneOf16));
    rows.extend((0..40).map(|at| (Key::new(RowKind::Extent, at, 0), None)));
    rows
}

proptest! {
    // A case builds and reads several leaves.
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn part_cursor_from_any_key_is_range(rows in any_rows(300), keys in proptest::collection::vec(any_key(), 8)) {
        prop_assume!(!rows.is_empty());
        let BuiltPart { bytes, summary } = build(&rows);
        prop_assert_eq!(summary.rows as usize, rows.len());
        prop_assert_eq!(summary.tombstones as usize, rows.values().filter(|value| value.is_none()).count());
        prop_assert_eq!(Some(&summary.first), rows.keys().next());
        prop_assert_eq!(Some(&summary.last), rows.keys().last());
        prop_assert_eq!(summary.bytes as usize, bytes.len());
        let source = Memory::of(&bytes);
        let near = rows.keys().step_by(7).flat_map(|&key| [key, key.successor()]);
        for key in near.chain(keys).chain([Key::MIN, Key::MAX]) {
            let mut cursor = open(&summary, &source).unwrap().cursor_from(key).unwrap();
            let range: Rows = rows.range(key..).map(|(&key, value)| (key, value.clone())).collect();
            prop_assert_eq!(rest_of(&mut cursor).unwrap(), range, "from {:?}", key);
            prop_assert!(cursor.peek().is_none() && cursor.advance().is_ok());
        }
    }

    /// A changed byte is found, wherever it is, and the other copy is used.
    #[test]
    fn part_changed_byte_is_found_and_other_copy_used(place in any::<proptest::sample::Index>(), bit in 0..8u8) {
        let rows = several_leaves();
        let BuiltPart { bytes, summary } = build(&rows);
        let end = (summary.index_at + summary.index_bytes) as usize;
        let at = place.index(end);
        let mut source = Memory::of(&bytes);
        for copy in 0..COPIES {
            source.copies[copy][at] ^= 1 << bit;
            if copy == 0 {
                let (found, bad) = all_of(&summary, &source).unwrap();
                prop_assert_eq!(&found, &rows);
                prop_assert_eq!(bad.len(), 1, "{:?}", bad);
                let is_index = at >= summary.index_at as usize;
                prop_assert_eq!(bad[0].section == Section::Index, is_index);
                prop_assert_eq!(bad[0].copy, 0);
            }
        }
        let error = all_of(&summary, &source).unwrap_err();
        prop_assert_eq!(error.part, 5);
    }

    /// A copy with any bytes, even with right checksums, gives rows in order, or an error.
    #[test]
    fn part_any_index_is_read_or_refused(
        changes in proptest::collection::vec((any::<u16>(), any::<u8>()), 1..4),
    ) {
        let BuiltPart { mut bytes, mut summary } = build(&map_rows(3000, Maps::Scattered));
        let (start, end) = (summary.index_at as usize, (summary.index_at + summary.index_bytes) as usize);
        for (at, byte) in changes {
            let at = start + 8 + usize::from(at) % (end - start - 8);
            bytes[at] = byte;
        }
        summary.index_crc = checksum(UUID, &bytes[start..end]);
        bytes[start + 4..start + 8].copy_from_slice(&summary.index_crc.to_le_bytes());
        let source = Memory::of(&bytes);
        let _ = all_of(&summary, &source);
        if let Ok(reader) = open(&summary, &source) {
            for leaf in 0..=reader.leaves() {
                for (number, found) in (leaf..).zip(reader.leaves_ahead(leaf, 5)) {
                    prop_assert_eq!(found, reader.cached_leaf(number).unwrap());
                }
            }
        }
    }
}

#[test]
fn part_refuses_leaf_of_other_part_or_file_system() {
    let rows = several_leaves();
    let BuiltPart { bytes, summary } = build(&rows);
    let source = Memory::of(&bytes);
    let error = PartReader::open(&summary, [8; 16], &source).map(drop).unwrap_err();
    assert!(error.to_string().contains("checksum"), "{error}");
    let other = PartSummary { number: 6, ..summary };
    let error = open(&other, &source).map(drop).unwrap_err();
    assert!(error.to_string().contains("part 5"), "{error}");
    for summary in [
        PartSummary { bytes: u32::MAX, index_at: u32::MAX, ..summary },
        PartSummary { bytes: PART_BYTES_MAX + 1, ..summary },
        PartSummary { index_bytes: u32::MAX, ..summary },
        PartSummary { index_at: summary.bytes, ..summary },
        PartSummary { index_bytes: summary.index_bytes - 1, ..summary },
        PartSummary { index_at: summary.index_at - 1, ..summary },
        PartSummary { index_crc: !summary.index_crc, ..summary },
        PartSummary { first: Key::MIN, ..summary },
    ] {
        assert!(open(&summary, &source).is_err(), "{summary:?}");
    }
    let cut = PartSummary { last: Key::MAX, ..summary };
    assert!(all_of(&cut, &source).is_err(), "the last key is not in the last leaf");
}

#[test]
fn part_copy_replaces_what_other_lost() {
    let rows = several_leaves();
    let BuiltPart { bytes, summary } = build(&rows);
    for gone in 0..COPIES {
        let mut source = Memory::of(&bytes);
        source.copies[gone].clear();
        let (found, bad) = all_of(&summary, &source).unwrap();
        assert_eq!(found, rows, "without copy {gone}");
        // The second copy is not looked at where the first is good.
        let copies: BTreeSet<usize> = bad.iter().map(|bad| bad.copy).collect();
        assert_eq!(copies, if gone == 0 { BTreeSet::from([0]) } else { BTreeSet::new() });
        let reader = open(&summary, &source).unwrap();
        for copy in 0..COPIES {
            reader.verify_copy(copy);
        }
        let bad = reader.bad_copies();
        assert!(bad.iter().all(|bad| bad.copy == gone), "{bad:?}");
        assert_eq!(bad.len(), reader.leaves() + 1, "all leaves and the index");
    }
}

#[test]
fn part_checksums_cover_headers_and_index() {
    let rows = several_leaves();
    let BuiltPart { bytes, summary } = build(&rows);
    let source = Memory::of(&bytes);
    let index = open(&summary, &source).unwrap().places().to_vec();
    let end = summary.index_at + summary.index_bytes;
    let headers = index.iter().flat_map(|place| place.offset..place.offset + 28);
    for at in headers.chain(summary.index_at..end) {
        let mut source = Memory::of(&bytes);
        source.copies[0][at as usize] ^= 1;
        let (found, bad) = all_of(&summary, &source).unwrap();
        assert!(found == rows && bad.len() == 1, "byte {at}: {bad:?}");
    }
}

#[test]
fn part_refuses_leaf_with_wrong_identity() {
    let BuiltPart { mut bytes, mut summary } = build(&several_leaves());
    let reseal = |section: &mut [u8]| {
        let crc = checksum(UUID, section).to_le_bytes();
        section[4..8].copy_from_slice(&crc);
        crc
    };
    let index_at = summary.index_at as usize;
    let leaf_end = open(&summary, &Memory::of(&bytes)).unwrap().places()[0].bytes as usize;
    bytes[12] = 1;
    let crc = reseal(&mut bytes[..leaf_end]);
    bytes[index_at + HEADER_BYTES + 40..][..4].copy_from_slice(&crc);
    let index = &mut bytes[index_at..][..summary.index_bytes as usize];
    summary.index_crc = u32::from_le_bytes(reseal(index));
    let error = all_of(&summary, &Memory::of(&bytes)).unwrap_err();
    assert_eq!(error.copies.map(String::from), ["leaf 1 of part 5", "leaf 1 of part 5"]);
}

#[test]
fn part_sizes_stay_within_bound() {
    let mut large = Rows::new();
    let mut noise = vec![0; 600_000];
    ChaCha8Rng::seed_from_u64(9).fill_bytes(&mut noise);
    for (at, value) in (0..).zip(noise.chunks(7500)) {
        large.insert(Key::new(RowKind::Xattr, 1, at), Some(value.to_vec()));
    }
    for rows in [map_rows(60_000, Maps::Scattered), large] {
        for bytes_max in [64 << 10, 100_000, 256 << 10] {
            let parts = split(&rows, bytes_max);
            assert!(!parts.is_empty(), "they fit into one of {bytes_max}");
            for part in &parts {
                assert!(part.bytes.len() <= bytes_max, "{} of {bytes_max}", part.bytes.len());
                assert!(part.bytes.len() > bytes_max / 2, "{} of {bytes_max}", part.bytes.len());
            }
        }
    }
}

/// Full parts of these rows, in order.
fn split(rows: &Rows, bytes_max: usize) -> Vec<BuiltPart> {
    let new = || PartBuilder::new(PartId { uuid: UUID, number: 1 }, bytes_max);
    let mut parts = Vec::new();
    let mut builder = new();
    for (key, value) in borrowed(rows) {
        builder.push(key, value);
        if builder.is_full() {
            parts.push(std::mem::replace(&mut builder, new()).finish());
        }
    }
    parts
}

#[test]
fn part_lookup_reads_one_leaf() {
    let BuiltPart { bytes, summary } = build(&several_leaves());
    let reader = open(&summary, Memory::of(&bytes)).unwrap();
    assert!(reader.leaves() > 2);
    for number in 0..reader.leaves() {
        let leaf = reader.leaf(number).unwrap();
        for row in 0..leaf.len() {
            assert_eq!(reader.index().leaf_from(leaf.key(row)), number);
        }
    }
    assert_eq!(reader.index().leaf_from(Key::MIN), 0);
}

/// A scan reads the drive in large pieces, a look-up reads one leaf.
#[test]
fn part_cursor_reads_ahead() {
    let BuiltPart { bytes, summary } = build(&map_rows(100_000, Maps::Scattered));
    let source = Memory::of(&bytes);
    let reader = open(&summary, &source).unwrap();
    let leaves = reader.leaves();
    let mut cursor = reader.cursor_from(Key::new(RowKind::Map, 300, 50_000)).unwrap();
    assert_eq!(source.reads.load(Ordering::Relaxed), 2, "the index and a leaf");
    assert_eq!(rest_of(&mut cursor).unwrap().len(), 50_001);
    let reads = source.reads.load(Ordering::Relaxed);
    assert!(reads < 12, "{reads} reads for half of {leaves} leaves");
}

#[test]
fn part_leaves_are_read_together_up_to_bad_one() {
    let BuiltPart { bytes, summary } = build(&map_rows(20_000, Maps::Scattered));
    let mut source = Memory::of(&bytes);
    let reader = open(&summary, &source).unwrap();
    let places = reader.places().to_vec();
    assert!(places.len() > 12);
    let reads = source.reads.load(Ordering::Relaxed);
    let leaves = reader.leaves_ahead(3, 8);
    assert_eq!(leaves.len(), 8);
    assert_eq!(source.reads.load(Ordering::Relaxed), reads + 1);
    for (number, leaf) in (3..).zip(leaves) {
        assert_eq!(leaf, reader.cached_leaf(number).unwrap());
    }
    assert_eq!(reader.leaves_ahead(places.len() - 2, 8).len(), 2, "up to the last one");
    drop(reader);
    source.copies[0][places[6].offset as usize + 40] ^= 1;
    let reader = open(&summary, &source).unwrap();
    assert_eq!(reader.leaves_ahead(3, 8).len(), 3);
    assert!(reader.leaves_ahead(6, 8).is_empty());
    assert!(reader.leaf(6).is_ok(), "the other copy has it");
}
