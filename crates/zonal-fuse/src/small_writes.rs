//! Counts small sequential writes, and advises `-o writeback` when there are many.
//!
//! Without `writeback` each write(2) is a request of its own. A write counts if it is small and
//! begins where the last write to its file ended, with no sync in between: with `writeback` the
//! kernel would have collected it with its neighbours. Direct and durable writes do not count,
//! since the kernel never collects them. The rule uses no time.

use std::sync::atomic::{AtomicU64, Ordering};

use zonal_fs::vfs::Ino;

/// Bytes below which a write is small.
const SMALL_BYTES: u64 = 32 << 10;

/// Number of small writes at which the mount gives the advice.
const MANY: u64 = 100_000;

/// Slots for the ends of last writes. Files that share a slot hide writes of each other, which then
/// do not count.
const PLACES: usize = 256;

/// The advice.
const ADVICE: &str = "-o writeback would help: small writes follow each other";

/// Counter of small sequential writes of a mount.
pub struct SmallWrites {
    /// End of the last write to a file, combined (exclusive or) with a hash of the file.
    ends: [AtomicU64; PLACES],
    count: AtomicU64,
}

/// Outcome of counting a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Noted {
    /// Nothing new.
    Nothing,
    /// The count has just reached the number for the advice.
    Enough,
}

impl Default for SmallWrites {
    fn default() -> Self {
        Self { ends: std::array::from_fn(|_| AtomicU64::new(0)), count: AtomicU64::new(0) }
    }
}

impl SmallWrites {
    /// A write of `len` bytes has succeeded.
    pub fn note(&self, ino: Ino, offset: u64, len: u64) -> Noted {
        let file = mix(ino);
        let before = self.place(file).swap(file ^ offset.wrapping_add(len), Ordering::Relaxed);
        let follows = before == file ^ offset;
        if !follows || len >= SMALL_BYTES {
            return Noted::Nothing;
        }
        match self.count.fetch_add(1, Ordering::Relaxed) + 1 {
            MANY => Noted::Enough,
            _ => Noted::Nothing,
        }
    }

    /// A file was synced: the kernel would not collect its next write with earlier ones.
    pub fn synced(&self, ino: Ino) {
        self.place(mix(ino)).store(0, Ordering::Relaxed);
    }

    /// The advice, if there were many small writes.
    pub fn advice(&self) -> Option<&'static str> {
        (self.count.load(Ordering::Relaxed) >= MANY).then_some(ADVICE)
    }

    fn place(&self, file: u64) -> &AtomicU64 {
        let index = usize::from(file.to_le_bytes()[7]);
        &self.ends[index]
    }
}

/// Hash of a file (the finalizer of `SplitMix64`).
fn mix(ino: Ino) -> u64 {
    let mut word = ino.get().wrapping_add(0x9e37_79b9_7f4a_7c15);
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: Ino = Ino::new(7);

    fn count(writes: &SmallWrites) -> u64 {
        writes.count.load(Ordering::Relaxed)
    }

    #[test]
    fn small_writes_count_only_in_sequence() {
        let writes = SmallWrites::default();
        for (offset, len, expected) in [
            (0, 100, 0),
            (100, 100, 1),
            (200, 100, 2),
            // Elsewhere in the file.
            (5_000, 100, 2),
            (5_100, 100, 3),
            // A large one does not count, and the next one follows it.
            (5_200, SMALL_BYTES, 3),
            (5_200 + SMALL_BYTES, SMALL_BYTES - 1, 4),
            // The same place again.
            (0, 10, 4),
            (0, 10, 4),
        ] {
            writes.note(FILE, offset, len);
            assert_eq!(count(&writes), expected, "{len} bytes at {offset}");
        }
        writes.note(FILE, 10, 10);
        assert_eq!(count(&writes), 5);
        writes.synced(FILE);
        writes.note(FILE, 20, 10);
        assert_eq!(count(&writes), 5, "a sync was in between");
    }

    #[test]
    fn small_writes_of_alternating_files_count_each() {
        let writes = SmallWrites::default();
        // Numbers that have a place each.
        let files = [Ino::new(2), Ino::new(3), Ino::new(4)];
        let mut places = files.map(|ino| mix(ino).to_le_bytes()[7]);
        places.sort_unstable();
        assert!(places.is_sorted_by(|a, b| a < b), "{places:?}");
        for round in 0..10 {
            for ino in files {
                writes.note(ino, round * 10, 10);
            }
        }
        assert_eq!(count(&writes), 27);
    }

    #[test]
    fn small_writes_advice_is_given_once_when_many() {
        let writes = SmallWrites::default();
        let said = (0..2 * MANY).filter(|at| writes.note(FILE, *at, 1) == Noted::Enough);
        assert_eq!(said.collect::<Vec<_>>(), [MANY], "the first write follows none");
        assert_eq!(writes.advice(), Some(ADVICE));
        assert_eq!(SmallWrites::default().advice(), None);
    }
}
