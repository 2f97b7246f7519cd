//! NVMe commands by `io_uring`: `IORING_OP_URING_CMD` with `NVME_URING_CMD_IO`
//! (`include/uapi/linux/nvme_ioctl.h`).
//!
//! A ring is used by one thread at a time, which does not return before every command that it has
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

use super::command::{Command, Failure, Order, RawCommand};

/// `NVME_URING_CMD_IO`.
const URING_CMD_IO: u32 = 0xc048_4e80;

/// Commands at once: 4 MiB, in pieces of the smallest usual limit.
const DEPTH: usize = 32;

/// A ring with entries large enough for NVMe: submissions of 128 bytes, completions of 32.
pub(super) type Ring = IoUring<squeue::Entry128, cqueue::Entry32>;

/// The rings of one drive: as many as threads have used it at once.
pub(super) struct Rings {
    idle: Mutex<Vec<Ring>>,
}

impl Rings {
    /// Creates the first one.
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self { idle: Mutex::new(vec![make()?]) })
    }

    /// A ring for the calling thread, until it is given back.
    pub(super) fn take(&self) -> io::Result<Ring> {
        let reused = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        reused.map_or_else(make, Ok)
    }

    /// Gives a ring back.
    pub(super) fn give_back(&self, ring: Ring) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(ring);
    }
}

/// Runs commands. Returns the result of the last one, or the index of the first that failed and why.
pub(super) fn run(
    ring: &mut Ring,
    device: &File,
    commands: &mut [Command],
    order: Order,
) -> Result<u64, (usize, Failure)> {
    let mut last = 0;
    for (round, commands) in commands.chunks_mut(DEPTH).enumerate() {
        let outcomes = run_round(ring, device, commands, order);
        for (number, (returned, result)) in outcomes.into_iter().take(commands.len()).enumerate() {
            last = Failure::check(returned, result).map_err(|why| (round * DEPTH + number, why))?;
        }
    }
    Ok(last)
}

fn make() -> io::Result<Ring> {
    Ring::builder().build(u32::try_from(DEPTH).expect("small"))
}

/// Runs at most [`DEPTH`] commands and returns what the kernel returned for each.
///
/// Commands that run one by one are linked. A link breaks when the kernel fails a command, not when the
/// drive does; then the next write fails because it is not at the write pointer.
fn run_round(
    ring: &mut Ring,
    device: &File,
    commands: &mut [Command],
    order: Order,
) -> [(i32, u64); DEPTH] {
    let mut outcomes = [(0, 0); DEPTH];
    let count = commands.len();
    for (number, command) in commands.iter_mut().enumerate() {
        let bytes: [u8; 80] = zerocopy::transmute!(RawCommand::of(command));
        let linked = order == Order::OneByOne && number + 1 < count;
        let flags = if linked { squeue::Flags::IO_LINK } else { squeue::Flags::empty() };
        let entry = opcode::UringCmd80::new(types::Fd(device.as_raw_fd()), URING_CMD_IO)
            .cmd(bytes)
            .build()
            .user_data(number as u64)
            .flags(flags);
        // SAFETY: the descriptor and the memory of `command` are borrowed by this function, which
        // returns only when the kernel has completed every entry.
        unsafe { ring.submission().push(&entry) }.expect("the queue is empty and has the room");
    }
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
            let number = usize::try_from(entry.user_data()).expect("the number of a command");
            outcomes[number] = (entry.result(), entry.big_cqe()[0]);
            left -= 1;
        }
    }
    outcomes
}

/// Aborts the process: commands may still write to memory of the caller, and their completions cannot be
/// received any more. Returning would let the caller free that memory.
#[expect(clippy::print_stderr, reason = "the process is aborted")]
fn give_up(error: &io::Error) -> ! {
    eprintln!("io_uring failed while commands were outstanding: {error}");
    std::process::abort()
}
