//! Furrow's on-disk structures: bytes in, values out, nothing of I/O.
//!
//! Everything is little-endian, self-describing and checksummed with CRC-32C, and carries its own
//! address, so that a reader notices a misdirected or stale write. Byte tables:
//! `docs/format/furrow-v8.md`. Decoding takes any bytes and never panics. Read [`superblock`]
//! first, then [`manifest`], [`record`], [`batch`], [`row`].

pub mod backref;
pub mod batch;
pub mod key;
pub mod manifest;
pub(super) mod position;
pub mod record;
pub mod remap;
pub mod row;
pub mod superblock;

use std::fmt;

/// Bytes of a file-system block, on every device.
pub const BLOCK_BYTES: usize = 4096;

/// log₂ of [`BLOCK_BYTES`].
pub const BLOCK_SHIFT: u32 = 12;

/// The version of every structure below.
pub const VERSION: u16 = 8;

/// Where a structure lies: a zone and a file-system block inside it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Address {
    /// The zone.
    pub zone: u32,
    /// Block from the zone's start, in units of [`BLOCK_BYTES`].
    pub block: u32,
}

/// Number of generations that a row can tell apart.
pub const GENERATIONS: u8 = 4;

/// A zone in one of its generations: from one reset to the next, numbered modulo [`GENERATIONS`].
///
/// A map row names blocks by the zone to which they were written, in its generation then. After
/// reclaim has moved them, the zone is reset and its next blocks are of another generation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ZoneGeneration(u32);

impl ZoneGeneration {
    /// A generation of a zone, whose number is below 2^30.
    pub const fn new(zone: u32, generation: u8) -> Self {
        Self(zone * GENERATIONS as u32 + (generation % GENERATIONS) as u32)
    }

    /// The stored number: 4 × the zone + the generation.
    pub const fn raw(self) -> u32 {
        self.0
    }

    /// From the stored number.
    pub const fn from_raw(raw: u32) -> Self {
        Self(raw)
    }

    /// The zone.
    pub const fn zone(self) -> u32 {
        self.0 / GENERATIONS as u32
    }

    /// The generation, modulo [`GENERATIONS`].
    #[expect(clippy::cast_possible_truncation, reason = "below the number of generations")]
    pub const fn generation(self) -> u8 {
        (self.0 % GENERATIONS as u32) as u8
    }
}

/// Blocks that hold `bytes` bytes.
pub const fn blocks_for(bytes: usize) -> usize {
    bytes.div_ceil(BLOCK_BYTES)
}

/// Why a structure on the drive could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unread {
    /// The device refuses to read its blocks. It may read them later.
    Device(String),
    /// Its blocks hold something else.
    Wrong(String),
}

impl fmt::Display for Unread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Device(why) | Self::Wrong(why) => f.write_str(why),
        }
    }
}

impl From<String> for Unread {
    fn from(why: String) -> Self {
        Self::Wrong(why)
    }
}

impl From<Unread> for String {
    fn from(unread: Unread) -> Self {
        match unread {
            Unread::Device(why) | Unread::Wrong(why) => why,
        }
    }
}

/// Appends a number of variable length (LEB128): seven bits in each byte, the low ones first, and
/// the high bit set in all bytes but the last.
pub(super) fn put_number(column: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        column.push(number.to_le_bytes()[0] | 0x80);
        number >>= 7;
    }
    column.push(number.to_le_bytes()[0]);
}

/// Takes a number of variable length off the start of `rest`.
pub(super) fn take_number(rest: &mut &[u8]) -> Result<u64, &'static str> {
    let mut number = 0;
    for shift in (0..u64::BITS).step_by(7) {
        let byte = *rest.split_off_first().ok_or("the bytes end in a number")?;
        let bits = u64::from(byte & 0x7f);
        if bits << shift >> shift != bits {
            break;
        }
        number |= bits << shift;
        if byte & 0x80 == 0 {
            return Ok(number);
        }
    }
    Err("a number beyond 64 bits")
}
