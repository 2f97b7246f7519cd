//! The FUSE protocol: messages, and sessions with the Linux kernel.
//!
//! - [`session`]: requests taken from the kernel and handed to a [`Serve`], by several threads. Start here.
//! - [`request`]: what a request says, once its bytes are found to be well formed.
//! - [`reply`]: the one answer that a request gets, from any thread; [`listing`]: that of a directory.
//! - [`init`]: what server and kernel agree on first.
//! - [`notify`]: what a server tells the kernel unasked.
//! - [`mount`]: mounting, as root and as a user.
//! - [`apart`]: calls by which a server uses its own mount.
//! - [`hidden`]: a mount that no directory shows, and files of another that are read through it.
//! - [`pages`]: buffers that begin at a page.
//! - [`abi`]: the structures and numbers of the protocol.
//!
//! Messages know no transport: [`request::parse`] takes bytes, and a [`reply::Answer`] takes the parts of an
//! answer. [`session`] is the transport over `/dev/fuse`, and over `io_uring` (`rings`) where the kernel has that.

pub mod abi;
mod alarm;
pub mod apart;
mod crew;
mod device;
mod fields;
mod helper;
pub mod hidden;
pub mod init;
pub mod listing;
pub mod mount;
pub mod notify;
pub mod pages;
pub mod panics;
pub mod program;
pub mod reply;
pub mod request;
mod rings;
pub mod session;

pub use abi::NodeId;
pub use device::BackingId;
pub use reply::Reply;
pub use request::{Header, Op};
pub use rustix::io::Errno;
pub use session::{Serve, Session, Transport};
