//! The builder of a part: it encodes rows as leaves, and appends the index at the end.

use zerocopy::IntoBytes;
use zonal::crc32c;

use super::{
    BuiltPart, ENTRY_BYTES, HEADER_BYTES, INDEX_MAGIC, IndexEntry, KeyRange, LEAF_MAGIC,
    LOST_BYTES, LostEntry, PART_BYTES_MAX, PartHeader, PartId, PartSummary, checksum, count,
};
use crate::furrow::format::{BLOCK_BYTES, VERSION};
use crate::furrow::table::key::{Key, RowKind};
use crate::furrow::table::leaf::{LEAF_BYTES, LeafBuilder, MAP_LEAF_BYTES};
use crate::vfs::Ino;

/// Bytes that a part reserves for its next row: only a large attribute takes more.
const NEXT_ROW_BYTES: usize = 8 << 10;

/// Encodes rows as a part.
#[derive(Debug)]
pub struct PartBuilder {
    id: PartId,
    bytes_max: usize,
    bytes: Vec<u8>,
    index: Vec<IndexEntry>,
    leaf: LeafBuilder,
    /// First key of the part and of the current leaf.
    first: Option<(Key, Key)>,
    last: Key,
    rows: u32,
    tombstones: u32,
    lost: Vec<KeyRange>,
}

impl PartBuilder {
    /// A builder without rows, for a part of about `bytes_max` bytes: at most half of
    /// [`PART_BYTES_MAX`].
    pub fn new(id: PartId, bytes_max: usize) -> Self {
        Self {
            id,
            bytes_max: bytes_max.min(PART_BYTES_MAX as usize / 2),
            bytes: Vec::new(),
            index: Vec::new(),
            leaf: LeafBuilder::new(),
            first: None,
            last: Key::MIN,
            rows: 0,
            tombstones: 0,
            lost: Vec::new(),
        }
    }

    /// Adds a lost range, which must be above those before.
    pub fn push_lost(&mut self, (first, last): KeyRange) {
        let before = self.lost.last();
        assert!(first <= last && before.is_none_or(|before| before.1 < first), "{first:?}");
        self.lost.push((first, last));
    }

    /// Key of the last row, if there is one.
    pub fn last(&self) -> Option<Key> {
        (self.rows > 0).then_some(self.last)
    }

    /// Adds a row, whose key must be above all before it; `None` is a tombstone.
    pub fn push(&mut self, key: Key, value: Option<&[u8]>) {
        assert!(self.rows == 0 || key > self.last, "{key:?} after {:?}", self.last);
        if !self.leaf.is_empty() && is_apart(self.last, key) {
            self.end_leaf();
        }
        let (first, _) = self.first.unwrap_or((key, key));
        if self.leaf.is_empty() {
            self.first = Some((first, key));
        }
        self.leaf.push(key, value);
        self.last = key;
        self.rows += 1;
        self.tombstones += u32::from(value.is_none());
        let enough = if key.kind() == RowKind::Map { MAP_LEAF_BYTES } else { LEAF_BYTES };
        if self.leaf.raw_bytes() >= enough {
            self.end_leaf();
        }
    }

    /// Whether the next row should begin another part. If the caller heeds this, the part takes at
    /// most `bytes_max` bytes, unless it has a single row, or its last row takes more than 8 KiB.
    pub fn is_full(&self) -> bool {
        self.bytes_about() > self.bytes_max
    }

    /// Whether the part should end even if that cuts a lost range in two.
    pub fn is_overfull(&self) -> bool {
        self.bytes_about() > self.bytes_max + self.bytes_max / 2
    }

    /// Bytes of the part with another row, at most.
    fn bytes_about(&self) -> usize {
        let lost = (self.lost.len() + 1) * LOST_BYTES;
        let index = HEADER_BYTES + (self.index.len() + 2) * ENTRY_BYTES + lost;
        // A leaf never stores its columns in more bytes than they have.
        let leaf = 2 * HEADER_BYTES + self.leaf.raw_bytes() + NEXT_ROW_BYTES;
        self.bytes.len() + leaf + index
    }

    /// The part, which must have at least one row or lost range.
    pub fn finish(mut self) -> BuiltPart {
        if !self.leaf.is_empty() {
            self.end_leaf();
        }
        let rows = self.first.map(|(first, _)| (first, self.last));
        let ranges = || rows.into_iter().chain(self.lost.iter().copied());
        let first = ranges().map(|(first, _)| first).min().expect("a part has something");
        let last = ranges().map(|(_, last)| last).max().expect("a part has something");
        let index_at = self.bytes.len();
        let leaves = count(self.index.len());
        let lost: Vec<LostEntry> = self.lost.iter().map(lost_entry).collect();
        let index = [self.index.as_bytes(), lost.as_bytes()].concat();
        let index_crc = self.put(INDEX_MAGIC, leaves, &index);
        let index_bytes = self.bytes.len() - index_at;
        self.bytes.resize(self.bytes.len().next_multiple_of(BLOCK_BYTES), 0);
        let summary = PartSummary {
            number: self.id.number,
            first,
            last,
            rows: self.rows,
            tombstones: self.tombstones,
            lost: count(lost.len()),
            bytes: count(self.bytes.len()),
            index_at: count(index_at),
            index_bytes: count(index_bytes),
            index_crc,
            moved_below: u64::MAX,
        };
        BuiltPart { bytes: self.bytes, summary }
    }

    fn end_leaf(&mut self) {
        let (_, first) = self.first.expect("it has rows");
        let (offset, number) = (self.bytes.len(), count(self.index.len()));
        let leaf = self.leaf.finish();
        let crc = self.put(LEAF_MAGIC, number, &leaf);
        self.index.push(IndexEntry {
            owner: first.owner().into(),
            at: first.at().into(),
            last_owner: self.last.owner().into(),
            last_at: self.last.at().into(),
            offset: count(offset).into(),
            bytes: count(self.bytes.len() - offset).into(),
            crc: crc.into(),
            kind: first.kind().code(),
            last_kind: self.last.kind().code(),
            reserved: [0; 2],
        });
    }

    /// Appends a header and its body, and returns the checksum of both.
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

/// Whether two rows must not share a leaf. Inodes near the root change as often as the root itself,
/// so a leaf with rows of the root and of others could span most keys, and losing it would hide
/// them all.
fn is_apart(last: Key, next: Key) -> bool {
    let is_root = |key: Key| (key.kind().group(), key.owner()) == (1, Ino::ROOT.get());
    last.kind().group() != next.kind().group() || is_root(last) != is_root(next)
}

fn lost_entry((first, last): &KeyRange) -> LostEntry {
    LostEntry {
        owner: first.owner().into(),
        at: first.at().into(),
        last_owner: last.owner().into(),
        last_at: last.at().into(),
        kind: first.kind().code(),
        last_kind: last.kind().code(),
        reserved: [0; 6],
    }
}
