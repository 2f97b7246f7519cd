//! The record: the envelope of batches and manifests.
//!
//! Journal batches and manifests are a [`RecordHeader`], a body, and zeroes up to the next block. A
//! record has two checksums. `crc` covers header and body; it differs from copy to copy, as the own
//! address does. `chain` covers the bodies of this record and of all before it, so both copies of a
//! log have the same chain, and replay can take each record from either copy.

use std::mem::{offset_of, size_of};

use zerocopy::byteorder::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};
use zonal::crc32c;

use super::{Address, BLOCK_BYTES, VERSION, blocks_for};

/// The content of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordKind {
    /// A batch of rows that were changed together, or a part of one.
    Batch,
    /// A manifest: the parts of the table, and the zones of the journal.
    Manifest,
}

impl RecordKind {
    /// First bytes of a record of this kind.
    pub const fn magic(self) -> [u8; 4] {
        match self {
            Self::Batch => *b"FRJB",
            Self::Manifest => *b"FRMF",
        }
    }
}

/// Head of every record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct RecordHeader {
    /// `FRJB` or `FRMF`.
    pub magic: [u8; 4],
    /// CRC-32C of bytes 8.. of the record, body included, padding not.
    pub crc: U32,
    /// Format version, 8.
    pub version: U16,
    /// 1: the batch continues in the next record, and counts only with all of its records. Else 0.
    pub continues: u8,
    /// 1: the second copy may be written later, on a drive where a jump costs time. Else 0.
    pub trails: u8,
    /// Bytes of the body.
    pub body_bytes: U32,
    /// Identity of the file system.
    pub uuid: [u8; 16],
    /// Batch: number of the record, counted over the file system's life. Manifest: 0.
    pub seq: U64,
    /// Own address: zone.
    pub own_zone: U32,
    /// Own address: block in the zone.
    pub own_block: U32,
    /// `chain` of the record before.
    pub prev: U32,
    /// CRC-32C of the body, continued from `prev`.
    pub chain: U32,
}

/// Bytes of a [`RecordHeader`].
pub const HEADER_BYTES: usize = size_of::<RecordHeader>();

const _: () = assert!(size_of::<RecordHeader>() == 56);
const _: () = assert!(offset_of!(RecordHeader, seq) == 32);
const _: () = assert!(offset_of!(RecordHeader, chain) == 52);

/// The fields of a record's header, without its address, lengths and checksums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordId {
    /// Kind of the record.
    pub kind: RecordKind,
    /// Identity of the file system.
    pub uuid: [u8; 16],
    /// See [`RecordHeader::continues`].
    pub continues: bool,
    /// See [`RecordHeader::trails`].
    pub trails: bool,
    /// See [`RecordHeader::seq`].
    pub seq: u64,
    /// See [`RecordHeader::prev`].
    pub prev: u32,
}

/// A record that is being filled: space for the header, then the body.
#[derive(Debug)]
pub struct RecordBuffer(Vec<u8>);

impl RecordBuffer {
    /// An empty body.
    pub fn new() -> Self {
        Self(vec![0; HEADER_BYTES])
    }

    /// The buffer; append the body to it.
    pub fn body(&mut self) -> &mut Vec<u8> {
        &mut self.0
    }

    /// Bytes of the body so far.
    pub fn body_bytes(&self) -> usize {
        self.0.len() - HEADER_BYTES
    }

    /// Bytes of header and body.
    pub fn bytes(&self) -> usize {
        self.0.len()
    }

    /// Blocks of the record so far.
    pub fn blocks(&self) -> usize {
        blocks_for(self.0.len())
    }

    /// Pads the complete record to whole blocks.
    pub fn pad(mut self) -> PaddedRecord {
        let record_bytes = self.0.len();
        self.0.resize(blocks_for(record_bytes) * BLOCK_BYTES, 0);
        PaddedRecord { bytes: self.0, record_bytes }
    }
}

impl Default for RecordBuffer {
    fn default() -> Self {
        Self::new()
    }
}

/// A complete record without its header, which differs from copy to copy.
#[derive(Debug)]
pub struct PaddedRecord {
    bytes: Vec<u8>,
    record_bytes: usize,
}

impl PaddedRecord {
    /// The chain value after this record.
    pub fn chain(&self, prev: u32) -> u32 {
        crc32c::crc32c_append(prev, &self.bytes[HEADER_BYTES..self.record_bytes])
    }

    /// Bytes of header and body.
    pub fn record_bytes(&self) -> usize {
        self.record_bytes
    }

    /// Blocks of the record.
    pub fn blocks(&self) -> usize {
        self.bytes.len() / BLOCK_BYTES
    }

    /// The bytes of the copy for the address `own`, and its `crc`.
    pub fn seal(&self, id: &RecordId, own: Address) -> (Vec<u8>, u32) {
        let body_bytes = self.record_bytes - HEADER_BYTES;
        let header = RecordHeader {
            magic: id.kind.magic(),
            crc: U32::new(0),
            version: U16::new(VERSION),
            continues: id.continues.into(),
            trails: id.trails.into(),
            body_bytes: U32::new(u32::try_from(body_bytes).expect("a record is under 4 GiB")),
            uuid: id.uuid,
            seq: U64::new(id.seq),
            own_zone: U32::new(own.zone),
            own_block: U32::new(own.block),
            prev: U32::new(id.prev),
            chain: U32::new(self.chain(id.prev)),
        };
        let mut bytes = self.bytes.clone();
        bytes[..HEADER_BYTES].copy_from_slice(header.as_bytes());
        let crc = crc32c::crc32c(&bytes[8..self.record_bytes]);
        bytes[4..8].copy_from_slice(&crc.to_le_bytes());
        (bytes, crc)
    }
}

/// Decodes the header at the start of `bytes` and checks all fields that need no body.
pub fn decode_header(bytes: &[u8], kind: RecordKind, own: Address) -> Result<RecordHeader, String> {
    let Ok((header, _)) = RecordHeader::read_from_prefix(bytes) else {
        return Err(format!("{} bytes, too short", bytes.len()));
    };
    if header.magic != kind.magic() {
        return Err("no magic".into());
    }
    if header.version.get() != VERSION {
        return Err(format!("version {}, this program knows {VERSION}", header.version));
    }
    let stored = Address { zone: header.own_zone.get(), block: header.own_block.get() };
    if stored != own {
        return Err(format!("written for {stored:?}, found at {own:?}"));
    }
    Ok(header)
}

/// Checks length and checksums of a record: `bytes` are header and body, without padding.
pub fn verify(bytes: &[u8], header: &RecordHeader) -> Result<(), String> {
    if bytes.len() != HEADER_BYTES + header.body_bytes.get() as usize {
        return Err(format!("{} bytes, its header says otherwise", bytes.len()));
    }
    if crc32c::crc32c(&bytes[8..]) != header.crc.get() {
        return Err("checksum mismatch".into());
    }
    if crc32c::crc32c_append(header.prev.get(), &bytes[HEADER_BYTES..]) != header.chain.get() {
        return Err("chain mismatch".into());
    }
    Ok(())
}
