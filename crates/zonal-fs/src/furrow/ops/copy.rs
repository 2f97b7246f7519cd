//! `copy_file_range`: shares whole blocks and copies the rest.
//!
//! A copy takes several steps, and other threads may change both files in between. So each step
//! looks at the sizes of both files under the lock under which it shares blocks, and the copy ends
//! where the source ends by then.

use crate::furrow::Furrow;
use crate::furrow::drive::layout::ROW_COPIES;
use crate::furrow::format::BLOCK_BYTES;
use crate::furrow::metadata::missing::Lookup;
use crate::furrow::metadata::{Ending, State};
use crate::furrow::ops::inode::take_capability;
use crate::furrow::planted::{PlantedBug, mistake};
use crate::vfs::{Ino, ReadFlags, Result, WriteFlags};
use crate::{FsError, protect, rules};

const BLOCK: u64 = BLOCK_BYTES as u64;

/// Bytes that one step copies if it cannot share blocks.
const COPY_BYTES: u64 = 1 << 20;

/// Bytes to be copied from one file to another, or to another place in the same one.
#[derive(Clone, Copy)]
pub(super) struct CopyRange {
    pub(super) source: Ino,
    /// Where they begin in the source.
    pub(super) from: u64,
    pub(super) target: Ino,
    /// Where they begin in the target.
    pub(super) to: u64,
    pub(super) len: u64,
    pub(super) flags: WriteFlags,
}

/// Sizes of both files.
#[derive(Clone, Copy)]
struct Sizes {
    source: u64,
    target: u64,
}

/// The outcome of an attempt to share blocks.
enum ShareOutcome {
    /// This many bytes are copied.
    Bytes(u64),
    /// There is no whole block to share.
    NoBlock,
    /// Another thread has changed a file in between.
    Stale,
}

impl CopyRange {
    /// The rest of the range once `done` bytes are copied.
    fn behind(self, done: u64) -> Self {
        Self { from: self.from + done, to: self.to + done, len: self.len - done, ..self }
    }

    fn sizes(self, state: &State) -> Lookup<Sizes> {
        let (source, target) = (state.inode(self.source)?, state.inode(self.target)?);
        Ok(Sizes { source: source.size, target: target.size })
    }

    fn is_aligned(self) -> bool {
        self.from.is_multiple_of(BLOCK) && self.to.is_multiple_of(BLOCK)
    }

    /// Whether source and target are ranges of one file that overlap.
    fn overlaps(self) -> bool {
        let is_apart = self.to + self.len <= self.from || self.from + self.len <= self.to;
        self.source == self.target && self.len > 0 && !is_apart
    }

    /// Bytes that a source of this size has to copy, and blocks that can be shared for them.
    fn shareable(self, sizes: Sizes) -> (u64, u64) {
        let len = self.len.min(sizes.source.saturating_sub(self.from));
        // The source's last block may be short, if the copy's is the last one too.
        let is_end = self.from + len == sizes.source && self.to + len >= sizes.target;
        (len, if is_end { len.div_ceil(BLOCK) } else { len / BLOCK })
    }
}

impl Furrow {
    /// Copies a range and returns how many bytes: fewer if the source ends before, or if a step
    /// fails after the first.
    pub(super) fn copy_blocks(&self, range: CopyRange) -> Result<u64> {
        self.tree.check_writable()?;
        let CopyRange { source, target, flags, .. } = range;
        let size = self.tree.loaded(|| {
            let state = self.tree.read_state();
            let (from, to) = (state.inode(source)?, state.inode(target)?);
            from.file()?;
            to.file()?;
            protect::check_copy(to.flags)?;
            Ok(from.size)
        })?;
        let len = range.len.min(size.saturating_sub(range.from));
        rules::check_range(range.to, len)?;
        let range = CopyRange { len, ..range };
        if range.overlaps() {
            return Err(FsError::Invalid { what: "ranges of one file that overlap" });
        }
        let mut done = 0;
        while done < len {
            match self.copy_step(range.behind(done)) {
                Ok(0) => break,
                Ok(bytes) => done += bytes,
                Err(error) if done == 0 => return Err(error),
                Err(error) => {
                    tracing::debug!(%error, done, "a copy ends early");
                    break;
                }
            }
        }
        if flags.contains(WriteFlags::DURABLE) {
            self.log.commit(Ending::Record)?;
        }
        Ok(done)
    }

    /// Copies some bytes and returns how many: 0 at the end of the source.
    fn copy_step(&self, rest: CopyRange) -> Result<u64> {
        if rest.is_aligned()
            && let Some(shared) = self.share(rest)?
        {
            return Ok(shared);
        }
        let to_block = BLOCK - rest.to % BLOCK;
        let step = if rest.from % BLOCK == rest.to % BLOCK { to_block } else { COPY_BYTES };
        self.copy_bytes(rest, step.min(rest.len))
    }

    fn copy_bytes(&self, rest: CopyRange, len: u64) -> Result<u64> {
        let mut data = vec![0; usize::try_from(len).expect("a small step")];
        let read = self.read_file(rest.source, rest.from, &mut data, ReadFlags::empty())?;
        if read > 0 {
            let flags = rest.flags - WriteFlags::APPEND;
            self.write_file(rest.target, rest.to, &data[..read], flags)?;
        }
        Ok(read as u64)
    }

    /// Maps blocks of the target to the blocks of the source, as many as fit into one step. Returns
    /// the number of bytes that this copies; `None` if there is no whole block to share.
    fn share(&self, rest: CopyRange) -> Result<Option<u64>> {
        let limit = |first: u64| (first + rest.len).div_ceil(BLOCK);
        let shared = loop {
            let mut sizes = None;
            mistake!(self.tree, ShareAtOldEnds, sizes = Some(self.sizes_of(rest)?));
            {
                let _turn = self.writer.flushing.lock().expect("no holder panicked");
                self.writer.write_back(&[rest.source])?;
            }
            self.truncator.wait_for_truncation(rest.source, limit(rest.from))?;
            self.truncator.wait_for_truncation(rest.target, limit(rest.to))?;
            match self.tree.loaded(|| self.try_share(rest, sizes))? {
                ShareOutcome::Bytes(bytes) => break Some(bytes),
                ShareOutcome::NoBlock => break None,
                ShareOutcome::Stale => {}
            }
        };
        self.log.after_change();
        Ok(shared)
    }

    /// Sizes of both files now, which the next change may alter.
    fn sizes_of(&self, rest: CopyRange) -> Result<Sizes> {
        self.tree.loaded(|| rest.sizes(&self.tree.read_state()))
    }

    /// One attempt to share. `sizes` replaces the present sizes, for a planted bug.
    fn try_share(&self, rest: CopyRange, sizes: Option<Sizes>) -> Lookup<ShareOutcome> {
        let CopyRange { source, target, .. } = rest;
        let (from, to) = (rest.from / BLOCK, rest.to / BLOCK);
        let mut guard = self.tree.write_state();
        let state = &mut *guard;
        let sizes = sizes.map_or_else(|| rest.sizes(state), Ok)?;
        let (len, count) = rest.shareable(sizes);
        if count == 0 {
            return Ok(ShareOutcome::NoBlock);
        }
        let mut is_cut = state.awaits_truncation(source, from + count)
            || state.awaits_truncation(target, to + count);
        mistake!(self.tree, ShareUntruncated, is_cut = false);
        if is_cut {
            return Ok(ShareOutcome::Stale);
        }
        state.check_growth_over(target, to + count)?;
        let step = state.step_end(source, from, from + count)? - from;
        let step = state.step_end(target, to, to + step)? - to;
        let mut is_buffered =
            state.inode(source)?.file()?.dirty.range(from..from + step).next().is_some();
        mistake!(self.tree, ShareUnwritten, is_buffered = false);
        if is_buffered {
            // Another thread has written to it: buffered blocks have no place to share.
            return Ok(ShareOutcome::Stale);
        }
        // Shared blocks take no space, but their rows do, in every copy on the drive. An entry that
        // this cuts counts as a whole.
        let file = state.mapped_file(source, from, from + step)?;
        let entries = file.overlapping(from, from + step);
        let rows: u64 = entries.map(|(_, entry)| entry.sharing_bytes()).sum();
        self.tree.space.check_growth(state, (rows * ROW_COPIES).div_ceil(BLOCK))?;
        state.split_map(source, from);
        state.split_map(source, from + step);
        if self.tree.planted.has(PlantedBug::CopyKeepsBuffered) {
            state.unmap_stored(target, to, to + step);
        } else {
            state.unmap(target, to, to + step);
        }
        let file = state.inode(source)?.file()?;
        let pieces: Vec<u64> =
            file.overlapping(from, from + step).map(|(start, _)| start).collect();
        for start in pieces {
            state.share_entry(source, start, target, to + (start - from));
        }
        if !rest.flags.contains(WriteFlags::KEEP_CAPABILITY) {
            take_capability(state, target)?;
        }
        let now = self.now();
        let inode = state.change_inode(target)?;
        let bytes = len.min(step * BLOCK);
        inode.size = inode.size.max(rest.to + bytes);
        (inode.mtime, inode.ctime) = (now, now);
        if rest.flags.contains(WriteFlags::KILL_PRIVILEGES) {
            inode.perm = rules::kill_privileges(inode.kind, inode.perm);
        }
        Ok(ShareOutcome::Bytes(bytes))
    }
}
