//! The page-mapped layer step by step, as timed mode drives it: the host and GC take turns, erases
//! take time, and the host may overwrite units that GC is moving.
//!
//! GC cannot run out of space: it begins a victim only when there is room for its valid units, and
//! the host takes neither a superblock that GC needs for that nor the last free one.

use std::hint::black_box;

use super::blocks::State;
use super::map::NOWHERE;
use super::page::{For, PageMapped};
use super::progress::VictimCursor;
use super::{Block, Counters, Slot, Translation, Unit, Work};

impl PageMapped {
    /// Whether a frontier may take a unit; gives it a superblock if it needs one.
    fn make_room(&mut self, frontier: u8, whose: For) -> bool {
        let free = self.blocks.free();
        if self.room(frontier) > 0 {
            // In a frontier that GC shares, the last slots may be promised to it.
            debug_assert!(self.blocks_wanted(None) <= free, "GC finds room for its victims");
            return whose == For::Gc || !self.targets().contains(&frontier) || {
                let taken = self.blocks_wanted_without(None, Some(frontier));
                taken <= free
            };
        }
        if whose == For::Host && free <= self.blocks_wanted(None).max(1) {
            return false;
        }
        self.open(frontier, whose);
        true
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
        (slot != NOWHERE).then_some(slot)
    }

    fn touch(&self, unit: Unit) {
        black_box(self.locate(unit).is_some_and(|slot| self.map.is_valid(slot)));
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
        loop {
            if let Some(at) = self.victims.iter().position(VictimCursor::is_done) {
                let VictimCursor { block, .. } = self.victims.remove(at);
                self.blocks.empty(block, 0);
                return Some(Work::Erase(block));
            }
            let mut ended = false;
            for victim in &mut self.victims {
                if let Some((unit, from)) = victim.next_copy(&self.map) {
                    victim.copies += 1;
                    return Some(Work::Copy { unit, from });
                }
                ended |= victim.copies == 0;
            }
            if ended {
                continue;
            }
            if !self.wants_gc() {
                return None;
            }
            let block = self.begin()?;
            let first = self.blocks.first_slot(block);
            self.victims.push(VictimCursor::new(block, first, first + self.layout.block_units));
        }
    }

    fn moved(&mut self, unit: Unit, from: Slot) -> Option<Slot> {
        let block = self.blocks.of(from);
        let victim = self.victims.iter_mut().find(|victim| victim.block == block);
        let victim = victim.expect("a copy is answered once, before its superblock is erased");
        victim.copies -= 1;
        if self.map.slot_of(unit) != from {
            return None;
        }
        let target = self.target_of(block);
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
        self.victim_pace
    }

    fn counters(&self) -> Counters {
        self.counters
    }

    fn erases(&self) -> &[u32] {
        &self.blocks.erases
    }
}
