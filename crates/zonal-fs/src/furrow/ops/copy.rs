//! `copy_file_range`: whole blocks are shared, the rest is copied.
//!
//! A copy goes in steps, and others change both files in between. So each step looks anew where
//! both end: what is shared is decided under the lock under which it happens. Where the source ends
//! by then, the copy ends.

use crate::furrow::Furrow;
use crate::furrow::drive::layout::ROW_COPIES;
use crate::furrow::format::BLOCK_BYTES;
use crate::furrow::metadata::missing::Lookup;
use crate::furrow::metadata::{Ending, State};
use crate::furrow::ops::inode::take_capability;
use crate::furrow::planted::PlantedBug;
use crate::vfs::{Ino, ReadFlags, Result, WriteFlags};
use crate::{FsError, protect, rules};

const BLOCK: u64 = BLOCK_BYTES as u64;

/// Bytes copied at once where blocks cannot be shared.
const COPY_BYTES: u64 = 1 << 20;

/// What is left of a copy.
#[derive(Clone, Copy)]
struct Rest {
    source: Ino,
    from: u64,
    target: Ino,
    to: u64,
    len: u64,
    flags: WriteFlags,
}

/// What became of an attempt to share blocks.
enum Shared {
    /// So many bytes are copied.
    Bytes(u64),
    /// There is no whole block to share.
    NoBlock,
    /// Something has come in between.
    Again,
}

impl Rest {
    fn behind(self, done: u64) -> Self {
        Self { from: self.from + done, to: self.to + done, len: self.len - done, ..self }
    }

    fn is_aligned(self) -> bool {
        self.from.is_multiple_of(BLOCK) && self.to.is_multiple_of(BLOCK)
    }

    /// Bytes that are there to copy, and blocks that can be shared for that, while both files end
    /// where they do.
    fn shareable(self, size: u64, target_size: u64) -> (u64, u64) {
        let len = self.len.min(size.saturating_sub(self.from));
        // The source's last block may be short, if the copy's is the last one too.
        let is_end = self.from + len == size && self.to + len >= target_size;
        (len, if is_end { len.div_ceil(BLOCK) } else { len / BLOCK })
    }
}

impl Furrow {
    /// Copies up to `len` bytes, and returns how many: fewer if the source ends before, or if
    /// something fails when some of them are copied.
    pub(in crate::furrow) fn copy_blocks(
        &self,
        source: (Ino, u64),
        target: (Ino, u64),
        len: u64,
        flags: WriteFlags,
    ) -> Result<u64> {
        self.tree.check_writable()?;
        let size = self.tree.loaded(|| {
            let state = self.tree.read_state();
            let (from, to) = (state.inode(source.0)?, state.inode(target.0)?);
            from.file()?;
            to.file()?;
            protect::check_copy(to.flags)?;
            Ok(from.size)
        })?;
        let len = len.min(size.saturating_sub(source.1));
        rules::check_range(target.1, len)?;
        let overlaps = source.1 < target.1 + len && target.1 < source.1 + len;
        if source.0 == target.0 && overlaps && len > 0 {
            return Err(FsError::Invalid { what: "ranges of one file that overlap" });
        }
        let ((source, from), (target, to)) = (source, target);
        let whole = Rest { source, from, target, to, len, flags };
        let mut done = 0;
        while done < len {
            match self.copy_step(whole.behind(done)) {
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

    /// Copies some bytes, and returns how many: none where the source ends.
    fn copy_step(&self, rest: Rest) -> Result<u64> {
        if rest.is_aligned()
            && let Some(shared) = self.share(rest)?
        {
            return Ok(shared);
        }
        let to_block = BLOCK - rest.to % BLOCK;
        let step = if rest.from % BLOCK == rest.to % BLOCK { to_block } else { COPY_BYTES };
        self.copy_bytes(rest, step.min(rest.len))
    }

    fn copy_bytes(&self, rest: Rest, len: u64) -> Result<u64> {
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
    fn share(&self, rest: Rest) -> Result<Option<u64>> {
        let limit = |first: u64| (first + rest.len).div_ceil(BLOCK);
        let shared = loop {
            let is_early = self.tree.has_planted(PlantedBug::ShareAtOldEnds);
            let ends = is_early.then(|| self.ends_of(rest)).transpose()?;
            {
                let _turn = self.writer.flushing.lock().expect("no holder panicked");
                self.writer.write_back(&[rest.source])?;
            }
            self.truncator.let_reaper_pass(rest.source, limit(rest.from));
            self.truncator.let_reaper_pass(rest.target, limit(rest.to));
            match self.tree.loaded(|| self.try_share(rest, ends))? {
                Shared::Bytes(bytes) => break Some(bytes),
                Shared::NoBlock => break None,
                Shared::Again => {}
            }
        };
        self.log.after_change();
        Ok(shared)
    }

    /// Where both files end now, which the next change may move.
    fn ends_of(&self, rest: Rest) -> Result<(u64, u64)> {
        self.tree.loaded(|| {
            let state = self.tree.read_state();
            Ok((state.inode(rest.source)?.size, state.inode(rest.target)?.size))
        })
    }

    /// One attempt to share. `ends` says where both files end, if the caller has decided that
    /// before.
    fn try_share(&self, rest: Rest, ends: Option<(u64, u64)>) -> Lookup<Shared> {
        let Rest { source, target, .. } = rest;
        let (from, to) = (rest.from / BLOCK, rest.to / BLOCK);
        let mut guard = self.tree.write_state();
        let state = &mut *guard;
        let sizes = (state.inode(source)?.size, state.inode(target)?.size);
        let sizes = ends.unwrap_or(sizes);
        let (len, count) = rest.shareable(sizes.0, sizes.1);
        if count == 0 {
            return Ok(Shared::NoBlock);
        }
        let awaits = |ino, limit| {
            state.awaits_reaper(ino, limit) && !self.tree.has_planted(PlantedBug::ShareUnreaped)
        };
        if awaits(source, from + count) || awaits(target, to + count) {
            return Ok(Shared::Again);
        }
        let step = state.step_end(source, from, from + count)? - from;
        let step = state.step_end(target, to, to + step)? - to;
        let is_buffered =
            state.inode(source)?.file()?.dirty.range(from..from + step).next().is_some();
        if is_buffered && !self.tree.has_planted(PlantedBug::ShareUnwritten) {
            // Written to meanwhile: what is buffered has no place to share.
            return Ok(Shared::Again);
        }
        // Shared blocks take no space, but their rows do, in all copies that there are of them.
        // Those of an entry that is cut are counted whole.
        let file = state.mapped_file(source, from, from + step)?;
        let entries = file.overlapping(from, from + step);
        let rows: u64 = entries.map(|(_, entry)| State::sharing_bytes(entry)).sum();
        self.tree.space.check_growth(state, (rows * ROW_COPIES).div_ceil(BLOCK))?;
        state.split_map(source, from);
        state.split_map(source, from + step);
        state.unmap(target, to, to + step);
        let file = state.inode(source)?.file()?;
        let pieces: Vec<u64> =
            file.overlapping(from, from + step).map(|(start, _)| start).collect();
        for start in pieces {
            state.share_entry((source, start), (target, to + (start - from)));
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
        Ok(Shared::Bytes(bytes))
    }
}
