//! The commands of one drive, as SCSI or as ATA, with their timeouts, and repeated where that is
//! safe.
//!
//! A drive that stands still is started. A command that the drive did not start (unit attention,
//! busy) is repeated. A command that it may have performed (aborted) is repeated unless it is a
//! write: only the write pointer tells what a write did, so the caller decides.

use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::{Timespec, poll};
use zonal::nvme::decode::{Durability, ReportCount, SendTarget};
use zonal::{Lba, ZoneAction};

use super::ata::{self, AtaCommand, CountUnit};
use super::cdb::{Activation, BlockRange, Command, ReportZones, ZoneFilter};
use super::number::ByteOrder;
use super::sense::{Meaning, Sense, key};
use super::transport::{Failure, Next, Request, Transport, status};
use crate::data::Data;

/// How often a command is repeated at once: unit attentions may queue up.
const REPEATS: u32 = 8;

/// How often a command is repeated that the drive may have performed.
pub(super) const DOUBTS: u32 = 3;

/// How often a command is repeated after a pause. With the pauses this is about half a minute, the
/// time in which a disk spins up.
const WAITS: u32 = 60;

/// Bytes of an answer to REQUEST SENSE.
const SENSE_BYTES: u8 = 252;

/// Milliseconds of the first pause; each is twice as long as the one before, 64 times at most.
const PAUSE_MS: u32 = 10;

/// The additional sense code of a unit attention that says: power on, reset, or bus device reset.
const WAS_RESET: u8 = 0x29;

/// Timeouts, in milliseconds. A command that takes longer makes the kernel reset the drive, so they
/// are long. The kernel allows 30 s for reads and writes and 60 s for a flush
/// (`drivers/scsi/sd.h`).
mod timeout {
    /// Questions.
    pub(super) const QUESTION: u32 = 30_000;
    /// The start of a disk that stood still.
    pub(super) const START: u32 = 120_000;
    /// Reads, writes and reports. A shingled disk may first move data.
    pub(super) const TRANSFER: u32 = 60_000;
    /// A flush: a cache of 512 MiB, all over the disk.
    pub(super) const FLUSH: u32 = 300_000;
    /// An action on one zone: to finish one is to write the rest of it.
    pub(super) const ZONE: u32 = 60_000;
    /// An action on all zones.
    pub(super) const ALL_ZONES: u32 = 1_800_000;
}

/// The language of the commands that move data and change zones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dialect {
    /// SCSI.
    Scsi,
    /// ATA commands inside of SCSI commands.
    Ata,
}

/// Whether a command that the drive may have performed is repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Doubt {
    /// It is: performed twice, it does the same.
    Repeated,
    /// It is not.
    Reported,
}

/// The commands of one drive.
pub(super) struct Channel {
    transport: Box<dyn Transport>,
    /// The language of reads, writes, flushes and zone commands.
    pub(super) dialect: Dialect,
    /// Bytes of a logical block of the drive.
    pub(super) block_bytes: u32,
    /// The first pause, in milliseconds.
    pub(super) pause_ms: u32,
    /// Set for good when the drive vanishes.
    is_gone: AtomicBool,
    /// Whether the drive has reported a reset that no flush has checked yet.
    was_reset: AtomicBool,
}

impl Channel {
    /// Commands over `transport`, as SCSI.
    pub(super) fn new(transport: Box<dyn Transport>) -> Self {
        Self {
            transport,
            dialect: Dialect::Scsi,
            block_bytes: 512,
            pause_ms: PAUSE_MS,
            is_gone: AtomicBool::new(false),
            was_reset: AtomicBool::new(false),
        }
    }

    /// Most bytes of one command.
    pub(super) fn bytes_max(&self) -> u64 {
        let blocks = u64::from(ata::BLOCKS_MAX) * u64::from(self.block_bytes);
        match self.dialect {
            Dialect::Scsi => self.transport.bytes_max(),
            Dialect::Ata => self.transport.bytes_max().min(blocks),
        }
    }

    /// The order of bytes in reports of zones.
    pub(super) fn order(&self) -> ByteOrder {
        match self.dialect {
            Dialect::Scsi => ByteOrder::HighFirst,
            Dialect::Ata => ByteOrder::LowFirst,
        }
    }

    /// Whether the drive was reset since the last call.
    pub(super) fn take_reset(&self) -> bool {
        self.was_reset.swap(false, Ordering::AcqRel)
    }

    /// Says again that the drive was reset.
    pub(super) fn note_reset(&self) {
        self.was_reset.store(true, Ordering::Release);
    }

    /// Runs a command, and repeats it where that is safe. Returns the transferred bytes.
    fn run(
        &self,
        command: Command,
        data: Data<'_>,
        timeout_ms: u32,
        doubt: Doubt,
    ) -> Result<usize, Failure> {
        let len = data.len();
        let mut request = Request { cdb: command.encode(), data, timeout_ms };
        let (mut repeats, mut waits, mut doubts, mut starts) = (0, 0, 0, 0);
        loop {
            if self.is_gone.load(Ordering::Acquire) {
                return Err(Failure::Gone);
            }
            let failure = match Failure::check(self.transport.run(&mut request), len) {
                Ok(bytes) => return Ok(bytes),
                Err(Failure::Status(status::CHECK_CONDITION)) => self.ask_why(),
                Err(failure) => failure,
            };
            if matches!(failure, Failure::Gone) {
                self.is_gone.store(true, Ordering::Release);
            }
            if let Failure::Drive(sense) = &failure
                && (sense.key, sense.asc) == (key::UNIT_ATTENTION, WAS_RESET)
            {
                self.note_reset();
            }
            match failure.next() {
                Next::Repeat if repeats < REPEATS => repeats += 1,
                Next::Wait if waits < WAITS => {
                    self.pause(waits);
                    waits += 1;
                }
                Next::Start if starts == 0 && self.start() => starts += 1,
                Next::Doubt if doubt == Doubt::Repeated && doubts < DOUBTS => doubts += 1,
                Next::Repeat | Next::Wait | Next::Start | Next::Doubt | Next::GiveUp => {
                    return Err(failure);
                }
            }
            tracing::debug!(?failure, ?command, "a SCSI command is repeated");
        }
    }

    /// Why a command failed whose sense data did not come with it: some adapters leave that out. An
    /// answer that says nothing leaves the status.
    fn ask_why(&self) -> Failure {
        let mut answer = vec![0; SENSE_BYTES.into()];
        let command = Command::RequestSense { bytes: SENSE_BYTES };
        let (cdb, timeout_ms) = (command.encode(), timeout::QUESTION);
        let mut request = Request { cdb, data: Data::Fill(&mut answer), timeout_ms };
        let asked = Failure::check(self.transport.run(&mut request), SENSE_BYTES.into());
        match asked.ok().and_then(|len| Sense::decode(&answer[..len])) {
            Some(sense) if sense.meaning() != Meaning::Performed => Failure::Drive(sense),
            Some(_) | None => Failure::Status(status::CHECK_CONDITION),
        }
    }

    /// Starts a drive that waits for it; whether it took the command.
    fn start(&self) -> bool {
        let (cdb, timeout_ms) = (Command::Start.encode(), timeout::START);
        let mut request = Request { cdb, data: Data::Nothing, timeout_ms };
        Failure::check(self.transport.run(&mut request), 0).is_ok()
    }

    /// Waits a moment, which is longer the more often there was one.
    fn pause(&self, waits: u32) {
        let pause_ms = i64::from(self.pause_ms) << waits.min(6);
        let (tv_sec, tv_nsec) = (pause_ms / 1000, pause_ms % 1000 * 1_000_000);
        // A signal that ends the pause early costs a repetition.
        let _ = poll(&mut [], Some(&Timespec { tv_sec, tv_nsec }));
    }

    /// Asks the drive: runs a command with an answer of at most `bytes` bytes.
    pub(super) fn ask(&self, command: Command, bytes: usize) -> Result<Vec<u8>, Failure> {
        let mut answer = vec![0; bytes];
        let data = if bytes == 0 { Data::Nothing } else { Data::Fill(&mut answer) };
        let len = self.run(command, data, timeout::QUESTION, Doubt::Repeated)?;
        answer.truncate(len);
        Ok(answer)
    }

    /// Reports zones from the one with block `first` on: returns the bytes of the report. They are
    /// a multiple of 512.
    pub(super) fn report(
        &self,
        first: Lba,
        report: &mut [u8],
        doubt: Doubt,
    ) -> Result<usize, Failure> {
        let bytes = u32::try_from(report.len()).expect("a report has less than 4 GiB");
        let (only, count) = (ZoneFilter::All, ReportCount::Reported);
        self.report_zones(ReportZones { first, bytes, only, count }, report, doubt)
    }

    /// Reports some zones.
    pub(super) fn report_zones(
        &self,
        what: ReportZones,
        report: &mut [u8],
        doubt: Doubt,
    ) -> Result<usize, Failure> {
        let command = match self.dialect {
            Dialect::Scsi => Command::ReportZones(what),
            Dialect::Ata => Command::Ata(AtaCommand::ReportZones(what)),
        };
        self.run(command, Data::Fill(report), timeout::TRANSFER, doubt)
    }

    fn range(&self, first: Lba, bytes: usize) -> (BlockRange, CountUnit) {
        let blocks = u32::try_from(bytes / self.block_bytes as usize).expect("a command's blocks");
        let unit = if self.block_bytes == 512 { CountUnit::Pages } else { CountUnit::Blocks };
        (BlockRange { first, blocks, durability: Durability::Volatile }, unit)
    }

    /// Reads from block `first` on, by one command.
    pub(super) fn read(&self, first: Lba, target: &mut [u8]) -> Result<(), Failure> {
        let (len, (range, unit)) = (target.len(), self.range(first, target.len()));
        let command = match self.dialect {
            Dialect::Scsi => Command::Read(range),
            Dialect::Ata => Command::Ata(AtaCommand::Read(range, unit)),
        };
        let read = self.run(command, Data::Fill(target), timeout::TRANSFER, Doubt::Repeated)?;
        if read == len { Ok(()) } else { Err(Failure::Short) }
    }

    /// Writes from block `first` on, by one command, which is not repeated if it may have been
    /// performed.
    pub(super) fn write(&self, first: Lba, data: &[u8]) -> Result<(), Failure> {
        let (range, unit) = self.range(first, data.len());
        let command = match self.dialect {
            Dialect::Scsi => Command::Write(range),
            Dialect::Ata => Command::Ata(AtaCommand::Write(range, unit)),
        };
        let written = self.run(command, Data::Take(data), timeout::TRANSFER, Doubt::Reported)?;
        if written == data.len() { Ok(()) } else { Err(Failure::Short) }
    }

    /// Makes completed writes durable.
    pub(super) fn flush(&self) -> Result<(), Failure> {
        let command = match self.dialect {
            Dialect::Scsi => Command::SynchronizeCache,
            Dialect::Ata => Command::Ata(AtaCommand::Flush),
        };
        self.run(command, Data::Nothing, timeout::FLUSH, Doubt::Repeated).map(drop)
    }

    /// Activates zones of a zone domain: returns the bytes of the answer. A drive of 28 TB may take
    /// minutes.
    pub(super) fn activate(&self, what: Activation) -> Result<Vec<u8>, Failure> {
        let mut answer = vec![0; usize::try_from(what.bytes).expect("a small answer")];
        let (command, data) = (Command::ZoneActivate(what), Data::Fill(&mut answer));
        let len = self.run(command, data, timeout::ALL_ZONES, Doubt::Reported)?;
        answer.truncate(len);
        Ok(answer)
    }

    /// Opens, closes, finishes or resets zones.
    pub(super) fn manage(&self, action: ZoneAction, zones: SendTarget) -> Result<(), Failure> {
        let command = match self.dialect {
            Dialect::Scsi => Command::ManageZones { action, zones },
            Dialect::Ata => Command::Ata(AtaCommand::ManageZones { action, zones }),
        };
        let timeout_ms = match zones {
            SendTarget::Start(_) => timeout::ZONE,
            SendTarget::All => timeout::ALL_ZONES,
        };
        self.run(command, Data::Nothing, timeout_ms, Doubt::Repeated).map(drop)
    }
}
