//! Superblocks: which are free, open, closed or on their way to be erased; how much valid data
//! each holds; how worn each is. Choosing a victim among them is in `victim.rs`.

use std::collections::{BTreeSet, VecDeque};

use super::{Block, Slot, Victim};

/// The state of a superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum State {
    /// Erased.
    Free,
    /// Being filled.
    Open,
    /// Full: may become a victim.
    Closed,
    /// GC moves its valid units.
    Victim,
    /// Nothing in it is valid, and the erase is under way.
    Erasing,
}

/// Which free superblock is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wear {
    /// The one erased least.
    Least,
    /// The one erased most: for data that is not going to change soon.
    Most,
}

/// Superblocks in a group, of which the least rank is kept.
const GROUP: u32 = 64;

/// Added to the rank of a superblock that cannot be a victim. Far above any count of valid units: a
/// drive has at least 16 superblocks in 2^32 slots.
const UNRANKED: u32 = 1 << 31;

/// All superblocks.
pub(super) struct Blocks {
    /// Slots of a superblock.
    units: u32,
    /// Turns a slot into its superblock by one multiplication.
    reciprocal: u64,
    /// Valid units, plus [`UNRANKED`] unless closed.
    rank: Vec<u32>,
    /// For each [`GROUP`], the least rank in it.
    group_min: Vec<u32>,
    states: Vec<State>,
    /// How many are in each state.
    tally: [u32; 5],
    free: BTreeSet<(u32, Block)>,
    pub(super) erases: Vec<u32>,
    pub(super) erases_most: u32,
    /// The frontier that each was filled by.
    pub(super) filled_by: Vec<u8>,
    /// Host writes when each was closed. Kept for cost-benefit only.
    pub(super) closed_at: Vec<u64>,
    /// Closed ones, oldest first. Kept for FIFO and windowed only.
    pub(super) queue: VecDeque<Block>,
    victim: Victim,
}

impl Blocks {
    pub(super) fn new(count: u32, units: u32, victim: Victim) -> Self {
        let aged = if victim == Victim::CostBenefit { count } else { 0 };
        Self {
            units,
            reciprocal: u64::MAX / u64::from(units),
            rank: vec![UNRANKED; count as usize],
            group_min: vec![UNRANKED; count.div_ceil(GROUP) as usize],
            states: vec![State::Free; count as usize],
            tally: [count, 0, 0, 0, 0],
            free: (0..count).map(|block| (0, block)).collect(),
            erases: vec![0; count as usize],
            erases_most: 0,
            filled_by: vec![0; count as usize],
            closed_at: vec![0; aged as usize],
            queue: VecDeque::new(),
            victim,
        }
    }

    pub(super) fn count(&self) -> u32 {
        u32::try_from(self.states.len()).expect("counted in u32 when made")
    }

    /// Slots of a superblock.
    pub(super) const fn units(&self) -> u32 {
        self.units
    }

    /// Bytes of memory taken.
    pub(super) fn bytes(&self) -> u64 {
        let each = 4 + 1 + 4 + 1;
        let all = self.states.len() * each + self.group_min.len() * 4 + self.closed_at.len() * 8;
        (all + self.queue.capacity() * 4 + self.free.len() * 16) as u64
    }

    /// The superblock of a slot.
    #[expect(clippy::cast_possible_truncation, reason = "a slot divided by at least 1")]
    pub(super) const fn of(&self, slot: Slot) -> Block {
        // floor((n + 1) × floor((2^64 − 1) / d) / 2^64) = floor(n / d) for all n and d below 2^32.
        (((slot as u128 + 1) * self.reciprocal as u128) >> 64) as Block
    }

    /// The first slot of a superblock.
    pub(super) const fn first_slot(&self, block: Block) -> Slot {
        block * self.units
    }

    pub(super) fn state(&self, block: Block) -> State {
        self.states[block as usize]
    }

    pub(super) fn in_state(&self, state: State) -> u32 {
        self.tally[state as usize]
    }

    /// Free superblocks.
    pub(super) fn free(&self) -> u32 {
        self.in_state(State::Free)
    }

    /// Valid units in a superblock.
    pub(super) fn valid(&self, block: Block) -> u32 {
        self.rank[block as usize] & !UNRANKED
    }

    /// Valid units of a superblock, and above all of them if it cannot be a victim.
    pub(super) fn rank(&self, block: Block) -> u32 {
        self.rank[block as usize]
    }

    /// Valid units in all superblocks.
    pub(super) fn valid_all(&self) -> u32 {
        // Fewer than slots, so it never wraps; a checked sum cannot be done by vectors.
        self.rank.iter().fold(0, |sum, rank| sum.wrapping_add(rank & !UNRANKED))
    }

    /// Units were put into an open superblock.
    pub(super) fn gain(&mut self, block: Block, units: u32) {
        debug_assert_eq!(self.state(block), State::Open);
        self.rank[block as usize] += units;
    }

    /// A unit in a superblock is not valid any more.
    #[inline]
    pub(super) fn lose(&mut self, block: Block) {
        let rank = &mut self.rank[block as usize];
        *rank -= 1;
        let min = &mut self.group_min[(block / GROUP) as usize];
        *min = (*min).min(*rank);
    }

    /// Takes a free superblock, to be filled by a frontier.
    pub(super) fn open(&mut self, wear: Wear, frontier: u8) -> Option<Block> {
        let (_, block) = match wear {
            Wear::Least => self.free.pop_first(),
            Wear::Most => self.free.pop_last(),
        }?;
        self.change(block, State::Free, State::Open);
        self.filled_by[block as usize] = frontier;
        Some(block)
    }

    /// An open superblock is full. `now`: units the host has written.
    pub(super) fn close(&mut self, block: Block, now: u64) {
        self.change(block, State::Open, State::Closed);
        match self.victim {
            Victim::CostBenefit => self.closed_at[block as usize] = now,
            Victim::Fifo | Victim::Windowed(_) => self.queue.push_back(block),
            Victim::Greedy | Victim::Random | Victim::Choices(_) => {}
        }
        self.rank[block as usize] -= UNRANKED;
        let min = &mut self.group_min[(block / GROUP) as usize];
        *min = (*min).min(self.rank[block as usize]);
    }

    /// A closed superblock becomes a victim.
    pub(super) fn begin(&mut self, block: Block) {
        self.change(block, State::Closed, State::Victim);
        if let Some(at) = self.queue.iter().position(|queued| *queued == block) {
            self.queue.remove(at);
        }
        self.rank[block as usize] += UNRANKED;
        let group = (block / GROUP) as usize;
        let first = group * GROUP as usize;
        let limit = self.rank.len().min(first + GROUP as usize);
        let min = self.rank[first..limit].iter().min();
        self.group_min[group] = *min.expect("a group has superblocks");
    }

    /// GC has moved all valid units of a victim; its rank still counts `units` of them.
    pub(super) fn empty(&mut self, block: Block, units: u32) {
        self.rank[block as usize] -= units;
        assert_eq!(self.rank[block as usize], UNRANKED, "superblock {block} is empty");
        self.change(block, State::Victim, State::Erasing);
    }

    /// A superblock has been erased.
    pub(super) fn erased(&mut self, block: Block) {
        self.change(block, State::Erasing, State::Free);
        let erases = &mut self.erases[block as usize];
        *erases += 1;
        self.erases_most = self.erases_most.max(*erases);
        self.free.insert((*erases, block));
    }

    /// A closed superblock with the fewest valid units.
    pub(super) fn find_emptiest(&self) -> Option<Block> {
        let (group, min) = self.group_min.iter().enumerate().min_by_key(|(_, min)| **min)?;
        if *min >= UNRANKED {
            return None;
        }
        let first = group * GROUP as usize;
        let at = self.rank[first..].iter().position(|rank| rank == min);
        let block = first + at.expect("the least rank of a group is in it");
        Some(u32::try_from(block).expect("a superblock"))
    }

    fn change(&mut self, block: Block, from: State, to: State) {
        let state = &mut self.states[block as usize];
        assert_eq!(*state, from, "superblock {block} was to become {to:?}");
        *state = to;
        self.tally[from as usize] -= 1;
        self.tally[to as usize] += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slot_maps_to_superblock_by_division() {
        for units in [1, 2, 3, 5, 7, 64, 275_712, (1 << 28) - 1] {
            let blocks = Blocks::new(16, units, Victim::Greedy);
            for base in [0, 1, units, 7 * units, 15 * units, u32::MAX - 2] {
                for slot in base.saturating_sub(1)..=base.saturating_add(1) {
                    assert_eq!(blocks.of(slot), slot / units, "{slot} / {units}");
                }
            }
        }
    }
}
