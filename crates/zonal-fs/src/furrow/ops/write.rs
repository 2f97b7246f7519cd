//! Writing to a regular file.
//!
//! An operation publishes each chunk under the state lock in one step, so a commit sees all of it
//! or nothing. Before that, without the lock, it reads from the drive, such as the rest of a block
//! that it replaces in part; under the lock it checks that this is still current.

use std::sync::Arc;

use zonal_placement::streams::{Locality, Target};

use crate::furrow::Furrow;
use crate::furrow::format::BLOCK_BYTES;
use crate::furrow::log::upkeep::Upkeep;
use crate::furrow::metadata::map::place::{Crcs, MapEntry};
use crate::furrow::metadata::map::place::{Placed, checksums};
use crate::furrow::metadata::missing::Lookup;
use crate::furrow::metadata::state::target::CHUNK_BYTES;
use crate::furrow::metadata::{Ending, Inode, State};
use crate::furrow::ops::inode::take_capability;
use crate::furrow::planted::{PlantedBug, mistake};
use crate::furrow::sync::Mutex;
use crate::furrow::write::Writer;
use crate::furrow::write::buffer::{BlockBase, FileBlock};
use crate::furrow::write::chunk::{Chunk, LastBlock};
use crate::furrow::write::place::{Placement, WriteRequest};
use crate::furrow::write::reservation::Reservation;
use crate::furrow::zones::allocation::Purpose;
use crate::vfs::{Ino, InodeFlags, Result, WriteFlags};
use crate::{FsError, rules};

pub(super) const BLOCK: u64 = BLOCK_BYTES as u64;

/// The outcome of publishing a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Published {
    /// It is part of the file.
    Done,
    /// The end of the file has moved since an append looked for it: nothing has changed.
    EndMoved,
    /// The last block was padded with zeroes, but the file does not end in it any more: nothing has
    /// changed.
    NotLast,
}

/// When a write has to be durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Durability {
    /// When it returns.
    Now,
    /// At the next commit.
    Later,
}

/// How to write a chunk, and the space that is reserved for it.
struct WritePlan<'a> {
    target: Target,
    locality: Locality,
    durability: Durability,
    growth: Reservation<'a>,
    /// Room on the drive, if there was enough at once.
    room: Option<Reservation<'a>>,
}

/// Whole blocks of a write that are on the drive.
#[derive(Clone, Copy)]
struct PlacedData<'a> {
    parts: &'a [Placed],
    /// The checksum of each block.
    crcs: &'a [u32],
}

/// Blocks that an operation replaces in part, as they are stored.
pub(super) struct Edges(Vec<BlockBase>);

impl Edges {
    pub(super) fn base_of(&self, block: u64) -> Option<&BlockBase> {
        self.0.iter().find(|base| base.of.block == block)
    }

    /// Whether the file still has each of them where it was read.
    pub(super) fn are_current(&self, state: &State) -> Lookup<bool> {
        for base in &self.0 {
            if !base.is_current(state)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// The outcome of publishing a chunk, and the work that the writer has to do once it has unlocked
/// the state.
struct ChunkOutcome {
    published: Published,
    durability: Durability,
    /// The buffer has enough blocks of the file for a write of their own.
    has_gathered: bool,
    upkeep: Upkeep,
}

/// The outcome of an attempt under the state lock.
pub(super) enum Attempt<T> {
    /// It has ended with this result.
    Done(T),
    /// Blocks that were read before are not current any more.
    Stale,
    /// Map entries of a truncation are in the way.
    AwaitsTruncation,
}

impl Furrow {
    pub(super) fn write_file(
        &self,
        ino: Ino,
        offset: u64,
        data: &[u8],
        flags: WriteFlags,
    ) -> Result<u64> {
        self.tree.check_writable()?;
        let (start, durability) = if flags.contains(WriteFlags::APPEND) {
            // Appends to one file find its end one after the other. No other write waits for this
            // lock, and no append holds it during a commit, so that appends share commits.
            let lock = self.append_lock(ino)?;
            let _turn = lock.lock().expect("no holder panicked");
            self.append(ino, data, flags)?
        } else {
            let (_, durability) = self.write_chunks(ino, offset, data, flags)?;
            (offset, durability)
        };
        if durability == Durability::Now || flags.contains(WriteFlags::DURABLE) {
            self.log.commit(Ending::Record)?;
        }
        Ok(start)
    }

    /// The lock for appends to a file.
    fn append_lock(&self, ino: Ino) -> Result<Arc<Mutex<()>>> {
        self.tree.loaded(|| {
            let mut state = self.tree.write_accounts();
            let lock = &mut state.inode_mut(ino)?.file_mut()?.appending;
            Ok(Arc::clone(lock.get_or_insert_default()))
        })
    }

    /// Writes at the end of a file, wherever that is when the bytes become part of it: another
    /// write or a truncation may move it meanwhile. Returns the offset of the bytes.
    fn append(&self, ino: Ino, data: &[u8], flags: WriteFlags) -> Result<(u64, Durability)> {
        loop {
            let start = self.attributes(ino)?.size;
            let (published, durability) = self.write_chunks(ino, start, data, flags)?;
            if published == Published::Done {
                return Ok((start, durability));
            }
        }
    }

    /// Bytes that are written as one operation on a full drive, too. Reclaim frees a zone at a
    /// time, so it finds room for half a zone.
    pub(super) fn atomic_bytes(&self) -> u64 {
        CHUNK_BYTES.min(self.drive.layout.zone_bytes() / 2)
    }

    /// Whether files may take the space that a write of these bytes adds.
    fn has_space(&self, ino: Ino, start: u64, end: u64) -> Result<bool> {
        self.tree.loaded(|| {
            let state = self.tree.read_state();
            let growth = state.growth(ino, start / BLOCK, end.div_ceil(BLOCK))?;
            Ok(self.tree.space.check_growth(&state, growth).is_ok())
        })
    }

    fn write_chunks(
        &self,
        ino: Ino,
        start: u64,
        data: &[u8],
        flags: WriteFlags,
    ) -> Result<(Published, Durability)> {
        let end = rules::check_range(start, data.len() as u64)?;
        if start == end {
            let durability =
                self.tree.loaded(|| durability_of(self.tree.read_state().inode(ino)?))?;
            return Ok((Published::Done, durability));
        }
        self.reclaimer.check_host()?;
        let (mut at, mut durability) = (start, Durability::Later);
        let mut chunk_bytes = CHUNK_BYTES;
        mistake!(self.tree, SplitWrite, chunk_bytes = BLOCK);
        while at < end {
            self.writer.bound_buffer()?;
            // A write no longer than one chunk is one operation, wherever it begins.
            let boundary = (at / chunk_bytes + 1).saturating_mul(chunk_bytes);
            let next = if end - at <= chunk_bytes { end } else { boundary };
            let index = |position: u64| usize::try_from(position - start).expect("in memory");
            // Only the first chunk of an append depends on the end of the file.
            let flags = if at == start { flags } else { flags - WriteFlags::APPEND };
            let bytes = &data[index(at)..index(next)];
            let write = || self.write_chunk(Chunk::new(ino, at, bytes, flags).of_write(start..end));
            let written = match self.truncator.with_truncated_space(write) {
                // The drive is so full, and its zones so small, that reclaim finds no room for the
                // whole chunk at once.
                Err(FsError::NoSpace)
                    if chunk_bytes > self.atomic_bytes() && self.has_space(ino, at, next)? =>
                {
                    chunk_bytes = self.atomic_bytes();
                    continue;
                }
                written => written?,
            };
            durability = written.durability;
            match written.published {
                Published::Done => at = next,
                Published::EndMoved => return Ok((Published::EndMoved, durability)),
                Published::NotLast => {}
            }
            mistake!(self.tree, SplitWrite, self.log.commit(Ending::Record)?);
            if written.has_gathered {
                self.writer.release_gathered(ino);
                self.log.after_change();
            } else {
                self.log.do_upkeep(written.upkeep);
            }
        }
        Ok((Published::Done, durability))
    }

    fn write_chunk(&self, mut chunk: Chunk<'_>) -> Result<ChunkOutcome> {
        loop {
            if let Some(plan) = self.tree.loaded(|| self.try_plan(&mut chunk))? {
                return self.write_planned(&chunk, plan);
            }
            self.truncator.wait_for_truncation(chunk.ino, chunk.limit)?;
        }
    }

    /// Decides how to write a chunk, and reserves space for it; `None` if map entries of a
    /// truncation are in the way. This comes before making room: no reclaim for a write that has no
    /// space.
    fn try_plan(&self, chunk: &mut Chunk<'_>) -> Lookup<Option<WritePlan<'_>>> {
        let mut guard = self.tree.write_accounts();
        let (state, ino) = (&mut *guard, chunk.ino);
        if state.awaits_truncation(ino, chunk.limit) {
            return Ok(None);
        }
        state.check_growth_over(ino, chunk.limit)?;
        // Loads all map entries that `try_publish` needs, so that it rarely loads one by one.
        let (first, limit) = chunk.with_neighbours();
        state.mapped_file(ino, first, limit)?;
        let growth = state.growth(ino, chunk.first, chunk.limit)?;
        self.tree.space.check_growth(state, growth)?;
        let inode = state.inode(ino)?;
        let (durability, size) = (durability_of(inode)?, inode.size);
        let seeks = self.tree.layout().seeks;
        if chunk.may_gather(seeks) && state.gathers(ino, chunk.offset) {
            chunk.gather();
        }
        chunk.pad(size);
        let (first, written) = (chunk.straight.start, chunk.written_as());
        let target = state.target_of(ino, first, written);
        let locality = state.locality_of(ino, first, written);
        let growth = Reservation::of_growth(&self.tree, state, growth);
        let room = self.throttle.try_reserve(state, chunk.limit - chunk.first);
        Ok(Some(WritePlan { target, locality, durability, growth, room }))
    }

    fn write_planned(&self, chunk: &Chunk<'_>, plan: WritePlan<'_>) -> Result<ChunkOutcome> {
        let WritePlan { target, locality, durability, growth, room } = plan;
        let mut reservation = self.throttle.reserve_further(chunk.limit - chunk.first, room)?;
        reservation.add(growth);
        let straight = chunk.straight_bytes();
        let write = WriteRequest { purpose: Purpose::Write(target), data: &straight, locality };
        let placed = self.place_reserved(Placement::new(write))?;
        let data = PlacedData { parts: &placed, crcs: &checksums(&straight) };
        let outcome = self.publish_chunk(chunk, data, &mut reservation);
        let is_done = outcome.as_ref().is_ok_and(|written| written.published == Published::Done);
        if !is_done {
            self.writer.give_up(&placed);
        }
        Ok(ChunkOutcome { durability, ..outcome? })
    }

    /// Places data of a writer with a reservation. If reclaim has taken the free zones meanwhile,
    /// it makes room again. Reclaim and commits cannot wait for reclaim, so they do without this.
    fn place_reserved(&self, mut placement: Placement<'_>) -> Result<Vec<Placed>> {
        let mut attempts = self.reclaimer.attempts_max();
        let outcome = loop {
            match self.writer.place_rest(&mut placement) {
                Err(FsError::NoSpace) if attempts > 0 && self.reclaimer.make_room().is_ok() => {
                    attempts -= 1;
                }
                outcome => break outcome,
            }
        };
        self.writer.end_placement(placement, outcome)
    }

    /// Makes a placed chunk part of the file. Changes nothing if it fails, or if the chunk depends
    /// on the end of the file and that has moved.
    fn publish_chunk(
        &self,
        chunk: &Chunk<'_>,
        data: PlacedData<'_>,
        reservation: &mut Reservation<'_>,
    ) -> Result<ChunkOutcome> {
        loop {
            let edges = self.read_edges(chunk.ino, chunk.edges())?;
            let publish = || {
                let _turn = chunk.buffered().next().map(|_| self.tree.lock_buffering());
                self.try_publish(chunk, data, &edges, &mut *reservation)
            };
            match self.tree.loaded(publish)? {
                Attempt::Done(written) => return Ok(written),
                Attempt::Stale => {}
                Attempt::AwaitsTruncation => {
                    self.truncator.wait_for_truncation(chunk.ino, chunk.limit)?;
                }
            }
        }
    }

    /// Reads blocks that the caller is about to replace in part.
    pub(super) fn read_edges(&self, ino: Ino, blocks: impl Iterator<Item = u64>) -> Result<Edges> {
        let base = |block| self.writer.read_base(FileBlock { ino, block });
        Ok(Edges(blocks.map(base).collect::<Result<_>>()?))
    }

    /// One attempt to publish a chunk. `edges` has the blocks that it replaces in part.
    fn try_publish(
        &self,
        chunk: &Chunk<'_>,
        data: PlacedData<'_>,
        edges: &Edges,
        reservation: &mut Reservation<'_>,
    ) -> Lookup<Attempt<ChunkOutcome>> {
        let ino = chunk.ino;
        let mut guard = self.tree.write_state();
        let state = &mut *guard;
        let inode = state.inode(ino)?;
        inode.file()?;
        let mut moved = inode.size != chunk.offset;
        mistake!(self.tree, AppendAtOldEnd, moved = false);
        if chunk.flags.contains(WriteFlags::APPEND) && moved {
            return Ok(Attempt::Done(self.written(state, chunk, Published::EndMoved)));
        }
        let mut is_cut = state.awaits_truncation(ino, chunk.limit);
        mistake!(self.tree, RegrowUntruncated, is_cut = false);
        if is_cut {
            return Ok(Attempt::AwaitsTruncation);
        }
        let mut is_inside = inode.size > chunk.end();
        mistake!(self.tree, PadOverNewEnd, is_inside = false);
        if chunk.last == LastBlock::Padded && is_inside {
            return Ok(Attempt::Done(self.written(state, chunk, Published::NotLast)));
        }
        let (first, limit) = chunk.with_neighbours();
        state.mapped_file(ino, first, limit)?;
        let mut is_stale = !edges.are_current(state)?;
        mistake!(self.tree, PublishOnStale, is_stale = false);
        if is_stale {
            return Ok(Attempt::Stale);
        }
        if self.tree.planted.has(PlantedBug::KeepOlderBuffered) {
            state.unmap_stored(ino, chunk.straight.start, chunk.straight.end);
        } else {
            state.unmap(ino, chunk.straight.start, chunk.straight.end);
        }
        map_placed(state, FileBlock { ino, block: chunk.straight.start }, data);
        for block in chunk.buffered() {
            let (at, bytes) = chunk.bytes_of(block);
            let (of, base) = (FileBlock { ino, block }, edges.base_of(block));
            Writer::buffer_block(state, of, base, reservation, |data| {
                data[at..at + bytes.len()].copy_from_slice(bytes);
            })?;
        }
        self.end_write(state, chunk)?;
        reservation.end(state);
        Ok(Attempt::Done(self.written(state, chunk, Published::Done)))
    }

    /// Updates the attributes of a file after a write.
    fn end_write(&self, state: &mut State, chunk: &Chunk<'_>) -> Lookup<()> {
        if !chunk.flags.contains(WriteFlags::KEEP_CAPABILITY) {
            take_capability(state, chunk.ino)?;
        }
        let now = self.now();
        let inode = state.change_inode(chunk.ino)?;
        inode.size = inode.size.max(chunk.end());
        if !chunk.flags.contains(WriteFlags::KEEP_TIMES) {
            (inode.mtime, inode.ctime) = (now, now);
        }
        if chunk.flags.contains(WriteFlags::KILL_PRIVILEGES) {
            inode.perm = rules::kill_privileges(inode.kind, inode.perm);
        }
        Ok(())
    }

    pub(super) fn zero_in_block(
        state: &mut State,
        at: FileBlock,
        base: Option<&BlockBase>,
        reservation: &mut Reservation<'_>,
        range: impl std::slice::SliceIndex<[u8], Output = [u8]>,
    ) -> Lookup<()> {
        Writer::buffer_block(state, at, base, reservation, |data| data[range].fill(0))
    }

    /// The outcome of a chunk, with the upkeep that it leaves.
    fn written(&self, state: &State, chunk: &Chunk<'_>, published: Published) -> ChunkOutcome {
        ChunkOutcome {
            published,
            durability: Durability::Later,
            has_gathered: state.gathered(chunk.ino).is_some(),
            upkeep: self.log.upkeep_due(state),
        }
    }
}

/// When writes to this file have to be durable.
fn durability_of(inode: &Inode) -> Lookup<Durability> {
    inode.file()?;
    let is_sync = inode.flags.contains(InodeFlags::SYNC);
    Ok(if is_sync { Durability::Now } else { Durability::Later })
}

/// Whether a block may hold anything but zeroes.
pub(super) fn holds_data(state: &State, at: FileBlock) -> Lookup<bool> {
    let FileBlock { ino, block } = at;
    let file = state.mapped_file(ino, block, block + 1)?;
    let stored = file.covering(block).is_some_and(|(_, entry)| !entry.is_preallocated());
    Ok(stored || file.dirty.contains_key(&block))
}

/// Maps placed blocks to a file, from a block of it on.
fn map_placed(state: &mut State, from: FileBlock, data: PlacedData<'_>) {
    let FileBlock { ino, block: mut first } = from;
    let mut rest = data.crcs;
    for part in data.parts {
        let (now, later) = rest.split_at(part.blocks as usize);
        rest = later;
        let Placed { zone, block, .. } = *part;
        state.map(ino, first, MapEntry::At { zone, block, crcs: Crcs::from(now) });
        state.zones.complete(part.zone, part.blocks);
        first += u64::from(part.blocks);
    }
}
