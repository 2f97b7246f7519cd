//! Which zone reclaim empties next, without a look at every zone.
//!
//! Zones lie in [`BUCKETS`] buckets by the share of their blocks that lives, oldest data first. A block
//! that dies changes a number, and once in many times its zone's bucket. A choice looks at the
//! oldest few zones of each bucket and takes the best by the exact formula: within a bucket live
//! shares hardly differ, so the oldest is nearly the best.

use std::collections::BTreeSet;

use crate::victim::{Candidate, Policy, choose};

/// Buckets of live share.
pub const BUCKETS: u32 = 64;

/// Zones of a bucket that a choice looks at.
const LOOKS: usize = 4;

/// Live share, in percent, above which a zone is no victim unless space demands it: emptying it moves
/// twenty blocks to win one.
pub const LIVE_PERCENT_MAX: u64 = 95;

/// The zones that may become victims.
///
/// ```
/// use zonal::placement::victims::Victims;
/// use zonal::victim::{Candidate, Policy};
/// let mut victims = Victims::new(10);
/// victims.put(3, (60, 100), 10);
/// victims.put(7, (40, 100), 90);
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
    /// Bucket and birth of each zone that is in one.
    places: Vec<Option<(u32, u64)>>,
}

impl Victims {
    /// None yet, of `zones` zones.
    pub fn new(zones: usize) -> Self {
        Self { buckets: vec![BTreeSet::new(); BUCKETS as usize], places: vec![None; zones] }
    }

    /// A zone has so many live blocks of so many, and was filled at `birth`. In O(1) unless that is
    /// another bucket than before.
    pub fn put(&mut self, zone: u32, (live, capacity): (u32, u32), birth: u64) {
        let share = u64::from(live) * u64::from(BUCKETS) / u64::from(capacity.max(1));
        let bucket = u32::try_from(share).unwrap_or(BUCKETS).min(BUCKETS - 1);
        if self.places[zone as usize] == Some((bucket, birth)) {
            return;
        }
        self.remove(zone);
        self.places[zone as usize] = Some((bucket, birth));
        self.buckets[bucket as usize].insert((birth, zone));
    }

    /// A zone is no candidate any more.
    pub fn remove(&mut self, zone: u32) {
        if let Some((bucket, birth)) = self.places[zone as usize].take() {
            self.buckets[bucket as usize].remove(&(birth, zone));
        }
    }

    /// The best victim of those that `candidate` says something about. By cost and benefit none of which
    /// more than [`LIVE_PERCENT_MAX`] lives.
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
                let is_worth_it = |known: &Candidate| {
                    u64::from(known.live) * 100 <= u64::from(known.capacity) * LIVE_PERCENT_MAX
                };
                choose(policy, buckets.flatten().filter(|(_, known)| is_worth_it(known)))
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
        fn a_choice_is_nearly_as_good_as_a_look_at_every_zone(
            zones in prop::collection::vec((0..=CAPACITY, 0..NOW), 1..300),
        ) {
            let candidate = |zone: u32| {
                let (live, birth) = zones[zone as usize];
                Some(Candidate { live, capacity: CAPACITY, age: NOW - birth })
            };
            let mut victims = Victims::new(zones.len());
            for (zone, &(live, birth)) in (0..).zip(&zones) {
                // As if it had been full before.
                victims.put(zone, (CAPACITY, CAPACITY), birth);
                victims.put(zone, (live, CAPACITY), birth);
            }
            let useful = |known: &Candidate| {
                u64::from(known.live) * 100 <= u64::from(CAPACITY) * LIVE_PERCENT_MAX
            };
            let all = (0..u32::try_from(zones.len()).unwrap()).filter_map(candidate);
            let best = all.filter(useful).map(benefit).reduce(f64::max);
            let chosen = victims.choose(Policy::CostBenefit, candidate);
            prop_assert_eq!(chosen.is_some(), best.is_some());
            if let (Some(chosen), Some(best)) = (chosen, best) {
                let (found, candidate) = (candidate(chosen).map(benefit), candidate(chosen).unwrap());
                prop_assert!(useful(&candidate));
                // A bucket is a 64th wide: near a full zone that is a part of what can be won.
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
    fn what_is_removed_or_unknown_is_not_chosen() {
        let mut victims = Victims::new(3);
        (0..3).for_each(|zone| victims.put(zone, (zone, 100), 5));
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
