//! Fresh data: whether the data of the newest batch is there.
//!
//! A small commit writes data and batch and flushes once. The batch counts only if its data is
//! there: it says where data begins that no flush covers before it, and replay looks at the blocks
//! there that its rows refer to. Only the newest batch can lack data, because each batch is written
//! when the one before it is durable, data included. Data of an earlier batch that is missing is a
//! loss of the drive's: the batch counts, and a file has a block that cannot be read.

use zonal::{Zone, ZoneCond};

use super::format::batch::FreshZone;
use super::format::row::{Place, Row, decode};
use super::format::{Address, BLOCK_BYTES};
use super::io::Drive;
use super::table::leaf::decode_rows;

/// Blocks of data that a batch may leave to its own flush: 1 MiB, which a mount reads in no time.
pub(super) const FRESH_BLOCKS_MAX: u64 = 256;

/// Why a batch is not whole, if it lacks data.
pub(super) fn what_lacks(
    drive: &Drive,
    zones: &[Zone],
    (fresh, bodies): (&[FreshZone], &[Vec<u8>]),
) -> Option<String> {
    let mut lacks = None;
    for body in bodies {
        // Rows that cannot be read are found when they are applied.
        let _ = decode_rows(body, |key, value: Option<&[u8]>| {
            if lacks.is_none()
                && let Some(value) = value
                && let Some((at, crcs)) = stored(&decode(key, value)?)
            {
                lacks = what_lacks_of(drive, zones, (fresh, at, &crcs));
            }
            Ok(())
        });
    }
    lacks
}

/// The blocks that a row has, with their checksums.
fn stored(row: &Row<'_>) -> Option<(Address, Vec<u32>)> {
    let (zone, block, crcs) = match row {
        Row::Map(_, Place::Zone(place, crcs)) => (place.zone, place.block, crcs),
        Row::Extent(row, crcs) => (row.zone, row.block, crcs),
        Row::Map(_, Place::Preallocated | Place::Shared(_))
        | Row::Totals(_)
        | Row::Zone(_)
        | Row::Orphan
        | Row::Inode(..)
        | Row::Entry(..)
        | Row::Xattr(..)
        | Row::Name(_)
        | Row::Owners(_) => return None,
    };
    let at = Address { zone: zone.get(), block: block.get() };
    Some((at, crcs.iter().map(|crc| crc.get()).collect()))
}

/// The same for a run of blocks.
fn what_lacks_of(
    drive: &Drive,
    zones: &[Zone],
    (fresh, at, crcs): (&[FreshZone], Address, &[u32]),
) -> Option<String> {
    let fresh = fresh.iter().find(|fresh| fresh.zone.get() == at.zone)?;
    // Rows of a zone that does not exist are found when they are applied.
    let zone = zones.get(at.zone as usize)?;
    let blocks = (at.block..drive.layout.capacity(at.zone)).zip(crcs);
    let missing = blocks
        .filter(|(block, _)| *block >= fresh.block.get())
        .find(|&(block, &crc)| !is_there(drive, zone, (Address { block, ..at }, crc)));
    missing.map(|(block, _)| format!("zone {} block {block}", at.zone))
}

/// Whether a block was written. One that the drive has, but does not give back, was.
fn is_there(drive: &Drive, zone: &Zone, (at, crc): (Address, u32)) -> bool {
    let end = (u64::from(at.block) + 1) * drive.layout.per_block;
    if zone.cond == ZoneCond::Offline {
        return true;
    }
    if zone.written().is_some_and(|written| written.get() < end) {
        return false;
    }
    // The last block may be torn; and a reset that was undone gives back what lay there before.
    let mut buffer = [0; BLOCK_BYTES];
    drive.read_verified(at, &[crc], &mut buffer).map_or(true, |wrong| wrong.is_empty())
}
