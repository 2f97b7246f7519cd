//! Real zoned drives by way of the Linux kernel.
//!
//! [`open`] gives the device that a path names. Start here.
//!
//! A room may use the rooms that its last column names; `cargo xtask check` compares the paths.
//!
//! | room | what it is | may use |
//! | --- | --- | --- |
//! | `machine` | facts of this machine that decide whether a zoned drive can be used | |
//! | `sysfs` | attributes that the kernel reports of a block device | |
//! | `ioctl`, `discard` | ioctls of block devices for zones and for discards | |
//! | `ring` | `io_uring`: reads and writes of a file side by side | |
//! | `own_disk` | servers that never wait for the disk that they serve | |
//! | `by_zone` | steps that both kinds of drive take zone by zone | |
//! | `rounds` | which requests of a batch may be at the drive at the same time | |
//! | `data` | the memory that a command to a drive fills or takes | |
//! | `transfer` | direct I/O from and to memory anywhere | `own_disk` |
//! | `block` | a zoned block device, through ioctls and direct I/O | all above |
//! | `passthrough` | a zoned NVMe namespace, through passthrough commands | all above |
//! | `scsi` | a zoned SCSI or SATA disk, through commands of its own | all above |
//! | `facts` | facts of a drive beyond its geometry | `sysfs`, `scsi` |
//! | `raw` | these without Zonal's checks, to test the device itself | `block`, `passthrough`, `scsi` |
//! | `ublk` | the reverse: any device or disk as a block device of the kernel | `ioctl` |
//!
//! `unsafe` is only in `ioctl`, `discard`, `ring`, `own_disk`, [`ublk`], `passthrough/ioctl.rs`,
//! `passthrough/ring.rs` and `scsi/sg.rs`.

mod block;
mod by_zone;
mod data;
mod discard;
mod facts;
mod ioctl;
pub mod machine;
pub mod own_disk;
mod passthrough;
pub mod raw;
mod ring;
mod rounds;
pub mod scsi;
mod sysfs;
mod transfer;
pub mod ublk;

use std::fs::File;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::sync::Arc;

use zonal::file::format;
use zonal::spec::{OpenError, Opener, Scheme, Stack};
use zonal::{DeviceError, OpenMode, ZonedDevice};

use self::sysfs::Attributes;

pub use block::BlockDrive;
pub use facts::facts;
pub use passthrough::{PassthroughDrive, SubmissionPath};
pub use scsi::ScsiDrive;
pub use scsi::facts::Facts;

/// Result of a device operation.
type Result<T> = std::result::Result<T, DeviceError>;

/// Schemes that choose how commands are submitted to a namespace, or name a SCSI drive. A program
/// adds them to its list of schemes, and calls [`open`] for paths.
pub const SCHEMES: [Scheme; 3] = [
    Scheme {
        name: "ioctl",
        form: "ioctl:/dev/ngXnY",
        help: "a zoned NVMe namespace, every command by ioctl",
        example: "ioctl:/dev/ng0n1",
        opener: Opener::Device(|path, mode| open_namespace(path, mode, SubmissionPath::Ioctl)),
    },
    Scheme {
        name: "io_uring",
        form: "io_uring:/dev/ngXnY",
        help: "a zoned NVMe namespace, every command by io_uring",
        example: "io_uring:/dev/ng0n1",
        opener: Opener::Device(|path, mode| open_namespace(path, mode, SubmissionPath::IoUring)),
    },
    Scheme {
        name: "sg",
        form: "sg:SERIAL",
        help: "a zoned SCSI or SATA disk by serial number or node, where the kernel knows no zones",
        example: "sg:/dev/sg0",
        opener: Opener::Device(open_generic),
    },
];

fn open_generic(name: &str, mode: OpenMode) -> std::result::Result<Stack, OpenError> {
    let path = scsi::find(name)?;
    let drive = ScsiDrive::open(&path, mode)?;
    Ok(Stack { files: vec![path], ..Stack::of_device(Arc::new(drive)) })
}

fn open_namespace(
    path: &str,
    mode: OpenMode,
    via: SubmissionPath,
) -> std::result::Result<Stack, OpenError> {
    let drive = PassthroughDrive::open(Path::new(path), mode, via)?;
    Ok(Stack { files: vec![path.into()], ..Stack::of_device(Arc::new(drive)) })
}

/// Opens the device that a path names; `None` if it is a plain file, a disk with virtual zones in
/// the format of a drive file, or missing.
pub fn open(path: &Path, mode: OpenMode) -> Result<Option<Arc<dyn ZonedDevice>>> {
    let Ok(metadata) = path.metadata() else { return Ok(None) };
    let kind = metadata.file_type();
    if kind.is_block_device() {
        return open_block(path, mode);
    }
    if !kind.is_char_device() {
        return Ok(None);
    }
    Ok(Some(if scsi::is_node(metadata.rdev()) {
        Arc::new(ScsiDrive::open(path, mode)?)
    } else {
        Arc::new(PassthroughDrive::open(path, mode, SubmissionPath::Automatic)?)
    }))
}

/// Opens a block device with zones of its own.
fn open_block(path: &Path, mode: OpenMode) -> Result<Option<Arc<dyn ZonedDevice>>> {
    let failed = |source| DeviceError::Io { what: format!("opening {}", path.display()), source };
    let number = path.metadata().map_err(failed)?.rdev();
    if Attributes::of(number).has_zones() {
        return Ok(Some(Arc::new(BlockDrive::open(path, mode)?)));
    }
    let file = File::open(path).map_err(failed)?;
    if format::has_header(&file) {
        Ok(None)
    } else {
        Err(DeviceError::NoZones { path: path.to_owned() })
    }
}
