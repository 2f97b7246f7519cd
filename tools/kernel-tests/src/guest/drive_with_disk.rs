//! A zoned drive with an ordinary disk on it, for the servers of disks.

use std::fs;

use anyhow::Result;

use super::side;

/// Size of the disk. XFS needs at least 300 MiB.
const SIZE: &str = "320MiB";
/// Bytes that are written to a file system on it.
pub(super) const FILL: u64 = 150 << 20;

/// A drive with a disk on it. The file is removed with this.
pub(super) struct DriveWithDisk {
    file: String,
}

impl DriveWithDisk {
    pub(super) fn new(block_size: u32) -> Result<Self> {
        let file = format!("/tmp/disks{}.zns", side::next_number());
        side::zonal(&["create", &file, "--size=480M", "--zone-size=4M"])?;
        let drive = Self { file };
        side::zonal(&["mkfs", &drive.file])?;
        let block_size = format!("--block-size={block_size}");
        side::zonal(&["disk", "create", &drive.file, "one", "--size", SIZE, &block_size])?;
        Ok(drive)
    }

    /// The disk's name for a server.
    pub(super) fn disk(&self) -> String {
        format!("{}//one", self.file)
    }

    /// Checks the drive, the data on it included.
    pub(super) fn check(&self) -> Result<()> {
        side::zonal(&["check", "--data", &self.file]).map(drop)
    }
}

impl Drop for DriveWithDisk {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.file);
    }
}
