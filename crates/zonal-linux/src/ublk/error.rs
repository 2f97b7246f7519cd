//! Errors of ublk devices.

use std::io;

use rustix::io::Errno;
use zonal::{DeviceError, DiskError};

/// Result of an operation on a ublk device.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Failure of an operation on a ublk device.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The kernel's driver is not loaded.
    #[error("/dev/ublk-control is missing: the kernel's driver for ublk devices is not loaded")]
    NoDriver,
    /// No permission.
    #[error("only root may create and remove ublk devices")]
    Denied,
    /// The driver has no zoned devices.
    #[error(
        "this kernel's ublk driver has no zoned devices; Linux 6.6 and later have, with CONFIG_BLK_DEV_ZONED"
    )]
    NoZones,
    /// The driver cannot serve disks.
    #[error("this kernel's ublk driver has no user copy; Linux 6.5 and later have")]
    NoUserCopy,
    /// Linux accepts only zone sizes that are a power of two.
    #[error("Linux accepts no such device: its zones are of {kib} KiB, not a power of two")]
    ZoneSize {
        /// Their size.
        kib: u64,
    },
    /// Linux does not accept such a device.
    #[error("Linux accepts no such device: {why}")]
    Unsuitable {
        /// The reason.
        why: String,
    },
    /// The number is taken.
    #[error("there is a ublk device {id} already")]
    Taken {
        /// The number.
        id: u32,
    },
    /// There is no such device.
    #[error("there is no ublk device {id}")]
    Missing {
        /// The number.
        id: u32,
    },
    /// Its server still runs.
    #[error("ublk device {id} is served by process {server}")]
    Served {
        /// The number.
        id: u32,
        /// The process.
        server: u32,
    },
    /// The driver cannot change its size.
    #[error(
        "ublk device {id} keeps its size until it is served anew; Linux 6.16 and later change it"
    )]
    FixedSize {
        /// The number.
        id: u32,
    },
    /// Another server cannot take it over.
    #[error("ublk device {id} cannot be recovered: {why}")]
    NotRecoverable {
        /// The number.
        id: u32,
        /// Why not.
        why: &'static str,
    },
    /// It was created for a device with other zones or limits.
    #[error("ublk device {id} was created for a different device: {what}")]
    OtherShape {
        /// The number.
        id: u32,
        /// The difference.
        what: String,
    },
    /// The zones of the served device could not be reported.
    #[error("its device's zones cannot be reported: {0}")]
    Report(DeviceError),
    /// The last flush of the served device failed.
    #[error("what was written could not be made durable: {0}")]
    Flush(DeviceError),
    /// The last flush of the served disk failed.
    #[error("what was written could not be made durable: {0}")]
    FlushDisk(DiskError),
    /// The notes of unflushed changes could not be made, or a killed server left none.
    #[error("ublk device {id}: the notes of what is not flushed, in /run/zonal/ublk{id}: {source}")]
    Notes {
        /// The number.
        id: u32,
        /// The error of the system.
        source: io::Error,
    },
    /// The operating system refused.
    #[error("{what}: {source}")]
    Refused {
        /// The failed operation.
        what: String,
        /// The error of the system.
        source: io::Error,
    },
}

impl Error {
    pub(super) fn refused(what: impl Into<String>, source: impl Into<io::Error>) -> Self {
        Self::Refused { what: what.into(), source: source.into() }
    }

    /// The error for the errno of a command for device `id`.
    pub(super) fn of(what: &str, id: u32, errno: Errno) -> Self {
        match errno {
            Errno::PERM | Errno::ACCESS => Self::Denied,
            Errno::NODEV => Self::Missing { id },
            errno => Self::refused(format!("{what} ublk device {id}"), errno),
        }
    }
}
