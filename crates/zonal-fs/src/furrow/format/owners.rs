//! Owner records: whose the blocks of a zone are, so that reclaim finds what to move.
//!
//! A record says that blocks were given to a place of a file, or to a shared extent. It is a hint:
//! who uses one looks at the map, for what it says may be over. Records that name all that lives in
//! a zone are its `Owners` rows, packed: some five bytes for a block written at random, one record
//! for a file written in order.

use super::number::{put_number, take_number};
pub use crate::furrow::place::ExtentId;
use crate::vfs::Ino;

/// Whose a run of blocks in a zone is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Owner {
    /// A file, from one of its blocks on.
    Entry(Ino, u64),
    /// A shared extent.
    Extent(ExtentId),
}

/// Blocks of a zone that were given to somebody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnerRecord {
    /// The first one in the zone.
    pub block: u32,
    /// How many, never 0.
    pub blocks: u32,
    /// To whom.
    pub owner: Owner,
}

impl OwnerRecord {
    /// The block behind its last one.
    pub const fn end(&self) -> u32 {
        self.block + self.blocks
    }
}

/// Records of an `Owners` row at most: its value stays far below the longest one.
pub const RECORDS_MAX: usize = 1024;

/// Packs records. They are sorted by owner.
///
/// First how many belong to files, as a number. Then each, as numbers: blocks - 1, doubled, plus 1
/// if it is of another file than the one before; the difference of the inode numbers if so; the
/// file's block, less that of the record before if it is of the same file; the zone's block less the
/// end of the record before, folded. Records of extents: blocks - 1, the difference of the extents'
/// numbers, the zone's block likewise.
pub fn encode(records: &[OwnerRecord]) -> Vec<u8> {
    assert!(records.is_sorted_by_key(|record| record.owner), "records are sorted by owner");
    let files = records.partition_point(|record| matches!(record.owner, Owner::Entry(..)));
    let mut bytes = Vec::with_capacity(6 * records.len() + 2);
    put_number(&mut bytes, files as u64);
    let (mut file, mut place, mut extent, mut end) = (0, 0, 0, 0);
    for record in records {
        let blocks = u64::from(record.blocks) - 1;
        match record.owner {
            Owner::Entry(ino, first) => {
                let is_other = ino.get() != file;
                put_number(&mut bytes, blocks << 1 | u64::from(is_other));
                if is_other {
                    put_number(&mut bytes, ino.get() - file);
                    (file, place) = (ino.get(), 0);
                }
                put_number(&mut bytes, first - place);
                place = first;
            }
            Owner::Extent(ExtentId(id)) => {
                put_number(&mut bytes, blocks);
                put_number(&mut bytes, id - extent);
                extent = id;
            }
        }
        put_number(&mut bytes, fold(i64::from(record.block) - i64::from(end)));
        end = record.end();
    }
    bytes
}

/// Unpacks what [`encode`] made.
pub fn decode(mut bytes: &[u8]) -> Result<Vec<OwnerRecord>, &'static str> {
    let rest = &mut bytes;
    let mut files = take_number(rest)?;
    let mut records = Vec::new();
    let (mut file, mut place, mut extent, mut end) = (0u64, 0u64, 0u64, 0u32);
    while !rest.is_empty() {
        if records.len() == RECORDS_MAX {
            return Err("too many records");
        }
        let head = take_number(rest)?;
        let (blocks, owner) = if files > 0 {
            files -= 1;
            if head & 1 == 1 {
                file = file.checked_add(take_number(rest)?).ok_or("an inode beyond the last")?;
                place = 0;
            }
            place = place.checked_add(take_number(rest)?).ok_or("a block beyond the last")?;
            (head >> 1, Owner::Entry(Ino::new(file), place))
        } else {
            extent = extent.checked_add(take_number(rest)?).ok_or("an extent beyond the last")?;
            (head, Owner::Extent(ExtentId(extent)))
        };
        let further = unfold(take_number(rest)?);
        let block = i64::from(end).checked_add(further).and_then(|block| u32::try_from(block).ok());
        let block = block.ok_or("a block outside any zone")?;
        let blocks = u32::try_from(blocks).ok().and_then(|blocks| blocks.checked_add(1));
        let blocks = blocks.ok_or("more blocks than a zone has")?;
        end = block.checked_add(blocks).ok_or("more blocks than a zone has")?;
        records.push(OwnerRecord { block, blocks, owner });
    }
    if files > 0 { Err("records are missing") } else { Ok(records) }
}

/// A number with a sign as one without: 0, -1, 1, -2, …
const fn fold(number: i64) -> u64 {
    (number << 1 ^ number >> 63).cast_unsigned()
}

/// Takes [`fold`] back.
const fn unfold(number: u64) -> i64 {
    (number >> 1).cast_signed() ^ -(number & 1).cast_signed()
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

    fn any_record() -> impl Strategy<Value = OwnerRecord> {
        (prop_oneof![0u32..99, 0..u32::MAX / 2], 1u32..99, any_owner())
            .prop_map(|(block, blocks, owner)| OwnerRecord { block, blocks, owner })
    }

    proptest! {
        #[test]
        fn records_come_back_as_they_were(mut records in vec(any_record(), 0..40)) {
            records.sort_by_key(|record| record.owner);
            prop_assert_eq!(decode(&encode(&records)), Ok(records));
        }

        #[test]
        fn any_bytes_are_records_or_an_error(bytes in vec(any::<u8>(), 0..200)) {
            if let Ok(records) = decode(&bytes) {
                prop_assert_eq!(decode(&encode(&records)), Ok(records));
            }
        }
    }

    #[test]
    fn a_file_in_order_takes_one_record_and_random_blocks_five_bytes() {
        let record = |block: u32, first: u64, blocks| {
            let owner = Owner::Entry(Ino::new(70_000), first);
            OwnerRecord { block, blocks, owner }
        };
        assert!(encode(&[record(0, 0, 65_536)]).len() <= 9);
        let random = |at: u32| record(at.wrapping_mul(40_503) % 65_536, u64::from(at) * 20, 1);
        let records: Vec<OwnerRecord> = (0..1000).map(random).collect();
        assert!(encode(&records).len() <= 5100, "{} bytes", encode(&records).len());
    }
}
