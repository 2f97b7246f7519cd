//! Furrow's on-disk structures: bytes in, values out, nothing of I/O.
//!
//! Everything is little-endian, self-describing and checksummed with CRC-32C, and carries its own
//! address, so that a misdirected or stale write is seen. Byte tables: `docs/format/furrow-v4.md`.
//! Decoding takes any bytes and never panics. Read [`superblock`] first, then [`manifest`],
//! [`record`], [`batch`], [`row`].

pub mod batch;
pub mod manifest;
pub(super) mod number;
pub mod owners;
pub mod record;
pub mod row;
pub mod superblock;

/// Bytes of a file-system block, on every device.
pub const BLOCK_BYTES: usize = 4096;

/// log₂ of [`BLOCK_BYTES`].
pub const BLOCK_SHIFT: u32 = 12;

/// The version of every structure below.
pub const VERSION: u16 = 4;

/// Where a structure lies: a zone and a file-system block inside it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Address {
    /// The zone.
    pub zone: u32,
    /// Block from the zone's start, in units of [`BLOCK_BYTES`].
    pub block: u32,
}

/// Blocks that `bytes` bytes take.
pub const fn blocks_for(bytes: usize) -> usize {
    bytes.div_ceil(BLOCK_BYTES)
}
