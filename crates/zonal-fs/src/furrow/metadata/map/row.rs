//! Rows of maps and of shared extents.
//!
//! Rows come from a drive and may say anything.

use zerocopy::byteorder::little_endian::{U32, U64};

use crate::furrow::format::row::{ExtentRow, Place, Row, SharedPlace, ZonePlace, encode};
use crate::furrow::format::{Address, ZoneGeneration};
use crate::furrow::metadata::map::place::{Crcs, Extent, ExtentId, MapEntry};

fn raw_crcs(crcs: &Crcs) -> Vec<U32> {
    crcs.as_slice().iter().map(|&crc| U32::new(crc)).collect()
}

pub(super) fn encode_extent(extent: &Extent) -> Box<[u8]> {
    let row = ExtentRow {
        zone: U32::new(extent.zone),
        block: U32::new(extent.block),
        refs: U32::new(extent.refs),
    };
    encode(&Row::Extent(row, &raw_crcs(&extent.crcs)))
}

pub(in crate::furrow::metadata) fn encode_map(
    entry: &MapEntry,
    generation: impl Fn(u32) -> ZoneGeneration,
) -> Box<[u8]> {
    let blocks = entry.blocks();
    match entry {
        MapEntry::Preallocated { .. } => encode(&Row::Map(blocks, Place::Preallocated)),
        MapEntry::At { zone, block, crcs } => {
            let place = ZonePlace::new(generation(*zone), *block);
            encode(&Row::Map(blocks, Place::Zone(place, &raw_crcs(crcs))))
        }
        MapEntry::Shared { extent, skip, space, .. } => {
            let place = SharedPlace { extent: U64::new(extent.0), skip: U32::new(*skip) };
            encode(&Row::Map(blocks, Place::Shared(place, *space)))
        }
    }
}

fn crcs_of(raw: &[U32]) -> Crcs {
    let crcs: Vec<u32> = raw.iter().map(|crc| crc.get()).collect();
    Crcs::from(&crcs[..])
}

pub(in crate::furrow) fn extent_of(row: &ExtentRow, crcs: &[U32]) -> Extent {
    let ExtentRow { zone, block, refs, .. } = row;
    Extent { zone: zone.get(), block: block.get(), refs: refs.get(), crcs: crcs_of(crcs), used: 0 }
}

pub(in crate::furrow) fn entry_of(blocks: u32, place: &Place<'_>) -> MapEntry {
    match place {
        Place::Preallocated => MapEntry::Preallocated { blocks },
        Place::Zone(place, crcs) => {
            let Address { zone, block } = place.address();
            MapEntry::At { zone, block, crcs: crcs_of(crcs) }
        }
        Place::Shared(SharedPlace { extent, skip }, space) => {
            let (extent, skip) = (ExtentId(extent.get()), skip.get());
            MapEntry::Shared { extent, skip, blocks, space: *space }
        }
    }
}
