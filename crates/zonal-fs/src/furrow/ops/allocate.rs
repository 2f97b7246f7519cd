//! fallocate(2): space in advance, holes, and ranges of zeroes.

use super::write::{Attempt, BLOCK, Edges, holds_data};
use crate::furrow::Furrow;
use crate::furrow::format::BLOCK_BYTES;
use crate::furrow::metadata::State;
use crate::furrow::metadata::missing::Lookup;
use crate::furrow::metadata::place::MapEntry;
use crate::furrow::ops::inode::take_capability;
use crate::furrow::planted::PlantedBug;
use crate::furrow::write::admission::Admission;
use crate::vfs::{Allocate, Ino, Result};
use crate::{FsError, protect, rules};

impl Furrow {
    /// Room for the blocks at the edges of a range, where part of them is zeroed.
    fn admit_edges(&self, how: Allocate) -> Result<Admission<'_>> {
        match how {
            Allocate::Punch => Ok(self.throttle.admit_shrinking(2)),
            Allocate::Extend | Allocate::KeepSize | Allocate::Zero | Allocate::ZeroKeepSize => {
                self.throttle.admit(2)
            }
        }
    }

    pub(in crate::furrow) fn allocate(
        &self,
        ino: Ino,
        how: Allocate,
        offset: u64,
        len: u64,
    ) -> Result<()> {
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
        let mut at = offset;
        while at < end {
            at = self.allocate_piece(ino, how, (at, end))?;
            self.log.after_change();
        }
        Ok(())
    }

    /// As much of a range as has not too many pieces for one step. Returns where the rest begins.
    fn allocate_piece(&self, ino: Ino, how: Allocate, (offset, end): (u64, u64)) -> Result<u64> {
        let mut admission: Option<Admission<'_>> = None;
        loop {
            let edges = if zeroes(how) { partial_edges(offset, end) } else { Vec::new() };
            let stored = self.read_edges(ino, edges.iter().map(|(block, _)| *block))?;
            let allocate = || {
                let _turn = edges.first().map(|_| self.tree.lock_buffering());
                self.try_allocate((ino, how), (offset, end), (&stored, admission.as_mut()))
            };
            match self.tree.loaded(allocate)? {
                Attempt::Done(Allocated::UpTo(end)) => return Ok(end),
                Attempt::Done(Allocated::NeedsRoom) => admission = Some(self.admit_edges(how)?),
                Attempt::Again => {}
                Attempt::AwaitsReaper => self.truncator.let_reaper_pass(ino, end.div_ceil(BLOCK)),
            }
        }
    }

    fn try_allocate(
        &self,
        (ino, how): (Ino, Allocate),
        (offset, end): (u64, u64),
        (stored, mut admission): (&Edges, Option<&mut Admission<'_>>),
    ) -> Lookup<Attempt<Allocated>> {
        let mut guard = self.tree.write_state();
        let state = &mut *guard;
        let limit = end.div_ceil(BLOCK);
        if state.awaits_reaper(ino, limit) {
            return Ok(Attempt::AwaitsReaper);
        }
        let first = offset / BLOCK;
        let stop = state.step_end(ino, first, limit)?;
        let end = if stop < limit { stop * BLOCK } else { end };
        if !stored.are_current(state, ino)? && !self.tree.has_planted(PlantedBug::ZeroOnStale) {
            return Ok(Attempt::Again);
        }
        let allocates = how != Allocate::Punch;
        if allocates {
            let growth = state.growth(ino, first, stop)?;
            self.tree.space.check_growth(state, growth)?;
        }
        let edges = if zeroes(how) { partial_edges(offset, end) } else { Vec::new() };
        for (block, range) in edges {
            if !holds_data(state, ino, block)? {
                continue;
            }
            let Some(admission) = &mut admission else {
                return Ok(Attempt::Done(Allocated::NeedsRoom));
            };
            let base = stored.base_of(block);
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
