//! Parts: a few MiB of sorted rows, written at once in two copies (an SST of other stores).
//!
//! A part is a sequence of leaves and then the index, which has the place and the first and last
//! key of each leaf: so a lost leaf hides only the keys between these. Rows of two groups never
//! share a leaf, nor do rows of the root and of others. Each leaf and the index has a header with a
//! checksum, so a reader verifies it by itself, and reads the other copy if it is bad. The index
//! also has the lost ranges: keys whose rows no copy gave when the part was written. For such a key
//! only a leaf of the part can have a row. A [`PartSummary`], which the manifest contains, leads to
//! a part.
//!
//! This file has the format; [`builder`] writes a part, [`reader`] finds rows in it.

pub mod builder;
pub mod reader;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::mem::size_of;

use zerocopy::byteorder::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};
use zonal::DeviceError;
use zonal::crc32c;

use super::key::Key;
use crate::FsError;
use crate::furrow::format::Unread;

pub use self::builder::PartBuilder;
pub use self::reader::{PartCursor, PartIndex, PartReader};

/// Copies of a part.
pub const COPIES: usize = 2;

/// Largest part that is read: four times the largest that is written. It bounds the memory that a
/// damaged size can demand.
pub const PART_BYTES_MAX: u32 = 32 << 20;

/// First bytes of a leaf.
pub const LEAF_MAGIC: [u8; 4] = *b"FRLF";

/// First bytes of the index of a part.
pub const INDEX_MAGIC: [u8; 4] = *b"FRIX";

/// Header of each leaf of a part, and of its index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct PartHeader {
    /// `FRLF` for a leaf, `FRIX` for the index.
    pub magic: [u8; 4],
    /// CRC-32C of the file system's identity and bytes 8.. of header and body.
    pub crc: U32,
    /// Format version, 6.
    pub version: U16,
    /// Zero when written, ignored when read.
    pub reserved: U16,
    /// Leaf: its number in the part, from 0 on. Index: the number of leaves.
    pub leaf: U32,
    /// Number of the part, which no other part ever gets.
    pub part: U64,
    /// Bytes after this header.
    pub body_bytes: U32,
}

/// Entry of a leaf in the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct IndexEntry {
    /// First key: owner.
    pub owner: U64,
    /// First key: place.
    pub at: U64,
    /// Last key: owner.
    pub last_owner: U64,
    /// Last key: place.
    pub last_at: U64,
    /// Offset of its header from the start of the part, in bytes.
    pub offset: U32,
    /// Bytes, header included.
    pub bytes: U32,
    /// `crc` of its header.
    pub crc: U32,
    /// First key: group and kind.
    pub kind: u8,
    /// Last key: group and kind.
    pub last_kind: u8,
    /// Zero when written, ignored when read.
    pub reserved: [u8; 2],
}

/// A lost range: keys whose rows were lost before the part was written. In the index, behind all
/// leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct LostEntry {
    /// First key: owner.
    pub owner: U64,
    /// First key: place.
    pub at: U64,
    /// Last key: owner.
    pub last_owner: U64,
    /// Last key: place.
    pub last_at: U64,
    /// First key: group and kind.
    pub kind: u8,
    /// Last key: group and kind.
    pub last_kind: u8,
    /// Zero when written, ignored when read.
    pub reserved: [u8; 6],
}

const HEADER_BYTES: usize = size_of::<PartHeader>();
const ENTRY_BYTES: usize = size_of::<IndexEntry>();
const LOST_BYTES: usize = size_of::<LostEntry>();

const _: () = assert!(size_of::<PartHeader>() == 28);
const _: () = assert!(size_of::<IndexEntry>() == 48);
const _: () = assert!(size_of::<LostEntry>() == 40);

/// A range of keys: the first and the last one.
pub type KeyRange = (Key, Key);

/// Identity of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartId {
    /// Identity of the file system.
    pub uuid: [u8; 16],
    /// Number of the part, never used again.
    pub number: u64,
}

/// The entry of a part in the manifest, without its two addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartSummary {
    /// Number of the part.
    pub number: u64,
    /// Lowest key, of rows and lost ranges.
    pub first: Key,
    /// Highest key, of rows and lost ranges.
    pub last: Key,
    /// Rows, tombstones included.
    pub rows: u32,
    /// Tombstones.
    pub tombstones: u32,
    /// Ranges of keys that were lost before the part was written.
    pub lost: u32,
    /// Bytes, in whole blocks.
    pub bytes: u32,
    /// Offset of the index from the start of the part, in bytes.
    pub index_at: u32,
    /// Bytes of the index, its header included.
    pub index_bytes: u32,
    /// `crc` of the index's header.
    pub index_crc: u32,
    /// All remaps with a number below this one are applied in its rows.
    pub moved_below: u64,
}

/// A part that is ready to be written.
#[derive(Debug)]
pub struct BuiltPart {
    /// Whole blocks; the same in both copies.
    pub bytes: Vec<u8>,
    /// Its entry in the manifest.
    pub summary: PartSummary,
}

fn count(count: usize) -> u32 {
    u32::try_from(count).expect("a part is under 4 GiB")
}

/// CRC-32C of a file system's identity, then of a header and its body without magic and CRC.
fn checksum(uuid: [u8; 16], section: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&uuid), &section[8..])
}

/// Both copies of one part.
pub trait PartSource {
    /// Reads whole blocks of a copy. `offset`, in bytes from its start, is that of a whole block.
    fn read(&self, copy: usize, offset: u64, buffer: &mut [u8]) -> Result<(), DeviceError>;
}

impl<S: PartSource + ?Sized> PartSource for &S {
    fn read(&self, copy: usize, offset: u64, buffer: &mut [u8]) -> Result<(), DeviceError> {
        (**self).read(copy, offset, buffer)
    }
}

/// A section of a part that has a checksum of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Section {
    /// The index.
    Index,
    /// The leaf with this number.
    Leaf(u32),
    /// The lost range with this number in the index.
    Lost(u32),
}

impl fmt::Display for Section {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Index => write!(f, "the index"),
            Self::Leaf(leaf) => write!(f, "leaf {leaf}"),
            Self::Lost(range) => write!(f, "lost range {range}"),
        }
    }
}

/// The error of a section that neither copy gives.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{section} of part {part}: {}; the other copy: {}", copies[0], copies[1])]
pub struct PartError {
    /// Number of the part.
    pub part: u64,
    /// The section.
    pub section: Section,
    /// The reason for each copy.
    pub copies: [Unread; COPIES],
}

impl PartError {
    /// Whether the device has refused a read, which may succeed later.
    pub fn is_refused(&self) -> bool {
        self.copies.iter().any(|copy| matches!(copy, Unread::Device(_)))
    }
}

/// Sections of parts of which the device has refused to read a copy.
pub(in crate::furrow) type RefusedSections = BTreeMap<(u64, Section), PartError>;

/// The error of an operation that needs a section which neither copy gives.
#[expect(clippy::needless_pass_by_value, reason = "as map_err hands it on")]
pub(in crate::furrow) fn unread(error: PartError) -> FsError {
    let (what, why) = ("a part of the table", error.to_string());
    if error.is_refused() { FsError::Refused { what, why } } else { FsError::Corrupt { what, why } }
}

/// A position in sorted rows. A tombstone has no value.
pub trait Cursor {
    /// The current row; `None` behind the last one.
    fn peek(&self) -> Option<(Key, Option<&[u8]>)>;

    /// Goes to the next row. After an error the cursor has not moved.
    fn advance(&mut self) -> Result<(), PartError>;
}

/// A bad copy of a section. The other copy may be good.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadCopy {
    /// Which copy.
    pub copy: usize,
    /// The section.
    pub section: Section,
    /// The fault, in words.
    pub why: String,
}
