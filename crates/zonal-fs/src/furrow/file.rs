//! What each POSIX action does to the content of a regular file.
//!
//! Every change is published under the state lock in one step, so a commit sees all of it or
//! nothing. What needs the drive, such as the rest of a block that is written in part, is read
//! before and checked to be still current under the lock.

use super::alloc::Stream;
use super::buffer::{Admission, Base};
use super::commit::Ending;
use super::data::{Hold, Source};
use super::extent::{Placed, checksums};
use super::format::{Address, BLOCK_BYTES};
use super::planted::PlantedBug;
use super::state::{ExtentId, MapEntry, State};
use super::{AtimePolicy, Furrow};
use crate::FsError;
use crate::protect;
use crate::rules::{self, FILE_SIZE_MAX};
use crate::vfs::{Allocate, Ino, InodeFlags, Result, Seek, WriteFlags};

const NO_ATIME: InodeFlags = InodeFlags::NO_ATIME;

const BLOCK: u64 = BLOCK_BYTES as u64;

/// A write is published in steps of at most this: a FUSE request's worth.
const CHUNK_BYTES: u64 = 1 << 20;

/// Whole blocks from which on a write goes to the drive at once instead of through the buffer:
/// it makes an extent worth having as it is.
const STRAIGHT_BLOCKS: u64 = 16;

/// Part of a read that comes from the drive.
struct Piece {
    source: Source,
    /// Where it goes in the buffer of whole blocks.
    block: u64,
}

/// A write of at most [`CHUNK_BYTES`], cut into blocks.
struct Chunk<'a> {
    ino: Ino,
    offset: u64,
    data: &'a [u8],
    /// Blocks touched.
    first: u64,
    limit: u64,
    /// Whole blocks that go straight to the drive; empty if none do.
    straight: std::ops::Range<u64>,
}

impl<'a> Chunk<'a> {
    fn new(ino: Ino, offset: u64, data: &'a [u8], flags: WriteFlags) -> Self {
        let end = offset + data.len() as u64;
        let whole = offset.div_ceil(BLOCK)..end / BLOCK;
        let count = whole.end.saturating_sub(whole.start);
        let is_straight =
            count >= STRAIGHT_BLOCKS || (flags.contains(WriteFlags::DIRECT) && count > 0);
        let first = offset / BLOCK;
        let straight = if is_straight { whole } else { first..first };
        Self { ino, offset, data, first, limit: end.div_ceil(BLOCK), straight }
    }

    fn end(&self) -> u64 {
        self.offset + self.data.len() as u64
    }

    /// Blocks that go through the buffer.
    fn buffered(&self) -> impl Iterator<Item = u64> + use<> {
        let straight = self.straight.clone();
        (self.first..self.limit).filter(move |block| !straight.contains(block))
    }

    /// The first and the last block, where they are written only in part.
    fn edges(&self) -> impl Iterator<Item = u64> {
        let head = (!self.offset.is_multiple_of(BLOCK)).then_some(self.first);
        let tail = (!self.end().is_multiple_of(BLOCK)).then_some(self.limit - 1);
        head.into_iter().chain(tail.filter(|tail| Some(*tail) != head))
    }

    /// The bytes that go to `block`, and where in it.
    fn bytes_of(&self, block: u64) -> (usize, &'a [u8]) {
        let from = (block * BLOCK).max(self.offset);
        let to = ((block + 1) * BLOCK).min(self.end());
        let index = |position: u64| usize::try_from(position - self.offset).expect("in memory");
        let at = usize::try_from(from % BLOCK).expect("inside a block");
        (at, &self.data[index(from)..index(to)])
    }

    /// The bytes that go straight to the drive.
    fn straight_bytes(&self) -> &'a [u8] {
        if self.straight.is_empty() {
            return &[];
        }
        let index = |block: u64| usize::try_from(block * BLOCK - self.offset).expect("in memory");
        &self.data[index(self.straight.start)..index(self.straight.end)]
    }
}

impl Furrow {
    pub(super) fn read_file(&self, ino: Ino, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let size = self.read_state().inode(ino).and_then(|inode| {
            inode.file()?;
            Ok(inode.size)
        })?;
        let len = size.saturating_sub(offset).min(buffer.len() as u64);
        if len == 0 {
            return Ok(0);
        }
        let len = usize::try_from(len).expect("no longer than the buffer");
        let buffer = &mut buffer[..len];
        if offset.is_multiple_of(BLOCK) && len.is_multiple_of(BLOCK_BYTES) {
            self.read_whole(ino, offset / BLOCK, buffer)?;
        } else {
            let first = offset / BLOCK;
            let limit = (offset + len as u64).div_ceil(BLOCK);
            let blocks = usize::try_from(limit - first).expect("about the buffer's length");
            let mut whole = vec![0; blocks * BLOCK_BYTES];
            self.read_whole(ino, first, &mut whole)?;
            let skip = usize::try_from(offset % BLOCK).expect("inside a block");
            buffer.copy_from_slice(&whole[skip..skip + len]);
        }
        self.touch_atime(ino)?;
        Ok(len)
    }

    /// Reads whole blocks from block `first` of a file on.
    fn read_whole(&self, ino: Ino, first: u64, buffer: &mut [u8]) -> Result<()> {
        let limit = first + (buffer.len() / BLOCK_BYTES) as u64;
        let (pieces, buffered) = {
            let state = self.read_state();
            let file = state.inode(ino)?.file()?;
            let mut pieces = Vec::new();
            for (start, entry) in file.overlapping(first, limit) {
                pieces.extend(piece(&state, ino, (start, entry), first..limit));
            }
            let buffered: Vec<_> = file
                .dirty
                .range(first..limit)
                .map(|(&block, dirty)| (block, std::sync::Arc::clone(&dirty.data)))
                .collect();
            for piece in &pieces {
                self.pin_zone(piece.source.at.zone);
            }
            (pieces, buffered)
        };
        let place = |block: u64| {
            let index = usize::try_from(block - first).expect("inside the buffer");
            index * BLOCK_BYTES
        };
        let mut outcome = Ok(());
        let mut filled = 0;
        for piece in &pieces {
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
        for (block, data) in buffered {
            let from = place(block);
            buffer[from..from + BLOCK_BYTES].copy_from_slice(&data[..]);
        }
        Ok(())
    }

    pub(super) fn write_file(
        &self,
        ino: Ino,
        offset: u64,
        data: &[u8],
        flags: WriteFlags,
    ) -> Result<u64> {
        self.check_writable()?;
        let appends = flags.contains(WriteFlags::APPEND);
        let _turn = appends.then(|| self.appending.lock().expect("no holder panicked"));
        let (start, durable) = {
            let state = self.read_state();
            let inode = state.inode(ino)?;
            inode.file()?;
            let durable =
                flags.contains(WriteFlags::DURABLE) || inode.flags.contains(InodeFlags::SYNC);
            (if appends { inode.size } else { offset }, durable)
        };
        let end = rules::check_range(start, data.len() as u64)?;
        let mut at = start;
        while at < end {
            let next = (at / CHUNK_BYTES + 1).saturating_mul(CHUNK_BYTES).min(end);
            let index = |position: u64| usize::try_from(position - start).expect("in memory");
            let chunk = Chunk::new(ino, at, &data[index(at)..index(next)], flags);
            self.write_chunk(&chunk, flags)?;
            self.after_change();
            at = next;
        }
        if durable {
            self.commit(Ending::Record)?;
        }
        Ok(start)
    }

    fn write_chunk(&self, chunk: &Chunk<'_>, flags: WriteFlags) -> Result<()> {
        let mut admission = self.admit(chunk.limit - chunk.first)?;
        let straight = chunk.straight_bytes();
        let growth = {
            let mut state = self.write_state();
            let growth = state.growth(chunk.ino, chunk.first, chunk.limit)?;
            self.check_space(&state, growth)?;
            state.totals.reserved += growth;
            growth
        };
        let outcome = self.place_data(&mut Hold::Free(&self.state), Stream::User, straight);
        let outcome = outcome.and_then(|placed| {
            let crcs = checksums(straight);
            self.publish_chunk(chunk, flags, (&placed, &crcs), &mut admission).inspect_err(|_| {
                let mut state = self.write_state();
                for part in &placed {
                    state.zones.settle(part.zone, part.blocks);
                }
            })
        });
        // The buffer and the extents have their own account of it by now.
        self.write_state().totals.reserved -= growth;
        outcome
    }

    /// Makes a placed chunk part of the file. Nothing has changed if it fails.
    fn publish_chunk(
        &self,
        chunk: &Chunk<'_>,
        flags: WriteFlags,
        (placed, crcs): (&[Placed], &[u32]),
        admission: &mut Admission<'_>,
    ) -> Result<()> {
        let ino = chunk.ino;
        loop {
            let bases: Vec<(u64, Option<Base>)> = chunk
                .edges()
                .map(|block| Ok((block, self.read_base(ino, block)?)))
                .collect::<Result<_>>()?;
            let mut guard = self.write_state();
            let state = &mut *guard;
            state.inode(ino)?.file()?;
            if !are_current(state, ino, &bases)? {
                continue;
            }
            state.unmap(ino, chunk.straight.start, chunk.straight.end);
            map_placed(state, (ino, chunk.straight.start), placed, crcs);
            for block in chunk.buffered() {
                let base = bases.iter().find(|(edge, _)| *edge == block);
                let base = base.and_then(|(_, base)| base.as_ref());
                let (at, bytes) = chunk.bytes_of(block);
                Self::buffer_block(state, (ino, block), base, admission, |data| {
                    data[at..at + bytes.len()].copy_from_slice(bytes);
                })?;
            }
            let now = self.now();
            let inode = state.change_inode(ino)?;
            inode.size = inode.size.max(chunk.end());
            (inode.mtime, inode.ctime) = (now, now);
            if flags.contains(WriteFlags::KILL_PRIVILEGES) {
                inode.perm = rules::kill_privileges(inode.kind, inode.perm);
            }
            return Ok(());
        }
    }

    /// Sets a file's length. `change` is what else happens to its inode in the same step.
    pub(super) fn resize(
        &self,
        ino: Ino,
        size: u64,
        change: impl Fn(&mut State) -> Result<()>,
    ) -> Result<()> {
        if size > FILE_SIZE_MAX {
            return Err(FsError::FileTooLarge);
        }
        let mut admission = self.admit(1)?;
        let tail = (!size.is_multiple_of(BLOCK)).then_some(size / BLOCK);
        loop {
            let base = tail.map(|block| self.read_base(ino, block)).transpose()?.flatten();
            let mut guard = self.write_state();
            let state = &mut *guard;
            let shrinks = size < state.inode(ino)?.size;
            if shrinks && let Some(block) = tail {
                if !Self::is_current(state, ino, block, base.as_ref())? {
                    continue;
                }
                let keeps_tail = self.has_planted(PlantedBug::ForgetTailZeroing);
                if !keeps_tail && holds_data(state, ino, block)? {
                    let from = usize::try_from(size % BLOCK).expect("inside a block");
                    Self::zero_in_block(
                        state,
                        (ino, block),
                        base.as_ref(),
                        &mut admission,
                        from..,
                    )?;
                }
            }
            if shrinks {
                state.unmap(ino, size.div_ceil(BLOCK), u64::MAX);
            }
            let now = self.now();
            let inode = state.change_inode(ino)?;
            inode.size = size;
            (inode.mtime, inode.ctime) = (now, now);
            return change(state);
        }
    }

    fn zero_in_block(
        state: &mut State,
        at: (Ino, u64),
        base: Option<&Base>,
        admission: &mut Admission<'_>,
        range: impl std::slice::SliceIndex<[u8], Output = [u8]>,
    ) -> Result<()> {
        Self::buffer_block(state, at, base, admission, |data| data[range].fill(0))
    }

    pub(super) fn allocate(&self, ino: Ino, how: Allocate, offset: u64, len: u64) -> Result<()> {
        self.check_writable()?;
        if len == 0 {
            return Err(FsError::Invalid { what: "a range of no bytes" });
        }
        let end = rules::check_range(offset, len)?;
        {
            let state = self.read_state();
            let inode = state.inode(ino)?;
            inode.file()?;
            protect::check_allocate(inode.flags, how)?;
        }
        let (zeroes, promises, grows) = match how {
            Allocate::Extend => (false, true, true),
            Allocate::KeepSize => (false, true, false),
            Allocate::Punch => (true, false, false),
            Allocate::Zero => (true, true, true),
            Allocate::ZeroKeepSize => (true, true, false),
        };
        let mut admission = self.admit(2)?;
        loop {
            let edges = if zeroes { partial_edges(offset, end) } else { Vec::new() };
            let bases: Vec<(u64, Option<Base>)> = edges
                .iter()
                .map(|(block, _)| Ok((*block, self.read_base(ino, *block)?)))
                .collect::<Result<_>>()?;
            let mut guard = self.write_state();
            let state = &mut *guard;
            if !are_current(state, ino, &bases)? {
                continue;
            }
            let blocks = offset / BLOCK..end.div_ceil(BLOCK);
            if promises {
                let growth = state.growth(ino, blocks.start, blocks.end)?;
                self.check_space(state, growth)?;
            }
            for ((block, range), (_, base)) in edges.iter().zip(&bases) {
                if holds_data(state, ino, *block)? {
                    let at = (ino, *block);
                    Self::zero_in_block(state, at, base.as_ref(), &mut admission, range.clone())?;
                }
            }
            if zeroes && offset.div_ceil(BLOCK) < end / BLOCK {
                state.unmap(ino, offset.div_ceil(BLOCK), end / BLOCK);
            }
            if promises {
                promise(state, ino, blocks)?;
            }
            let now = self.now();
            let inode = state.change_inode(ino)?;
            if grows {
                inode.size = inode.size.max(end);
            }
            (inode.mtime, inode.ctime) = (now, now);
            break;
        }
        drop(admission);
        self.after_change();
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
        let is_data = |entry: &MapEntry| entry.extent != ExtentId::PROMISED;
        match what {
            Seek::Data => {
                let stored = file
                    .overlapping(block, u64::MAX)
                    .find(|(_, entry)| is_data(entry))
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
                        file.covering(block).filter(|(_, entry)| is_data(entry))
                    {
                        block = start + u64::from(entry.blocks);
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
        if is_due {
            self.write_state().change_inode(ino)?.atime = now;
        }
        Ok(())
    }
}

/// The part of a map entry that a read of `blocks` wants, if it is on the drive.
fn piece(
    state: &State,
    ino: Ino,
    (start, entry): (u64, MapEntry),
    blocks: std::ops::Range<u64>,
) -> Option<Piece> {
    let extent = state.extents.get(&entry.extent)?;
    let first = start.max(blocks.start);
    let limit = (start + u64::from(entry.blocks)).min(blocks.end);
    let narrow = |blocks: u64| u32::try_from(blocks).expect("inside the entry");
    let skip = entry.skip + narrow(first - start);
    let count = narrow(limit - first);
    let crcs = extent.crcs[skip as usize..(skip + count) as usize].to_vec();
    let at = Address { zone: extent.zone, block: extent.block + skip };
    Some(Piece { source: Source { at, crcs, ino, first }, block: first })
}

/// Whether every base is still what is stored.
fn are_current(state: &State, ino: Ino, bases: &[(u64, Option<Base>)]) -> Result<bool> {
    for (block, base) in bases {
        if !Furrow::is_current(state, ino, *block, base.as_ref())? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Whether a block has content that is not known to be zeroes.
fn holds_data(state: &State, ino: Ino, block: u64) -> Result<bool> {
    let file = state.inode(ino)?.file()?;
    let stored = file.covering(block).is_some_and(|(_, entry)| entry.extent != ExtentId::PROMISED);
    Ok(stored || file.dirty.contains_key(&block))
}

/// Maps placed blocks to a file, from a block on.
fn map_placed(state: &mut State, (ino, mut first): (Ino, u64), placed: &[Placed], crcs: &[u32]) {
    let mut rest = crcs;
    for part in placed {
        let (now, later) = rest.split_at(part.blocks as usize);
        rest = later;
        let extent = state.insert_extent(*part, now.to_vec());
        state.map(ino, first, MapEntry { extent, skip: 0, blocks: part.blocks });
        state.zones.settle(part.zone, part.blocks);
        first += u64::from(part.blocks);
    }
}

/// Blocks of a byte range that it covers only in part, and which bytes of them.
fn partial_edges(offset: u64, end: u64) -> Vec<(u64, std::ops::Range<usize>)> {
    let within = |position: u64| usize::try_from(position % BLOCK).expect("inside a block");
    let (first, last) = (offset / BLOCK, end / BLOCK);
    let head = within(offset);
    let tail = within(end);
    if first == last {
        return vec![(first, head..tail)];
    }
    let mut edges = Vec::new();
    if head > 0 {
        edges.push((first, head..BLOCK_BYTES));
    }
    if tail > 0 {
        edges.push((last, 0..tail));
    }
    edges
}

/// Promises space for every block of a range that has none.
fn promise(state: &mut State, ino: Ino, blocks: std::ops::Range<u64>) -> Result<()> {
    let file = state.inode(ino)?.file()?;
    let mut holes = Vec::new();
    let mut at = blocks.start;
    for (start, entry) in file.overlapping(blocks.start, blocks.end) {
        if start > at {
            holes.push(at..start);
        }
        at = start + u64::from(entry.blocks);
    }
    if at < blocks.end {
        holes.push(at..blocks.end);
    }
    for hole in holes {
        let mut first = hole.start;
        while first < hole.end {
            let blocks = u32::try_from(hole.end - first).unwrap_or(u32::MAX);
            state.map(ino, first, MapEntry { extent: ExtentId::PROMISED, skip: 0, blocks });
            first += u64::from(blocks);
        }
    }
    Ok(())
}
