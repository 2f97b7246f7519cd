//! Which victim reclaim, or a drive's GC, takes: one rule for Furrow, for a log over zones and for
//! the simulator's drives, so that the simulator predicts the code that runs.
//!
//! A [`Candidate`] is a zone (or a superblock) as far as the choice is concerned; a [`Policy`] says
//! which of two is the better victim. Everything here is pure and decides in integers, so the same
//! candidates give the same victim on every machine.

use std::cmp::Ordering;

/// How victims are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// The zone that gives back the most blocks: capacity minus live.
    Greedy,
    /// The zone with the highest (1 − u) × age / (1 + u), where u is the live share of the
    /// capacity: reading it costs 1, writing back the live blocks costs u, and the older the data
    /// is, the longer the freed space is expected to stay free (M. Rosenblum and J. Ousterhout,
    /// "The Design and Implementation of a Log-Structured File System", ACM TOCS 10(1), 1992,
    /// section 3.5).
    CostBenefit,
}

/// The facts about a zone that may become the victim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Blocks that would have to be moved.
    pub live: u32,
    /// Blocks that can be written; at least 1 and at least `live`.
    pub capacity: u32,
    /// How long ago its data was written, on any clock that is the same for all candidates.
    pub age: u64,
}

impl Candidate {
    /// `Greater` if this one is the better victim.
    pub fn compare(&self, other: &Self, policy: Policy) -> Ordering {
        // Two quotients are compared by multiplying crosswise, without rounding.
        let (mine, its) = (self.quotient(policy), other.quotient(policy));
        (mine.0 * u128::from(its.1)).cmp(&(its.0 * u128::from(mine.1)))
    }

    /// The quotient that the policy maximises, as numerator and denominator; the product of one's
    /// numerator and another's denominator stays below 2^128.
    fn quotient(&self, policy: Policy) -> (u128, u64) {
        let (live, capacity) = (u64::from(self.live), u64::from(self.capacity));
        let gain = u128::from(capacity.saturating_sub(live));
        match policy {
            Policy::Greedy => (gain, 1),
            Policy::CostBenefit => {
                // Among candidates without an age the emptiest one wins.
                let age = u128::from(self.age.min(u64::MAX >> 4)) + 1;
                (gain * age, capacity + live)
            }
        }
    }
}

/// The best victim, the first one among equals.
///
/// ```
/// use zonal_placement::victim::{Candidate, Policy, choose};
/// let old = Candidate { live: 60, capacity: 100, age: 90 };
/// let young = Candidate { live: 40, capacity: 100, age: 10 };
/// let zones = [(7, old), (8, young)];
/// assert_eq!(choose(Policy::Greedy, zones), Some(8));
/// assert_eq!(choose(Policy::CostBenefit, zones), Some(7));
/// ```
pub fn choose<Id>(
    policy: Policy,
    candidates: impl IntoIterator<Item = (Id, Candidate)>,
) -> Option<Id> {
    let better = |best: (Id, Candidate), next: (Id, Candidate)| {
        if next.1.compare(&best.1, policy) == Ordering::Greater { next } else { best }
    };
    candidates.into_iter().reduce(better).map(|(id, _)| id)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn candidate() -> impl Strategy<Value = Candidate> {
        (1..=u32::MAX, any::<u64>(), 0..=1_000_u64).prop_map(|(capacity, age, share)| {
            let live = u64::from(capacity) * share / 1_000;
            Candidate { live: u32::try_from(live).expect("at most the capacity"), capacity, age }
        })
    }

    fn small() -> impl Strategy<Value = Candidate> {
        (1..=500_u32, 0..=1_000_u64, 0..=500_u32).prop_map(|(capacity, age, live)| Candidate {
            live: live.min(capacity),
            capacity,
            age,
        })
    }

    /// The formula as it is published.
    fn benefit(of: Candidate) -> f64 {
        let u = f64::from(of.live) / f64::from(of.capacity);
        #[expect(clippy::cast_precision_loss, reason = "small numbers")]
        let age = (of.age + 1) as f64;
        (1.0 - u) * age / (1.0 + u)
    }

    proptest! {
        #[test]
        fn victim_choice_is_published_formula(
            candidates in prop::collection::vec(small(), 1..20),
        ) {
            let chosen = choose(Policy::CostBenefit, candidates.iter().copied().enumerate());
            let chosen = benefit(candidates[chosen.expect("there are candidates")]);
            for &other in &candidates {
                prop_assert!(chosen >= benefit(other) * (1.0 - 1e-12));
            }
        }

        #[test]
        fn victim_order_is_total(a in candidate(), b in candidate()) {
            for policy in [Policy::Greedy, Policy::CostBenefit] {
                prop_assert_eq!(a.compare(&b, policy), b.compare(&a, policy).reverse());
                prop_assert_eq!(a.compare(&a, policy), Ordering::Equal);
            }
        }

        #[test]
        fn cost_benefit_without_age_is_greedy(
            live in prop::collection::vec(0..=500_u32, 1..20),
        ) {
            let candidate = |&live: &u32| Candidate { live, capacity: 500, age: 0 };
            let ageless = live.iter().map(candidate).enumerate();
            let greedy = choose(Policy::Greedy, ageless.clone());
            prop_assert_eq!(greedy, choose(Policy::CostBenefit, ageless));
        }
    }

    #[test]
    fn victim_is_first_of_equals() {
        let one = Candidate { live: 3, capacity: 9, age: 5 };
        assert_eq!(choose(Policy::CostBenefit, [(4, one), (2, one)]), Some(4));
        assert_eq!(choose::<u32>(Policy::Greedy, []), None);
    }
}
