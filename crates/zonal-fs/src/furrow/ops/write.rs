//! Writing to a regular file.
//!
//! Every change is published under the state lock in one step, so a commit sees all of it or
//! nothing. What has to be read from the drive, such as the rest of a block that is written in
//! part, is read before that without the lock; under the lock it is checked to be still current.

use std::sync::Arc;

use zonal_placement::streams::{Target, Whole};

use crate::furrow::Furrow;
use crate::furrow::format::BLOCK_BYTES;
use crate::furrow::log::upkeep::Upkeep;
use crate::furrow::metadata::extent::{Placed, checksums};
use crate::furrow::metadata::missing::Lookup;
use crate::furrow::metadata::place::{Crcs, MapEntry};
use crate::furrow::metadata::target::CHUNK_BYTES;
use crate::furrow::metadata::{Ending, Inode, State};
use crate::furrow::ops::inode::take_capability;
use crate::furrow::planted::PlantedBug;
use crate::furrow::reclaim::throttle::Admitted;
use crate::furrow::sync::Mutex;
use crate::furrow::tree::Tree;
use crate::furrow::write::Writer;
use crate::furrow::write::admission::Admission;
use crate::furrow::write::buffer::Base;
use crate::furrow::write::chunk::{Chunk, LastBlock};
use crate::furrow::write::place::Placement;
use crate::furrow::zones::allocation::Purpose;
use crate::vfs::{Ino, InodeFlags, Result, WriteFlags};
use crate::{FsError, rules};

pub(super) const BLOCK: u64 = BLOCK_BYTES as u64;

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

/// When a write has to be durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Durability {
    /// When it returns.
    Now,
    /// At the next commit.
    Later,
}

/// How a chunk is written, and what is reserved for it.
struct Plan<'a> {
    target: Target,
    whole: Whole,
    durability: Durability,
    growth: Growth<'a>,
    admitted: Option<Admitted<'a>>,
}

/// Space and room that a write holds until its data is part of the file.
struct Reserved<'a> {
    growth: Growth<'a>,
    admission: Admission<'a>,
}

/// Blocks of logical space by which a running write may let a file grow.
struct Growth<'a> {
    tree: &'a Tree,
    blocks: u64,
}

impl Growth<'_> {
    /// The write has ended, and the file has grown by what it has.
    fn end(&mut self, state: &mut State) {
        state.totals.reserved -= std::mem::take(&mut self.blocks);
    }
}

impl Drop for Growth<'_> {
    fn drop(&mut self) {
        // After a panic the lock is poisoned, and a second panic would hide the first.
        if self.blocks > 0 && !std::thread::panicking() {
            self.tree.write_accounts().totals.reserved -= self.blocks;
        }
    }
}

/// Whole blocks of a write that lie on the drive.
#[derive(Clone, Copy)]
struct PlacedData<'a> {
    parts: &'a [Placed],
    /// The checksum of each block.
    crcs: &'a [u32],
}

/// Blocks that an operation replaces in part, as they are stored.
pub(super) struct Edges(Vec<(u64, Option<Base>)>);

impl Edges {
    pub(super) fn base_of(&self, block: u64) -> Option<&Base> {
        self.0.iter().find(|(edge, _)| *edge == block).and_then(|(_, base)| base.as_ref())
    }

    /// Whether each is still what is stored.
    pub(super) fn are_current(&self, state: &State, ino: Ino) -> Lookup<bool> {
        for (block, base) in &self.0 {
            if !Writer::is_current(state, ino, *block, base.as_ref())? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// What became of a chunk, and what is left to be done once the state is unlocked.
struct Written {
    published: Published,
    durability: Durability,
    /// Blocks of the file have gathered in the buffer that are enough for a write of their own.
    has_gathered: bool,
    upkeep: Upkeep,
}

/// What became of an attempt under the state lock.
pub(super) enum Attempt<T> {
    /// It has come to this.
    Done(T),
    /// What was read before is not current any more.
    Again,
    /// Something that was deleted is in the way.
    AwaitsReaper,
}

impl Furrow {
    pub(in crate::furrow) fn write_file(
        &self,
        ino: Ino,
        offset: u64,
        data: &[u8],
        flags: WriteFlags,
    ) -> Result<u64> {
        self.tree.check_writable()?;
        let (start, durability) = if flags.contains(WriteFlags::APPEND) {
            // Appends to one file find its end one after the other. Others wait for nothing here,
            // and nobody for the commit, so that they share it.
            let lock = self.append_lock(ino)?;
            let _turn = lock.lock().expect("no holder panicked");
            self.append(ino, data, flags)?
        } else {
            let end = rules::check_range(offset, data.len() as u64)?;
            let (_, durability) = self.write_chunks(ino, (offset, end), data, flags)?;
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
    /// write or a truncation may move it while they are on their way. Returns where they went.
    fn append(&self, ino: Ino, data: &[u8], flags: WriteFlags) -> Result<(u64, Durability)> {
        loop {
            let start = self.attributes(ino)?.size;
            let end = rules::check_range(start, data.len() as u64)?;
            let (published, durability) = self.write_chunks(ino, (start, end), data, flags)?;
            if published == Published::Done {
                return Ok((start, durability));
            }
        }
    }

    fn write_chunks(
        &self,
        ino: Ino,
        (start, end): (u64, u64),
        data: &[u8],
        flags: WriteFlags,
    ) -> Result<(Published, Durability)> {
        if start == end {
            let durability =
                self.tree.loaded(|| durability_of(self.tree.read_state().inode(ino)?))?;
            return Ok((Published::Done, durability));
        }
        let (mut at, mut durability) = (start, Durability::Later);
        while at < end {
            // What is no longer than one step is one operation, wherever it begins.
            let boundary = (at / CHUNK_BYTES + 1).saturating_mul(CHUNK_BYTES);
            let next = if end - at <= CHUNK_BYTES { end } else { boundary };
            let index = |position: u64| usize::try_from(position - start).expect("in memory");
            // Where an append begins is settled with its first chunk.
            let flags = if at == start { flags } else { flags - WriteFlags::APPEND };
            let bytes = &data[index(at)..index(next)];
            let write = || self.write_chunk(Chunk::new(ino, at, bytes, flags));
            let written = self.truncator.with_reaped_space(write)?;
            durability = written.durability;
            match written.published {
                Published::Done => at = next,
                Published::EndMoved => return Ok((Published::EndMoved, durability)),
                Published::NotLast => {}
            }
            if written.has_gathered {
                self.writer.release_gathered(ino);
                self.log.after_change();
            } else {
                self.log.do_upkeep(written.upkeep);
            }
        }
        Ok((Published::Done, durability))
    }

    fn write_chunk(&self, mut chunk: Chunk<'_>) -> Result<Written> {
        loop {
            if let Some(plan) = self.tree.loaded(|| self.try_plan(&mut chunk))? {
                return self.write_planned(&chunk, plan);
            }
            self.truncator.let_reaper_pass(chunk.ino, chunk.limit);
        }
    }

    /// Decides how a chunk is written, and reserves space for it; `None` if something that was cut
    /// off the file is in the way. Before room is made: no reclaim for a write that has no space.
    fn try_plan(&self, chunk: &mut Chunk<'_>) -> Lookup<Option<Plan<'_>>> {
        let mut guard = self.tree.write_accounts();
        let (state, ino) = (&mut *guard, chunk.ino);
        if state.awaits_reaper(ino, chunk.limit) {
            return Ok(None);
        }
        // What publishing needs of the map is loaded at once, not a block of it later.
        let (first, limit) = chunk.with_neighbours();
        state.mapped_file(ino, first, limit)?;
        let growth = state.growth(ino, chunk.first, chunk.limit)?;
        self.tree.space.check_growth(state, growth)?;
        let inode = state.inode(ino)?;
        let (durability, size) = (durability_of(inode)?, inode.size);
        if chunk.may_gather() && state.gathers(ino, chunk.offset) {
            chunk.gather();
        }
        chunk.pad(size);
        let (first, written) = (chunk.straight.start, chunk.written_as());
        let target = state.target_of(ino, first, written);
        let whole = state.whole_of(ino, first, written);
        state.totals.reserved += growth;
        let growth = Growth { tree: &self.tree, blocks: growth };
        let admitted = self.throttle.admit_at_once(state, chunk.limit - chunk.first);
        Ok(Some(Plan { target, whole, durability, growth, admitted }))
    }

    fn write_planned(&self, chunk: &Chunk<'_>, plan: Plan<'_>) -> Result<Written> {
        let Plan { target, whole, durability, growth, admitted } = plan;
        let admission = self.throttle.admit_further(chunk.limit - chunk.first, admitted)?;
        let straight = chunk.straight_bytes();
        let placed =
            self.place_admitted(Placement::new(Purpose::Write(target), whole, &straight))?;
        let data = PlacedData { parts: &placed, crcs: &checksums(&straight) };
        let mut reserved = Reserved { growth, admission };
        let outcome = self.publish_chunk(chunk, data, &mut reserved);
        let is_done = outcome.as_ref().is_ok_and(|written| written.published == Published::Done);
        if !is_done {
            self.writer.give_up(&placed);
        }
        Ok(Written { durability, ..outcome? })
    }

    /// Places data of a writer that was admitted. Where reclaim has taken what there was, it makes
    /// room again. Reclaim and commits cannot wait for either, so they do without this.
    fn place_admitted(&self, mut placement: Placement<'_>) -> Result<Vec<Placed>> {
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

    /// Makes a placed chunk part of the file. Nothing has changed if it fails, or if the file's end
    /// is elsewhere by now and the chunk was made for where it was.
    fn publish_chunk(
        &self,
        chunk: &Chunk<'_>,
        data: PlacedData<'_>,
        reserved: &mut Reserved<'_>,
    ) -> Result<Written> {
        loop {
            let edges = self.read_edges(chunk.ino, chunk.edges())?;
            let publish = || {
                let _turn = chunk.buffered().next().map(|_| self.tree.lock_buffering());
                self.try_publish(chunk, data, &edges, &mut *reserved)
            };
            match self.tree.loaded(publish)? {
                Attempt::Done(written) => return Ok(written),
                Attempt::Again => {}
                Attempt::AwaitsReaper => self.truncator.let_reaper_pass(chunk.ino, chunk.limit),
            }
        }
    }

    /// Reads blocks that an operation replaces in part.
    pub(super) fn read_edges(&self, ino: Ino, blocks: impl Iterator<Item = u64>) -> Result<Edges> {
        let base = |block| Ok((block, self.writer.read_base(ino, block)?));
        Ok(Edges(blocks.map(base).collect::<Result<_>>()?))
    }

    /// One attempt at it, with what was stored in blocks of which only a part is replaced.
    fn try_publish(
        &self,
        chunk: &Chunk<'_>,
        data: PlacedData<'_>,
        edges: &Edges,
        reserved: &mut Reserved<'_>,
    ) -> Lookup<Attempt<Written>> {
        let ino = chunk.ino;
        let mut guard = self.tree.write_state();
        let state = &mut *guard;
        let inode = state.inode(ino)?;
        inode.file()?;
        let moved =
            inode.size != chunk.offset && !self.tree.has_planted(PlantedBug::AppendAtOldEnd);
        if chunk.flags.contains(WriteFlags::APPEND) && moved {
            return Ok(Attempt::Done(self.written(state, chunk, Published::EndMoved)));
        }
        if state.awaits_reaper(ino, chunk.limit)
            && !self.tree.has_planted(PlantedBug::RegrowUnreaped)
        {
            return Ok(Attempt::AwaitsReaper);
        }
        let is_inside =
            inode.size > chunk.end() && !self.tree.has_planted(PlantedBug::PadOverNewEnd);
        if chunk.last == LastBlock::Padded && is_inside {
            return Ok(Attempt::Done(self.written(state, chunk, Published::NotLast)));
        }
        let (first, limit) = chunk.with_neighbours();
        state.mapped_file(ino, first, limit)?;
        if !edges.are_current(state, ino)? && !self.tree.has_planted(PlantedBug::PublishOnStale) {
            return Ok(Attempt::Again);
        }
        state.unmap(ino, chunk.straight.start, chunk.straight.end);
        map_placed(state, (ino, chunk.straight.start), data);
        for block in chunk.buffered() {
            let (at, bytes) = chunk.bytes_of(block);
            let base = edges.base_of(block);
            Writer::buffer_block(state, (ino, block), base, &mut reserved.admission, |data| {
                data[at..at + bytes.len()].copy_from_slice(bytes);
            })?;
        }
        self.end_write(state, chunk)?;
        // The buffer and the extents have their own account of it by now.
        reserved.growth.end(state);
        reserved.admission.end(state);
        Ok(Attempt::Done(self.written(state, chunk, Published::Done)))
    }

    /// Changes the attributes of a file that was written.
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
        at: (Ino, u64),
        base: Option<&Base>,
        admission: &mut Admission<'_>,
        range: impl std::slice::SliceIndex<[u8], Output = [u8]>,
    ) -> Lookup<()> {
        Writer::buffer_block(state, at, base, admission, |data| data[range].fill(0))
    }

    /// What a write leaves to be done.
    fn written(&self, state: &State, chunk: &Chunk<'_>, published: Published) -> Written {
        Written {
            published,
            durability: Durability::Later,
            has_gathered: state.gathered(chunk.ino).is_some(),
            upkeep: self.log.upkeep_due(state),
        }
    }
}

/// When writes to a file have to be durable.
fn durability_of(inode: &Inode) -> Lookup<Durability> {
    inode.file()?;
    let is_sync = inode.flags.contains(InodeFlags::SYNC);
    Ok(if is_sync { Durability::Now } else { Durability::Later })
}

/// Whether a block has content that is not known to be zeroes.
pub(super) fn holds_data(state: &State, ino: Ino, block: u64) -> Lookup<bool> {
    let file = state.mapped_file(ino, block, block + 1)?;
    let stored = file.covering(block).is_some_and(|(_, entry)| !entry.is_preallocated());
    Ok(stored || file.dirty.contains_key(&block))
}

/// Maps placed blocks to a file, from a block on.
fn map_placed(state: &mut State, (ino, mut first): (Ino, u64), data: PlacedData<'_>) {
    let mut rest = data.crcs;
    for part in data.parts {
        let (now, later) = rest.split_at(part.blocks as usize);
        rest = later;
        let Placed { zone, block, .. } = *part;
        state.map(ino, first, MapEntry::At { zone, block, crcs: Crcs::from(now) });
        state.zones.settle(part.zone, part.blocks);
        first += u64::from(part.blocks);
    }
}
