//! Fresh data: whether the data of the newest batch is there.
//!
//! A small commit writes data and batch and flushes once. The batch says where data begins that no
//! earlier flush covers, and counts only if replay finds the blocks there that its rows refer to.
//! Only the newest batch can lack data, because a commit writes a batch only once the one before is
//! durable, data included. If data of an earlier batch is missing, the drive has lost it: the batch
//! counts, and a file has a block that cannot be read.

use zonal::{Zone, ZoneCond};

use crate::furrow::drive::Drive;
use crate::furrow::format::batch::FreshZone;
use crate::furrow::format::row::decode;
use crate::furrow::format::{Address, BLOCK_BYTES};
use crate::furrow::table::leaf::decode_rows;

/// Blocks of data that a batch may leave to its own flush: 1 MiB, which a mount reads in no time.
pub(super) const FRESH_BLOCKS_MAX: u64 = 256;

/// Fresh data of a batch, and the zones that it should be in.
pub(in crate::furrow) struct FreshData<'a> {
    pub(in crate::furrow) drive: &'a Drive,
    /// The zones as the drive reports them.
    pub(in crate::furrow) zones: &'a [Zone],
    /// Where fresh data begins.
    pub(in crate::furrow) fresh: &'a [FreshZone],
}

impl FreshData<'_> {
    /// The first block that these rows name and the drive lacks, in words.
    pub(in crate::furrow) fn missing_of(&self, bodies: &[Vec<u8>]) -> Option<String> {
        let mut missing = None;
        for body in bodies {
            // Replay finds rows that cannot be read when it applies them.
            let _ = decode_rows(body, |key, value: Option<&[u8]>| {
                if missing.is_none()
                    && let Some(value) = value
                    && let Some((at, crcs)) = decode(key, value)?.stored()
                {
                    let crcs: Vec<u32> = crcs.iter().map(|crc| crc.get()).collect();
                    missing = self.missing_of_run(at, &crcs);
                }
                Ok(())
            });
        }
        missing
    }

    /// The same for one run of blocks.
    fn missing_of_run(&self, at: Address, crcs: &[u32]) -> Option<String> {
        let fresh = self.fresh.iter().find(|fresh| fresh.zone.get() == at.zone)?;
        // Replay finds rows of a zone that does not exist when it applies them.
        let zone = self.zones.get(at.zone as usize)?;
        let room = self.drive.layout.capacity(at.zone).saturating_sub(at.block) as usize;
        let skipped = fresh.block.get().saturating_sub(at.block);
        let crcs = crcs.get(skipped as usize..crcs.len().min(room))?;
        let at = Address { block: at.block + skipped, ..at };
        let block = self.first_missing(zone, at, crcs)?;
        Some(format!("zone {} block {block}", at.zone))
    }

    /// The first of some blocks that was never written. A block that the drive has, and does not
    /// return, was written.
    fn first_missing(&self, zone: &Zone, at: Address, crcs: &[u32]) -> Option<u32> {
        if crcs.is_empty() || zone.cond == ZoneCond::Offline {
            return None;
        }
        let per_block = self.drive.layout.per_block;
        let written = zone.written().map_or(u64::MAX, |written| written.get() / per_block);
        let there = crcs.len().min(usize::try_from(written.saturating_sub(at.block.into())).ok()?);
        // The last block may be torn; and a reset that the power cut has undone returns older
        // blocks.
        let mut buffer = vec![0; there * BLOCK_BYTES];
        let wrong = match self.drive.read_verified(at, &crcs[..there], &mut buffer) {
            Ok(wrong) => wrong.first().copied(),
            Err(_) if there > 1 => {
                // The drive does not return one of them: look at each by itself.
                let one = |index: usize| {
                    let block = at.block + u32::try_from(index).expect("inside a zone");
                    self.first_missing(zone, Address { block, ..at }, &crcs[index..=index])
                };
                return (0..crcs.len()).find_map(one);
            }
            Err(_) => None,
        };
        let behind = (there < crcs.len()).then(|| u32::try_from(there).expect("inside a zone"));
        wrong.or(behind).map(|index| at.block + index)
    }
}
