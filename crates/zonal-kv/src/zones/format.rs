//! The name map as it is stored: records of whole blocks, one after the other in a zone file.
//!
//! A record has a head and entries. The first record of a zone file is a snapshot of all inodes and
//! names. Each later record holds changes, and its entries replace earlier ones. Format:
//! `docs/format/zonefs-names.md`. The decoder accepts any bytes and never panics.

use std::mem::size_of;

use zerocopy::byteorder::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};
use zonal::crc32c;

/// First bytes of a record.
pub const MAGIC: [u8; 8] = *b"ZNAMEMAP";

/// The format version that this module writes, and the only one that it reads.
pub const VERSION: u32 = 1;

/// Bytes of a record that its checksum does not cover.
const UNCHECKED: usize = 16;

/// The head of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct RawHead {
    /// `ZNAMEMAP`.
    pub magic: [u8; 8],
    /// 1.
    pub version: U32,
    /// CRC-32C of the bytes from 16 to `len`.
    pub crc: U32,
    /// Identity of the zonefs, as in its super block.
    pub uuid: [u8; 16],
    /// How often the map has moved to its other zone file; the higher one counts.
    pub generation: U64,
    /// How many records were written before this one, since the map was made.
    pub commit: U64,
    /// When the map was made, nanoseconds since 1970.
    pub created_ns: U64,
    /// The number that the next inode gets. None is given twice.
    pub next_ino: U64,
    /// Its own address: the block of the zone file in which it begins.
    pub block: U32,
    /// 1: a snapshot, nothing is known before it. 0: changes.
    pub kind: U32,
    /// Bytes of the record with its entries, without the zeroes that fill its last block.
    pub len: U32,
    /// How many entries follow.
    pub entries: U32,
}

const _: () = assert!(size_of::<RawHead>() == 80);

/// An entry about an inode. Its extents follow, and then the bytes that are in no zone yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct RawInode {
    /// 1.
    pub kind: U32,
    /// Bytes of this entry.
    pub len: U32,
    /// Its number.
    pub ino: U64,
    /// Last change, nanoseconds since 1970.
    pub mtime_ns: U64,
    /// When it was made, likewise.
    pub btime_ns: U64,
    /// 1: a file. 2: a directory.
    pub file_kind: U32,
    /// How many extents follow.
    pub extents: U32,
    /// How many bytes of its end follow the extents; less than a block.
    pub tail: U32,
    /// Zero.
    pub reserved: U32,
}

const _: () = assert!(size_of::<RawInode>() == 48);

/// A part of a file that lies in a zone file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct RawExtent {
    /// Which: the number that is its name in `seq`.
    pub zone: U32,
    /// The block of the zone file in which it begins.
    pub block: U32,
    /// Bytes.
    pub len: U64,
}

const _: () = assert!(size_of::<RawExtent>() == 16);

/// An entry about a name. The bytes of the name follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct RawName {
    /// 2.
    pub kind: U32,
    /// Bytes of this entry.
    pub len: U32,
    /// The directory.
    pub parent: U64,
    /// The inode it leads to; 0: the name is gone.
    pub ino: U64,
}

const _: () = assert!(size_of::<RawName>() == 24);

const INODE: u32 = 1;
const NAME: u32 = 2;

/// The kind of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    File,
    Directory,
}

/// A part of a file: `len` bytes of zone file `zone` from byte `start` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    pub(crate) zone: u32,
    pub(crate) start: u64,
    pub(crate) len: u64,
}

/// An entry of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Entry<'a> {
    Inode {
        ino: u64,
        kind: Kind,
        mtime_ns: i64,
        btime_ns: i64,
        extents: Vec<Extent>,
        tail: &'a [u8],
    },
    Name {
        parent: u64,
        name: &'a [u8],
        ino: u64,
    },
}

/// The fields of a record's head, without sums and lengths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) uuid: [u8; 16],
    pub(crate) generation: u64,
    pub(crate) commit: u64,
    pub(crate) created_ns: u64,
    pub(crate) next_ino: u64,
    pub(crate) block: u32,
    pub(crate) is_snapshot: bool,
}

/// Encodes one record.
pub(crate) struct Encoder {
    bytes: Vec<u8>,
    entries: u32,
    block_size: u64,
}

impl Encoder {
    pub(crate) fn new(block_size: u64) -> Self {
        Self { bytes: vec![0; size_of::<RawHead>()], entries: 0, block_size }
    }

    /// Bytes of the record on the drive, in whole blocks.
    pub(crate) fn len(&self) -> u64 {
        (self.bytes.len() as u64).next_multiple_of(self.block_size)
    }

    pub(crate) fn push(&mut self, entry: &Entry<'_>) {
        self.entries += 1;
        match entry {
            Entry::Inode { ino, kind, mtime_ns, btime_ns, extents, tail } => {
                let len = size_of::<RawInode>() + extents.len() * size_of::<RawExtent>();
                let raw = RawInode {
                    kind: U32::new(INODE),
                    len: U32::new(narrow((len + tail.len()) as u64)),
                    ino: U64::new(*ino),
                    mtime_ns: U64::new(mtime_ns.cast_unsigned()),
                    btime_ns: U64::new(btime_ns.cast_unsigned()),
                    file_kind: U32::new(match kind {
                        Kind::File => 1,
                        Kind::Directory => 2,
                    }),
                    extents: U32::new(narrow(extents.len() as u64)),
                    tail: U32::new(narrow(tail.len() as u64)),
                    reserved: U32::ZERO,
                };
                self.bytes.extend_from_slice(raw.as_bytes());
                for extent in extents {
                    let block = U32::new(narrow(extent.start / self.block_size));
                    let len = U64::new(extent.len);
                    let raw = RawExtent { zone: U32::new(extent.zone), block, len };
                    self.bytes.extend_from_slice(raw.as_bytes());
                }
                self.bytes.extend_from_slice(tail);
            }
            Entry::Name { parent, name, ino } => {
                let raw = RawName {
                    kind: U32::new(NAME),
                    len: U32::new(narrow((size_of::<RawName>() + name.len()) as u64)),
                    parent: U64::new(*parent),
                    ino: U64::new(*ino),
                };
                self.bytes.extend_from_slice(raw.as_bytes());
                self.bytes.extend_from_slice(name);
            }
        }
    }

    /// The record, in whole blocks.
    pub(crate) fn finish(mut self, head: &Head) -> Vec<u8> {
        let len = self.bytes.len();
        let mut raw = RawHead {
            magic: MAGIC,
            version: U32::new(VERSION),
            crc: U32::ZERO,
            uuid: head.uuid,
            generation: U64::new(head.generation),
            commit: U64::new(head.commit),
            created_ns: U64::new(head.created_ns),
            next_ino: U64::new(head.next_ino),
            block: U32::new(head.block),
            kind: U32::new(u32::from(head.is_snapshot)),
            len: U32::new(narrow(len as u64)),
            entries: U32::new(self.entries),
        };
        self.bytes[..size_of::<RawHead>()].copy_from_slice(raw.as_bytes());
        raw.crc = U32::new(crc32c::crc32c(&self.bytes[UNCHECKED..]));
        self.bytes[..size_of::<RawHead>()].copy_from_slice(raw.as_bytes());
        let blocks = usize::try_from(self.len()).expect("a record fits in memory");
        self.bytes.resize(blocks, 0);
        self.bytes
    }
}

/// A decoded record.
#[derive(Debug)]
pub(crate) struct Record<'a> {
    pub(crate) head: Head,
    pub(crate) entries: Vec<Entry<'a>>,
    /// Bytes on the drive.
    pub(crate) len: u64,
}

/// The length on the drive of the record that begins at `at`, as its head claims, whether or not
/// the record is whole; `None` if no record begins there.
pub(crate) fn claimed_len(content: &[u8], at: u64, block_size: u64) -> Option<u64> {
    let here = content.get(usize::try_from(at).ok()?..)?;
    let (raw, _) = RawHead::read_from_prefix(here).ok()?;
    let known = raw.magic == MAGIC && raw.version.get() == VERSION && raw.kind.get() <= 1;
    let is_here = u64::from(raw.block.get()).checked_mul(block_size) == Some(at);
    let len = u64::from(raw.len.get());
    (known && is_here && len >= size_of::<RawHead>() as u64)
        .then(|| len.next_multiple_of(block_size))
}

/// The record at byte `at` of a zone file with the content `bytes`; `None` if it is not whole.
pub(crate) fn decode(bytes: &[u8], at: u64, block_size: u64) -> Option<Record<'_>> {
    let here = bytes.get(usize::try_from(at).ok()?..)?;
    let (raw, _) = RawHead::read_from_prefix(here).ok()?;
    let len = usize::try_from(raw.len.get()).ok()?;
    let known = raw.magic == MAGIC && raw.version.get() == VERSION && raw.kind.get() <= 1;
    if !known || len < size_of::<RawHead>() || u64::from(raw.block.get()) * block_size != at {
        return None;
    }
    let record = here.get(..len)?;
    if crc32c::crc32c(&record[UNCHECKED..]) != raw.crc.get() {
        return None;
    }
    let mut rest = &record[size_of::<RawHead>()..];
    let mut entries = Vec::new();
    for _ in 0..raw.entries.get() {
        let (entry, after) = entry(rest, block_size)?;
        entries.push(entry);
        rest = after;
    }
    let head = Head {
        uuid: raw.uuid,
        generation: raw.generation.get(),
        commit: raw.commit.get(),
        created_ns: raw.created_ns.get(),
        next_ino: raw.next_ino.get(),
        block: raw.block.get(),
        is_snapshot: raw.kind.get() == 1,
    };
    let len = (len as u64).next_multiple_of(block_size);
    rest.is_empty().then_some(Record { head, entries, len })
}

/// Decodes the first entry, and returns it with the bytes that follow.
fn entry(bytes: &[u8], block_size: u64) -> Option<(Entry<'_>, &[u8])> {
    let (kind, _) = U32::read_from_prefix(bytes).ok()?;
    if kind.get() == NAME {
        let (raw, rest) = RawName::read_from_prefix(bytes).ok()?;
        let len = usize::try_from(raw.len.get()).ok()?.checked_sub(size_of::<RawName>())?;
        let (name, rest) = rest.split_at_checked(len)?;
        return Some((Entry::Name { parent: raw.parent.get(), name, ino: raw.ino.get() }, rest));
    }
    let (raw, mut rest) = RawInode::read_from_prefix(bytes).ok()?;
    let kind = match (raw.kind.get(), raw.file_kind.get()) {
        (INODE, 1) => Kind::File,
        (INODE, 2) => Kind::Directory,
        _ => return None,
    };
    let mut extents = Vec::new();
    for _ in 0..raw.extents.get() {
        let (extent, after) = RawExtent::read_from_prefix(rest).ok()?;
        let start = u64::from(extent.block.get()) * block_size;
        extents.push(Extent { zone: extent.zone.get(), start, len: extent.len.get() });
        rest = after;
    }
    let (tail, rest) = rest.split_at_checked(usize::try_from(raw.tail.get()).ok()?)?;
    let (mtime_ns, btime_ns) = (raw.mtime_ns.get().cast_signed(), raw.btime_ns.get().cast_signed());
    let inode = Entry::Inode { ino: raw.ino.get(), kind, mtime_ns, btime_ns, extents, tail };
    Some((inode, rest))
}

/// Narrows a number that is at most the size of a zone in blocks, or of a record in bytes.
fn narrow(number: u64) -> u32 {
    u32::try_from(number).expect("a record is smaller than 4 GiB, as is a zone in blocks")
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: u64 = 512;

    fn record() -> Vec<u8> {
        let mut encoder = Encoder::new(BLOCK);
        let extents = vec![Extent { zone: 7, start: 1024, len: 5000 }];
        let (kind, tail) = (Kind::File, &b"tail"[..]);
        encoder.push(&Entry::Inode { ino: 9, kind, mtime_ns: -5, btime_ns: 6, extents, tail });
        encoder.push(&Entry::Name { parent: 1, name: b"000005.ldb", ino: 9 });
        let head = Head {
            uuid: [3; 16],
            generation: 4,
            commit: 10,
            created_ns: 11,
            next_ino: 12,
            block: 0,
            is_snapshot: true,
        };
        encoder.finish(&head)
    }

    #[test]
    fn record_round_trips() {
        let bytes = record();
        assert_eq!(bytes.len() % 512, 0);
        let found = decode(&bytes, 0, BLOCK).unwrap();
        assert_eq!((found.head.commit, found.len), (10, bytes.len() as u64));
        let [Entry::Inode { ino: 9, mtime_ns: -5, extents, tail: b"tail", .. }, name] =
            &found.entries[..]
        else {
            panic!("{found:?}")
        };
        assert_eq!(extents[..], [Extent { zone: 7, start: 1024, len: 5000 }]);
        assert_eq!(*name, Entry::Name { parent: 1, name: b"000005.ldb", ino: 9 });
    }

    #[test]
    fn record_damaged_cut_or_misplaced_is_none() {
        let bytes = record();
        let len = decode(&bytes, 0, BLOCK).unwrap().head;
        assert_eq!(len.block, 0);
        let used = usize::try_from(u32::from_le_bytes(bytes[72..76].try_into().unwrap())).unwrap();
        for at in 0..used {
            let mut wrong = bytes.clone();
            wrong[at] ^= 0x20;
            assert!(decode(&wrong, 0, BLOCK).is_none(), "byte {at}");
            assert!(decode(&bytes[..at], 0, BLOCK).is_none(), "cut at {at}");
        }
        let moved = [vec![0; 512], bytes].concat();
        assert!(decode(&moved, 512, BLOCK).is_none(), "it is not where it says");
    }
}
