//! How much the view holds.

use std::sync::Arc;

use super::View;
use crate::furrow::table::memtable::Memtable;

/// Rows in a part take one byte in so many of memory, or fewer: new files one in 14.
const PACKED_SHARE: u64 = 4;

impl View {
    /// Bytes of the memtable.
    pub(in crate::furrow) fn memtable_bytes(&self) -> usize {
        self.read_layers().memtable.bytes()
    }

    /// The memtable that is being written as a run, if one is.
    pub(in crate::furrow) fn frozen(&self) -> Option<Arc<Memtable>> {
        self.read_layers().frozen.clone()
    }

    /// Bytes that all rows will take in a copy of the table once those in memory, and `more` bytes
    /// of others, are written. Rows in memory that do not compress may take more; they are less
    /// than half a zone.
    pub(in crate::furrow) fn packed_bytes(&self, more: usize) -> u64 {
        let layers = self.read_layers();
        let memory = layers.memory().map(Memtable::bytes).sum::<usize>() + more;
        layers.levels_bytes + memory as u64 / PACKED_SHARE
    }
}
