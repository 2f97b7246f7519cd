//! Errors of file systems. One table maps them to errno: [`FsError::errno`].

use std::io;

use rustix::io::Errno;
use zonal::{DeviceError, ZoneId};

use crate::vfs::Ino;

/// Error of a file-system operation.
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
    /// The operation does not work on a directory.
    #[error("is a directory")]
    IsDirectory,
    /// The directory has entries.
    #[error("directory not empty")]
    NotEmpty,
    /// The name is longer than [`NAME_MAX`](crate::vfs::NAME_MAX).
    #[error("name too long")]
    NameTooLong,
    /// An argument is invalid.
    #[error("invalid argument: {what}")]
    Invalid {
        /// Which one, and why.
        what: &'static str,
    },
    /// Not allowed on this inode.
    #[error("operation not permitted: {what}")]
    NotPermitted {
        /// The operation or object that is refused.
        what: &'static str,
    },
    /// The file would pass the largest size.
    #[error("file too large")]
    FileTooLarge,
    /// Reclaim must reset zones that are being read, and the reads do not return.
    #[error("the device does not answer: reads have not ended for {} seconds", waited.as_secs())]
    ReadsHang {
        /// Time that it has waited for them.
        waited: std::time::Duration,
    },
    /// No space is left for data or metadata.
    #[error("no space left on device")]
    NoSpace,
    /// A path leads through more symbolic links than [`LINKS_MAX`](crate::volume::path::LINKS_MAX).
    #[error("too many levels of symbolic links")]
    LinkLoop,
    /// The handle does not allow the operation: opened in another mode, or its volume is closed.
    #[error("bad file handle: {what}")]
    BadHandle {
        /// The reason.
        what: &'static str,
    },
    /// The operation would have to wait.
    #[error("would have to wait: {what}")]
    WouldBlock {
        /// The event that it would wait for.
        what: &'static str,
    },
    /// The inode has the maximum number of links.
    #[error("too many links")]
    TooManyLinks,
    /// No such extended attribute.
    #[error("no such attribute")]
    NoAttribute,
    /// The name of an attribute has no bytes, or more than 255.
    #[error("an attribute's name has 1 to 255 bytes")]
    AttributeNameLength,
    /// The value is larger than an attribute, or than all attributes of an inode, may be.
    #[error("attribute too large")]
    AttributeTooLarge,
    /// The file system does not support the operation.
    #[error("not supported: {what}")]
    Unsupported {
        /// The operation or object that is refused.
        what: &'static str,
    },
    /// There is no data, or no hole, from the offset on.
    #[error("no data beyond the offset")]
    SeekBeyondEnd,
    /// Mounted for reading, or made read-only by a failure.
    #[error("read-only file system")]
    ReadOnly,
    /// A call has panicked. The file system writes no more.
    #[error("the file system panicked, and writes nothing any more: {message}")]
    Panicked {
        /// Its message.
        message: String,
    },
    /// Data does not match its checksum.
    #[error("checksum mismatch at byte {offset} (zone {zone}, block {block})")]
    Checksum {
        /// The file.
        ino: Ino,
        /// Offset in the file, in bytes.
        offset: u64,
        /// Zone of the block.
        zone: ZoneId,
        /// File-system block in the zone.
        block: u32,
    },
    /// An on-disk structure is invalid or unreadable.
    #[error("{what} is damaged: {why}")]
    Corrupt {
        /// The structure.
        what: &'static str,
        /// The reason.
        why: String,
    },
    /// The device refuses to read an on-disk structure. A later read may succeed.
    #[error("the device refuses to read {what}: {why}")]
    Refused {
        /// The structure.
        what: &'static str,
        /// The reason.
        why: String,
    },
    /// The device is empty.
    #[error("no {what} on the device, which is empty")]
    Blank {
        /// The file system looked for.
        what: &'static str,
    },
    /// The device holds something other than this file system.
    #[error("no {what} on the device: {why}")]
    Missing {
        /// The file system looked for.
        what: &'static str,
        /// The reason, such as the name of the file system on the device.
        why: String,
    },
    /// The file system was made on a device with other zones or blocks.
    #[error("the file system was made on another device, or through other layers: {what}")]
    OtherShape {
        /// The difference.
        what: String,
    },
    /// The metadata drive is missing, or is another one's.
    #[error("the metadata drive: {why}")]
    MetadataDrive {
        /// The reason.
        why: String,
    },
    /// The device holds this file system, but in a form that this program cannot use.
    #[error("the {what} on the device cannot be used: {why}")]
    Foreign {
        /// The file system looked for.
        what: &'static str,
        /// The reason.
        why: String,
    },
    /// More files would be open for writing than the device has zones that can be open.
    #[error("{limit} zone files are open for writing, as many as the device can have open")]
    TooManyOpen {
        /// The limit.
        limit: u32,
    },
    /// A buffered write to a file that only takes direct writes.
    #[error("a sequential zone file takes direct writes only (O_DIRECT)")]
    NotDirect,
    /// The device has refused an operation by its limits of open or active zones.
    #[error("{0}")]
    ZoneLimit(DeviceError),
    /// The device is unsuitable for the file system.
    #[error("the device cannot hold this file system: {why}")]
    Unsuitable {
        /// The reason.
        why: String,
    },
    /// The device is not empty, and mkfs was not forced.
    #[error("the device already holds {what}")]
    Occupied {
        /// The content, in words.
        what: String,
    },
    /// The device failed.
    #[error("device: {0}")]
    Device(#[from] DeviceError),
}

impl FsError {
    /// The error of an operation on a zone file: a limit of the device keeps its own errno.
    pub fn of_zone(error: DeviceError) -> Self {
        match error {
            DeviceError::TooManyActive { .. } | DeviceError::TooManyOpen { .. } => {
                Self::ZoneLimit(error)
            }
            error => Self::Device(error),
        }
    }

    /// Whether the file system that holds the drive file is full. A mount logs it once.
    pub const fn is_host_full(&self) -> bool {
        matches!(self, Self::Device(DeviceError::NoSpace { .. }))
    }

    /// The errno a program sees.
    ///
    /// Failures of the device are EIO: the file system has already tried other zones, and no errno
    /// says more about a file. The exceptions are a full host below the drive (ENOSPC), a device
    /// that is open for reading only (EROFS), and one that another process has locked (EBUSY).
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
            | Self::MetadataDrive { .. }
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
            | Self::Refused { .. }
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

/// How much of a file system is usable after a call has panicked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remains {
    /// Its state in memory is consistent: it can be read.
    Readable,
    /// A thread may have panicked while it changed that state.
    Nothing,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errno_matches_each_error() {
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
