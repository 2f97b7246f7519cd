//! The memory of all connections of a server together: one budget, and the spare buffers in it.
//!
//! A connection *reserves* the memory that it may use, and the budget refuses a reservation that
//! does not fit: however many peers there are, and whatever they do, the buffers of connections
//! never exceed the budget. A connection reserves all memory for one request at a time before it
//! takes requests, so it makes progress whatever other peers do.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::AlignedBytes;

/// Most bytes of spare buffers. Reusing one saves filling a new one with zeroes.
const SPARE_MAX: usize = 32 << 20;
/// Smallest buffer.
const BUFFER_MIN: usize = 4096;

/// The budget of a server.
pub struct Budget {
    max: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    reserved: usize,
    /// By size.
    spare: BTreeMap<usize, Vec<AlignedBytes>>,
    spare_bytes: usize,
}

impl Budget {
    /// A budget of `max` bytes.
    pub fn new(max: usize) -> Arc<Self> {
        Arc::new(Self { max, state: Mutex::default() })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes `bytes` from the budget; `None` if they are not left.
    pub fn reserve(self: &Arc<Self>, bytes: usize) -> Option<Reservation> {
        let mut state = self.state();
        let reserved = state.reserved.checked_add(bytes).filter(|&sum| sum <= self.max)?;
        while reserved + state.spare_bytes > self.max {
            state.drop_one();
        }
        state.reserved = reserved;
        Some(Reservation { memory: Arc::clone(self), bytes })
    }

    /// A buffer for `bytes` of data, which the caller has reserved. Its content is arbitrary.
    pub fn buffer(self: &Arc<Self>, bytes: usize) -> Buffer {
        let size = Buffer::size(bytes);
        let spare = self.state().take(size);
        let data = spare.unwrap_or_else(|| AlignedBytes::zeroed(size));
        Buffer { memory: Arc::clone(self), data, bytes }
    }

    /// Keeps a buffer for the next request, if there is room for it.
    fn keep(&self, data: AlignedBytes) {
        let mut state = self.state();
        let spare_bytes = state.spare_bytes + data.len();
        if spare_bytes <= SPARE_MAX && state.reserved + spare_bytes <= self.max {
            state.spare_bytes = spare_bytes;
            state.spare.entry(data.len()).or_default().push(data);
        }
    }
}

impl State {
    fn take(&mut self, size: usize) -> Option<AlignedBytes> {
        let data = self.spare.get_mut(&size)?.pop()?;
        self.spare_bytes -= size;
        Some(data)
    }

    /// Frees one of the largest spare buffers.
    fn drop_one(&mut self) {
        let Some(mut largest) = self.spare.last_entry() else { return };
        match largest.get_mut().pop() {
            Some(data) => self.spare_bytes -= data.len(),
            None => drop(largest.remove()),
        }
    }
}

/// A part of the budget, given back when it is dropped.
pub struct Reservation {
    memory: Arc<Budget>,
    bytes: usize,
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.memory.state().reserved -= self.bytes;
    }
}

/// A buffer for the data of a request, where any device takes it without a copy. It becomes a spare
/// one when it is dropped.
pub struct Buffer {
    memory: Arc<Budget>,
    data: AlignedBytes,
    bytes: usize,
}

impl Buffer {
    /// Bytes that a buffer for `bytes` of data takes.
    pub fn size(bytes: usize) -> usize {
        bytes.next_power_of_two().max(BUFFER_MIN)
    }

    /// The data.
    pub fn data(&self) -> &[u8] {
        &self.data[..self.bytes]
    }

    /// The same, to be overwritten.
    pub fn data_mut(&mut self) -> &mut [u8] {
        &mut self.data[..self.bytes]
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        self.memory.keep(std::mem::take(&mut self.data));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budget_reservation_is_refused_until_return() {
        let memory = Budget::new(100);
        let first = memory.reserve(60);
        assert!(first.is_some() && memory.reserve(41).is_none());
        let second = memory.reserve(40);
        assert!(second.is_some() && memory.reserve(1).is_none());
        assert!(memory.reserve(usize::MAX).is_none());
        drop(first);
        assert!(memory.reserve(60).is_some());
    }

    #[test]
    fn budget_spare_buffer_is_reused_or_yields_to_reservation() {
        let memory = Budget::new(16384);
        let mut buffer = memory.buffer(5000);
        assert_eq!(buffer.data().len(), 5000);
        buffer.data_mut().fill(7);
        drop(buffer);
        assert_eq!(memory.state().spare_bytes, 8192);
        assert_eq!(memory.buffer(8192).data()[..5000], [7; 5000], "the same buffer");
        let all = memory.reserve(16384);
        assert!(all.is_some());
        assert_eq!(memory.state().spare_bytes, 0);
        drop(memory.buffer(1));
        assert_eq!(memory.state().spare_bytes, 0, "no room for a spare one");
    }
}
