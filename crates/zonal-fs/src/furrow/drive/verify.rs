//! Verification: compares blocks with their checksums, and reads wrong ones again.
//!
//! A block may be wrong on the medium, or only in one transfer, because of a cable, a controller or
//! a buffer. One read proves neither. That matters most to a caller that will erase the original.

use std::sync::atomic::Ordering;

use zonal::{DeviceError, ZoneId, crc32c};

use crate::FsError;
use crate::furrow::drive::Drive;
use crate::furrow::drive::reads::Wanted;
use crate::furrow::format::{Address, BLOCK_BYTES};
use crate::furrow::planted::mistake;
use crate::vfs::Ino;

/// Attempts to read a block again: each reads this many blocks before and after it as well, so that
/// the command and the place in memory differ.
const AGAIN: [(u32, u32); 4] = [(0, 0), (1, 0), (0, 1), (0, 0)];

/// Consecutive blocks of a file that lie in one zone.
#[derive(Clone, Debug)]
pub(in crate::furrow) struct StoredBlocks {
    pub(in crate::furrow) at: Address,
    pub(in crate::furrow) crcs: Vec<u32>,
    /// The file, for the error if a checksum is wrong.
    pub(in crate::furrow) ino: Ino,
    /// File block of the first one.
    pub(in crate::furrow) first: u64,
    /// The zone's blocks up to here have data that no write changes; 0 if this is not known.
    pub(in crate::furrow) readable: u32,
}

impl Drive {
    /// Reads whole blocks and returns the indices of blocks that stay wrong when read again.
    pub(in crate::furrow) fn read_verified(
        &self,
        at: Address,
        crcs: &[u32],
        buffer: &mut [u8],
    ) -> Result<Vec<u32>, DeviceError> {
        self.read(at, buffer)?;
        Ok(self.find_wrong(at, crcs, buffer))
    }

    /// Verifies blocks that the caller has read from `at` on, and returns the indices of blocks
    /// that stay wrong when read again.
    pub(in crate::furrow) fn find_wrong(
        &self,
        at: Address,
        crcs: &[u32],
        buffer: &mut [u8],
    ) -> Vec<u32> {
        let mut wrong = Vec::new();
        let blocks = buffer.chunks_mut(BLOCK_BYTES).zip(crcs).zip(0u32..);
        for ((bytes, &crc), index) in blocks {
            if crc32c::crc32c(bytes) == crc {
                continue;
            }
            let block = Address { block: at.block + index, ..at };
            if self.read_again(block, crc, bytes) {
                self.counts.blocks_reread.fetch_add(1, Ordering::Relaxed);
                tracing::warn!(zone = at.zone, block = block.block, "a read was wrong once");
            } else {
                wrong.push(index);
            }
        }
        wrong
    }

    /// Reads a block again, and returns whether it was right once.
    fn read_again(&self, at: Address, crc: u32, bytes: &mut [u8]) -> bool {
        AGAIN.into_iter().any(|(before, after)| {
            let before = before.min(at.block);
            let from = Address { block: at.block - before, ..at };
            let blocks = (before + 1 + after).min(self.blocks_after(from));
            let mut window = vec![0; blocks as usize * BLOCK_BYTES];
            let outcome = self.read(from, &mut window);
            let again = window.chunks(BLOCK_BYTES).nth(before as usize);
            match again.filter(|again| outcome.is_ok() && crc32c::crc32c(again) == crc) {
                Some(again) => {
                    bytes.copy_from_slice(again);
                    true
                }
                None => false,
            }
        })
    }

    /// Reads and verifies whole blocks of a pinned zone.
    pub(in crate::furrow) fn read_blocks(
        &self,
        source: &StoredBlocks,
        buffer: &mut [u8],
    ) -> crate::vfs::Result<()> {
        self.read_sources(vec![(source, buffer)])
    }

    /// Reads whole blocks of pinned zones side by side, and verifies them.
    pub(in crate::furrow) fn read_sources(
        &self,
        mut wanted: Vec<(&StoredBlocks, &mut [u8])>,
    ) -> crate::vfs::Result<()> {
        let places = wanted.iter_mut().map(|(source, buffer)| {
            let StoredBlocks { at, readable, .. } = **source;
            Wanted { at, buffer, readable }
        });
        self.read_all(&mut places.collect::<Vec<_>>())?;
        mistake!(self, SkipDataChecksum, return Ok(()));
        for (source, buffer) in wanted {
            let wrong = self.find_wrong(source.at, &source.crcs, buffer);
            if let Some(&index) = wrong.first() {
                return Err(FsError::Checksum {
                    ino: source.ino,
                    offset: (source.first + u64::from(index)) * BLOCK_BYTES as u64,
                    zone: ZoneId::new(source.at.zone),
                    block: source.at.block + index,
                });
            }
        }
        Ok(())
    }
}
