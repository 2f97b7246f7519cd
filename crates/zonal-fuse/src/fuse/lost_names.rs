//! Files that are losing a name, and the link count that the kernel keeps of them.
//!
//! After an UNLINK, or a RENAME onto a name, the kernel lowers its link count of the file by one.
//! If it takes attributes from an answer in between, which has the lower count already, it lowers
//! the count twice. It then refuses link(2) on the file with ENOENT until a stat(2). The order in
//! which the kernel processes two answers is unknown: a caller runs some time after its answer is
//! sent.
//!
//! So from just before a name goes until the kernel has surely processed the answer, each answer
//! with attributes of the file is preceded by a notification that they have changed: the kernel
//! then ignores attributes in answers to earlier requests. It asks again each time, which costs
//! little, since few files have several names.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use zonal_fs::vfs::{FileKind, FileSystem, Ino, Result};

use super::real_time::now;

/// Longest time from an answer until its caller runs.
const RUNS_WITHIN: Duration = Duration::from_secs(10);

/// Files whose link count in the kernel may still be too high.
#[derive(Default)]
pub(super) struct LostNames {
    state: Mutex<Losses>,
    /// Whether there is any such file: every answer with attributes checks this.
    any: AtomicBool,
}

#[derive(Default)]
struct Losses {
    files: BTreeMap<Ino, Loss>,
    /// Ends of losses in order; a file may have lost another name since.
    ends: VecDeque<(Instant, Ino)>,
}

/// Progress of the loss of a name.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Loss {
    /// The file system is removing it.
    UnderWay,
    /// The answer is sent; its caller runs before this time.
    Told(Instant),
}

impl LostNames {
    fn state(&self) -> MutexGuard<'_, Losses> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs `take`, which removes a name. Files with no other name need no care.
    pub(super) fn around<T>(
        &self,
        fs: &dyn FileSystem,
        parent: Ino,
        name: &[u8],
        take: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let found = fs.lookup(parent, name).ok();
        let several = found.filter(|file| file.kind != FileKind::Directory && file.nlink > 1);
        let Some(file) = several else { return take() };
        self.begin(file.ino);
        let outcome = take();
        self.end(file.ino, now());
        outcome
    }

    /// One of several names of a file is about to go.
    fn begin(&self, ino: Ino) {
        self.state().files.insert(ino, Loss::UnderWay);
        self.any.store(true, Ordering::SeqCst);
    }

    /// The operation has ended, and its answer is about to be sent.
    fn end(&self, ino: Ino, now: Instant) {
        let mut state = self.state();
        state.forget_before(now);
        let end = now + RUNS_WITHIN;
        state.files.insert(ino, Loss::Told(end));
        state.ends.push_back((end, ino));
    }

    /// The kernel holds the lock of the inode for a new name, so it has processed all lost ones.
    pub(super) fn is_locked(&self, ino: Ino) {
        if self.any.load(Ordering::SeqCst) {
            self.state().files.remove(&ino);
        }
    }

    /// Whether the kernel may still count a lost name of a file.
    pub(super) fn is_losing(&self, ino: Ino, now: impl FnOnce() -> Instant) -> bool {
        if !self.any.load(Ordering::SeqCst) {
            return false;
        }
        let mut state = self.state();
        state.forget_before(now());
        self.any.store(!state.files.is_empty(), Ordering::SeqCst);
        state.files.contains_key(&ino)
    }
}

impl Losses {
    /// Removes files whose losses ended before `now`.
    fn forget_before(&mut self, now: Instant) {
        while let Some(&(end, ino)) = self.ends.front().filter(|(end, _)| *end <= now) {
            self.ends.pop_front();
            if self.files.get(&ino) == Some(&Loss::Told(end)) {
                self.files.remove(&ino);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INO: Ino = Ino::new(7);

    #[test]
    fn links_count_lost_name_until_kernel_knows() {
        let (links, start) = (LostNames::default(), now());
        let is_losing = |after| links.is_losing(INO, || start + after);
        assert!(!is_losing(Duration::ZERO));
        links.begin(INO);
        assert!(is_losing(2 * RUNS_WITHIN), "however long it takes");
        links.end(INO, start);
        assert!(is_losing(RUNS_WITHIN / 2));
        assert!(!links.is_losing(Ino::new(8), || start));
        assert!(!is_losing(RUNS_WITHIN));
        assert!(!links.any.load(Ordering::SeqCst));
    }

    #[test]
    fn links_count_second_lost_name_from_its_end() {
        let (links, start) = (LostNames::default(), now());
        for after in [Duration::ZERO, RUNS_WITHIN / 2] {
            links.begin(INO);
            links.end(INO, start + after);
        }
        assert!(links.is_losing(INO, || start + RUNS_WITHIN));
        assert!(!links.is_losing(INO, || start + 2 * RUNS_WITHIN));
        links.begin(INO);
        assert!(links.is_losing(INO, || start + 3 * RUNS_WITHIN));
        links.is_locked(INO);
        assert!(!links.is_losing(INO, || start + 3 * RUNS_WITHIN), "it gets a name");
    }
}
