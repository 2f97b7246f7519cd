//! Setting the length of a file: truncation and extension.

use super::write::{Attempt, BLOCK, holds_data};
use crate::FsError;
use crate::furrow::Furrow;
use crate::furrow::metadata::missing::Lookup;
use crate::furrow::ops::inode::{change_attributes, plan_attributes};
use crate::furrow::planted::mistake;
use crate::furrow::write::buffer::{BlockBase, FileBlock};
use crate::furrow::write::reservation::Reservation;
use crate::rules::FILE_SIZE_MAX;
use crate::vfs::{Attr, Caller, Ino, Result, SetAttr};

/// The outcome of a truncation.
enum Resized {
    Done(Attr),
    /// It has to write the block in which the file will end, and has no reservation.
    NeedsRoom,
}

/// A truncation or an extension, with the other changes of the same `setattr`.
#[derive(Clone, Copy)]
struct Resize<'a> {
    caller: &'a Caller,
    ino: Ino,
    size: u64,
    set: &'a SetAttr,
}

impl Resize<'_> {
    /// The block in which the file will end, unless it ends with a whole one.
    fn tail(self) -> Option<FileBlock> {
        let block = self.size / BLOCK;
        (!self.size.is_multiple_of(BLOCK)).then_some(FileBlock { ino: self.ino, block })
    }

    /// Blocks that the file will have.
    fn limit(self) -> u64 {
        self.size.div_ceil(BLOCK)
    }
}

impl Furrow {
    /// Sets a file's length, and all other attributes in `set`, in the same step.
    pub(super) fn resize(
        &self,
        caller: &Caller,
        ino: Ino,
        size: u64,
        set: &SetAttr,
    ) -> Result<Attr> {
        if size > FILE_SIZE_MAX {
            return Err(FsError::FileTooLarge);
        }
        let resize = Resize { caller, ino, size, set };
        let mut reservation: Option<Reservation<'_>> = None;
        loop {
            let base = resize.tail().map(|tail| self.writer.read_base(tail)).transpose()?;
            let attempt = || {
                let _turn = base.as_ref().map(|_| self.tree.lock_buffering());
                self.try_resize(resize, base.as_ref(), reservation.as_mut())
            };
            match self.tree.loaded(attempt)? {
                Attempt::Done(Resized::Done(attr)) => return Ok(attr),
                Attempt::Done(Resized::NeedsRoom) => {
                    reservation = Some(self.throttle.reserve_for_shrinking(1));
                }
                Attempt::Stale => {}
                Attempt::AwaitsTruncation => {
                    self.truncator.wait_for_truncation(ino, resize.limit())?;
                }
            }
        }
    }

    fn try_resize(
        &self,
        resize: Resize<'_>,
        base: Option<&BlockBase>,
        reservation: Option<&mut Reservation<'_>>,
    ) -> Lookup<Attempt<Resized>> {
        let (Resize { caller, ino, size, set }, limit) = (resize, resize.limit());
        let mut guard = self.tree.write_state();
        let state = &mut *guard;
        let change = plan_attributes(state, caller, ino, set)?;
        let shrinks = size < state.inode(ino)?.size;
        if state.awaits_truncation(ino, limit) {
            return Ok(Attempt::AwaitsTruncation);
        }
        state.check_growth_over(ino, limit)?;
        if shrinks {
            state.check_truncation(ino, limit)?;
        }
        let mut zeroes_tail = shrinks;
        mistake!(self.tree, ForgetTailZeroing, zeroes_tail = false);
        if let Some(base) = base
            && zeroes_tail
            && holds_data(state, base.of)?
        {
            let mut is_stale = !base.is_current(state)?;
            mistake!(self.tree, ResizeOnStale, is_stale = false);
            if is_stale {
                return Ok(Attempt::Stale);
            }
            let Some(reservation) = reservation else {
                return Ok(Attempt::Done(Resized::NeedsRoom));
            };
            let from = usize::try_from(size % BLOCK).expect("inside a block");
            Self::zero_in_block(state, base.of, Some(base), reservation, from..)?;
        }
        if shrinks {
            state.begin_truncation(ino, limit);
        }
        let now = self.now();
        let inode = state.change_inode(ino)?;
        inode.size = size;
        (inode.mtime, inode.ctime) = (now, now);
        change_attributes(state, ino, change, now)?;
        Ok(Attempt::Done(Resized::Done(state.inode(ino)?.attr(ino))))
    }
}
