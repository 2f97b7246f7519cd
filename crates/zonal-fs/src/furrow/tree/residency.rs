//! Residency: keeps metadata in memory within its share, and finds paths of resident files.

use super::Tree;
use crate::furrow::metadata::State;
use crate::vfs::Ino;

/// Looks without success after which nothing can be evicted for now, if they are also two rounds of
/// all inodes.
const IN_VAIN_MAX: usize = 4096;

impl Tree {
    /// Whether cached metadata takes too much memory, and some of it may be evictable.
    pub(in crate::furrow) fn holds_too_much(&self, state: &State) -> bool {
        state.taken_bytes() > self.held_max().max(state.trim_from)
    }

    /// Evicts cached metadata if it takes too much memory.
    ///
    /// If nearly all of it has uncommitted changes, it calls the worker to commit, and tries again
    /// only now and then until that commit.
    pub(in crate::furrow) fn trim(&self, state: &mut State) {
        if self.holds_too_much(state) {
            state.evict(self.held_max() / 8 * 7);
            let nothing_goes = state.hand.in_vain > IN_VAIN_MAX.max(2 * state.inodes.len());
            if state.taken_bytes() > self.held_max() && nothing_goes {
                state.hand.in_vain = 0;
                state.trim_from = state.taken_bytes() + self.held_max() / 16;
                self.bell.wake_worker();
            }
        }
    }

    /// Whether memory is full, and a commit would make some of it evictable.
    pub(in crate::furrow) fn is_held_by_changes(&self) -> bool {
        let state = self.read_state();
        state.trim_from > 0
            && state.taken_bytes() > self.held_max()
            && !state.changes.rows.is_empty()
    }

    /// A path of an inode, if its parents are resident. The caller holds no lock of the file
    /// system.
    pub(in crate::furrow) fn known_path(&self, ino: Ino) -> Option<String> {
        self.read_state().known_path(ino)
    }

    /// The name of an inode in messages: its path, or its number. The caller holds no lock of the
    /// file system.
    pub(in crate::furrow) fn name_of(&self, ino: Ino) -> String {
        self.known_path(ino).unwrap_or_else(|| format!("inode {ino}"))
    }
}
