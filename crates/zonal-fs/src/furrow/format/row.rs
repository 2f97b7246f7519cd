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
    /// [`MapRow`], then its [`Place`].
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
    /// 1: what is mapped from the size on waits to be removed, which goes on after a mount. 0 else.
    pub reaping: u8,
    /// Zero when written, ignored when read.
    pub reserved: [u8; 3],
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

/// A run of blocks in a zone that several map entries share. Key: `id`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct ExtentRow {
    /// Its number, never 0 and never used again.
    pub id: U64,
    /// Zone.
    pub zone: U32,
    /// First block in the zone.
    pub block: U32,
    /// Map rows that refer to it.
    pub refs: U32,
    /// Zero when written, ignored when read.
    pub reserved: U32,
}

/// A piece of a file. Key: `ino`, `first`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct MapRow {
    /// File.
    pub ino: U64,
    /// First block of the file.
    pub first: U64,
    /// Blocks.
    pub blocks: U32,
    /// 0 preallocated space, which reads as zeroes; 1 blocks in a zone; 2 blocks of a shared extent.
    pub place: u8,
    /// Zero when written, ignored when read.
    pub reserved: [u8; 3],
}

/// Blocks of a map row in a zone, its own alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct ZonePlace {
    /// Zone.
    pub zone: U32,
    /// First block in the zone.
    pub block: U32,
}

/// Blocks of a map row in a shared extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct SharedPlace {
    /// The extent.
    pub extent: U64,
    /// Blocks of the extent before it.
    pub skip: U32,
}

/// What follows a [`MapRow`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place<'a> {
    /// Nothing: the space is preallocated.
    Preallocated,
    /// Where the blocks lie, and the checksum of each.
    Zone(ZonePlace, &'a [U32]),
    /// Whose blocks they are.
    Shared(SharedPlace),
}

impl Place<'_> {
    const fn raw(&self) -> u8 {
        match self {
            Self::Preallocated => 0,
            Self::Zone(..) => 1,
            Self::Shared(_) => 2,
        }
    }
}

impl MapRow {
    /// The row of `blocks` blocks; its place is filled in when it is encoded.
    pub const fn new(ino: u64, first: u64, blocks: u32) -> Self {
        let (ino, first, blocks) = (U64::new(ino), U64::new(first), U32::new(blocks));
        Self { ino, first, blocks, place: 0, reserved: [0; 3] }
    }
}

/// Bytes of the row of a map entry with `blocks` blocks in a zone; none for preallocated space.
pub const fn map_bytes(blocks: u32) -> u64 {
    let place = if blocks == 0 { 0 } else { size_of::<ZonePlace>() };
    (size_of::<RowHeader>() + size_of::<MapRow>() + place) as u64 + 4 * blocks as u64
}

/// Bytes of the row of a map entry whose blocks are shared.
pub const fn shared_map_bytes() -> u64 {
    (size_of::<RowHeader>() + size_of::<MapRow>() + size_of::<SharedPlace>()) as u64
}

/// Bytes of the row of a shared extent of `blocks` blocks.
pub const fn extent_bytes(blocks: u32) -> u64 {
    (size_of::<RowHeader>() + size_of::<ExtentRow>()) as u64 + 4 * blocks as u64
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
const _: () = assert!(size_of::<ExtentRow>() == 24);
const _: () = assert!(size_of::<MapRow>() == 24);
const _: () = assert!(size_of::<ZonePlace>() == 8);
const _: () = assert!(size_of::<SharedPlace>() == 12);

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
    /// A piece of a file and where it is.
    Map(MapRow, Place<'a>),
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
    let map;
    let (kind, fixed, tails): (RowKind, &[u8], [&[u8]; 2]) = match row {
        Row::Inode(row, target) => (RowKind::Inode, row.as_bytes(), [*target, &[]]),
        Row::Entry(row, name) => (RowKind::Entry, row.as_bytes(), [*name, &[]]),
        Row::Xattr(row, name, value) => (RowKind::Xattr, row.as_bytes(), [*name, *value]),
        Row::Extent(row, crcs) => (RowKind::Extent, row.as_bytes(), [crcs.as_bytes(), &[]]),
        Row::Map(row, place) => {
            map = MapRow { place: place.raw(), ..*row };
            let tails: [&[u8]; 2] = match place {
                Place::Preallocated => [&[], &[]],
                Place::Zone(place, crcs) => [place.as_bytes(), crcs.as_bytes()],
                Place::Shared(place) => [place.as_bytes(), &[]],
            };
            (RowKind::Map, map.as_bytes(), tails)
        }
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
    let row = decode_payload(kind, payload)
        .ok_or_else(|| format!("a {kind:?} row of {bytes} bytes that makes no sense"))?;
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
        RowKind::Map => {
            let (row, tail) = MapRow::read_from_prefix(payload).ok()?;
            Row::Map(row, decode_place(&row, tail)?)
        }
    })
}

fn decode_place<'a>(row: &MapRow, tail: &'a [u8]) -> Option<Place<'a>> {
    match row.place {
        0 => tail.is_empty().then_some(Place::Preallocated),
        1 => {
            let (place, tail) = ZonePlace::read_from_prefix(tail).ok()?;
            let crcs = <[U32]>::ref_from_bytes(tail).ok()?;
            (crcs.len() == row.blocks.get() as usize).then_some(Place::Zone(place, crcs))
        }
        2 => Some(Place::Shared(SharedPlace::read_from_bytes(tail).ok()?)),
        _ => None,
    }
}
