//! A command between the transport and its queue: the data that it transfers, and its end.

use zonal::nvme::NvmeStatus;

/// log₂ of the largest transfer, in pages of 4 KiB.
pub(crate) const TRANSFER_MAX_SHIFT: u8 = 8;
/// Largest transfer of one command, in bytes: 1 MiB.
pub(crate) const TRANSFER_MAX: usize = 4096 << TRANSFER_MAX_SHIFT;
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
    pub(crate) fn sent(self) -> &'a [u8] {
        match self {
            Self::FromHost(data) => data,
            Self::NoData | Self::ToHost(_) => unreachable!("the plan said: from the host"),
        }
    }

    /// The buffer for the bytes to the host.
    pub(crate) fn room(self) -> &'a mut [u8] {
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
pub(crate) const DONE: Executed = Ok(Outcome::Done(0));
