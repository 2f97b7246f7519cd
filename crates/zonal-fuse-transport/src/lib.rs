//! The FUSE protocol: messages, and sessions with the Linux kernel.
//!
//! - [`session`]: takes requests from the kernel and hands them to a [`Serve`]. Start here.
//! - [`serve`]: the trait of a server.
//! - [`request`]: parses requests.
//! - [`reply`]: answers requests; [`listing`]: the answer with the entries of a directory;
//!   [`answer`]: parts of answers, and the sink that takes them.
//! - [`init`]: negotiates flags and sizes with the kernel.
//! - [`notify`]: notifications to the kernel.
//! - [`mount`]: mounts, as root and as a user.
//! - [`own_mount`]: system calls of a server on its own mount.
//! - [`hidden`]: the mount through whose files the files of another mount are read.
//! - [`pages`]: page-aligned buffers.
//! - [`abi`]: structures and numbers of the protocol.
//!
//! Messages know no transport: [`request::parse`] takes bytes, and an [`answer::ReplySink`] takes
//! the parts of an answer. A [`session`] uses `/dev/fuse` (`worker_pool`, with its `watchdog`), and
//! `io_uring` (`rings`) if the kernel offers it.

pub mod abi;
pub mod answer;
mod device;
mod fields;
mod helper;
pub mod hidden;
pub mod init;
pub mod listing;
pub mod mount;
pub mod notify;
pub mod own_mount;
pub mod pages;
pub mod panics;
pub mod program;
pub mod reply;
pub mod request;
mod rings;
pub mod serve;
pub mod session;
mod stand_in;
mod watchdog;
mod worker_pool;

pub use abi::NodeId;
pub use answer::BackingId;
pub use reply::Reply;
pub use request::{Header, Op};
pub use rustix::io::Errno;
pub use serve::Serve;
pub use session::{Session, Transport};
