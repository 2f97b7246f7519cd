//! Real zoned drives by way of the Linux kernel.
//!
//! - [`open`]: the device that a path names. Start here.
//! - [`BlockDrive`]: a zoned block device, through the zone ioctls and direct I/O.
//! - `sysfs`: what the kernel says about a block device.
//! - `ioctl`: the calls themselves. Only there is `unsafe`.
//! - `transfer`: reads and writes from memory that direct I/O takes.

mod block;
mod ioctl;
mod sysfs;
mod transfer;

use std::fs::Metadata;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::sync::Arc;

use zonal::{DeviceError, OpenMode, ZonedDevice};

pub use block::BlockDrive;

/// Result of a device operation.
type Result<T> = std::result::Result<T, DeviceError>;

/// Opens the device that a path names; `None` if it is none, but a plain file.
pub fn open(path: &Path, mode: OpenMode) -> Result<Option<Arc<dyn ZonedDevice>>> {
    let kind = path.metadata().map(|metadata: Metadata| metadata.file_type());
    match kind {
        Ok(kind) if kind.is_block_device() => Ok(Some(Arc::new(BlockDrive::open(path, mode)?))),
        // What is not there, others will say.
        Ok(_) | Err(_) => Ok(None),
    }
}
