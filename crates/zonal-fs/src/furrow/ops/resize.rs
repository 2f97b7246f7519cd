//! Setting the length of a file.

use super::write::{Attempt, BLOCK, holds_data};
use crate::FsError;
use crate::furrow::Furrow;
use crate::furrow::metadata::missing::Lookup;
use crate::furrow::ops::inode::{change_attributes, plan_attributes};
use crate::furrow::planted::PlantedBug;
use crate::furrow::write::Writer;
use crate::furrow::write::admission::Admission;
use crate::furrow::write::buffer::Base;
use crate::rules::FILE_SIZE_MAX;
use crate::vfs::{Attr, Caller, Ino, Result, SetAttr};

/// What became of a truncation.
enum Resized {
    Done(Attr),
    /// The block in which the file will end has to be written.
    NeedsRoom,
}

impl Furrow {
    /// Sets a file's length, and whatever else `set` has, in the same step.
    pub(in crate::furrow) fn resize(
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
            let base = tail.map(|block| self.writer.read_base(ino, block)).transpose()?.flatten();
            let resize = || {
                let _turn = tail.map(|_| self.tree.lock_buffering());
                self.try_resize(caller, (ino, size), set, (base.as_ref(), admission.as_mut()))
            };
            match self.tree.loaded(resize)? {
                Attempt::Done(Resized::Done(attr)) => return Ok(attr),
                Attempt::Done(Resized::NeedsRoom) => {
                    admission = Some(self.throttle.admit_shrinking(1));
                }
                Attempt::Again => {}
                Attempt::AwaitsReaper => self.truncator.let_reaper_pass(ino, size.div_ceil(BLOCK)),
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
        let mut guard = self.tree.write_state();
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
        let keeps_tail = self.tree.has_planted(PlantedBug::ForgetTailZeroing);
        if let Some(block) = tail
            && shrinks
            && !keeps_tail
            && holds_data(state, ino, block)?
        {
            let is_current = Writer::is_current(state, ino, block, base)?;
            if !is_current && !self.tree.has_planted(PlantedBug::ResizeOnStale) {
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
}
