//! The fuzz target `scsi` decodes bytes as a SCSI or ATA disk may return them, and as a host may
//! send them: commands, sense data, pages, reports of zones and realms. Nothing may panic.
//!
//! `cargo fuzz run scsi` runs it with libFuzzer; `crates/zonal-linux/tests/fuzz.rs` runs it over
//! `fixtures/corpus/scsi/` and mutations of it.

use zonal_linux::scsi::ata::{Identification, ZonedInformation};
use zonal_linux::scsi::cdb::Command;
use zonal_linux::scsi::inquiry::{
    BlockLimits, Caching, Capacity, Characteristics, Inquiry, ZonedCharacteristics, content_of,
    identify_data, text, unique_name, write_protected,
};
use zonal_linux::scsi::number::ByteOrder;
use zonal_linux::scsi::sense::Sense;
use zonal_linux::scsi::zones::{
    Descriptor, Realm, RealmsHeader, ReportHeader, ZoneDomain, descriptors, zone_domains,
};

/// The bytes as every command and every answer.
pub(crate) fn scsi(data: &[u8]) {
    if let Ok(command) = Command::decode(data) {
        let again = Command::decode(command.encode().as_bytes());
        assert_eq!(again, Ok(command), "it is read as it was made");
    }
    if let Some(sense) = Sense::decode(data) {
        assert_eq!(Sense::decode(&sense.encode_descriptors()), Some(sense));
        let _ = sense.meaning();
    }
    let inquiry = Inquiry::decode(data);
    assert_eq!(Inquiry::decode(&inquiry.encode()), inquiry);
    let _ = (BlockLimits::decode(data), Characteristics::decode(data));
    let _ = (ZonedCharacteristics::decode(data), Capacity::decode(data));
    let _ = (text(data), unique_name(data), identify_data(data));
    let _ = (Caching::decode(data), write_protected(data));
    let _ = content_of(data.get(1).copied().unwrap_or(0), data);
    let _ = (Identification::decode(data), ZonedInformation::decode(data));
    for order in [ByteOrder::HighFirst, ByteOrder::LowFirst] {
        let _ = ReportHeader::decode(order, data);
        for zone in descriptors(order, data).flatten() {
            assert_eq!(Descriptor::decode(order, &zone.encode(order)), Some(zone));
        }
        let _ = RealmsHeader::decode(order, data);
        if let Some(realm) = Realm::decode(order, data) {
            assert_eq!(Realm::decode(order, &realm.encode(order)), Some(realm));
        }
        for domain in zone_domains(order, data) {
            assert_eq!(ZoneDomain::decode(order, &domain.encode(order)), domain);
        }
    }
}
