//! Which metadata stays in memory: its size, its last use, and the loads that need it.
//!
//! [`memory`](crate::furrow::memory) gives the sizes of collections, and
//! [`evict`](crate::furrow::metadata::state::evict) frees unused metadata.

pub(in crate::furrow) mod loads;
pub(in crate::furrow) mod used;

use self::loads::Loads;
use crate::furrow::options::Eviction;
use crate::vfs::Ino;

/// Where the hand is.
#[derive(Debug, Default)]
pub(super) struct Hand {
    pub(super) ino: Ino,
    pub(super) block: u64,
    pub(super) extent: u64,
    /// Looks since it has evicted something.
    pub(super) in_vain: usize,
}

/// How much memory the metadata takes, and where the next eviction goes on.
#[derive(Debug, Default)]
pub(in crate::furrow) struct Residency {
    /// Bytes of memory that all of it takes.
    bytes: usize,
    /// Bytes up to which an eviction would find nothing: 0 after a commit.
    trim_from: usize,
    pub(super) hand: Hand,
    policy: Eviction,
    pub(in crate::furrow) loads: Loads,
}

impl Residency {
    pub(super) fn policy(&self) -> Eviction {
        self.policy
    }

    pub(super) fn set_policy(&mut self, policy: Eviction) {
        self.policy = policy;
    }

    /// Something was entered.
    pub(super) fn add(&mut self, bytes: usize) {
        self.bytes += bytes;
    }

    /// Bytes of memory that the metadata takes.
    pub(in crate::furrow) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adjusts the count of bytes by an object that took `before` bytes and now takes `now`.
    pub(super) fn count(&mut self, before: usize, now: usize) {
        self.bytes = (self.bytes + now).saturating_sub(before);
    }

    /// Whether metadata, which takes `taken` bytes, exceeds `max` and an eviction may find
    /// something.
    pub(super) fn is_trim_due(&self, taken: usize, max: usize) -> bool {
        taken > max.max(self.trim_from)
    }

    /// An eviction has found nothing: the next one waits for a commit, or until metadata takes
    /// `bytes` bytes.
    pub(super) fn put_off_trim(&mut self, bytes: usize) {
        self.hand.in_vain = 0;
        self.trim_from = bytes;
    }

    /// Whether the last eviction has found nothing, and no commit has ended since.
    pub(super) fn waits_for_commit(&self) -> bool {
        self.trim_from > 0
    }

    /// A commit has made changes durable: an eviction may find something again.
    pub(super) fn allow_trim(&mut self) {
        self.trim_from = 0;
    }
}
