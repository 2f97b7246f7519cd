//! An NVMe subsystem made of zoned devices, and NVMe/TCP, the transport that hosts reach it by.
//!
//! - [`tcp`]: serves a subsystem to every host that reaches an address. Start here.
//! - [`subsystem`]: the namespaces, who may use them, and the controllers that hosts have.
//! - [`namespace`]: one device as a zoned namespace; [`extension`]: what hosts attach to its zones.
//! - `controller`: what one host has: its properties, queues and features; `events`: what it is
//!   told unasked, and the errors it made.
//! - `admin` and `io`: the commands of the two kinds of queue.
//! - [`wire`]: what fabrics, features, events and log pages are on the wire.
//!
//! A transport asks a controller to *plan* a command, which tells what data it moves and refuses
//! what is wrong with it; moves the data; and has the command *executed*. Commands block, and run
//! on as many threads as the transport has.

#![forbid(unsafe_code)]

mod admin;
mod controller;
pub mod error;
mod events;
pub mod extension;
mod io;
pub mod namespace;
pub mod subsystem;
pub mod tcp;
pub mod wire;

use zonal::nvme::NvmeStatus;

pub(crate) use controller::{Controller, Link, Role};
pub use error::{Error, Result};
pub use namespace::Namespace;
pub use subsystem::Subsystem;

/// log₂ of the largest transfer, in pages of 4 KiB.
const TRANSFER_MAX_SHIFT: u8 = 8;
/// Largest transfer of one command, in bytes: 1 MiB.
pub(crate) const TRANSFER_MAX: usize = 4096 << TRANSFER_MAX_SHIFT;
/// I/O queues that a host may have.
pub(crate) const QUEUES_MAX: u16 = 64;
/// Entries of a queue.
pub(crate) const ENTRIES_MAX: u32 = 1024;
/// Entries of the admin queue.
pub(crate) const ADMIN_ENTRIES_MAX: u16 = 128;
/// Data that a host may put behind a command, in bytes.
pub(crate) const IN_CAPSULE_MAX: u32 = 8192;

/// The data that a command moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Plan {
    /// None.
    NoData,
    /// So many bytes from the host.
    FromHost(usize),
    /// So many bytes to the host.
    ToHost(usize),
}

/// The data of a planned command.
pub(crate) enum Payload<'a> {
    /// None.
    NoData,
    /// From the host, all of it.
    FromHost(&'a [u8]),
    /// To the host: zeroes, to be filled.
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

    /// Room for the bytes to the host.
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

/// What a command gives.
pub(crate) type Executed = Result<Outcome, NvmeStatus>;

/// Success without a result.
const DONE: Executed = Ok(Outcome::Done(0));
