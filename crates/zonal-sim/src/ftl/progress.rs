//! The progress of a victim: the units of it that GC still has to move.

use std::ops::Range;

use super::map::{BATCH, Map};
use super::{Block, Slot, Unit};

/// A victim whose data is being moved.
pub(super) struct VictimCursor {
    pub(super) block: Block,
    /// Slots below this have been handed out, or are in `from`.
    next: Slot,
    limit: Slot,
    /// Slots that were valid when they were listed, and their units. Listing a batch of them brings
    /// their entries of the map into the cache together, so that a copy does not wait for its own.
    from: [Slot; BATCH],
    units: [Unit; BATCH],
    /// Which of these are still to be handed out.
    listed: Range<usize>,
    /// Copies that are not answered.
    pub(super) copies: u32,
}

impl VictimCursor {
    pub(super) fn new(block: Block, first: Slot, limit: Slot) -> Self {
        let (from, units) = ([0; BATCH], [0; BATCH]);
        Self { block, next: first, limit, from, units, listed: 0..0, copies: 0 }
    }

    /// The next copy, if one is left.
    #[inline]
    pub(super) fn next_copy(&mut self, map: &Map) -> Option<(Unit, Slot)> {
        loop {
            for at in self.listed.by_ref() {
                // The host may have overwritten it since.
                if map.is_valid(self.from[at]) {
                    return Some((self.units[at], self.from[at]));
                }
            }
            if self.next == self.limit {
                return None;
            }
            self.list(map);
        }
    }

    fn list(&mut self, map: &Map) {
        let Self { next, limit, from, units, .. } = self;
        let (found, rest) = map.valid_in(*next, *limit, units, from);
        map.check(&units[..found], &from[..found]);
        (self.next, self.listed) = (rest, 0..found);
    }

    /// Whether nothing valid is left, and nothing is on its way.
    pub(super) fn is_done(&self) -> bool {
        self.next == self.limit && self.listed.is_empty() && self.copies == 0
    }
}
