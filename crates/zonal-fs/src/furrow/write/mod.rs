//! The writer: places data in zones, and empties the write buffer.
//!
//! It never makes room: a caller that finds none reclaims and calls it again.

pub(super) mod buffer;
pub(super) mod chunk;
pub(super) mod order;
pub(super) mod place;
pub(super) mod reservation;
pub(super) mod resets;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use zonal::Clock;

use crate::furrow::drive::Drive;
use crate::furrow::format::BLOCK_BYTES;
use crate::furrow::meters::Meters;
use crate::furrow::sync::Mutex;
use crate::furrow::tree::Tree;
use crate::furrow::write::order::WriteOrder;

/// Places data in zones.
pub(super) struct Writer {
    pub(super) tree: Arc<Tree>,
    pub(super) drive: Arc<Drive>,
    pub(super) meters: Arc<Meters>,
    pub(super) clock: Arc<dyn Clock>,
    /// Blocks that the buffer holds before a writer empties a part of it.
    pub(super) buffer_max: u64,
    /// Held by the thread that empties the write buffer, so that no two threads write the same
    /// block.
    pub(super) flushing: Mutex<WriteOrder>,
    /// The drive has refused the last write-back.
    pub(super) has_refused: AtomicBool,
    /// Held by the thread that resets a zone.
    pub(super) resetting: Mutex<()>,
}

impl Writer {
    /// A writer with a buffer of this many bytes, at most a zone's worth.
    pub(super) fn new(
        tree: Arc<Tree>,
        meters: Arc<Meters>,
        clock: Arc<dyn Clock>,
        buffer_bytes: usize,
    ) -> Self {
        let drive = Arc::clone(&tree.drive);
        let buffered = (buffer_bytes / BLOCK_BYTES) as u64;
        let buffer_max = buffered.min(u64::from(drive.layout.zone_blocks));
        let (flushing, has_refused, resetting) = Default::default();
        Self { tree, drive, meters, clock, buffer_max, flushing, has_refused, resetting }
    }
}
