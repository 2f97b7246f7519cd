//! Asks a drive about itself when it is opened, and finds the language that its zone commands go
//! in.

use std::io;

use zonal::{Geometry, Lba};

use super::ata::ZonedInformation;
use super::ata::{AtaCommand, Identification, PAGE_BYTES, WriteCacheBit, ZONED_INFORMATION};
use super::cdb::Command;
use super::channel::{Channel, Dialect, Doubt};
use super::inquiry::{
    BlockLimits, CACHING, CONTROL, Caching, Capacity, Characteristics, Inquiry, WriteCache,
    ZonedCharacteristics, content_of, identify_data, page, text, unique_name, write_protected,
};
use super::shape::{ATA, Answers};
use super::transport::{Failure, Next};
use super::zones::{Descriptor, ReportHeader, descriptors};

/// Bytes of an answer to INQUIRY or MODE SENSE: more than a page of a disk has, and less than what
/// old adapters refuse (`drivers/scsi/scsi.c` asks for at most 255 in doubt).
const ANSWER_BYTES: u16 = 252;

/// Bytes of the ATA information page (SAT-5).
const ATA_BYTES: u16 = 572;

/// Bytes of a report of zones: 4095 of them.
pub(super) const REPORT_BYTES: usize = 256 << 10;

/// Descriptors at which a drive is no longer asked for more.
const ZONES_MAX: usize = Geometry::ZONE_COUNT_MAX as usize;

/// The answers of a drive about itself. Pages that it does not have are left out.
pub(super) fn ask_all(channel: &Channel) -> Result<Answers, Failure> {
    // A drive that was just connected or reset says so first.
    channel.ask(Command::TestUnitReady, 0)?;
    channel.take_reset();
    let standard = Command::Inquiry { page: None, bytes: 36 };
    let inquiry = Inquiry::decode(&channel.ask(standard, Inquiry::BYTES)?);
    let identification = match text(&inquiry.vendor).as_deref() {
        Some(ATA) => identify(channel)?,
        Some(_) | None => None,
    };
    let serial = content(channel, page::SERIAL)?.and_then(|content| text(&content));
    let unique = content(channel, page::IDENTIFICATION)?.and_then(|content| unique_name(&content));
    let limits = content(channel, page::LIMITS)?.map(|content| BlockLimits::decode(&content));
    let characteristics =
        content(channel, page::CHARACTERISTICS)?.map(|content| Characteristics::decode(&content));
    let command = Command::ReadCapacity { bytes: 32 };
    let capacity = Capacity::decode(&channel.ask(command, Capacity::BYTES)?);
    let mode = |page| {
        let question = Command::ModeSense { page, bytes: ANSWER_BYTES };
        optional(channel.ask(question, ANSWER_BYTES.into()))
    };
    let (caching, control) = (mode(CACHING)?, mode(CONTROL)?);
    Ok(Answers {
        inquiry,
        serial: serial.or_else(|| text(&identification.as_ref()?.serial)),
        unique: unique.or_else(|| Some(format!("naa.{:016x}", identification.as_ref()?.name?))),
        limits,
        characteristics,
        max_open: max_open(channel, identification.as_ref())?,
        capacity: capacity.ok_or(Failure::Short)?,
        cache: caching.and_then(|answer| Caching::decode(&answer)).or_else(|| {
            let disk = identification.as_ref()?;
            let write = match disk.cache {
                WriteCacheBit::Enabled => WriteCache::Volatile,
                WriteCacheBit::Disabled => WriteCache::None,
            };
            Some(Caching { write, reads: disk.looks_ahead })
        }),
        is_write_protected: control.and_then(|answer| write_protected(&answer)),
        identification,
    })
}

/// The answer of a disk to IDENTIFY DEVICE: from the translation, which takes questions without
/// rights, or else from the disk.
fn identify(channel: &Channel) -> Result<Option<Identification>, Failure> {
    let kept = content(channel, page::ATA_INFORMATION)?;
    if let Some(data) = kept.as_deref().and_then(identify_data) {
        return Ok(Some(Identification::decode(data)));
    }
    let answer = optional(channel.ask(Command::Ata(AtaCommand::Identify), PAGE_BYTES))?;
    Ok(answer.map(|answer| Identification::decode(&answer)))
}

/// `None` if the drive or its adapter refuses a question, or the kernel does so: without
/// `CAP_SYS_RAWIO` it lets no ATA command through a node that is open for reading.
pub(super) fn optional<T>(answer: Result<T, Failure>) -> Result<Option<T>, Failure> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(Failure::Drive(_) | Failure::Status(_) | Failure::Host(_)) => Ok(None),
        Err(Failure::Kernel(error)) if error.kind() == io::ErrorKind::PermissionDenied => Ok(None),
        Err(failure) => Err(failure),
    }
}

/// The content of a page of vital product data, if the drive has it.
pub(super) fn content(channel: &Channel, page: u8) -> Result<Option<Vec<u8>>, Failure> {
    let bytes = if page == page::ATA_INFORMATION { ATA_BYTES } else { ANSWER_BYTES };
    let question = Command::Inquiry { page: Some(page), bytes };
    let answer = optional(channel.ask(question, bytes.into()))?;
    Ok(answer.and_then(|answer| content_of(page, &answer).map(<[u8]>::to_vec)))
}

/// The limit of open zones, from SCSI or else from ATA. Only a disk that identifies itself by ATA
/// gets further ATA commands: there are adapters that stop working at one.
fn max_open(channel: &Channel, disk: Option<&Identification>) -> Result<Option<u32>, Failure> {
    if let Some(content) = content(channel, page::ZONED)? {
        return Ok(ZonedCharacteristics::decode(&content).max_open);
    }
    if disk.is_none() {
        return Ok(None);
    }
    let (log, page) = ZONED_INFORMATION;
    let answer =
        optional(channel.ask(Command::Ata(AtaCommand::ReadLog { log, page }), PAGE_BYTES))?;
    Ok(answer.and_then(|answer| ZonedInformation::decode(&answer)).and_then(|page| page.max_open))
}

/// The first report of zones, by SCSI or by ATA commands, which the channel speaks from then on. If
/// SCSI fails, an ATA command follows at once, and if that fails too, the SCSI command again where
/// the drive may have aborted it by chance.
fn first_report(channel: &mut Channel, report: &mut [u8]) -> Result<usize, Failure> {
    let refused = match channel.report(Lba::ZERO, report, Doubt::Reported) {
        Err(refused @ (Failure::Drive(_) | Failure::Host(_) | Failure::Status(_))) => refused,
        other => return other,
    };
    channel.dialect = Dialect::Ata;
    tracing::debug!(?refused, "no REPORT ZONES by SCSI; ATA commands are used");
    match channel.report(Lba::ZERO, report, Doubt::Repeated) {
        Ok(bytes) => Ok(bytes),
        Err(Failure::Gone) => Err(Failure::Gone),
        Err(_) if refused.next() == Next::Doubt => {
            channel.dialect = Dialect::Scsi;
            channel.report(Lba::ZERO, report, Doubt::Repeated)
        }
        // The answer to SCSI tells more.
        Err(_) => Err(refused),
    }
}

/// Every zone of a drive, gap zones included, and its last block. Sets the language of the channel:
/// SCSI, unless the drive or its adapter refuses REPORT ZONES.
pub(super) fn all_zones(channel: &mut Channel) -> Result<(Vec<Descriptor>, Lba), Failure> {
    let most = usize::try_from(channel.bytes_max()).unwrap_or(usize::MAX).min(REPORT_BYTES);
    let mut report = vec![0; (most / PAGE_BYTES).max(1) * PAGE_BYTES];
    let mut bytes = first_report(channel, &mut report)?;
    let order = channel.order();
    let header = ReportHeader::decode(order, &report[..bytes]).ok_or(Failure::Short)?;
    let (last, mut zones) = (header.last, Vec::<Descriptor>::new());
    let mut next = Lba::ZERO;
    loop {
        // A descriptor that cannot be decoded leaves a hole, which the shape refuses.
        zones.extend(descriptors(order, &report[..bytes]).flatten());
        match zones.last().and_then(|zone| zone.start.checked_add(zone.blocks)) {
            // Each report goes on where the one before ended, so this ends.
            Some(end) if end > next && end <= last && zones.len() < ZONES_MAX => next = end,
            Some(_) | None => return Ok((zones, last)),
        }
        bytes = channel.report(next, &mut report, Doubt::Repeated)?;
    }
}
