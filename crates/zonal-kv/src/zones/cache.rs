//! What was read of zone files, kept: writes are direct, so nobody else keeps it.
//!
//! A piece is 64 KiB, or what the zone file had of them. A second-chance scan evicts what was not used.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// Bytes of a piece.
pub(crate) const PIECE: u64 = 64 << 10;

/// A zone file, and which of its pieces.
type Key = (u32, u64);

#[derive(Default)]
pub(crate) struct Cache {
    pieces: BTreeMap<Key, (Arc<[u8]>, bool)>,
    scan: VecDeque<Key>,
    bytes: u64,
    bytes_max: u64,
    resets: u64,
}

impl Cache {
    pub(crate) fn new(bytes_max: u64) -> Self {
        Self { bytes_max, ..Self::default() }
    }

    /// A piece, if it is there up to byte `end` of it.
    pub(crate) fn get(&mut self, key: Key, end: u64) -> Option<Arc<[u8]>> {
        let (data, used) = self.pieces.get_mut(&key)?;
        *used = true;
        (data.len() as u64 >= end).then(|| Arc::clone(data))
    }

    /// How often a zone was reset: what was read before another count is not kept.
    pub(crate) fn resets(&self) -> u64 {
        self.resets
    }

    /// Keeps a piece that was read when the count of resets was `resets`.
    pub(crate) fn put(&mut self, key: Key, data: Arc<[u8]>, resets: u64) {
        if resets != self.resets {
            return;
        }
        self.bytes += data.len() as u64;
        match self.pieces.insert(key, (data, false)) {
            Some((old, _)) => self.bytes -= old.len() as u64,
            None => self.scan.push_back(key),
        }
        while self.bytes > self.bytes_max {
            let Some(key) = self.scan.pop_front() else { return };
            match self.pieces.get_mut(&key) {
                Some((_, used)) if *used => {
                    *used = false;
                    self.scan.push_back(key);
                }
                Some((data, _)) => {
                    self.bytes -= data.len() as u64;
                    self.pieces.remove(&key);
                }
                None => {}
            }
        }
    }

    /// Forgets a zone that is reset.
    pub(crate) fn forget(&mut self, zone: u32) {
        self.resets += 1;
        let keys: Vec<Key> =
            self.pieces.range((zone, 0)..=(zone, u64::MAX)).map(|p| *p.0).collect();
        for key in keys {
            if let Some((data, _)) = self.pieces.remove(&key) {
                self.bytes -= data.len() as u64;
            }
        }
        self.scan.retain(|key| key.0 != zone);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(byte: u8) -> Arc<[u8]> {
        vec![byte; 100].into()
    }

    #[test]
    fn cache_keeps_used_and_drops_reset_pieces() {
        let mut cache = Cache::new(300);
        for at in 0..3 {
            cache.put((1, at), piece(1), 0);
        }
        assert!(cache.get((1, 0), 100).is_some());
        assert!(cache.get((1, 0), 101).is_none(), "there was no more when it was read");
        cache.put((2, 0), piece(2), 0);
        assert!(cache.get((1, 0), 1).is_some() && cache.get((1, 1), 1).is_none());
        cache.forget(1);
        assert!(cache.get((1, 0), 1).is_none() && cache.get((2, 0), 1).is_some());
        cache.put((1, 0), piece(1), 0);
        assert!(cache.get((1, 0), 1).is_none(), "it was read before the reset");
        assert_eq!(cache.bytes, 100);
    }
}
