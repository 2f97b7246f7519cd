//! Residency: keeps the metadata in memory within its share, and names files that it knows.

use super::Tree;
use crate::furrow::metadata::State;
use crate::vfs::Ino;

/// Looks without success, and twice round all inodes, after which nothing can be evicted for now.
const IN_VAIN_MAX: usize = 4096;

impl Tree {
    /// Whether there is too much of what was read, and some of it may go.
    pub(in crate::furrow) fn holds_too_much(&self, state: &State) -> bool {
        state.taken_bytes() > self.held_max().max(state.trim_from)
    }

    /// Lets go of some of what was read if there is too much of it.
    ///
    /// If nearly all of it is not committed yet, the worker is to commit, and until then it is only
    /// tried now and then.
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

    /// Whether a commit would let go of something that memory has no room for.
    pub(in crate::furrow) fn is_held_by_changes(&self) -> bool {
        let state = self.read_state();
        state.trim_from > 0
            && state.taken_bytes() > self.held_max()
            && !state.changes.rows.is_empty()
    }

    /// A path of an inode, if memory knows one. No lock of the file system may be held.
    pub(in crate::furrow) fn known_path(&self, ino: Ino) -> Option<String> {
        self.read_state().known_path(ino)
    }

    /// What messages call an inode: its path, if memory knows one. No lock of the file system may
    /// be held.
    pub(in crate::furrow) fn name_of(&self, ino: Ino) -> String {
        self.known_path(ino).unwrap_or_else(|| format!("inode {ino}"))
    }
}
