//! fallocate(2): space in advance, holes, and ranges of zeroes.

use std::ops::Range;

use super::write::{Attempt, BLOCK, Edges, holds_data};
use crate::furrow::Furrow;
use crate::furrow::format::BLOCK_BYTES;
use crate::furrow::metadata::map::discards::DiscardedSpace;
use crate::furrow::metadata::missing::Lookup;
use crate::furrow::metadata::state::mapping::STEP_ENTRIES;
use crate::furrow::ops::inode::take_capability;
use crate::furrow::planted::mistake;
use crate::furrow::write::buffer::FileBlock;
use crate::furrow::write::reservation::Reservation;
use crate::vfs::{Allocate, Ino, Result};
use crate::{FsError, protect, rules};

impl Furrow {
    /// Reserves the blocks at the edges of a range, of which the caller zeroes a part.
    fn reserve_edges(&self, how: Allocate) -> Result<Reservation<'_>> {
        match how {
            Allocate::Punch | Allocate::PunchLater => Ok(self.throttle.reserve_for_shrinking(2)),
            Allocate::Extend
            | Allocate::KeepSize
            | Allocate::Zero
            | Allocate::ZeroKeepSize
            | Allocate::ZeroLater => self.throttle.reserve(2),
        }
    }

    pub(super) fn allocate(&self, ino: Ino, how: Allocate, offset: u64, len: u64) -> Result<()> {
        self.tree.check_writable()?;
        if len == 0 {
            return Err(FsError::Invalid { what: "a range of no bytes" });
        }
        let end = rules::check_range(offset, len)?;
        self.tree.loaded(|| {
            let state = self.tree.read_state();
            let inode = state.inode(ino)?;
            inode.file()?;
            Ok(protect::check_allocate(inode.flags, how)?)
        })?;
        match how {
            Allocate::Punch | Allocate::PunchLater => {}
            Allocate::Extend
            | Allocate::KeepSize
            | Allocate::Zero
            | Allocate::ZeroKeepSize
            | Allocate::ZeroLater => self.reclaimer.check_host()?,
        }
        match how {
            Allocate::PunchLater => {
                let range = AllocateRange { ino, how: Allocate::Punch, offset, end };
                self.discard(range, DiscardedSpace::Free)
            }
            Allocate::ZeroLater => {
                let range = AllocateRange { ino, how: Allocate::ZeroKeepSize, offset, end };
                self.discard(range, DiscardedSpace::Kept)
            }
            Allocate::Extend
            | Allocate::KeepSize
            | Allocate::Punch
            | Allocate::Zero
            | Allocate::ZeroKeepSize => self.allocate_all(AllocateRange { ino, how, offset, end }),
        }
    }

    fn allocate_all(&self, range: AllocateRange) -> Result<()> {
        let mut at = range.offset;
        while at < range.end {
            at = self.allocate_step(AllocateRange { offset: at, ..range })?;
            self.log.after_change();
        }
        Ok(())
    }

    /// Discards a range: `range.how` happens to the map entries of its whole blocks later, unless
    /// very many wait already. A range of few blocks reads as zeroes from one moment on; the edges
    /// of a longer one that cuts blocks become zeroes before the rest.
    fn discard(&self, range: AllocateRange, space: DiscardedSpace) -> Result<()> {
        let AllocateRange { ino, offset, end, .. } = range;
        let whole = offset.div_ceil(BLOCK)..end / BLOCK;
        let cuts_blocks = !offset.is_multiple_of(BLOCK) || !end.is_multiple_of(BLOCK);
        // One step takes them all.
        let is_short = end.div_ceil(BLOCK) - offset / BLOCK <= STEP_ENTRIES as u64;
        let is_at_once = whole.is_empty() || (cuts_blocks && is_short);
        if is_at_once || self.tree.read_state().maps.discards.are_many() {
            return self.allocate_all(range);
        }
        if cuts_blocks {
            self.allocate_all(AllocateRange { end: whole.start * BLOCK, ..range })?;
            self.allocate_all(AllocateRange { offset: whole.end * BLOCK, ..range })?;
        }
        while self.tree.loaded(|| self.try_discard(ino, whole.clone(), space))? == Discarding::Waits
        {
            self.truncator.wait_for_truncation(ino, whole.end)?;
        }
        self.log.after_change();
        self.tree.bell.wake_worker();
        Ok(())
    }

    fn try_discard(
        &self,
        ino: Ino,
        blocks: Range<u64>,
        space: DiscardedSpace,
    ) -> Lookup<Discarding> {
        let mut guard = self.tree.write_state();
        let state = &mut *guard;
        if state.awaits_truncation(ino, blocks.end) {
            return Ok(Discarding::Waits);
        }
        take_capability(state, ino)?;
        state.discard(ino, blocks, space)?;
        let now = self.now();
        let inode = state.change_inode(ino)?;
        (inode.mtime, inode.ctime) = (now, now);
        Ok(Discarding::Done)
    }

    /// Allocates as much of a range as has few enough map entries for one step. Returns where the
    /// rest begins.
    fn allocate_step(&self, range: AllocateRange) -> Result<u64> {
        let AllocateRange { ino, how, end, .. } = range;
        let mut reservation: Option<Reservation<'_>> = None;
        loop {
            let edges = range.zeroed_edges();
            let stored = self.read_edges(ino, edges.iter().map(|(block, _)| *block))?;
            let allocate = || {
                let _turn = edges.first().map(|_| self.tree.lock_buffering());
                self.try_allocate(range, &stored, reservation.as_mut())
            };
            match self.tree.loaded(allocate)? {
                Attempt::Done(Allocated::UpTo(end)) => return Ok(end),
                Attempt::Done(Allocated::NeedsRoom) => reservation = Some(self.reserve_edges(how)?),
                Attempt::Stale => {}
                Attempt::AwaitsTruncation => {
                    self.truncator.wait_for_truncation(ino, end.div_ceil(BLOCK))?;
                }
            }
        }
    }

    fn try_allocate(
        &self,
        range: AllocateRange,
        stored: &Edges,
        mut reservation: Option<&mut Reservation<'_>>,
    ) -> Lookup<Attempt<Allocated>> {
        let AllocateRange { ino, how, offset, end } = range;
        let mut guard = self.tree.write_state();
        let state = &mut *guard;
        let limit = end.div_ceil(BLOCK);
        if state.awaits_truncation(ino, limit) {
            return Ok(Attempt::AwaitsTruncation);
        }
        let first = offset / BLOCK;
        let stop = state.step_end(ino, first, limit)?;
        let grows = matches!(how, Allocate::Extend | Allocate::Zero);
        if grows {
            state.check_growth_over(ino, stop)?;
        }
        let end = if stop < limit { stop * BLOCK } else { end };
        let mut is_stale = !stored.are_current(state)?;
        mistake!(self.tree, ZeroOnStale, is_stale = false);
        if is_stale {
            return Ok(Attempt::Stale);
        }
        let allocates = how != Allocate::Punch;
        if allocates {
            let growth = state.growth(ino, first, stop)?;
            self.tree.space.check_growth(state, growth)?;
        }
        for (block, bytes) in (AllocateRange { end, ..range }).zeroed_edges() {
            let at = FileBlock { ino, block };
            if !holds_data(state, at)? {
                continue;
            }
            let Some(reservation) = &mut reservation else {
                return Ok(Attempt::Done(Allocated::NeedsRoom));
            };
            let base = stored.base_of(block);
            Self::zero_in_block(state, at, base, reservation, bytes)?;
        }
        if zeroes(how) && offset.div_ceil(BLOCK) < end / BLOCK {
            state.unmap(ino, offset.div_ceil(BLOCK), end / BLOCK);
        }
        if allocates {
            state.preallocate(ino, first..stop);
        }
        take_capability(state, ino)?;
        let now = self.now();
        let inode = state.change_inode(ino)?;
        if grows {
            inode.size = inode.size.max(end);
        }
        (inode.mtime, inode.ctime) = (now, now);
        Ok(Attempt::Done(Allocated::UpTo(end)))
    }
}

/// The outcome of a discard.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Discarding {
    Done,
    /// Map entries of a truncation are in the way.
    Waits,
}

/// The outcome of an allocation.
enum Allocated {
    /// The range is allocated up to this byte.
    UpTo(u64),
    /// It has to write blocks at the edges of the range, and has no reservation.
    NeedsRoom,
}

/// Whether the range reads as zeroes afterwards.
fn zeroes(how: Allocate) -> bool {
    match how {
        Allocate::Extend | Allocate::KeepSize => false,
        Allocate::Punch
        | Allocate::Zero
        | Allocate::ZeroKeepSize
        | Allocate::PunchLater
        | Allocate::ZeroLater => true,
    }
}

/// A range of bytes for fallocate(2) to change, and how.
#[derive(Clone, Copy)]
struct AllocateRange {
    ino: Ino,
    how: Allocate,
    offset: u64,
    end: u64,
}

impl AllocateRange {
    /// Blocks of which only a part becomes zeroes, and the bytes that do.
    fn zeroed_edges(self) -> Vec<(u64, std::ops::Range<usize>)> {
        if zeroes(self.how) { partial_edges(self.offset, self.end) } else { Vec::new() }
    }
}

/// Blocks that a byte range covers only in part, and the bytes of them that it covers.
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
