//! The page-mapped layer step by step, as timed mode drives it: the host and GC take turns, erases
//! take time, and the host may overwrite what GC is moving.
//!
//! GC always comes to an end: a victim is begun only when its data finds room, and the host takes
//! no superblock that this needs, nor the last one.

use super::blocks::State;
use super::page::{For, PageMapped};
use super::{Block, Counters, Slot, Translation, Unit, Work};

/// A victim whose data is being moved.
pub(super) struct Progress {
    pub(super) block: Block,
    /// Slots below this have been handed out.
    next: Slot,
    limit: Slot,
    /// Copies that are not answered.
    copies: u32,
}

impl PageMapped {
    /// Whether a frontier may take a unit; gives it a superblock if it needs one.
    fn make_room(&mut self, frontier: u8, whose: For) -> bool {
        if self.room(frontier) > 0 {
            // In a frontier that GC shares, the last slots may be promised to it.
            return whose == For::Gc || self.victims.is_empty() || {
                let taken = self.blocks_wanted_without(None, Some(frontier));
                taken <= self.blocks.free()
            };
        }
        let free = self.blocks.free();
        if whose == For::Host && free <= self.blocks_wanted(None).max(1) {
            return false;
        }
        self.open(frontier, whose);
        true
    }

    /// The victim that a slot belongs to.
    fn victim_of(&mut self, slot: Slot) -> &mut Progress {
        let block = self.blocks.of(slot);
        let victim = self.victims.iter_mut().find(|victim| victim.block == block);
        victim.expect("a copy is answered once, before its superblock is erased")
    }

    /// Whether too few superblocks are free or about to be.
    fn wants_gc(&self) -> bool {
        let coming = self.victims.len() + self.blocks.in_state(State::Erasing) as usize;
        self.blocks.free() as usize + coming < self.low_water as usize
    }
}

impl Translation for PageMapped {
    fn locate(&self, unit: Unit) -> Option<Slot> {
        let slot = self.map.slot_of(unit);
        (slot != super::map::NOWHERE).then_some(slot)
    }

    fn place(&mut self, unit: Unit, handle: u8) -> Option<Slot> {
        let frontier = self.frontier_of(handle);
        if !self.make_room(frontier, For::Host) {
            return None;
        }
        self.counters.host += 1;
        Some(self.put_one(frontier, unit))
    }

    fn trim(&mut self, first: Unit, count: u32) {
        for unit in first..first + count {
            self.forget(unit);
        }
    }

    fn work(&mut self) -> Option<Work> {
        let done = |victim: &Progress| victim.next == victim.limit && victim.copies == 0;
        loop {
            if let Some(at) = self.victims.iter().position(done) {
                let Progress { block, .. } = self.victims.remove(at);
                self.blocks.empty(block, 0);
                return Some(Work::Erase(block));
            }
            let mut ended = false;
            for victim in &mut self.victims {
                if let Some(from) = self.map.next_valid(victim.next, victim.limit) {
                    victim.next = from + 1;
                    victim.copies += 1;
                    return Some(Work::Copy { unit: self.map.unit_at(from), from });
                }
                victim.next = victim.limit;
                ended |= victim.copies == 0;
            }
            if ended {
                continue;
            }
            if !self.wants_gc() {
                return None;
            }
            let block = self.begin()?;
            let next = self.blocks.first_slot(block);
            let limit = next + self.layout.block_units;
            self.victims.push(Progress { block, next, limit, copies: 0 });
        }
    }

    fn moved(&mut self, unit: Unit, from: Slot) -> Option<Slot> {
        let victim = self.victim_of(from);
        victim.copies -= 1;
        let target = self.target_of(self.blocks.of(from));
        if self.map.slot_of(unit) != from {
            return None;
        }
        assert!(self.make_room(target, For::Gc), "a victim is begun when its data finds room");
        let slot = self.put_one(target, unit);
        self.counters.moved += 1;
        Some(slot)
    }

    fn erased(&mut self, block: Block) {
        self.free(block);
    }

    fn pace(&self) -> f64 {
        if self.victims.is_empty() && !self.wants_gc() {
            return f64::INFINITY;
        }
        let valid = f64::from(self.victim_valid);
        (f64::from(self.layout.block_units) - valid) / valid
    }

    fn counters(&self) -> Counters {
        self.counters
    }

    fn erases(&self) -> &[u32] {
        &self.blocks.erases
    }
}
