//! The path of a command to a drive, and the outcome that comes back.
//!
//! `sg.rs` is the path through the kernel, `target.rs` a drive in memory for tests. Several threads
//! may run commands at the same time: that is how several are in flight.

use std::io;

use rustix::io::Errno;

use super::cdb::Cdb;
use super::sense::{Cause, Meaning, Sense};
use crate::data::Data;

/// A command, its data, and how long it may take.
pub(super) struct Request<'a> {
    pub(super) cdb: Cdb,
    pub(super) data: Data<'a>,
    pub(super) timeout_ms: u32,
}

/// The outcome of a command that the kernel took.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reply {
    /// SCSI status.
    pub(super) status: u8,
    /// Sense data, if there is any.
    pub(super) sense: Option<Sense>,
    /// Status of the host adapter, 0 if it has no fault to report.
    pub(super) host: u16,
    /// Bytes that were not transferred.
    pub(super) residual: usize,
}

/// The path to one drive.
pub(super) trait Transport: Send + Sync {
    /// Runs a command and waits for it.
    fn run(&self, request: &mut Request<'_>) -> io::Result<Reply>;

    /// Most bytes of one command.
    fn bytes_max(&self) -> u64;
}

/// SCSI status (SAM-6, "Status codes").
pub(super) mod status {
    pub(in crate::scsi) const GOOD: u8 = 0x00;
    pub(in crate::scsi) const CHECK_CONDITION: u8 = 0x02;
    pub(in crate::scsi) const CONDITION_MET: u8 = 0x04;
    pub(in crate::scsi) const BUSY: u8 = 0x08;
    pub(in crate::scsi) const TASK_SET_FULL: u8 = 0x28;
    pub(in crate::scsi) const TASK_ABORTED: u8 = 0x40;
}

/// Status of the host adapter (Linux, `include/scsi/scsi_status.h`: `enum scsi_host_status`).
pub(super) mod host {
    pub(in crate::scsi) const NO_CONNECT: u16 = 0x01;
    pub(in crate::scsi) const BUS_BUSY: u16 = 0x02;
    pub(in crate::scsi) const TIME_OUT: u16 = 0x03;
    pub(in crate::scsi) const RESET: u16 = 0x08;
    pub(in crate::scsi) const SOFT_ERROR: u16 = 0x0b;
    pub(in crate::scsi) const IMM_RETRY: u16 = 0x0c;
    pub(in crate::scsi) const REQUEUE: u16 = 0x0d;
    pub(in crate::scsi) const TRANSPORT_DISRUPTED: u16 = 0x0e;
}

/// Why a command failed.
#[derive(Debug)]
pub(super) enum Failure {
    /// The drive is gone.
    Gone,
    /// The kernel refused it.
    Kernel(io::Error),
    /// The host adapter failed: the outcome is unknown.
    Host(u16),
    /// The drive completed it with this status, and says no more.
    Status(u8),
    /// The drive says why.
    Drive(Sense),
    /// It transferred fewer bytes than it should have.
    Short,
}

/// How to go on after a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// The drive did not start the command: repeat it.
    Repeat,
    /// The same, after a pause.
    Wait,
    /// The same, after START STOP UNIT.
    Start,
    /// The drive may have performed the command, or a part of it.
    Doubt,
    /// The same command would fail again, or too late.
    GiveUp,
}

impl Failure {
    /// The bytes that a command of `len` bytes transferred, or its failure.
    pub(super) fn check(outcome: io::Result<Reply>, len: usize) -> Result<usize, Self> {
        let reply = match outcome {
            Ok(reply) => reply,
            Err(error) => {
                return Err(match Errno::from_io_error(&error) {
                    Some(Errno::NODEV | Errno::NXIO) => Self::Gone,
                    _ => Self::Kernel(error),
                });
            }
        };
        match (reply.host, reply.status, reply.sense) {
            (0, status::GOOD | status::CONDITION_MET, _) => Ok(len.saturating_sub(reply.residual)),
            (0, status::CHECK_CONDITION, Some(sense)) => match sense.meaning() {
                Meaning::Performed => Ok(len.saturating_sub(reply.residual)),
                _ => Err(Self::Drive(sense)),
            },
            (0, status, _) => Err(Self::Status(status)),
            (host::NO_CONNECT, ..) => Err(Self::Gone),
            (host, ..) => Err(Self::Host(host)),
        }
    }

    /// How to go on.
    pub(super) fn next(&self) -> Next {
        match self {
            Self::Drive(Sense { cause: Cause::Earlier, .. }) => Next::GiveUp,
            Self::Drive(sense) => match sense.meaning() {
                Meaning::UnitAttention => Next::Repeat,
                Meaning::BecomingReady => Next::Wait,
                Meaning::NeedsStart => Next::Start,
                Meaning::Aborted => Next::Doubt,
                _ => Next::GiveUp,
            },
            Self::Status(status::BUSY | status::TASK_SET_FULL)
            | Self::Host(host::BUS_BUSY | host::IMM_RETRY | host::REQUEUE) => Next::Wait,
            Self::Status(status::TASK_ABORTED)
            | Self::Host(host::SOFT_ERROR | host::RESET | host::TRANSPORT_DISRUPTED) => Next::Doubt,
            // The kernel had no memory or no room in its queue for the command.
            Self::Kernel(error) => match Errno::from_io_error(error) {
                Some(Errno::NOMEM | Errno::DOM | Errno::AGAIN | Errno::BUSY) => Next::Wait,
                _ => Next::GiveUp,
            },
            Self::Gone | Self::Host(_) | Self::Status(_) | Self::Short => Next::GiveUp,
        }
    }

    /// The meaning of the sense data of a drive.
    pub(super) fn meaning(&self) -> Option<Meaning> {
        match self {
            Self::Drive(sense) => Some(sense.meaning()),
            Self::Gone | Self::Kernel(_) | Self::Host(_) | Self::Status(_) | Self::Short => None,
        }
    }

    /// The error of the operating system that says the same.
    pub(super) fn into_io_error(self) -> io::Error {
        match self {
            Self::Gone => Errno::NODEV.into(),
            Self::Kernel(error) => error,
            Self::Host(host::TIME_OUT) => Errno::TIMEDOUT.into(),
            Self::Host(status) => {
                io::Error::other(format!("the host adapter returned status {status:02x}h"))
            }
            Self::Status(status) => {
                io::Error::other(format!("the drive returned SCSI status {status:02x}h"))
            }
            Self::Drive(Sense { key, asc, ascq, ata, .. }) => {
                let ata = ata.map_or_else(String::new, |ata| {
                    format!(", ATA status {:02x}h, error {:02x}h", ata.status, ata.error)
                });
                let why = match Sense::new(key, asc, ascq).meaning() {
                    Meaning::WriteProtected => "is write-protected: it ",
                    Meaning::NeedsStart => "does not start: it ",
                    _ => "",
                };
                io::Error::other(format!(
                    "the drive {why}returned sense {key:x}/{asc:02x}/{ascq:02x}{ata}"
                ))
            }
            Self::Short => io::ErrorKind::UnexpectedEof.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: Reply = Reply { status: status::GOOD, sense: None, host: 0, residual: 0 };

    fn check(reply: Reply) -> Result<usize, Failure> {
        Failure::check(Ok(reply), 10)
    }

    #[test]
    fn outcome_counts_transferred_bytes() {
        assert_eq!(check(Reply { residual: 3, ..GOOD }).unwrap(), 7);
        assert_eq!(check(Reply { residual: 30, ..GOOD }).unwrap(), 0);
        let sense = Some(Sense::new(1, 0, 0));
        let recovered = Reply { status: status::CHECK_CONDITION, sense, ..GOOD };
        assert_eq!(check(recovered).unwrap(), 10);
    }

    #[test]
    fn failures_are_repeated_only_if_drive_did_not_start() {
        let drive = |key, asc, ascq| Failure::Drive(Sense::new(key, asc, ascq));
        let kernel = |errno: Errno| Failure::Kernel(errno.into());
        let table = [
            (drive(6, 0x29, 0), Next::Repeat),
            (drive(2, 4, 1), Next::Wait),
            (drive(2, 4, 2), Next::Start),
            (drive(0xb, 0, 0), Next::Doubt),
            (drive(3, 0x11, 0), Next::GiveUp),
            (
                Failure::Drive(Sense { cause: Cause::Earlier, ..Sense::new(0xb, 0, 0) }),
                Next::GiveUp,
            ),
            (Failure::Status(0x08), Next::Wait),
            (Failure::Status(0x28), Next::Wait),
            (Failure::Status(0x40), Next::Doubt),
            (Failure::Status(0x18), Next::GiveUp),
            (Failure::Host(0x0d), Next::Wait),
            (Failure::Host(0x0b), Next::Doubt),
            (Failure::Host(0x03), Next::GiveUp),
            (kernel(Errno::NOMEM), Next::Wait),
            (kernel(Errno::PERM), Next::GiveUp),
            (Failure::Gone, Next::GiveUp),
            (Failure::Short, Next::GiveUp),
        ];
        for (failure, next) in table {
            assert_eq!(failure.next(), next, "{failure:?}");
        }
    }

    #[test]
    fn drive_without_connection_is_gone() {
        for errno in [Errno::NODEV, Errno::NXIO] {
            assert!(matches!(Failure::check(Err(errno.into()), 0), Err(Failure::Gone)));
        }
        let reply = Reply { host: host::NO_CONNECT, ..GOOD };
        assert!(matches!(check(reply), Err(Failure::Gone)));
        let reply = Reply { host: host::TIME_OUT, ..GOOD };
        let error = check(reply).unwrap_err().into_io_error();
        assert_eq!(Errno::from_io_error(&error), Some(Errno::TIMEDOUT));
    }
}
