//! Debt: moves of blocks that writers owe for room.

use std::sync::atomic::{AtomicU64, Ordering};

use zonal_placement::pace::{BLOCK, STEP_BLOCKS};

use crate::furrow::drive::layout::Layout;
use crate::furrow::options::Seeks;

/// Blocks that a step of reclaim moves on a disk: 2 MiB. The two jumps of a step take as long as
/// the transfers. On a simulated HC620 that is 90 % full, steps of 256 KiB, as on flash, let 1,268
/// random writes of 4 KiB a second pass, these 2,985.
const DISK_STEP_BLOCKS: u32 = 512;

/// Blocks that a step of reclaim moves.
pub(super) fn step_blocks(layout: &Layout) -> u32 {
    match layout.seeks {
        Seeks::Free => STEP_BLOCKS,
        Seeks::Cost => DISK_STEP_BLOCKS.min(layout.zone_blocks / 4).max(STEP_BLOCKS),
    }
}

/// The debt of all writers together, in 256ths of a moved block. The worker pays it as well.
#[derive(Debug)]
pub(super) struct Debt {
    owed: AtomicU64,
    /// A step of reclaim, in the same unit.
    pub(super) step: u64,
}

impl Debt {
    pub(super) fn new(step_blocks: u32) -> Self {
        Self { owed: AtomicU64::new(0), step: u64::from(step_blocks) * BLOCK }
    }

    /// Adds the price of a write.
    pub(super) fn add(&self, price: u64) {
        self.owed.fetch_add(price, Ordering::Relaxed);
    }

    /// Pays with blocks that a thread has moved.
    pub(super) fn pay(&self, blocks: u64) {
        let less = |owed: u64| Some(owed.saturating_sub(blocks.saturating_mul(BLOCK)));
        let change = self.owed.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        change.expect("it always changes");
    }

    /// Drops all of it: no victim is worth this price.
    pub(super) fn forgive(&self) {
        self.owed.store(0, Ordering::Relaxed);
    }

    /// Whether writers owe a whole step.
    pub(super) fn is_step_owed(&self) -> bool {
        self.owed.load(Ordering::Relaxed) >= self.step
    }
}
