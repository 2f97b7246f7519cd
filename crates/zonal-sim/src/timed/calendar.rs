//! The event queue: a tournament tree of slots, one for each die, bus and timer.
//!
//! Each has at most one pending event, so an event is moved or cancelled in its slot: none is ever
//! stale, nothing is allocated, and a change costs one comparison of a group per level of the tree.
//! Of two events at the same time the one in the lower slot comes first, so the order never depends
//! on anything but the config and the seed (S1).

use std::hint::select_unpredictable;

/// A time that never comes.
pub(super) const NEVER: u64 = u64::MAX;

/// Slots of a group: the tree of a drive of 32 dies then has three levels.
const GROUP: usize = 4;

/// A group: slots, or the earliest of each lower group.
#[derive(Clone, Copy, Debug)]
struct Group {
    at_ns: [u64; GROUP],
    slots: [u32; GROUP],
}

impl Group {
    /// The earliest; of several the lowest.
    #[inline]
    fn winner(&self) -> (u64, u32) {
        // The result is random: conditional moves instead of mispredicted branches.
        let duel = |one: (u64, u32), other: (u64, u32)| {
            let wins = other.0 < one.0;
            (one.0.min(other.0), select_unpredictable(wins, other.1, one.1))
        };
        let player = |at: usize| (self.at_ns[at], self.slots[at]);
        duel(duel(player(0), player(1)), duel(player(2), player(3)))
    }
}

/// The next event of each slot, and the first of all.
#[derive(Debug)]
pub(super) struct Calendar {
    /// A full tree: the last round is at 0, and the winner of group `g` plays as number `g - 1`,
    /// counted through all groups.
    groups: Vec<Group>,
    /// The number of slot 0.
    leaves: usize,
    first: (u64, u32),
}

impl Calendar {
    /// A calendar without a pending event.
    pub(super) fn new(slots: usize) -> Self {
        let (mut above, mut lowest) = (0, 1);
        while lowest * GROUP < slots {
            above += lowest;
            lowest *= GROUP;
        }
        let mut groups = vec![Group { at_ns: [NEVER; GROUP], slots: [0; GROUP] }; above + lowest];
        let places = groups[above..].iter_mut().flat_map(|group| &mut group.slots);
        places.zip(0..).for_each(|(place, slot)| *place = slot);
        Self { groups, leaves: above * GROUP, first: (NEVER, 0) }
    }

    /// The time of the next event, and its source.
    #[inline]
    pub(super) fn first(&self) -> (u64, usize) {
        (self.first.0, self.first.1 as usize)
    }

    /// Sets the time of a slot's event, in place of the one before.
    #[inline]
    pub(super) fn set(&mut self, slot: usize, at_ns: u64) {
        let mut player = self.leaves + slot;
        let group = &mut self.groups[player / GROUP];
        if group.at_ns[player % GROUP] == at_ns {
            return;
        }
        group.at_ns[player % GROUP] = at_ns;
        let mut winner = group.winner();
        while player >= GROUP {
            player = player / GROUP - 1;
            let (group, place) = (&mut self.groups[player / GROUP], player % GROUP);
            // Most events come later than others: the rounds above know nothing of them.
            if (group.at_ns[place], group.slots[place]) == winner {
                return;
            }
            (group.at_ns[place], group.slots[place]) = winner;
            winner = group.winner();
        }
        self.first = winner;
    }
}

#[cfg(test)]
mod tests {
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    use super::*;

    #[test]
    fn calendar_first_is_earliest_then_lowest() {
        let seed = zonal::repeat::seed(1);
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        for slots in [1, 2, 3, 41, 64, 100] {
            let mut calendar = Calendar::new(slots);
            assert_eq!(calendar.first().0, NEVER);
            let mut simple = vec![NEVER; slots];
            for _ in 0..2_000 {
                let slot = random.random_range(0..slots);
                let at_ns =
                    if random.random_range(0..4) == 0 { NEVER } else { random.random_range(0..50) };
                calendar.set(slot, at_ns);
                simple[slot] = at_ns;
                let earliest = *simple.iter().min().expect("a slot");
                let lowest = simple.iter().position(|at| *at == earliest).expect("it is there");
                let (found, winner) = calendar.first();
                assert_eq!(found, earliest, "seed {seed}");
                assert!(earliest == NEVER || winner == lowest, "seed {seed}");
            }
        }
    }
}
