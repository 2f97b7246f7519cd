//! File systems served to the kernel over FUSE, and the life of a mount.
//!
//! A room may use the rooms that its last column names; `cargo xtask check` compares the paths.
//!
//! | room | what it is | may use |
//! | --- | --- | --- |
//! | `asked` | whether signals ask for a clean end or for one at once | |
//! | `names` | names that a mount adds to its file system | |
//! | `extents` | extents of files as extended attributes | |
//! | `users` | processes that use a mount | |
//! | `zone_report` | zones as text | |
//! | `read_only` | remounts after a failure | |
//! | `small_writes` | whether `-o writeback` would help | |
//! | `error` | what fails | `users` |
//! | `latency` | how long requests take | `small_writes` |
//! | `options` | the configuration of a mount, and the option strings of mount(8) | `error` |
//! | `served` | how a mount is served | `options` |
//! | `daemon` | serves in the background, and tells the parent when it is ready | `error` |
//! | `unmount` | unmounts, and waits until the device is clean and released | all above |
//! | `control` | the control directory of a mount | all above |
//! | `exporter` | serves metrics for Prometheus | `error`, `control` |
//! | `guarded` | catches panics of a file system | `read_only`, `control` |
//! | `fuse` | turns FUSE requests into calls of the file system | all above |
//! | `mount` | the life of a mount, from mounting to the clean end: start here | all above |

#![forbid(unsafe_code)]

pub mod asked;
pub mod control;
pub mod daemon;
pub mod error;
pub mod exporter;
pub mod extents;
mod fuse;
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
