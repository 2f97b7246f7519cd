//! Residency: keeps metadata in memory within its share, and finds paths of resident files.

use super::Tree;
use crate::furrow::metadata::State;
use crate::furrow::metadata::state::evict::Trimmed;
use crate::vfs::Ino;

impl Tree {
    /// Whether cached metadata takes too much memory, and some of it may be evictable.
    pub(in crate::furrow) fn holds_too_much(&self, state: &State) -> bool {
        state.holds_too_much(self.held_max())
    }

    /// Evicts cached metadata if it takes too much memory. If only a commit helps, it calls the
    /// worker to commit.
    pub(in crate::furrow) fn trim(&self, state: &mut State) {
        if state.trim(self.held_max()) == Trimmed::NeedsCommit {
            self.bell.wake_worker();
        }
    }

    /// Whether memory is full, and a commit would make some of it evictable.
    pub(in crate::furrow) fn is_held_by_changes(&self) -> bool {
        self.read_state().is_held_by_changes(self.held_max())
    }

    /// A path of an inode, if its parents are resident. The caller holds no lock of the file
    /// system.
    pub(in crate::furrow) fn known_path(&self, ino: Ino) -> Option<String> {
        self.read_state().inodes.known_path(ino)
    }

    /// The name of an inode in messages: its path, or its number. The caller holds no lock of the
    /// file system.
    pub(in crate::furrow) fn name_of(&self, ino: Ino) -> String {
        self.known_path(ino).unwrap_or_else(|| format!("inode {ino}"))
    }
}
