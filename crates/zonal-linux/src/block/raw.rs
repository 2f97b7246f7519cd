//! A zoned block device without Zonal's checks.

use std::path::Path;

use rustix::io::Errno;
use zonal::{DeviceError, Lba, LbaCount, OpenMode, Select, ZoneAction, ZoneId, ZonedDevice};

use super::BlockDrive;
use crate::Result;
use crate::ioctl;

/// Most bytes of one write: the kernel splits larger ones.
const TRANSFER_BYTES: u64 = 1 << 20;

/// An open block device whose requests are sent as they are.
pub struct RawBlock {
    drive: BlockDrive,
}

impl RawBlock {
    /// Opens a device.
    pub fn open(path: &Path, mode: OpenMode) -> Result<Self> {
        BlockDrive::open(path, mode).map(|drive| Self { drive })
    }

    /// Most blocks of one write.
    pub fn transfer(&self) -> LbaCount {
        LbaCount::new(TRANSFER_BYTES / self.drive.geometry.block_size().bytes())
    }

    /// The byte of a block; `None` where the kernel has no such address.
    fn byte(&self, lba: Lba) -> Result<u64> {
        let bytes = self.drive.geometry.block_size().bytes();
        let byte = lba.get().checked_mul(bytes).filter(|byte| i64::try_from(*byte).is_ok());
        byte.ok_or(DeviceError::OutOfRange { lba, blocks: LbaCount::new(1) })
    }

    /// The limit that an errno names, or the errno.
    fn failed(&self, lba: Lba, source: std::io::Error) -> DeviceError {
        let is_there = lba < Lba::ZERO + self.drive.geometry.block_count();
        let zone = is_there.then(|| self.drive.geometry.locate(lba).0);
        let errno = Errno::from_io_error(&source);
        let limit = zone.zip(errno).and_then(|(zone, errno)| self.drive.limit_reached(zone, errno));
        limit.unwrap_or_else(|| DeviceError::Io {
            what: format!("block {lba} of {}", self.drive.name),
            source,
        })
    }
}

impl ZonedDevice for RawBlock {
    zonal::pass_on!(drive: geometry, report, flush, identity, rotates, claim);

    fn read(&self, lba: Lba, buffer: &mut [u8]) -> Result<()> {
        let byte = self.byte(lba)?;
        self.drive.file.read(byte, buffer).map_err(|source| self.failed(lba, source))
    }

    fn write(&self, lba: Lba, data: &[u8]) -> Result<()> {
        let byte = self.byte(lba)?;
        self.drive.file.write(byte, data).map_err(|source| self.failed(lba, source))
    }

    fn append(&self, zone: ZoneId, _: &[u8]) -> Result<Lba> {
        let source = Errno::OPNOTSUPP.into();
        Err(self.failed(self.drive.geometry.zone_start(zone), source))
    }

    fn manage(&self, zones: Select, action: ZoneAction) -> Result<()> {
        let geometry = &self.drive.geometry;
        let (lba, range) = match zones {
            Select::One(zone) => (geometry.zone_start(zone), self.drive.range(zone)),
            Select::All => {
                let end = Lba::ZERO + geometry.block_count();
                (Lba::ZERO, ioctl::Range { start: 0, len: self.drive.sector(end) })
            }
        };
        ioctl::manage(self.drive.file.as_file(), action, range)
            .map_err(|errno| self.failed(lba, errno.into()))
    }
}
