//! Retries: when failed work is tried again.
//!
//! A call that the device refuses may succeed later. So work that fails by one stays owed: its
//! owner tries it again after a pause, which doubles with each failure. A caller that cannot go on
//! without the work tries it at once. Times are nanoseconds of a monotonic clock.

use std::collections::{BTreeMap, BTreeSet};

/// Nanoseconds before the second attempt.
const PAUSE_NS_MIN: u64 = 1_000_000_000;

/// Nanoseconds between attempts, at most: about a minute.
const PAUSE_NS_MAX: u64 = 64 * PAUSE_NS_MIN;

/// Nanoseconds between attempts above which an age begins anew.
const GAP_NS_MAX: u64 = 2 * PAUSE_NS_MAX;

/// The outcome of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attempt {
    /// The work is done.
    Succeeded,
    /// The work is still owed.
    Failed,
}

/// Work that has failed, in monotonic time.
#[derive(Clone, Copy, Debug)]
struct Failure {
    first_ns: u64,
    last_ns: u64,
    /// Zero once a caller cannot wait for its end.
    pause_ns: u64,
    attempts: u32,
}

/// Work of one kind that has failed and is still owed.
#[derive(Clone, Debug)]
pub struct Retries<K>(BTreeMap<K, Failure>);

/// Owes nothing.
impl<K> Default for Retries<K> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<K: Copy + Ord> Retries<K> {
    /// Notes that work has failed. Returns the nanoseconds since it failed first, as long as it has
    /// been tried all that time.
    pub fn put_off(&mut self, work: K, now_ns: u64) -> u64 {
        let new = Failure { first_ns: now_ns, last_ns: now_ns, pause_ns: 0, attempts: 0 };
        let failure = self.0.entry(work).or_insert(new);
        if now_ns.saturating_sub(failure.last_ns) > GAP_NS_MAX {
            // It may have been readable in between.
            failure.first_ns = now_ns;
        }
        failure.last_ns = now_ns;
        failure.pause_ns = PAUSE_NS_MAX.min(PAUSE_NS_MIN << failure.attempts.min(32));
        failure.attempts = failure.attempts.saturating_add(1);
        now_ns.saturating_sub(failure.first_ns)
    }

    /// Ends the pause of work: a caller cannot go on without it.
    pub fn end_pause(&mut self, work: K) {
        if let Some(failure) = self.0.get_mut(&work) {
            failure.pause_ns = 0;
        }
    }

    /// Notes that work has succeeded, or is owed no more.
    pub fn settle(&mut self, work: K) {
        self.0.remove(&work);
    }

    /// Whether work has not failed, or its pause is over.
    pub fn is_due(&self, work: K, now_ns: u64) -> bool {
        self.0.get(&work).is_none_or(|failure| failure.is_due(now_ns))
    }

    /// Whether work has failed and is owed.
    pub fn has(&self, work: K) -> bool {
        self.0.contains_key(&work)
    }

    /// Nanoseconds since work failed first; `None` if it has not failed.
    pub fn age_ns(&self, work: K, now_ns: u64) -> Option<u64> {
        self.0.get(&work).map(|failure| now_ns.saturating_sub(failure.first_ns))
    }

    /// Failed work whose pause is over.
    pub fn due(&self, now_ns: u64) -> impl Iterator<Item = K> {
        self.0.iter().filter(move |(_, failure)| failure.is_due(now_ns)).map(|(&work, _)| work)
    }

    /// Work whose pause is not over.
    pub fn paused(&self, now_ns: u64) -> BTreeSet<K> {
        let paused = self.0.iter().filter(|(_, failure)| !failure.is_due(now_ns));
        paused.map(|(&work, _)| work).collect()
    }

    /// Work that has failed, the longest untried first.
    pub fn by_last_attempt(&self) -> Vec<K> {
        let mut all: Vec<(u64, K)> =
            self.0.iter().map(|(&work, failure)| (failure.last_ns, work)).collect();
        all.sort_unstable();
        all.into_iter().map(|(_, work)| work).collect()
    }

    /// How much work has failed and is owed.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether no work is owed.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Failure {
    fn is_due(&self, now_ns: u64) -> bool {
        now_ns.saturating_sub(self.last_ns) >= self.pause_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retries_pause_twice_as_long_after_each_failure() {
        let mut retries = Retries::default();
        let (mut now, mut pauses) = (0, Vec::new());
        assert!(retries.is_due(7, now));
        for _ in 0..9 {
            let age = retries.put_off(7, now);
            assert_eq!(age, now, "since the first failure");
            let before = now;
            while !retries.is_due(7, now) {
                now += PAUSE_NS_MIN;
            }
            pauses.push((now - before) / PAUSE_NS_MIN);
        }
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 64, 64, 64]);
        retries.settle(7);
        assert_eq!((retries.len(), retries.put_off(7, now)), (0, 0), "it begins anew");
    }

    #[test]
    fn retries_order_failed_work_by_last_attempt() {
        let mut retries = Retries::default();
        for (work, now) in [(1, 10), (2, 20), (3, 30), (1, 40)] {
            retries.put_off(work, now);
        }
        assert_eq!(retries.by_last_attempt(), [2, 3, 1]);
        assert_eq!(retries.paused(50), BTreeSet::from([1, 2, 3]));
        assert_eq!(retries.paused(PAUSE_NS_MIN + 25), BTreeSet::from([1, 3]));
    }
}
