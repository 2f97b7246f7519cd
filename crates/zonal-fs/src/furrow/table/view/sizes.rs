//! Sizes of the layers.

use std::sync::Arc;

use super::View;
use crate::furrow::table::memtable::Memtable;

/// Bytes of rows in memory for each byte that they take in a part, at least: compressed rows of new
/// files take one byte in 14.
const PACKED_SHARE: u64 = 4;

impl View {
    /// Bytes of memory of the memtable.
    pub(in crate::furrow) fn memtable_bytes(&self) -> usize {
        self.read_layers().memtable.bytes()
    }

    /// The frozen memtable, if there is one.
    pub(in crate::furrow) fn frozen(&self) -> Option<Arc<Memtable>> {
        self.read_layers().frozen.clone()
    }

    /// Estimates the bytes of one copy of the table once all rows in memory, and `more` bytes of
    /// others, are written. Rows that do not compress take more, but rows in memory take less than
    /// half a zone.
    pub(in crate::furrow) fn packed_bytes(&self, more: usize) -> u64 {
        let layers = self.read_layers();
        let memory = layers.memory().map(Memtable::bytes).sum::<usize>() + more;
        layers.levels_bytes + memory as u64 / PACKED_SHARE
    }
}
