//! One access of a command to a namespace, and the count of all.

use std::sync::atomic::{AtomicU64, Ordering};

use zonal::nvme::decode::Durability;

/// The operation at a block.
pub(crate) enum Access<'a> {
    /// Read.
    Read(&'a mut [u8]),
    /// Write.
    Write(&'a [u8], Durability),
    /// Append to the zone that starts there.
    Append(&'a [u8], Durability),
}

/// Counters of a namespace since it is served.
#[derive(Debug, Default)]
pub(crate) struct Usage {
    pub(crate) reads: AtomicU64,
    pub(crate) read_bytes: AtomicU64,
    pub(crate) writes: AtomicU64,
    pub(crate) written_bytes: AtomicU64,
}

impl Usage {
    pub(crate) fn read(&self, bytes: usize) {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.read_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(crate) fn written(&self, bytes: usize) {
        self.writes.fetch_add(1, Ordering::Relaxed);
        self.written_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}
