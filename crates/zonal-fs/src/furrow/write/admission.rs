//! Room on the drive that a running operation holds.

use crate::furrow::metadata::State;
use crate::furrow::tree::Tree;

/// Room on the drive that a running operation holds. What it does not use it gives back.
pub(in crate::furrow) struct Admission<'a> {
    tree: &'a Tree,
    blocks: u64,
}

impl<'a> Admission<'a> {
    /// Holds room for `blocks` blocks that the caller has counted in the state.
    pub(in crate::furrow) const fn new(tree: &'a Tree, blocks: u64) -> Self {
        Self { tree, blocks }
    }

    /// Hands `blocks` of the room to the state's buffer, which holds it from now on.
    pub(in crate::furrow) fn hand_over(&mut self, blocks: u64) {
        self.blocks = self.blocks.checked_sub(blocks).expect("an operation uses what it asked for");
    }

    /// Gives back the rest under the lock that the operation has anyway.
    pub(in crate::furrow) fn end(&mut self, state: &mut State) {
        state.totals.pending -= std::mem::take(&mut self.blocks);
    }
}

impl Drop for Admission<'_> {
    fn drop(&mut self) {
        // After a panic the lock is poisoned, and a second panic would hide the first.
        if self.blocks > 0 && !std::thread::panicking() {
            self.tree.write_accounts().totals.pending -= self.blocks;
        }
    }
}
