//! File systems served to the kernel over FUSE, and the life of a mount.
//!
//! - [`mount`]: serves a [`FileSystem`](zonal_fs::vfs::FileSystem) at a directory, from mounting to
//!   the clean end. Start here.
//! - [`options`]: the configuration of a mount, and the option strings of mount(8).
//! - [`served`]: how a mount is served. [`names`]: names that a mount adds to its file system.
//! - [`daemon`]: serves in the background, and tells the parent that the mount is ready.
//! - [`asked`]: whether signals ask for a clean end or for one at once.
//! - [`unmount`]: unmounts, and waits until the device is clean and released.
//! - [`fuse`]: turns FUSE requests into calls of the file system; `guarded` catches their panics,
//!   and `read_only` remounts after a failure.
//! - [`control`]: the control directory of a mount.
//! - [`latency`]: how long requests take. [`small_writes`]: whether `-o writeback` would help.
//! - [`exporter`]: serves metrics for Prometheus.
//! - [`users`], [`zone_report`]: processes that use a mount; zones as text.

#![forbid(unsafe_code)]

pub mod asked;
pub mod control;
pub mod daemon;
pub mod error;
pub mod exporter;
pub mod fuse;
mod guarded;
pub mod latency;
pub mod mount;
pub mod names;
pub mod options;
mod read_only;
pub mod served;
pub mod small_writes;
pub mod unmount;
pub mod users;
pub mod zone_report;

pub use error::ServeError;
pub use fuse::MountContent;
pub use mount::{serve, serve_on};
pub use options::MountConfig;
pub use served::Served;
pub use zonal_fuse_transport::Transport;
pub use zonal_fuse_transport::mount::MountType;
pub use zonal_fuse_transport::program;
