//! What can go wrong, with the errno that a program on POSIX files would see.

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
    /// The address of the store makes no sense.
    #[error("{uri}: {why}")]
    Uri {
        /// As given.
        uri: String,
        /// What is wrong with it.
        why: String,
    },
    /// The device cannot be opened.
    #[error("opening {device}: {source}")]
    Open {
        /// Its specification.
        device: String,
        /// Why not.
        source: OpenError,
    },
    /// The file system on the device cannot be used.
    #[error("{device}: {source}")]
    Mount {
        /// Its specification.
        device: String,
        /// Why not.
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
        /// Why not.
        source: std::io::Error,
    },
    /// The process is a copy, made by fork(2), of the one that has opened the store.
    #[error(
        "the store belongs to process {opener}, which opened it before this one was made by fork(2); \
         only that process can use it"
    )]
    Forked {
        /// The process that has opened it.
        opener: i32,
    },
    /// The time of a file cannot be read, without which a change of it cannot be noted.
    #[error("reading when inode {ino} was last changed: {source}")]
    Time {
        /// Its number.
        ino: u64,
        /// Why not.
        source: FsError,
    },
    /// An operation on files failed.
    #[error(transparent)]
    Volume(#[from] volume::Error),
    /// An argument of the C interface makes no sense.
    #[error("{what}")]
    Argument {
        /// Which.
        what: String,
    },
}

impl Error {
    pub(crate) fn argument(what: impl Into<String>) -> Self {
        Self::Argument { what: what.into() }
    }

    /// The errno that tells what to do about it.
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
