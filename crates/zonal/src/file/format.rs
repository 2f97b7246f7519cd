//! The bytes of a drive file, version 2: structs, layout, and parsing that takes any bytes.
//!
//! Format: `docs/format/drive-file.md`, whose tables `tests/format_doc.rs` compares with the
//! structs below. `table.rs` explains the purpose of the parts, and when each is valid.

use std::fs::File;
use std::mem::{offset_of, size_of};
use std::os::unix::fs::FileExt;

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::crc32c;
use crate::emulated::initial_state;
use crate::geometry::GeometryBytes;
use crate::state::ZoneState;
use crate::{Geometry, LbaCount, Rules, ZoneCond, ZoneId, ZoneKind};

/// First bytes of a drive file.
pub const MAGIC: [u8; 8] = *b"ZONALDRV";
/// Version of the format.
pub const VERSION: u32 = 2;
/// Distance between the two copies of the header, and alignment of every part.
pub const PAGE: u64 = 4096;
pub(super) const PAGE_LEN: usize = 4096;
const _: () = assert!(PAGE_LEN as u64 == PAGE);
/// Unit of the journal: a drive writes each as a whole.
pub const JOURNAL_UNIT: u64 = 512;
/// Bytes of the journal of a new drive: some 2,000 flushes between two snapshots.
pub const JOURNAL_LEN: u64 = 1 << 20;
/// Bytes of the longest journal that is accepted.
pub const JOURNAL_LEN_MAX: u64 = 1 << 26;
/// Alignment of the data, so that zones of a whole number of MiB begin on one.
pub const DATA_ALIGN: u64 = 1 << 20;

/// Head of a drive file; a second copy follows one page later. Written once, by create.
///
/// | at | bytes | field | meaning |
/// | --- | --- | --- | --- |
/// | 0 | 8 | magic | `ZONALDRV` |
/// | 8 | 4 | version | 2 |
/// | 12 | 4 | length | bytes of this header: 320 |
/// | 16 | 4 | crc | CRC-32C of bytes 20.. |
/// | 20 | 4 | copy | which copy this is: 0 or 1 |
/// | 24 | 16 | uuid | identity of the drive; every other part repeats it |
/// | 40 | 4 | block_size | 512 or 4096 |
/// | 44 | 4 | rules | 0: NVMe zoned namespaces, 1: ZBC |
/// | 48 | 8 | block_count | blocks of the drive |
/// | 56 | 8 | zone_size | blocks from one zone's start to the next |
/// | 64 | 8 | zone_capacity | writable blocks of a sequential zone |
/// | 72 | 4 | conventional_runs | runs of conventional zones, at most 8 |
/// | 76 | 4 | max_open | most open zones; 0: no limit |
/// | 80 | 4 | max_active | most active zones; 0: no limit |
/// | 84 | 4 | sequential_kind | the kind of sequential zones: 0: required, 1: preferred |
/// | 88 | 8 | max_append | blocks of the largest append |
/// | 96 | 64 | conventional_zones | for each run 4 bytes with its first zone and 4 with their number |
/// | 160 | 8 | live_at | byte of the live table |
/// | 168 | 8 | snapshot_at | byte of the first snapshot |
/// | 176 | 8 | snapshot_len | bytes from the first snapshot to the second |
/// | 184 | 8 | journal_at | byte of the journal |
/// | 192 | 8 | journal_len | bytes of the journal |
/// | 200 | 8 | data_at | byte of block 0 |
/// | 208 | 112 | reserved_end | |
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[expect(missing_docs, reason = "the table above documents the fields")]
pub struct DriveHeader {
    pub magic: [u8; 8],
    pub version: U32,
    pub length: U32,
    pub crc: U32,
    pub copy: U32,
    pub uuid: [u8; 16],
    pub block_size: U32,
    pub rules: U32,
    pub geometry: GeometryBytes,
    pub live_at: U64,
    pub snapshot_at: U64,
    pub snapshot_len: U64,
    pub journal_at: U64,
    pub journal_len: U64,
    pub data_at: U64,
    pub reserved_end: [u8; 112],
}
const _: () = assert!(size_of::<DriveHeader>() == 320);
const _: () = assert!(offset_of!(DriveHeader, copy) == 20);
const _: () = assert!(offset_of!(DriveHeader, geometry) == 48);
const _: () = assert!(offset_of!(DriveHeader, live_at) == 160);
const _: () = assert!(offset_of!(DriveHeader, reserved_end) == 208);

/// Head of the live table; the entries begin one page later.
///
/// | at | bytes | field | meaning |
/// | --- | --- | --- | --- |
/// | 0 | 8 | magic | `ZONALIVE` |
/// | 8 | 4 | crc | CRC-32C of bytes 12.. |
/// | 12 | 4 | reserved | |
/// | 16 | 16 | uuid | of the drive |
/// | 32 | 16 | boot | boot id of the host that keeps the table |
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[expect(missing_docs, reason = "the table above documents the fields")]
pub struct LiveHeader {
    pub magic: [u8; 8],
    pub crc: U32,
    pub reserved: U32,
    pub uuid: [u8; 16],
    pub boot: [u8; 16],
}
const _: () = assert!(size_of::<LiveHeader>() == 48);

/// A zone in the live table and in journal records. All zero: the zone is as on a new drive.
///
/// | at | bytes | field | meaning |
/// | --- | --- | --- | --- |
/// | 0 | 8 | state | blocks written × 16 + condition, numbered as in NVMe; 0: conventional; bit 63: written non-sequentially |
/// | 8 | 4 | zone | the zone's number |
/// | 12 | 4 | crc | CRC-32C of bytes 0..12 |
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[expect(missing_docs, reason = "the table above documents the fields")]
pub struct ZoneEntry {
    pub state: U64,
    pub zone: U32,
    pub crc: U32,
}
const _: () = assert!(size_of::<ZoneEntry>() == 16);

/// Head of a snapshot of the durable table: an 8-byte state for each zone follows, as in
/// [`ZoneEntry`].
///
/// | at | bytes | field | meaning |
/// | --- | --- | --- | --- |
/// | 0 | 8 | magic | `ZONASNAP` |
/// | 8 | 4 | crc | CRC-32C of bytes 12.., states included |
/// | 12 | 4 | copy | which snapshot this is: 0 or 1 |
/// | 16 | 8 | seq | number of the last journal record it includes |
/// | 24 | 4 | zone_count | states that follow |
/// | 28 | 4 | reserved | |
/// | 32 | 16 | uuid | of the drive |
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[expect(missing_docs, reason = "the table above documents the fields")]
pub struct SnapshotHeader {
    pub magic: [u8; 8],
    pub crc: U32,
    pub copy: U32,
    pub seq: U64,
    pub zone_count: U32,
    pub reserved: U32,
    pub uuid: [u8; 16],
}
const _: () = assert!(size_of::<SnapshotHeader>() == 48);

/// Head of a journal record: entries follow, then zeroes up to a multiple of 512 bytes.
///
/// | at | bytes | field | meaning |
/// | --- | --- | --- | --- |
/// | 0 | 8 | magic | `ZONAJRNL` |
/// | 8 | 4 | crc | CRC-32C of bytes 12.., entries included |
/// | 12 | 4 | unit | own address: 512-byte units from the journal's start |
/// | 16 | 8 | seq | number of the record, from 1 on, without a break |
/// | 24 | 4 | count | entries that follow |
/// | 28 | 4 | reserved | |
/// | 32 | 16 | uuid | of the drive |
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[expect(missing_docs, reason = "the table above documents the fields")]
pub struct RecordHeader {
    pub magic: [u8; 8],
    pub crc: U32,
    pub unit: U32,
    pub seq: U64,
    pub count: U32,
    pub reserved: U32,
    pub uuid: [u8; 16],
}
const _: () = assert!(size_of::<RecordHeader>() == 48);

pub(super) const LIVE_MAGIC: [u8; 8] = *b"ZONALIVE";
pub(super) const SNAPSHOT_MAGIC: [u8; 8] = *b"ZONASNAP";
pub(super) const RECORD_MAGIC: [u8; 8] = *b"ZONAJRNL";
/// Where the checksummed part of live header, snapshot and record begins.
pub(super) const CHECKED_FROM: usize = 12;

/// The checked content of a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Description {
    /// Shape of the drive.
    pub geometry: Geometry,
    /// The command set whose rules its zones follow.
    pub rules: Rules,
    /// Identity of the drive.
    pub uuid: [u8; 16],
    /// Bytes of the journal.
    pub journal_len: u64,
}

/// Where the parts of a drive file are. It follows from the description.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    pub(crate) live_at: u64,
    pub(crate) snapshot_at: u64,
    pub(crate) snapshot_len: u64,
    pub(crate) journal_at: u64,
    pub(crate) journal_len: u64,
    pub(crate) data_at: u64,
    pub(crate) file_len: u64,
}

impl Layout {
    pub(crate) fn new(drive: &Description) -> Self {
        let (geometry, journal_len) = (&drive.geometry, drive.journal_len);
        let zones = u64::from(geometry.zone_count());
        let snapshot_at = snapshot_at(zones);
        let snapshot_len = snapshot_len(zones);
        let journal_at = snapshot_at + 2 * snapshot_len;
        let data_at = data_at(zones, journal_len);
        let file_len = data_at + geometry.bytes(geometry.block_count()).get();
        let live_at = LIVE_AT;
        Self { live_at, snapshot_at, snapshot_len, journal_at, journal_len, data_at, file_len }
    }

    /// Byte of a zone's entry in the live table.
    pub(crate) fn live_entry_at(&self, zone: ZoneId) -> u64 {
        self.live_at + PAGE + u64::from(zone.get()) * size_of::<ZoneEntry>() as u64
    }
}

const LIVE_AT: u64 = 2 * PAGE;

const fn snapshot_at(zones: u64) -> u64 {
    (LIVE_AT + PAGE + zones * size_of::<ZoneEntry>() as u64).next_multiple_of(PAGE)
}

const fn snapshot_len(zones: u64) -> u64 {
    (size_of::<SnapshotHeader>() as u64 + zones * 8).next_multiple_of(PAGE)
}

/// Byte of block 0 of a drive with `zones` zones.
pub(super) const fn data_at(zones: u64, journal_len: u64) -> u64 {
    let journal_at = snapshot_at(zones) + 2 * snapshot_len(zones);
    (journal_at + journal_len).next_multiple_of(DATA_ALIGN)
}

/// The header block of copy 0 or 1.
pub(crate) fn encode_header(drive: &Description, copy: u32) -> DriveHeader {
    let (block_size, geometry) = GeometryBytes::encode(drive.geometry.spec());
    let layout = Layout::new(drive);
    let mut header = DriveHeader {
        magic: MAGIC,
        version: VERSION.into(),
        length: 320.into(),
        crc: U32::ZERO,
        copy: copy.into(),
        uuid: drive.uuid,
        block_size,
        rules: match drive.rules {
            Rules::Zns => 0.into(),
            Rules::Zbc => 1.into(),
        },
        geometry,
        live_at: layout.live_at.into(),
        snapshot_at: layout.snapshot_at.into(),
        snapshot_len: layout.snapshot_len.into(),
        journal_at: layout.journal_at.into(),
        journal_len: layout.journal_len.into(),
        data_at: layout.data_at.into(),
        reserved_end: [0; 112],
    };
    header.crc = crc32c::crc32c(&header.as_bytes()[20..]).into();
    header
}

/// Length of the file or the disk that keeps a drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostLen {
    /// Of a file, which has the length of its drive.
    File(u64),
    /// Of a disk, which may have more.
    Disk(u64),
}

/// Finds a valid header in the first two pages of a file or disk. Never panics.
pub fn parse_header(bytes: &[u8], host_len: HostLen) -> Result<Description, String> {
    let mut why = String::from("the file is too short to be a drive");
    for (copy, at) in [(0, 0), (1, PAGE_LEN)] {
        let page = bytes.get(at..).unwrap_or(&[]);
        let Ok((header, _)) = DriveHeader::read_from_prefix(page) else { continue };
        match parse_copy(&header, copy, host_len) {
            Ok(drive) => return Ok(drive),
            Err(found) if copy == 0 => why = found,
            Err(_) => {}
        }
    }
    Err(why)
}

fn parse_copy(header: &DriveHeader, copy: u32, host_len: HostLen) -> Result<Description, String> {
    if header.magic != MAGIC {
        return Err("not a drive file: it does not begin with ZONALDRV".into());
    }
    if header.version != VERSION {
        let version = header.version;
        return Err(format!(
            "format version {version}; this program knows version {VERSION}: create the drive again"
        ));
    }
    if header.crc != crc32c::crc32c(&header.as_bytes()[20..]) {
        return Err("the header's checksum is wrong, in both copies".into());
    }
    if header.length != 320 || header.copy != copy {
        return Err(format!("header copy {} of {} bytes", header.copy, header.length));
    }
    let spec = header.geometry.decode(header.block_size)?;
    let geometry = Geometry::new(spec).map_err(|error| error.to_string())?;
    let rules = match header.rules.get() {
        0 => Rules::Zns,
        1 => Rules::Zbc,
        other => return Err(format!("rules {other}")),
    };
    let journal_len = header.journal_len.get();
    if !journal_len.is_multiple_of(PAGE) || journal_len == 0 || journal_len > JOURNAL_LEN_MAX {
        return Err(format!("a journal of {journal_len} bytes"));
    }
    let drive = Description { geometry, rules, uuid: header.uuid, journal_len };
    let expected = encode_header(&drive, copy);
    if header.as_bytes()[160..208] != expected.as_bytes()[160..208] {
        return Err("the parts are not where version 2 has them".into());
    }
    let needed = Layout::new(&drive).file_len;
    match host_len {
        HostLen::File(len) if len != needed => {
            Err(format!("the file has {len} bytes; its drive needs {needed}"))
        }
        HostLen::Disk(len) if len < needed => {
            Err(format!("the disk has {len} bytes; its drive needs {needed}"))
        }
        HostLen::File(_) | HostLen::Disk(_) => Ok(drive),
    }
}

/// Bit of a state for a zone that was written non-sequentially.
const NON_SEQUENTIAL: u64 = 1 << 63;
const _: () = assert!(Geometry::BLOCK_COUNT_MAX << 4 < NON_SEQUENTIAL);

/// A zone's state as the files hold it.
pub(crate) fn encode_state(state: ZoneState) -> u64 {
    let flag = if state.non_sequential { NON_SEQUENTIAL } else { 0 };
    flag | state.written.get() << 4 | u64::from(state.cond.code())
}

/// The state that `word` means for `zone`, if it is one that the zone can have.
pub(crate) fn decode_state(geometry: &Geometry, zone: ZoneId, word: u64) -> Option<ZoneState> {
    let cond = ZoneCond::from_code((word & 15) as u8)?;
    let written = LbaCount::new((word & !NON_SEQUENTIAL) >> 4);
    let non_sequential = word & NON_SEQUENTIAL != 0;
    let state = ZoneState { cond, written, non_sequential };
    let kind = geometry.kind(zone);
    let unwritten = written == LbaCount::ZERO;
    // A zone that was written non-sequentially is not empty.
    if non_sequential && (kind != ZoneKind::SequentialPreferred || unwritten) {
        return None;
    }
    let possible = match cond {
        ZoneCond::NotWp => kind == ZoneKind::Conventional && unwritten,
        ZoneCond::Empty => kind.is_sequential() && unwritten,
        ZoneCond::ImplicitOpen | ZoneCond::ExplicitOpen | ZoneCond::Closed | ZoneCond::Full => {
            kind.is_sequential() && written <= geometry.capacity_of(zone)
        }
        ZoneCond::ReadOnly | ZoneCond::Offline if kind.is_sequential() => {
            written <= geometry.capacity_of(zone)
        }
        ZoneCond::ReadOnly | ZoneCond::Offline => unwritten,
    };
    possible.then_some(state)
}

pub(crate) fn encode_entry(zone: ZoneId, state: ZoneState) -> ZoneEntry {
    let (state, zone) = (U64::new(encode_state(state)), U32::new(zone.get()));
    let mut entry = ZoneEntry { state, zone, crc: U32::ZERO };
    entry.crc = crc32c::crc32c(&entry.as_bytes()[..12]).into();
    entry
}

/// The state in an entry that should be `zone`'s.
pub(crate) fn decode_entry(
    geometry: &Geometry,
    zone: ZoneId,
    entry: &ZoneEntry,
) -> Option<ZoneState> {
    if entry.as_bytes() == [0; 16] {
        return Some(initial_state(geometry, zone));
    }
    let valid = entry.zone == zone.get() && entry.crc == crc32c::crc32c(&entry.as_bytes()[..12]);
    if valid { decode_state(geometry, zone, entry.state.get()) } else { None }
}

/// Whether a file or disk begins with one of the two headers of a drive.
pub fn has_header(file: &File) -> bool {
    [0, PAGE].into_iter().any(|at| {
        let mut magic = [0; MAGIC.len()];
        file.read_exact_at(&mut magic, at).is_ok() && magic == MAGIC
    })
}
