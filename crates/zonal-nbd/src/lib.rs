//! An NBD server for ordinary disks: QEMU, libnbd, nbdkit, fio and Linux reach them over TCP and
//! Unix sockets.
//!
//! A room may use the rooms that its last column names; `cargo xtask check` compares the paths.
//!
//! | room | what it is | may use |
//! | --- | --- | --- |
//! | `wire` | messages of the protocol | |
//! | `error` | what fails | |
//! | `export` | a disk with the name by which clients ask for it | all above |
//! | `server` | serves exports to every client that reaches an address: start here | all above |
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
