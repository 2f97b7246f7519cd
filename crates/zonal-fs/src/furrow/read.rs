//! Reading a file: its bytes, where data and holes are, and the access time that reading moves.

use std::sync::Arc;

use super::buffer::BlockData;
use super::data::Source;
use super::format::{Address, BLOCK_BYTES};
use super::place::MapEntry;
use super::state::State;
use super::{AtimePolicy, Furrow};
use crate::FsError;
use crate::rules;
use crate::vfs::{Ino, InodeFlags, Result, Seek};

const NO_ATIME: InodeFlags = InodeFlags::NO_ATIME;

const BLOCK: u64 = BLOCK_BYTES as u64;

/// Part of a read that comes from the drive.
struct Piece {
    source: Source,
    /// Where it goes in the buffer of whole blocks.
    block: u64,
}

/// What is to be read, found in one look at the state: a truncation is before it or after it.
struct Look {
    /// Bytes of the file in the range asked for.
    len: usize,
    /// First block.
    first: u64,
    pieces: Vec<Piece>,
    buffered: Vec<(u64, Arc<BlockData>)>,
}

impl Furrow {
    pub(super) fn read_file(&self, ino: Ino, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let look = self.look(ino, offset, buffer.len())?;
        let len = look.len;
        if len == 0 {
            return Ok(0);
        }
        let buffer = &mut buffer[..len];
        if offset.is_multiple_of(BLOCK) && len.is_multiple_of(BLOCK_BYTES) {
            self.read_look(&look, buffer)?;
        } else {
            let skip = usize::try_from(offset % BLOCK).expect("inside a block");
            let mut whole = vec![0; (skip + len).next_multiple_of(BLOCK_BYTES)];
            self.read_look(&look, &mut whole)?;
            buffer.copy_from_slice(&whole[skip..skip + len]);
        }
        self.touch_atime(ino)?;
        Ok(len)
    }

    /// Finds what the bytes at `offset` are, and pins the zones that they are in.
    fn look(&self, ino: Ino, offset: u64, len: usize) -> Result<Look> {
        let state = self.read_state();
        let inode = state.inode(ino)?;
        let file = inode.file()?;
        let len = inode.size.saturating_sub(offset).min(len as u64);
        let (first, limit) = (offset / BLOCK, (offset + len).div_ceil(BLOCK));
        let len = usize::try_from(len).expect("no longer than the buffer");
        if len == 0 {
            return Ok(Look { len, first, pieces: Vec::new(), buffered: Vec::new() });
        }
        let pieces: Vec<Piece> = file
            .overlapping(first, limit)
            .filter_map(|entry| piece(&state, ino, entry, first..limit))
            .collect();
        let dirty = file.dirty.range(first..limit);
        let buffered = dirty.map(|(&block, dirty)| (block, Arc::clone(&dirty.data))).collect();
        for piece in &pieces {
            self.pin_zone(piece.source.at.zone);
        }
        Ok(Look { len, first, pieces, buffered })
    }

    /// Reads whole blocks, and unpins their zones.
    fn read_look(&self, look: &Look, buffer: &mut [u8]) -> Result<()> {
        let place = |block: u64| {
            let index = usize::try_from(block - look.first).expect("inside the buffer");
            index * BLOCK_BYTES
        };
        let mut outcome = Ok(());
        let mut filled = 0;
        for piece in &look.pieces {
            let from = place(piece.block);
            let to = from + piece.source.crcs.len() * BLOCK_BYTES;
            buffer[filled..from].fill(0);
            filled = to;
            if outcome.is_ok() {
                outcome = self.read_blocks(&piece.source, &mut buffer[from..to]);
            }
            self.unpin_zone(piece.source.at.zone);
        }
        outcome?;
        buffer[filled..].fill(0);
        for (block, data) in &look.buffered {
            let from = place(*block);
            buffer[from..from + BLOCK_BYTES].copy_from_slice(&data[..]);
        }
        Ok(())
    }

    pub(super) fn seek_file(&self, ino: Ino, what: Seek, offset: u64) -> Result<u64> {
        let state = self.read_state();
        let inode = state.inode(ino)?;
        let file = inode.file()?;
        if offset >= inode.size {
            return Err(FsError::SeekBeyondEnd);
        }
        let block = offset / BLOCK;
        let is_data = |entry: &MapEntry| !entry.is_preallocated();
        match what {
            Seek::Data => {
                let stored = file
                    .overlapping(block, u64::MAX)
                    .find(|&(_, entry)| is_data(entry))
                    .map(|(start, _)| start.max(block));
                let buffered = file.dirty.range(block..).next().map(|(&block, _)| block);
                let found = stored.into_iter().chain(buffered).min();
                let position = found.map(|block| offset.max(block * BLOCK));
                position.filter(|at| *at < inode.size).ok_or(FsError::SeekBeyondEnd)
            }
            Seek::Hole => {
                let mut block = block;
                loop {
                    if let Some((start, entry)) =
                        file.covering(block).filter(|&(_, entry)| is_data(entry))
                    {
                        block = start + u64::from(entry.blocks());
                    } else if file.dirty.contains_key(&block) {
                        block += 1;
                    } else {
                        break;
                    }
                }
                Ok(offset.max(block.saturating_mul(BLOCK)).min(inode.size))
            }
        }
    }

    /// Moves the access time, if the policy says so.
    pub(super) fn touch_atime(&self, ino: Ino) -> Result<()> {
        if self.is_read_only() {
            return Ok(());
        }
        let now = self.now();
        let is_due = match self.options.atime {
            AtimePolicy::Never => false,
            AtimePolicy::Always => !self.read_state().inode(ino)?.flags.contains(NO_ATIME),
            AtimePolicy::Relative => {
                let attr = self.read_state().inode(ino)?.attr(ino);
                !attr.flags.contains(NO_ATIME) && rules::atime_is_due(&attr, now)
            }
        };
        // A read waits for no commit. As long as it is due, the next one moves it.
        let can_wait = self.options.atime == AtimePolicy::Always;
        if is_due && (can_wait || !self.is_held_off()) {
            self.write_state().change_inode(ino)?.atime = now;
        }
        Ok(())
    }
}

/// The part of a map entry that a read of `blocks` wants, if it is on the drive.
fn piece(
    state: &State,
    ino: Ino,
    (start, entry): (u64, &MapEntry),
    blocks: std::ops::Range<u64>,
) -> Option<Piece> {
    let stored = state.stored(entry)?;
    let first = start.max(blocks.start);
    let limit = (start + u64::from(entry.blocks())).min(blocks.end);
    let narrow = |blocks: u64| u32::try_from(blocks).expect("inside the entry");
    let (skip, count) = (narrow(first - start), narrow(limit - first));
    let crcs = stored.crcs[skip as usize..(skip + count) as usize].to_vec();
    let at = Address { zone: stored.zone, block: stored.block + skip };
    Some(Piece { source: Source { at, crcs, ino, first }, block: first })
}
