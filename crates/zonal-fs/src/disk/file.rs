//! A disk that is a file: block `n` of the disk is block `n` of the file.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::io::Errno;
use zonal::disk::{
    Content, Disk, DiskError, DiskExtent, DiskShape, Durability, Result, ZeroedSpace,
};
use zonal::{BlockSize, ByteCount, Lba, LbaCount};

use super::settings::{DiskSettings, DiskSpace};
use crate::FsError;
use crate::vfs::{Allocate, Seek, WriteFlags};
use crate::volume::{self, File};

/// Bytes of a block of Furrow.
const PHYSICAL: BlockSize = BlockSize::B4096;

/// An open disk of a volume. Dropping it closes it, and makes nothing durable.
pub struct FurrowDisk {
    file: File,
    settings: DiskSettings,
    shape: DiskShape,
    has_failed: AtomicBool,
}

impl FurrowDisk {
    /// `file` is open and locked, and has `bytes` bytes. The volume writes `atomic` bytes as one
    /// operation.
    pub(super) const fn new(
        file: File,
        settings: DiskSettings,
        bytes: u64,
        atomic: ByteCount,
    ) -> Self {
        let shape = DiskShape {
            block_size: settings.block_size,
            physical_size: PHYSICAL,
            blocks: LbaCount::new(bytes >> settings.block_size.shift()),
            atomic,
            is_read_only: settings.is_read_only,
        };
        Self { file, settings, shape, has_failed: AtomicBool::new(false) }
    }

    /// Its settings.
    pub const fn settings(&self) -> DiskSettings {
        self.settings
    }

    fn check_writable(&self) -> Result<()> {
        if self.shape.is_read_only { Err(DiskError::ReadOnly) } else { Ok(()) }
    }

    /// Ends a request: makes its data durable if the request asks for that.
    fn end(&self, durability: Durability) -> Result<()> {
        match durability {
            Durability::Later => Ok(()),
            Durability::AtOnce => self.flush(),
        }
    }

    /// Makes bytes read as zeroes, and keeps their space unless `free`.
    fn zero(&self, bytes: Range<u64>, space: ZeroedSpace) -> Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        let how = match (self.settings.space, space) {
            (DiskSpace::Thin, ZeroedSpace::Free) => Allocate::Punch,
            (DiskSpace::Thick, _) | (_, ZeroedSpace::Keep) => Allocate::ZeroKeepSize,
        };
        self.file.allocate(how, bytes).map_err(disk_error)
    }

    fn seek(&self, what: Seek, from: u64) -> Result<u64> {
        match self.file.seek(what, from) {
            Err(error) if matches!(error.reason(), FsError::SeekBeyondEnd) => Ok(u64::MAX),
            found => found.map_err(disk_error),
        }
    }
}

impl Disk for FurrowDisk {
    fn shape(&self) -> DiskShape {
        self.shape
    }

    fn read(&self, lba: Lba, buffer: &mut [u8]) -> Result<()> {
        let bytes = self.shape.range_of(lba, buffer.len())?;
        self.file.read_exact_at(buffer, bytes.start).map_err(disk_error)
    }

    fn write(&self, lba: Lba, data: &[u8], durability: Durability) -> Result<()> {
        let bytes = self.shape.range_of(lba, data.len())?;
        self.check_writable()?;
        // A disk has no times of its own, and a change of the inode with every write costs rows.
        let how = WriteFlags::KEEP_TIMES | WriteFlags::KEEP_CAPABILITY;
        self.file.put(data, bytes.start, how).map_err(disk_error)?;
        self.end(durability)
    }

    fn flush(&self) -> Result<()> {
        if self.has_failed.load(Ordering::Acquire) {
            return Err(DiskError::FlushFailed);
        }
        self.file.sync_data().map_err(|error| {
            self.has_failed.store(true, Ordering::Release);
            disk_error(error)
        })
    }

    fn discard(&self, lba: Lba, blocks: LbaCount) -> Result<()> {
        let bytes = self.shape.range(lba, blocks)?;
        self.check_writable()?;
        // Zeroing a part of a physical unit would write it.
        let unit = PHYSICAL.bytes();
        let whole = bytes.start.next_multiple_of(unit)..bytes.end / unit * unit;
        self.zero(whole, ZeroedSpace::Free)
    }

    fn write_zeroes(
        &self,
        lba: Lba,
        blocks: LbaCount,
        space: ZeroedSpace,
        durability: Durability,
    ) -> Result<()> {
        let bytes = self.shape.range(lba, blocks)?;
        self.check_writable()?;
        self.zero(bytes, space)?;
        self.end(durability)
    }

    fn extents(
        &self,
        lba: Lba,
        blocks: LbaCount,
        each: &mut dyn FnMut(DiskExtent) -> bool,
    ) -> Result<()> {
        let bytes = self.shape.range(lba, blocks)?;
        let takes_space = self.settings.space == DiskSpace::Thick;
        let shift = self.shape.block_size.shift();
        let mut at = bytes.start;
        while at < bytes.end {
            let data = self.seek(Seek::Data, at)?;
            let (end, content) = if data > at {
                (data, Content::Zeroes { takes_space })
            } else {
                (self.seek(Seek::Hole, at)?, Content::Data)
            };
            let end = end.min(bytes.end);
            let blocks = LbaCount::new((end - at) >> shift);
            if !each(DiskExtent { lba: Lba::new(at >> shift), blocks, content }) {
                break;
            }
            at = end;
        }
        Ok(())
    }
}

/// A failure of the volume as one of the disk.
fn disk_error(error: volume::Error) -> DiskError {
    match error.reason() {
        FsError::NoSpace => DiskError::NoSpace,
        FsError::ReadOnly => DiskError::ReadOnly,
        reason => DiskError::Below {
            errno: Errno::from_raw_os_error(reason.errno()),
            source: Box::new(error),
        },
    }
}
