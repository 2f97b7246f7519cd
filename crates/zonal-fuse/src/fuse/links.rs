//! Files that are losing a name, and the kernel's own count of their names.
//!
//! When a name has gone (UNLINK, or a RENAME to it), the kernel counts one less. If it hears of
//! attributes before, in which we have counted one less already, it does so twice, and a file that
//! counts as nameless can be given no name any more: link(2) fails with ENOENT until somebody calls
//! stat(2). Which of two answers the kernel deals with first, nobody knows: whoever waits for one
//! runs later than it is given.
//!
//! So from just before a name goes until the kernel has surely dealt with the answer, whoever asks
//! for the file's attributes gets them, but the kernel is told first that they have changed: it
//! then takes nothing from an answer to what it asked before. It asks again each time, which costs
//! little: few files have several names.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use zonal_fs::FsError;
use zonal_fs::vfs::{FileKind, FileSystem, Ino};

use super::Front;
use super::open::now;

/// How long a caller that was answered may take to run.
const RUNS_WITHIN: Duration = Duration::from_secs(10);

/// Files of which a name has gone that the kernel may still count.
#[derive(Default)]
pub(super) struct Links {
    state: Mutex<State>,
    /// Whether there is any: this is looked at with every reply of attributes.
    any: AtomicBool,
}

#[derive(Default)]
struct State {
    files: BTreeMap<Ino, Loss>,
    /// When they count no more, in order; some have lost another name since.
    ends: VecDeque<(Instant, Ino)>,
}

/// How far a name has gone.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Loss {
    /// The file system is at it.
    UnderWay,
    /// The caller is told, and runs before this.
    Told(Instant),
}

impl Links {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One of several names of a file is about to go.
    fn begin(&self, ino: Ino) {
        self.state().files.insert(ino, Loss::UnderWay);
        self.any.store(true, Ordering::SeqCst);
    }

    /// It has gone, or could not; the caller is about to be told.
    fn end(&self, ino: Ino, now: Instant) {
        let mut state = self.state();
        state.forget_before(now);
        let end = now + RUNS_WITHIN;
        state.files.insert(ino, Loss::Told(end));
        state.ends.push_back((end, ino));
    }

    /// The kernel has the inode locked for another name, which it has not before it has dealt with
    /// those that went.
    pub(super) fn is_locked(&self, ino: Ino) {
        if self.any.load(Ordering::SeqCst) {
            self.state().files.remove(&ino);
        }
    }

    /// Whether the kernel may still count a name of a file that has gone.
    fn is_losing(&self, ino: Ino, now: impl FnOnce() -> Instant) -> bool {
        if !self.any.load(Ordering::SeqCst) {
            return false;
        }
        let mut state = self.state();
        state.forget_before(now());
        self.any.store(!state.files.is_empty(), Ordering::SeqCst);
        state.files.contains_key(&ino)
    }
}

impl State {
    /// Forgets the files whose time is over.
    fn forget_before(&mut self, now: Instant) {
        while let Some(&(end, ino)) = self.ends.front().filter(|(end, _)| *end <= now) {
            self.ends.pop_front();
            if self.files.get(&ino) == Some(&Loss::Told(end)) {
                self.files.remove(&ino);
            }
        }
    }
}

impl Front {
    /// Runs what takes a name away, if it is there.
    pub(super) fn losing_name<T>(
        &self,
        fs: &dyn FileSystem,
        (parent, name): (Ino, &[u8]),
        take: impl FnOnce() -> Result<T, FsError>,
    ) -> Result<T, FsError> {
        let found = fs.lookup(parent, name).ok();
        let several = found.filter(|file| file.kind != FileKind::Directory && file.nlink > 1);
        let Some(file) = several else { return take() };
        self.shared.links.begin(file.ino);
        let outcome = take();
        self.shared.links.end(file.ino, now());
        outcome
    }

    /// Attributes that were just read are about to be told: the kernel is not to take them from a
    /// file that is losing a name.
    pub(super) fn keep_count(&self, ino: Ino) {
        if self.shared.links.is_losing(ino, now) {
            self.forget_attributes(self.shared.nodes.node(ino));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INO: Ino = Ino::new(7);

    #[test]
    fn a_file_that_has_lost_a_name_counts_until_the_kernel_surely_knows() {
        let (links, start) = (Links::default(), now());
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
    fn a_second_name_counts_from_when_it_went() {
        let (links, start) = (Links::default(), now());
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
