//! File systems served to the kernel over FUSE, and the life of a mount.
//!
//! - [`mount`]: serves a [`FileSystem`](zonal_fs::vfs::FileSystem) at a directory, from mounting
//!   to the clean end. Start here.
//! - [`options`]: the configuration of a mount, and the option strings of mount(8).
//! - [`daemon`]: serving in the background, and telling the parent that the mount is ready.
//! - [`unmount`]: unmounting and waiting until the device is clean and released.
//! - [`control`]: the directory of a mount where its user looks into it.
//! - [`latency`]: how long requests take.
//! - [`small_writes`]: whether `-o writeback` would help.
//! - [`exporter`]: what the control directory shows, for Prometheus.
//! - [`fuse`]: FUSE requests turned into calls of the file system.

#![forbid(unsafe_code)]

pub mod control;
pub mod daemon;
pub mod error;
pub mod exporter;
pub mod fuse;
mod guarded;
pub mod latency;
pub mod mount;
pub mod options;
mod read_only;
pub mod small_writes;
pub mod unmount;
pub mod users;
pub mod zone_report;

pub use error::ServeError;
pub use mount::{Served, serve, serve_on};
pub use options::MountConfig;
pub use zonal_fuse_transport::Transport;
pub use zonal_fuse_transport::mount::Kind;
pub use zonal_fuse_transport::program;
