//! Performs the requests for an ordinary disk.
//!
//! A thread performs its requests one after the other, in the order in which they arrived, and
//! answers each at once. A flush, and a write with FUA, waits for one flush that serves them all.

use std::io;

use io_uring::IoUring;
use rustix::io::Errno;
use zonal::disk::{Disk, DiskError, DiskShape, Durability, ZeroedSpace};
use zonal::{AlignedBytes, Lba, LbaCount};

use super::abi::{self, Descriptor, SECTOR_SHIFT, op};
use super::queue::{At, Worker};

/// A thread that serves a disk.
pub(super) struct DiskWork<'a> {
    pub(super) worker: &'a Worker,
    pub(super) disk: &'a dyn Disk,
}

/// Memory for the data of a request, with all pages present before the first request arrives.
pub(super) fn memory() -> AlignedBytes {
    let mut memory = AlignedBytes::zeroed(abi::IO_BYTES_MAX as usize);
    memory.fill(0);
    memory
}

/// Whether a request is answered only when it is durable.
fn is_durable(request: Descriptor) -> bool {
    match request.operation() {
        op::FLUSH => true,
        op::WRITE | op::WRITE_ZEROES => request.op_flags & abi::FUA != 0,
        _ => false,
    }
}

impl DiskWork<'_> {
    /// Serves requests, and answers each.
    pub(super) fn serve(
        &self,
        ring: &mut IoUring,
        arrived: &[u16],
        memory: &mut AlignedBytes,
    ) -> io::Result<()> {
        let mut unflushed = Vec::new();
        for &tag in arrived {
            let request = self.worker.descriptors.get(tag);
            let outcome = self.worker.guarded(|| self.perform(tag, request, memory));
            if is_durable(request) && outcome.is_ok() {
                unflushed.push((tag, outcome));
                continue;
            }
            self.worker.push_answer(ring, tag, outcome);
            ring.submit()?;
        }
        if !unflushed.is_empty() {
            let flushed = self.worker.guarded(|| self.disk.flush().map_err(|error| errno(&error)));
            for (tag, outcome) in unflushed {
                self.worker.push_answer(ring, tag, flushed.and(outcome));
            }
        }
        Ok(())
    }

    /// Performs a request, and leaves its flush to the caller.
    fn perform(&self, tag: u16, request: Descriptor, memory: &mut [u8]) -> Result<At, Errno> {
        let range = Range::of(&self.disk.shape(), request)?;
        let data = || {
            let bytes = usize::try_from(request.count).ok().map(|sectors| sectors << SECTOR_SHIFT);
            bytes.filter(|bytes| *bytes <= abi::IO_BYTES_MAX as usize).ok_or(Errno::INVAL)
        };
        let done = match request.operation() {
            op::READ => {
                let buffer = &mut memory[..data()?];
                self.disk.read(range.lba, buffer).map_err(|error| errno(&error))?;
                self.worker.give(tag, buffer)?;
                return Ok(At::bytes(buffer.len()));
            }
            op::WRITE => {
                let buffer = &mut memory[..data()?];
                self.worker.take(tag, buffer)?;
                let written = self.disk.write(range.lba, buffer, Durability::Later);
                return written.map(|()| At::bytes(buffer.len())).map_err(|error| errno(&error));
            }
            op::FLUSH => Ok(()),
            op::DISCARD => self.disk.discard(range.lba, range.blocks),
            op::WRITE_ZEROES => {
                let space = match request.op_flags & abi::NOUNMAP {
                    0 => ZeroedSpace::Free,
                    _ => ZeroedSpace::Keep,
                };
                self.disk.write_zeroes(range.lba, range.blocks, space, Durability::Later)
            }
            _ => return Err(Errno::OPNOTSUPP),
        };
        // The driver takes these operations for done, without a length.
        done.map(|()| At::bytes(0)).map_err(|error| errno(&error))
    }
}

/// The blocks of a request.
struct Range {
    lba: Lba,
    blocks: LbaCount,
}

impl Range {
    /// The blocks of `request`; an error if they are not whole. The kernel sends whole blocks only.
    fn of(shape: &DiskShape, request: Descriptor) -> Result<Self, Errno> {
        let shift = shape.block_size.shift() - SECTOR_SHIFT;
        let (sector, count) = (request.sector, u64::from(request.count));
        if request.operation() != op::FLUSH && (sector | count) & ((1 << shift) - 1) != 0 {
            return Err(Errno::INVAL);
        }
        Ok(Self { lba: Lba::new(sector >> shift), blocks: LbaCount::new(count >> shift) })
    }
}

/// The errno for the kernel, which `blk_errors[]` in `block/blk-core.c` maps.
fn errno(error: &DiskError) -> Errno {
    match error {
        DiskError::ReadOnly | DiskError::OutOfRange { .. } | DiskError::Unaligned { .. } => {
            tracing::debug!(%error, "refused");
        }
        failed => tracing::error!(error = %failed, "the disk failed"),
    }
    error.errno()
}

#[cfg(test)]
mod tests {
    use zonal::{BlockSize, ByteCount};

    use super::*;

    fn shape(block_size: BlockSize) -> DiskShape {
        DiskShape {
            block_size,
            physical_size: BlockSize::B4096,
            blocks: LbaCount::new(1 << 20),
            atomic: ByteCount::new(1 << 20),
            is_read_only: false,
        }
    }

    fn request(operation: u8, flags: u32, sector: u64, count: u32) -> Descriptor {
        Descriptor { op_flags: u32::from(operation) | flags, count, sector, address: 0 }
    }

    #[test]
    fn ublk_request_names_whole_blocks_of_disk() {
        let of = |block_size, sector, count| {
            let found = Range::of(&shape(block_size), request(op::READ, 0, sector, count));
            found.map(|range| (range.lba.get(), range.blocks.get()))
        };
        assert_eq!(of(BlockSize::B4096, 16, 8), Ok((2, 1)));
        assert_eq!(of(BlockSize::B512, 17, 3), Ok((17, 3)));
        assert_eq!(of(BlockSize::B4096, 17, 8), Err(Errno::INVAL));
        assert_eq!(of(BlockSize::B4096, 16, 7), Err(Errno::INVAL));
    }

    #[test]
    fn ublk_flush_and_fua_wait_for_one_flush() {
        for (operation, flags, expected) in [
            (op::FLUSH, 0, true),
            (op::WRITE, abi::FUA, true),
            (op::WRITE_ZEROES, abi::FUA | abi::NOUNMAP, true),
            (op::WRITE, 0, false),
            (op::WRITE_ZEROES, abi::NOUNMAP, false),
            (op::READ, abi::FUA, false),
            (op::DISCARD, 0, false),
        ] {
            assert_eq!(is_durable(request(operation, flags, 0, 8)), expected, "{operation}");
        }
    }
}
