//! An NVM subsystem made of zoned devices and ordinary disks, and NVMe/TCP, the transport by which
//! hosts reach it.
//!
//! - [`tcp`]: serves a subsystem to every host that reaches an address. Start here.
//! - [`subsystem`]: the namespaces, the hosts that may connect, and their controllers.
//! - [`namespace`]: the common part of all namespaces; `zoned`: a device as a zoned namespace;
//!   [`extension`]: its zone descriptor extensions; `disk`: a disk as a namespace of the NVM
//!   command set.
//! - `controller`: the properties, queues and features that belong to one host; `events`:
//!   asynchronous events and the error log.
//! - `command`: the commands of a queue; `admin` and `io`: commands of the two kinds of queue.
//! - [`wire`]: structures of fabrics, features, events and log pages.
//!
//! A transport has a command *planned*, which validates it and says what data it transfers;
//! transfers the data; and has the command *executed*. Commands block, and run on as many threads
//! as the transport has.

#![forbid(unsafe_code)]

mod admin;
mod batch;
mod command;
mod controller;
mod disk;
pub mod error;
mod events;
pub mod extension;
mod io;
pub mod namespace;
pub mod subsystem;
pub mod tcp;
pub mod wire;
mod zoned;

use zonal::nvme::NvmeStatus;

pub(crate) use controller::{Controller, Link, Role};
pub use error::{Error, Result};
pub use namespace::Namespace;
pub use subsystem::Subsystem;

/// log₂ of the largest transfer, in pages of 4 KiB.
const TRANSFER_MAX_SHIFT: u8 = 8;
/// Largest transfer of one command, in bytes: 1 MiB.
pub(crate) const TRANSFER_MAX: usize = 4096 << TRANSFER_MAX_SHIFT;
/// Most I/O queues of a controller.
pub(crate) const QUEUES_MAX: u16 = 64;
/// Most entries of an I/O queue.
pub(crate) const ENTRIES_MAX: u32 = 1024;
/// Most entries of the admin queue.
pub(crate) const ADMIN_ENTRIES_MAX: u16 = 128;
/// Most bytes of in-capsule data.
pub(crate) const IN_CAPSULE_MAX: u32 = 8192;

/// The data that a command transfers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Plan {
    /// None.
    NoData,
    /// From the host, this many bytes.
    FromHost(usize),
    /// To the host, this many bytes.
    ToHost(usize),
}

/// The data of a planned command.
pub(crate) enum Payload<'a> {
    /// None.
    NoData,
    /// From the host, all of it.
    FromHost(&'a [u8]),
    /// To the host, to be overwritten: zeroes, or for a command of a batch anything.
    ToHost(&'a mut [u8]),
}

impl<'a> Payload<'a> {
    /// The bytes from the host.
    fn sent(self) -> &'a [u8] {
        match self {
            Self::FromHost(data) => data,
            Self::NoData | Self::ToHost(_) => unreachable!("the plan said: from the host"),
        }
    }

    /// The buffer for the bytes to the host.
    fn room(self) -> &'a mut [u8] {
        match self {
            Self::ToHost(data) => data,
            Self::NoData | Self::FromHost(_) => unreachable!("the plan said: to the host"),
        }
    }
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// With this result.
    Done(u64),
    /// It has not: it is an Asynchronous Event Request, which an event completes later.
    Outstanding,
}

/// The result of a command.
pub(crate) type Executed = Result<Outcome, NvmeStatus>;

/// Success without a result.
const DONE: Executed = Ok(Outcome::Done(0));
