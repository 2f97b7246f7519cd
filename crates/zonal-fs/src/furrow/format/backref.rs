//! Back-references: from blocks of a zone to the file or extent that they were allocated to, so
//! that reclaim finds the owners of the blocks that it moves.
//!
//! A back-reference is a hint that may be outdated: its reader confirms it by the map. Rows of
//! kind [`Backrefs`](super::key::RowKind::Backrefs) hold all back-references of a zone, packed:
//! three or four bytes for a block written at random, one record for a file written in order.

use super::{put_number, take_number};
use crate::vfs::Ino;

/// Number of a shared extent, never 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ExtentId(pub u64);

/// The owner of a run of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Owner {
    /// A map entry: the inode, and the block of the file with which the run begins.
    Entry(Ino, u64),
    /// A shared extent.
    Extent(ExtentId),
}

/// A back-reference: a run of blocks of a zone and its owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backref {
    /// The first block in the zone.
    pub block: u32,
    /// Number of blocks, never 0.
    pub blocks: u32,
    /// The file or extent.
    pub owner: Owner,
}

impl Backref {
    /// The block behind the last one.
    pub const fn end(&self) -> u32 {
        self.block + self.blocks
    }
}

/// Most back-references in a row: its value stays far below the longest one.
pub const BACKREFS_MAX: usize = 1024;

/// Most ones at the start of a difference. A larger difference is this many ones and a long number.
const ONES_MAX: u32 = 16;

/// Packs back-references, which must be sorted by owner. The format, in bits:
///
/// Four [numbers](super::put_number): records of files, records of extents, `width`, `low`. Then
/// records, as a stream of bits that fills each byte from its low bit on. A *long* number is the
/// number of its bits less one in 6 bits, then its bits. A *difference* is unary above its lowest
/// `low` bits: so many ones, a zero, the low bits; from [`ONES_MAX`] ones on, the ones and a long
/// number.
///
/// | field | bits |
/// | --- | --- |
/// | blocks | 1 for one block; else 0 and a long number |
/// | owner: the same file as before | 1, the difference of the blocks in the file |
/// | owner: another file | 0, the difference of the inodes (long), the block in the file (long) |
/// | owner: an extent | the difference of the extents' numbers (long) |
/// | block in the zone | `width` bits |
pub fn encode(records: &[Backref]) -> Vec<u8> {
    assert!(records.is_sorted_by_key(|record| record.owner), "records are sorted by owner");
    let files = records.partition_point(|record| matches!(record.owner, Owner::Entry(..)));
    let last_block = records.iter().map(|record| record.block).max().unwrap_or(0);
    let width = u32::BITS - last_block.leading_zeros();
    let low = low_bits(&records[..files]);
    let mut bytes = Vec::with_capacity(4 * records.len() + 8);
    for number in [files as u64, (records.len() - files) as u64, width.into(), low.into()] {
        put_number(&mut bytes, number);
    }
    let mut bits = BitWriter { bytes, used: 0 };
    let (mut file, mut place, mut extent) = (0, 0, 0);
    for record in records {
        bits.put(u64::from(record.blocks == 1), 1);
        if record.blocks > 1 {
            bits.put_long(record.blocks.into());
        }
        match record.owner {
            Owner::Entry(ino, first) => {
                let is_same = ino.get() == file;
                bits.put(u64::from(is_same), 1);
                if is_same {
                    bits.put_difference(first - place, low);
                } else {
                    bits.put_long(ino.get() - file);
                    bits.put_long(first);
                }
                (file, place) = (ino.get(), first);
            }
            Owner::Extent(ExtentId(id)) => {
                bits.put_long(id - extent);
                extent = id;
            }
        }
        bits.put(record.block.into(), width);
    }
    bits.bytes
}

/// Unpacks the bytes of [`encode`].
pub fn decode(mut bytes: &[u8]) -> Result<Vec<Backref>, &'static str> {
    let mut number = || take_number(&mut bytes);
    let (files, extents, width, low) = (number()?, number()?, number()?, number()?);
    if files.saturating_add(extents) > BACKREFS_MAX as u64 {
        return Err("too many records");
    }
    let bits_of = |number: u64, max: u32| {
        u32::try_from(number).ok().filter(|bits| *bits <= max).ok_or("a number of too many bits")
    };
    let (width, low) = (bits_of(width, u32::BITS)?, bits_of(low, u64::BITS - 1)?);
    let mut bits = BitReader { bytes, used: 0 };
    let mut records = Vec::new();
    let (mut file, mut place, mut extent) = (0u64, 0u64, 0u64);
    for index in 0..files + extents {
        let blocks = if bits.take(1)? == 1 { 1 } else { bits.take_long()? };
        let blocks = u32::try_from(blocks).ok().filter(|blocks| *blocks > 0);
        let blocks = blocks.ok_or("no blocks, or more than a zone has")?;
        let owner = if index < files {
            if bits.take(1)? == 1 {
                let further = bits.take_difference(low)?;
                place = place.checked_add(further).ok_or("a block beyond the last")?;
            } else {
                let further = bits.take_long()?;
                let other = file.checked_add(further).filter(|_| further > 0);
                file = other.ok_or("the same inode, or one beyond the last")?;
                place = bits.take_long()?;
            }
            Owner::Entry(Ino::new(file), place)
        } else {
            extent = extent.checked_add(bits.take_long()?).ok_or("an extent beyond the last")?;
            Owner::Extent(ExtentId(extent))
        };
        let block = u32::try_from(bits.take(width)?).map_err(|_| "a block outside any zone")?;
        block.checked_add(blocks).ok_or("more blocks than a zone has")?;
        records.push(Backref { block, blocks, owner });
    }
    if bits.bytes.len() > bits.used.div_ceil(8) {
        return Err("bytes behind the last record");
    }
    Ok(records)
}

/// The number of low bits with which differences of blocks of files pack best.
fn low_bits(records: &[Backref]) -> u32 {
    let differences = records.windows(2).filter_map(|pair| match (pair[0].owner, pair[1].owner) {
        (Owner::Entry(ino, first), Owner::Entry(next, second)) if ino == next => {
            Some(second - first)
        }
        _ => None,
    });
    let (sum, count) = differences
        .fold((0u128, 0u128), |(sum, count), difference| (sum + u128::from(difference), count + 1));
    // The bits of the mean: half of the differences need at most one bit above these.
    sum.checked_div(count).and_then(u128::checked_ilog2).unwrap_or(0).min(u64::BITS - 1)
}

struct BitWriter {
    bytes: Vec<u8>,
    /// Used bits of the last byte; 0 if all are used.
    used: u32,
}

impl BitWriter {
    fn put(&mut self, value: u64, bits: u32) {
        for at in 0..bits {
            if self.used == 0 {
                self.bytes.push(0);
            }
            let bit = (value >> at & 1) as u8;
            *self.bytes.last_mut().expect("just made sure") |= bit << self.used;
            self.used = (self.used + 1) % 8;
        }
    }

    fn put_long(&mut self, value: u64) {
        let bits = value.checked_ilog2().unwrap_or(0);
        self.put(bits.into(), 6);
        self.put(value, bits + 1);
    }

    fn put_difference(&mut self, value: u64, low: u32) {
        let high = value >> low;
        if high < u64::from(ONES_MAX) {
            self.put((1 << high) - 1, u32::try_from(high).expect("a few") + 1);
            self.put(value, low);
        } else {
            self.put(u64::MAX, ONES_MAX);
            self.put_long(value);
        }
    }
}

struct BitReader<'a> {
    bytes: &'a [u8],
    /// Bits read so far.
    used: usize,
}

impl BitReader<'_> {
    fn take(&mut self, bits: u32) -> Result<u64, &'static str> {
        let mut value = 0;
        for at in 0..bits {
            let byte = self.bytes.get(self.used / 8).ok_or("the bytes end in a record")?;
            value |= u64::from(byte >> (self.used % 8) & 1) << at;
            self.used += 1;
        }
        Ok(value)
    }

    fn take_long(&mut self) -> Result<u64, &'static str> {
        let bits = u32::try_from(self.take(6)?).expect("six bits");
        self.take(bits + 1)
    }

    fn take_difference(&mut self, low: u32) -> Result<u64, &'static str> {
        let mut high = 0;
        while self.take(1)? == 1 {
            high += 1;
            if high == u64::from(ONES_MAX) {
                return self.take_long();
            }
        }
        let value = u128::from(high) << low | u128::from(self.take(low)?);
        u64::try_from(value).map_err(|_| "a block beyond the last")
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn any_owner() -> impl Strategy<Value = Owner> {
        let number = prop_oneof![0u64..9, any::<u64>()];
        (any::<bool>(), 1u64..9, number).prop_map(|(is_file, ino, at)| {
            if is_file { Owner::Entry(Ino::new(ino), at) } else { Owner::Extent(ExtentId(at)) }
        })
    }

    fn any_record() -> impl Strategy<Value = Backref> {
        (prop_oneof![0u32..99, 0..u32::MAX / 2], 1u32..99, any_owner())
            .prop_map(|(block, blocks, owner)| Backref { block, blocks, owner })
    }

    proptest! {
        #[test]
        fn backref_encoding_round_trips(mut records in vec(any_record(), 0..40)) {
            records.sort_by_key(|record| record.owner);
            prop_assert_eq!(decode(&encode(&records)), Ok(records));
        }

        #[test]
        fn backref_decode_handles_any_bytes(bytes in vec(any::<u8>(), 0..200)) {
            if let Ok(records) = decode(&bytes) {
                prop_assert_eq!(decode(&encode(&records)), Ok(records));
            }
        }
    }

    #[test]
    fn backref_encoding_is_compact() {
        let record = |block: u32, first: u64, blocks| {
            let owner = Owner::Entry(Ino::new(70_000), first);
            Backref { block, blocks, owner }
        };
        let bytes = encode(&[record(0, 0, 65_536)]).len();
        assert!(bytes <= 13, "{bytes} bytes");
        let random = |at: u32| record(at.wrapping_mul(40_503) % 65_536, u64::from(at) * 20, 1);
        let records: Vec<Backref> = (0..1000).map(random).collect();
        let bytes = encode(&records).len();
        assert!(bytes <= 3100, "{bytes} bytes");
    }
}
