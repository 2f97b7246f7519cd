//! Takes the answer to the request of one entry, from any thread.

use std::io::{self, IoSlice};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use zerocopy::FromBytes;

use crate::Errno;
use crate::abi::OutHeader;
use crate::answer::{Fill, ReplySink, Status};
use crate::pages::{PAGE, Pages};

/// Outcome of a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outcome {
    pub(super) error: i32,
    /// Bytes of the answer.
    pub(super) len: usize,
}

/// Takes one answer at a time.
pub(super) struct Slot {
    /// Longest answer in bytes.
    max: usize,
    state: Mutex<State>,
    given: Condvar,
}

#[derive(Default)]
struct State {
    /// The request that waits for its answer; 0 for none.
    unique: u64,
    /// Memory of the entry, unless the request has a payload there.
    memory: Option<Pages>,
    /// The answer, if the payload of the request occupies the memory.
    beside: Vec<u8>,
    given: Option<Outcome>,
}

impl Slot {
    pub(super) fn new(max: usize) -> Self {
        Self { max, state: Mutex::default(), given: Condvar::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the answer to request `unique` from now on: into `memory`, after its first page, if
    /// there is any.
    pub(super) fn open(&self, unique: u64, memory: Option<Pages>) {
        let mut state = self.state();
        state.unique = unique;
        state.memory = memory;
        state.given = None;
    }

    /// Whether the answer has come.
    pub(super) fn is_given(&self) -> bool {
        self.state().given.is_some()
    }

    /// Waits up to `limit` for the answer; returns whether it has come.
    pub(super) fn wait(&self, limit: Duration) -> bool {
        let missing = |state: &mut State| state.given.is_none();
        let waited = self.given.wait_timeout_while(self.state(), limit, missing);
        waited.unwrap_or_else(PoisonError::into_inner).0.given.is_some()
    }

    /// Stops taking an answer. Returns the memory of the entry with the answer after its first
    /// page; `kept` is that memory if [`open`](Self::open) did not get it.
    pub(super) fn close(&self, kept: Option<Pages>) -> (Pages, Outcome) {
        let mut state = self.state();
        let given =
            state.given.take().unwrap_or(Outcome { error: -Errno::IO.raw_os_error(), len: 0 });
        state.unique = 0;
        let memory = match (state.memory.take(), kept) {
            (Some(memory), _) => memory,
            (None, kept) => {
                let mut memory = kept.expect("kept where it was not lent");
                memory.bytes_mut()[PAGE..][..given.len].copy_from_slice(&state.beside[..given.len]);
                memory
            }
        };
        (memory, given)
    }

    /// The state, if request `unique` still waits.
    fn awaited(&self, unique: u64) -> io::Result<MutexGuard<'_, State>> {
        let state = self.state();
        if state.unique != unique || state.given.is_some() {
            return Err(Errno::NOENT.into());
        }
        Ok(state)
    }

    fn give(&self, mut state: MutexGuard<'_, State>, given: Outcome) {
        state.given = Some(given);
        drop(state);
        self.given.notify_one();
    }
}

impl ReplySink for Slot {
    fn answer(&self, parts: &[IoSlice<'_>]) -> io::Result<()> {
        let invalid = || io::Error::from(Errno::INVAL);
        let (first, rest) = parts.split_first().ok_or_else(invalid)?;
        let header = OutHeader::read_from_bytes(first).map_err(|_| invalid())?;
        let mut state = self.awaited(header.unique)?;
        let len: usize = rest.iter().map(|part| part.len()).sum();
        if len > self.max {
            tracing::error!(len, "the answer is too long");
            self.give(state, Outcome { error: -Errno::IO.raw_os_error(), len: 0 });
            return Err(invalid());
        }
        let State { memory, beside, .. } = &mut *state;
        let mut target = match memory {
            Some(memory) => &mut memory.bytes_mut()[PAGE..],
            None => {
                beside.resize(len.max(beside.len()), 0);
                &mut beside[..]
            }
        };
        for part in rest {
            let (place, after) = target.split_at_mut(part.len());
            place.copy_from_slice(part);
            target = after;
        }
        self.give(state, Outcome { error: header.error, len });
        Ok(())
    }

    fn fill(&self, unique: u64, size: usize, fill: &mut Fill<'_>) -> io::Result<()> {
        let mut state = self.awaited(unique)?;
        if size > self.max {
            self.give(state, Outcome { error: -Errno::INVAL.raw_os_error(), len: 0 });
            return Err(Errno::INVAL.into());
        }
        let State { memory, beside, .. } = &mut *state;
        let target = match memory {
            Some(memory) => &mut memory.bytes_mut()[PAGE..][..size],
            None => {
                beside.resize(size.max(beside.len()), 0);
                &mut beside[..size]
            }
        };
        let filled = fill(target);
        let error = Status::of(unique, filled).error;
        self.give(state, Outcome { error, len: filled.unwrap_or(0) });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(slot: &Slot, error: i32, unique: u64, data: &[u8]) -> io::Result<()> {
        crate::answer::send(slot, Status { error, unique }, &[data])
    }

    #[test]
    fn answer_lies_after_first_page() {
        let slot = Slot::new(8);
        for lent in [true, false] {
            let memory = Pages::new(PAGE + 8);
            let (lent, kept) = if lent { (Some(memory), None) } else { (None, Some(memory)) };
            slot.open(6, lent);
            assert!(!slot.is_given());
            answer(&slot, 0, 6, b"seven").unwrap();
            assert!(slot.wait(Duration::ZERO));
            let (memory, given) = slot.close(kept);
            assert_eq!((given.error, &memory.bytes()[PAGE..][..given.len]), (0, &b"seven"[..]));
        }
    }

    #[test]
    fn answer_is_taken_once_and_only_by_waiting_request() {
        let slot = Slot::new(8);
        slot.open(6, Some(Pages::new(PAGE + 8)));
        assert!(answer(&slot, 0, 4, b"").is_err());
        answer(&slot, -2, 6, b"").unwrap();
        assert!(answer(&slot, 0, 6, b"again").is_err());
        let (_, given) = slot.close(None);
        assert_eq!((given.error, given.len), (-2, 0));
        assert!(answer(&slot, 0, 6, b"late").is_err());
    }

    #[test]
    fn answer_too_long_is_error_of_caller() {
        let slot = Slot::new(8);
        slot.open(6, Some(Pages::new(PAGE + 8)));
        assert!(answer(&slot, 0, 6, b"nine byte").is_err());
        assert_eq!(slot.close(None).1.error, -Errno::IO.raw_os_error());
    }
}
