//! The reader of a part: it reads the index when it is opened and leaves on demand, each from a
//! good copy.

use std::collections::BTreeMap;
use std::mem::size_of;
use std::sync::Arc;

use zerocopy::FromBytes;

use super::{
    BadCopy, COPIES, Cursor, HEADER_BYTES, INDEX_MAGIC, IndexEntry, KeyRange, LEAF_MAGIC,
    LostEntry, PART_BYTES_MAX, PartError, PartHeader, PartId, PartSource, PartSummary, Section,
    checksum, count,
};
use crate::furrow::format::{BLOCK_BYTES, Unread, VERSION};
use crate::furrow::sync::Mutex;
use crate::furrow::table::key::{Key, RowKind};
use crate::furrow::table::leaf::{
    CachedLeaf, LEAF_BYTES, Leaf, STORED_BYTES_MAX, decode, decode_cached,
};

/// Most bytes that a cursor reads ahead.
const AHEAD_BYTES: usize = 256 << 10;

/// Place of a leaf, and its first and last key.
#[derive(Clone, Copy, Debug)]
pub(super) struct LeafPlace {
    first: Key,
    last: Key,
    pub(super) offset: u32,
    pub(super) bytes: u32,
    crc: u32,
}

/// The decoded index of a part: its leaves and its lost ranges.
#[derive(Debug, Default)]
pub struct PartIndex {
    places: Vec<LeafPlace>,
    lost: Vec<KeyRange>,
}

impl PartIndex {
    /// Number of leaves.
    pub fn leaves(&self) -> usize {
        self.places.len()
    }

    /// The first key of a leaf.
    pub fn first_of(&self, leaf: usize) -> Key {
        self.places[leaf].first
    }

    /// The last key of a leaf.
    pub fn last_of(&self, leaf: usize) -> Key {
        self.places[leaf].last
    }

    /// The first leaf with a key that is not below `key`; [`leaves`](Self::leaves) if there is
    /// none.
    pub fn leaf_from(&self, key: Key) -> usize {
        self.places.partition_point(|place| place.last < key)
    }

    /// Number of leaves with a key below `key`.
    pub fn leaves_below(&self, key: Key) -> usize {
        self.places.partition_point(|place| place.first < key)
    }

    /// Offset of a leaf from the start of the part, and its length, both in bytes.
    pub fn place_of(&self, leaf: usize) -> (u32, u32) {
        (self.places[leaf].offset, self.places[leaf].bytes)
    }

    /// The lost ranges, in order.
    pub fn lost(&self) -> &[KeyRange] {
        &self.lost
    }

    /// Bytes of memory.
    pub fn weight(&self) -> usize {
        let lost = self.lost.capacity() * size_of::<KeyRange>();
        size_of::<Self>() + self.places.capacity() * size_of::<LeafPlace>() + lost
    }
}

/// An open part.
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
        let mut reader = Self::with_index(summary, uuid, source, Arc::default());
        let index = reader.either_copy(Section::Index, |copy| reader.read_index(copy))?;
        reader.index = Arc::new(index);
        Ok(reader)
    }

    /// Opens a part whose index has been read before.
    pub fn with_index(
        summary: &PartSummary,
        uuid: [u8; 16],
        source: S,
        index: Arc<PartIndex>,
    ) -> Self {
        let id = PartId { uuid, number: summary.number };
        Self { id, summary: *summary, index, source, bad: Mutex::default() }
    }

    /// The index.
    pub fn index(&self) -> &Arc<PartIndex> {
        &self.index
    }

    /// The leaves in the index.
    #[cfg(test)]
    pub(super) fn places(&self) -> &[LeafPlace] {
        &self.index.places
    }

    /// Number of leaves.
    pub fn leaves(&self) -> usize {
        self.index.leaves()
    }

    /// Reads a leaf.
    pub fn leaf(&self, leaf: usize) -> Result<Arc<Leaf>, PartError> {
        self.either_copy(Section::Leaf(count(leaf)), |copy| self.read_leaf(leaf, copy))
    }

    /// Reads a leaf for the cache.
    pub fn cached_leaf(&self, leaf: usize) -> Result<Arc<CachedLeaf>, PartError> {
        self.either_copy(Section::Leaf(count(leaf)), |copy| self.read_leaf(leaf, copy))
    }

    /// Reads up to `count` leaves from `first` on with one read, for the cache. Returns those
    /// before the first one that is bad in copy 0.
    pub fn leaves_ahead(&self, first: usize, count: usize) -> Vec<Arc<CachedLeaf>> {
        let places = self.index.places.get(first..).unwrap_or_default();
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
            let offset = end - self.index.places[leaf].bytes as usize;
            self.decode_leaf(leaf, &blocks[within + offset..]).ok()
        });
        leaves.collect()
    }

    /// A cursor at the first row whose key is not below `key`.
    pub fn cursor_from(self, key: Key) -> Result<PartCursor<S>, PartError> {
        self.cursor(key, None)
    }

    /// As [`cursor_from`](Self::cursor_from), but the cursor skips leaves that no copy gives.
    pub fn cursor_past_losses(self, key: Key) -> PartCursor<S> {
        self.cursor(key, Some(Vec::new())).expect("it goes past what cannot be read")
    }

    fn cursor(
        self,
        key: Key,
        lost: Option<Vec<(KeyRange, PartError)>>,
    ) -> Result<PartCursor<S>, PartError> {
        let mut cursor = PartCursor {
            next: self.index.leaf_from(key),
            reader: self,
            leaf: Arc::default(),
            row: 0,
            lost,
            ahead: Vec::new(),
            ahead_at: 0,
            ahead_bytes: LEAF_BYTES,
        };
        cursor.next_leaf()?;
        cursor.row = cursor.leaf.lower_bound(key);
        Ok(cursor)
    }

    /// Reads all sections of one copy. [`PartReader::bad_copies`] then has the bad ones.
    pub fn verify_copy(&self, copy: usize) {
        let note = |section, outcome: Result<(), Unread>| {
            if let Err(why) = outcome {
                self.note(copy, section, why.into());
            }
        };
        note(Section::Index, self.read_index(copy).map(drop));
        for leaf in 0..self.leaves() {
            note(Section::Leaf(count(leaf)), self.read_leaf::<Leaf>(leaf, copy).map(drop));
        }
    }

    /// The bad sections found so far, by copy.
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
        read: impl Fn(usize) -> Result<T, Unread>,
    ) -> Result<T, PartError> {
        let mut copies = [const { Unread::Wrong(String::new()) }; COPIES];
        for (copy, why) in copies.iter_mut().enumerate() {
            match read(copy) {
                Ok(section) => return Ok(section),
                Err(error) => {
                    self.note(copy, section, error.to_string());
                    *why = error;
                }
            }
        }
        Err(PartError { part: self.id.number, section, copies })
    }

    fn read_index(&self, copy: usize) -> Result<PartIndex, Unread> {
        let PartSummary { bytes, index_at, index_bytes, index_crc, .. } = self.summary;
        let end = index_at.checked_add(index_bytes);
        if bytes > PART_BYTES_MAX || end.is_none_or(|end| end > bytes) {
            let why = format!("an index of {index_bytes} bytes at {index_at} of {bytes}");
            return Err(Unread::Wrong(why));
        }
        let blocks = self.read_blocks(copy, index_at, index_bytes as usize)?;
        let section = &blocks[index_at as usize % BLOCK_BYTES..][..index_bytes as usize];
        let (header, body) = verify(self.id, section, (INDEX_MAGIC, None, index_crc))?;
        Ok(index_of(&self.summary, header.leaf.get(), body)?)
    }

    fn read_leaf<L: Decoded>(&self, leaf: usize, copy: usize) -> Result<Arc<L>, Unread> {
        let LeafPlace { offset, bytes, .. } = self.index.places[leaf];
        let blocks = self.read_blocks(copy, offset, bytes as usize)?;
        Ok(self.decode_leaf(leaf, &blocks[offset as usize % BLOCK_BYTES..])?)
    }

    /// Reads the whole blocks around `bytes` bytes from `offset` on, which must be in the part.
    fn read_blocks(&self, copy: usize, offset: u32, bytes: usize) -> Result<Vec<u8>, Unread> {
        let within = offset as usize % BLOCK_BYTES;
        let mut blocks = vec![0; (within + bytes).next_multiple_of(BLOCK_BYTES)];
        let start = u64::from(offset) - within as u64;
        let outcome = self.source.read(copy, start, &mut blocks);
        outcome.map_err(|error| Unread::Device(error.to_string()))?;
        Ok(blocks)
    }

    /// The leaf that begins at the start of `bytes`.
    fn decode_leaf<L: Decoded>(&self, leaf: usize, bytes: &[u8]) -> Result<Arc<L>, String> {
        let place = &self.index.places[leaf];
        let section = bytes.get(..place.bytes as usize).ok_or("it is cut off")?;
        let (_, body) = verify(self.id, section, (LEAF_MAGIC, Some(count(leaf)), place.crc))?;
        let decoded = L::decode(body)?;
        let Some((first, last)) = decoded.range() else {
            return Err("it has no rows".into());
        };
        if (first, last) != (place.first, place.last) {
            return Err(format!("{first:?} to {last:?} does not fit the index"));
        }
        Ok(Arc::new(decoded))
    }
}

/// A decoded form of a leaf.
trait Decoded: Sized {
    fn decode(body: &[u8]) -> Result<Self, String>;

    fn range(&self) -> Option<KeyRange>;
}

impl Decoded for Leaf {
    fn decode(body: &[u8]) -> Result<Self, String> {
        decode(body)
    }

    fn range(&self) -> Option<KeyRange> {
        self.first().zip(self.last())
    }
}

impl Decoded for CachedLeaf {
    fn decode(body: &[u8]) -> Result<Self, String> {
        decode_cached(body)
    }

    fn range(&self) -> Option<KeyRange> {
        self.first().zip(self.last())
    }
}

/// Checks a section against its expected magic, number (`None` for the index) and CRC.
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

/// Decodes the body of an index. Leaves must be in ascending order and of a size that a builder
/// writes, so that reading one takes little memory; lost ranges must be in ascending order.
fn index_of(summary: &PartSummary, leaves: u32, body: &[u8]) -> Result<PartIndex, String> {
    let bad = || format!("{leaves} leaves in an index of {} bytes", body.len());
    let (entries, rest) =
        <[IndexEntry]>::ref_from_prefix_with_elems(body, leaves as usize).map_err(|_| bad())?;
    let lost_entries = <[LostEntry]>::ref_from_bytes(rest).map_err(|_| bad())?;
    let key = |code, owner, at| {
        let kind = RowKind::from_code(code).ok_or_else(|| format!("kind {code}"))?;
        Ok::<_, String>(Key::new(kind, owner, at))
    };
    let mut places: Vec<LeafPlace> = Vec::with_capacity(entries.len());
    for entry in entries {
        let first = key(entry.kind, entry.owner.get(), entry.at.get())?;
        let last = key(entry.last_kind, entry.last_owner.get(), entry.last_at.get())?;
        let (offset, bytes) = (entry.offset.get(), entry.bytes.get());
        let is_next = places.last().is_none_or(|before| before.last < first);
        let is_sound = bytes as usize <= HEADER_BYTES + STORED_BYTES_MAX
            && offset.checked_add(bytes).is_some_and(|end| end <= summary.index_at);
        if !is_next || !is_sound || first > last {
            return Err(format!("a leaf of {bytes} bytes at {offset} from {first:?} on"));
        }
        places.push(LeafPlace { first, last, offset, bytes, crc: entry.crc.get() });
    }
    let mut lost: Vec<KeyRange> = Vec::with_capacity(lost_entries.len());
    for entry in lost_entries {
        let first = key(entry.kind, entry.owner.get(), entry.at.get())?;
        let last = key(entry.last_kind, entry.last_owner.get(), entry.last_at.get())?;
        if first > last || lost.last().is_some_and(|before| before.1 >= first) {
            return Err(format!("a lost range from {first:?} to {last:?}"));
        }
        lost.push((first, last));
    }
    let firsts = [places.first().map(|place| place.first), lost.first().map(|range| range.0)];
    let lasts = [places.last().map(|place| place.last), lost.last().map(|range| range.1)];
    let ends = (firsts.into_iter().flatten().min(), lasts.into_iter().flatten().max());
    if ends != (Some(summary.first), Some(summary.last)) || lost.len() != summary.lost as usize {
        let (first, last) = (summary.first, summary.last);
        return Err(format!("it is not that of {first:?} to {last:?}, {} lost", summary.lost));
    }
    Ok(PartIndex { places, lost })
}

/// A cursor over a part. It reads ahead from copy 0, twice as much each time.
#[derive(Debug)]
pub struct PartCursor<S> {
    reader: PartReader<S>,
    /// Number of the next leaf.
    next: usize,
    leaf: Arc<Leaf>,
    row: usize,
    /// Leaves that it has skipped; `None` if it must not skip any.
    lost: Option<Vec<(KeyRange, PartError)>>,
    /// Whole blocks of the part from `ahead_at` on.
    ahead: Vec<u8>,
    ahead_at: usize,
    /// Bytes to read ahead next time.
    ahead_bytes: usize,
}

impl<S: PartSource> PartCursor<S> {
    /// The part.
    pub fn reader(&self) -> &PartReader<S> {
        &self.reader
    }

    /// Takes the ranges of the leaves that it has skipped since the last call.
    pub fn take_lost(&mut self) -> Vec<(KeyRange, PartError)> {
        self.lost.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Goes to the next leaf, or behind the last row. After an error the cursor has not moved.
    fn next_leaf(&mut self) -> Result<(), PartError> {
        while self.next < self.reader.leaves() {
            let found = self.leaf_ahead(self.next).or_else(|error| match &self.lost {
                // Skipping is final, so try once more.
                Some(_) => self.reader.leaf(self.next),
                None => Err(error),
            });
            let number = self.next;
            match (found, &mut self.lost) {
                (Ok(leaf), _) => {
                    (self.leaf, self.row) = (leaf, 0);
                    self.next += 1;
                    return Ok(());
                }
                (Err(error), None) => return Err(error),
                (Err(error), Some(lost)) => {
                    let index = &self.reader.index;
                    lost.push(((index.first_of(number), index.last_of(number)), error));
                    self.next += 1;
                }
            }
        }
        self.row = self.leaf.len();
        Ok(())
    }

    fn leaf_ahead(&mut self, leaf: usize) -> Result<Arc<Leaf>, PartError> {
        let place = self.reader.index.places[leaf];
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
