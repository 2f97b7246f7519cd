//! Errors of serving.

use std::io;
use std::path::PathBuf;

use zonal::DeviceError;
use zonal_fs::FsError;

use crate::users::{self, User};

/// Result of serving.
pub type Result<T, E = ServeError> = std::result::Result<T, E>;

/// Failure to mount, serve or unmount.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The kernel's FUSE device is missing.
    #[error(
        "/dev/fuse is missing: load the fuse module (modprobe fuse) or give this container the device"
    )]
    NoFuse,
    /// This user may not open the kernel's FUSE device.
    #[error("/dev/fuse cannot be opened by this user")]
    FuseDenied,
    /// The mount point cannot be used.
    #[error("cannot mount on {point}: {source}")]
    Mount {
        /// The directory.
        point: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The process that served a mount has died, and the mount is still there.
    #[error("the process that served {point} has died")]
    Dead {
        /// The directory.
        point: PathBuf,
    },
    /// Another process took the block device after we had released it for the kernel.
    #[error(
        "another process took the device while it was being mounted; nothing was written since: {0}"
    )]
    Taken(DeviceError),
    /// A mount option is not valid.
    #[error("mount option {option:?}: {why}")]
    Option {
        /// The option.
        option: String,
        /// Why it is not valid.
        why: &'static str,
    },
    /// The connection to the kernel broke.
    #[error("connection to the kernel: {0}")]
    Session(io::Error),
    /// The file system could not be left clean.
    #[error("the file system could not be closed cleanly: {0}")]
    Shutdown(FsError),
    /// The device does not answer, so the file system could not be closed.
    #[error(
        "the file system was not closed, since a request to the device does not end; what was synced is on the device, as after a power cut"
    )]
    Stuck,
    /// A later signal asked for an end at once, so the file system was not closed.
    #[error(
        "the file system was not closed, since another signal asked to end at once; what was synced is on the device, as after a power cut, and later changes may be lost"
    )]
    EndedAtOnce,
    /// The daemon did not say that it is ready.
    #[error("{0}")]
    NotReady(String),
    /// The directory is not one of our mounts.
    #[error("{point} is not a mount served by zonal")]
    NotServed {
        /// The directory.
        point: PathBuf,
    },
    /// A process still uses the mount.
    #[error("{point} is busy: {}", users::listed(.users))]
    Busy {
        /// The directory.
        point: PathBuf,
        /// Users that were found.
        users: Vec<User>,
    },
    /// Data could not be made durable, so nothing was unmounted.
    #[error("{point} was not unmounted, since its data could not be synced: {source}")]
    NotDurable {
        /// The directory.
        point: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The directory is unmounted, but the daemon has not finished writing to the device.
    #[error(
        "{point} is unmounted, but its daemon (process {pid}) has not ended yet; the device is not released{}", kept(.users)
    )]
    StillRunning {
        /// The directory.
        point: PathBuf,
        /// The daemon.
        pid: u32,
        /// Processes of other mount namespaces that have the mount.
        users: Vec<User>,
    },
    /// The operating system refused.
    #[error("{what}: {source}")]
    Io {
        /// The operation that failed.
        what: String,
        /// The error of the system.
        source: io::Error,
    },
}

/// Names the mount namespaces that have a mount, for the end of a message.
fn kept(users: &[User]) -> String {
    if users.is_empty() {
        return String::new();
    }
    format!("; other mount namespaces have the mount: {}", users::listed(users))
}
