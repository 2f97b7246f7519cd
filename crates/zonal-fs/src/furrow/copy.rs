//! `copy_file_range`: whole blocks are shared, the rest is copied.

use super::Furrow;
use super::committer::Ending;
use super::format::BLOCK_BYTES;
use super::layout::ROW_COPIES;
use super::missing::Lookup;
use super::state::State;
use crate::FsError;
use crate::protect;
use crate::rules;
use crate::vfs::{Ino, ReadFlags, Result, WriteFlags};

const BLOCK: u64 = BLOCK_BYTES as u64;

/// Bytes copied at once where blocks cannot be shared.
const COPY_BYTES: u64 = 1 << 20;

impl Furrow {
    pub(super) fn copy_blocks(
        &self,
        source: (Ino, u64),
        target: (Ino, u64),
        len: u64,
        flags: WriteFlags,
    ) -> Result<u64> {
        self.check_writable()?;
        let (size, target_size) = self.loaded(|| {
            let state = self.read_state();
            let (from, to) = (state.inode(source.0)?, state.inode(target.0)?);
            from.file()?;
            to.file()?;
            protect::check_copy(to.flags)?;
            Ok((from.size, to.size))
        })?;
        let len = len.min(size.saturating_sub(source.1));
        rules::check_range(target.1, len)?;
        let overlaps = source.1 < target.1 + len && target.1 < source.1 + len;
        if source.0 == target.0 && overlaps && len > 0 {
            return Err(FsError::Invalid { what: "ranges of one file that overlap" });
        }
        let mut done = 0;
        while done < len {
            let (from, to) = (source.1 + done, target.1 + done);
            let aligned = from.is_multiple_of(BLOCK) && to.is_multiple_of(BLOCK);
            let rest = len - done;
            // The source's last block may be short, if the copy's is the last one too.
            let whole = if from + rest == size && to + rest >= target_size {
                rest.next_multiple_of(BLOCK)
            } else {
                rest / BLOCK * BLOCK
            };
            done += if aligned && whole > 0 {
                let blocks = (from / BLOCK, to / BLOCK, whole / BLOCK);
                let shared =
                    self.share(source.0, target.0, blocks, (to + whole.min(rest), flags))?;
                (shared * BLOCK).min(rest)
            } else {
                let to_block = BLOCK - to % BLOCK;
                let step = if from % BLOCK == to % BLOCK { to_block } else { COPY_BYTES };
                self.copy_bytes((source.0, from), (target.0, to), step.min(rest), flags)?
            };
        }
        if flags.contains(WriteFlags::DURABLE) {
            self.commit(Ending::Record)?;
        }
        Ok(len)
    }

    fn copy_bytes(
        &self,
        source: (Ino, u64),
        target: (Ino, u64),
        len: u64,
        flags: WriteFlags,
    ) -> Result<u64> {
        let mut data = vec![0; usize::try_from(len).expect("a small step")];
        let read = self.read_file(source.0, source.1, &mut data, ReadFlags::empty())?;
        self.write_file(target.0, target.1, &data[..read], flags - WriteFlags::APPEND)?;
        Ok(len)
    }

    /// Makes blocks of `target` the blocks of `source`: up to `count`, as many as one step can do.
    /// Returns how many.
    fn share(
        &self,
        source: Ino,
        target: Ino,
        (from, to, count): (u64, u64, u64),
        (end, flags): (u64, WriteFlags),
    ) -> Result<u64> {
        let shared = loop {
            {
                let _turn = self.flushing.lock().expect("no holder panicked");
                self.write_back(&[source])?;
            }
            self.let_reaper_pass(source, from + count);
            self.let_reaper_pass(target, to + count);
            let share = || self.try_share(source, target, (from, to, count), (end, flags));
            if let Some(shared) = self.loaded(share)? {
                break shared;
            }
        };
        self.after_change();
        Ok(shared)
    }

    /// The same; `None` where something has come in between.
    fn try_share(
        &self,
        source: Ino,
        target: Ino,
        (from, to, count): (u64, u64, u64),
        (end, flags): (u64, WriteFlags),
    ) -> Lookup<Option<u64>> {
        let mut guard = self.write_state();
        let state = &mut *guard;
        if state.awaits_reaper(source, from + count) || state.awaits_reaper(target, to + count) {
            return Ok(None);
        }
        let step = state.step_end(source, from, from + count)? - from;
        let step = state.step_end(target, to, to + step)? - to;
        if state.inode(source)?.file()?.dirty.range(from..from + step).next().is_some() {
            // Written to meanwhile: what is buffered has no place to share.
            return Ok(None);
        }
        // Shared blocks take no space, but their rows do, in all copies that there are of them. Those
        // of an entry that is cut are counted whole.
        let file = state.mapped_file(source, from, from + step)?;
        let entries = file.overlapping(from, from + step);
        let rows: u64 = entries.map(|(_, entry)| State::sharing_bytes(entry)).sum();
        self.check_space(state, (rows * ROW_COPIES).div_ceil(BLOCK))?;
        state.split_map(source, from);
        state.split_map(source, from + step);
        state.unmap(target, to, to + step);
        let file = state.inode(source)?.file()?;
        let pieces: Vec<u64> =
            file.overlapping(from, from + step).map(|(start, _)| start).collect();
        for start in pieces {
            state.share_entry((source, start), (target, to + (start - from)));
        }
        let now = self.now();
        let inode = state.change_inode(target)?;
        let reached = if step < count { (to + step) * BLOCK } else { end };
        inode.size = inode.size.max(reached);
        (inode.mtime, inode.ctime) = (now, now);
        if flags.contains(WriteFlags::KILL_PRIVILEGES) {
            inode.perm = rules::kill_privileges(inode.kind, inode.perm);
        }
        Ok(Some(step))
    }
}
