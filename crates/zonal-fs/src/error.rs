//! What can go wrong in a file system, and its errno: one table, [`FsError::errno`].

use zonal::{DeviceError, ZoneId};

use crate::vfs::Ino;

/// Failure of a file-system operation.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FsError {
    /// No such entry or inode.
    #[error("no such file or directory")]
    NotFound,
    /// The entry exists already.
    #[error("file exists")]
    Exists,
    /// A directory was needed.
    #[error("not a directory")]
    NotDirectory,
    /// A directory was given where none may be.
    #[error("is a directory")]
    IsDirectory,
    /// The directory has entries.
    #[error("directory not empty")]
    NotEmpty,
    /// The name is longer than [`NAME_MAX`](crate::vfs::NAME_MAX).
    #[error("name too long")]
    NameTooLong,
    /// The arguments make no sense.
    #[error("invalid argument: {what}")]
    Invalid {
        /// Which and why.
        what: &'static str,
    },
    /// Not allowed on this inode.
    #[error("operation not permitted: {what}")]
    NotPermitted {
        /// What is not.
        what: &'static str,
    },
    /// The file would pass the largest size.
    #[error("file too large")]
    FileTooLarge,
    /// Every block that files can have is taken.
    #[error("no space left on device")]
    NoSpace,
    /// The inode has as many links as it can.
    #[error("too many links")]
    TooManyLinks,
    /// No such extended attribute.
    #[error("no such attribute")]
    NoAttribute,
    /// The value is larger than an attribute can be, or than the space for it.
    #[error("attribute too large")]
    AttributeTooLarge,
    /// Not something this file system does.
    #[error("not supported: {what}")]
    Unsupported {
        /// What is not.
        what: &'static str,
    },
    /// No data, or no hole, from there on.
    #[error("no data beyond the offset")]
    SeekBeyondEnd,
    /// Mounted for reading, or made read-only by a failure.
    #[error("read-only file system")]
    ReadOnly,
    /// What was read is not what was written.
    #[error("checksum mismatch in inode {ino} at byte {offset} (zone {zone}, block {block})")]
    Checksum {
        /// The file.
        ino: Ino,
        /// Byte of the file.
        offset: u64,
        /// Zone it was read from.
        zone: ZoneId,
        /// File-system block inside that zone.
        block: u32,
    },
    /// On-disk structures are not well formed.
    #[error("{what} is damaged: {why}")]
    Corrupt {
        /// The structure.
        what: &'static str,
        /// What is wrong with it.
        why: String,
    },
    /// The device cannot hold a file system.
    #[error("the device cannot hold this file system: {why}")]
    Unsuitable {
        /// Why not.
        why: String,
    },
    /// The device holds something already.
    #[error("the device is in use: {what}")]
    InUse {
        /// What was found.
        what: String,
    },
    /// The device failed.
    #[error("device: {0}")]
    Device(#[from] DeviceError),
}
