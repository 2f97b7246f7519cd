//! What can go wrong in a file system, and its errno: one table, [`FsError::errno`].

use std::io;

use rustix::io::Errno;
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
    /// Room is needed in zones that are being read, and the reads do not come back.
    #[error("the device does not answer: reads have not ended for {} seconds", waited.as_secs())]
    ReadsHang {
        /// How long was waited for them.
        waited: std::time::Duration,
    },
    /// Every block that files can have is taken.
    #[error("no space left on device")]
    NoSpace,
    /// A path leads through more symbolic links than [`LINKS_MAX`](crate::volume::path::LINKS_MAX).
    #[error("too many levels of symbolic links")]
    LinkLoop,
    /// The handle cannot be used so: opened otherwise, or its volume is closed.
    #[error("bad file handle: {what}")]
    BadHandle {
        /// Why not.
        what: &'static str,
    },
    /// It could only be had by waiting.
    #[error("would have to wait: {what}")]
    WouldBlock {
        /// For what.
        what: &'static str,
    },
    /// The inode has as many links as it can.
    #[error("too many links")]
    TooManyLinks,
    /// No such extended attribute.
    #[error("no such attribute")]
    NoAttribute,
    /// The name of an attribute has no bytes, or more than 255.
    #[error("an attribute's name has 1 to 255 bytes")]
    AttributeNameLength,
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
    /// A call has panicked: it has ended nowhere, and nothing is written any more.
    #[error("the file system panicked, and writes nothing any more: {message}")]
    Panicked {
        /// What it said.
        message: String,
    },
    /// What was read is not what was written.
    #[error("checksum mismatch at byte {offset} (zone {zone}, block {block})")]
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
    /// Nothing is on the device.
    #[error("no {what} on the device, which is empty")]
    Blank {
        /// The file system looked for.
        what: &'static str,
    },
    /// The device holds something, and not this file system.
    #[error("no {what} on the device: {why}")]
    Missing {
        /// The file system looked for.
        what: &'static str,
        /// What was found instead.
        why: String,
    },
    /// The file system was made on a device of another shape.
    #[error("the file system was made on another device, or through other layers: {what}")]
    OtherShape {
        /// What differs.
        what: String,
    },
    /// The device holds this file system, but not in a form that can be used.
    #[error("the {what} on the device cannot be used: {why}")]
    Foreign {
        /// The file system looked for.
        what: &'static str,
        /// Why not.
        why: String,
    },
    /// More files would be open for writing than the device has zones that can be open.
    #[error("{limit} zone files are open for writing, as many as the device can have open")]
    TooManyOpen {
        /// The limit.
        limit: u32,
    },
    /// A write through a buffer to a file that only takes direct writes.
    #[error("a sequential zone file takes direct writes only (O_DIRECT)")]
    NotDirect,
    /// The device refused a zone what its limits do not allow.
    #[error("{0}")]
    ZoneLimit(DeviceError),
    /// The device cannot hold a file system.
    #[error("the device cannot hold this file system: {why}")]
    Unsuitable {
        /// Why not.
        why: String,
    },
    /// The device holds something already.
    #[error("the device already holds {what}")]
    Occupied {
        /// What was found.
        what: String,
    },
    /// The device failed.
    #[error("device: {0}")]
    Device(#[from] DeviceError),
}

impl FsError {
    /// A failure whose errno programs are told where it is a limit of the device, as zone files do.
    pub fn of_zone(error: DeviceError) -> Self {
        match error {
            DeviceError::TooManyActive { .. } | DeviceError::TooManyOpen { .. } => {
                Self::ZoneLimit(error)
            }
            error => Self::Device(error),
        }
    }

    /// The errno a program sees.
    ///
    /// A failure of the device below is EIO, whatever it was: by then the file system has tried
    /// elsewhere, and no errno says more about a file. Only where what holds the drive is full,
    /// that is said.
    pub fn errno(&self) -> i32 {
        let errno = match self {
            Self::NotFound => Errno::NOENT,
            Self::Exists => Errno::EXIST,
            Self::NotDirectory => Errno::NOTDIR,
            Self::IsDirectory => Errno::ISDIR,
            Self::NotEmpty => Errno::NOTEMPTY,
            Self::NameTooLong => Errno::NAMETOOLONG,
            Self::Invalid { .. }
            | Self::Unsuitable { .. }
            | Self::Blank { .. }
            | Self::Missing { .. }
            | Self::OtherShape { .. }
            | Self::Foreign { .. } => Errno::INVAL,
            Self::NotPermitted { .. } => Errno::PERM,
            Self::FileTooLarge => Errno::FBIG,
            Self::NoSpace | Self::Device(DeviceError::NoSpace { .. }) => Errno::NOSPC,
            Self::LinkLoop => Errno::LOOP,
            Self::BadHandle { .. } => Errno::BADF,
            Self::WouldBlock { .. } => Errno::AGAIN,
            Self::TooManyLinks => Errno::MLINK,
            Self::NoAttribute => Errno::NODATA,
            Self::AttributeNameLength => Errno::RANGE,
            Self::AttributeTooLarge => Errno::TOOBIG,
            Self::Unsupported { .. } => Errno::OPNOTSUPP,
            Self::SeekBeyondEnd => Errno::NXIO,
            Self::ReadOnly | Self::Device(DeviceError::OpenedReadOnly) => Errno::ROFS,
            Self::Occupied { .. }
            | Self::TooManyOpen { .. }
            | Self::Device(DeviceError::Locked { .. }) => Errno::BUSY,
            Self::ZoneLimit(error) => error.errno(),
            Self::Checksum { .. }
            | Self::Corrupt { .. }
            | Self::NotDirect
            | Self::ReadsHang { .. }
            | Self::Panicked { .. }
            | Self::Device(_) => Errno::IO,
        };
        errno.raw_os_error()
    }
}

/// Keeps the errno, as a program on a mount would get it: `raw_os_error` is [`FsError::errno`].
impl From<FsError> for io::Error {
    fn from(error: FsError) -> Self {
        Self::from_raw_os_error(error.errno())
    }
}

/// What can be done with a file system of which a call has panicked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remains {
    /// What is in memory is whole: it can be read.
    Readable,
    /// A change may have been under way there.
    Nothing,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errno_of_each_error() {
        let (zone, path) = (ZoneId::ZERO, || std::path::PathBuf::from("drive"));
        let table = [
            (FsError::NotFound, 2, "ENOENT"),
            (FsError::Device(DeviceError::Medium { lba: zonal::Lba::ZERO }), 5, "EIO"),
            (FsError::Device(DeviceError::ZoneOffline { zone }), 5, "EIO"),
            (FsError::Device(DeviceError::TooManyActive { zone, limit: 4 }), 5, "EIO"),
            (FsError::Checksum { ino: Ino::ROOT, offset: 0, zone, block: 0 }, 5, "EIO"),
            (FsError::Corrupt { what: "journal", why: String::new() }, 5, "EIO"),
            (FsError::ReadsHang { waited: std::time::Duration::ZERO }, 5, "EIO"),
            (FsError::Panicked { message: String::new() }, 5, "EIO"),
            (FsError::SeekBeyondEnd, 6, "ENXIO"),
            (FsError::NotPermitted { what: "this" }, 1, "EPERM"),
            (FsError::AttributeTooLarge, 7, "E2BIG"),
            (FsError::NotDirect, 5, "EIO"),
            (FsError::ZoneLimit(DeviceError::TooManyActive { zone, limit: 4 }), 75, "EOVERFLOW"),
            (FsError::ZoneLimit(DeviceError::TooManyOpen { zone, limit: 4 }), 109, "ETOOMANYREFS"),
            (FsError::TooManyOpen { limit: 4 }, 16, "EBUSY"),
            (FsError::Foreign { what: "zonefs", why: String::new() }, 22, "EINVAL"),
            (FsError::Blank { what: "zonefs" }, 22, "EINVAL"),
            (FsError::Missing { what: "zonefs", why: String::new() }, 22, "EINVAL"),
            (FsError::OtherShape { what: String::new() }, 22, "EINVAL"),
            (FsError::Occupied { what: String::new() }, 16, "EBUSY"),
            (FsError::Device(DeviceError::Locked { path: path(), by: None }), 16, "EBUSY"),
            (FsError::Exists, 17, "EEXIST"),
            (FsError::NotDirectory, 20, "ENOTDIR"),
            (FsError::IsDirectory, 21, "EISDIR"),
            (FsError::Invalid { what: "this" }, 22, "EINVAL"),
            (FsError::Unsuitable { why: String::new() }, 22, "EINVAL"),
            (FsError::FileTooLarge, 27, "EFBIG"),
            (FsError::NoSpace, 28, "ENOSPC"),
            (FsError::Device(DeviceError::NoSpace { what: String::new() }), 28, "ENOSPC"),
            (FsError::ReadOnly, 30, "EROFS"),
            (FsError::Device(DeviceError::OpenedReadOnly), 30, "EROFS"),
            (FsError::TooManyLinks, 31, "EMLINK"),
            (FsError::BadHandle { what: "this" }, 9, "EBADF"),
            (FsError::WouldBlock { what: "this" }, 11, "EAGAIN"),
            (FsError::NameTooLong, 36, "ENAMETOOLONG"),
            (FsError::LinkLoop, 40, "ELOOP"),
            (FsError::NotEmpty, 39, "ENOTEMPTY"),
            (FsError::AttributeNameLength, 34, "ERANGE"),
            (FsError::NoAttribute, 61, "ENODATA"),
            (FsError::Unsupported { what: "this" }, 95, "EOPNOTSUPP"),
        ];
        for (error, errno, name) in table {
            assert_eq!(error.errno(), errno, "{error}: {name}");
            assert_eq!(io::Error::from(error).raw_os_error(), Some(errno), "{name}");
        }
    }
}
