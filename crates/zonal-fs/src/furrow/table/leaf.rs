//! The leaf: neighbouring rows as bytes, for journal batches and for parts of runs.
//!
//! A leaf stores its rows in columns, because neighbouring rows are similar: first one tag for each
//! row, then the parts of keys and lengths that the tags do not contain, then the values of each
//! kind: byte 0 of all values, byte 1 of all values, and so on. So zstd finds the columns that
//! repeat. Decoding checks all that it reads, and allocates once for a leaf, not for each row. Byte
//! tables: `docs/format/furrow-table.md`.

mod columnar;

use std::cell::RefCell;
use std::mem::size_of;

use zerocopy::byteorder::little_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};
use zstd::bulk::{Compressor, Decompressor};

pub use self::columnar::{CachedLeaf, decode_cached};
use super::key::{Key, RowKind};
use crate::furrow::format::{put_number, take_number};

/// Head of a leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct LeafHead {
    /// Rows, deleted ones included.
    pub rows: U32,
    /// Bytes of the columns, at most 262,144.
    pub raw_bytes: U32,
    /// Bytes after this head. As many as `raw_bytes`: the columns, uncompressed. Fewer: the columns
    /// as one zstd frame.
    pub stored_bytes: U32,
}

const _: () = assert!(size_of::<LeafHead>() == 12);

/// Bytes of columns at which a leaf is complete. A larger leaf takes hardly fewer bytes for each
/// row (64 KiB: 0.3 % fewer), and a point read has to decode all of it.
pub const LEAF_BYTES: usize = 16 << 10;

/// Bytes of columns at which a leaf of map rows is complete, in a part. Checksums do not compress,
/// so small leaves cost only their headers (2 %), and a read of a large file needs few rows of a
/// leaf.
pub const MAP_LEAF_BYTES: usize = 8 << 10;

/// Columns of at most this many bytes are stored uncompressed. Such a batch takes one block of the
/// journal in any case, and building zstd's tables takes longer than the rest of a small commit.
const PLAIN_BYTES_MAX: usize = 2 << 10;

/// Longest value: twice the largest extended attribute.
pub const VALUE_BYTES_MAX: usize = 128 << 10;

/// Most bytes of columns: a leaf may lack one byte to be full and then get the longest value.
const RAW_BYTES_MAX: usize = 256 << 10;

/// Most bytes of an encoded leaf.
pub(super) const STORED_BYTES_MAX: usize = size_of::<LeafHead>() + RAW_BYTES_MAX;

/// Most columns of a kind. Further bytes of a value lie behind the columns, row by row.
const COLUMNS_MAX: usize = 256;

/// Index of the row's kind in [`RowKind::ALL`].
const TAG_KIND: u8 = 0b0000_1111;
/// The row is a tombstone: it has no value and no length.
const TAG_DELETED: u8 = 0b0001_0000;
/// The owner differs from the base: a number has the difference.
const TAG_OWNER_FAR: u8 = 0b0010_0000;
/// The place is above the base: a number has the difference.
const TAG_AT_FAR: u8 = 0b0100_0000;
/// The length of the value differs from that of the previous row of its kind: a number has it.
const TAG_LENGTH: u8 = 0b1000_0000;

const KINDS: usize = RowKind::ALL.len();

/// Index of a kind in [`RowKind::ALL`].
const fn index_of(kind: RowKind) -> u8 {
    match kind {
        RowKind::Totals => 0,
        RowKind::Zone => 1,
        RowKind::Orphan => 2,
        RowKind::Learned => 3,
        RowKind::Inode => 4,
        RowKind::Xattr => 5,
        RowKind::Map => 6,
        RowKind::Name => 7,
        RowKind::Entry => 8,
        RowKind::Extent => 9,
        RowKind::Backrefs => 10,
        RowKind::Remap => 11,
        RowKind::Discard => 12,
    }
}

/// Number of columns for values of these lengths: the shortest length, or 0 for a single value.
fn columns_of(lengths: impl ExactSizeIterator<Item = u32>) -> usize {
    if lengths.len() < 2 { 0 } else { (lengths.min().unwrap_or(0) as usize).min(COLUMNS_MAX) }
}

/// The bases from which the owner and the place of a row are counted: the previous row's, or 0.
fn bases(before: Option<Key>, kind: RowKind, owner: u64) -> (u64, Option<u64>) {
    match before {
        Some(key) if key.kind() == kind && key.owner() == owner => (owner, key.at().checked_add(1)),
        Some(key) if key.kind().group() == kind.group() => (key.owner(), Some(0)),
        Some(_) | None => (0, Some(0)),
    }
}

/// The values of one kind, one behind the other.
#[derive(Default)]
struct Values {
    lengths: Vec<u32>,
    bytes: Vec<u8>,
}

/// Encodes rows as a leaf. After [`LeafBuilder::finish`] it is empty and can encode the next leaf.
pub struct LeafBuilder {
    tags: Vec<u8>,
    owners: Vec<u8>,
    ats: Vec<u8>,
    lengths: Vec<u8>,
    values: [Values; KINDS],
    last: Option<Key>,
    /// Created for the first leaf that is large enough.
    compressor: Option<Compressor<'static>>,
}

impl LeafBuilder {
    /// A builder without rows.
    pub fn new() -> Self {
        Self {
            tags: Vec::new(),
            owners: Vec::new(),
            ats: Vec::new(),
            lengths: Vec::new(),
            values: Default::default(),
            last: None,
            compressor: None,
        }
    }

    /// Adds a row, whose key must be above all before it; `None` is a tombstone.
    pub fn push(&mut self, key: Key, value: Option<&[u8]>) {
        assert!(self.last.is_none_or(|last| last < key) && key < Key::MAX, "{key:?} is not sorted");
        let kind = index_of(key.kind());
        let mut tag = kind;
        let (owner, at) = bases(self.last, key.kind(), key.owner());
        let owner = key.owner() - owner;
        if owner > 0 {
            tag |= TAG_OWNER_FAR;
            put_number(&mut self.owners, owner);
        }
        let at = key.at() - at.expect("the row before has a lower place");
        if at > 0 {
            tag |= TAG_AT_FAR;
            put_number(&mut self.ats, at);
        }
        match value {
            None => tag |= TAG_DELETED,
            Some(value) => {
                assert!(value.len() <= VALUE_BYTES_MAX, "a value of {} bytes", value.len());
                let length = u32::try_from(value.len()).expect("under 4 GiB");
                let values = &mut self.values[usize::from(kind)];
                if values.lengths.last().copied().unwrap_or(0) != length {
                    tag |= TAG_LENGTH;
                    put_number(&mut self.lengths, length.into());
                }
                values.lengths.push(length);
                values.bytes.extend_from_slice(value);
            }
        }
        self.tags.push(tag);
        self.last = Some(key);
    }

    /// Whether it has no rows.
    pub fn is_empty(&self) -> bool {
        self.tags.is_empty()
    }

    /// Bytes of the columns so far, without the up to 32 bytes a kind that mark columns of
    /// differences. At [`LEAF_BYTES`] the leaf is complete.
    pub fn raw_bytes(&self) -> usize {
        let keys = self.tags.len() + self.owners.len() + self.ats.len() + self.lengths.len();
        keys + self.values.iter().map(|values| values.bytes.len()).sum::<usize>()
    }

    /// Returns the bytes of the leaf and begins the next one.
    pub fn finish(&mut self) -> Vec<u8> {
        let mut raw = Vec::with_capacity(self.raw_bytes() + KINDS * COLUMNS_MAX / 8);
        for column in [&mut self.tags, &mut self.owners, &mut self.ats, &mut self.lengths] {
            raw.extend_from_slice(column);
        }
        for values in &mut self.values {
            put_columns(&mut raw, values);
            values.lengths.clear();
            values.bytes.clear();
        }
        assert!(raw.len() <= RAW_BYTES_MAX, "a leaf of {} bytes", raw.len());
        let packed = if raw.len() > PLAIN_BYTES_MAX { self.compress(&raw) } else { Vec::new() };
        let is_smaller = !packed.is_empty() && packed.len() < raw.len();
        let stored = if is_smaller { &packed } else { &raw };
        let count = |count: usize| U32::new(u32::try_from(count).expect("a leaf is small"));
        let head = LeafHead {
            rows: count(self.tags.len()),
            raw_bytes: count(raw.len()),
            stored_bytes: count(stored.len()),
        };
        for column in [&mut self.tags, &mut self.owners, &mut self.ats, &mut self.lengths] {
            column.clear();
        }
        self.last = None;
        [head.as_bytes(), stored].concat()
    }

    fn compress(&mut self, raw: &[u8]) -> Vec<u8> {
        let compressor =
            self.compressor.get_or_insert_with(|| Compressor::new(1).expect("zstd has a level 1"));
        compressor.compress(raw).expect("the buffer has zstd's bound")
    }
}

impl Default for LeafBuilder {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for LeafBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "LeafBuilder of {} rows up to {:?}", self.tags.len(), self.last)
    }
}

/// Appends the values of a kind: a flag for each column of differences, the columns, further bytes.
fn put_columns(raw: &mut Vec<u8>, values: &Values) {
    let columns = columns_of(values.lengths.iter().copied());
    let rows = values.lengths.len();
    let flags_at = raw.len();
    let from = flags_at + columns.div_ceil(8);
    raw.resize(from + columns * rows, 0);
    let mut start = 0;
    for (row, &length) in values.lengths.iter().enumerate() {
        let value = &values.bytes[start..start + columns];
        for (column, byte) in raw[from..].iter_mut().skip(row).step_by(rows).zip(value) {
            *column = *byte;
        }
        start += length as usize;
    }
    let (head, body) = raw.split_at_mut(from);
    for (column, bytes) in body.chunks_exact_mut(rows.max(1)).enumerate() {
        if is_steady(bytes) {
            head[flags_at + column / 8] |= 1 << (column % 8);
            let mut before = 0;
            for byte in bytes {
                (before, *byte) = (*byte, byte.wrapping_sub(before));
            }
        }
    }
    let mut rest = &values.bytes[..];
    for &length in &values.lengths {
        let (value, later) = rest.split_at(length as usize);
        raw.extend_from_slice(&value[columns..]);
        rest = later;
    }
}

/// Whether the differences of a column repeat clearly more often than its bytes, as in a counter.
fn is_steady(column: &[u8]) -> bool {
    /// As many as a byte can count, so that the compiler can use vector instructions on bytes.
    const AT_ONCE: usize = 255;
    let (first, second) = (column, column.get(1..).unwrap_or(&[]));
    let third = column.get(2..).unwrap_or(&[]);
    let chunks = first.chunks(AT_ONCE).zip(second.chunks(AT_ONCE)).zip(third.chunks(AT_ONCE));
    let (mut repeats, mut steady) = (0, 0);
    for ((first, second), third) in chunks {
        let (mut repeats_here, mut steady_here) = (0u8, 0u8);
        for ((first, second), third) in first.iter().zip(second).zip(third) {
            repeats_here += u8::from(second == third);
            steady_here += u8::from(second.wrapping_sub(*first) == third.wrapping_sub(*second));
        }
        repeats += usize::from(repeats_here);
        steady += usize::from(steady_here);
    }
    steady > repeats + column.len() / 8
}

/// A decoded leaf.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Leaf {
    keys: Vec<Key>,
    tags: Vec<u8>,
    /// End of the value of each row in `bytes`; the value of a tombstone is empty.
    ends: Vec<u32>,
    bytes: Vec<u8>,
}

impl Leaf {
    /// Rows, deleted ones included.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether it has no rows.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Key of a row.
    pub fn key(&self, row: usize) -> Key {
        self.keys[row]
    }

    /// Value of a row; `None` for a tombstone.
    pub fn value(&self, row: usize) -> Option<&[u8]> {
        let start = row.checked_sub(1).map_or(0, |before| self.ends[before]);
        let value = &self.bytes[start as usize..self.ends[row] as usize];
        (self.tags[row] & TAG_DELETED == 0).then_some(value)
    }

    /// Key of the first row.
    pub fn first(&self) -> Option<Key> {
        self.keys.first().copied()
    }

    /// Key of the last row.
    pub fn last(&self) -> Option<Key> {
        self.keys.last().copied()
    }

    /// The first row whose key is not below `key`; [`Leaf::len`] if there is none.
    pub fn lower_bound(&self, key: Key) -> usize {
        self.keys.partition_point(|&other| other < key)
    }

    /// Bytes of memory.
    pub fn weight(&self) -> usize {
        let per_row = self.keys.capacity() * size_of::<Key>() + self.ends.capacity() * 4;
        size_of::<Self>() + per_row + self.tags.capacity() + self.bytes.capacity()
    }

    /// All rows, in order.
    pub fn rows(&self) -> impl Iterator<Item = (Key, Option<&[u8]>)> {
        (0..self.len()).map(|row| (self.key(row), self.value(row)))
    }
}

/// Decodes one leaf.
pub fn decode(bytes: &[u8]) -> Result<Leaf, String> {
    match take_leaf(bytes, decode_columns)? {
        (leaf, []) => Ok(leaf),
        (_, rest) => Err(format!("{} bytes behind a leaf", rest.len())),
    }
}

/// Encodes any number of sorted rows as leaves, one behind the other.
pub fn encode_rows<'a>(rows: impl IntoIterator<Item = (Key, Option<&'a [u8]>)>) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut leaf = LeafBuilder::new();
    for (key, value) in rows {
        leaf.push(key, value);
        if leaf.raw_bytes() >= LEAF_BYTES {
            bytes.extend_from_slice(&leaf.finish());
        }
    }
    if !leaf.is_empty() {
        bytes.extend_from_slice(&leaf.finish());
    }
    bytes
}

/// Decodes the bytes of [`encode_rows`]. On an error, `each` has got the rows before the fault.
pub fn decode_rows(
    mut bytes: &[u8],
    mut each: impl FnMut(Key, Option<&[u8]>) -> Result<(), String>,
) -> Result<(), String> {
    let mut last = None;
    while !bytes.is_empty() {
        let (leaf, rest) = take_leaf(bytes, decode_columns)?;
        if leaf.first().is_none_or(|first| last.is_some_and(|last| first <= last)) {
            return Err(format!("a leaf does not go on after {last:?}"));
        }
        for (key, value) in leaf.rows() {
            each(key, value)?;
        }
        last = leaf.last();
        bytes = rest;
    }
    Ok(())
}

/// Decodes the leaf at the start of `bytes` by `decode`, which gets its columns and the number of
/// its rows. Also returns the bytes behind the leaf.
fn take_leaf<T>(
    bytes: &[u8],
    decode: impl FnOnce(&[u8], usize) -> Result<T, &'static str>,
) -> Result<(T, &[u8]), String> {
    let Ok((head, rest)) = LeafHead::read_from_prefix(bytes) else {
        return Err("too short for a leaf".into());
    };
    let [rows, raw_bytes, stored_bytes] =
        [head.rows, head.raw_bytes, head.stored_bytes].map(|count| count.get() as usize);
    // `raw_bytes` bounds all allocations below: each row has a tag, and decoding does not lengthen
    // values.
    if raw_bytes > RAW_BYTES_MAX || rows > raw_bytes || stored_bytes > raw_bytes {
        return Err(format!("a leaf of {rows} rows in {stored_bytes} of {raw_bytes} bytes"));
    }
    let Some((stored, rest)) = rest.split_at_checked(stored_bytes) else {
        return Err(format!("a leaf of {stored_bytes} bytes in {}", rest.len()));
    };
    if stored_bytes == raw_bytes {
        return Ok((decode(stored, rows)?, rest));
    }
    with_unpacked(stored, raw_bytes, |raw| Ok((decode(raw, rows)?, rest)))
}

/// Unpacks a zstd frame with a context and a buffer that the thread keeps: creating them takes
/// longer than decoding a small leaf.
fn with_unpacked<T>(
    stored: &[u8],
    raw_bytes: usize,
    decode: impl FnOnce(&[u8]) -> Result<T, String>,
) -> Result<T, String> {
    type Unpacker = (Option<Decompressor<'static>>, Vec<u8>);
    thread_local! {
        static ZSTD: RefCell<Unpacker> = const { RefCell::new((None, Vec::new())) };
    }
    ZSTD.with_borrow_mut(|(zstd, raw)| {
        let failed = |error| format!("zstd: {error}");
        let zstd = match zstd {
            Some(zstd) => zstd,
            None => zstd.insert(Decompressor::new().map_err(failed)?),
        };
        if raw.len() < raw_bytes {
            raw.resize(raw_bytes, 0);
        }
        let raw = &mut raw[..raw_bytes];
        let unpacked = zstd.decompress_to_buffer(stored, raw).map_err(failed)?;
        if unpacked != raw_bytes {
            return Err(format!("{unpacked} bytes from zstd, {raw_bytes} are stated"));
        }
        decode(raw)
    })
}

fn decode_columns(raw: &[u8], rows: usize) -> Result<Leaf, &'static str> {
    let mut rest = raw;
    let tags = take(&mut rest, rows)?;
    let keys = take_keys(tags, &mut rest)?;
    let ends = take_ends(tags, &mut rest)?;
    let value_bytes = ends.last().copied().unwrap_or(0) as usize;
    if value_bytes > rest.len() {
        return Err("values beyond the leaf's end");
    }
    let mut bytes = vec![0; value_bytes];
    let mut values: [Vec<(usize, u32)>; KINDS] = Default::default();
    let mut start = 0;
    for (&tag, &end) in tags.iter().zip(&ends) {
        if tag & TAG_DELETED == 0 {
            values[usize::from(tag & TAG_KIND)].push((start as usize, end - start));
        }
        start = end;
    }
    for values in &values {
        take_columns(&mut rest, values, &mut bytes)?;
    }
    if !rest.is_empty() {
        return Err("bytes behind the values");
    }
    Ok(Leaf { keys, tags: tags.to_vec(), ends, bytes })
}

/// Decodes keys in two passes, because the numbers of all owners lie before the numbers of places.
fn take_keys(tags: &[u8], rest: &mut &[u8]) -> Result<Vec<Key>, &'static str> {
    let mut keys: Vec<Key> = Vec::with_capacity(tags.len());
    for &tag in tags {
        let kind = RowKind::ALL.get(usize::from(tag & TAG_KIND)).ok_or("an unknown kind")?;
        let (owner, _) = bases(keys.last().copied(), *kind, 0);
        let further = if tag & TAG_OWNER_FAR == 0 { 0 } else { take_number(rest)? };
        let owner = owner.checked_add(further).ok_or("an owner beyond the last")?;
        keys.push(Key::new(*kind, owner, 0));
    }
    let mut before = None;
    for (key, &tag) in keys.iter_mut().zip(tags) {
        let further = if tag & TAG_AT_FAR == 0 { 0 } else { take_number(rest)? };
        let (_, at) = bases(before, key.kind(), key.owner());
        let at = at.and_then(|at| at.checked_add(further)).ok_or("a place beyond the last")?;
        *key = Key::new(key.kind(), key.owner(), at);
        if before.is_some_and(|before| before >= *key) || *key == Key::MAX {
            return Err("rows out of order");
        }
        before = Some(*key);
    }
    Ok(keys)
}

fn take_ends(tags: &[u8], rest: &mut &[u8]) -> Result<Vec<u32>, &'static str> {
    let mut ends = Vec::with_capacity(tags.len());
    let mut lengths = [0; KINDS];
    let mut end = 0u32;
    for &tag in tags {
        if tag & TAG_DELETED == 0 {
            let length = &mut lengths[usize::from(tag & TAG_KIND)];
            if tag & TAG_LENGTH != 0 {
                *length = u32::try_from(take_number(rest)?).map_err(|_| "a value too long")?;
            }
            end = end.checked_add(*length).ok_or("values too long")?;
        } else if tag & TAG_LENGTH != 0 {
            return Err("a deleted row with a length");
        }
        ends.push(end);
    }
    Ok(ends)
}

/// Decodes the values of one kind into `bytes`: `values` has the offset and length of each.
fn take_columns(
    rest: &mut &[u8],
    values: &[(usize, u32)],
    bytes: &mut [u8],
) -> Result<(), &'static str> {
    let columns = columns_of(values.iter().map(|&(_, length)| length));
    let flags = take(rest, columns.div_ceil(8))?;
    let mut stored = take(rest, columns * values.len())?.to_vec();
    for (number, column) in stored.chunks_exact_mut(values.len().max(1)).enumerate() {
        if flags[number / 8] & 1 << (number % 8) != 0 {
            let mut sum = 0_u8;
            for byte in column {
                sum = sum.wrapping_add(*byte);
                *byte = sum;
            }
        }
    }
    // Eight columns at a time: each value gets eight bytes at once.
    let mut eights = stored.chunks_exact(8 * values.len().max(1));
    let mut column = 0;
    for eight in &mut eights {
        let at = |column: usize| &eight[column * values.len()..][..values.len()];
        let of: [&[u8]; 8] = [at(0), at(1), at(2), at(3), at(4), at(5), at(6), at(7)];
        for (row, &(start, _)) in values.iter().enumerate() {
            let low = [of[0][row], of[1][row], of[2][row], of[3][row]];
            let high = [of[4][row], of[5][row], of[6][row], of[7][row]];
            let value = &mut bytes[start + column..][..8];
            value[..4].copy_from_slice(&low);
            value[4..].copy_from_slice(&high);
        }
        column += 8;
    }
    for (rest, column) in eights.remainder().chunks_exact(values.len().max(1)).zip(column..) {
        for (&byte, &(start, _)) in rest.iter().zip(values) {
            bytes[start + column] = byte;
        }
    }
    for &(start, length) in values {
        let length = length as usize;
        bytes[start + columns..start + length].copy_from_slice(take(rest, length - columns)?);
    }
    Ok(())
}

fn take<'a>(rest: &mut &'a [u8], bytes: usize) -> Result<&'a [u8], &'static str> {
    rest.split_off(..bytes).ok_or("the leaf ends too early")
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::super::tests::sample::{
        Maps, Rows, any_rows, borrowed, file_rows, leaf_of, map_rows,
    };
    use super::*;

    fn rows_of(leaf: &Leaf) -> Rows {
        leaf.rows().map(|(key, value)| (key, value.map(Vec::from))).collect()
    }

    fn decoded(bytes: &[u8]) -> Result<Rows, String> {
        let mut rows = Rows::new();
        decode_rows(bytes, |key, value| {
            let before = rows.insert(key, value.map(Vec::from));
            if before.is_none() { Ok(()) } else { Err("twice".into()) }
        })
        .map(|()| rows)
    }

    proptest! {
        #[test]
        fn leaf_rows_round_trip(rows in any_rows(60)) {
            prop_assume!(rows.values().flatten().map(Vec::len).sum::<usize>() < VALUE_BYTES_MAX);
            let leaf = decode(&leaf_of(&rows)).unwrap();
            prop_assert_eq!(&rows_of(&leaf), &rows);
            for (index, &key) in rows.keys().enumerate() {
                prop_assert_eq!(leaf.lower_bound(key), index);
                prop_assert_eq!(leaf.lower_bound(key.successor()), index + 1);
            }
            prop_assert_eq!(leaf.lower_bound(Key::MAX), leaf.len());
        }

        #[test]
        fn leaf_batch_of_any_length_round_trips(rows in any_rows(200)) {
            let bytes = encode_rows(borrowed(&rows));
            prop_assert_eq!(decoded(&bytes), Ok(rows));
        }

        #[test]
        fn leaf_decode_handles_any_bytes(bytes in vec(any::<u8>(), 0..400), rows in 0u32..40) {
            let _ = decode(&bytes);
            let stored = U32::new(u32::try_from(bytes.len()).unwrap());
            let head = LeafHead { rows: U32::new(rows), raw_bytes: stored, stored_bytes: stored };
            if let Ok(leaf) = decode(&[head.as_bytes(), &bytes].concat()) {
                prop_assert!(leaf.keys.is_sorted_by(|a, b| a < b));
                // Decoded rows are encoded and decoded to the same rows.
                let rows = rows_of(&leaf);
                prop_assert_eq!(rows_of(&decode(&leaf_of(&rows)).unwrap()), rows);
            }
        }

        #[test]
        fn leaf_decode_handles_changed_bytes(
            rows in any_rows(40),
            changes in vec((any::<u16>(), any::<u8>()), 1..4),
        ) {
            let mut bytes = encode_rows(borrowed(&rows));
            prop_assume!(!bytes.is_empty());
            for (at, byte) in changes {
                let at = usize::from(at) % bytes.len();
                bytes[at] = byte;
            }
            let _ = decoded(&bytes);
            let _ = decoded(&bytes[..bytes.len() / 2]);
        }
    }

    /// A head may state counts that its bytes cannot hold. Decoding allocates memory for the bytes
    /// there are, or fails at the bound.
    #[test]
    fn leaf_counts_beyond_bytes_are_refused() {
        let head = |rows: u32, raw: u32, stored: u32| {
            let head =
                LeafHead { rows: rows.into(), raw_bytes: raw.into(), stored_bytes: stored.into() };
            [head.as_bytes(), &[0; 40]].concat()
        };
        let max = u32::try_from(RAW_BYTES_MAX).unwrap();
        for (rows, raw, stored) in [
            (41, 40, 40),
            (1, max + 1, 40),
            (1, u32::MAX, 40),
            (u32::MAX, u32::MAX, 40),
            (1, 40, 41),
        ] {
            let error = decode(&head(rows, raw, stored)).unwrap_err();
            assert!(error.starts_with("a leaf of"), "{error}");
        }
        // zstd stops at the stated size, however much the frame holds.
        let bomb = zstd::bulk::compress(&vec![0; 10 << 20], 1).unwrap();
        let stored = u32::try_from(bomb.len()).unwrap();
        let head = LeafHead { rows: 1.into(), raw_bytes: max.into(), stored_bytes: stored.into() };
        let error = decode(&[head.as_bytes(), &bomb[..]].concat()).unwrap_err();
        assert!(error.starts_with("zstd"), "{error}");
    }

    /// Columns that no sound leaf has, even under a right checksum.
    #[test]
    fn leaf_malformed_columns_are_refused() {
        let most = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01];
        let beyond = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02];
        let (entry, moved) = (index_of(RowKind::Entry), index_of(RowKind::Remap));
        let far = TAG_DELETED | TAG_OWNER_FAR;
        let cases: [(&[u8], &[u8], &str); 12] = [
            (&[13], &[], "an unknown kind"),
            (&[far], &beyond, "a number beyond 64 bits"),
            (&[far], &[0xff, 0xff], "the bytes end in a number"),
            (&[far, far], &[&most[..], &[1]].concat(), "an owner beyond the last"),
            (&[entry, entry - 1], &[], "rows out of order"),
            (&[far | moved | TAG_AT_FAR], &[most, most].concat(), "rows out of order"),
            (&[TAG_AT_FAR, 0], &most, "a place beyond the last"),
            (&[TAG_DELETED | TAG_LENGTH], &[1], "a deleted row with a length"),
            (&[TAG_LENGTH], &most, "a value too long"),
            (&[TAG_LENGTH], &[2, 7], "values beyond the leaf's end"),
            (&[TAG_LENGTH, 0], &[1, 7, 7], "the leaf ends too early"),
            (&[TAG_LENGTH], &[1, 7, 7], "bytes behind the values"),
        ];
        for (tags, rest, error) in cases {
            assert_eq!(decode_columns(&[tags, rest].concat(), tags.len()), Err(error), "{tags:?}");
        }
        let packed = zstd::bulk::compress(&[0; 30], 1).unwrap();
        let stored = u32::try_from(packed.len()).unwrap();
        let head = LeafHead { rows: 30.into(), raw_bytes: 40.into(), stored_bytes: stored.into() };
        let error = decode(&[head.as_bytes(), &packed].concat()).unwrap_err();
        assert_eq!(error, "30 bytes from zstd, 40 are stated");
    }

    #[test]
    fn leaf_batch_must_be_ascending() {
        let [low, high] = [1, 2].map(|owner| {
            let rows = Rows::from([(Key::new(RowKind::Inode, owner, 0), Some(vec![1]))]);
            leaf_of(&rows)
        });
        let none = leaf_of(&Rows::new());
        assert!(decoded(&[&low[..], &high].concat()).is_ok());
        for batch in [[&high, &low], [&low, &low], [&low, &none], [&none, &low]] {
            let error = decoded(&batch.map(Vec::as_slice).concat()).unwrap_err();
            assert!(error.starts_with("a leaf does not go on"), "{error}");
        }
    }

    #[test]
    fn leaf_missing_one_byte_takes_longest_value_next() {
        let mut builder = LeafBuilder::new();
        let mut at = 0;
        while builder.raw_bytes() + 18 < LEAF_BYTES {
            builder.push(Key::new(RowKind::Map, 1, at), Some(&at.to_le_bytes().repeat(2)));
            at += 1;
        }
        let value: Vec<u8> = (0..VALUE_BYTES_MAX).map(|at| at.to_le_bytes()[0]).collect();
        builder.push(Key::new(RowKind::Xattr, u64::MAX, u64::MAX), Some(&value));
        let leaf = decode(&builder.finish()).unwrap();
        assert_eq!(leaf.value(leaf.len() - 1), Some(&value[..]));
        assert!(builder.is_empty() && builder.raw_bytes() == 0);
    }

    fn bytes_per_row(rows: &Rows, per: f64) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "small numbers")]
        let bytes = encode_rows(borrowed(rows)).len() as f64;
        bytes / per
    }

    /// The costs of metadata rest on these sizes.
    #[test]
    fn leaf_bytes_per_row_stay_small() {
        let count = 20_000u32;
        let map = |maps| bytes_per_row(&map_rows(count.into(), maps), count.into());
        let measured = [
            ("map rows, scattered", map(Maps::Scattered), 8.2),
            ("map rows, 1 of 16", map(Maps::OneOf16), 9.2),
            ("map rows, sequential", map(Maps::Sequential), 4.2),
            ("small files", bytes_per_row(&file_rows(count.into()), count.into()), 23.0),
        ];
        for (what, bytes, most) in measured {
            println!("{what}: {bytes:.2} bytes");
            assert!(bytes <= most, "{what}: {bytes:.2} bytes, at most {most}");
        }
    }
}
