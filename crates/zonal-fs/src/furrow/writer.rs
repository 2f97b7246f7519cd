//! The writer: places data in zones, and empties the write buffer.
//!
//! It never makes room: whoever needs room reclaims, and comes again.

use std::sync::Arc;

use super::format::BLOCK_BYTES;
use super::io::Drive;
use super::meters::Meters;
use super::sync::{Mutex, RwLock};
use super::tree::Tree;
use crate::vfs::Ino;

/// Places data in zones.
pub(super) struct Writer {
    pub(super) tree: Arc<Tree>,
    pub(super) drive: Arc<Drive>,
    pub(super) meters: Arc<Meters>,
    /// Blocks that the buffer holds before a writer empties a part of it.
    pub(super) buffer_max: u64,
    /// One empties the write buffer at a time, so that no block is written twice: the file whose turn
    /// is next.
    pub(super) flushing: Mutex<Ino>,
    /// Locked for reading by every thread that writes data to the drive, as long as it does. A
    /// thread that locks it for writing has waited for all writes under way.
    pub(super) placing: RwLock<()>,
    /// One resets at a time.
    pub(super) resetting: Mutex<()>,
}

impl Writer {
    /// With a buffer of so many bytes, or a zone's worth.
    pub(super) fn new(tree: Arc<Tree>, meters: Arc<Meters>, buffer_bytes: usize) -> Self {
        let drive = Arc::clone(&tree.drive);
        let buffered = (buffer_bytes / BLOCK_BYTES) as u64;
        let buffer_max = buffered.min(u64::from(drive.layout.zone_blocks));
        let (flushing, placing, resetting) =
            (Mutex::default(), RwLock::default(), Mutex::default());
        Self { tree, drive, meters, buffer_max, flushing, placing, resetting }
    }
}
