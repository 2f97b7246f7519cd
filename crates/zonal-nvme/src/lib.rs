//! An NVM subsystem made of zoned devices and ordinary disks, and NVMe/TCP, the transport by which
//! hosts reach it.
//!
//! A room may use the rooms that its last column names; `cargo xtask check` compares the paths.
//!
//! | room | what it is | may use |
//! | --- | --- | --- |
//! | `wire` | structures of fabrics, features, events and log pages | |
//! | `error` | what fails | |
//! | `command` | the data that a command transfers, and its end | |
//! | `extension` | zone descriptor extensions | |
//! | `namespace` | a zoned device or an ordinary disk as a namespace | all above |
//! | `subsystem` | namespaces, hosts that may connect, their controllers and events | all above |
//! | `admin`, `io` | commands of the two kinds of queue | all above |
//! | `queue` | gives a command to the kind that its queue has | all above |
//! | `tcp` | serves a subsystem to every host that reaches an address: start here | all above |
//!
//! A transport has a command *planned*, which validates it and says what data it transfers;
//! transfers the data; and has the command *executed*. Commands block, and run on as many threads
//! as the transport has.

#![forbid(unsafe_code)]

mod admin;
mod command;
pub mod error;
pub mod extension;
mod io;
pub mod namespace;
mod queue;
pub mod subsystem;
pub mod tcp;
pub mod wire;

pub use error::{Error, Result};
pub use namespace::Namespace;
pub use subsystem::Subsystem;
