//! NVMe commands by `io_uring`: `IORING_OP_URING_CMD` with `NVME_URING_CMD_IO`
//! (`include/uapi/linux/nvme_ioctl.h`).
#![expect(
    unsafe_code,
    reason = "the kernel gets addresses of memory that it uses beyond the system call"
)]

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use io_uring::{IoUring, cqueue, opcode, squeue, types};

use super::command::{Command, Failure, RawCommand};
use crate::ring::{self, DEPTH};

/// `NVME_URING_CMD_IO`.
const URING_CMD_IO: u32 = 0xc048_4e80;

/// Rings with entries large enough for NVMe: submissions of 128 bytes, completions of 32.
pub(super) type Rings = ring::Rings<squeue::Entry128, cqueue::Entry32>;

/// Runs commands side by side, but a linked command before the next one. Returns the result of
/// each.
pub(super) fn run(
    rings: &Rings,
    device: &File,
    commands: &mut [Command],
) -> io::Result<Vec<Result<u64, Failure>>> {
    rings.with(|ring| {
        let mut results = Vec::with_capacity(commands.len());
        for commands in commands.chunks_mut(DEPTH) {
            let outcomes = run_round(ring, device, commands);
            let outcomes = outcomes.into_iter().take(commands.len());
            results.extend(outcomes.map(|(returned, result)| Failure::check(returned, result)));
        }
        results
    })
}

/// Runs at most [`DEPTH`] commands and returns the kernel's result of each.
///
/// A link breaks when the kernel fails a command, not when the drive does; then the next write
/// fails because it is not at the write pointer.
fn run_round(
    ring: &mut IoUring<squeue::Entry128, cqueue::Entry32>,
    device: &File,
    commands: &mut [Command],
) -> [(i32, u64); DEPTH] {
    let mut outcomes = [(0, 0); DEPTH];
    let count = commands.len();
    for (number, command) in commands.iter_mut().enumerate() {
        let bytes: [u8; 80] = zerocopy::transmute!(RawCommand::of(command));
        let linked = command.is_linked() && number + 1 < count;
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
    ring::complete(ring, count, |entry: cqueue::Entry32| {
        let number = usize::try_from(entry.user_data()).expect("the number of a command");
        outcomes[number] = (entry.result(), entry.big_cqe()[0]);
    });
    outcomes
}
