//! What can go wrong on a zoned device, with the facts a caller can act on.
//!
//! One table turns an error into an errno and an NVMe status: [`DeviceError::errno`],
//! [`DeviceError::nvme_status`].

use std::io;
use std::path::PathBuf;

use crate::{Lba, LbaCount, ZoneAction, ZoneCond, ZoneId};

/// Result of a device operation.
pub type Result<T> = std::result::Result<T, DeviceError>;

/// Failure of a device operation.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// The shape asked for is not one a device can have.
    #[error("not a possible geometry: {what}")]
    Geometry {
        /// What is wrong with it.
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
    /// A write crosses the end of the zone's capacity.
    #[error("write of {blocks} blocks at {lba} crosses the end of zone {zone}")]
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
        /// What was asked of it.
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
    /// An access to the addresses that an adapter made up between capacity and zone size.
    #[error("block {lba} is in the gap between the capacity and the size of zone {zone}")]
    Gap {
        /// The zone.
        zone: ZoneId,
        /// The block.
        lba: Lba,
    },
    /// A drive file or trace that is not well formed.
    #[error("{path}: {what}")]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// Another process has the drive open for writing.
    #[error("{path} is in use by another process")]
    Locked {
        /// The file.
        path: PathBuf,
    },
    /// The device was opened for reading only.
    #[error("the device is open for reading only")]
    OpenedReadOnly,
    /// The medium failed, or was told to by the fault layer.
    #[error("medium error at block {lba}")]
    Medium {
        /// First block of the access.
        lba: Lba,
    },
    /// The power is cut: nothing works until it is back.
    #[error("the power is cut")]
    PowerCut,
    /// The operating system refused.
    #[error("{what}: {source}")]
    Io {
        /// What was tried, and on what.
        what: String,
        /// What the system said.
        source: io::Error,
    },
}
