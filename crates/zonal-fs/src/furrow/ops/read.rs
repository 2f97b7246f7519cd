//! Reading a file: its bytes, its holes (`lseek`), and the access time that a read updates.

use std::ops::Range;
use std::sync::Arc;

use crate::furrow::drive::verify::StoredBlocks;
use crate::furrow::format::{Address, BLOCK_BYTES};
use crate::furrow::metadata::map::place::MapEntry;
use crate::furrow::metadata::missing::{Lookup, Missing, Stop};
use crate::furrow::metadata::{File, Inode, State};
use crate::furrow::planted::PlantedBug;
use crate::furrow::write::buffer::{BlockData, FileBlock};
use crate::furrow::{AtimePolicy, Furrow};
use crate::vfs::{Ino, InodeFlags, ReadFlags, Result, Seek, Timestamp};
use crate::{FsError, rules};

const NO_ATIME: InodeFlags = InodeFlags::NO_ATIME;

const BLOCK: u64 = BLOCK_BYTES as u64;

/// Bytes below which a read at odd offsets goes through a copy of its blocks, as one call of the
/// device: the copy takes microseconds.
const SHORT_BYTES: u64 = 64 << 10;

/// The bytes and places for a read, found under one lock of the state: a truncation is before it or
/// after it.
#[derive(Default)]
struct ReadPlan {
    /// Bytes of the file in the range.
    len: usize,
    /// Blocks that hold them.
    blocks: Range<u64>,
    /// Of these, blocks that the device reads straight into the caller's buffer.
    direct: Range<u64>,
    stored: Vec<StoredBlocks>,
    buffered: Vec<(u64, Arc<BlockData>)>,
    /// The new access time, if it is due.
    atime: Option<Timestamp>,
}

/// Memory for blocks of a file, from `first` on.
struct ReadBuffer<'a> {
    first: u64,
    bytes: &'a mut [u8],
}

impl ReadBuffer<'_> {
    fn blocks(&self) -> Range<u64> {
        self.first..self.first + (self.bytes.len() / BLOCK_BYTES) as u64
    }

    fn index(&self, block: u64) -> usize {
        usize::try_from(block - self.first).expect("inside the part") * BLOCK_BYTES
    }
}

impl Furrow {
    pub(super) fn read_file(
        &self,
        ino: Ino,
        offset: u64,
        buffer: &mut [u8],
        flags: ReadFlags,
    ) -> Result<usize> {
        let plan = self.tree.loaded(|| self.plan_read(ino, offset, buffer.len()))?;
        if plan.len == 0 {
            return Ok(0);
        }
        let Range { start, end } = plan.direct;
        let mut head = vec![0; bytes(plan.blocks.start..start)];
        let mut tail = vec![0; bytes(end..plan.blocks.end)];
        let from = usize::try_from((start * BLOCK).saturating_sub(offset)).expect("in the buffer");
        let direct = &mut buffer[from..from + bytes(start..end)];
        self.read_parts(
            &plan,
            &mut [
                ReadBuffer { first: plan.blocks.start, bytes: &mut head },
                ReadBuffer { first: start, bytes: direct },
                ReadBuffer { first: end, bytes: &mut tail },
            ],
        )?;
        let buffer = &mut buffer[..plan.len];
        copy_part(plan.blocks.start, &head, offset, buffer);
        copy_part(end, &tail, offset, buffer);
        if let Some(atime) = plan.atime
            && !flags.contains(ReadFlags::NO_ATIME)
        {
            self.try_move_atime(ino, atime);
        }
        Ok(plan.len)
    }

    /// Finds where the bytes at `offset` are, and pins their zones.
    fn plan_read(&self, ino: Ino, offset: u64, room: usize) -> Lookup<ReadPlan> {
        let state = self.tree.read_state();
        let inode = state.inode(ino)?;
        inode.file()?;
        let len = inode.size.saturating_sub(offset).min(room as u64);
        if len == 0 {
            return Ok(ReadPlan::default());
        }
        let blocks = offset / BLOCK..(offset + len).div_ceil(BLOCK);
        inode.check_shown(ino, blocks.end)?;
        for part in state.maps.discards.shown(ino, blocks.clone()) {
            state.resident_file(ino, part.start, part.end)?;
        }
        let file = inode.file()?;
        let direct = direct_blocks(offset, len, room as u64);
        let mut stored = Vec::new();
        // No run of blocks may cross from one of the three buffers into the next.
        for part in [blocks.start..direct.start, direct.clone(), direct.end..blocks.end] {
            for part in state.maps.discards.shown(ino, part) {
                let entries = file.overlapping(part.start, part.end);
                stored.extend(entries.filter_map(|(start, entry)| {
                    stored_part(&state, FileBlock { ino, block: start }, &entry, part.clone())
                }));
            }
        }
        let dirty = file.dirty.range(blocks.clone());
        let buffered = dirty.map(|(&block, dirty)| (block, Arc::clone(&dirty.data))).collect();
        for blocks in &stored {
            self.drive.pins.pin_zone(&*state, blocks.at.zone);
        }
        let len = usize::try_from(len).expect("no longer than the buffer");
        let atime = self.atime_due(ino, inode);
        Ok(ReadPlan { len, blocks, direct, stored, buffered, atime })
    }

    /// Reads whole blocks into the buffers to which they belong, all side by side, and unpins their
    /// zones.
    fn read_parts(&self, plan: &ReadPlan, parts: &mut [ReadBuffer<'_>]) -> Result<()> {
        let mut wanted = Vec::with_capacity(plan.stored.len());
        let mut stored = plan.stored.iter().peekable();
        for part in &mut *parts {
            let (first, blocks) = (part.first, part.blocks());
            let (mut rest, mut at) = (&mut *part.bytes, first);
            while let Some(source) = stored.next_if(|source| source.first < blocks.end) {
                let (hole, tail) = rest.split_at_mut(bytes(at..source.first));
                let (target, tail) = tail.split_at_mut(source.crcs.len() * BLOCK_BYTES);
                hole.fill(0);
                wanted.push((source, target));
                (rest, at) = (tail, source.first + source.crcs.len() as u64);
            }
            rest.fill(0);
        }
        let unpin = || {
            plan.stored.iter().for_each(|source| self.drive.pins.unpin_zone(source.at.zone));
        };
        let early = self.tree.planted.has(PlantedBug::UnpinBeforeRead);
        if early {
            unpin();
        }
        let outcome = if wanted.is_empty() { Ok(()) } else { self.drive.read_sources(wanted) };
        if !early {
            unpin();
        }
        for part in parts {
            let blocks = part.blocks();
            for (block, data) in plan.buffered.iter().filter(|(block, _)| blocks.contains(block)) {
                let from = part.index(*block);
                part.bytes[from..from + BLOCK_BYTES].copy_from_slice(&data[..]);
            }
        }
        outcome
    }

    pub(super) fn seek_file(&self, ino: Ino, what: Seek, offset: u64) -> Result<u64> {
        let mut block = offset / BLOCK;
        self.tree.loaded(|| {
            let state = self.tree.read_state();
            let inode = state.inode(ino)?;
            let file = inode.file()?;
            if offset >= inode.size {
                return Err(FsError::SeekBeyondEnd.into());
            }
            let limit = inode.block_end();
            // Continues behind the resident range once the next one is loaded.
            while block < limit {
                let zeroes = state.maps.discards.first_in(ino, &(block..limit));
                let zeroes = zeroes.unwrap_or(limit..limit);
                if zeroes.start == block {
                    match what {
                        Seek::Data => block = zeroes.end,
                        Seek::Hole => return Ok(offset.max(block * BLOCK).min(inode.size)),
                    }
                    continue;
                }
                let resident =
                    file.resident.end_of(block).ok_or(Stop::NotLoaded(Missing::Map(ino, block)))?;
                let end = resident.min(zeroes.start);
                if let Some(found) = seek_in(file, what, block..end) {
                    let position = offset.max(found * BLOCK).min(inode.size);
                    return Ok(position);
                }
                block = end;
            }
            match what {
                Seek::Data => Err(FsError::SeekBeyondEnd.into()),
                Seek::Hole => Ok(inode.size),
            }
        })
    }

    /// Moves the access time if the policy says so, and returns whether it does.
    pub(super) fn touch_atime(&self, ino: Ino) -> Result<bool> {
        let due = self.tree.loaded(|| {
            let state = self.tree.read_state();
            Ok(self.atime_due(ino, state.inode(ino)?))
        });
        match due {
            Ok(Some(atime)) => {
                self.try_move_atime(ino, atime);
                Ok(true)
            }
            Ok(None) => Ok(false),
            Err(FsError::NotFound) => Err(FsError::NotFound),
            Err(error) => {
                keep_atime(ino, &error);
                Ok(false)
            }
        }
    }

    /// The access time after a read of an inode now; `None` if it stays.
    fn atime_due(&self, ino: Ino, inode: &Inode) -> Option<Timestamp> {
        if self.tree.is_read_only() || inode.flags.contains(NO_ATIME) {
            return None;
        }
        let now = self.now();
        let is_due = match self.options.atime {
            AtimePolicy::Never => false,
            AtimePolicy::Always => true,
            AtimePolicy::Relative => rules::atime_is_due(&inode.attr(ino), now),
        };
        is_due.then_some(now)
    }

    fn try_move_atime(&self, ino: Ino, atime: Timestamp) {
        if let Err(error) = self.move_atime(ino, atime) {
            keep_atime(ino, &error);
        }
    }

    fn move_atime(&self, ino: Ino, atime: Timestamp) -> Result<()> {
        // A read does not wait for a commit: the next read moves the time instead.
        let can_wait = self.options.atime == AtimePolicy::Always;
        if can_wait || !self.tree.is_held_off() {
            return self.tree.loaded(|| {
                self.tree.write_state().change_inode(ino)?.atime = atime;
                Ok(())
            });
        }
        Ok(())
    }
}

/// The inode cannot be changed, say because the drive refuses to return it. The read has succeeded
/// all the same, and the next one moves the access time.
fn keep_atime(ino: Ino, error: &FsError) {
    tracing::debug!(inode = ino.get(), %error, "the access time stays");
}

/// Bytes of blocks that a buffer covers.
fn bytes(blocks: Range<u64>) -> usize {
    usize::try_from(blocks.end - blocks.start).expect("about the buffer") * BLOCK_BYTES
}

/// The first block of a range that has data, or that has none.
fn seek_in(file: &File, what: Seek, blocks: Range<u64>) -> Option<u64> {
    let has_data = |entry: &MapEntry| !entry.is_preallocated();
    match what {
        Seek::Data => {
            let mut stored = file.overlapping(blocks.start, blocks.end);
            let stored = stored.find(|(_, entry)| has_data(entry));
            let stored = stored.map(|(start, _)| start.max(blocks.start));
            let buffered = file.dirty.range(blocks).next().map(|(&block, _)| block);
            stored.into_iter().chain(buffered).min()
        }
        Seek::Hole => {
            let mut block = blocks.start;
            while block < blocks.end {
                let entry = file.covering(block).filter(|(_, entry)| has_data(entry));
                block = match entry {
                    Some((start, entry)) => start + u64::from(entry.blocks()),
                    None if file.dirty.contains_key(&block) => block + 1,
                    None => return Some(block),
                };
            }
            None
        }
    }
}

/// Blocks that the device can read straight into the caller's buffer: the blocks in the range, and
/// the last block of the file if the buffer has room for all of it. None for a short read at
/// odd offsets, so that it is one call of the device.
fn direct_blocks(offset: u64, len: u64, room: u64) -> Range<u64> {
    let first = offset / BLOCK;
    let limit = (offset + len).div_ceil(BLOCK);
    if offset.is_multiple_of(BLOCK) && (limit - first) * BLOCK <= room {
        first..limit
    } else if len < SHORT_BYTES {
        first..first
    } else {
        offset.div_ceil(BLOCK)..(offset + len) / BLOCK
    }
}

/// Copies the bytes at `offset` from a buffer that begins with block `first`.
fn copy_part(first: u64, part: &[u8], offset: u64, buffer: &mut [u8]) {
    let start = (first * BLOCK).max(offset);
    let end = (first * BLOCK + part.len() as u64).min(offset + buffer.len() as u64);
    if start < end {
        let index = |from: u64| usize::try_from(from).expect("in memory");
        let from = index(start - first * BLOCK)..index(end - first * BLOCK);
        buffer[index(start - offset)..index(end - offset)].copy_from_slice(&part[from]);
    }
}

/// The part of a map entry that a read of `blocks` wants, if it is on the drive. The entry begins
/// at `start` in the file.
fn stored_part(
    state: &State,
    start: FileBlock,
    entry: &MapEntry,
    blocks: Range<u64>,
) -> Option<StoredBlocks> {
    let FileBlock { ino, block: start } = start;
    let stored = state.maps.shared.stored(entry)?;
    let first = start.max(blocks.start);
    let limit = (start + u64::from(entry.blocks())).min(blocks.end);
    let narrow = |blocks: u64| u32::try_from(blocks).expect("inside the entry");
    let (skip, count) = (narrow(first - start), narrow(limit - first));
    let crcs = stored.crcs[skip as usize..(skip + count) as usize].to_vec();
    let at = Address { zone: stored.zone, block: stored.block + skip };
    let readable = state.zones.slot(at.zone).readable();
    Some(StoredBlocks { at, crcs, ino, first, readable })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::furrow::MountOptions;
    use crate::furrow::sample::{counted, formatted};
    use crate::vfs::{Caller, FileKind, FileSystem, NewInode, WriteFlags};

    #[test]
    fn read_of_scattered_extents_is_one_batch() {
        let (drive, clock) = counted(32, 512);
        let fs = Furrow::mount(drive.clone(), clock, MountOptions::default()).unwrap();
        let new = NewInode { kind: FileKind::Regular, perm: 0o600, rdev: 0, target: b"" };
        let files = [&b"one"[..], b"two"]
            .map(|name| fs.create(&Caller::ROOT, Ino::ROOT, name, &new).unwrap().ino);
        // The blocks of both lie in turns.
        for number in 0..32_u8 {
            for (ino, first) in files.into_iter().zip([1, 100]) {
                let data = [first + number; BLOCK_BYTES];
                fs.write(ino, u64::from(number) * BLOCK, &data, WriteFlags::DIRECT).unwrap();
            }
        }
        let mut found = vec![0xee; 32 * BLOCK_BYTES];
        drive.clear();
        assert_eq!(fs.read(files[0], 0, &mut found).unwrap(), found.len());
        for (block, number) in found.chunks(BLOCK_BYTES).zip(1..) {
            assert!(block.iter().all(|&byte| byte == number), "block {number}");
        }
        assert_eq!((drive.requests(), drive.rounds()), (32, 1));
    }

    #[test]
    fn read_of_more_shared_extents_than_memory_ends() {
        const EXTENTS: usize = 300;
        let (drive, clock) = formatted(64, 1024);
        let fs = Furrow::mount(drive.clone(), clock.clone(), MountOptions::default()).unwrap();
        let new = NewInode { kind: FileKind::Regular, perm: 0o600, rdev: 0, target: b"" };
        let files = [&b"file"[..], b"copy"]
            .map(|name| fs.create(&Caller::ROOT, Ino::ROOT, name, &new).unwrap().ino);
        let blocks = (0..=250).cycle().take(EXTENTS);
        let content: Vec<u8> = blocks.flat_map(|byte| [byte; BLOCK_BYTES]).collect();
        // From the end on, so that each block is an extent of its own.
        for (block, data) in content.chunks(BLOCK_BYTES).enumerate().rev() {
            fs.write(files[0], block as u64 * BLOCK, data, WriteFlags::DIRECT).unwrap();
        }
        let copied =
            fs.copy_range((files[0], 0), (files[1], 0), content.len() as u64, WriteFlags::empty());
        assert_eq!(copied.unwrap(), content.len() as u64);
        fs.shutdown().unwrap();
        drop(fs);
        let fs = Furrow::mount(drive, clock, MountOptions::default()).unwrap();
        fs.tree.set_held_max(0);
        let mut runs = 0;
        let plan = fs.tree.loaded(|| {
            runs += 1;
            assert!(runs < 3 * EXTENTS, "it loads the same again and again");
            fs.plan_read(files[1], 0, content.len())
        });
        assert_eq!(plan.unwrap().stored.len(), EXTENTS);
        let mut found = vec![0; content.len()];
        fs.read(files[1], 0, &mut found).unwrap();
        assert!(found == content);
    }
}
