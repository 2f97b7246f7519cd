//! Rows: the metadata itself. A checkpoint is all rows in key order; a journal batch is the rows
//! that changed, each either put or deleted.
//!
//! A row is a [`RowHeader`], the fixed part of its kind, and a tail of variable length.

use std::mem::size_of;

use zerocopy::byteorder::little_endian::{I64, U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// What a row describes. The numbers are the order of a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum RowKind {
    /// [`InodeRow`], then the target of a symbolic link.
    Inode = 1,
    /// [`EntryRow`], then the name.
    Entry = 2,
    /// [`XattrRow`], then name and value.
    Xattr = 3,
    /// [`ExtentRow`], then a CRC-32C for each block.
    Extent = 4,
    /// [`MapRow`].
    Map = 5,
}

impl RowKind {
    fn from_raw(raw: u8) -> Option<Self> {
        [Self::Inode, Self::Entry, Self::Xattr, Self::Extent, Self::Map]
            .into_iter()
            .find(|kind| *kind as u8 == raw)
    }
}

/// Head of every row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct RowHeader {
    /// A [`RowKind`].
    pub kind: u8,
    /// 0 put, 1 delete. A deleted row carries only its key; its other fields are zero.
    pub deleted: u8,
    /// Zero when written, ignored when read.
    pub reserved: U16,
    /// Bytes after this header.
    pub bytes: U32,
}

/// An inode. Key: `ino`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct InodeRow {
    /// Its number, never used again after deletion.
    pub ino: U64,
    /// Length in bytes.
    pub size: U64,
    /// Last access, whole seconds since 1970, rounded down.
    pub atime: I64,
    /// Last change of the content, likewise.
    pub mtime: I64,
    /// Last change of the inode, likewise.
    pub ctime: I64,
    /// Birth, likewise.
    pub btime: I64,
    /// Directory: the directory it is in.
    pub parent: U64,
    /// Directory: cookie of the next entry made in it.
    pub next_cookie: U64,
    /// Entries that lead to it. 0: unlinked but open; recovery deletes it.
    pub nlink: U32,
    /// Owner.
    pub uid: U32,
    /// Group.
    pub gid: U32,
    /// Device number of a device node.
    pub rdev: U32,
    /// Permission bits, setuid, setgid, sticky.
    pub perm: U16,
    /// 1 regular, 2 directory, 3 symbolic link, 4 FIFO, 5 socket, 6 character, 7 block device.
    pub kind: u8,
    /// 1 immutable, 2 append-only, 4 no access time, 8 no dump, 16 synchronous writes.
    pub flags: u8,
    /// Nanoseconds after `atime`, under 1,000,000,000.
    pub atime_ns: U32,
    /// Nanoseconds after `mtime`.
    pub mtime_ns: U32,
    /// Nanoseconds after `ctime`.
    pub ctime_ns: U32,
    /// Nanoseconds after `btime`.
    pub btime_ns: U32,
    /// Zero when written, ignored when read.
    pub reserved: [u8; 4],
}

/// A directory entry. Key: `parent`, name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct EntryRow {
    /// Directory.
    pub parent: U64,
    /// Inode it leads to.
    pub ino: U64,
    /// Its place in a listing.
    pub cookie: U64,
}

/// An extended attribute. Key: `ino`, name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct XattrRow {
    /// Inode.
    pub ino: U64,
    /// Bytes of the name; the rest of the tail is the value.
    pub name_bytes: U32,
    /// Zero when written, ignored when read.
    pub reserved: U32,
}

/// A run of data blocks in a zone. Key: `id`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct ExtentRow {
    /// Its number, never 0 and never used again.
    pub id: U64,
    /// Zone.
    pub zone: U32,
    /// First block in the zone.
    pub block: U32,
    /// Blocks.
    pub blocks: U32,
    /// Map rows that refer to it.
    pub refs: U32,
    /// Blocks that one checksum covers, log₂; 0 in this version.
    pub unit_shift: u8,
    /// Zero when written, ignored when read.
    pub reserved: [u8; 7],
}

/// A piece of a file. Key: `ino`, `first`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct MapRow {
    /// File.
    pub ino: U64,
    /// First block of the file.
    pub first: U64,
    /// Extent that holds it; 0: preallocated space, which reads as zeroes.
    pub extent: U64,
    /// Blocks of the extent before it.
    pub skip: U32,
    /// Blocks.
    pub blocks: U32,
}

impl InodeRow {
    /// All fields zero, for a deletion.
    pub const ZERO: Self = zerocopy::transmute!([0u8; size_of::<Self>()]);
}

impl ExtentRow {
    /// All fields zero, for a deletion.
    pub const ZERO: Self = zerocopy::transmute!([0u8; size_of::<Self>()]);
}

const _: () = assert!(size_of::<RowHeader>() == 8);
const _: () = assert!(size_of::<InodeRow>() == 104);
const _: () = assert!(size_of::<EntryRow>() == 24);
const _: () = assert!(size_of::<XattrRow>() == 16);
const _: () = assert!(size_of::<ExtentRow>() == 32);
const _: () = assert!(size_of::<MapRow>() == 32);

/// A decoded row with its tail borrowed from the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Row<'a> {
    /// An inode and its link target.
    Inode(InodeRow, &'a [u8]),
    /// An entry and its name.
    Entry(EntryRow, &'a [u8]),
    /// An attribute, its name and its value.
    Xattr(XattrRow, &'a [u8], &'a [u8]),
    /// An extent and the checksums of its blocks.
    Extent(ExtentRow, &'a [U32]),
    /// A piece of a file.
    Map(MapRow),
}

/// Whether a row is there or gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowOp {
    /// It has these values now.
    Put,
    /// It is gone; only its key means something.
    Delete,
}

/// Appends a row.
pub fn encode(body: &mut Vec<u8>, op: RowOp, row: &Row<'_>) {
    let (kind, fixed, tails): (RowKind, &[u8], [&[u8]; 2]) = match row {
        Row::Inode(row, target) => (RowKind::Inode, row.as_bytes(), [*target, &[]]),
        Row::Entry(row, name) => (RowKind::Entry, row.as_bytes(), [*name, &[]]),
        Row::Xattr(row, name, value) => (RowKind::Xattr, row.as_bytes(), [*name, *value]),
        Row::Extent(row, crcs) => (RowKind::Extent, row.as_bytes(), [crcs.as_bytes(), &[]]),
        Row::Map(row) => (RowKind::Map, row.as_bytes(), [&[], &[]]),
    };
    let bytes = fixed.len() + tails[0].len() + tails[1].len();
    let header = RowHeader {
        kind: kind as u8,
        deleted: u8::from(op == RowOp::Delete),
        reserved: U16::new(0),
        bytes: U32::new(u32::try_from(bytes).expect("a row is under 4 GiB")),
    };
    body.extend_from_slice(header.as_bytes());
    body.extend_from_slice(fixed);
    body.extend_from_slice(tails[0]);
    body.extend_from_slice(tails[1]);
}

/// Takes the first row off `body`; `None` at its end.
pub fn decode<'a>(body: &mut &'a [u8]) -> Result<Option<(RowOp, Row<'a>)>, String> {
    if body.is_empty() {
        return Ok(None);
    }
    let short = || "a row longer than its record".to_owned();
    let (header, rest) = RowHeader::read_from_prefix(body).map_err(|_| short())?;
    let bytes = header.bytes.get() as usize;
    let (payload, rest) = rest.split_at_checked(bytes).ok_or_else(short)?;
    let kind = RowKind::from_raw(header.kind)
        .ok_or_else(|| format!("a row of unknown kind {}", header.kind))?;
    let row = decode_payload(kind, payload).ok_or_else(|| format!("a short {kind:?} row"))?;
    let op = if header.deleted == 0 { RowOp::Put } else { RowOp::Delete };
    *body = rest;
    Ok(Some((op, row)))
}

fn decode_payload(kind: RowKind, payload: &[u8]) -> Option<Row<'_>> {
    Some(match kind {
        RowKind::Inode => {
            let (row, target) = InodeRow::read_from_prefix(payload).ok()?;
            Row::Inode(row, target)
        }
        RowKind::Entry => {
            let (row, name) = EntryRow::read_from_prefix(payload).ok()?;
            Row::Entry(row, name)
        }
        RowKind::Xattr => {
            let (row, tail) = XattrRow::read_from_prefix(payload).ok()?;
            let (name, value) = tail.split_at_checked(row.name_bytes.get() as usize)?;
            Row::Xattr(row, name, value)
        }
        RowKind::Extent => {
            let (row, tail) = ExtentRow::read_from_prefix(payload).ok()?;
            Row::Extent(row, <[U32]>::ref_from_bytes(tail).ok()?)
        }
        RowKind::Map => Row::Map(MapRow::read_from_bytes(payload).ok()?),
    })
}
