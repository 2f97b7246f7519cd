//! Fresh data: whether the data of the newest batch is there.
//!
//! A small commit writes data and batch and flushes once. The batch counts only if its data is
//! there: it says where data begins that no flush covers before it, and replay looks at the blocks
//! there that its rows refer to. Only the newest batch can lack data, because each batch is written
//! when the one before it is durable, data included. Data of an earlier batch that is missing is a
//! loss of the drive's: the batch counts, and a file has a block that cannot be read.

use zonal::{Zone, ZoneCond};

use crate::furrow::drive::Drive;
use crate::furrow::format::batch::FreshZone;
use crate::furrow::format::row::decode;
use crate::furrow::format::{Address, BLOCK_BYTES};
use crate::furrow::table::leaf::decode_rows;

/// Blocks of data that a batch may leave to its own flush: 1 MiB, which a mount reads in no time.
pub(in crate::furrow) const FRESH_BLOCKS_MAX: u64 = 256;

/// Why a batch is not whole, if it lacks data.
pub(in crate::furrow) fn what_lacks(
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
                && let Some((at, crcs)) = decode(key, value)?.stored()
            {
                let crcs: Vec<u32> = crcs.iter().map(|crc| crc.get()).collect();
                lacks = what_lacks_of(drive, zones, (fresh, at, &crcs));
            }
            Ok(())
        });
    }
    lacks
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
    let room = drive.layout.capacity(at.zone).saturating_sub(at.block) as usize;
    let skipped = fresh.block.get().saturating_sub(at.block);
    let crcs = crcs.get(skipped as usize..crcs.len().min(room)).filter(|crcs| !crcs.is_empty())?;
    let at = Address { block: at.block + skipped, ..at };
    let block = first_missing(drive, zone, (at, crcs))?;
    Some(format!("zone {} block {block}", at.zone))
}

/// The first of some blocks that was not written. One that the drive has, but does not give back,
/// was.
fn first_missing(drive: &Drive, zone: &Zone, (at, crcs): (Address, &[u32])) -> Option<u32> {
    if zone.cond == ZoneCond::Offline {
        return None;
    }
    let written = zone.written().map_or(u64::MAX, |written| written.get() / drive.layout.per_block);
    let there = crcs.len().min(usize::try_from(written.saturating_sub(at.block.into())).ok()?);
    // The last block may be torn; and a reset that was undone gives back what lay there before.
    let mut buffer = vec![0; there * BLOCK_BYTES];
    let wrong = match drive.read_verified(at, &crcs[..there], &mut buffer) {
        Ok(wrong) => wrong.first().copied(),
        Err(_) if there > 1 => {
            // One of them is not given back: what of the others?
            let one = |index: usize| {
                let block = at.block + u32::try_from(index).expect("inside a zone");
                first_missing(drive, zone, (Address { block, ..at }, &crcs[index..=index]))
            };
            return (0..crcs.len()).find_map(one);
        }
        Err(_) => None,
    };
    let behind = (there < crcs.len()).then(|| u32::try_from(there).expect("inside a zone"));
    wrong.or(behind).map(|index| at.block + index)
}
