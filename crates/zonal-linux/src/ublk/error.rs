//! What can go wrong with ublk devices.

use std::io;

use rustix::io::Errno;
use zonal::DeviceError;

/// Result of an operation on a ublk device.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Failure of an operation on a ublk device.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The kernel's driver is not loaded.
    #[error("/dev/ublk-control is missing: the kernel's driver for ublk devices is not loaded")]
    NoDriver,
    /// Not allowed.
    #[error("only root may make and remove ublk devices")]
    Denied,
    /// The driver does not know zones.
    #[error(
        "this kernel's driver knows no zoned ublk devices; Linux 6.6 does, with zones built in"
    )]
    NoZones,
    /// The kernel takes no such zones.
    #[error("Linux takes no such device: its zones are of {kib} KiB, not a power of two")]
    ZoneSize {
        /// Their size.
        kib: u64,
    },
    /// The kernel takes no such device.
    #[error("Linux takes no such device: {why}")]
    Unsuitable {
        /// What is wrong with it.
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
    /// It was not made to be served again, or never started.
    #[error("ublk device {id} cannot be served again: {why}")]
    NotRecoverable {
        /// The number.
        id: u32,
        /// Why not.
        why: &'static str,
    },
    /// It was made for a device of another shape.
    #[error("ublk device {id} was made for a device of another shape: {what}")]
    OtherShape {
        /// The number.
        id: u32,
        /// What differs.
        what: String,
    },
    /// The zones of the served device could not be reported.
    #[error("its device's zones cannot be reported: {0}")]
    Report(DeviceError),
    /// What was written could not be made durable at the end.
    #[error("what was written could not be made durable: {0}")]
    Flush(DeviceError),
    /// The operating system refused.
    #[error("{what}: {source}")]
    Refused {
        /// What was tried.
        what: String,
        /// What the system said.
        source: io::Error,
    },
}

impl Error {
    pub(super) fn refused(what: impl Into<String>, source: impl Into<io::Error>) -> Self {
        Self::Refused { what: what.into(), source: source.into() }
    }

    /// What an errno of a command for device `id` means.
    pub(super) fn of(what: &str, id: u32, errno: Errno) -> Self {
        match errno {
            Errno::PERM | Errno::ACCESS => Self::Denied,
            Errno::NODEV => Self::Missing { id },
            errno => Self::refused(format!("{what} ublk device {id}"), errno),
        }
    }
}
