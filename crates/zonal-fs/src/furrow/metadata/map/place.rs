//! Places of file blocks: map entries, shared extents, checksums.
//!
//! A map entry contains the place of its blocks and their checksums. Only blocks that several
//! entries share have an extent of their own, which all these entries name: so reclaim moves shared
//! blocks by changing one row. [`extent`](crate::furrow::metadata::state::mapping) changes them.

use zonal::crc32c;

use crate::furrow::format::BLOCK_BYTES;
pub(in crate::furrow) use crate::furrow::format::backref::{ExtentId, Owner};
use crate::furrow::format::row::{CopySpace, extent_bytes, map_bytes, shared_map_bytes};
use crate::furrow::memory::{allocated, in_tree};

/// Checksums of consecutive blocks, one each. A file that was written at random has as many entries
/// as blocks, so a single checksum needs no memory outside its entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::furrow) struct Crcs(Repr);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Repr {
    One(u32),
    Many(Box<[u32]>),
}

impl Crcs {
    pub(in crate::furrow::metadata) fn as_slice(&self) -> &[u32] {
        match &self.0 {
            Repr::One(crc) => std::slice::from_ref(crc),
            Repr::Many(crcs) => crcs,
        }
    }

    pub(super) fn of_one(crc: u32) -> Self {
        Self(Repr::One(crc))
    }

    /// That of a single block.
    pub(super) fn single(&self) -> Option<u32> {
        match self.0 {
            Repr::One(crc) => Some(crc),
            Repr::Many(_) => None,
        }
    }

    /// Blocks that have their checksums here.
    pub(in crate::furrow) fn blocks(&self) -> u32 {
        u32::try_from(self.as_slice().len()).expect("shorter than a zone")
    }

    /// The checksums of `blocks` blocks behind the first `skip`.
    pub(in crate::furrow::metadata) fn part(&self, skip: u32, blocks: u32) -> Self {
        Self::from(&self.as_slice()[skip as usize..(skip + blocks) as usize])
    }

    /// These and then the others.
    pub(super) fn joined(&self, others: &Self) -> Self {
        Self::from(&[self.as_slice(), others.as_slice()].concat()[..])
    }
}

impl From<&[u32]> for Crcs {
    fn from(crcs: &[u32]) -> Self {
        Self(match crcs {
            [crc] => Repr::One(*crc),
            crcs => Repr::Many(crcs.into()),
        })
    }
}

/// A piece of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::furrow) enum MapEntry {
    /// Space that is kept for the file and not written yet: it reads as zeroes.
    Preallocated {
        /// Its length.
        blocks: u32,
    },
    /// Blocks that belong to this entry alone.
    At {
        zone: u32,
        /// The first one in the zone.
        block: u32,
        /// One per block: its length is the entry's.
        crcs: Crcs,
    },
    /// Blocks of a shared extent.
    Shared {
        extent: ExtentId,
        /// Blocks of the extent before the piece.
        skip: u32,
        blocks: u32,
        /// Whether the file has space for a copy of them.
        space: CopySpace,
    },
}

impl MapEntry {
    pub(in crate::furrow) fn blocks(&self) -> u32 {
        match self {
            Self::Preallocated { blocks } | Self::Shared { blocks, .. } => *blocks,
            Self::At { crcs, .. } => crcs.blocks(),
        }
    }

    /// The extent that it names, if its blocks are shared.
    pub(in crate::furrow::metadata) fn shared(&self) -> Option<ExtentId> {
        match self {
            Self::Shared { extent, .. } => Some(*extent),
            Self::Preallocated { .. } | Self::At { .. } => None,
        }
    }

    pub(in crate::furrow) fn is_preallocated(&self) -> bool {
        matches!(self, Self::Preallocated { .. })
    }

    /// Blocks that are preallocated to the file for this range.
    pub(in crate::furrow) fn preallocated(&self) -> u64 {
        match self {
            Self::Preallocated { blocks } => u64::from(*blocks),
            Self::At { .. } => 0,
            Self::Shared { blocks, space, .. } => space.preallocated(*blocks),
        }
    }

    /// The piece of it that begins behind `ahead` blocks.
    pub(in crate::furrow::metadata) fn part(&self, ahead: u32, blocks: u32) -> Self {
        match self {
            Self::Preallocated { .. } => Self::Preallocated { blocks },
            Self::At { zone, block, crcs } => {
                Self::At { zone: *zone, block: block + ahead, crcs: crcs.part(ahead, blocks) }
            }
            Self::Shared { extent, skip, space, .. } => {
                Self::Shared { extent: *extent, skip: skip + ahead, blocks, space: *space }
            }
        }
    }

    /// Whether its blocks begin at this one of a zone.
    pub(in crate::furrow::metadata) fn begins_at(&self, zone: u32, block: u32) -> bool {
        matches!(self, Self::At { zone: own, block: first, .. } if (*own, *first) == (zone, block))
    }

    /// Whether its blocks end before this one of a zone.
    pub(in crate::furrow::metadata) fn ends_at(&self, zone: u32, block: u32) -> bool {
        matches!(self, Self::At { zone: own, block: first, crcs }
            if *own == zone && first + crcs.blocks() == block)
    }

    /// This and `next` as one entry, if `next` goes on in the zone where this ends and together
    /// they are no longer than `blocks_max`.
    pub(in crate::furrow::metadata) fn joined(&self, next: &Self, blocks_max: u32) -> Option<Self> {
        let (
            Self::At { zone, block, crcs },
            Self::At { zone: next_zone, block: next_block, crcs: next_crcs },
        ) = (self, next)
        else {
            return None;
        };
        let goes_on = self.ends_at(*next_zone, *next_block);
        (goes_on && crcs.blocks() + next_crcs.blocks() <= blocks_max).then(|| Self::At {
            zone: *zone,
            block: *block,
            crcs: crcs.joined(next_crcs),
        })
    }

    /// Bytes that the rows grow by when it is shared once more.
    pub(in crate::furrow) fn sharing_bytes(&self) -> u64 {
        match self {
            Self::Preallocated { .. } => 0,
            Self::At { crcs, .. } => {
                let shared = extent_bytes(crcs.blocks()) + 2 * shared_map_bytes();
                shared.saturating_sub(self.row_bytes())
            }
            Self::Shared { .. } => shared_map_bytes(),
        }
    }

    /// Bytes of its row.
    pub(in crate::furrow::metadata) fn row_bytes(&self) -> u64 {
        match self {
            Self::Preallocated { .. } => map_bytes(0),
            Self::At { crcs, .. } => map_bytes(crcs.blocks()),
            Self::Shared { .. } => shared_map_bytes(),
        }
    }
}

/// A run of blocks in a zone that several map entries share.
#[derive(Clone, Debug)]
pub(in crate::furrow) struct Extent {
    pub(in crate::furrow) zone: u32,
    pub(in crate::furrow) block: u32,
    /// Map entries that refer to it.
    pub(in crate::furrow::metadata) refs: u32,
    /// One per block; its length is the extent's.
    pub(in crate::furrow) crcs: Crcs,
    /// When it was loaded, so that an eviction finds old ones.
    pub(in crate::furrow::metadata) used: u64,
}

/// A run of blocks that the device has taken, not yet mapped.
#[derive(Clone, Copy, Debug)]
pub(in crate::furrow) struct Placed {
    pub(in crate::furrow) zone: u32,
    pub(in crate::furrow) block: u32,
    pub(in crate::furrow) blocks: u32,
}

/// CRC-32C of each block of `data`.
pub(in crate::furrow) fn checksums(data: &[u8]) -> Vec<u32> {
    data.chunks(BLOCK_BYTES).map(crc32c::crc32c).collect()
}

/// Stored blocks of an entry.
#[derive(Clone, Copy, Debug)]
pub(in crate::furrow) struct Stored<'a> {
    pub(in crate::furrow) zone: u32,
    pub(in crate::furrow) block: u32,
    pub(in crate::furrow) crcs: &'a [u32],
}

fn crcs_bytes(crcs: &Crcs) -> usize {
    let count = crcs.as_slice().len();
    if count > 1 { allocated(4 * count) } else { 0 }
}

impl MapEntry {
    /// Bytes of memory in addition to its place in the map.
    pub(in crate::furrow::metadata) fn held_bytes(&self) -> usize {
        match self {
            Self::At { crcs, .. } => crcs_bytes(crcs),
            Self::Preallocated { .. } | Self::Shared { .. } => 0,
        }
    }
}

impl Extent {
    /// Bytes of memory.
    pub(in crate::furrow::metadata) fn held_bytes(&self) -> usize {
        in_tree(size_of::<(ExtentId, Self)>()) + crcs_bytes(&self.crcs)
    }
}

const _: () = assert!(size_of::<MapEntry>() == 32);

#[cfg(test)]
mod tests {
    use super::*;

    fn at(block: u32, crcs: &[u32]) -> MapEntry {
        MapEntry::At { zone: 3, block, crcs: crcs.into() }
    }

    #[test]
    fn map_entry_split_parts_join_again() {
        let whole = at(10, &[1, 2, 3, 4]);
        let (left, right) = (whole.part(0, 1), whole.part(1, 3));
        assert_eq!((&left, &right), (&at(10, &[1]), &at(11, &[2, 3, 4])));
        assert_eq!(left.joined(&right, 4), Some(whole));
        assert_eq!(left.joined(&right, 3), None, "longer than an extent may be");
        assert_eq!(left.joined(&at(12, &[5]), 4), None, "a block lies between");
        assert_eq!(left.joined(&MapEntry::Preallocated { blocks: 1 }, 4), None);
    }
}
