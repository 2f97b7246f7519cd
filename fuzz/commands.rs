//! The fuzz target `nvme` decodes bytes as an NVMe host or drive may send them: commands and the
//! structures in answers. Nothing may panic.
//!
//! `cargo fuzz run nvme` runs it with libFuzzer; `crates/zonal-nvme/tests/fuzz.rs` runs it over
//! `fixtures/corpus/nvme/` and mutations of it.

use zerocopy::FromBytes;
use zonal::nvme::SubmissionEntry;
use zonal::nvme::decode::{BlockRange, DatasetManagement, Identify, ZoneReceive, ZoneSend};
use zonal::nvme::identify::descriptor;
use zonal::nvme::zone::ZoneDescriptor;
use zonal::{LbaCount, ZoneId};
use zonal_nvme::wire::fabrics::{Connect, Property};
use zonal_nvme::wire::feature::SetFeature;
use zonal_nvme::wire::log::{ChangedZones, GetLogPage};

/// The bytes as every command and every structure.
pub(crate) fn nvme(data: &[u8]) {
    let mut bytes = [0; 4096];
    let len = data.len().min(bytes.len());
    bytes[..len].copy_from_slice(&data[..len]);
    let (entry, _) = SubmissionEntry::read_from_prefix(&bytes).expect("4096 bytes");
    let nsid = entry.nsid();
    let _ = BlockRange::decode(&entry);
    let _ = Identify::decode(&entry);
    let ranges = DatasetManagement::decode(&entry);
    assert_eq!(
        DatasetManagement::decode(&ranges.encode(nsid)),
        ranges,
        "it is read as it was made"
    );
    let _ = SetFeature::decode(&entry);
    let _ = (Property::decode(&entry), Connect::decode(&entry), GetLogPage::decode(&entry));
    if let Ok(send) = ZoneSend::decode(&entry) {
        assert_eq!(ZoneSend::decode(&send.encode(nsid)), Ok(send), "it is read as it was made");
    }
    if let Ok(receive) = ZoneReceive::decode(&entry) {
        let again = ZoneReceive::decode(&receive.encode(nsid));
        assert_eq!(again, Ok(receive), "it is read as it was made");
    }
    let zone_size = LbaCount::new(u64::from(data.first().copied().unwrap_or(0)) * 16);
    for descriptor in bytes.chunks_exact(size_of::<ZoneDescriptor>()) {
        let descriptor = ZoneDescriptor::read_from_bytes(descriptor).expect("its size");
        if let Some(zone) = descriptor.decode(ZoneId::ZERO, zone_size) {
            assert!(zone.capacity <= zone.size, "{zone:?}");
        }
    }
    let _ = descriptor::find(&bytes, descriptor::COMMAND_SET);
    let _ = ChangedZones::read_from_bytes(&bytes).expect("its size").decode();
}
