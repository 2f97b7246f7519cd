//! Real zoned drives by way of the Linux kernel.
//!
//! - [`open`]: the device that a path names. Start here.
//! - [`BlockDrive`]: a zoned block device, through the zone ioctls and direct I/O.
//! - [`PassthroughDrive`]: a zoned NVMe namespace, through commands that the kernel passes on.
//! - `sysfs`: what the kernel says about a block device.
//! - `ioctl`, `passthrough/ioctl`, `passthrough/ring`: the calls themselves. Only there and in [`ublk`] is
//!   `unsafe`.
//! - `transfer`: reads and writes from memory that direct I/O takes.
//! - [`ublk`]: the other way round, a zoned block device that we serve to the kernel.

mod block;
mod ioctl;
mod passthrough;
mod sysfs;
mod transfer;
pub mod ublk;

use std::fs::Metadata;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::sync::Arc;

use zonal::{DeviceError, OpenMode, ZonedDevice};

pub use block::BlockDrive;
pub use passthrough::{PassthroughDrive, Way};

/// Result of a device operation.
type Result<T> = std::result::Result<T, DeviceError>;

/// Words in front of the node of a namespace, for the way that commands take.
const WAYS: [(&str, Way); 2] = [("ioctl:", Way::Ioctl), ("io_uring:", Way::IoUring)];

/// Opens the device that a path names; `None` if it is none, but a plain file.
///
/// The node of an NVMe namespace, `/dev/ng0n1`, may have `ioctl:` or `io_uring:` in front, to choose
/// the way that commands take.
pub fn open(path: &Path, mode: OpenMode) -> Result<Option<Arc<dyn ZonedDevice>>> {
    let kind = path.metadata().map(|metadata: Metadata| metadata.file_type());
    match kind {
        Ok(kind) if kind.is_block_device() => Ok(Some(Arc::new(BlockDrive::open(path, mode)?))),
        Ok(kind) if kind.is_char_device() => {
            Ok(Some(Arc::new(PassthroughDrive::open(path, mode, Way::Automatic)?)))
        }
        Ok(_) => Ok(None),
        // What is not there, others will say.
        Err(_) => {
            let chosen = path.to_str().and_then(|text| {
                WAYS.iter().find_map(|(word, way)| Some((text.strip_prefix(word)?, *way)))
            });
            let Some((path, way)) = chosen else { return Ok(None) };
            Ok(Some(Arc::new(PassthroughDrive::open(Path::new(path), mode, way)?)))
        }
    }
}
