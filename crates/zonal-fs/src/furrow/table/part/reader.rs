//! Reading a part: the index when it is opened, leaves when they are needed, each from a good copy.

use std::collections::BTreeMap;
use std::mem::size_of;
use std::sync::{Arc, Mutex};

use zerocopy::FromBytes;

use super::{
    BadCopy, COPIES, HEADER_BYTES, IndexEntry, PART_BYTES_MAX, PartError, PartHeader, PartId,
    PartSource, PartSummary, Section, checksum, count,
};
use crate::furrow::format::{BLOCK_BYTES, VERSION};
use crate::furrow::table::key::{Key, RowKind};
use crate::furrow::table::leaf::{LEAF_BYTES, Leaf, STORED_BYTES_MAX, decode};
use crate::furrow::table::merge::Cursor;

/// Bytes that a cursor reads ahead at most.
const AHEAD_BYTES: usize = 256 << 10;

/// Where a leaf is, and with which keys it begins and ends.
#[derive(Clone, Copy, Debug)]
pub(super) struct LeafPlace {
    first: Key,
    last: Key,
    pub(super) offset: u32,
    pub(super) bytes: u32,
    crc: u32,
}

/// Where the leaves of a part are.
#[derive(Debug)]
pub struct PartIndex(Vec<LeafPlace>);

impl PartIndex {
    /// How many leaves the part has; at least one.
    pub fn leaves(&self) -> usize {
        self.0.len()
    }

    /// The leaf in which a key is if it is in the part.
    pub fn leaf_of(&self, key: Key) -> usize {
        self.0.partition_point(|place| place.first <= key).saturating_sub(1)
    }

    /// The first key of a leaf.
    pub fn first_of(&self, leaf: usize) -> Key {
        self.0[leaf].first
    }

    /// The last key of a leaf.
    pub fn last_of(&self, leaf: usize) -> Key {
        self.0[leaf].last
    }

    /// The first leaf that has a key which is not below this one; [`leaves`](Self::leaves) if there is none.
    pub fn leaf_from(&self, key: Key) -> usize {
        self.0.partition_point(|place| place.last < key)
    }

    /// Where a leaf begins, in bytes from the part's start, and its bytes.
    pub fn place_of(&self, leaf: usize) -> (u32, u32) {
        (self.0[leaf].offset, self.0[leaf].bytes)
    }

    /// Bytes of memory.
    pub fn weight(&self) -> usize {
        size_of::<Self>() + self.0.capacity() * size_of::<LeafPlace>()
    }
}

/// A part that is being read.
#[derive(Debug)]
pub struct PartReader<S> {
    id: PartId,
    summary: PartSummary,
    index: Arc<PartIndex>,
    source: S,
    bad: Mutex<BTreeMap<(usize, Section), String>>,
}

impl<S: PartSource> PartReader<S> {
    /// Reads the index.
    pub fn open(summary: &PartSummary, uuid: [u8; 16], source: S) -> Result<Self, PartError> {
        let mut reader = Self::with_index(summary, uuid, source, Arc::new(PartIndex(Vec::new())));
        let index = reader.either_copy(Section::Index, |copy| reader.read_index(copy))?;
        reader.index = Arc::new(PartIndex(index));
        Ok(reader)
    }

    /// Takes an index that has been read before.
    pub fn with_index(
        summary: &PartSummary,
        uuid: [u8; 16],
        source: S,
        index: Arc<PartIndex>,
    ) -> Self {
        let id = PartId { uuid, number: summary.number };
        Self { id, summary: *summary, index, source, bad: Mutex::default() }
    }

    /// Where the leaves are.
    pub fn index(&self) -> &Arc<PartIndex> {
        &self.index
    }

    /// The same, leaf by leaf.
    #[cfg(test)]
    pub(super) fn places(&self) -> &[LeafPlace] {
        &self.index.0
    }

    /// How many leaves it has; at least one.
    pub fn leaves(&self) -> usize {
        self.index.leaves()
    }

    /// The leaf in which a key is if it is in the part.
    pub fn leaf_of(&self, key: Key) -> usize {
        self.index.leaf_of(key)
    }

    /// Reads a leaf.
    pub fn leaf(&self, leaf: usize) -> Result<Arc<Leaf>, PartError> {
        self.either_copy(Section::Leaf(count(leaf)), |copy| self.read_leaf(leaf, copy))
    }

    /// Reads up to `count` leaves from `first` on at once, those that are good in the first copy.
    pub fn leaves_ahead(&self, first: usize, count: usize) -> Vec<Arc<Leaf>> {
        let places = self.index.0.get(first..).unwrap_or_default();
        let start = places.first().map_or(0, |place| place.offset);
        let ends = places.iter().take(count).map(|place| {
            let offset = place.offset.checked_sub(start)?;
            Some(offset as usize + place.bytes as usize)
        });
        let ends: Vec<usize> =
            ends.map_while(|end| end.filter(|end| *end <= AHEAD_BYTES)).collect();
        let Some(bytes) = ends.iter().copied().max() else { return Vec::new() };
        let Ok(blocks) = self.read_blocks(0, start, bytes) else { return Vec::new() };
        let within = start as usize % BLOCK_BYTES;
        let leaves = (first..).zip(&ends).map_while(|(leaf, end)| {
            let offset = end - self.index.0[leaf].bytes as usize;
            self.decode_leaf(leaf, &blocks[within + offset..]).ok()
        });
        leaves.collect()
    }

    /// A cursor at the first row whose key is not below `key`.
    pub fn cursor_from(self, key: Key) -> Result<PartCursor<S>, PartError> {
        let number = self.index.leaf_from(key).min(self.leaves() - 1);
        let leaf = self.leaf(number)?;
        let row = leaf.lower_bound(key);
        Ok(PartCursor {
            reader: self,
            number,
            leaf,
            row,
            ahead: Vec::new(),
            ahead_at: 0,
            ahead_bytes: LEAF_BYTES,
        })
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
        let LeafPlace { offset, bytes, .. } = self.index.0[leaf];
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
        let place = &self.index.0[leaf];
        let section = bytes.get(..place.bytes as usize).ok_or("it is cut off")?;
        let (_, body) = verify(self.id, section, (*b"FRLF", Some(count(leaf)), place.crc))?;
        let decoded = decode(body)?;
        let (Some(first), Some(last)) = (decoded.first(), decoded.last()) else {
            return Err("it has no rows".into());
        };
        if (first, last) != (place.first, place.last) {
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

/// Decodes the body of an index: leaves in ascending order, and not so large that reading one would
/// take much memory.
fn index_of(summary: &PartSummary, leaves: u32, body: &[u8]) -> Result<Vec<LeafPlace>, String> {
    let Ok(entries) = <[IndexEntry]>::ref_from_bytes(body) else {
        return Err(format!("an index of {} bytes", body.len()));
    };
    if entries.len() != leaves as usize || entries.is_empty() {
        return Err(format!("{leaves} leaves, {} in the index", entries.len()));
    }
    let mut index: Vec<LeafPlace> = Vec::with_capacity(entries.len());
    for entry in entries {
        let kind = |code| RowKind::from_code(code).ok_or_else(|| format!("kind {code}"));
        let first = Key::new(kind(entry.kind)?, entry.owner.get(), entry.at.get());
        let last = Key::new(kind(entry.last_kind)?, entry.last_owner.get(), entry.last_at.get());
        let (offset, bytes) = (entry.offset.get(), entry.bytes.get());
        let is_next = index.last().map_or(first == summary.first, |before| before.last < first);
        let is_sound = bytes as usize <= HEADER_BYTES + STORED_BYTES_MAX
            && offset.checked_add(bytes).is_some_and(|end| end <= summary.index_at);
        if !is_next || !is_sound || first > last {
            return Err(format!("a leaf of {bytes} bytes at {offset} from {first:?} on"));
        }
        index.push(LeafPlace { first, last, offset, bytes, crc: entry.crc.get() });
    }
    if index.last().map(|place| place.last) != Some(summary.last) {
        return Err(format!("the last leaf does not end at {:?}", summary.last));
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
        let place = self.reader.index.0[leaf];
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
