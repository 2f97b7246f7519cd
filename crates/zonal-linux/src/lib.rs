//! Real zoned drives by way of the Linux kernel.
//!
//! - [`open`]: the device that a path names. Start here.
//! - [`BlockDrive`]: a zoned block device, through the zone ioctls and direct I/O.
//! - [`PassthroughDrive`]: a zoned NVMe namespace, through commands that the kernel passes on.
//! - `by_zone`: what both do zone by zone.
//! - `sysfs`: what the kernel says about a block device.
//! - `ioctl`, `passthrough/ioctl`, `passthrough/ring`: the calls themselves. Only there and in [`ublk`] is
//!   `unsafe`.
//! - `transfer`: direct I/O from and to memory anywhere.
//! - [`ublk`]: the other way round, a zoned block device that we serve to the kernel.

mod block;
mod by_zone;
mod ioctl;
mod passthrough;
mod sysfs;
mod transfer;
pub mod ublk;

use std::fs::{File, Metadata};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::Path;
use std::sync::Arc;

use zonal::file::format;
use zonal::{DeviceError, OpenMode, ZonedDevice};

use self::sysfs::Attributes;

pub use block::BlockDrive;
pub use passthrough::{PassthroughDrive, Way};

/// Result of a device operation.
type Result<T> = std::result::Result<T, DeviceError>;

/// Words in front of the node of a namespace, for the way that commands take.
const WAYS: [(&str, Way); 2] = [("ioctl:", Way::Ioctl), ("io_uring:", Way::IoUring)];

/// Opens the device that a path names; `None` if it is none, but a plain file, or a disk that has
/// virtual zones as a drive file has them.
///
/// The node of an NVMe namespace, `/dev/ng0n1`, may have `ioctl:` or `io_uring:` in front, to choose
/// the way that commands take.
pub fn open(path: &Path, mode: OpenMode) -> Result<Option<Arc<dyn ZonedDevice>>> {
    let kind = path.metadata().map(|metadata: Metadata| metadata.file_type());
    match kind {
        Ok(kind) if kind.is_block_device() => open_block(path, mode),
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

/// Opens a block device with zones of its own.
fn open_block(path: &Path, mode: OpenMode) -> Result<Option<Arc<dyn ZonedDevice>>> {
    let failed = |source| DeviceError::Io { what: format!("opening {}", path.display()), source };
    let number = path.metadata().map_err(failed)?.rdev();
    if Attributes::of(number).has_zones() {
        return Ok(Some(Arc::new(BlockDrive::open(path, mode)?)));
    }
    // Either copy of the header will do.
    let file = File::open(path).map_err(failed)?;
    let is_drive = [0, format::PAGE].into_iter().any(|at| {
        let mut magic = [0; format::MAGIC.len()];
        file.read_exact_at(&mut magic, at).is_ok() && magic == format::MAGIC
    });
    if is_drive { Ok(None) } else { Err(DeviceError::NoZones { path: path.to_owned() }) }
}
