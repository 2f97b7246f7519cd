//! Work that the drive has refused and that the store still owes, and when the store tries it
//! again.
//!
//! An error may pass. So a reset or finish of a zone, the writing out of a closed file, and a
//! commit stay owed when they fail: a tick tries them again after a pause, which doubles with each
//! failure. A caller that cannot go on without one of them tries it at once.

use zonal::retry::Retries;
use zonal_fs::zonefs::Health;

use super::{State, ZoneStore, lock};

/// The most attempts at owed work on behalf of one caller.
pub(super) const ATTEMPTS: usize = 3;

/// Work that a caller tries without waiting for its pause, the least recently tried first.
pub(super) fn at_once<K: Copy + Ord>(retries: &Retries<K>) -> Vec<K> {
    retries.by_last_attempt().into_iter().take(ATTEMPTS).collect()
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
        for zone in at_once(&state.finishes).into_iter().chain(doomed).collect::<Vec<_>>() {
            if self.fill_up(state, zone) {
                return true;
            }
        }
        let refused = at_once(&state.resets).into_iter().filter(|zone| self.is_active(*zone));
        refused.collect::<Vec<_>>().into_iter().any(|zone| self.empty(state, zone))
    }

    /// Tries owed work on zones and files whose pause is over at `now_ns`.
    pub(super) fn retry(&self, state: &mut State, now_ns: u64) {
        for ino in state.seals.due(now_ns).collect::<Vec<_>>() {
            self.seal_or_owe(state, ino);
        }
        for zone in state.finishes.due(now_ns).collect::<Vec<_>>() {
            self.fill_up(state, zone);
        }
        for zone in state.resets.due(now_ns).collect::<Vec<_>>() {
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
    fn retries_at_once_are_few_and_take_turns() {
        let mut retries = Retries::default();
        for work in 0..5 {
            retries.put_off(work, work);
        }
        assert_eq!(at_once(&retries), [0, 1, 2]);
        retries.put_off(0, 9);
        assert_eq!(at_once(&retries), [1, 2, 3]);
    }
}
