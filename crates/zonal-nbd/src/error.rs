//! Errors of the NBD server. A failed request is no error of the server but an answer to the
//! client, see [`NbdError`](crate::wire::NbdError).

use std::io;
use std::path::PathBuf;

use zonal::DiskError;

/// Result of serving.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Failure to serve disks over NBD.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A disk that cannot be served under this name.
    #[error("{name:?} cannot be served: {why}")]
    Export {
        /// The name.
        name: String,
        /// The reason.
        why: &'static str,
    },
    /// An address that cannot be listened at.
    #[error("cannot listen at {address}: {source}")]
    Listen {
        /// The address.
        address: String,
        /// The error of the system.
        source: io::Error,
    },
    /// A certificate or a key that TLS cannot use.
    #[error("{}: {why}", .path.display())]
    Tls {
        /// The file.
        path: PathBuf,
        /// The fault in the file.
        why: String,
    },
    /// A disk could not make its data durable when the server ended.
    #[error("{name:?}: {source}")]
    Flush {
        /// The name of the export.
        name: String,
        /// The error of the disk.
        source: DiskError,
    },
    /// The operating system refused.
    #[error("{what}: {source}")]
    Io {
        /// The action that failed.
        what: String,
        /// The error of the system.
        source: io::Error,
    },
}
