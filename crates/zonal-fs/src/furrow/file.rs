//! What each POSIX action that changes it does to the content of a regular file.
//!
//! Every change is published under the state lock in one step, so a commit sees all of it or
//! nothing. What needs the drive, such as the rest of a block that is written in part, is read
//! before and checked to be still current under the lock.

use std::sync::{Arc, Mutex};

use super::Furrow;
use super::buffer::{Admission, Base};
use super::chunk::{CHUNK_BYTES, Chunk, LastBlock};
use super::commit::Ending;
use super::data::Purpose;
use super::extent::{Placed, checksums};
use super::format::BLOCK_BYTES;
use super::inode::{change_attributes, plan_attributes};
use super::place::{Crcs, MapEntry};
use super::planted::PlantedBug;
use super::state::State;
use crate::FsError;
use crate::protect;
use crate::rules::{self, FILE_SIZE_MAX};
use crate::vfs::{Allocate, Caller, Ino, InodeFlags, Result, SetAttr, WriteFlags};

const BLOCK: u64 = BLOCK_BYTES as u64;

/// What became of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Published {
    /// It is part of the file.
    Done,
    /// It was to be appended, but the end of the file is not where it was: nothing has changed.
    EndMoved,
    /// Its last block was filled up with zeroes, but the file does not end in it any more: nothing
    /// has changed.
    NotLast,
}

impl Furrow {
    pub(super) fn write_file(
        &self,
        ino: Ino,
        offset: u64,
        data: &[u8],
        flags: WriteFlags,
    ) -> Result<u64> {
        self.check_writable()?;
        let durable = {
            let state = self.read_state();
            let inode = state.inode(ino)?;
            inode.file()?;
            flags.contains(WriteFlags::DURABLE) || inode.flags.contains(InodeFlags::SYNC)
        };
        let start = if flags.contains(WriteFlags::APPEND) {
            // Appends to one file find its end one after the other. Others wait for nothing here,
            // and nobody for the commit, so that they share it.
            let lock = self.append_lock(ino)?;
            let _turn = lock.lock().expect("no holder panicked");
            self.append(ino, data, flags)?
        } else {
            let end = rules::check_range(offset, data.len() as u64)?;
            self.write_chunks(ino, (offset, end), data, flags)?;
            offset
        };
        if durable {
            self.commit(Ending::Record)?;
        }
        Ok(start)
    }

    /// The lock for appends to a file.
    fn append_lock(&self, ino: Ino) -> Result<Arc<Mutex<()>>> {
        let mut state = self.write_state();
        let lock = &mut state.inode_mut(ino)?.file_mut()?.appending;
        Ok(Arc::clone(lock.get_or_insert_default()))
    }

    /// Writes at the end of a file, wherever that is when the bytes become part of it: another
    /// write or a truncation may move it while they are on their way. Returns where they went.
    fn append(&self, ino: Ino, data: &[u8], flags: WriteFlags) -> Result<u64> {
        loop {
            let start = self.read_state().inode(ino)?.size;
            let end = rules::check_range(start, data.len() as u64)?;
            if self.write_chunks(ino, (start, end), data, flags)? == Published::Done {
                return Ok(start);
            }
        }
    }

    fn write_chunks(
        &self,
        ino: Ino,
        (start, end): (u64, u64),
        data: &[u8],
        flags: WriteFlags,
    ) -> Result<Published> {
        let mut at = start;
        while at < end {
            let next = (at / CHUNK_BYTES + 1).saturating_mul(CHUNK_BYTES).min(end);
            let index = |position: u64| usize::try_from(position - start).expect("in memory");
            // Where an append begins is settled with its first chunk.
            let flags = if at == start { flags } else { flags - WriteFlags::APPEND };
            let bytes = &data[index(at)..index(next)];
            let write = || self.write_chunk(Chunk::new(ino, at, bytes, flags), flags);
            match self.with_reaped_space(write)? {
                Published::Done => at = next,
                Published::EndMoved => return Ok(Published::EndMoved),
                Published::NotLast => {}
            }
            self.after_change();
        }
        Ok(Published::Done)
    }

    fn write_chunk(&self, chunk: Chunk<'_>, flags: WriteFlags) -> Result<Published> {
        self.let_reaper_pass(chunk.ino, chunk.limit);
        let chunk = {
            // Before room is made: no reclaim for a write that has no space.
            let state = self.read_state();
            self.check_space(&state, state.growth(chunk.ino, chunk.first, chunk.limit)?)?;
            let size = state.inode(chunk.ino)?.size;
            chunk.padded(size)
        };
        let mut admission = self.admit(chunk.limit - chunk.first)?;
        let straight = chunk.straight_bytes();
        let growth = {
            let mut state = self.write_accounts();
            let growth = state.growth(chunk.ino, chunk.first, chunk.limit)?;
            self.check_space(&state, growth)?;
            state.totals.reserved += growth;
            growth
        };
        let outcome = self.place_data(Purpose::Write, &straight);
        let outcome = outcome.and_then(|placed| {
            let crcs = checksums(&straight);
            let outcome = self.publish_chunk(&chunk, flags, (&placed, &crcs), &mut admission);
            if !matches!(outcome, Ok(Published::Done)) {
                let mut state = self.write_accounts();
                for part in &placed {
                    state.zones.settle(part.zone, part.blocks);
                }
            }
            outcome
        });
        // The buffer and the extents have their own account of it by now.
        self.write_accounts().totals.reserved -= growth;
        outcome
    }

    /// Makes a placed chunk part of the file. Nothing has changed if it fails, or if the file's end
    /// is elsewhere by now and the chunk was made for where it was.
    fn publish_chunk(
        &self,
        chunk: &Chunk<'_>,
        flags: WriteFlags,
        (placed, crcs): (&[Placed], &[u32]),
        admission: &mut Admission<'_>,
    ) -> Result<Published> {
        let ino = chunk.ino;
        loop {
            let bases: Vec<(u64, Option<Base>)> = chunk
                .edges()
                .map(|block| Ok((block, self.read_base(ino, block)?)))
                .collect::<Result<_>>()?;
            let mut guard = self.write_state();
            let state = &mut *guard;
            let inode = state.inode(ino)?;
            inode.file()?;
            if flags.contains(WriteFlags::APPEND) && inode.size != chunk.offset {
                return Ok(Published::EndMoved);
            }
            if state.awaits_reaper(ino, chunk.limit) {
                drop(guard);
                self.let_reaper_pass(ino, chunk.limit);
                continue;
            }
            if chunk.last == LastBlock::Padded && inode.size > chunk.end() {
                return Ok(Published::NotLast);
            }
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
            return Ok(Published::Done);
        }
    }

    /// Sets a file's length, and whatever else `set` has, in the same step.
    pub(super) fn resize(
        &self,
        caller: &Caller,
        (ino, size): (Ino, u64),
        set: &SetAttr,
    ) -> Result<()> {
        if size > FILE_SIZE_MAX {
            return Err(FsError::FileTooLarge);
        }
        let tail = (!size.is_multiple_of(BLOCK)).then_some(size / BLOCK);
        let mut admission = None;
        loop {
            let base = tail.map(|block| self.read_base(ino, block)).transpose()?.flatten();
            let mut guard = self.write_state();
            let state = &mut *guard;
            let change = plan_attributes(state, caller, ino, set)?;
            let shrinks = size < state.inode(ino)?.size;
            if !shrinks && state.awaits_reaper(ino, size.div_ceil(BLOCK)) {
                drop(guard);
                self.let_reaper_pass(ino, size.div_ceil(BLOCK));
                continue;
            }
            let keeps_tail = self.has_planted(PlantedBug::ForgetTailZeroing);
            if let Some(block) = tail
                && shrinks
                && !keeps_tail
                && holds_data(state, ino, block)?
            {
                if !Self::is_current(state, ino, block, base.as_ref())? {
                    continue;
                }
                let Some(admission) = &mut admission else {
                    drop(guard);
                    admission = Some(self.admit_shrinking(1));
                    continue;
                };
                let from = usize::try_from(size % BLOCK).expect("inside a block");
                Self::zero_in_block(state, (ino, block), base.as_ref(), admission, from..)?;
            }
            if shrinks {
                state.cut_off(ino, size.div_ceil(BLOCK));
            }
            let now = self.now();
            let inode = state.change_inode(ino)?;
            inode.size = size;
            (inode.mtime, inode.ctime) = (now, now);
            return change_attributes(state, ino, (set, change), now);
        }
    }

    /// Room for the blocks at the edges of a range, where part of them is zeroed.
    fn admit_edges(&self, how: Allocate) -> Result<Admission<'_>> {
        match how {
            Allocate::Punch => Ok(self.admit_shrinking(2)),
            Allocate::Extend | Allocate::KeepSize | Allocate::Zero | Allocate::ZeroKeepSize => {
                self.admit(2)
            }
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
        let (zeroes, allocates, grows) = match how {
            Allocate::Extend => (false, true, true),
            Allocate::KeepSize => (false, true, false),
            Allocate::Punch => (true, false, false),
            Allocate::Zero => (true, true, true),
            Allocate::ZeroKeepSize => (true, true, false),
        };
        let mut admission = None;
        'again: loop {
            let edges = if zeroes { partial_edges(offset, end) } else { Vec::new() };
            let bases: Vec<(u64, Option<Base>)> = edges
                .iter()
                .map(|(block, _)| Ok((*block, self.read_base(ino, *block)?)))
                .collect::<Result<_>>()?;
            let mut guard = self.write_state();
            let state = &mut *guard;
            if state.awaits_reaper(ino, end.div_ceil(BLOCK)) {
                drop(guard);
                self.let_reaper_pass(ino, end.div_ceil(BLOCK));
                continue;
            }
            if !are_current(state, ino, &bases)? {
                continue;
            }
            let blocks = offset / BLOCK..end.div_ceil(BLOCK);
            if allocates {
                let growth = state.growth(ino, blocks.start, blocks.end)?;
                self.check_space(state, growth)?;
            }
            for ((block, range), (_, base)) in edges.iter().zip(&bases) {
                if !holds_data(state, ino, *block)? {
                    continue;
                }
                let Some(admission) = &mut admission else {
                    drop(guard);
                    admission = Some(self.admit_edges(how)?);
                    continue 'again;
                };
                Self::zero_in_block(state, (ino, *block), base.as_ref(), admission, range.clone())?;
            }
            if zeroes && offset.div_ceil(BLOCK) < end / BLOCK {
                state.unmap(ino, offset.div_ceil(BLOCK), end / BLOCK);
            }
            if allocates {
                preallocate(state, ino, blocks)?;
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
    let stored = file.covering(block).is_some_and(|(_, entry)| !entry.is_preallocated());
    Ok(stored || file.dirty.contains_key(&block))
}

/// Maps placed blocks to a file, from a block on.
fn map_placed(state: &mut State, (ino, mut first): (Ino, u64), placed: &[Placed], crcs: &[u32]) {
    let mut rest = crcs;
    for part in placed {
        let (now, later) = rest.split_at(part.blocks as usize);
        rest = later;
        let Placed { zone, block, .. } = *part;
        state.map(ino, first, MapEntry::At { zone, block, crcs: Crcs::from(now) });
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

/// Preallocates every block of a range that has none.
fn preallocate(state: &mut State, ino: Ino, blocks: std::ops::Range<u64>) -> Result<()> {
    let file = state.inode(ino)?.file()?;
    let mut holes = Vec::new();
    let mut at = blocks.start;
    for (start, entry) in file.overlapping(blocks.start, blocks.end) {
        if start > at {
            holes.push(at..start);
        }
        at = start + u64::from(entry.blocks());
    }
    if at < blocks.end {
        holes.push(at..blocks.end);
    }
    for hole in holes {
        let mut first = hole.start;
        while first < hole.end {
            let blocks = u32::try_from(hole.end - first).unwrap_or(u32::MAX);
            state.map(ino, first, MapEntry::Preallocated { blocks });
            first += u64::from(blocks);
        }
    }
    Ok(())
}
