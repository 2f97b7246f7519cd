//! Reservations: room on the drive that a running operation holds.

use crate::furrow::metadata::State;
use crate::furrow::tree::Tree;

/// Room on the drive that a running operation holds. Dropping it gives back the unused rest.
pub(in crate::furrow) struct Reservation<'a> {
    tree: &'a Tree,
    blocks: u64,
}

impl<'a> Reservation<'a> {
    /// Holds `blocks` blocks, which the caller has added to the totals of the state.
    pub(in crate::furrow) const fn new(tree: &'a Tree, blocks: u64) -> Self {
        Self { tree, blocks }
    }

    /// Hands `blocks` blocks to the write buffer, which holds their room from now on.
    pub(super) fn hand_to_buffer(&mut self, blocks: u64) {
        self.blocks = self.blocks.checked_sub(blocks).expect("an operation uses what it asked for");
    }

    /// Gives back the rest under the lock that the operation already has.
    pub(in crate::furrow) fn end(&mut self, state: &mut State) {
        state.rows.totals.remove_pending(std::mem::take(&mut self.blocks));
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        // After a panic the lock is poisoned, and a second panic would hide the first.
        if self.blocks > 0 && !std::thread::panicking() {
            self.tree.write_accounts().rows.totals.remove_pending(self.blocks);
        }
    }
}
