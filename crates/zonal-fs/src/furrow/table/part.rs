//! Parts: a few MiB of sorted rows, written in one go in two copies.
//!
//! A part is leaves one behind the other, then the index: where each leaf lies and with which key it
//! begins. Each has a header with a checksum, so it is read and verified alone, and where a copy of it
//! is bad the other copy's is taken. A part is found by its [`PartSummary`], which the manifest keeps.

use std::collections::BTreeMap;
use std::fmt;
use std::mem::size_of;
use std::sync::{Arc, Mutex};

use zerocopy::byteorder::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};
use zonal::DeviceError;

use super::key::{Key, RowKind};
use super::leaf::{LEAF_BYTES, Leaf, LeafBuilder, STORED_BYTES_MAX, decode};
use super::merge::Cursor;
use crate::furrow::format::{BLOCK_BYTES, VERSION};

/// Copies of a part.
pub const COPIES: usize = 2;

/// Largest part that is read: four times what is ever written, so a damaged size cannot ask for more.
pub const PART_BYTES_MAX: u32 = 32 << 20;

/// What a part keeps free for its next row: more than any row takes but a large attribute.
const NEXT_ROW_BYTES: usize = 8 << 10;

/// Bytes that a cursor reads ahead at most.
const AHEAD_BYTES: usize = 256 << 10;

/// Head of each leaf of a part, and of its index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct PartHeader {
    /// `FRLF` a leaf, `FRIX` the index.
    pub magic: [u8; 4],
    /// CRC-32C of the file system's identity and bytes 8.. of header and body.
    pub crc: U32,
    /// Format version, 2.
    pub version: U16,
    /// Zero when written, ignored when read.
    pub reserved: U16,
    /// Leaf: its number in the part, from 0 on. Index: how many leaves there are.
    pub leaf: U32,
    /// Number of the part, never used again.
    pub part: U64,
    /// Bytes after this header.
    pub body_bytes: U32,
}

/// A leaf, in the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct IndexEntry {
    /// First key: owner.
    pub owner: U64,
    /// First key: place.
    pub at: U64,
    /// Where its header begins, in bytes from the part's start.
    pub offset: U32,
    /// Bytes, header included.
    pub bytes: U32,
    /// `crc` of its header.
    pub crc: U32,
    /// First key: group and kind.
    pub kind: u8,
    /// Zero when written, ignored when read.
    pub reserved: [u8; 3],
}

const HEADER_BYTES: usize = size_of::<PartHeader>();
const ENTRY_BYTES: usize = size_of::<IndexEntry>();

const _: () = assert!(size_of::<PartHeader>() == 28);
const _: () = assert!(size_of::<IndexEntry>() == 32);

/// Which part it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartId {
    /// Identity of the file system.
    pub uuid: [u8; 16],
    /// Number of the part, never used again.
    pub number: u64,
}

/// What is known of a part without reading it, beside its two addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartSummary {
    /// Number of the part.
    pub number: u64,
    /// Lowest key.
    pub first: Key,
    /// Highest key.
    pub last: Key,
    /// Rows, deleted ones included.
    pub rows: u32,
    /// Deleted ones of these.
    pub tombstones: u32,
    /// Bytes, in whole blocks.
    pub bytes: u32,
    /// Where the index begins, in bytes from the part's start.
    pub index_at: u32,
    /// Bytes of the index, its header included.
    pub index_bytes: u32,
    /// `crc` of the index's header.
    pub index_crc: u32,
}

/// A part that is ready to be written.
#[derive(Debug)]
pub struct BuiltPart {
    /// Whole blocks; the same in both copies.
    pub bytes: Vec<u8>,
    /// What the manifest keeps.
    pub summary: PartSummary,
}

/// Rows that are becoming a part.
#[derive(Debug)]
pub struct PartBuilder {
    id: PartId,
    bytes_max: usize,
    bytes: Vec<u8>,
    index: Vec<IndexEntry>,
    leaf: LeafBuilder,
    /// First key of the part and of the leaf that is being filled.
    first: Option<(Key, Key)>,
    last: Key,
    rows: u32,
    tombstones: u32,
}

impl PartBuilder {
    /// Without rows.
    pub fn new(id: PartId, bytes_max: usize) -> Self {
        Self {
            id,
            bytes_max,
            bytes: Vec::new(),
            index: Vec::new(),
            leaf: LeafBuilder::new(),
            first: None,
            last: Key::MIN,
            rows: 0,
            tombstones: 0,
        }
    }

    /// Adds a row, which is above all before it; `None` is a deleted one.
    pub fn push(&mut self, key: Key, value: Option<&[u8]>) {
        assert!(self.rows == 0 || key > self.last, "{key:?} after {:?}", self.last);
        let (first, _) = self.first.unwrap_or((key, key));
        if self.leaf.is_empty() {
            self.first = Some((first, key));
        }
        self.leaf.push(key, value);
        self.last = key;
        self.rows += 1;
        self.tombstones += u32::from(value.is_none());
        if self.leaf.raw_bytes() >= LEAF_BYTES {
            self.end_leaf();
        }
    }

    /// Whether the next row is to begin another part. A part is not larger than `bytes_max` then,
    /// unless its last row is of more than 8 KiB, or it has one row.
    pub fn is_full(&self) -> bool {
        let index = HEADER_BYTES + (self.index.len() + 2) * ENTRY_BYTES;
        // Columns are never stored in more bytes than they have.
        let leaf = 2 * HEADER_BYTES + self.leaf.raw_bytes() + NEXT_ROW_BYTES;
        self.bytes.len() + leaf + index > self.bytes_max
    }

    /// The part. It has at least one row.
    pub fn finish(mut self) -> BuiltPart {
        if !self.leaf.is_empty() {
            self.end_leaf();
        }
        let (first, _) = self.first.expect("a part has rows");
        let index_at = self.bytes.len();
        let leaves = count(self.index.len());
        let index = std::mem::take(&mut self.index);
        let index_crc = self.put(*b"FRIX", leaves, index.as_bytes());
        let index_bytes = self.bytes.len() - index_at;
        self.bytes.resize(self.bytes.len().next_multiple_of(BLOCK_BYTES), 0);
        let summary = PartSummary {
            number: self.id.number,
            first,
            last: self.last,
            rows: self.rows,
            tombstones: self.tombstones,
            bytes: count(self.bytes.len()),
            index_at: count(index_at),
            index_bytes: count(index_bytes),
            index_crc,
        };
        BuiltPart { bytes: self.bytes, summary }
    }

    fn end_leaf(&mut self) {
        let (_, first) = self.first.expect("it has rows");
        let (offset, number) = (self.bytes.len(), count(self.index.len()));
        let leaf = self.leaf.finish();
        let crc = self.put(*b"FRLF", number, &leaf);
        self.index.push(IndexEntry {
            owner: first.owner().into(),
            at: first.at().into(),
            offset: count(offset).into(),
            bytes: count(self.bytes.len() - offset).into(),
            crc: crc.into(),
            kind: first.kind().code(),
            reserved: [0; 3],
        });
    }

    /// Appends a header and what follows it, and gives the checksum of both.
    fn put(&mut self, magic: [u8; 4], leaf: u32, body: &[u8]) -> u32 {
        let mut header = PartHeader {
            magic,
            crc: 0.into(),
            version: VERSION.into(),
            reserved: 0.into(),
            leaf: leaf.into(),
            part: self.id.number.into(),
            body_bytes: count(body.len()).into(),
        };
        let crc = crc32c::crc32c_append(checksum(self.id.uuid, header.as_bytes()), body);
        header.crc = crc.into();
        self.bytes.extend_from_slice(header.as_bytes());
        self.bytes.extend_from_slice(body);
        crc
    }
}

fn count(count: usize) -> u32 {
    u32::try_from(count).expect("a part is under 4 GiB")
}

/// CRC-32C of a file system's identity, then of a header and what follows it, but for magic and CRC.
fn checksum(uuid: [u8; 16], section: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&uuid), &section[8..])
}

/// Both copies of one part.
pub trait PartSource {
    /// Reads from a copy: whole blocks, from a whole block on, `offset` in bytes from its start.
    fn read(&self, copy: usize, offset: u64, buffer: &mut [u8]) -> Result<(), DeviceError>;
}

impl<S: PartSource + ?Sized> PartSource for &S {
    fn read(&self, copy: usize, offset: u64, buffer: &mut [u8]) -> Result<(), DeviceError> {
        (**self).read(copy, offset, buffer)
    }
}

/// What is read of a part in one piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Section {
    /// The index.
    Index,
    /// The leaf with this number.
    Leaf(u32),
}

impl fmt::Display for Section {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Index => write!(f, "the index"),
            Self::Leaf(leaf) => write!(f, "leaf {leaf}"),
        }
    }
}

/// Something of a part that no copy gives.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{section} of part {part}: {}; the other copy: {}", copies[0], copies[1])]
pub struct PartError {
    /// Number of the part.
    pub part: u64,
    /// What could not be read.
    pub section: Section,
    /// Why not, for each copy.
    pub copies: [String; COPIES],
}

/// One copy of something in a part that was bad, although the other may have been good.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadCopy {
    /// Which copy.
    pub copy: usize,
    /// What of it.
    pub section: Section,
    /// What is wrong with it.
    pub why: String,
}

/// Where a leaf is, and with which key it begins.
#[derive(Clone, Copy, Debug)]
struct LeafPlace {
    first: Key,
    offset: u32,
    bytes: u32,
    crc: u32,
}

/// A part that is being read.
#[derive(Debug)]
pub struct PartReader<S> {
    id: PartId,
    summary: PartSummary,
    index: Vec<LeafPlace>,
    source: S,
    bad: Mutex<BTreeMap<(usize, Section), String>>,
}

impl<S: PartSource> PartReader<S> {
    /// Reads the index.
    pub fn open(summary: &PartSummary, uuid: [u8; 16], source: S) -> Result<Self, PartError> {
        let id = PartId { uuid, number: summary.number };
        let bad = Mutex::default();
        let mut reader = Self { id, summary: *summary, index: Vec::new(), source, bad };
        let index = reader.either_copy(Section::Index, |copy| reader.read_index(copy))?;
        reader.index = index;
        Ok(reader)
    }

    /// How many leaves it has; at least one.
    pub fn leaves(&self) -> usize {
        self.index.len()
    }

    /// The leaf in which a key is if it is in the part.
    pub fn leaf_of(&self, key: Key) -> usize {
        self.index.partition_point(|place| place.first <= key).saturating_sub(1)
    }

    /// Reads a leaf.
    pub fn leaf(&self, leaf: usize) -> Result<Arc<Leaf>, PartError> {
        self.either_copy(Section::Leaf(count(leaf)), |copy| self.read_leaf(leaf, copy))
    }

    /// A cursor at the first row whose key is not below `key`.
    pub fn cursor_from(self, key: Key) -> Result<PartCursor<S>, PartError> {
        let number = self.leaf_of(key);
        let leaf = self.leaf(number)?;
        let row = leaf.lower_bound(key);
        let mut cursor = PartCursor {
            reader: self,
            number,
            leaf,
            row,
            ahead: Vec::new(),
            ahead_at: 0,
            ahead_bytes: LEAF_BYTES,
        };
        if cursor.row == cursor.leaf.len() {
            cursor.next_leaf()?;
        }
        Ok(cursor)
    }

    /// Reads everything of one copy, for [`PartReader::bad_copies`] to tell what is bad.
    pub fn verify_copy(&self, copy: usize) {
        let note = |section, outcome: Result<(), String>| {
            if let Err(why) = outcome {
                self.note(copy, section, why);
            }
        };
        note(Section::Index, self.read_index(copy).map(drop));
        for leaf in 0..self.leaves() {
            note(Section::Leaf(count(leaf)), self.read_leaf(leaf, copy).map(drop));
        }
    }

    /// What has turned out to be bad so far, by copy.
    pub fn bad_copies(&self) -> Vec<BadCopy> {
        let bad = self.bad.lock().expect("no holder panicked");
        let each = |(&(copy, section), why): (&(usize, Section), &String)| BadCopy {
            copy,
            section,
            why: why.clone(),
        };
        bad.iter().map(each).collect()
    }

    fn note(&self, copy: usize, section: Section, why: String) {
        self.bad.lock().expect("no holder panicked").insert((copy, section), why);
    }

    fn either_copy<T>(
        &self,
        section: Section,
        read: impl Fn(usize) -> Result<T, String>,
    ) -> Result<T, PartError> {
        let mut copies = [const { String::new() }; COPIES];
        for (copy, why) in copies.iter_mut().enumerate() {
            match read(copy) {
                Ok(section) => return Ok(section),
                Err(error) => {
                    self.note(copy, section, error.clone());
                    *why = error;
                }
            }
        }
        Err(PartError { part: self.id.number, section, copies })
    }

    fn read_index(&self, copy: usize) -> Result<Vec<LeafPlace>, String> {
        let PartSummary { bytes, index_at, index_bytes, index_crc, .. } = self.summary;
        let end = index_at.checked_add(index_bytes);
        if bytes > PART_BYTES_MAX || end.is_none_or(|end| end > bytes) {
            return Err(format!("an index of {index_bytes} bytes at {index_at} of {bytes}"));
        }
        let blocks = self.read_blocks(copy, index_at, index_bytes as usize)?;
        let section = &blocks[index_at as usize % BLOCK_BYTES..][..index_bytes as usize];
        let (header, body) = verify(self.id, section, (*b"FRIX", None, index_crc))?;
        index_of(&self.summary, header.leaf.get(), body)
    }

    fn read_leaf(&self, leaf: usize, copy: usize) -> Result<Arc<Leaf>, String> {
        let LeafPlace { offset, bytes, .. } = self.index[leaf];
        let blocks = self.read_blocks(copy, offset, bytes as usize)?;
        self.decode_leaf(leaf, &blocks[offset as usize % BLOCK_BYTES..])
    }

    /// Whole blocks around `bytes` bytes from `offset` on, which are in the part.
    fn read_blocks(&self, copy: usize, offset: u32, bytes: usize) -> Result<Vec<u8>, String> {
        let within = offset as usize % BLOCK_BYTES;
        let mut blocks = vec![0; (within + bytes).next_multiple_of(BLOCK_BYTES)];
        let start = u64::from(offset) - within as u64;
        self.source.read(copy, start, &mut blocks).map_err(|error| error.to_string())?;
        Ok(blocks)
    }

    /// The leaf that begins at the start of `bytes`.
    fn decode_leaf(&self, leaf: usize, bytes: &[u8]) -> Result<Arc<Leaf>, String> {
        let place = &self.index[leaf];
        let section = bytes.get(..place.bytes as usize).ok_or("it is cut off")?;
        let (_, body) = verify(self.id, section, (*b"FRLF", Some(count(leaf)), place.crc))?;
        let decoded = decode(body)?;
        let (Some(first), Some(last)) = (decoded.first(), decoded.last()) else {
            return Err("it has no rows".into());
        };
        let is_below_next = match self.index.get(leaf + 1) {
            Some(next) => last < next.first,
            None => last == self.summary.last,
        };
        if first != place.first || !is_below_next {
            return Err(format!("{first:?} to {last:?} does not fit the index"));
        }
        Ok(Arc::new(decoded))
    }
}

/// Whether a section is what it is expected to be: magic, leaf if it matters, and CRC.
fn verify(
    id: PartId,
    section: &[u8],
    (magic, leaf, crc): ([u8; 4], Option<u32>, u32),
) -> Result<(PartHeader, &[u8]), String> {
    let Ok((header, body)) = PartHeader::read_from_prefix(section) else {
        return Err(format!("{} bytes, too short", section.len()));
    };
    if header.magic != magic {
        return Err("no magic".into());
    }
    if header.version.get() != VERSION {
        return Err(format!("version {}, this program knows {VERSION}", header.version));
    }
    if header.part.get() != id.number || leaf.is_some_and(|leaf| leaf != header.leaf.get()) {
        return Err(format!("leaf {} of part {}", header.leaf, header.part));
    }
    if header.body_bytes.get() as usize != body.len() {
        return Err(format!("{} bytes, its header says {}", body.len(), header.body_bytes));
    }
    if header.crc.get() != crc || checksum(id.uuid, section) != crc {
        return Err("checksum mismatch".into());
    }
    Ok((header, body))
}

/// Decodes the body of an index: leaves one behind the other, in ascending order, and not so large
/// that reading one would take much memory.
fn index_of(summary: &PartSummary, leaves: u32, body: &[u8]) -> Result<Vec<LeafPlace>, String> {
    let Ok(entries) = <[IndexEntry]>::ref_from_bytes(body) else {
        return Err(format!("an index of {} bytes", body.len()));
    };
    if entries.len() != leaves as usize || entries.is_empty() {
        return Err(format!("{leaves} leaves, {} in the index", entries.len()));
    }
    let mut index: Vec<LeafPlace> = Vec::with_capacity(entries.len());
    let mut end = 0;
    for entry in entries {
        let kind = RowKind::from_code(entry.kind).ok_or_else(|| format!("kind {}", entry.kind))?;
        let first = Key::new(kind, entry.owner.get(), entry.at.get());
        let (offset, bytes) = (entry.offset.get(), entry.bytes.get());
        let is_next = index.last().map_or(first == summary.first, |before| before.first < first);
        let begins = end;
        end = offset.saturating_add(bytes);
        let is_sound = bytes as usize <= HEADER_BYTES + STORED_BYTES_MAX
            && offset >= begins
            && end <= summary.index_at;
        if !is_next || !is_sound {
            return Err(format!("a leaf of {bytes} bytes at {offset} from {first:?} on"));
        }
        index.push(LeafPlace { first, offset, bytes, crc: entry.crc.get() });
    }
    Ok(index)
}

/// A cursor over a part. It reads more and more ahead, from the first copy.
#[derive(Debug)]
pub struct PartCursor<S> {
    reader: PartReader<S>,
    number: usize,
    leaf: Arc<Leaf>,
    row: usize,
    /// Whole blocks of the part from `ahead_at` on.
    ahead: Vec<u8>,
    ahead_at: usize,
    /// How many bytes to read ahead next time.
    ahead_bytes: usize,
}

impl<S: PartSource> PartCursor<S> {
    /// The part.
    pub fn reader(&self) -> &PartReader<S> {
        &self.reader
    }

    /// Goes to the next leaf, or behind the last row. After an error it is where it was.
    fn next_leaf(&mut self) -> Result<(), PartError> {
        let next = self.number + 1;
        if next == self.reader.leaves() {
            self.row = self.leaf.len();
            return Ok(());
        }
        self.leaf = self.leaf_ahead(next)?;
        self.number = next;
        self.row = 0;
        Ok(())
    }

    fn leaf_ahead(&mut self, leaf: usize) -> Result<Arc<Leaf>, PartError> {
        let place = self.reader.index[leaf];
        let offset = place.offset as usize;
        let found = |ahead: &[u8], ahead_at: usize| {
            let at = offset.checked_sub(ahead_at)?;
            self.reader.decode_leaf(leaf, ahead.get(at..)?).ok()
        };
        if let Some(leaf) = found(&self.ahead, self.ahead_at) {
            return Ok(leaf);
        }
        let rest = (self.reader.summary.index_at - place.offset) as usize;
        let bytes = self.ahead_bytes.min(rest).max(place.bytes as usize);
        if let Ok(blocks) = self.reader.read_blocks(0, place.offset, bytes) {
            self.ahead_at = offset - offset % BLOCK_BYTES;
            self.ahead = blocks;
            self.ahead_bytes = (2 * self.ahead_bytes).min(AHEAD_BYTES);
            if let Some(leaf) = found(&self.ahead, self.ahead_at) {
                return Ok(leaf);
            }
        }
        self.reader.leaf(leaf)
    }
}

impl<S: PartSource> Cursor for PartCursor<S> {
    fn peek(&self) -> Option<(Key, Option<&[u8]>)> {
        let is_row = self.row < self.leaf.len();
        is_row.then(|| (self.leaf.key(self.row), self.leaf.value(self.row)))
    }

    fn advance(&mut self) -> Result<(), PartError> {
        if self.row + 1 < self.leaf.len() {
            self.row += 1;
            return Ok(());
        }
        if self.row < self.leaf.len() { self.next_leaf() } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use proptest::prelude::*;

    use super::super::sample::{Maps, Rows, any_key, any_rows, borrowed, file_rows, map_rows};
    use super::*;

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
        fn a_cursor_from_any_key_is_a_range(rows in any_rows(300), keys in proptest::collection::vec(any_key(), 8)) {
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
        fn a_changed_byte_is_found(place in any::<proptest::sample::Index>(), bit in 0..8u8) {
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

        /// Whatever a copy holds, with checksums that are right even: rows in order, or an error.
        #[test]
        fn any_index_is_read_or_refused(
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
            let _ = all_of(&summary, &Memory::of(&bytes));
        }
    }

    #[test]
    fn a_leaf_of_another_part_or_file_system_is_refused() {
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
    fn what_one_copy_has_lost_the_other_gives() {
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
    fn parts_stay_within_their_bound() {
        for bytes_max in [64 << 10, 100_000, 256 << 10] {
            let rows = map_rows(60_000, Maps::Scattered);
            let mut parts = Vec::new();
            let new = || PartBuilder::new(PartId { uuid: UUID, number: 1 }, bytes_max);
            let mut builder = new();
            for (key, value) in borrowed(&rows) {
                builder.push(key, value);
                if builder.is_full() {
                    parts.push(std::mem::replace(&mut builder, new()).finish());
                }
            }
            assert!(!parts.is_empty(), "they fit into one of {bytes_max}");
            for part in &parts {
                assert!(part.bytes.len() <= bytes_max, "{} of {bytes_max}", part.bytes.len());
                assert!(part.bytes.len() > bytes_max / 2, "{} of {bytes_max}", part.bytes.len());
            }
        }
    }

    /// A scan reads the drive in large pieces, a look-up reads one leaf.
    #[test]
    fn a_cursor_reads_ahead() {
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
}
