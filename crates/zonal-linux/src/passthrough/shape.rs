//! Decodes the reports of a namespace about itself: its geometry, limits and zones.
//!
//! The bytes come from a drive, and a drive may be wrong: any bytes become a possible geometry or a
//! message that names the fault.

use zerocopy::FromBytes;
use zonal::nvme::identify::{
    self, IdentifyController, IdentifyNamespace, IdentifyZonedController, IdentifyZonedNamespace,
};
use zonal::nvme::zone::{ReportHeader, ZoneDescriptor};
use zonal::{
    BlockSize, Geometry, GeometrySpec, Identity, LbaCount, Zone, ZoneCond, ZoneId, ZoneKind,
    ZoneRuns,
};

/// log₂ of the page size that MDTS and ZASL count in. The real one is in a register that only the
/// kernel can read (Base, figure 36: CAP.MPSMIN); this is the smallest possible.
const PAGE_SHIFT: u32 = 12;

/// The answers to Identify, 4096 bytes each.
pub(super) struct Answers {
    pub(super) namespace: [u8; identify::BYTES],
    pub(super) zoned_namespace: [u8; identify::BYTES],
    pub(super) controller: [u8; identify::BYTES],
    pub(super) zoned_controller: [u8; identify::BYTES],
}

/// The longest command that the drive and the kernel accept, and whether the drive has a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limits {
    /// Blocks of one command.
    pub(super) transfer: LbaCount,
    /// Whether flushes are needed.
    pub(super) cache: WriteCache,
}

/// Whether a drive has a volatile write cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WriteCache {
    /// It has one.
    Volatile,
    /// It has none: completed writes are durable.
    None,
}

fn part<T: FromBytes>(answer: &[u8; identify::BYTES]) -> T {
    T::read_from_bytes(answer).expect("every structure has the length of the answer")
}

/// The geometry and limits of a namespace; the kernel accepts at most `kernel_bytes` in one
/// command. The zone capacity is the zone size until a report says otherwise.
pub(super) fn decode(answers: &Answers, kernel_bytes: u64) -> Result<(Geometry, Limits), String> {
    let namespace: IdentifyNamespace = part(&answers.namespace);
    let zoned: IdentifyZonedNamespace = part(&answers.zoned_namespace);
    let controller: IdentifyController = part(&answers.controller);
    let zoned_controller: IdentifyZonedController = part(&answers.zoned_controller);
    // FLBAS: the low four bits, and above them the two of bits 5 and 6 (NVM, figure 97).
    let format = usize::from(namespace.format & 0xf | (namespace.format >> 1) & 0x30);
    let blocks = namespace.block_formats[format];
    if blocks.metadata != 0 {
        return Err(format!("has {} bytes of metadata with each block", blocks.metadata));
    }
    let block_size = match blocks.block_shift {
        9 => BlockSize::B512,
        12 => BlockSize::B4096,
        shift => return Err(format!("has blocks of 2^{shift} bytes, not 512 or 4096")),
    };
    // ZOC bit 0 (ZNS, figure 47).
    if zoned.zone_operation.get() & 1 != 0 {
        return Err("has zones whose capacity changes when they are reset".to_owned());
    }
    let at_once = |raw: u8| match raw {
        0 => u64::MAX,
        shift => 1_u64.checked_shl(u32::from(shift) + PAGE_SHIFT).unwrap_or(u64::MAX),
    };
    let transfer_bytes = kernel_bytes.min(at_once(controller.transfer_max));
    let most = zonal::nvme::decode::BlockRange::BLOCKS_MAX;
    let in_blocks = |bytes: u64| LbaCount::new(bytes >> block_size.shift()).min(most);
    let transfer = in_blocks(transfer_bytes);
    if transfer == LbaCount::ZERO {
        return Err(format!("takes {transfer_bytes} bytes at once, less than a block"));
    }
    let zone_size = LbaCount::new(zoned.zone_formats[format].zone_size.get());
    if zone_size > LbaCount::new(namespace.size.get()) {
        return Err(format!(
            "has zones of {zone_size} blocks, more than its own {}",
            namespace.size
        ));
    }
    let append = in_blocks(at_once(zoned_controller.append_max)).min(transfer).min(zone_size);
    let open = identify::decode_limit(zoned.open_max);
    let active = identify::decode_limit(zoned.active_max);
    let geometry = Geometry::new(GeometrySpec {
        block_size,
        block_count: LbaCount::new(namespace.size.get()),
        zone_size,
        zone_capacity: zone_size,
        conventional_zones: ZoneRuns::NONE,
        sequential_kind: ZoneKind::SequentialRequired,
        // An open zone is active (D2), whatever the drive says.
        max_open: open.map(|open| active.map_or(open, |active| open.min(active))),
        max_active: active,
        max_append: append,
    })
    .map_err(|error| format!("says what is {error}"))?;
    let cache = match controller.write_cache & 1 {
        0 => WriteCache::None,
        _ => WriteCache::Volatile,
    };
    Ok((geometry, Limits { transfer, cache }))
}

/// The identity that a namespace reports. Linux prefers NGUID to EUI64 as well, and writes both as
/// `eui`.
pub(super) fn identity(answers: &Answers) -> Identity {
    let namespace: IdentifyNamespace = part(&answers.namespace);
    let controller: IdentifyController = part(&answers.controller);
    let unique = [&namespace.guid[..], &namespace.eui[..]]
        .into_iter()
        .find(|name| name.iter().any(|&byte| byte != 0))
        .map(|name| name.iter().fold("eui.".to_owned(), |text, byte| format!("{text}{byte:02x}")));
    Identity { model: ascii(&controller.model), serial: ascii(&controller.serial), unique }
}

/// The text of a field that is padded with spaces, by some drives with zeroes; `None` if it is
/// empty or cannot be printed.
fn ascii(field: &[u8]) -> Option<String> {
    let text = str::from_utf8(field).ok()?.trim_matches([' ', '\0']);
    let is_printable = text.bytes().all(|byte| matches!(byte, b' '..=b'~'));
    (!text.is_empty() && is_printable).then(|| text.to_owned())
}

/// The same geometry with the zone capacity from a report. It has to be the same for all zones that
/// are not Offline.
pub(super) fn with_capacity(shape: &Geometry, zones: &[Zone]) -> Result<Geometry, String> {
    let mut whole = zones.iter().filter(|zone| {
        zone.cond != ZoneCond::Offline && shape.size_of(zone.id) == shape.zone_size()
    });
    let capacity = whole.clone().next().map_or(shape.zone_size(), |zone| zone.capacity);
    if let Some(other) = whole.find(|zone| zone.capacity != capacity) {
        let (zone, found) = (other.id, other.capacity);
        return Err(format!(
            "has zones that differ in what they hold: {capacity} blocks, but zone {zone} {found}"
        ));
    }
    let spec = shape.spec();
    let max_append = spec.max_append.min(capacity);
    Geometry::new(GeometrySpec { zone_capacity: capacity, max_append, ..*spec })
        .map_err(|error| format!("says what is {error}"))
}

/// Bytes of a report of `zones` zones.
pub(super) fn report_bytes(zones: usize) -> usize {
    size_of::<ReportHeader>() + zones * size_of::<ZoneDescriptor>()
}

/// The zones of a report that starts with `first`: at least one.
pub(super) fn zones(report: &[u8], shape: &Geometry, first: ZoneId) -> Result<Vec<Zone>, String> {
    let (header, rest) =
        ReportHeader::read_from_prefix(report).map_err(|_| "reports nothing".to_owned())?;
    let count = usize::try_from(header.zone_count.get()).unwrap_or(usize::MAX);
    let left = shape.zones().skip(first.index());
    let zones: Vec<Zone> = rest
        .chunks_exact(size_of::<ZoneDescriptor>())
        .zip(left)
        .take(count)
        .map(|(bytes, id)| zone(bytes, shape, id))
        .collect::<Result<_, _>>()?;
    if zones.is_empty() { Err(format!("reports no zone from {first} on")) } else { Ok(zones) }
}

fn zone(bytes: &[u8], shape: &Geometry, id: ZoneId) -> Result<Zone, String> {
    let wrong = || format!("reports an impossible zone {id}");
    let descriptor = ZoneDescriptor::ref_from_bytes(bytes).map_err(|_| wrong())?;
    let zone = descriptor.decode(id, shape.size_of(id)).ok_or_else(wrong)?;
    if zone.start != shape.zone_start(id) {
        let (found, start) = (zone.start, shape.zone_start(id));
        return Err(format!("reports zone {id} at block {found}, not at {start}"));
    }
    let capacity = shape.capacity_of(id);
    if zone.cond == ZoneCond::Offline {
        // Its capacity does not matter any more.
        return Ok(Zone { capacity, ..zone });
    }
    if zone.capacity == LbaCount::ZERO {
        return Err(format!("reports zone {id} without capacity"));
    }
    Ok(zone)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use zerocopy::IntoBytes;
    use zonal::nvme::identify::{BlockFormat, ZoneFormat, encode_limit};
    use zonal::{Lba, MemoryDrive, Profile, ZonedDevice};

    use super::*;

    const KERNEL: u64 = 127 * 1024;

    /// 100 zones of 3 MiB, in format 17, with room for mistakes.
    struct Good {
        namespace: IdentifyNamespace,
        zoned: IdentifyZonedNamespace,
        controller: IdentifyController,
        zoned_controller: IdentifyZonedController,
    }

    impl Good {
        fn new() -> Self {
            let zero = [0; identify::BYTES];
            let mut namespace: IdentifyNamespace = part(&zero);
            namespace.size = 76_800.into();
            // Format 17: bit 5 is worth 16.
            namespace.format = 0x21;
            namespace.block_formats[17] =
                BlockFormat { metadata: 0.into(), block_shift: 12, performance: 0 };
            let mut zoned: IdentifyZonedNamespace = part(&zero);
            zoned.zone_formats[17] =
                ZoneFormat { zone_size: 768.into(), extension: 0, reserved: [0; 7] };
            zoned.open_max = encode_limit(Some(8));
            zoned.active_max = encode_limit(Some(12));
            let mut controller: IdentifyController = part(&zero);
            controller.transfer_max = 7;
            controller.write_cache = 1;
            let mut zoned_controller: IdentifyZonedController = part(&zero);
            zoned_controller.append_max = 3;
            Self { namespace, zoned, controller, zoned_controller }
        }

        fn answers(&self) -> Answers {
            let bytes = |part: &[u8]| part.try_into().unwrap();
            Answers {
                namespace: bytes(self.namespace.as_bytes()),
                zoned_namespace: bytes(self.zoned.as_bytes()),
                controller: bytes(self.controller.as_bytes()),
                zoned_controller: bytes(self.zoned_controller.as_bytes()),
            }
        }

        fn decode(&self) -> Result<(Geometry, Limits), String> {
            decode(&self.answers(), KERNEL)
        }
    }

    #[test]
    fn namespace_shape_is_as_reported() {
        let (geometry, limits) = Good::new().decode().unwrap();
        assert_eq!(geometry.zone_count(), 100);
        assert_eq!((geometry.max_open(), geometry.max_active()), (Some(8), Some(12)));
        // 32 KiB by ZASL; 127 KiB in whole blocks, which is less than MDTS.
        assert_eq!((geometry.max_append().get(), limits.transfer.get()), (8, 31));
        assert_eq!(limits.cache, WriteCache::Volatile);
    }

    #[test]
    fn namespace_has_its_own_identity() {
        let mut good = Good::new();
        assert!(identity(&good.answers()).is_empty());
        good.controller.model = zonal::nvme::ascii("Tape 9");
        good.controller.serial[0] = b'7';
        good.namespace.eui = [1, 2, 3, 4, 5, 6, 7, 0xff];
        assert_eq!(identity(&good.answers()).to_string(), "Tape 9, 7, eui.01020304050607ff");
        good.namespace.guid[15] = 9;
        good.controller.model[3] = b'\n';
        assert_eq!(
            identity(&good.answers()).to_string(),
            "7, eui.00000000000000000000000000000009"
        );
    }

    #[test]
    fn limits_take_smallest() {
        let mut good = Good::new();
        good.controller.transfer_max = 1;
        good.zoned_controller.append_max = 0;
        good.controller.write_cache = 0;
        let (geometry, limits) = good.decode().unwrap();
        assert_eq!((geometry.max_append().get(), limits.transfer.get()), (2, 2));
        assert_eq!(limits.cache, WriteCache::None);
        good.controller.transfer_max = 0;
        assert_eq!(decode(&good.answers(), u64::MAX).unwrap().1.transfer.get(), 1 << 16);
        good.controller.transfer_max = 255;
        assert_eq!(good.decode().unwrap().1.transfer.get(), 31);
        good.zoned.open_max = encode_limit(None);
        good.zoned.active_max = encode_limit(None);
        let geometry = good.decode().unwrap().0;
        assert_eq!((geometry.max_open(), geometry.max_active()), (None, None));
    }

    #[test]
    fn namespace_unsupported_is_refused_by_name() {
        let refused = |change: fn(&mut Good), what: &str| {
            let mut good = Good::new();
            change(&mut good);
            let error = good.decode().expect_err(what);
            assert!(error.contains(what), "{error}");
        };
        refused(|good| good.namespace.block_formats[17].metadata = 8.into(), "metadata");
        refused(|good| good.namespace.block_formats[17].block_shift = 13, "2^13");
        refused(|good| good.namespace.block_formats[17].block_shift = 255, "2^255");
        refused(|good| good.zoned.zone_operation = 1.into(), "capacity changes");
        refused(|good| good.zoned.zone_formats[17].zone_size = 0.into(), "zones of 0");
        refused(
            |good| good.zoned.zone_formats[17].zone_size = u64::MAX.into(),
            "more than its own",
        );
        refused(|good| good.namespace.size = 0.into(), "more than its own 0");
        refused(|good| good.namespace.size = u64::MAX.into(), "PiB at most");
        assert!(decode(&Good::new().answers(), 4095).unwrap_err().contains("less than a block"));
    }

    /// A drive, and the report of all its zones as it is on the wire.
    fn reported() -> (Geometry, Vec<Zone>, Vec<u8>) {
        let drive = MemoryDrive::new(GeometrySpec {
            conventional_zones: ZoneRuns::NONE,
            ..Profile::Small.geometry()
        })
        .unwrap();
        drive.append(ZoneId::new(1), &[1; 4096]).unwrap();
        let zones = drive.report_all().unwrap();
        let mut bytes = vec![0; size_of::<ReportHeader>()];
        bytes[..8].copy_from_slice(&(zones.len() as u64).to_le_bytes());
        for zone in &zones {
            bytes.extend_from_slice(ZoneDescriptor::encode(zone).as_bytes());
        }
        assert_eq!(bytes.len(), report_bytes(zones.len()));
        let spec = *drive.geometry().spec();
        let shape = Geometry::new(GeometrySpec { zone_capacity: spec.zone_size, ..spec }).unwrap();
        (shape, zones, bytes)
    }

    #[test]
    fn zone_report_reads_whole_and_in_parts() {
        let (shape, all, bytes) = reported();
        let found = zones(&bytes, &shape, ZoneId::ZERO).unwrap();
        assert_eq!(found, all);
        let geometry = with_capacity(&shape, &found).unwrap();
        assert_eq!(geometry.spec().zone_capacity, all[0].capacity);
        let few = &bytes[..report_bytes(3) + 10];
        assert_eq!(zones(few, &shape, ZoneId::ZERO).unwrap(), all[..3]);
        let mut counted = bytes.clone();
        counted[0] = 2;
        assert_eq!(zones(&counted, &shape, ZoneId::ZERO).unwrap(), all[..2]);
    }

    #[test]
    fn zone_report_errors_are_refused() {
        let (shape, all, bytes) = reported();
        let error = |bytes: &[u8], first| zones(bytes, &shape, ZoneId::new(first)).unwrap_err();
        assert!(error(&[], 0).contains("nothing"));
        assert!(error(&[0; 64], 0).contains("no zone"));
        assert!(error(&bytes, shape.zone_count()).contains("no zone"));
        assert!(error(&bytes, 1).contains("at block"));
        let mut wrong = bytes.clone();
        wrong[64] = 1;
        assert!(error(&wrong, 0).contains("impossible"));
        let mut lacking = bytes.clone();
        lacking[72..80].fill(0);
        assert!(error(&lacking, 0).contains("without capacity"));
        let mut uneven = all.clone();
        uneven[3].capacity = LbaCount::new(uneven[3].capacity.get() - 1);
        assert!(with_capacity(&shape, &uneven).unwrap_err().contains("zone 3"));
        uneven[3].cond = ZoneCond::Offline;
        assert!(with_capacity(&shape, &uneven).is_ok());
    }

    proptest! {
        #[test]
        fn namespace_shape_decode_handles_any_answers(
            changes in prop::collection::vec((0..4_usize, 0..4096_usize, any::<u8>()), 0..40),
            places in prop::collection::vec((0..4_usize, prop::sample::select(
                vec![0_usize, 3, 7, 26, 77, 130, 196, 525, 2823, 3088, 3095]), any::<u8>()), 0..8),
            kernel in 0..1_u64 << 24,
        ) {
            let mut answers = Good::new().answers();
            for (which, at, byte) in changes.into_iter().chain(places) {
                let answer = match which {
                    0 => &mut answers.namespace,
                    1 => &mut answers.zoned_namespace,
                    2 => &mut answers.controller,
                    _ => &mut answers.zoned_controller,
                };
                answer[at] = byte;
            }
            if let Ok((geometry, limits)) = decode(&answers, kernel) {
                prop_assert!(limits.transfer > LbaCount::ZERO);
                prop_assert!(geometry.bytes(limits.transfer).get() <= kernel);
                prop_assert!(geometry.max_append() <= limits.transfer);
            }
        }

        #[test]
        fn zone_report_decode_handles_any_bytes(
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
            cut in any::<prop::sample::Index>(),
            first in 0..80_u32,
        ) {
            let (shape, _, mut bytes) = reported();
            for (at, byte) in changes {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
            bytes.truncate(cut.index(bytes.len() + 1));
            if let Ok(zones) = zones(&bytes, &shape, ZoneId::new(first)) {
                prop_assert!(!zones.is_empty());
                for zone in &zones {
                    // D1.
                    let end = zone.start + zone.capacity;
                    prop_assert!(zone.wp.is_none_or(|wp| zone.start <= wp && wp <= end));
                    prop_assert!(end < Lba::new(u64::MAX));
                }
                let _ = with_capacity(&shape, &zones);
            }
        }
    }
}
