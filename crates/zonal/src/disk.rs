//! The trait of an ordinary disk: blocks that can be written anywhere, in any order and any number
//! of times.
//!
//! Front ends (ublk, NVMe, NBD) serve one, and a file of Furrow is one. The rules are those that
//! Linux expects of a block device (its documentation, `block/writeback_cache_control.rst`), and
//! NVMe of a namespace of the NVM command set with a volatile write cache.

use std::error::Error as StdError;

use rustix::io::Errno;

use crate::nvme::{NvmeStatus, status};
use crate::{BlockSize, ByteCount, DeviceError, Lba, LbaCount};

/// Result of a request to a disk.
pub type Result<T> = std::result::Result<T, DiskError>;

/// Size of a disk, and its promises beyond the rules for all disks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskShape {
    /// Bytes of the blocks that requests name.
    pub block_size: BlockSize,
    /// Bytes that the disk writes at once, at least a block. It reads and writes back the rest of
    /// such a unit itself, and after a power cut the unit is old or new as a whole.
    pub physical_size: BlockSize,
    /// Blocks of the whole disk.
    pub blocks: LbaCount,
    /// A write of at most this many bytes is there as a whole after a power cut, or is not there.
    pub atomic: ByteCount,
    /// Whether it refuses writes.
    pub is_read_only: bool,
}

impl DiskShape {
    /// Bytes of the whole disk.
    pub const fn bytes(&self) -> u64 {
        self.blocks.get() << self.block_size.shift()
    }

    /// Checks that a range of blocks is within the disk, and returns its bytes.
    pub fn range(&self, lba: Lba, blocks: LbaCount) -> Result<std::ops::Range<u64>> {
        let end = lba.get().checked_add(blocks.get()).filter(|&end| end <= self.blocks.get());
        let Some(end) = end else {
            return Err(DiskError::OutOfRange { lba, blocks, size: self.blocks });
        };
        let shift = self.block_size.shift();
        Ok(lba.get() << shift..end << shift)
    }

    /// The same for the blocks that a buffer of `bytes` bytes holds.
    pub fn range_of(&self, lba: Lba, bytes: usize) -> Result<std::ops::Range<u64>> {
        let (bytes, block_size) = (bytes as u64, self.block_size.bytes());
        if !bytes.is_multiple_of(block_size) {
            return Err(DiskError::Unaligned { bytes, block_size });
        }
        self.range(lba, LbaCount::new(bytes / block_size))
    }
}

/// When a write survives a power cut.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// After the next [flush](Disk::flush) that returns.
    #[default]
    Later,
    /// When it returns (FUA, force unit access). This says nothing about other writes.
    AtOnce,
}

/// Whether a disk keeps the space of blocks that it writes with zeroes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZeroedSpace {
    /// A thin disk gives it back.
    Free,
    /// The disk keeps it, so that later writes to the blocks do not fail for want of space.
    Keep,
}

/// Whether a range of a disk has been written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// It holds data.
    Data,
    /// It reads as zeroes. `takes_space` says whether the disk keeps space for it.
    Zeroes {
        /// Whether a write to it needs no new space.
        takes_space: bool,
    },
}

/// A part of a disk of which all blocks have the same kind of content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskExtent {
    /// First block.
    pub lba: Lba,
    /// Number of blocks.
    pub blocks: LbaCount,
    /// Their content.
    pub content: Content,
}

/// An ordinary disk.
///
/// - A read that begins after a write has returned gives the written data, whichever thread asks.
///   Of blocks that are written meanwhile it gives the old or the new content, each physical unit
///   as a whole.
/// - After a power cut each physical unit has the content of the last flush that returned, or of a
///   later write. A write within [`DiskShape::atomic`] is there as a whole or not at all.
/// - After a flush has failed, all later ones fail until the disk is opened again: the data of the
///   first may be lost.
///
/// Buffers are whole blocks. Calls block, take `&self` and may come from any thread.
pub trait Disk: Send + Sync {
    /// Size and promises. The number of blocks changes when the disk is resized.
    fn shape(&self) -> DiskShape;

    /// Reads whole blocks from `lba` on. Blocks that were never written read as zeroes.
    fn read(&self, lba: Lba, buffer: &mut [u8]) -> Result<()>;

    /// Writes whole blocks from `lba` on.
    fn write(&self, lba: Lba, data: &[u8], durability: Durability) -> Result<()>;

    /// Makes everything durable that returned before this call.
    fn flush(&self) -> Result<()>;

    /// Says that the content of blocks is not needed any more. They read as zeroes from now on; a
    /// part of a physical unit that the range covers only in part may keep its content. A thin disk
    /// gives the space back. Old content does not come back once a flush has returned.
    fn discard(&self, lba: Lba, blocks: LbaCount) -> Result<()>;

    /// Makes blocks read as zeroes.
    fn write_zeroes(
        &self,
        lba: Lba,
        blocks: LbaCount,
        space: ZeroedSpace,
        durability: Durability,
    ) -> Result<()>;

    /// Names the extents of a range in order, until `each` returns `false`. Two that follow one
    /// another may have the same content.
    fn extents(
        &self,
        lba: Lba,
        blocks: LbaCount,
        each: &mut dyn FnMut(DiskExtent) -> bool,
    ) -> Result<()>;

    /// Registers `resized` for a front end that tells its clients: the disk calls it with the new
    /// shape each time its size has changed. A later call replaces an earlier one. By default, for
    /// a disk that cannot change its size while it is open, this does nothing.
    fn on_resize(&self, _resized: Resized) {}
}

/// Is called when a disk has got another size.
pub type Resized = Box<dyn Fn(DiskShape) + Send + Sync>;

/// Why a request to a disk failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DiskError {
    /// The range ends behind the disk.
    #[error("blocks {lba} to {} are not within the disk of {size} blocks", .lba.get().saturating_add(.blocks.get()).saturating_sub(1))]
    OutOfRange {
        /// First block.
        lba: Lba,
        /// Number of blocks.
        blocks: LbaCount,
        /// Blocks of the disk.
        size: LbaCount,
    },
    /// The buffer is no whole number of blocks.
    #[error("{bytes} bytes are no whole number of blocks of {block_size} bytes")]
    Unaligned {
        /// Bytes of the buffer.
        bytes: u64,
        /// Bytes of a block.
        block_size: u64,
    },
    /// The disk takes no writes.
    #[error("the disk is read-only")]
    ReadOnly,
    /// A thin disk found no space on its drive.
    #[error("the drive of this thin disk is full")]
    NoSpace,
    /// A layer below failed.
    #[error("{source}")]
    Below {
        /// As an errno.
        errno: Errno,
        /// The failure.
        source: Box<dyn StdError + Send + Sync>,
    },
}

impl DiskError {
    /// The errno that a Linux block device would give.
    pub const fn errno(&self) -> Errno {
        self.codes().0
    }

    /// The status that an NVMe controller would give.
    pub const fn nvme_status(&self) -> NvmeStatus {
        self.codes().1
    }

    /// The one table of both.
    const fn codes(&self) -> (Errno, NvmeStatus) {
        match self {
            Self::OutOfRange { .. } => (Errno::IO, status::LBA_OUT_OF_RANGE),
            Self::Unaligned { .. } => (Errno::INVAL, status::INVALID_FIELD),
            Self::ReadOnly => (Errno::ROFS, status::WRITE_PROTECTED),
            Self::NoSpace => (Errno::NOSPC, status::CAPACITY_EXCEEDED),
            Self::Below { errno, .. } => (*errno, status::INTERNAL),
        }
    }
}

impl From<DeviceError> for DiskError {
    fn from(error: DeviceError) -> Self {
        Self::Below { errno: error.errno(), source: Box::new(error) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: DiskShape = DiskShape {
        block_size: BlockSize::B512,
        physical_size: BlockSize::B4096,
        blocks: LbaCount::new(100),
        atomic: ByteCount::new(1 << 20),
        is_read_only: false,
    };

    #[test]
    fn range_within_disk_has_its_bytes() {
        assert_eq!(SHAPE.bytes(), 51_200);
        assert_eq!(SHAPE.range(Lba::new(99), LbaCount::new(1)).ok(), Some(50_688..51_200));
        assert_eq!(SHAPE.range(Lba::new(100), LbaCount::ZERO).ok(), Some(51_200..51_200));
        assert_eq!(SHAPE.range_of(Lba::new(2), 1024).ok(), Some(1024..2048));
    }

    #[test]
    fn range_behind_disk_or_of_part_of_block_is_refused() {
        for (lba, blocks) in [(100, 1), (99, 2), (u64::MAX, 1), (0, u64::MAX), (101, 0)] {
            let refused = SHAPE.range(Lba::new(lba), LbaCount::new(blocks));
            assert!(matches!(refused, Err(DiskError::OutOfRange { .. })), "{lba} {blocks}");
        }
        let refused = SHAPE.range_of(Lba::ZERO, 700);
        assert!(matches!(refused, Err(DiskError::Unaligned { bytes: 700, block_size: 512 })));
    }

    #[test]
    fn disk_errors_have_errno_and_nvme_status() {
        let (lba, blocks) = (Lba::new(7), LbaCount::new(5));
        let table = [
            (DiskError::OutOfRange { lba, blocks, size: blocks }, Errno::IO, (0, 0x80)),
            (DiskError::Unaligned { bytes: 5, block_size: 512 }, Errno::INVAL, (0, 0x02)),
            (DiskError::ReadOnly, Errno::ROFS, (0, 0x20)),
            (DiskError::NoSpace, Errno::NOSPC, (0, 0x81)),
            (DiskError::from(DeviceError::Medium { lba }), Errno::IO, (0, 0x06)),
        ];
        for (error, errno, (kind, code)) in table {
            assert_eq!(error.errno(), errno, "{error}");
            assert_eq!(error.nvme_status(), NvmeStatus { kind, code }, "{error}");
        }
    }
}
