//! Which zone reclaim empties next, without a look at every zone.
//!
//! Zones lie in [`BUCKETS`] buckets by the share of their blocks that lives, oldest data first. A
//! block that dies changes a number, and once in many times its zone's bucket. A choice looks at
//! the oldest few zones of each bucket and takes the best by the exact formula: within a bucket
//! live shares hardly differ, so the oldest is nearly the best.
//!
//! Cost and benefit are right where old data dies less often than young data. Where age tells
//! nothing, as with files that are deleted at random, the emptiest zone is better. So the age of
//! dying blocks is compared with the age of live blocks: see [`Victims::policy`].

use std::collections::BTreeSet;

use crate::victim::{Candidate, Policy, choose};

/// Buckets of live share.
pub const BUCKETS: u32 = 64;

/// Zones of a bucket that a choice looks at.
const LOOKS: usize = 4;

/// Live share, in percent, above which a zone is no victim unless space demands it: emptying it
/// moves twenty blocks to win one. On a drive that is so full that most zones exceed it, a zone is
/// a victim all the same if it is [empty enough](Victims::is_worth_it).
pub const LIVE_PERCENT_MAX: u64 = 95;

/// A zone is worth emptying if its dead share is at least the average dead share divided by this:
/// at least half of it.
const WORTH_SHARE: u128 = 2;

/// Once more blocks have died than the live blocks divided by this, the sums of their ages are
/// halved.
const MEMORY_SHARE: u64 = 4;

/// Whether so little lives in a zone that it is worth emptying before any writer needs room.
pub fn is_cheap(known: &Candidate) -> bool {
    u64::from(known.live) * 100 <= u64::from(known.capacity) * LIVE_PERCENT_MAX
}

/// A number of blocks, and the sum of their ages or of the times at which they were written.
#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    blocks: u64,
    times: u128,
}

impl Sum {
    fn of(blocks: u64, time: u64) -> Self {
        Self { blocks, times: u128::from(blocks) * u128::from(time) }
    }

    fn add(&mut self, other: Self) {
        self.blocks += other.blocks;
        self.times += other.times;
    }

    fn remove(&mut self, other: Self) {
        self.blocks -= other.blocks;
        self.times -= other.times;
    }

    fn halve(&mut self) {
        self.blocks /= 2;
        self.times /= 2;
    }

    fn mean(&self) -> u64 {
        u64::try_from(self.times / u128::from(self.blocks.max(1))).unwrap_or(u64::MAX)
    }
}

/// A zone in a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    bucket: u32,
    birth: u64,
    live: u32,
    capacity: u32,
}

impl Place {
    fn lives(&self) -> Sum {
        Sum::of(self.live.into(), self.birth)
    }
}

/// The zones that may become victims.
///
/// ```
/// use zonal_placement::victims::Victims;
/// use zonal_placement::victim::{Candidate, Policy};
/// let mut victims = Victims::new(10);
/// victims.put(3, 60, 100, 10);
/// victims.put(7, 40, 100, 90);
/// let candidate = |zone: u32| {
///     let (live, age) = if zone == 3 { (60, 90) } else { (40, 10) };
///     Some(Candidate { live, capacity: 100, age })
/// };
/// assert_eq!(victims.choose(Policy::CostBenefit, candidate), Some(3));
/// assert_eq!(victims.choose(Policy::Greedy, candidate), Some(7));
/// ```
#[derive(Clone, Debug)]
pub struct Victims {
    buckets: Vec<BTreeSet<(u64, u32)>>,
    /// The place of each zone that is in a bucket.
    places: Vec<Option<Place>>,
    /// Their live blocks, with births.
    lives: Sum,
    /// Their capacity in blocks.
    capacity: u64,
    /// Blocks that died in them lately, with ages.
    died: Sum,
    /// As many blocks, each with the mean age that live blocks had at the time of that death.
    lived: Sum,
}

impl Victims {
    /// No candidates yet, of `zones` zones.
    pub fn new(zones: usize) -> Self {
        Self {
            buckets: vec![BTreeSet::new(); BUCKETS as usize],
            places: vec![None; zones],
            lives: Sum::default(),
            capacity: 0,
            died: Sum::default(),
            lived: Sum::default(),
        }
    }

    /// Enters a zone with `live` of `capacity` blocks, which was filled at `birth`. In O(1) unless
    /// it moves to another bucket.
    pub fn put(&mut self, zone: u32, live: u32, capacity: u32, birth: u64) {
        let share = u64::from(live) * u64::from(BUCKETS) / u64::from(capacity.max(1));
        let bucket = u32::try_from(share).unwrap_or(BUCKETS).min(BUCKETS - 1);
        let next = Place { bucket, birth, live, capacity };
        let before = self.places[zone as usize];
        if let Some(before) = before.filter(|old| (old.bucket, old.birth) == (bucket, birth)) {
            self.uncount(before);
        } else {
            self.remove(zone);
            self.buckets[bucket as usize].insert((birth, zone));
        }
        self.lives.add(next.lives());
        self.capacity += u64::from(capacity);
        self.places[zone as usize] = Some(next);
    }

    /// Removes a zone that is no candidate any more.
    pub fn remove(&mut self, zone: u32) {
        if let Some(place) = self.places[zone as usize].take() {
            self.buckets[place.bucket as usize].remove(&(place.birth, zone));
            self.uncount(place);
        }
    }

    fn uncount(&mut self, place: Place) {
        self.lives.remove(place.lives());
        self.capacity -= u64::from(place.capacity);
    }

    /// Whether a zone is worth emptying before space demands it: if it [is cheap](is_cheap), or if
    /// its dead share is at least half the average. Waiting for emptier zones is of no use where
    /// there are none; and a writer that waits until no room is left cannot open a zone for another
    /// lifetime class, so that data that dies soon lies among data that lives long.
    pub fn is_worth_it(&self, known: &Candidate) -> bool {
        let dead = u128::from(known.capacity.saturating_sub(known.live));
        let (all, lives) = (u128::from(self.capacity), u128::from(self.lives.blocks));
        let of_average = u128::from(known.capacity) * all.saturating_sub(lives);
        is_cheap(known) || WORTH_SHARE * dead * all >= of_average
    }

    /// Notes that blocks of a zone were deleted or overwritten, not moved.
    pub fn note_death(&mut self, zone: u32, blocks: u32, now: u64) {
        let Some(place) = self.places.get(zone as usize).copied().flatten() else { return };
        let blocks = u64::from(blocks);
        self.died.add(Sum::of(blocks, now.saturating_sub(place.birth)));
        self.lived.add(Sum::of(blocks, now.saturating_sub(self.lives.mean())));
        if self.died.blocks > self.lives.blocks / MEMORY_SHARE {
            self.died.halve();
            self.lived.halve();
        }
    }

    /// How victims are best compared: by cost and benefit, unless the blocks that died lately were
    /// nearly as old as the live blocks, or older. Where each block is as likely to die as any
    /// other, a dying block is as old as the average; where some are overwritten again and again,
    /// it is much younger.
    pub fn policy(&self) -> Policy {
        let is_known = self.died.blocks > self.lives.blocks / (4 * MEMORY_SHARE);
        let [died, lived] = [self.died.times, self.lived.times];
        if is_known && died * 4 >= lived * 3 { Policy::Greedy } else { Policy::CostBenefit }
    }

    /// The best victim of the zones for which `candidate` returns facts. By cost and benefit, only
    /// a zone that is [worth it](Self::is_worth_it).
    pub fn choose(
        &self,
        policy: Policy,
        candidate: impl Fn(u32) -> Option<Candidate>,
    ) -> Option<u32> {
        let seen = |bucket: &BTreeSet<(u64, u32)>| {
            let known = bucket.iter().filter_map(|&(_, zone)| Some((zone, candidate(zone)?)));
            let useful = known.filter(|(_, known)| known.live < known.capacity);
            useful.take(LOOKS).collect::<Vec<_>>()
        };
        let buckets = self.buckets.iter().map(seen).filter(|found| !found.is_empty());
        match policy {
            Policy::Greedy => choose(policy, buckets.take(1).flatten()),
            Policy::CostBenefit => {
                choose(policy, buckets.flatten().filter(|(_, known)| self.is_worth_it(known)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const CAPACITY: u32 = 256;
    const NOW: u64 = 10_000;

    fn benefit(candidate: Candidate) -> f64 {
        let u = f64::from(candidate.live) / f64::from(candidate.capacity);
        #[expect(clippy::cast_precision_loss, reason = "small numbers")]
        let age = (candidate.age + 1) as f64;
        (1.0 - u) * age / (1.0 + u)
    }

    proptest! {
        #[test]
        fn victim_is_nearly_as_good_as_full_scan(
            zones in prop::collection::vec((0..=CAPACITY, 0..NOW), 1..300),
        ) {
            let candidate = |zone: u32| {
                let (live, birth) = zones[zone as usize];
                Some(Candidate { live, capacity: CAPACITY, age: NOW - birth })
            };
            let mut victims = Victims::new(zones.len());
            for (zone, &(live, birth)) in (0..).zip(&zones) {
                // As if it had been full before.
                victims.put(zone, CAPACITY, CAPACITY, birth);
                victims.put(zone, live, CAPACITY, birth);
            }
            let all = (0..u32::try_from(zones.len()).unwrap()).filter_map(candidate);
            let best = all.filter(|known| victims.is_worth_it(known)).map(benefit).reduce(f64::max);
            let chosen = victims.choose(Policy::CostBenefit, candidate);
            prop_assert_eq!(chosen.is_some(), best.is_some());
            if let (Some(chosen), Some(best)) = (chosen, best) {
                let (found, candidate) = (candidate(chosen).map(benefit), candidate(chosen).unwrap());
                prop_assert!(victims.is_worth_it(&candidate));
                // A bucket is a 64th wide: near a full zone that is a part of the possible gain.
                let gain = f64::from(CAPACITY - candidate.live);
                prop_assert!(found.unwrap() >= best * (gain - 4.0).max(0.0) / gain * 0.95);
            }
            let emptiest = zones.iter().map(|zone| zone.0).min().filter(|live| *live < CAPACITY);
            let chosen = victims.choose(Policy::Greedy, candidate);
            prop_assert_eq!(chosen.is_some(), emptiest.is_some());
            if let (Some(chosen), Some(emptiest)) = (chosen, emptiest) {
                prop_assert!(zones[chosen as usize].0 < emptiest + CAPACITY / BUCKETS);
            }
        }
    }

    #[test]
    fn victim_is_emptiest_when_age_tells_nothing() {
        let policy_after = |dies: fn(u32) -> bool| {
            let mut victims = Victims::new(10);
            let mut live = [1000; 10];
            for zone in 0..10 {
                victims.put(zone, 1000, 1000, 100 * u64::from(zone));
            }
            for zone in (0..1000).flat_map(|_| 0..10_u32).filter(|zone| dies(*zone)).take(800) {
                live[zone as usize] -= 1;
                victims.note_death(zone, 1, 1000);
                victims.put(zone, live[zone as usize], 1000, 100 * u64::from(zone));
            }
            victims.policy()
        };
        assert_eq!(policy_after(|_| false), Policy::CostBenefit, "nothing is known");
        assert_eq!(policy_after(|_| true), Policy::Greedy, "each zone loses as much");
        assert_eq!(policy_after(|zone| zone < 5), Policy::Greedy, "what is old dies");
        assert_eq!(policy_after(|zone| zone >= 7), Policy::CostBenefit, "what is young dies");
    }

    #[test]
    fn victim_on_full_drive_is_half_as_empty_as_most() {
        let full = |live: u32| {
            let mut victims = Victims::new(100);
            (0..100).for_each(|zone| victims.put(zone, live, 1000, 5));
            victims
        };
        let is_worth_it = |victims: &Victims, live| {
            victims.is_worth_it(&Candidate { live, capacity: 1000, age: 1 })
        };
        let [half, most] = [500, 980].map(full);
        assert!(is_worth_it(&half, 950) && !is_worth_it(&half, 951), "5 % are dead");
        assert!(is_worth_it(&most, 990) && !is_worth_it(&most, 991), "2 % are on average");
    }

    #[test]
    fn victim_is_never_removed_or_unknown() {
        let mut victims = Victims::new(3);
        (0..3).for_each(|zone| victims.put(zone, zone, 100, 5));
        let known = |zone: u32| Candidate { live: zone, capacity: 100, age: 5 };
        victims.remove(0);
        let candidate = |zone: u32| (zone != 1).then(|| known(zone));
        for policy in [Policy::Greedy, Policy::CostBenefit] {
            assert_eq!(victims.choose(policy, candidate), Some(2));
        }
        victims.remove(2);
        assert_eq!(victims.choose(Policy::Greedy, candidate), None);
    }
}
