//! The POSIX actions that change the content of a regular file.
//!
//! Every change is published under the state lock in one step, so a commit sees all of it or
//! nothing. What has to be read from the drive, such as the rest of a block that is written in
//! part, is read before that without the lock; under the lock it is checked to be still current.

use std::sync::Arc;

use zonal::placement::streams::{Target, Whole};

use super::Furrow;
use super::buffer::Base;
use super::chunk::{CHUNK_BYTES, Chunk, LastBlock};
use super::committer::Ending;
use super::data::Purpose;
use super::extent::{Placed, checksums};
use super::format::BLOCK_BYTES;
use super::inode::{change_attributes, plan_attributes, take_capability};
use super::missing::Lookup;
use super::pace::Admission;
use super::place::{Crcs, MapEntry};
use super::planted::PlantedBug;
use super::state::State;
use super::sync::Mutex;
use crate::FsError;
use crate::protect;
use crate::rules::{self, FILE_SIZE_MAX};
use crate::vfs::{Allocate, Attr, Caller, Ino, InodeFlags, Result, SetAttr, WriteFlags};

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

/// What became of an attempt under the state lock.
enum Attempt<T> {
    /// It has come to this.
    Done(T),
    /// What was read before is not current any more.
    Again,
    /// Something that was deleted is in the way.
    AwaitsReaper,
}

/// What became of a truncation.
enum Resized {
    Done(Attr),
    /// The block in which the file will end has to be written.
    NeedsRoom,
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
        let durable = self.loaded(|| {
            let state = self.read_state();
            let inode = state.inode(ino)?;
            inode.file()?;
            Ok(flags.contains(WriteFlags::DURABLE) || inode.flags.contains(InodeFlags::SYNC))
        })?;
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
        self.loaded(|| {
            let mut state = self.write_accounts();
            let lock = &mut state.inode_mut(ino)?.file_mut()?.appending;
            Ok(Arc::clone(lock.get_or_insert_default()))
        })
    }

    /// Writes at the end of a file, wherever that is when the bytes become part of it: another
    /// write or a truncation may move it while they are on their way. Returns where they went.
    fn append(&self, ino: Ino, data: &[u8], flags: WriteFlags) -> Result<u64> {
        loop {
            let start = self.attributes(ino)?.size;
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
            // What is no longer than one step is one operation, wherever it begins.
            let boundary = (at / CHUNK_BYTES + 1).saturating_mul(CHUNK_BYTES);
            let next = if end - at <= CHUNK_BYTES { end } else { boundary };
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
            self.release_gathered(ino);
            self.after_change();
        }
        Ok(Published::Done)
    }

    fn write_chunk(&self, mut chunk: Chunk<'_>, flags: WriteFlags) -> Result<Published> {
        self.let_reaper_pass(chunk.ino, chunk.limit);
        // Before room is made: no reclaim for a write that has no space.
        let (target, growth) = self.loaded(|| {
            let mut state = self.write_accounts();
            // What publishing needs of the map is loaded at once, not a block of it later.
            let (first, limit) = chunk.with_neighbours();
            state.mapped_file(chunk.ino, first, limit)?;
            let growth = state.growth(chunk.ino, chunk.first, chunk.limit)?;
            self.check_space(&state, growth)?;
            if chunk.may_gather(flags) && state.gathers(chunk.ino, chunk.offset) {
                chunk.gather();
            }
            chunk.pad(state.inode(chunk.ino)?.size);
            state.totals.reserved += growth;
            let (ino, first, written) = (chunk.ino, chunk.straight.start, chunk.written_as());
            let target =
                (state.target_of(ino, first, written), state.whole_of(ino, first, written));
            Ok((target, growth))
        })?;
        let outcome = self.write_reserved(&chunk, flags, target);
        // The buffer and the extents have their own account of it by now.
        self.write_accounts().totals.reserved -= growth;
        outcome
    }

    fn write_reserved(
        &self,
        chunk: &Chunk<'_>,
        flags: WriteFlags,
        (target, whole): (Target, Whole),
    ) -> Result<Published> {
        let mut admission = self.admit(chunk.limit - chunk.first)?;
        let straight = chunk.straight_bytes();
        let placed = self.place_data(Purpose::Write(target), whole, &straight)?;
        let crcs = checksums(&straight);
        let outcome = self.publish_chunk(chunk, flags, (&placed, &crcs), &mut admission);
        if !matches!(outcome, Ok(Published::Done)) {
            let mut state = self.write_accounts();
            for part in &placed {
                state.zones.settle(part.zone, part.blocks);
            }
        }
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
        loop {
            let edges = chunk.edges();
            let bases: Vec<(u64, Option<Base>)> = edges
                .map(|block| Ok((block, self.read_base(chunk.ino, block)?)))
                .collect::<Result<_>>()?;
            let publish = || {
                let _turn = chunk.buffered().next().map(|_| self.lock_buffering());
                self.try_publish(chunk, flags, (placed, crcs), (&bases, &mut *admission))
            };
            match self.loaded(publish)? {
                Attempt::Done(published) => return Ok(published),
                Attempt::Again => {}
                Attempt::AwaitsReaper => self.let_reaper_pass(chunk.ino, chunk.limit),
            }
        }
    }

    /// One attempt at it, with what was stored in blocks of which only a part is replaced.
    fn try_publish(
        &self,
        chunk: &Chunk<'_>,
        flags: WriteFlags,
        (placed, crcs): (&[Placed], &[u32]),
        (bases, admission): (&[(u64, Option<Base>)], &mut Admission<'_>),
    ) -> Lookup<Attempt<Published>> {
        let ino = chunk.ino;
        let mut guard = self.write_state();
        let state = &mut *guard;
        let inode = state.inode(ino)?;
        inode.file()?;
        let moved = inode.size != chunk.offset && !self.has_planted(PlantedBug::AppendAtOldEnd);
        if flags.contains(WriteFlags::APPEND) && moved {
            return Ok(Attempt::Done(Published::EndMoved));
        }
        if state.awaits_reaper(ino, chunk.limit) && !self.has_planted(PlantedBug::RegrowUnreaped) {
            return Ok(Attempt::AwaitsReaper);
        }
        let is_inside = inode.size > chunk.end() && !self.has_planted(PlantedBug::PadOverNewEnd);
        if chunk.last == LastBlock::Padded && is_inside {
            return Ok(Attempt::Done(Published::NotLast));
        }
        let (first, limit) = chunk.with_neighbours();
        state.mapped_file(ino, first, limit)?;
        if !are_current(state, ino, bases)? && !self.has_planted(PlantedBug::PublishOnStale) {
            return Ok(Attempt::Again);
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
        if !flags.contains(WriteFlags::KEEP_CAPABILITY) {
            take_capability(state, ino)?;
        }
        let now = self.now();
        let inode = state.change_inode(ino)?;
        inode.size = inode.size.max(chunk.end());
        if !flags.contains(WriteFlags::KEEP_TIMES) {
            (inode.mtime, inode.ctime) = (now, now);
        }
        if flags.contains(WriteFlags::KILL_PRIVILEGES) {
            inode.perm = rules::kill_privileges(inode.kind, inode.perm);
        }
        Ok(Attempt::Done(Published::Done))
    }

    /// Sets a file's length, and whatever else `set` has, in the same step.
    pub(super) fn resize(
        &self,
        caller: &Caller,
        (ino, size): (Ino, u64),
        set: &SetAttr,
    ) -> Result<Attr> {
        if size > FILE_SIZE_MAX {
            return Err(FsError::FileTooLarge);
        }
        let tail = (!size.is_multiple_of(BLOCK)).then_some(size / BLOCK);
        let mut admission: Option<Admission<'_>> = None;
        loop {
            let base = tail.map(|block| self.read_base(ino, block)).transpose()?.flatten();
            let resize = || {
                let _turn = tail.map(|_| self.lock_buffering());
                self.try_resize(caller, (ino, size), set, (base.as_ref(), admission.as_mut()))
            };
            match self.loaded(resize)? {
                Attempt::Done(Resized::Done(attr)) => return Ok(attr),
                Attempt::Done(Resized::NeedsRoom) => admission = Some(self.admit_shrinking(1)),
                Attempt::Again => {}
                Attempt::AwaitsReaper => self.let_reaper_pass(ino, size.div_ceil(BLOCK)),
            }
        }
    }

    fn try_resize(
        &self,
        caller: &Caller,
        (ino, size): (Ino, u64),
        set: &SetAttr,
        (base, admission): (Option<&Base>, Option<&mut Admission<'_>>),
    ) -> Lookup<Attempt<Resized>> {
        let tail = (!size.is_multiple_of(BLOCK)).then_some(size / BLOCK);
        let mut guard = self.write_state();
        let state = &mut *guard;
        let change = plan_attributes(state, caller, ino, set)?;
        let shrinks = size < state.inode(ino)?.size;
        let limit = size.div_ceil(BLOCK);
        if !shrinks && state.awaits_reaper(ino, limit) {
            return Ok(Attempt::AwaitsReaper);
        }
        if shrinks {
            state.check_cut_off(ino, limit)?;
        }
        let keeps_tail = self.has_planted(PlantedBug::ForgetTailZeroing);
        if let Some(block) = tail
            && shrinks
            && !keeps_tail
            && holds_data(state, ino, block)?
        {
            let is_current = Self::is_current(state, ino, block, base)?;
            if !is_current && !self.has_planted(PlantedBug::ResizeOnStale) {
                return Ok(Attempt::Again);
            }
            let Some(admission) = admission else {
                return Ok(Attempt::Done(Resized::NeedsRoom));
            };
            let from = usize::try_from(size % BLOCK).expect("inside a block");
            Self::zero_in_block(state, (ino, block), base, admission, from..)?;
        }
        if shrinks {
            state.cut_off(ino, limit);
        }
        let now = self.now();
        let inode = state.change_inode(ino)?;
        inode.size = size;
        (inode.mtime, inode.ctime) = (now, now);
        change_attributes(state, ino, (set, change), now)?;
        Ok(Attempt::Done(Resized::Done(state.inode(ino)?.attr(ino))))
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
    ) -> Lookup<()> {
        Self::buffer_block(state, at, base, admission, |data| data[range].fill(0))
    }

    pub(super) fn allocate(&self, ino: Ino, how: Allocate, offset: u64, len: u64) -> Result<()> {
        self.check_writable()?;
        if len == 0 {
            return Err(FsError::Invalid { what: "a range of no bytes" });
        }
        let end = rules::check_range(offset, len)?;
        self.loaded(|| {
            let state = self.read_state();
            let inode = state.inode(ino)?;
            inode.file()?;
            Ok(protect::check_allocate(inode.flags, how)?)
        })?;
        let mut at = offset;
        while at < end {
            at = self.allocate_piece(ino, how, (at, end))?;
            self.after_change();
        }
        Ok(())
    }

    /// As much of a range as has not too many pieces for one step. Returns where the rest begins.
    fn allocate_piece(&self, ino: Ino, how: Allocate, (offset, end): (u64, u64)) -> Result<u64> {
        let mut admission: Option<Admission<'_>> = None;
        loop {
            let edges = if zeroes(how) { partial_edges(offset, end) } else { Vec::new() };
            let bases: Vec<(u64, Option<Base>)> = edges
                .iter()
                .map(|(block, _)| Ok((*block, self.read_base(ino, *block)?)))
                .collect::<Result<_>>()?;
            let allocate = || {
                let _turn = edges.first().map(|_| self.lock_buffering());
                self.try_allocate((ino, how), (offset, end), (&bases, admission.as_mut()))
            };
            match self.loaded(allocate)? {
                Attempt::Done(Allocated::UpTo(end)) => return Ok(end),
                Attempt::Done(Allocated::NeedsRoom) => admission = Some(self.admit_edges(how)?),
                Attempt::Again => {}
                Attempt::AwaitsReaper => self.let_reaper_pass(ino, end.div_ceil(BLOCK)),
            }
        }
    }

    fn try_allocate(
        &self,
        (ino, how): (Ino, Allocate),
        (offset, end): (u64, u64),
        (bases, mut admission): (&[(u64, Option<Base>)], Option<&mut Admission<'_>>),
    ) -> Lookup<Attempt<Allocated>> {
        let mut guard = self.write_state();
        let state = &mut *guard;
        let limit = end.div_ceil(BLOCK);
        if state.awaits_reaper(ino, limit) {
            return Ok(Attempt::AwaitsReaper);
        }
        let first = offset / BLOCK;
        let stop = state.step_end(ino, first, limit)?;
        let end = if stop < limit { stop * BLOCK } else { end };
        if !are_current(state, ino, bases)? && !self.has_planted(PlantedBug::ZeroOnStale) {
            return Ok(Attempt::Again);
        }
        let allocates = how != Allocate::Punch;
        if allocates {
            let growth = state.growth(ino, first, stop)?;
            self.check_space(state, growth)?;
        }
        let edges = if zeroes(how) { partial_edges(offset, end) } else { Vec::new() };
        for (block, range) in edges {
            if !holds_data(state, ino, block)? {
                continue;
            }
            let Some(admission) = &mut admission else {
                return Ok(Attempt::Done(Allocated::NeedsRoom));
            };
            let base = bases.iter().find(|(edge, _)| *edge == block);
            let base = base.and_then(|(_, base)| base.as_ref());
            Self::zero_in_block(state, (ino, block), base, admission, range)?;
        }
        if zeroes(how) && offset.div_ceil(BLOCK) < end / BLOCK {
            state.unmap(ino, offset.div_ceil(BLOCK), end / BLOCK);
        }
        if allocates {
            preallocate(state, ino, first..stop);
        }
        take_capability(state, ino)?;
        let now = self.now();
        let inode = state.change_inode(ino)?;
        if matches!(how, Allocate::Extend | Allocate::Zero) {
            inode.size = inode.size.max(end);
        }
        (inode.mtime, inode.ctime) = (now, now);
        Ok(Attempt::Done(Allocated::UpTo(end)))
    }
}

/// What became of an allocation.
enum Allocated {
    /// It is done up to here.
    UpTo(u64),
    /// Blocks at its edges have to be written.
    NeedsRoom,
}

/// Whether what a range holds becomes zeroes.
fn zeroes(how: Allocate) -> bool {
    match how {
        Allocate::Extend | Allocate::KeepSize => false,
        Allocate::Punch | Allocate::Zero | Allocate::ZeroKeepSize => true,
    }
}

/// Whether every base is still what is stored.
fn are_current(state: &State, ino: Ino, bases: &[(u64, Option<Base>)]) -> Lookup<bool> {
    for (block, base) in bases {
        if !Furrow::is_current(state, ino, *block, base.as_ref())? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Whether a block has content that is not known to be zeroes.
fn holds_data(state: &State, ino: Ino, block: u64) -> Lookup<bool> {
    let file = state.mapped_file(ino, block, block + 1)?;
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
fn preallocate(state: &mut State, ino: Ino, blocks: std::ops::Range<u64>) {
    let Some(file) = state.inodes.get(&ino).and_then(|inode| inode.file().ok()) else { return };
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
}
