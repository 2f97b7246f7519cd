//! `io_uring`: rings that threads take and give back, and reads and writes of a file side by side.
//!
//! A ring is used by one thread at a time, which does not return before every entry that it has
//! submitted is completed: until then, the kernel uses memory of the caller.
#![expect(
    unsafe_code,
    reason = "the kernel gets addresses of memory that it uses beyond the system call"
)]

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::{Mutex, PoisonError};

use io_uring::{IoUring, cqueue, opcode, squeue, types};

/// Entries at once: 4 MiB, in pieces of the smallest usual limit.
pub(crate) const DEPTH: usize = 32;

/// The rings of one drive: as many as threads have used it at once.
pub(crate) struct Rings<S: squeue::EntryMarker, C: cqueue::EntryMarker> {
    idle: Mutex<Vec<IoUring<S, C>>>,
}

impl<S: squeue::EntryMarker, C: cqueue::EntryMarker> Rings<S, C> {
    /// Creates the first one.
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self { idle: Mutex::new(vec![make()?]) })
    }

    /// Runs `step` with a ring that no other thread has.
    pub(crate) fn with<T>(&self, step: impl FnOnce(&mut IoUring<S, C>) -> T) -> io::Result<T> {
        let reused = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut ring = reused.map_or_else(make, Ok)?;
        let done = step(&mut ring);
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(ring);
        Ok(done)
    }
}

fn make<S: squeue::EntryMarker, C: cqueue::EntryMarker>() -> io::Result<IoUring<S, C>> {
    IoUring::builder().build(u32::try_from(DEPTH).expect("small"))
}

/// Submits the queued entries, and hands `count` completions to `done`.
pub(crate) fn complete<S: squeue::EntryMarker, C: cqueue::EntryMarker>(
    ring: &mut IoUring<S, C>,
    count: usize,
    mut done: impl FnMut(C),
) {
    let mut left = count;
    while left > 0 {
        if let Err(error) = ring.submit_and_wait(left) {
            match error.kind() {
                // A signal, or out of memory or queue space for the moment.
                io::ErrorKind::Interrupted
                | io::ErrorKind::WouldBlock
                | io::ErrorKind::ResourceBusy => std::thread::yield_now(),
                _ => give_up(&error),
            }
        }
        for entry in ring.completion() {
            done(entry);
            left -= 1;
        }
    }
}

/// Aborts the process: the kernel may still write to memory of the caller, and completions cannot
/// be received any more. Returning would let the caller free that memory.
#[expect(clippy::print_stderr, reason = "the process is aborted")]
fn give_up(error: &io::Error) -> ! {
    eprintln!("io_uring failed while commands were outstanding: {error}");
    std::process::abort()
}

/// One transfer: a byte of the file, and the memory.
pub(crate) enum Transfer<'a> {
    /// From the file.
    Fill(u64, &'a mut [u8]),
    /// To the file.
    Take(u64, &'a [u8]),
}

impl Transfer<'_> {
    /// How many bytes.
    pub(crate) fn len(&self) -> usize {
        match self {
            Transfer::Fill(_, bytes) => bytes.len(),
            Transfer::Take(_, bytes) => bytes.len(),
        }
    }
}

/// The rings of reads and writes.
pub(crate) type FileRings = Rings<squeue::Entry, cqueue::Entry>;

impl FileRings {
    /// `None` where `io_uring` is disabled.
    pub(crate) fn of_kernel() -> Option<Self> {
        let unavailable = |error: &_| tracing::debug!(%error, "io_uring is not available");
        Self::new().inspect_err(unavailable).ok()
    }

    /// Runs transfers side by side. Returns the kernel's result of each: bytes, or a negative
    /// errno.
    pub(crate) fn run(&self, file: &File, transfers: &mut [Transfer<'_>]) -> io::Result<Vec<i32>> {
        self.with(|ring| {
            let mut results = Vec::with_capacity(transfers.len());
            for transfers in transfers.chunks_mut(DEPTH) {
                results.extend(run_round(ring, file, transfers));
            }
            results
        })
    }
}

fn run_round(ring: &mut IoUring, file: &File, transfers: &mut [Transfer<'_>]) -> Vec<i32> {
    let mut results = vec![0; transfers.len()];
    let file = types::Fd(file.as_raw_fd());
    // The kernel transfers less than 2 GiB at once, and says how much.
    let len = |bytes: usize| u32::try_from(bytes).unwrap_or(1 << 30);
    for (number, transfer) in (0..).zip(&mut *transfers) {
        let entry = match transfer {
            Transfer::Fill(at, to) => {
                opcode::Read::new(file, to.as_mut_ptr(), len(to.len())).offset(*at).build()
            }
            Transfer::Take(at, from) => {
                opcode::Write::new(file, from.as_ptr(), len(from.len())).offset(*at).build()
            }
        };
        // SAFETY: the descriptor and the memory are borrowed by this function, which returns only
        // when the kernel has completed every entry.
        unsafe { ring.submission().push(&entry.user_data(number)) }
            .expect("the queue is empty and has the room");
    }
    complete(ring, transfers.len(), |entry: cqueue::Entry| {
        results[usize::try_from(entry.user_data()).expect("the number of a transfer")] =
            entry.result();
    });
    results
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transfers_in_parallel_move_their_own_bytes() {
        let Ok(rings) = FileRings::new() else {
            println!("not run: there is no io_uring");
            return;
        };
        let file = tempfile::tempfile().unwrap();
        let blocks: Vec<Vec<u8>> = (0..100_u8).map(|number| vec![number; 4096]).collect();
        let mut writes: Vec<_> =
            (0..).zip(&blocks).map(|(at, block)| Transfer::Take(at * 4096, block)).collect();
        assert_eq!(rings.run(&file, &mut writes).unwrap(), vec![4096; 100]);
        let mut found = vec![vec![0xee; 4096]; 101];
        let mut reads: Vec<_> = (0..)
            .zip(found.iter_mut().rev())
            .map(|(at, block)| Transfer::Fill(at * 4096, block))
            .collect();
        let results = rings.run(&file, &mut reads).unwrap();
        assert_eq!(
            (&results[..100], results[100]),
            (&[4096; 100][..], 0),
            "the last is beyond the end"
        );
        found.reverse();
        assert!(found[..100] == blocks);
    }
}
