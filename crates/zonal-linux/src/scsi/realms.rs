//! Zone domains and zone realms of a hybrid drive: asks for them, and activates a realm.
//!
//! The blocks of a realm belong to one zone domain at a time: as few conventional zones, or as more
//! sequential ones (ZBC-2, "Zone domains and zone realms").

use std::io;
use std::path::Path;

use zonal::nvme::decode::SendTarget;
use zonal::{DeviceError, Lba, OpenMode};

use super::cdb::{Activation, Command, DomainReport};
use super::channel::Channel;
use super::discover::optional;
use super::failure;
use super::number::ByteOrder::HighFirst;
use super::transport::Failure;
use super::zones::{ActivationResult, ENTRY_BYTES, Realm, RealmsHeader, ZoneDomain, zone_domains};
use crate::Result;

/// Bytes of a report: multiples of 512, which translations to ATA need.
const REPORT_BYTES: u32 = 64 << 10;

/// Realms at which a drive is no longer asked for more.
const REALMS_MAX: usize = 1 << 16;

/// The zone domains of a drive; none if it does not know the command.
pub(super) fn domains(channel: &Channel) -> std::result::Result<Vec<ZoneDomain>, Failure> {
    let report = DomainReport { first: Lba::ZERO, bytes: REPORT_BYTES, options: 0 };
    let question = Command::ReportZoneDomains(report);
    let answer = optional(channel.ask(question, REPORT_BYTES as usize))?;
    Ok(answer.map_or_else(Vec::new, |answer| zone_domains(HighFirst, &answer).collect()))
}

/// The realms of a drive; none if it does not know the command.
pub(super) fn realms(channel: &Channel) -> std::result::Result<Vec<Realm>, Failure> {
    let (mut first, mut realms) = (Lba::ZERO, Vec::new());
    loop {
        let report = DomainReport { first, bytes: REPORT_BYTES, options: 0 };
        let question = Command::ReportRealms(report);
        let Some(answer) = optional(channel.ask(question, REPORT_BYTES as usize))? else { break };
        let Some(header) = RealmsHeader::decode(HighFirst, &answer) else { break };
        let len = usize::try_from(header.descriptor_bytes).unwrap_or(0).max(1);
        let list = answer[ENTRY_BYTES..].chunks_exact(len);
        let count = usize::try_from(header.count).unwrap_or(usize::MAX);
        realms.extend(list.take(count).filter_map(|bytes| Realm::decode(HighFirst, bytes)));
        // Each report begins behind the one before, so this ends.
        if header.next <= first || realms.len() >= REALMS_MAX {
            break;
        }
        first = header.next;
    }
    Ok(realms)
}

/// Makes a realm belong to a zone domain. A drive does so only while its zones are empty.
///
/// # Errors
/// The drive has no such realm or domain, or refuses: the error says which prerequisite is not met.
pub fn activate(path: &Path, realm: u32, domain: u8) -> Result<()> {
    let (channel, _block) = super::connect(path, OpenMode::ReadWrite)?;
    activate_over(&channel, path, realm, domain)
}

pub(super) fn activate_over(channel: &Channel, path: &Path, realm: u32, domain: u8) -> Result<()> {
    let what = format!("activating realm {realm} of {} in zone domain {domain}", path.display());
    let refused = |why: String| {
        let source = io::Error::new(io::ErrorKind::InvalidInput, why);
        DeviceError::Io { what: what.clone(), source }
    };
    let failed = |failure| failure::plain(what.clone(), failure);
    let (domains, realms) = (domains(channel).map_err(failed)?, realms(channel).map_err(failed)?);
    if realms.is_empty() {
        return Err(refused("the drive has no realms".to_owned()));
    }
    let place = domains.iter().position(|found| found.id == domain);
    let place = place.ok_or_else(|| refused("there is no such zone domain".to_owned()))?;
    let found = realms.iter().find(|found| found.id == realm);
    let found = found.ok_or_else(|| refused("there is no such realm".to_owned()))?;
    let range = found.ranges.get(place).filter(|(first, last)| *last > Lba::ZERO && first <= last);
    let (first, last) = *range.ok_or_else(|| refused("the realm has no zones in it".to_owned()))?;
    let count = zone_count(&domains[place], (first, last))
        .ok_or_else(|| refused("the drive reports no whole number of zones".to_owned()))?;
    let zones = SendTarget::Start(first);
    let bytes = 512;
    let activation = Activation { zones, domain, count: Some(count), bytes };
    // Says why it would fail, and changes nothing.
    let asked = channel.ask(Command::ZoneQuery(activation), 512).map_err(failed)?;
    let check = |answer: &[u8]| {
        let result = ActivationResult::decode(answer);
        let why = result.unmet().join(", ");
        let at = result.zone.map_or_else(String::new, |zone| format!(" (zone at block {zone})"));
        if why.is_empty() { Ok(result) } else { Err(refused(format!("{why}{at}"))) }
    };
    check(&asked)?;
    let answer = channel.activate(activation).map_err(failed)?;
    if check(&answer)?.activated { Ok(()) } else { Err(refused("it stays as it was".to_owned())) }
}

/// Zones of a domain from one block to another.
fn zone_count(domain: &ZoneDomain, (first, last): (Lba, Lba)) -> Option<u16> {
    let blocks = |first: Lba, last: Lba| last.get().checked_sub(first.get())?.checked_add(1);
    let size = blocks(domain.first, domain.last)?.checked_div(domain.zones)?;
    let count = blocks(first, last)?.checked_div(size)?;
    u16::try_from(count).ok().filter(|count| *count > 0)
}
