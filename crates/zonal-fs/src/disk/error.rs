//! Errors of the set of disks.

use zonal::size::readable;
use zonal::{ByteCount, DiskError};

use super::DiskName;
use crate::volume;

/// Result of an operation on the set of disks.
pub type Result<T> = std::result::Result<T, Error>;

/// Why an operation on the set of disks failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A text is no name of a disk.
    #[error(
        "{text:?} is no name of a disk: give 1 to 64 letters, digits, `_`, `-` or `.`, of which the \
         first is a letter or a digit; a snapshot is NAME@SNAPSHOT"
    )]
    BadName {
        /// The text.
        text: String,
    },
    /// A new disk that is no snapshot has the name of one.
    #[error(
        "{name} is the name of a snapshot, which `zonal disk snapshot` makes: give one without @"
    )]
    SnapshotName {
        /// The name.
        name: DiskName,
    },
    /// A snapshot has the name of something else.
    #[error("a snapshot of {disk} has the name {disk}@SNAPSHOT, not {name}")]
    NotASnapshotName {
        /// The disk.
        disk: DiskName,
        /// The name.
        name: DiskName,
    },
    /// The size is no whole number of 4096 bytes, or zero.
    #[error("a disk of {} bytes: give a multiple of 4096", .size.get())]
    Size {
        /// The size.
        size: ByteCount,
    },
    /// The file system is zonefs, whose files are written in order.
    #[error("disks need Furrow, and this drive has zonefs: format a drive with `zonal mkfs`")]
    NotFurrow,
    /// There is no such disk.
    #[error("there is no disk {name}")]
    NotFound {
        /// Its name.
        name: DiskName,
    },
    /// A disk or a file has that name.
    #[error("{name} exists")]
    Exists {
        /// Its name.
        name: DiskName,
    },
    /// A file among the disks is none.
    #[error("{name} is no disk: it has no settings")]
    NotADisk {
        /// Its name.
        name: DiskName,
    },
    /// The settings of a file among the disks are not understood.
    #[error("{name} is no disk: {why}")]
    Settings {
        /// Its name.
        name: DiskName,
        /// The fault.
        why: String,
    },
    /// The disk is open.
    #[error("disk {name} is in use: meanwhile it can only grow, and be copied")]
    InUse {
        /// Its name.
        name: DiskName,
    },
    /// The disk takes no changes.
    #[error("disk {name} is read-only")]
    ReadOnly {
        /// Its name.
        name: DiskName,
    },
    /// The disk is open, and its content is not what its user takes it for.
    #[error("making disk {name} durable: {source}")]
    Flush {
        /// Its name.
        name: DiskName,
        /// The failure.
        source: DiskError,
    },
    /// The drive has no room for a thick disk.
    #[error(
        "no room for disk {name}: it needs up to {} of its own, and the drive has {} free; a thin \
         disk takes space as it is written",
        readable(.needed.get()),
        readable(.free.get())
    )]
    NoRoom {
        /// Its name.
        name: DiskName,
        /// Space that the range needs at most.
        needed: ByteCount,
        /// Space that is free.
        free: ByteCount,
    },
    /// The volume failed.
    #[error(transparent)]
    Volume(#[from] volume::Error),
}
