//! Errors, and the numbers that fio gets for them.

use std::ffi::c_int;

use zonal::DeviceError;
use zonal::spec::OpenError;
use zonal_fs::signature::Signature;

/// Result of a call of fio.
pub(crate) type Result<T> = std::result::Result<T, Error>;

/// Why a call of fio failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The device cannot be opened.
    #[error("{spec}: {source}")]
    Open {
        /// Its specification.
        spec: String,
        /// Why not.
        source: OpenError,
    },
    /// fio has taken a specification for several files.
    #[error("{spec}: {source}; fio ends a name at a colon: write `\\:` for one in a specification")]
    Colon {
        /// Its first part.
        spec: String,
        /// Why that cannot be opened.
        source: OpenError,
    },
    /// Another job of the same fio has the drive, as a process of its own.
    #[error("{spec}: another job of this fio has it; jobs share a drive as threads: add `thread`")]
    Job {
        /// The drive's specification.
        spec: String,
    },
    /// The device was opened before it was known that a job writes.
    #[error("{spec} is open for reading: without create_serialize=0 it would be open for writing")]
    OpenForReading {
        /// The device's specification.
        spec: String,
    },
    /// A job would write to a device that holds a file system.
    #[error("{spec} holds {held}, which the job would destroy; ZONAL_FIO_FORCE=1 allows it")]
    Holds {
        /// The device's specification.
        spec: String,
        /// The file system on it.
        held: Signature,
    },
    /// The device failed.
    #[error("{0}")]
    Device(#[from] DeviceError),
    /// A sync has failed.
    #[error("syncing: {0}")]
    Sync(Box<Error>),
    /// `filename` is no text.
    #[error("filename is not UTF-8")]
    Name,
    /// fio uses a file that it did not open.
    #[error("fio has not opened the file")]
    NotOpen,
    /// A trim of a part of a zone.
    #[error("a trim of {bytes} bytes at {offset}: sequential zones are trimmed as a whole")]
    PartOfZone {
        /// The first byte.
        offset: u64,
        /// Bytes of the trim.
        bytes: u64,
    },
    /// fio's function for trims ended with this number.
    #[error("trimming failed")]
    Trim(c_int),
    /// fio has no such function.
    #[error("this fio does not export {0}")]
    Absent(&'static str),
    /// Files are not removed.
    #[error("a job cannot remove a drive: leave out unlink")]
    Unlink,
    /// A bug of ours.
    #[error("internal error, please report it: {0}")]
    Panic(String),
    /// A panic while a thread performed several requests. The text says already that it is a bug.
    #[error("{0}")]
    Panicked(String),
}

impl Error {
    /// Its number.
    pub(crate) fn errno(&self) -> c_int {
        match self {
            Self::Open { source: OpenError::Device(error), .. }
            | Self::Colon { source: OpenError::Device(error), .. }
            | Self::Device(error) => error.errno().raw_os_error(),
            Self::Sync(error) => error.errno(),
            Self::Open { .. } | Self::Colon { .. } | Self::Name | Self::PartOfZone { .. } => {
                libc::EINVAL
            }
            Self::Job { .. } | Self::Holds { .. } => libc::EBUSY,
            Self::OpenForReading { .. } => libc::EROFS,
            Self::NotOpen => libc::EBADF,
            Self::Trim(errno) => *errno,
            Self::Absent(_) => libc::ENOSYS,
            Self::Unlink => libc::EPERM,
            Self::Panic(_) | Self::Panicked(_) => libc::EIO,
        }
    }
}
