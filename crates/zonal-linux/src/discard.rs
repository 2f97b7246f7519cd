//! Discards of block devices: `include/uapi/linux/fs.h`.
#![expect(unsafe_code, reason = "an ioctl is told by hand what the kernel reads and writes")]

use std::fs::File;

use rustix::io;
use rustix::ioctl::{Opcode, Setter, ioctl};

/// `BLKDISCARD`, whose number carries no size.
const DISCARD: Opcode = 0x1277;

/// Discards `len` bytes from byte `start` on.
pub(crate) fn discard(device: &File, start: u64, len: u64) -> io::Result<()> {
    // SAFETY: BLKDISCARD takes two `u64`, the first byte and how many, and only reads them.
    let request = unsafe { Setter::<DISCARD, [u64; 2]>::new([start, len]) };
    // SAFETY: as above.
    unsafe { ioctl(device, request) }
}
