//! Debt: moves of blocks that writers owe for room.

use std::sync::atomic::{AtomicU64, Ordering};

use zonal_placement::pace::{BLOCK, STEP_BLOCKS};

/// Blocks that a step of reclaim moves, in the unit of prices.
pub(super) const STEP: u64 = STEP_BLOCKS as u64 * BLOCK;

/// The debt of all writers together, in 256ths of a moved block. The worker pays it as well.
#[derive(Debug, Default)]
pub(super) struct Debt(AtomicU64);

impl Debt {
    /// Adds the price of a write.
    pub(super) fn add(&self, price: u64) {
        self.0.fetch_add(price, Ordering::Relaxed);
    }

    /// Pays with blocks that a thread has moved.
    pub(super) fn pay(&self, blocks: u64) {
        let less = |owed: u64| Some(owed.saturating_sub(blocks.saturating_mul(BLOCK)));
        let change = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        change.expect("it always changes");
    }

    /// Drops all of it: no victim is worth this price.
    pub(super) fn forgive(&self) {
        self.0.store(0, Ordering::Relaxed);
    }

    /// Whether writers owe a whole step.
    pub(super) fn is_step_owed(&self) -> bool {
        self.0.load(Ordering::Relaxed) >= STEP
    }
}
