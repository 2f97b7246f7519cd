//! The cost of a policy: a log over zones without data, which counts blocks.
//!
//! It models data alone: no metadata, no time, and one free zone as the only reserve. So it shows
//! the policy alone, at an exact live share, and runs a million writes in a fraction of a second.
//! Benchmarks print its figures next to the measured file system, and tests keep it from
//! getting worse. By default reclaim empties a zone at once when none is left; with a
//! [pace](Model::paced) writes pay for reclaim ahead of need.

use std::collections::VecDeque;

use super::life::{LifeFacts, birth_of, class_of_moved};
use super::pace::{BLOCK, Room, STEP_BLOCKS, cost, price};
use super::sharing::{Size, target_of};
use super::streams::{Budget, Choice, Locality, Streams, Supply, Target};
use super::victims::Victims;
use crate::victim::{Candidate, Policy};

/// How data is placed and how victims are chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rules {
    /// All blocks go into one zone at a time; the victim is the zone with the fewest live blocks.
    OneStream,
    /// Moved blocks go into a zone of their own; the victim is the zone with the fewest live
    /// blocks, as in zoned XFS.
    TwoStreams,
    /// The same with victims by cost and benefit.
    CostBenefit,
    /// Furrow's rules: zones by predicted life, victims by cost and benefit where age tells
    /// something.
    #[default]
    ByLife,
}

impl Rules {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::OneStream, Self::TwoStreams, Self::CostBenefit, Self::ByLife];

    /// For a column of a table.
    pub const fn name(self) -> &'static str {
        match self {
            Self::OneStream => "greedy, one stream",
            Self::TwoStreams => "greedy, reclaim apart",
            Self::CostBenefit => "cost-benefit, reclaim apart",
            Self::ByLife => "by predicted life",
        }
    }

    /// The zones that the rules keep open where `open` may be.
    pub fn budget(self, open: usize) -> Budget {
        match self {
            Self::OneStream => Budget::of(1),
            Self::TwoStreams | Self::CostBenefit => Budget::of(2),
            Self::ByLife => Budget::of(open),
        }
    }

    /// How the rules compare these victims.
    pub fn victim(self, victims: &Victims) -> Policy {
        match self {
            Self::OneStream | Self::TwoStreams => Policy::Greedy,
            Self::CostBenefit => Policy::CostBenefit,
            Self::ByLife => victims.policy(),
        }
    }
}

/// No block lies there.
const NONE: u32 = u32::MAX;

#[derive(Clone, Debug, Default)]
struct Zone {
    /// The blocks written to it, in order.
    blocks: Vec<u32>,
    live: u32,
    /// When its first and its last block were born.
    births: (u64, u64),
    is_open: bool,
    /// When it was full: the age of a victim counts from then.
    filled: u64,
}

/// The price of a write depends on the cost of this many last victims.
const VICTIMS: usize = 16;

/// The zone that is being emptied.
#[derive(Clone, Copy, Debug)]
struct Begun {
    zone: u32,
    /// The index in it of the block to look at next.
    next: usize,
    /// Blocks moved out of it.
    moved: u64,
}

/// A drive, and a file of blocks that are written to it.
#[derive(Clone, Debug)]
pub struct Model {
    rules: Rules,
    zone_blocks: u32,
    zones: Vec<Zone>,
    free: VecDeque<u32>,
    streams: Streams,
    victims: Victims,
    /// Zone and index in it of each block.
    places: Vec<(u32, u32)>,
    clock: u64,
    moved: u64,
    begun: Option<Begun>,
    /// The room below which writes pay; 0 if they never do.
    low: u64,
    /// The debt that writes have not paid yet, in the unit of prices.
    owed: u64,
    /// Blocks moved and won with the last victims.
    last: VecDeque<(u64, u64)>,
}

impl Model {
    /// `zones` zones of `zone_blocks` blocks of which `open` may be written, and `blocks` blocks,
    /// none of them written.
    pub fn new(rules: Rules, zones: u32, zone_blocks: u32, open: usize, blocks: u32) -> Self {
        Self {
            rules,
            zone_blocks,
            zones: vec![Zone::default(); zones as usize],
            free: (0..zones).collect(),
            streams: Streams::new(rules.budget(open), zone_blocks.into()),
            victims: Victims::new(zones as usize),
            places: vec![(NONE, 0); blocks as usize],
            clock: 0,
            moved: 0,
            begun: None,
            low: 0,
            owed: 0,
            last: VecDeque::new(),
        }
    }

    /// The same, but writes pay for reclaim while there is less room than `low` blocks: the mark
    /// that [`low_mark`](super::pace::low_mark) computes, or another one.
    #[must_use]
    pub fn paced(self, low: u64) -> Self {
        Self { low, ..self }
    }

    /// Blocks written by the user, and blocks moved.
    pub fn counts(&self) -> (u64, u64) {
        (self.clock, self.moved)
    }

    /// Writes a block of the one file that consists of all blocks.
    pub fn write(&mut self, block: u32) {
        let (zone, place) = self.places[block as usize];
        let last_life = (zone != NONE).then(|| self.clock - self.birth(zone, place));
        let facts = LifeFacts { last_life, ..LifeFacts::default() };
        self.write_small(block, facts);
    }

    /// Writes a block of a file that gets a zone of its own.
    pub fn write_file(&mut self, block: u32, file: u64) {
        self.write_to(block, Target::File(file));
    }

    /// Writes a block of a small file, placed by `facts`.
    pub fn write_small(&mut self, block: u32, facts: LifeFacts) {
        self.write_to(block, target_of(0, Size::Small, facts, self.capacity()));
    }

    /// Deletes a block.
    pub fn delete(&mut self, block: u32) {
        let (zone, _) = self.places[block as usize];
        if zone != NONE {
            self.victims.note_death(zone, 1, self.clock);
        }
        self.take_out(block);
    }

    /// Removes a block from its zone.
    fn take_out(&mut self, block: u32) {
        let (zone, _) = std::mem::replace(&mut self.places[block as usize], (NONE, 0));
        if zone != NONE {
            self.zones[zone as usize].live -= 1;
            self.note(zone);
        }
    }

    fn capacity(&self) -> u64 {
        self.zones.len() as u64 * u64::from(self.zone_blocks)
    }

    fn birth(&self, zone: u32, place: u32) -> u64 {
        let (first, last) = self.zones[zone as usize].births;
        birth_of(first, last, place, self.zone_blocks)
    }

    fn write_to(&mut self, block: u32, target: Target) {
        self.pay();
        while !self.has_room(target) {
            let moved = self.move_some(self.zone_blocks, Need::Great);
            assert!(moved > 0 || self.has_room(target), "something is dead");
        }
        self.clock += 1;
        self.delete(block);
        self.place(block, target, self.clock);
    }

    /// Whether a block can be written and still leave a zone to reclaim.
    fn has_room(&self, target: Target) -> bool {
        if self.low == 0 {
            return self.free.len() > 1;
        }
        self.choose(target, Locality::default()) != Choice::Nothing
    }

    fn choose(&self, target: Target, locality: Locality) -> Choice {
        let room = |zone: u32| {
            let written = self.zones[zone as usize].blocks.len() as u64;
            u64::from(self.zone_blocks) - written
        };
        self.streams.choose(target, locality, self.supply(target), self.clock, room)
    }

    /// Whether another zone may be opened. Where writes pay, the last one is reclaim's.
    fn supply(&self, target: Target) -> Supply {
        let kept = usize::from(self.low > 0 && !matches!(target, Target::Moved(_)));
        if self.free.len() > kept { Supply::Empty } else { Supply::Exhausted }
    }

    /// Pays for a block that is about to be written.
    fn pay(&mut self) {
        let free = self.free.len().saturating_sub(1) as u64 * u64::from(self.zone_blocks);
        let room = Room { now: free + self.open_room(), low: self.low };
        if room.now >= room.low {
            return;
        }
        let (moved, won) = self.last.iter().fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
        self.owed += price(1, cost(moved, won), room);
        let step = u64::from(STEP_BLOCKS) * BLOCK;
        while self.owed >= step {
            let moved = self.move_some(STEP_BLOCKS, Need::Little);
            // No victim is worth emptying at this price.
            self.owed = if moved == 0 { 0 } else { self.owed.saturating_sub(moved * BLOCK) };
        }
    }

    /// Blocks that can be written in open zones of users.
    fn open_room(&self) -> u64 {
        let users = self.streams.zones().iter();
        let users = users.filter(|open| !matches!(open.target, Target::Moved(_)));
        let written = |zone: u32| self.zones[zone as usize].blocks.len() as u64;
        users.map(|open| u64::from(self.zone_blocks) - written(open.zone)).sum()
    }

    fn place(&mut self, block: u32, target: Target, birth: u64) {
        let zone = match self.choose(target, Locality::default()) {
            Choice::Zone(zone) => zone,
            Choice::Open => {
                let zone = self.free.pop_front().expect("the supply is not exhausted");
                self.zones[zone as usize].is_open = true;
                self.streams.open(zone, target, self.clock);
                zone
            }
            Choice::Nothing => panic!("the model keeps zones free"),
        };
        self.streams.note(zone, target, 1, self.clock);
        let slot = &mut self.zones[zone as usize];
        let written = slot.blocks.len() as u64;
        slot.births = match target {
            _ if written == 0 => (birth, birth),
            Target::Moved(_) => {
                let mean = (slot.births.0 * written + birth) / (written + 1);
                (mean, mean)
            }
            Target::File(_) | Target::Class(_) | Target::Hinted(_) => (slot.births.0, birth),
        };
        self.places[block as usize] = (zone, u32::try_from(written).expect("inside a zone"));
        slot.blocks.push(block);
        slot.live += 1;
        if slot.blocks.len() == self.zone_blocks as usize {
            slot.is_open = false;
            slot.filled = self.clock;
            self.streams.close(zone);
            self.note(zone);
        }
    }

    /// Updates a zone whose number of live blocks may have changed.
    fn note(&mut self, zone: u32) {
        let slot = &self.zones[zone as usize];
        if slot.is_open {
            return;
        }
        if slot.live == 0 {
            self.victims.remove(zone);
            self.zones[zone as usize] = Zone::default();
            self.free.push_back(zone);
            if let Some(begun) = self.begun.take_if(|begun| begun.zone == zone) {
                self.last.push_back((begun.moved, u64::from(self.zone_blocks) - begun.moved));
                if self.last.len() > VICTIMS {
                    self.last.pop_front();
                }
            }
        } else {
            self.victims.put(zone, slot.live, self.zone_blocks, slot.filled);
        }
    }

    /// Moves about `most` live blocks out of a victim, or all that it has, and returns how many.
    fn move_some(&mut self, most: u32, need: Need) -> u64 {
        let before = self.moved;
        if self.begun.is_none() {
            self.begun = self.victim(need).map(|zone| Begun { zone, next: 0, moved: 0 });
        }
        while self.moved - before < u64::from(most)
            && let Some(begun) = &mut self.begun
        {
            let place = begun.next;
            begun.next += 1;
            let victim = begun.zone;
            let block = self.zones[victim as usize].blocks[place];
            let at = u32::try_from(place).expect("inside a zone");
            if self.places[block as usize] != (victim, at) {
                continue;
            }
            begun.moved += 1;
            let birth = self.birth(victim, at);
            let age = self.clock.saturating_sub(birth);
            let class = class_of_moved(age, self.capacity());
            self.moved += 1;
            self.take_out(block);
            self.place(block, Target::Moved(class), birth);
        }
        self.moved - before
    }

    fn victim(&self, need: Need) -> Option<u32> {
        let candidate = |zone: u32| {
            let slot = &self.zones[zone as usize];
            let age = self.clock.saturating_sub(slot.filled);
            Some(Candidate { live: slot.live, capacity: self.zone_blocks, age })
        };
        let victim = self.victims.choose(self.rules.victim(&self.victims), candidate);
        match need {
            Need::Little => victim.filter(|&zone| {
                candidate(zone).is_some_and(|known| self.victims.is_worth_it(&known))
            }),
            Need::Great => victim.or_else(|| self.victims.choose(Policy::Greedy, candidate)),
        }
    }
}

/// How badly a free zone is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Need {
    /// Only a victim that is worth emptying is emptied.
    Little,
    /// There is no room: any victim is emptied.
    Great,
}
