//! Errors, with the errno that a program on POSIX files would see.

use std::path::PathBuf;

use rustix::io::Errno;
use zonal::DeviceError;
use zonal::spec::OpenError;
use zonal_fs::FsError;
use zonal_fs::volume;

/// Result of a call of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The address of the store is invalid.
    #[error("{uri}: {why}")]
    Uri {
        /// The address, as given.
        uri: String,
        /// The mistake in it.
        why: String,
    },
    /// The device cannot be opened.
    #[error("opening {device}: {source}")]
    Open {
        /// The specification of the device.
        device: String,
        /// The reason.
        source: OpenError,
    },
    /// The file system on the device cannot be used.
    #[error("{device}: {source}")]
    Mount {
        /// The specification of the device.
        device: String,
        /// The reason.
        source: FsError,
    },
    /// The memory that outlives the process cannot be used.
    #[error(
        "{}: {source}; the plugin keeps there what a killed process has written and not synced. \
         The option unsynced=DIR names another directory in memory, unsynced=off does without",
        path.display()
    )]
    Unsynced {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: std::io::Error,
    },
    /// The process is a copy, made by fork(2), of the process that opened the store.
    #[error(
        "the store belongs to process {opener}, which opened it before this one was made by fork(2); \
         only that process can use it"
    )]
    Forked {
        /// The process that opened the store.
        opener: i32,
    },
    /// The time of a file cannot be read, and a change cannot be noted without it.
    #[error("reading when inode {ino} was last changed: {source}")]
    Time {
        /// The number of the inode.
        ino: u64,
        /// The reason.
        source: FsError,
    },
    /// An operation on files failed.
    #[error(transparent)]
    Volume(#[from] volume::Error),
    /// An argument of the C interface is invalid.
    #[error("{what}")]
    Argument {
        /// The mistake.
        what: String,
    },
}

impl Error {
    pub(crate) fn argument(what: impl Into<String>) -> Self {
        Self::Argument { what: what.into() }
    }

    /// The errno for the caller.
    pub fn errno(&self) -> i32 {
        match self {
            // Another process has it.
            Self::Open { source: OpenError::Device(DeviceError::Locked { .. }), .. } => {
                Errno::BUSY.raw_os_error()
            }
            Self::Open { source: OpenError::Device(error), .. } => error.errno().raw_os_error(),
            Self::Uri { .. } | Self::Argument { .. } | Self::Open { .. } => {
                Errno::INVAL.raw_os_error()
            }
            Self::Forked { .. } => Errno::PERM.raw_os_error(),
            Self::Mount { source, .. } | Self::Time { source, .. } => source.errno(),
            Self::Unsynced { source, .. } => source.raw_os_error().unwrap_or(5),
            Self::Volume(error) => error.errno(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drive_of_other_process_is_busy() {
        let locked = DeviceError::Locked { path: "drive.zns".into(), by: None };
        let error = Error::Open { device: "drive.zns".into(), source: OpenError::Device(locked) };
        assert_eq!(error.errno(), 16);
        let full = Error::Mount { device: "drive.zns".into(), source: FsError::NoSpace };
        assert_eq!(full.errno(), 28);
    }
}
