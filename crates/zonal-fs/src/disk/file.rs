//! A disk that is a file: block `n` of the disk is block `n` of the file.
//!
//! While a disk is open it can grow, and be copied as it is at one moment: the copy holds off the
//! requests that change the disk.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use rustix::io::Errno;
use zonal::disk::{
    Content, Disk, DiskError, DiskExtent, DiskShape, Durability, Resized, Result, ZeroedSpace,
};
use zonal::{BlockSize, ByteCount, Lba, LbaCount};

use super::settings::{DiskSettings, DiskSpace};
use crate::FsError;
use crate::vfs::{Access, Allocate, Seek, WriteFlags};
use crate::volume::{self, File};

/// Bytes of a block of Furrow.
const PHYSICAL: BlockSize = BlockSize::B4096;

/// An open disk of a volume. Dropping it closes it, and makes nothing durable.
pub struct FurrowDisk {
    pub(super) file: File,
    settings: DiskSettings,
    /// Bytes of the blocks that requests name here.
    block_size: BlockSize,
    access: Access,
    /// Bytes that the volume writes as one operation.
    atomic: ByteCount,
    /// Its size.
    bytes: AtomicU64,
    /// Each change of the disk holds it shared, and a copy of the disk holds it alone.
    changes: RwLock<()>,
    resized: Mutex<Option<Resized>>,
}

impl FurrowDisk {
    /// `file` is open for `access` and locked. The volume writes `atomic` bytes as one operation.
    pub(super) fn new(
        file: File,
        settings: DiskSettings,
        block_size: Option<BlockSize>,
        access: Access,
        atomic: ByteCount,
    ) -> volume::Result<Self> {
        let bytes = AtomicU64::new(file.metadata()?.size);
        let (changes, resized) = (RwLock::default(), Mutex::default());
        let block_size = block_size.unwrap_or(settings.block_size);
        Ok(Self { file, settings, block_size, access, atomic, bytes, changes, resized })
    }

    /// Its settings.
    pub const fn settings(&self) -> DiskSettings {
        self.settings
    }

    /// Its size in bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Acquire)
    }

    /// Its file has this size from now on.
    pub(super) fn set_bytes(&self, bytes: u64) {
        self.bytes.store(bytes, Ordering::Release);
        let resized = self.resized.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(resized) = &*resized {
            resized(self.shape());
        }
    }

    /// Waits for the running changes of the disk, and holds off new ones until the guard is
    /// dropped.
    pub(super) fn freeze(&self) -> RwLockWriteGuard<'_, ()> {
        self.changes.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a request that changes it.
    fn begin(&self) -> Result<RwLockReadGuard<'_, ()>> {
        if self.shape().is_read_only {
            return Err(DiskError::ReadOnly);
        }
        Ok(self.changes.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Ends a request: makes its data durable if the request asks for that.
    fn end(&self, durability: Durability) -> Result<()> {
        match durability {
            Durability::Later => Ok(()),
            Durability::AtOnce => self.flush(),
        }
    }

    /// Makes bytes read as zeroes, and keeps their space unless `free`. A thick disk has space for
    /// all of them.
    fn zero(&self, bytes: Range<u64>, space: ZeroedSpace) -> Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        let how = match (self.settings.space, space) {
            (DiskSpace::Thin, ZeroedSpace::Free) => Allocate::PunchLater,
            (DiskSpace::Thin, ZeroedSpace::Keep) => Allocate::ZeroKeepSize,
            (DiskSpace::Thick, _) => Allocate::ZeroLater,
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
        DiskShape {
            block_size: self.block_size,
            physical_size: PHYSICAL,
            blocks: LbaCount::new(self.bytes() >> self.block_size.shift()),
            atomic: self.atomic,
            is_read_only: self.settings.is_read_only || self.access == Access::ReadOnly,
        }
    }

    fn read(&self, lba: Lba, buffer: &mut [u8]) -> Result<()> {
        let bytes = self.shape().range_of(lba, buffer.len())?;
        self.file.read_exact_at(buffer, bytes.start).map_err(disk_error)
    }

    fn write(&self, lba: Lba, data: &[u8], durability: Durability) -> Result<()> {
        let bytes = self.shape().range_of(lba, data.len())?;
        let _change = self.begin()?;
        // A disk has no times of its own, and a change of the inode with every write costs rows.
        let how = WriteFlags::KEEP_TIMES | WriteFlags::KEEP_CAPABILITY;
        self.file.put(data, bytes.start, how).map_err(disk_error)?;
        self.end(durability)
    }

    fn flush(&self) -> Result<()> {
        // Furrow keeps the changes of a failed commit and writes them with the next one, so a later
        // flush that succeeds is true.
        self.file.sync_data().map_err(disk_error)
    }

    fn discard(&self, lba: Lba, blocks: LbaCount) -> Result<()> {
        let bytes = self.shape().range(lba, blocks)?;
        let _change = self.begin()?;
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
        let bytes = self.shape().range(lba, blocks)?;
        let _change = self.begin()?;
        self.zero(bytes, space)?;
        self.end(durability)
    }

    fn extents(
        &self,
        lba: Lba,
        blocks: LbaCount,
        each: &mut dyn FnMut(DiskExtent) -> bool,
    ) -> Result<()> {
        let bytes = self.shape().range(lba, blocks)?;
        let takes_space = self.settings.space == DiskSpace::Thick;
        let shift = self.block_size.shift();
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

    fn on_resize(&self, resized: Resized) {
        *self.resized.lock().unwrap_or_else(PoisonError::into_inner) = Some(resized);
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
