//! Measurements of a running mount: waits of writers, cost and gain of reclaim, and the bytes of
//! the last minute.
//!
//! Recording is cheap: a wait costs two readings of the clock, a step of reclaim a short lock.
//! A mount without waits and moves records nothing. [`stats`](crate::furrow::stats) shows the
//! measurements.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};

use zonal::Clock;

use crate::furrow::drive::Counts;
use crate::furrow::stats::{Reclaimed, Traffic, VictimZone};
use crate::furrow::sync::{Mutex, MutexGuard};

/// Victims over which the reclaim ratio is taken.
const VICTIMS: usize = 16;

/// Time between two samples of the byte counters.
const SECOND_NS: u64 = 1_000_000_000;

/// Length of "the last minute".
const MINUTE_NS: u64 = 60 * SECOND_NS;

/// Measurements since mount.
#[derive(Debug)]
pub(super) struct Meters {
    mounted_ns: u64,
    waits: AtomicU64,
    wait_ns: AtomicU64,
    wait_ns_max: AtomicU64,
    reclaim: Mutex<Reclaim>,
    samples: Mutex<VecDeque<Sample>>,
}

#[derive(Debug, Default)]
struct Reclaim {
    /// Blocks that reclaim has moved out of each victim under way.
    moved: BTreeMap<u32, u64>,
    /// Cost and gain of the last victims that it has emptied.
    last: VecDeque<Reclaimed>,
}

/// Bytes since mount, at a time.
#[derive(Clone, Copy, Debug)]
struct Sample {
    at_ns: u64,
    bytes: [u64; 3],
}

/// The wait of a writer: it begins when this is made, and ends when this is dropped.
pub(super) struct Wait<'a> {
    meters: &'a Meters,
    clock: &'a dyn Clock,
    since_ns: u64,
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        let ns = self.clock.monotonic_ns().saturating_sub(self.since_ns);
        self.meters.waits.fetch_add(1, Ordering::Relaxed);
        self.meters.wait_ns.fetch_add(ns, Ordering::Relaxed);
        self.meters.wait_ns_max.fetch_max(ns, Ordering::Relaxed);
    }
}

impl Meters {
    /// Nothing is measured yet, at `now_ns`.
    pub(super) fn new(now_ns: u64) -> Self {
        Self {
            mounted_ns: now_ns,
            waits: AtomicU64::new(0),
            wait_ns: AtomicU64::new(0),
            wait_ns_max: AtomicU64::new(0),
            reclaim: Mutex::default(),
            samples: Mutex::new([Sample { at_ns: now_ns, bytes: [0; 3] }].into()),
        }
    }

    /// A writer begins to wait for room, or to reclaim room itself.
    pub(super) fn wait<'a>(&'a self, clock: &'a dyn Clock) -> Wait<'a> {
        Wait { meters: self, clock, since_ns: clock.monotonic_ns() }
    }

    /// Number of waits of writers, their sum, and the longest one.
    pub(super) fn waits(&self) -> (u64, u64, u64) {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        (read(&self.waits), read(&self.wait_ns), read(&self.wait_ns_max))
    }

    fn reclaim(&self) -> MutexGuard<'_, Reclaim> {
        self.reclaim.lock().expect("no holder panicked")
    }

    /// Reclaim has moved blocks out of a victim.
    pub(super) fn moved(&self, victim: u32, blocks: u64) {
        *self.reclaim().moved.entry(victim).or_default() += blocks;
    }

    /// Reclaim ends with a victim, of which `gained` blocks can be written again.
    pub(super) fn victim_is_over(&self, victim: u32, gained: u32) {
        let mut reclaim = self.reclaim();
        let Some(moved) = reclaim.moved.remove(&victim) else { return };
        if gained == 0 {
            return;
        }
        let freed = u64::from(gained).saturating_sub(moved);
        if reclaim.last.len() == VICTIMS {
            reclaim.last.pop_front();
        }
        reclaim.last.push_back(Reclaimed { victims: 1, moved, freed });
    }

    /// Victims under way, with the blocks that reclaim has moved out of them.
    pub(super) fn victims(&self) -> Vec<VictimZone> {
        let reclaim = self.reclaim();
        let victims = reclaim.moved.iter();
        victims.map(|(&zone, &moved)| VictimZone { zone, moved, ..VictimZone::default() }).collect()
    }

    /// Cost and gain of the last victims.
    pub(super) fn reclaimed(&self) -> Reclaimed {
        self.reclaim().last.iter().fold(Reclaimed::default(), |sum, victim| Reclaimed {
            victims: sum.victims + victim.victims,
            moved: sum.moved + victim.moved,
            freed: sum.freed + victim.freed,
        })
    }

    /// Samples the byte counters, once a second at most. The tick of the mount calls it.
    pub(super) fn sample(&self, counts: &Counts, now_ns: u64) {
        let mut samples = self.samples();
        let last = samples.back().map(|sample| sample.at_ns);
        if last.is_some_and(|last| now_ns.saturating_sub(last) < SECOND_NS) {
            return;
        }
        samples.push_back(Sample { at_ns: now_ns, bytes: bytes(counts) });
        // The first one is the last that is a minute old.
        while samples.get(1).is_some_and(|next| now_ns.saturating_sub(next.at_ns) >= MINUTE_NS) {
            samples.pop_front();
        }
    }

    /// Bytes since the mount, and bytes of the last minute, or since the mount if that is less.
    pub(super) fn traffic(&self, counts: &Counts, now_ns: u64) -> (Traffic, Traffic) {
        let now = bytes(counts);
        let since = |at_ns: u64, before: [u64; 3]| {
            let [user, reclaim, meta] = std::array::from_fn(|i| now[i].saturating_sub(before[i]));
            Traffic { ns: now_ns.saturating_sub(at_ns), user, reclaim, meta }
        };
        let first = self.samples().front().copied().expect("there is one from the beginning");
        (since(self.mounted_ns, [0; 3]), since(first.at_ns, first.bytes))
    }

    fn samples(&self) -> MutexGuard<'_, VecDeque<Sample>> {
        self.samples.lock().expect("no holder panicked")
    }
}

fn bytes(counts: &Counts) -> [u64; 3] {
    [&counts.user_bytes, &counts.reclaim_bytes, &counts.meta_bytes]
        .map(|count| count.load(Ordering::Relaxed))
}

#[cfg(test)]
mod tests {
    use zonal::ManualClock;

    use super::*;

    #[test]
    fn meters_last_minute_forgets_older() {
        let (meters, counts) = (Meters::new(0), Counts::default());
        for second in 0..200_u64 {
            meters.sample(&counts, second * SECOND_NS);
            meters.sample(&counts, second * SECOND_NS + 5);
            counts.user_bytes.fetch_add(second, Ordering::Relaxed);
            counts.meta_bytes.fetch_add(1, Ordering::Relaxed);
        }
        assert!(meters.samples().len() <= 61, "{}", meters.samples().len());
        // At second 199 the first sample is of second 139.
        let (_, minute) = meters.traffic(&counts, 199 * SECOND_NS);
        assert_eq!(minute.ns, MINUTE_NS);
        assert_eq!(minute.user, (139..200).sum::<u64>());
        assert_eq!((minute.reclaim, minute.meta), (0, 61));
    }

    #[test]
    fn meters_of_young_mount_show_what_exists() {
        let (meters, counts) = (Meters::new(0), Counts::default());
        counts.user_bytes.store(10, Ordering::Relaxed);
        meters.sample(&counts, 7);
        let (_, minute) = meters.traffic(&counts, 3 * SECOND_NS);
        assert_eq!((minute.ns, minute.user), (3 * SECOND_NS, 10));
        assert_eq!(meters.traffic(&counts, 9).0, Traffic { ns: 9, user: 10, reclaim: 0, meta: 0 });
    }

    #[test]
    fn meters_count_waits_with_time() {
        let (meters, clock) = (Meters::new(0), ManualClock::new(0));
        for ns in [10, 500, 20] {
            let _wait = meters.wait(&clock);
            clock.advance_ns(ns);
        }
        let (count, total, max) = meters.waits();
        assert_eq!(count, 3);
        // A reading moves the clock by a nanosecond.
        assert!((530..=536).contains(&total) && (500..=502).contains(&max), "{total} {max}");
    }

    #[test]
    fn meters_reclaim_ratio_covers_last_victims() {
        let meters = Meters::new(0);
        meters.moved(3, 10);
        meters.moved(3, 20);
        assert_eq!(meters.victims()[0].moved, 30);
        assert_eq!(meters.reclaimed(), Reclaimed::default());
        meters.victim_is_over(3, 100);
        assert_eq!(meters.reclaimed(), Reclaimed { victims: 1, moved: 30, freed: 70 });
        // Nothing was moved out of it; and of the other, nothing can be written again.
        meters.victim_is_over(4, 100);
        meters.moved(5, 30);
        meters.victim_is_over(5, 0);
        assert!(meters.victims().is_empty());
        for zone in (0..).take(VICTIMS) {
            meters.moved(zone, 50);
            meters.victim_is_over(zone, 100);
        }
        let last = Reclaimed { victims: 16, moved: 16 * 50, freed: 16 * 50 };
        assert_eq!(meters.reclaimed(), last);
    }
}
