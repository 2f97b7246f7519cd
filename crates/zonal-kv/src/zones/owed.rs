//! Work that the drive has refused and that the store still owes, and when the store tries it
//! again.
//!
//! An error may pass. So a reset or finish of a zone, the writing out of a closed file, and a
//! commit stay owed when they fail: a tick tries them again after a pause, which doubles with each
//! failure. A caller that cannot go on without one of them tries it at once.

use std::collections::BTreeMap;

use zonal_fs::zonefs::Health;

use super::{State, ZoneStore, lock};

/// Nanoseconds before the second attempt.
const PAUSE_NS_MIN: u64 = 1_000_000_000;

/// Nanoseconds between attempts, at most.
const PAUSE_NS_MAX: u64 = 64 * PAUSE_NS_MIN;

/// The most attempts at owed work on behalf of one caller.
pub(super) const ATTEMPTS: usize = 3;

/// Owed work of one kind.
#[derive(Debug, Default)]
pub(super) struct Retries<K>(BTreeMap<K, Failure>);

/// The last attempt, in monotonic time, and the pause after it.
#[derive(Clone, Copy, Debug)]
struct Failure {
    last_ns: u64,
    pause_ns: u64,
}

impl<K: Copy + Ord> Retries<K> {
    /// Records that an attempt has failed.
    pub(super) fn put_off(&mut self, work: K, now_ns: u64) {
        let before = self.0.get(&work).map_or(0, |failure| failure.pause_ns);
        let pause_ns = (2 * before).clamp(PAUSE_NS_MIN, PAUSE_NS_MAX);
        self.0.insert(work, Failure { last_ns: now_ns, pause_ns });
    }

    /// Removes work that has succeeded or is no longer needed.
    pub(super) fn settle(&mut self, work: K) {
        self.0.remove(&work);
    }

    /// Whether work may be tried: it has not failed, or its pause is over.
    pub(super) fn is_due(&self, work: K, now_ns: u64) -> bool {
        self.0.get(&work).is_none_or(|failure| failure.is_due(now_ns))
    }

    /// Failed work whose pause is over.
    pub(super) fn due(&self, now_ns: u64) -> Vec<K> {
        let due = self.0.iter().filter(|(_, failure)| failure.is_due(now_ns));
        due.map(|(&work, _)| work).collect()
    }

    /// Work that a caller tries without waiting for the pause, the least recently tried first.
    pub(super) fn at_once(&self) -> Vec<K> {
        let mut all: Vec<_> =
            self.0.iter().map(|(&work, failure)| (failure.last_ns, work)).collect();
        all.sort_unstable();
        all.into_iter().map(|(_, work)| work).take(ATTEMPTS).collect()
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}

impl Failure {
    const fn is_due(self, now_ns: u64) -> bool {
        now_ns.saturating_sub(self.last_ns) >= self.pause_ns
    }
}

/// How much work the drive has refused and the store still owes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Owed {
    /// Zone files to reset: no file has bytes in them.
    pub resets: usize,
    /// Zone files to finish, in which no file grows any more: until then each takes an active zone.
    pub finishes: usize,
    /// Closed files that still have bytes in memory.
    pub seals: usize,
    /// 1 if the last commit failed.
    pub commits: usize,
}

impl ZoneStore {
    /// The work that is owed now.
    pub fn owed(&self) -> Owed {
        let state = lock(&self.state);
        Owed {
            resets: state.resets.len(),
            finishes: state.finishes.len(),
            seals: state.seals.len(),
            commits: state.commits.len(),
        }
    }

    /// Whether a zone file can be written.
    pub(super) fn is_good(&self, zone: u32) -> bool {
        self.zones.health(self.zone(zone)).is_ok_and(|health| health == Health::Good)
    }

    /// Whether a zone file is partly written, which takes active resources of the drive.
    pub(super) fn is_active(&self, zone: u32) -> bool {
        self.written(zone).is_ok_and(|written| (1..self.capacity(zone)).contains(&written))
    }

    /// Frees the active resources of a zone in which no file grows: a zone that is to be finished
    /// or reset, or one that waits for a commit before its reset. Returns whether it found one.
    pub(super) fn finish_unused(&self, state: &mut State) -> bool {
        let doomed = state.doomed.iter().copied().filter(|zone| self.is_active(*zone));
        let doomed = doomed.take(ATTEMPTS);
        for zone in state.finishes.at_once().into_iter().chain(doomed).collect::<Vec<_>>() {
            if self.fill_up(state, zone) {
                return true;
            }
        }
        let refused = state.resets.at_once().into_iter().filter(|zone| self.is_active(*zone));
        refused.collect::<Vec<_>>().into_iter().any(|zone| self.empty(state, zone))
    }

    /// Tries owed work on zones and files whose pause is over at `now_ns`.
    pub(super) fn retry(&self, state: &mut State, now_ns: u64) {
        for ino in state.seals.due(now_ns) {
            self.seal_or_owe(state, ino);
        }
        for zone in state.finishes.due(now_ns) {
            self.fill_up(state, zone);
        }
        for zone in state.resets.due(now_ns) {
            self.empty(state, zone);
        }
    }

    /// Resets a zone to which neither the state nor the durable map leads (F3); it is free then. If
    /// the reset fails, it stays owed. Returns whether the zone is free.
    pub(super) fn empty(&self, state: &mut State, zone: u32) -> bool {
        let Err(error) = self.set_zone_size(zone, 0) else {
            state.resets.settle(zone);
            state.finishes.settle(zone);
            state.free.insert(zone);
            return true;
        };
        if self.is_good(zone) {
            tracing::warn!(zone, %error, "a zone file cannot be emptied: it is tried again");
            state.resets.put_off(zone, self.clock.monotonic_ns());
        } else {
            tracing::warn!(zone, %error, "a zone file has failed: it is lost");
            state.resets.settle(zone);
        }
        false
    }

    /// Finishes a zone in which no file grows any more, so that it takes no active resources of the
    /// drive. If that fails, it stays owed. Returns whether the zone is full.
    pub(super) fn fill_up(&self, state: &mut State, zone: u32) -> bool {
        let Err(error) = self.set_zone_size(zone, self.capacity(zone)) else {
            state.finishes.settle(zone);
            return true;
        };
        if self.is_good(zone) {
            tracing::warn!(zone, %error, "a zone file cannot be filled up: it is tried again");
            state.finishes.put_off(zone, self.clock.monotonic_ns());
        } else {
            // A failed zone is not active.
            state.finishes.settle(zone);
        }
        false
    }

    /// Makes a file stop growing in its current zone.
    pub(super) fn leave(&self, state: &mut State, ino: u64) {
        let Some(inode) = state.inodes.get_mut(&ino) else { return };
        let Some(zone) = inode.current.take() else { return };
        if inode.has_bytes_in(zone) {
            self.fill_up(state, zone);
        } else {
            // The zone has at most the remains of a failed write: the map never led to it.
            self.empty(state, zone);
        }
    }

    /// Writes out a file without a writer. If that fails, it stays owed.
    pub(super) fn seal_or_owe(&self, state: &mut State, ino: u64) {
        match self.seal(state, ino) {
            Ok(()) => {
                state.seals.settle(ino);
                if let Some(inode) = state.inodes.get(&ino) {
                    self.placed.insert(ino, inode);
                }
            }
            Err(error) => {
                tracing::error!(ino, %error, "a closed file cannot be written out: it is tried again");
                state.seals.put_off(ino, self.clock.monotonic_ns());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retries_pause_twice_as_long_after_each_failure() {
        let mut retries = Retries::default();
        let (mut now, mut pauses) = (0, Vec::new());
        assert!(retries.is_due(7, now) && retries.due(now).is_empty());
        for _ in 0..9 {
            retries.put_off(7, now);
            let before = now;
            while !retries.is_due(7, now) {
                assert!(retries.due(now).is_empty());
                now += PAUSE_NS_MIN;
            }
            assert_eq!(retries.due(now), [7]);
            pauses.push((now - before) / PAUSE_NS_MIN);
        }
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 64, 64, 64]);
        retries.settle(7);
        assert_eq!(retries.len(), 0);
    }

    #[test]
    fn retries_at_once_are_few_and_take_turns() {
        let mut retries = Retries::default();
        for work in 0..5 {
            retries.put_off(work, work);
        }
        assert_eq!(retries.at_once(), [0, 1, 2]);
        retries.put_off(0, 9);
        assert_eq!(retries.at_once(), [1, 2, 3]);
    }
}
