//! What happens next: a tournament of slots, one for each thing that can have one event to come.
//!
//! A die, a bus or a timer has at most one event to come, so an event is moved or taken back in
//! its place: none is ever stale, nothing is allocated, and one change costs as many compares as
//! the tree is high. Of two events at the same time the one in the lower slot comes first, so the
//! order never depends on anything but the config and the seed (S1).

/// A time that never comes.
pub(super) const NEVER: u64 = u64::MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    at_ns: u64,
    slot: u32,
}

/// The next event of each slot, and the first of all.
#[derive(Debug)]
pub(super) struct Calendar {
    /// A full binary tree: the winner is at 1, slot `s` is at `leaves + s`.
    tree: Vec<Entry>,
    leaves: usize,
}

impl Calendar {
    /// A calendar in which nothing is to come.
    pub(super) fn new(slots: usize) -> Self {
        let leaves = slots.next_power_of_two().max(2);
        let mut tree = vec![Entry { at_ns: NEVER, slot: 0 }; 2 * leaves];
        for (slot, entry) in tree[leaves..].iter_mut().enumerate() {
            entry.slot = u32::try_from(slot).expect("slots are dies, buses and timers");
        }
        for node in (1..leaves).rev() {
            tree[node] = tree[2 * node];
        }
        Self { tree, leaves }
    }

    /// When the next event comes, and whose it is.
    #[inline]
    pub(super) fn first(&self) -> (u64, usize) {
        let first = self.tree[1];
        (first.at_ns, first.slot as usize)
    }

    /// Sets the time of a slot's event, in place of what it had.
    #[inline]
    pub(super) fn set(&mut self, slot: usize, at_ns: u64) {
        let mut node = self.leaves + slot;
        if self.tree[node].at_ns == at_ns {
            return;
        }
        self.tree[node].at_ns = at_ns;
        while node > 1 {
            let (left, right) = (self.tree[node & !1], self.tree[node | 1]);
            let winner = if right.at_ns < left.at_ns { right } else { left };
            node >>= 1;
            // Most events come later than others: what is above knows nothing of them.
            if self.tree[node] == winner {
                return;
            }
            self.tree[node] = winner;
        }
    }
}

#[cfg(test)]
mod tests {
    use rand::{Rng, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    use super::*;

    #[test]
    fn the_first_is_the_earliest_and_then_the_lowest() {
        let seed = std::env::var("SEED").map_or(1, |seed| seed.parse().expect("a number"));
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
