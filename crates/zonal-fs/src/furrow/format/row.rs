//! Rows: the metadata itself. A row has a [`Key`] and a value, which is the fixed part of its kind
//! and a tail of variable length. The value does not repeat the key.

use std::borrow::Cow;
use std::mem::size_of;

use zerocopy::byteorder::little_endian::{I64, U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::backref::{self, Backref};
use super::key::{Key, RowKind};
use super::remap::{self, RemapRow};
use super::{Address, ZoneGeneration};
use crate::vfs::FileKind;

/// Bytes that a key takes in a leaf, as an estimate of the most.
const KEY_BYTES: usize = 8;

/// Totals of the file system after the batch that wrote the row. Blocks are of 4 KiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct TotalsRow {
    /// Number of the next inode.
    pub next_ino: U64,
    /// Number of the next shared extent.
    pub next_extent: U64,
    /// Inodes, unlinked ones included.
    pub inodes: U64,
    /// Live blocks of all zones.
    pub live: U64,
    /// Blocks preallocated to files, also for copies of shared blocks.
    pub preallocated: U64,
    /// Bytes of all rows of groups 1 to 3, uncompressed.
    pub row_bytes: U64,
    /// Bytes of those rows that say where data lies: map rows, extents and back-references.
    pub place_bytes: U64,
    /// The data clock: blocks of data that users have written over the file system's life.
    pub data_clock: U64,
}

/// A zone with live blocks. Key: its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct ZoneRow {
    /// Live blocks, never 0.
    pub live: U32,
    /// The block behind the last one that has been live since the zone was reset.
    pub end: U32,
    /// The data clock at the last write, for the age of a victim.
    pub last_write: U64,
    /// The data clock when its first block was written. If `moved` is 1: the mean over all its
    /// blocks of the clock when each was written.
    pub born: U64,
    /// Place (`at`) of the zone's next row of back-references.
    pub next_owners: U32,
    /// Bytes of its rows of back-references.
    pub owner_bytes: U32,
    /// 1: every live block has a back-reference in these rows. 0: some may have none.
    pub listed: u8,
    /// 1: reclaim has moved blocks to the zone. 0: users have written all of its blocks.
    pub moved: u8,
    /// Its generation, which map rows of its blocks name.
    pub generation: u8,
    /// Zero when written, ignored when read.
    pub reserved: u8,
}

/// Lifetimes and sizes that placement has learned for 64 contexts. Key: number of the row, so index
/// `i` of its arrays is slot 64 × key + `i`. Each number is a logarithm to base 2 with 8 bits
/// behind the point, linear between powers of two; 0: nothing was learned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct LearnedRow {
    /// Lifetime of data, in blocks of the data clock.
    pub lives: [U16; 64],
    /// Size of files at their deletion, in blocks.
    pub sizes: [U16; 64],
}

/// A range of a file that was discarded: it reads as zeroes, whatever map entries it still has.
/// Key: the inode, and the first block of the range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct DiscardRow {
    /// The block behind the range.
    pub limit: U64,
    /// 1: the file keeps the space that it has there. 0: it gets a hole.
    pub keeps_space: u8,
}

/// The kind of a regular file.
pub const REGULAR: u8 = 1;

/// Kinds by their number on disk.
const KINDS: [(u8, FileKind); 7] = [
    (REGULAR, FileKind::Regular),
    (2, FileKind::Directory),
    (3, FileKind::Symlink),
    (4, FileKind::Fifo),
    (5, FileKind::Socket),
    (6, FileKind::CharDevice),
    (7, FileKind::BlockDevice),
];

/// The kind with a number.
pub(in crate::furrow) fn kind_of(number: u8) -> Option<FileKind> {
    KINDS.into_iter().find(|(other, _)| *other == number).map(|(_, kind)| kind)
}

/// The number of a kind.
pub(in crate::furrow) fn number_of(kind: FileKind) -> u8 {
    let found = KINDS.into_iter().find(|(_, other)| *other == kind);
    found.expect("every kind has a number").0
}

/// An inode; then the target of a symbolic link. Key: its number, which no other inode ever gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct InodeRow {
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
    /// Directory: number of its parent directory.
    pub parent: U64,
    /// Directory: cookie of its next entry. File: 1 + the first block that waits to be freed, as do
    /// all mapped blocks behind it; 0: nothing waits. Else 0.
    pub next: U64,
    /// File: mapped blocks, with preallocated ones. Directory: entries. Else 0.
    pub count: U64,
    /// Links. 0: unlinked but open; recovery deletes the inode.
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
    pub reserved: u8,
    /// Directory: 1 if rows of names have the cookies of all its entries. Else 0.
    pub indexed: u8,
    /// File: 1 + the slot of the context in which it was created. 0: none.
    pub context: U16,
}

impl InodeRow {
    /// The first block of a file that waits to be freed, with all behind it.
    pub fn truncate_from(&self) -> Option<u64> {
        if self.kind == REGULAR { self.next.get().checked_sub(1) } else { None }
    }
}

/// A directory entry; then its name. Key: the directory, and the cookie of the entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct EntryRow {
    /// Inode that it names.
    pub ino: U64,
    /// The inode's kind.
    pub kind: u8,
}

/// An extended attribute; then its name and its value. Key: the inode, and the slot of the
/// attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct XattrRow {
    /// Bytes of the name; the rest of the tail is the value.
    pub name_bytes: U16,
}

/// A shared extent: a run of blocks in a zone that several map entries share; then a CRC-32C of
/// each block. Key: its number, never 0 and never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct ExtentRow {
    /// Zone.
    pub zone: U32,
    /// First block in the zone.
    pub block: U32,
    /// Map rows that name it.
    pub refs: U32,
}

/// A map entry: a run of blocks of a file; then its [`Place`]. Key: the file, and its first block
/// there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct MapRow {
    /// Number of blocks.
    pub blocks: U32,
    /// 0 preallocated space, which reads as zeroes; 1 blocks in a zone; 2 blocks of a shared
    /// extent; 3 the same, and the file has space for a copy of them.
    pub place: u8,
}

/// Place of a map row's own blocks: where they were written. Reclaim may have moved them since.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct ZonePlace {
    /// 4 × the zone's number + its generation.
    pub zone: U32,
    /// First block in the zone.
    pub block: U32,
}

impl ZonePlace {
    /// The place that begins at a block of a zone.
    pub const fn new(zone: ZoneGeneration, block: u32) -> Self {
        Self { zone: U32::new(zone.raw()), block: U32::new(block) }
    }

    /// The zone and its generation.
    pub fn generation(&self) -> ZoneGeneration {
        ZoneGeneration::from_raw(self.zone.get())
    }

    /// The address, provided that no block was moved.
    pub fn address(&self) -> Address {
        Address { zone: self.generation().zone(), block: self.block.get() }
    }
}

/// Place of a map row whose blocks are in a shared extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct SharedPlace {
    /// The extent.
    pub extent: U64,
    /// Blocks of the extent before the first block of the row.
    pub skip: U32,
}

/// The blocks of a [`MapRow`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place<'a> {
    /// None: the space is preallocated.
    Preallocated,
    /// Blocks of its own: their place, and the checksum of each.
    Zone(ZonePlace, &'a [U32]),
    /// Blocks of a shared extent.
    Shared(SharedPlace, CopySpace),
}

/// Whether a file has space for its own copy of blocks that it shares, so that a write to them does
/// not fail for want of space.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CopySpace {
    /// The write that replaces them finds space, or fails.
    #[default]
    None,
    /// fallocate(2) has preallocated it.
    Preallocated,
}

impl CopySpace {
    /// Preallocated blocks, if the file shares `blocks` blocks.
    pub const fn preallocated(self, blocks: u32) -> u64 {
        match self {
            Self::None => 0,
            Self::Preallocated => blocks as u64,
        }
    }
}

impl Place<'_> {
    const fn raw(&self) -> u8 {
        match self {
            Self::Preallocated => 0,
            Self::Zone(..) => 1,
            Self::Shared(_, CopySpace::None) => 2,
            Self::Shared(_, CopySpace::Preallocated) => 3,
        }
    }
}

/// Bytes of the row of a map entry with `blocks` blocks in a zone; none for preallocated space.
pub const fn map_bytes(blocks: u32) -> u64 {
    let place = if blocks == 0 { 0 } else { size_of::<ZonePlace>() };
    (KEY_BYTES + size_of::<MapRow>() + place) as u64 + 4 * blocks as u64
}

/// Bytes of the row of a map entry whose blocks are shared.
pub const fn shared_map_bytes() -> u64 {
    (KEY_BYTES + size_of::<MapRow>() + size_of::<SharedPlace>()) as u64
}

/// Bytes of the row of a shared extent of `blocks` blocks.
pub const fn extent_bytes(blocks: u32) -> u64 {
    (KEY_BYTES + size_of::<ExtentRow>()) as u64 + 4 * blocks as u64
}

/// Bytes of a row of back-references with a value of `value` bytes.
pub fn backrefs_bytes(value: usize) -> u32 {
    u32::try_from(KEY_BYTES + value).expect("values are short")
}

/// Bytes of an inode's row, the target of a symbolic link aside.
pub const INODE_BYTES: usize = KEY_BYTES + size_of::<InodeRow>();

/// Bytes of an extended attribute's row.
pub const fn xattr_bytes(name: &[u8], value: &[u8]) -> u64 {
    (KEY_BYTES + size_of::<XattrRow>() + name.len() + value.len()) as u64
}

/// Bytes of an entry's row.
pub const fn entry_bytes(name: &[u8]) -> u64 {
    (KEY_BYTES + size_of::<EntryRow>() + name.len()) as u64
}

const _: () = assert!(size_of::<TotalsRow>() == 64);
const _: () = assert!(size_of::<ZoneRow>() == 36);
const _: () = assert!(size_of::<LearnedRow>() == 256);
const _: () = assert!(size_of::<DiscardRow>() == 9);
const _: () = assert!(size_of::<InodeRow>() == 104);
const _: () = assert!(size_of::<EntryRow>() == 9);
const _: () = assert!(size_of::<XattrRow>() == 2);
const _: () = assert!(size_of::<ExtentRow>() == 12);
const _: () = assert!(size_of::<MapRow>() == 5);
const _: () = assert!(size_of::<ZonePlace>() == 8);
const _: () = assert!(size_of::<SharedPlace>() == 12);

/// A row with its tail borrowed from the value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Row<'a> {
    /// Totals of the file system.
    Totals(TotalsRow),
    /// A zone.
    Zone(ZoneRow),
    /// An inode to delete or truncate. It has no value.
    Orphan,
    /// Lifetimes and sizes of some contexts.
    Learned(&'a LearnedRow),
    /// A discarded range of a file.
    Discard(DiscardRow),
    /// An inode and its link target.
    Inode(InodeRow, &'a [u8]),
    /// An entry and its name.
    Entry(EntryRow, &'a [u8]),
    /// An attribute's name and value.
    Xattr(&'a [u8], &'a [u8]),
    /// A shared extent and the checksums of its blocks.
    Extent(ExtentRow, &'a [U32]),
    /// A map entry: its number of blocks, and their place.
    Map(u32, Place<'a>),
    /// Cookies of the entries whose names have a hash.
    Name(&'a [U64]),
    /// Back-references of a zone.
    Backrefs(Cow<'a, [Backref]>),
    /// A remap table and its tail.
    Remap(RemapRow, &'a [u8]),
}

impl<'a> Row<'a> {
    /// The address of the row's own blocks, provided that they were not moved, and their checksums.
    pub fn stored(&self) -> Option<(Address, &'a [U32])> {
        match self {
            Self::Map(_, Place::Zone(place, crcs)) => Some((place.address(), crcs)),
            Self::Extent(row, crcs) => {
                Some((Address { zone: row.zone.get(), block: row.block.get() }, crcs))
            }
            Self::Map(_, Place::Preallocated | Place::Shared(..))
            | Self::Totals(_)
            | Self::Zone(_)
            | Self::Orphan
            | Self::Learned(_)
            | Self::Discard(_)
            | Self::Inode(..)
            | Self::Entry(..)
            | Self::Xattr(..)
            | Self::Name(_)
            | Self::Backrefs(_)
            | Self::Remap(..) => None,
        }
    }
}

/// The value of a row.
pub fn encode(row: &Row<'_>) -> Box<[u8]> {
    let parts = |parts: [&[u8]; 3]| parts.concat().into_boxed_slice();
    match row {
        Row::Totals(row) => row.as_bytes().into(),
        Row::Zone(row) => row.as_bytes().into(),
        Row::Orphan => Box::default(),
        Row::Learned(row) => row.as_bytes().into(),
        Row::Discard(row) => row.as_bytes().into(),
        Row::Name(cookies) => cookies.as_bytes().into(),
        Row::Backrefs(records) => backref::encode(records).into_boxed_slice(),
        Row::Remap(row, tail) => parts([row.as_bytes(), tail, &[]]),
        Row::Inode(row, target) => parts([row.as_bytes(), target, &[]]),
        Row::Entry(row, name) => parts([row.as_bytes(), name, &[]]),
        Row::Xattr(name, value) => {
            let name_bytes = u16::try_from(name.len()).expect("names are short");
            parts([XattrRow { name_bytes: U16::new(name_bytes) }.as_bytes(), name, value])
        }
        Row::Extent(row, crcs) => parts([row.as_bytes(), crcs.as_bytes(), &[]]),
        Row::Map(blocks, place) => {
            let row = MapRow { blocks: U32::new(*blocks), place: place.raw() };
            match place {
                Place::Preallocated => parts([row.as_bytes(), &[], &[]]),
                Place::Zone(place, crcs) => {
                    parts([row.as_bytes(), place.as_bytes(), crcs.as_bytes()])
                }
                Place::Shared(place, _) => parts([row.as_bytes(), place.as_bytes(), &[]]),
            }
        }
    }
}

/// Reads the value of a row.
pub fn decode(key: Key, value: &[u8]) -> Result<Row<'_>, String> {
    let bytes = value.len();
    decode_value(key.kind(), value)
        .ok_or_else(|| format!("row {key:?}: {bytes} bytes that make no sense"))
}

fn decode_value(kind: RowKind, value: &[u8]) -> Option<Row<'_>> {
    Some(match kind {
        RowKind::Totals => Row::Totals(TotalsRow::read_from_bytes(value).ok()?),
        RowKind::Zone => Row::Zone(ZoneRow::read_from_bytes(value).ok()?),
        RowKind::Orphan => value.is_empty().then_some(Row::Orphan)?,
        RowKind::Learned => Row::Learned(LearnedRow::ref_from_bytes(value).ok()?),
        RowKind::Discard => Row::Discard(DiscardRow::read_from_bytes(value).ok()?),
        RowKind::Name => Row::Name(<[U64]>::ref_from_bytes(value).ok()?),
        RowKind::Backrefs => Row::Backrefs(backref::decode(value).ok()?.into()),
        RowKind::Inode => {
            let (row, target) = InodeRow::read_from_prefix(value).ok()?;
            Row::Inode(row, target)
        }
        RowKind::Entry => {
            let (row, name) = EntryRow::read_from_prefix(value).ok()?;
            Row::Entry(row, name)
        }
        RowKind::Xattr => {
            let (row, tail) = XattrRow::read_from_prefix(value).ok()?;
            let (name, value) = tail.split_at_checked(usize::from(row.name_bytes.get()))?;
            Row::Xattr(name, value)
        }
        RowKind::Extent => {
            let (row, tail) = ExtentRow::read_from_prefix(value).ok()?;
            Row::Extent(row, <[U32]>::ref_from_bytes(tail).ok()?)
        }
        RowKind::Map => {
            let (row, tail) = MapRow::read_from_prefix(value).ok()?;
            Row::Map(row.blocks.get(), decode_place(row, tail)?)
        }
        RowKind::Remap => {
            let (row, tail) = RemapRow::read_from_prefix(value).ok()?;
            remap::decode(&row, tail).ok()?;
            Row::Remap(row, tail)
        }
    })
}

fn decode_place(row: MapRow, tail: &[u8]) -> Option<Place<'_>> {
    match row.place {
        0 => tail.is_empty().then_some(Place::Preallocated),
        1 => {
            let (place, tail) = ZonePlace::read_from_prefix(tail).ok()?;
            let crcs = <[U32]>::ref_from_bytes(tail).ok()?;
            (crcs.len() == row.blocks.get() as usize).then_some(Place::Zone(place, crcs))
        }
        2 | 3 => {
            let space = if row.place == 2 { CopySpace::None } else { CopySpace::Preallocated };
            Some(Place::Shared(SharedPlace::read_from_bytes(tail).ok()?, space))
        }
        _ => None,
    }
}

/// Number of blocks and place of a map row that has blocks of its own, from its value.
pub fn zone_place_of(value: &[u8]) -> Option<(u32, ZonePlace)> {
    let (row, tail) = MapRow::read_from_prefix(value).ok()?;
    let (place, _) = ZonePlace::read_from_prefix(tail).ok().filter(|_| row.place == 1)?;
    Some((row.blocks.get(), place))
}

/// The value of a map row with another place.
pub fn with_zone_place(value: &[u8], place: ZonePlace) -> Vec<u8> {
    let mut value = value.to_vec();
    let at = size_of::<MapRow>();
    value[at..at + size_of::<ZonePlace>()].copy_from_slice(place.as_bytes());
    value
}
