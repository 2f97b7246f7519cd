//! The page-mapped layer: any unit anywhere, over-provisioning, GC. Conventional and FDP drives
//! are this, and differ in their frontiers.
//!
//! A *frontier* is the superblock that is filled next with data of one kind: one for each handle
//! the host may name, and one or more for data that GC moves. Counting mode calls
//! [`PageMapped::write`], which does GC inside; timed mode goes step by step (`steps.rs`). Both put
//! units into slots by the same code.
//!
//! Conservation, at every erase: the entry of a valid slot's unit names that slot; the bits, the
//! counts of superblocks and the number of mapped units agree; every superblock is free, open,
//! closed, a victim or erasing.

use std::ops::RangeInclusive;

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use super::blocks::{Blocks, State, Wear};
use super::map::{BATCH, Map, NOWHERE};
use super::progress::VictimCursor;
use super::{Block, Counters, Frontier, Isolation, Slot, Unit, Victim};
use crate::config::{Config, Kind, Layout};
use crate::error::Result;

/// The superblock that a frontier fills: slots `next..limit` are left. An empty range: it has no
/// superblock.
#[derive(Clone, Copy, Default)]
struct Filling {
    next: Slot,
    limit: Slot,
}

/// The data that fills a superblock.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum For {
    /// The host's writes: they leave GC the superblocks that it needs.
    Host,
    /// Data that GC moves.
    Gc,
}

/// A page-mapped translation layer.
pub struct PageMapped {
    pub(super) layout: Layout,
    victim: Victim,
    pub(super) low_water: u32,
    wear_gap: u32,
    /// Handles the host may name; their frontiers come first.
    handles: u8,
    pub(super) map: Map,
    pub(super) blocks: Blocks,
    frontiers: Vec<Filling>,
    /// For each frontier, the one that GC moves its data to.
    moves_to: Vec<u8>,
    pub(super) counters: Counters,
    mapped: u32,
    pub(super) victims: Vec<VictimCursor>,
    /// [`Translation::pace`](super::Translation::pace) of the last victim.
    pub(super) victim_pace: f64,
    /// Whether the last victim was chosen for its wear: never two in a row.
    rested: bool,
    random: ChaCha8Rng,
}

impl PageMapped {
    /// An empty drive.
    pub fn new(config: &Config) -> Result<Self> {
        let layout = config.layout()?;
        let (handles, isolation) = match config.drive.kind {
            Kind::Conventional => (config.gc.streams, Isolation::Initially),
            Kind::Fdp => (config.fdp.handles, config.fdp.isolation),
            Kind::Zns => (1, Isolation::Initially),
        };
        let handles = u8::try_from(handles).expect("at most 64 by Config::check");
        let moves_to: Vec<u8> = match (config.gc.frontier, isolation) {
            (Frontier::Mixed, _) => (0..handles).collect(),
            (Frontier::Separate, Isolation::Initially) => vec![handles; usize::from(handles) + 1],
            (Frontier::Separate, Isolation::Persistently) => {
                (handles..2 * handles).chain(handles..2 * handles).collect()
            }
        };
        Ok(Self {
            layout,
            victim: config.gc.victim,
            low_water: config.gc.low_water,
            wear_gap: config.gc.wear_gap,
            handles,
            map: Map::new(layout.user_units, layout.blocks * layout.block_units),
            blocks: Blocks::new(layout.blocks, layout.block_units, config.gc.victim),
            frontiers: vec![Filling::default(); moves_to.len()],
            moves_to,
            counters: Counters::default(),
            mapped: 0,
            victims: Vec::new(),
            victim_pace: f64::INFINITY,
            rested: false,
            random: ChaCha8Rng::seed_from_u64(config.seed),
        })
    }

    /// Writes units of the host's data, collecting as needed: counting mode. Not to be called
    /// while steps of [`Translation`](super::Translation) are under way.
    ///
    /// # Panics
    ///
    /// If a unit is not below [`Layout::user_units`].
    pub fn write(&mut self, mut units: &[Unit], handle: u8) {
        assert!(self.victims.is_empty(), "steps of GC are under way");
        let at = self.frontier_of(handle);
        while !units.is_empty() {
            while self.room(at) == 0 && self.blocks.free() < self.low_water {
                self.collect();
            }
            if self.room(at) == 0 {
                self.open(at, For::Host);
            }
            let count = units.len().min(BATCH).min(self.room(at) as usize);
            let (now, later) = units.split_at(count);
            self.counters.host += count as u64;
            self.put(at, now);
            units = later;
        }
    }

    /// Counts a unit that the host has written where it lay.
    pub(crate) const fn count_in_place(&mut self) {
        self.counters.host += 1;
    }

    /// The layout of the drive.
    pub const fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Units that hold data.
    pub const fn mapped(&self) -> u32 {
        self.mapped
    }

    /// Bytes of memory that this simulation takes.
    pub fn memory_bytes(&self) -> u64 {
        self.map.bytes() + self.blocks.bytes()
    }

    /// The frontier of a handle. NVMe lets a drive place data of an invalid handle as it likes: it
    /// goes with handle 0.
    pub(super) const fn frontier_of(&self, handle: u8) -> u8 {
        if handle < self.handles { handle } else { 0 }
    }

    /// The frontier that GC moves a superblock's data to.
    pub(super) fn target_of(&self, block: Block) -> u8 {
        self.moves_to[usize::from(self.blocks.filled_by[block as usize])]
    }

    /// Frontiers that GC moves data to, each once.
    pub(super) fn targets(&self) -> RangeInclusive<u8> {
        let first = *self.moves_to.first().expect("there is a frontier");
        let last = *self.moves_to.last().expect("there is a frontier");
        first..=last
    }

    /// Slots left in a frontier's superblock.
    pub(super) fn room(&self, frontier: u8) -> u32 {
        let filling = &self.frontiers[usize::from(frontier)];
        filling.limit - filling.next
    }

    /// Gives a frontier a superblock to fill.
    pub(super) fn open(&mut self, frontier: u8, whose: For) {
        // Data that GC moves has not changed for long: it may rest on worn flash.
        let wear = if whose == For::Gc && self.wear_gap > 0 { Wear::Most } else { Wear::Least };
        let block = self.blocks.open(wear, frontier);
        let block = block.expect("GC keeps free superblocks");
        let next = self.blocks.first_slot(block);
        let filling = Filling { next, limit: next + self.layout.block_units };
        self.frontiers[usize::from(frontier)] = filling;
    }

    /// Puts units into a frontier that has room for them.
    fn put(&mut self, frontier: u8, units: &[Unit]) {
        let mut left = [NOWHERE; BATCH];
        let first = self.frontiers[usize::from(frontier)].next;
        let mut new = 0;
        for slot in self.map.put(units, first, &mut left) {
            if *slot == NOWHERE {
                new += 1;
            } else {
                self.blocks.lose(self.blocks.of(*slot));
            }
        }
        self.mapped += new;
        self.filled(frontier, units.len());
    }

    /// [`put`](Self::put) of a single unit.
    #[inline]
    pub(super) fn put_one(&mut self, frontier: u8, unit: Unit) -> Slot {
        let slot = self.frontiers[usize::from(frontier)].next;
        match self.map.put_one(unit, slot) {
            NOWHERE => self.mapped += 1,
            left => self.blocks.lose(self.blocks.of(left)),
        }
        self.filled(frontier, 1);
        slot
    }

    /// Counts slots of a frontier as filled. Closes a full superblock at once, because GC may never
    /// come back to the frontier to close it later.
    #[inline]
    fn filled(&mut self, frontier: u8, count: usize) {
        let count = u32::try_from(count).expect("at most a batch");
        let filling = &mut self.frontiers[usize::from(frontier)];
        let block = self.blocks.of(filling.next);
        filling.next += count;
        self.blocks.gain(block, count);
        if filling.next == filling.limit {
            self.blocks.close(block, self.counters.host);
        }
    }

    /// Chooses a victim, if there is one whose data finds room.
    pub(super) fn begin(&mut self) -> Option<Block> {
        let rested = if self.wear_gap > 0 && !self.rested {
            self.blocks.find_rested(self.wear_gap)
        } else {
            None
        };
        let now = self.counters.host;
        let chosen =
            rested.or_else(|| self.blocks.find_victim(self.victim, now, &mut self.random))?;
        if self.blocks_wanted(Some(chosen)) > self.blocks.free() {
            return None;
        }
        self.rested = rested.is_some();
        let (units, valid) = (self.layout.block_units, self.blocks.valid(chosen));
        self.victim_pace = f64::from(units - valid) / f64::from(valid);
        let first = self.blocks.first_slot(chosen);
        let bits = self.map.count_valid(first, first + units);
        assert_eq!(bits, valid, "bits and count of superblock {chosen} agree");
        self.blocks.begin(chosen);
        Some(chosen)
    }

    /// Free superblocks that GC needs to move the valid units of its victims, and of one more.
    pub(super) fn blocks_wanted(&self, more: Option<Block>) -> u32 {
        self.blocks_wanted_without(more, None)
    }

    /// The same, if one slot of a frontier were taken.
    pub(super) fn blocks_wanted_without(&self, more: Option<Block>, slot: Option<u8>) -> u32 {
        let victims = || self.victims.iter().map(|victim| victim.block).chain(more);
        if victims().next().is_none() {
            return 0;
        }
        let wanted = |target| {
            let blocks = victims().filter(|block| self.target_of(*block) == target);
            let units: u32 = blocks.map(|block| self.blocks.valid(block)).sum();
            let room = self.room(target) - u32::from(slot == Some(target));
            units.saturating_sub(room).div_ceil(self.layout.block_units)
        };
        self.targets().map(wanted).sum()
    }

    /// Frees one superblock.
    fn collect(&mut self) {
        let victim = self.begin().expect("the user capacity leaves a victim and room for its data");
        let target = self.target_of(victim);
        let first = self.blocks.first_slot(victim);
        let (mut next, limit) = (first, first + self.layout.block_units);
        let (mut units, mut from) = ([0; BATCH], [0; BATCH]);
        let mut moved = 0;
        while next < limit {
            let room = match self.room(target) {
                0 => BATCH,
                room => BATCH.min(room as usize),
            };
            let found = self.map.valid_in(next, limit, &mut units[..room], &mut from);
            next = found.1;
            if found.0 == 0 {
                break;
            }
            if self.room(target) == 0 {
                self.open(target, For::Gc);
            }
            let found = found.0.min(self.room(target) as usize);
            let first = self.frontiers[usize::from(target)].next;
            self.map.relocate(&units[..found], &from[..found], first);
            self.filled(target, found);
            moved += found;
        }
        self.counters.moved += moved as u64;
        self.map.clear(first, self.layout.block_units as usize);
        self.blocks.empty(victim, u32::try_from(moved).expect("at most a superblock"));
        self.free(victim);
    }

    /// An emptied superblock has been erased.
    pub(super) fn free(&mut self, block: Block) {
        self.blocks.erased(block);
        self.counters.erased += 1;
        self.check_conservation();
    }

    /// Forgets a unit.
    pub(super) fn forget(&mut self, unit: Unit) {
        let slot = self.map.forget(unit);
        if slot != NOWHERE {
            self.blocks.lose(self.blocks.of(slot));
            self.mapped -= 1;
            self.counters.trimmed += 1;
        }
    }

    /// Nothing gets lost or doubled. Sums over all superblocks are left to debug builds.
    fn check_conservation(&self) {
        let states = [State::Free, State::Open, State::Closed, State::Victim, State::Erasing];
        let all: u32 = states.iter().map(|state| self.blocks.in_state(*state)).sum();
        assert_eq!(all, self.layout.blocks, "every superblock is in one state");
        debug_assert_eq!(
            self.blocks.in_state(State::Open) as usize,
            (0..self.moves_to.len())
                .filter(|at| self.frontiers[*at].limit != self.frontiers[*at].next)
                .count(),
            "an open superblock belongs to a frontier"
        );
        debug_assert_eq!(self.blocks.valid_all(), self.mapped, "valid = mapped");
    }
}
