//! An NBD server for ordinary disks: QEMU, libnbd, nbdkit, fio and Linux reach them over TCP and
//! Unix sockets.
//!
//! - [`server`]: serves exports to every client that reaches an address. Start here.
//! - [`export`]: a disk with the name by which clients ask for it.
//! - [`wire`]: the messages of the protocol.
//!
//! The protocol is that of `doc/proto.md` of the NBD project: fixed newstyle negotiation, simple
//! and structured replies, the metadata context `base:allocation`, and TLS.

#![forbid(unsafe_code)]

pub mod error;
pub mod export;
pub mod server;
pub mod wire;

pub use error::{Error, Result};
pub use export::{Export, Exports};
pub use server::{Address, Server, Settings, Tls};
