//! Errors of serving over NVMe.

use std::io;
use std::net::SocketAddr;

/// Result of serving.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Failure to serve a device over NVMe.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A device cannot be served over NVMe.
    #[error("{device} cannot be served: {why}")]
    Export {
        /// The device.
        device: String,
        /// The reason.
        why: String,
    },
    /// A name that no NVMe subsystem or host can have.
    #[error(
        "{name:?} is not an NVMe qualified name: nqn.YYYY-MM.DOMAIN:NAME, at most 223 bytes, no spaces"
    )]
    Name {
        /// The name.
        name: String,
    },
    /// An address that cannot be listened at.
    #[error("cannot listen at {address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The error of the system.
        source: io::Error,
    },
    /// The operating system refused.
    #[error("{what}: {source}")]
    Io {
        /// The failed operation.
        what: String,
        /// The error of the system.
        source: io::Error,
    },
}
