//! The bytes of a trace file, version 2. Format: `docs/format/trace.md`.

use std::mem::{offset_of, size_of};

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::crc32c;
use crate::geometry::GeometryBytes;
use crate::{Geometry, GeometrySpec};

pub(super) const MAGIC: [u8; 8] = *b"ZONTRACE";
pub(super) const RECORD_MAGIC: [u8; 4] = *b"TREC";
pub(super) const VERSION: u32 = 2;

/// Head of a trace file.
///
/// | at | bytes | field | meaning |
/// | --- | --- | --- | --- |
/// | 0 | 8 | magic | `ZONTRACE` |
/// | 8 | 4 | version | 2 |
/// | 12 | 4 | crc | CRC-32C of bytes 16.. |
/// | 16 | 4 | content | 1: records of writes and appends carry their data; 0: they do not |
/// | 20 | 4 | block_size | 512 or 4096 |
/// | 24 | 8 | block_count | blocks of the device |
/// | 32 | 8 | zone_size | blocks from one zone's start to the next |
/// | 40 | 8 | zone_capacity | writable blocks of a sequential zone |
/// | 48 | 4 | conventional_runs | runs of conventional zones, at most 8 |
/// | 52 | 4 | max_open | most open zones; 0: no limit |
/// | 56 | 4 | max_active | most active zones; 0: no limit |
/// | 60 | 4 | sequential_kind | the kind of sequential zones: 0: required, 1: preferred |
/// | 64 | 8 | max_append | blocks of the largest append |
/// | 72 | 64 | conventional_zones | for each run 4 bytes with its first zone and 4 with their number |
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[expect(missing_docs, reason = "the table above documents the fields")]
pub struct TraceHeader {
    pub magic: [u8; 8],
    pub version: U32,
    pub crc: U32,
    pub content: U32,
    pub block_size: U32,
    pub geometry: GeometryBytes,
}
const _: () = assert!(size_of::<TraceHeader>() == 136);

/// One operation. The data of a write or append follows where the header says so.
///
/// | at | bytes | field | meaning |
/// | --- | --- | --- | --- |
/// | 0 | 4 | magic | `TREC` |
/// | 4 | 4 | crc | CRC-32C of bytes 8.., data that follows not included |
/// | 8 | 8 | index | number of the operation, from 0 on |
/// | 16 | 1 | op | 0 report, 1 read, 2 write, 3 append, 4 open, 5 close, 6 finish, 7 reset, 8 flush, 9 deallocate |
/// | 17 | 1 | select | 1: the action was for all zones |
/// | 18 | 2 | status | 0, or type × 256 + code of the NVMe status that the error has |
/// | 20 | 4 | zone | report: first zone; append and actions: the zone |
/// | 24 | 8 | lba | read, write, deallocate: first block; append: where the data went |
/// | 32 | 8 | blocks | read, write, append, deallocate: how many; report: most zones |
/// | 40 | 4 | data_crc | CRC-32C of the data that was read or written, or of the report |
/// | 44 | 4 | reserved | |
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[expect(missing_docs, reason = "the table above documents the fields")]
pub struct TraceRecord {
    pub magic: [u8; 4],
    pub crc: U32,
    pub index: U64,
    pub op: u8,
    pub select: u8,
    pub status: U16,
    pub zone: U32,
    pub lba: U64,
    pub blocks: U64,
    pub data_crc: U32,
    pub reserved: U32,
}
const _: () = assert!(size_of::<TraceRecord>() == 48);
const _: () = assert!(offset_of!(TraceRecord, lba) == 24);

pub(super) fn encode_header(geometry: &Geometry, content: super::TraceContent) -> TraceHeader {
    let (block_size, geometry) = GeometryBytes::encode(geometry.spec());
    let mut header = TraceHeader {
        magic: MAGIC,
        version: VERSION.into(),
        crc: U32::ZERO,
        content: (content as u32).into(),
        block_size,
        geometry,
    };
    header.crc = crc32c::crc32c(&header.as_bytes()[16..]).into();
    header
}

/// Decodes a header that begins with the magic.
pub(super) fn decode_header(
    header: &TraceHeader,
) -> Result<(GeometrySpec, super::TraceContent), String> {
    if header.version != VERSION {
        return Err(format!(
            "trace version {}; this program knows {VERSION}: record it again",
            header.version
        ));
    }
    if header.crc != crc32c::crc32c(&header.as_bytes()[16..]) {
        return Err("the header's checksum is wrong".into());
    }
    let content = match header.content.get() {
        0 => super::TraceContent::Checksums,
        1 => super::TraceContent::Data,
        other => return Err(format!("content {other}")),
    };
    Ok((header.geometry.decode(header.block_size)?, content))
}

pub(super) fn seal(record: &mut TraceRecord) {
    record.crc = crc32c::crc32c(&record.as_bytes()[8..]).into();
}

/// Whether a record is whole and the one that is due.
pub(super) fn is_valid(record: &TraceRecord, index: u64) -> bool {
    record.magic == RECORD_MAGIC
        && record.index == index
        && record.crc == crc32c::crc32c(&record.as_bytes()[8..])
}
