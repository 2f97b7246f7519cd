//! Reservations: space that a running operation holds.

use crate::furrow::metadata::State;
use crate::furrow::tree::Tree;

/// Space that a running operation holds. Dropping it gives back the unused rest.
pub(in crate::furrow) struct Reservation<'a> {
    tree: &'a Tree,
    /// Room on the drive.
    blocks: u64,
    /// Blocks by which a write may let a file grow.
    growth: u64,
    /// The writer's debt for the room, in the unit of [prices](zonal_placement::pace::price);
    /// `None` if room is plenty.
    price: Option<u64>,
}

impl<'a> Reservation<'a> {
    /// Holds room for `blocks` blocks at a price. The caller has added them to the pending ones.
    pub(in crate::furrow) const fn of_room(
        tree: &'a Tree,
        blocks: u64,
        price: Option<u64>,
    ) -> Self {
        Self { tree, blocks, growth: 0, price }
    }

    /// Holds logical space for a file to grow by `growth` blocks, and counts them.
    pub(in crate::furrow) fn of_growth(tree: &'a Tree, state: &mut State, growth: u64) -> Self {
        state.rows.totals.reserve(growth);
        Self { tree, blocks: 0, growth, price: None }
    }

    /// Adds the room of another reservation.
    pub(in crate::furrow) fn add(&mut self, mut other: Self) {
        self.blocks += std::mem::take(&mut other.blocks);
        self.growth += std::mem::take(&mut other.growth);
    }

    /// Hands `blocks` blocks to the write buffer, which holds their room from now on.
    pub(super) fn hand_to_buffer(&mut self, blocks: u64) {
        self.blocks = self.blocks.checked_sub(blocks).expect("an operation uses what it asked for");
    }

    /// The price, which the caller pays.
    pub(in crate::furrow) fn take_price(&mut self) -> Option<u64> {
        self.price.take()
    }

    /// Gives back the rest under the lock that the operation already has. The totals count the
    /// new blocks of a file by now.
    pub(in crate::furrow) fn end(&mut self, state: &mut State) {
        state.rows.totals.remove_pending(std::mem::take(&mut self.blocks));
        state.rows.totals.unreserve(std::mem::take(&mut self.growth));
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        // After a panic the lock is poisoned, and a second panic would hide the first.
        if self.blocks + self.growth > 0 && !std::thread::panicking() {
            let tree = self.tree;
            self.end(&mut tree.write_accounts());
        }
    }
}
