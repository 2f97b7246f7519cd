//! Errors of zoned devices, with the facts a caller can act on.
//!
//! One table turns an error into an errno and an NVMe status: [`DeviceError::errno`],
//! [`DeviceError::nvme_status`].

use std::path::PathBuf;
use std::{fmt, io};

pub use rustix::io::Errno;

pub use crate::nvme::NvmeStatus;
use crate::nvme::status;
use crate::size::readable;
use crate::{ByteCount, Lba, LbaCount, ZoneAction, ZoneCond, ZoneId};

/// Result of a device operation.
pub type Result<T> = std::result::Result<T, DeviceError>;

/// Failure of a device operation.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// The shape asked for is not one a device can have.
    #[error("not a possible geometry: {what}")]
    Geometry {
        /// The reason.
        what: String,
    },
    /// A buffer is not a whole number of blocks.
    #[error("{bytes} bytes is not a multiple of the block size, {block_size}")]
    Unaligned {
        /// Bytes of the buffer.
        bytes: u64,
        /// Bytes of a block.
        block_size: u64,
    },
    /// The blocks are not all on the device.
    #[error("blocks {lba}+{blocks} are beyond the device's end")]
    OutOfRange {
        /// First block.
        lba: Lba,
        /// How many.
        blocks: LbaCount,
    },
    /// No zone has this number.
    #[error("there is no zone {zone}")]
    NoSuchZone {
        /// The number.
        zone: ZoneId,
    },
    /// A write crosses the end of the zone's capacity, or a read the end of a zone where a device
    /// does not read across zones.
    #[error("{blocks} blocks at {lba} cross the end of zone {zone}")]
    CrossesZone {
        /// Zone of the first block.
        zone: ZoneId,
        /// First block.
        lba: Lba,
        /// How many.
        blocks: LbaCount,
    },
    /// A write does not start at the write pointer.
    #[error("write at {lba}, but zone {zone} has its write pointer at {wp}")]
    NotAtWritePointer {
        /// The zone.
        zone: ZoneId,
        /// Its write pointer.
        wp: Lba,
        /// Where the write wanted to start.
        lba: Lba,
    },
    /// The zone is Full.
    #[error("zone {zone} is full")]
    ZoneFull {
        /// The zone.
        zone: ZoneId,
    },
    /// The zone is ReadOnly.
    #[error("zone {zone} is read-only")]
    ZoneReadOnly {
        /// The zone.
        zone: ZoneId,
    },
    /// The zone is Offline.
    #[error("zone {zone} is offline")]
    ZoneOffline {
        /// The zone.
        zone: ZoneId,
    },
    /// One more active zone than the device allows.
    #[error("zone {zone} cannot become active: the limit is {limit} active zones")]
    TooManyActive {
        /// The zone.
        zone: ZoneId,
        /// The limit.
        limit: u32,
    },
    /// One more open zone than the device allows, and none can be closed implicitly.
    #[error("zone {zone} cannot be opened: the limit is {limit} open zones, all opened explicitly")]
    TooManyOpen {
        /// The zone.
        zone: ZoneId,
        /// The limit.
        limit: u32,
    },
    /// The state machine has no such transition.
    #[error("zone {zone} is {}: it cannot {}", .cond.name(), .action.name())]
    Transition {
        /// The zone.
        zone: ZoneId,
        /// Its condition.
        cond: ZoneCond,
        /// The requested action.
        action: ZoneAction,
    },
    /// An append is larger than the device takes.
    #[error("append of {blocks} blocks is over the limit of {limit}")]
    AppendTooLarge {
        /// How many.
        blocks: LbaCount,
        /// The limit.
        limit: LbaCount,
    },
    /// Append or a zone action on a conventional zone.
    #[error("zone {zone} is conventional: it has no write pointer")]
    Conventional {
        /// The zone.
        zone: ZoneId,
    },
    /// A deallocation in a sequential zone.
    #[error("zone {zone} has a write pointer: it is emptied by a reset")]
    Sequential {
        /// The zone.
        zone: ZoneId,
    },
    /// An access to the gap that `PowerOfTwo` adds behind a zone's blocks.
    #[error("block {lba} is in the gap between the capacity and the size of zone {zone}")]
    Gap {
        /// The zone.
        zone: ZoneId,
        /// The block.
        lba: Lba,
    },
    /// A drive file that is not well formed, or a device whose answers are not.
    #[error("{path}: {what}")]
    Malformed {
        /// The file or the node.
        path: PathBuf,
        /// The fault.
        what: String,
    },
    /// A device of a kind that cannot be used here.
    #[error("{path} {what}")]
    Unsuitable {
        /// Its node.
        path: PathBuf,
        /// Its unsuitable property; the text begins with a verb.
        what: String,
    },
    /// A block device without zones, which was not given virtual ones.
    #[error("{path} has no zones")]
    NoZones {
        /// Its node.
        path: PathBuf,
    },
    /// Another process has the drive open: for writing, or for reading where it is to be written.
    #[error("{path} is in use by another process{}", .by.map(|by| format!(", {by}")).unwrap_or_default())]
    Locked {
        /// The file.
        path: PathBuf,
        /// The number of that process, if the system reports it.
        by: Option<u32>,
    },
    /// The device was opened for reading only.
    #[error("the device is open for reading only")]
    OpenedReadOnly,
    /// The medium failed, or the fault layer made it fail.
    #[error("medium error at block {lba}")]
    Medium {
        /// First block of the access.
        lba: Lba,
    },
    /// The power is cut: nothing works until it is back.
    #[error("the power is cut")]
    PowerCut,
    /// The host below an emulated drive has no space left. Nothing was written, and zones are as
    /// they were: the same call succeeds once there is space.
    #[error("{what}: no space left on the host below the drive")]
    NoSpace {
        /// The operation, and its object.
        what: String,
    },
    /// A new drive file is larger than the host allows.
    #[error(
        "creating {}: the drive needs a file of {}, and {by} allows {} at most",
        .path.display(), readable(.needed.get()), readable(.limit.get())
    )]
    FileTooLarge {
        /// The file.
        path: PathBuf,
        /// Its size.
        needed: ByteCount,
        /// The largest size.
        limit: ByteCount,
        /// The source of that limit.
        by: FileLimit,
    },
    /// The operating system refused.
    #[error("{what}: {source}")]
    Io {
        /// The operation, and its object.
        what: String,
        /// The error of the system.
        source: io::Error,
    },
}

/// The source of a limit on the size of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileLimit {
    /// `RLIMIT_FSIZE` of the process.
    Process,
    /// The file system that holds the file.
    FileSystem,
}

impl fmt::Display for FileLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Process => "the limit of this process (`ulimit -f`)",
            Self::FileSystem => "the file system there",
        })
    }
}

impl DeviceError {
    /// The errno a Linux block device would give.
    pub fn errno(&self) -> Errno {
        self.codes().0
    }

    /// The status an NVMe controller would give.
    pub fn nvme_status(&self) -> NvmeStatus {
        self.codes().1
    }

    /// The same error from a layer whose zones and blocks have other numbers than those below.
    pub(crate) fn renumbered(
        self,
        zone_of: impl Fn(ZoneId) -> ZoneId,
        lba_of: impl Fn(Lba) -> Lba,
    ) -> Self {
        match self {
            Self::OutOfRange { lba, blocks } => Self::OutOfRange { lba: lba_of(lba), blocks },
            Self::NoSuchZone { zone } => Self::NoSuchZone { zone: zone_of(zone) },
            Self::CrossesZone { zone, lba, blocks } => {
                Self::CrossesZone { zone: zone_of(zone), lba: lba_of(lba), blocks }
            }
            Self::NotAtWritePointer { zone, wp, lba } => {
                Self::NotAtWritePointer { zone: zone_of(zone), wp: lba_of(wp), lba: lba_of(lba) }
            }
            Self::ZoneFull { zone } => Self::ZoneFull { zone: zone_of(zone) },
            Self::ZoneReadOnly { zone } => Self::ZoneReadOnly { zone: zone_of(zone) },
            Self::ZoneOffline { zone } => Self::ZoneOffline { zone: zone_of(zone) },
            Self::TooManyActive { zone, limit } => {
                Self::TooManyActive { zone: zone_of(zone), limit }
            }
            Self::TooManyOpen { zone, limit } => Self::TooManyOpen { zone: zone_of(zone), limit },
            Self::Transition { zone, cond, action } => {
                Self::Transition { zone: zone_of(zone), cond, action }
            }
            Self::Conventional { zone } => Self::Conventional { zone: zone_of(zone) },
            Self::Sequential { zone } => Self::Sequential { zone: zone_of(zone) },
            Self::Gap { zone, lba } => Self::Gap { zone: zone_of(zone), lba: lba_of(lba) },
            Self::Medium { lba } => Self::Medium { lba: lba_of(lba) },
            other @ (Self::Geometry { .. }
            | Self::Unaligned { .. }
            | Self::AppendTooLarge { .. }
            | Self::Malformed { .. }
            | Self::Unsuitable { .. }
            | Self::NoZones { .. }
            | Self::Locked { .. }
            | Self::OpenedReadOnly
            | Self::PowerCut
            | Self::NoSpace { .. }
            | Self::FileTooLarge { .. }
            | Self::Io { .. }) => other,
        }
    }

    /// The one table of both.
    fn codes(&self) -> (Errno, NvmeStatus) {
        match self {
            Self::Geometry { .. }
            | Self::Unaligned { .. }
            | Self::AppendTooLarge { .. }
            | Self::Unsuitable { .. }
            | Self::NoZones { .. } => (Errno::INVAL, status::INVALID_FIELD),
            Self::OutOfRange { .. } => (Errno::IO, status::LBA_OUT_OF_RANGE),
            Self::NoSuchZone { .. } => (Errno::INVAL, status::LBA_OUT_OF_RANGE),
            Self::CrossesZone { .. } | Self::Gap { .. } => (Errno::IO, status::ZONE_BOUNDARY),
            Self::NotAtWritePointer { .. } => (Errno::IO, status::ZONE_INVALID_WRITE),
            Self::ZoneFull { .. } => (Errno::IO, status::ZONE_FULL),
            Self::ZoneReadOnly { .. } => (Errno::IO, status::ZONE_READ_ONLY),
            Self::ZoneOffline { .. } => (Errno::IO, status::ZONE_OFFLINE),
            Self::TooManyActive { .. } => (Errno::OVERFLOW, status::TOO_MANY_ACTIVE),
            Self::TooManyOpen { .. } => (Errno::TOOMANYREFS, status::TOO_MANY_OPEN),
            Self::Transition { .. } => (Errno::IO, status::INVALID_TRANSITION),
            // NVMe has no conventional zones to give a status for.
            Self::Conventional { .. } => (Errno::IO, status::INVALID_FIELD),
            Self::Sequential { .. } => (Errno::OPNOTSUPP, status::INVALID_FIELD),
            Self::Malformed { .. } => (Errno::UCLEAN, status::INTERNAL),
            Self::Locked { .. } => (Errno::BUSY, status::NOT_READY),
            Self::OpenedReadOnly => (Errno::ROFS, status::WRITE_PROTECTED),
            Self::Medium { .. } => (Errno::IO, status::UNRECOVERED_READ),
            Self::NoSpace { .. } => (Errno::NOSPC, status::CAPACITY_EXCEEDED),
            Self::FileTooLarge { .. } => (Errno::FBIG, status::CAPACITY_EXCEEDED),
            Self::PowerCut => (Errno::IO, status::INTERNAL),
            Self::Io { source, .. } => {
                (Errno::from_io_error(source).unwrap_or(Errno::IO), status::INTERNAL)
            }
        }
    }
}

/// Keeps the errno: `raw_os_error` is [`DeviceError::errno`]. An error of the operating system
/// becomes that error again.
impl From<DeviceError> for io::Error {
    fn from(error: DeviceError) -> Self {
        match error {
            DeviceError::Io { source, .. } => source,
            error => error.errno().into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_have_errno_and_nvme_status() {
        let (zone, lba, blocks) = (ZoneId::new(3), Lba::new(70), LbaCount::new(5));
        let (cond, action, path) = (ZoneCond::Full, ZoneAction::Open, PathBuf::from("x"));
        let what = String::from("x");
        let full = io::Error::from_raw_os_error(Errno::NOSPC.raw_os_error());
        let table = [
            (DeviceError::Geometry { what: what.clone() }, Errno::INVAL, (0, 0x02)),
            (DeviceError::Unaligned { bytes: 5, block_size: 512 }, Errno::INVAL, (0, 0x02)),
            (DeviceError::OutOfRange { lba, blocks }, Errno::IO, (0, 0x80)),
            (DeviceError::NoSuchZone { zone }, Errno::INVAL, (0, 0x80)),
            (DeviceError::CrossesZone { zone, lba, blocks }, Errno::IO, (1, 0xb8)),
            (DeviceError::NotAtWritePointer { zone, wp: lba, lba }, Errno::IO, (1, 0xbc)),
            (DeviceError::ZoneFull { zone }, Errno::IO, (1, 0xb9)),
            (DeviceError::ZoneReadOnly { zone }, Errno::IO, (1, 0xba)),
            (DeviceError::ZoneOffline { zone }, Errno::IO, (1, 0xbb)),
            (DeviceError::TooManyActive { zone, limit: 2 }, Errno::OVERFLOW, (1, 0xbd)),
            (DeviceError::TooManyOpen { zone, limit: 2 }, Errno::TOOMANYREFS, (1, 0xbe)),
            (DeviceError::Transition { zone, cond, action }, Errno::IO, (1, 0xbf)),
            (DeviceError::AppendTooLarge { blocks, limit: blocks }, Errno::INVAL, (0, 0x02)),
            (DeviceError::Conventional { zone }, Errno::IO, (0, 0x02)),
            (DeviceError::Sequential { zone }, Errno::OPNOTSUPP, (0, 0x02)),
            (DeviceError::NoZones { path: path.clone() }, Errno::INVAL, (0, 0x02)),
            (
                DeviceError::Unsuitable { path: path.clone(), what: what.clone() },
                Errno::INVAL,
                (0, 0x02),
            ),
            (DeviceError::Gap { zone, lba }, Errno::IO, (1, 0xb8)),
            (
                DeviceError::FileTooLarge {
                    path: path.clone(),
                    needed: ByteCount::new(2),
                    limit: ByteCount::new(1),
                    by: FileLimit::Process,
                },
                Errno::FBIG,
                (0, 0x81),
            ),
            (DeviceError::Malformed { path: path.clone(), what }, Errno::UCLEAN, (0, 0x06)),
            (DeviceError::Locked { path, by: None }, Errno::BUSY, (0, 0x82)),
            (DeviceError::OpenedReadOnly, Errno::ROFS, (0, 0x20)),
            (DeviceError::Medium { lba }, Errno::IO, (2, 0x81)),
            (DeviceError::NoSpace { what: "x".into() }, Errno::NOSPC, (0, 0x81)),
            (DeviceError::PowerCut, Errno::IO, (0, 0x06)),
            (DeviceError::Io { what: "x".into(), source: full }, Errno::NOSPC, (0, 0x06)),
        ];
        for (error, errno, (kind, code)) in table {
            assert_eq!(error.errno(), errno, "{error}");
            assert_eq!(error.nvme_status(), NvmeStatus { kind, code }, "{error}");
            assert!(error.nvme_status().name().is_some(), "{error}");
            let told = error.to_string();
            assert_eq!(Errno::from_io_error(&error.into()), Some(errno), "{told}");
        }
    }
}
