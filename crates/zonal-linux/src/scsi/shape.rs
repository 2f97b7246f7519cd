//! Decodes the reports of a drive about itself: its geometry, limits and zones.
//!
//! The bytes come from a drive, and a drive may be wrong: any bytes become a possible geometry or a
//! message that names the fault. Drives count in logical blocks, and Zonal in physical ones: a disk
//! of 512e addresses blocks of 512 bytes, and its sequential zones take whole ones of 4096.

use zonal::{
    BlockSize, Geometry, GeometrySpec, Identity, Lba, LbaCount, Zone, ZoneCond, ZoneId, ZoneKind,
    ZoneRuns,
};

use super::inquiry::{BlockLimits, Capacity, Characteristics, Inquiry, WriteCache, text};
use super::number::ByteOrder;
use super::zones::{Descriptor, ZoneType, descriptors};

/// Largest append that is offered: it becomes writes at the write pointer.
const APPEND_BYTES: u64 = 1 << 20;

/// The answers of a drive about itself; `None` where it has no answer.
pub(super) struct Answers {
    pub(super) inquiry: Inquiry,
    pub(super) serial: Option<String>,
    pub(super) unique: Option<String>,
    pub(super) limits: Option<BlockLimits>,
    pub(super) characteristics: Option<Characteristics>,
    pub(super) max_open: Option<u32>,
    pub(super) capacity: Capacity,
    pub(super) cache: Option<WriteCache>,
}

impl Answers {
    /// Whether the drive says that it has zones.
    pub(super) fn has_zones(&self) -> bool {
        match self.inquiry.device_type {
            Inquiry::HOST_MANAGED => true,
            Inquiry::DISK => {
                self.characteristics.is_some_and(|what| what.zoned == Characteristics::HOST_AWARE)
            }
            _ => false,
        }
    }

    /// The identity that Linux reports of the same drive: the model is without the vendor.
    pub(super) fn identity(&self) -> Identity {
        Identity {
            model: text(&self.inquiry.product),
            serial: self.serial.clone(),
            unique: self.unique.clone(),
        }
    }
}

/// The longest command that the drive and the kernel accept, and the units of the drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limits {
    /// Blocks of Zonal in one command.
    pub(super) transfer: LbaCount,
    /// Whether flushes are needed.
    pub(super) cache: WriteCache,
    /// log₂ of the drive's blocks in a block of Zonal.
    pub(super) shift: u32,
}

/// The block size of Zonal, and log₂ of the logical blocks in it.
pub(super) fn block_size(capacity: &Capacity) -> Result<(BlockSize, u32), String> {
    let logical = u64::from(capacity.block_bytes);
    let physical = logical << capacity.physical_exponent;
    let size = |bytes, what| {
        BlockSize::from_bytes(bytes)
            .ok_or_else(|| format!("has {what} blocks of {bytes} bytes, not 512 or 4096"))
    };
    let (logical, physical) = (size(logical, "logical")?, size(physical, "physical")?);
    if capacity.lowest_aligned != 0 {
        let first = capacity.lowest_aligned;
        return Err(format!("has physical blocks that begin at block {first}, not at 0"));
    }
    Ok((physical, physical.shift() - logical.shift()))
}

/// The geometry and limits of a drive with these zones, whose last block is `last`; the kernel
/// accepts at most `kernel_bytes` in one command.
pub(super) fn decode(
    answers: &Answers,
    zones: &[Descriptor],
    last: Lba,
    kernel_bytes: u64,
) -> Result<(Geometry, Limits), String> {
    let (block_size, shift) = block_size(&answers.capacity)?;
    let drive_max = answers
        .limits
        .and_then(|limits| limits.transfer_max)
        .map_or(u64::MAX, |most| u64::from(most) * u64::from(answers.capacity.block_bytes));
    let transfer_bytes = kernel_bytes.min(drive_max);
    let transfer = LbaCount::new(transfer_bytes >> block_size.shift());
    if transfer == LbaCount::ZERO {
        return Err(format!("takes {transfer_bytes} bytes at once, less than a block"));
    }
    let places = places(zones, last)?;
    let regular = regular(&places, shift)?;
    let has_limits = regular.sequential_kind == ZoneKind::SequentialRequired;
    let capacity = regular.zone_capacity;
    let geometry = Geometry::new(GeometrySpec {
        block_size,
        block_count: LbaCount::new((last.get() + 1) >> shift),
        zone_size: regular.zone_size,
        zone_capacity: capacity,
        conventional_zones: regular.conventional,
        sequential_kind: regular.sequential_kind,
        // For preferred zones the drive reports optimal numbers, and refuses nothing beyond them.
        max_open: answers.max_open.filter(|_| has_limits),
        // ZBC has no such limit.
        max_active: None,
        max_append: LbaCount::new(APPEND_BYTES >> block_size.shift()).min(capacity),
    })
    .map_err(|error| format!("says what is {error}"))?;
    let cache = answers.cache.unwrap_or(WriteCache::Volatile);
    Ok((geometry, Limits { transfer, cache, shift }))
}

/// A zone, and the gap zone behind it, in logical blocks.
struct Place {
    kind: ZoneKind,
    start: u64,
    capacity: u64,
    size: u64,
}

/// The zones of a drive, which have to cover all of it.
fn places(zones: &[Descriptor], last: Lba) -> Result<Vec<Place>, String> {
    let (mut places, mut next): (Vec<Place>, u64) = (Vec::new(), 0);
    for zone in zones {
        let (start, blocks) = (zone.start.get(), zone.blocks.get());
        if start != next {
            return Err(format!("reports a zone at block {start}, where {next} comes next"));
        }
        if zone.cond.is_none() {
            return Err(format!(
                "has an inactive zone at block {start}: a drive with zone domains, which Zonal \
                 does not know"
            ));
        }
        next = start
            .checked_add(blocks)
            .filter(|_| blocks > 0)
            .ok_or_else(|| format!("reports a zone of {blocks} blocks at block {start}"))?;
        let kind = match zone.kind {
            ZoneType::Conventional => ZoneKind::Conventional,
            ZoneType::SequentialRequired => ZoneKind::SequentialRequired,
            ZoneType::SequentialPreferred => ZoneKind::SequentialPreferred,
            ZoneType::SequentialOrBeforeRequired => {
                return Err(format!(
                    "has a sequential or before required zone at block {start}, which Zonal does \
                     not know"
                ));
            }
            ZoneType::Gap => match places.last_mut().filter(|place| place.capacity == place.size) {
                Some(place) => {
                    place.size += blocks;
                    continue;
                }
                None => return Err(format!("has a gap zone at block {start} behind no zone")),
            },
        };
        places.push(Place { kind, start, capacity: blocks, size: blocks });
    }
    if Some(next) != last.get().checked_add(1) {
        return Err(format!("reports zones up to block {next}, but its last block is {last}"));
    }
    Ok(places)
}

/// The properties that all zones of a drive have in common, in blocks of Zonal.
struct Regular {
    zone_size: LbaCount,
    zone_capacity: LbaCount,
    conventional: ZoneRuns,
    sequential_kind: ZoneKind,
}

fn regular(places: &[Place], shift: u32) -> Result<Regular, String> {
    let first = places.first().ok_or("has no zones")?;
    let (last, others) = places.split_last().ok_or("has no zones")?;
    let sequential = |places: &[Place]| {
        let found = places.iter().find(|place| place.kind.is_sequential());
        found.map(|place| (place.kind, place.capacity))
    };
    // The last zone may be smaller.
    let size = first.size;
    let (kind, capacity) = sequential(others)
        .or_else(|| sequential(places).map(|(kind, capacity)| (kind, capacity.min(size))))
        .unwrap_or((ZoneKind::SequentialRequired, size));
    for place in places {
        let Place { kind: found, start, .. } = *place;
        if found.is_sequential() && found != kind {
            return Err(format!(
                "has a {} zone at block {start} beside {} ones",
                found.name(),
                kind.name()
            ));
        }
        let is_last = start == last.start;
        let expected_size = if is_last { place.size.min(size) } else { size };
        let most = if found.is_sequential() { capacity } else { size };
        if place.size != expected_size || place.capacity != most.min(expected_size) {
            return Err(format!(
                "has zones that differ: {size} blocks with {most} to write, but {} with {} at \
                 block {start}",
                place.size, place.capacity
            ));
        }
        if [start, place.size, place.capacity]
            .iter()
            .any(|blocks| in_blocks(*blocks, shift).is_none())
        {
            let bytes = 1_u64 << shift;
            return Err(format!(
                "has a zone at block {start} that is no multiple of {bytes} blocks"
            ));
        }
    }
    let numbers = (0..).map(ZoneId::new).zip(places);
    let conventional = numbers.filter(|(_, place)| !place.kind.is_sequential());
    let conventional = ZoneRuns::of(conventional.map(|(number, _)| number))
        .map_err(|error| format!("has conventional zones in too many places: {error}"))?;
    Ok(Regular {
        zone_size: LbaCount::new(size >> shift),
        zone_capacity: LbaCount::new(capacity >> shift),
        conventional,
        sequential_kind: kind,
    })
}

/// Logical blocks in blocks of Zonal; `None` if they are no whole ones.
fn in_blocks(logical: u64, shift: u32) -> Option<u64> {
    logical.is_multiple_of(1 << shift).then_some(logical >> shift)
}

/// The zones of a report that starts with `first`: at least one.
pub(super) fn zones(
    order: ByteOrder,
    report: &[u8],
    geometry: &Geometry,
    shift: u32,
    first: ZoneId,
) -> Result<Vec<Zone>, String> {
    let listed = descriptors(order, report)
        .filter(|zone| zone.is_none_or(|zone| zone.kind != ZoneType::Gap));
    let left = geometry.zones().skip(first.index());
    let zones: Vec<Zone> = listed
        .zip(left)
        .map(|(zone, id)| self::zone(zone, geometry, shift, id))
        .collect::<Result<_, _>>()?;
    if zones.is_empty() { Err(format!("reports no zone from {first} on")) } else { Ok(zones) }
}

fn zone(
    found: Option<Descriptor>,
    geometry: &Geometry,
    shift: u32,
    id: ZoneId,
) -> Result<Zone, String> {
    let wrong = || format!("reports an impossible zone {id}");
    let found = found.ok_or_else(wrong)?;
    let (kind, start) = (geometry.kind(id), geometry.zone_start(id));
    let (size, capacity) = (geometry.size_of(id), geometry.capacity_of(id));
    if found.kind.code() != kind.code() || in_blocks(found.start.get(), shift) != Some(start.get())
    {
        return Err(format!(
            "reports a zone of type {} at block {}, not zone {id}",
            found.kind.code(),
            found.start
        ));
    }
    if in_blocks(found.blocks.get(), shift) != Some(capacity.get()) {
        return Err(format!("zone {id} now has {} of its blocks to write", found.blocks));
    }
    let cond = found.cond.ok_or_else(|| format!("reports that zone {id} is inactive"))?;
    let wp = match cond {
        ZoneCond::NotWp if kind.is_sequential() => return Err(wrong()),
        ZoneCond::NotWp | ZoneCond::ReadOnly | ZoneCond::Offline => None,
        _ if !kind.is_sequential() => return Err(wrong()),
        ZoneCond::Empty => Some(start),
        ZoneCond::Full => Some(start + capacity),
        ZoneCond::ImplicitOpen | ZoneCond::ExplicitOpen | ZoneCond::Closed => {
            // A write to a preferred zone may end inside a physical block.
            let wp = Lba::new(found.wp.get().div_ceil(1 << shift));
            if wp < start || wp > start + capacity {
                return Err(wrong());
            }
            Some(wp)
        }
    };
    let non_sequential = found.non_sequential && kind == ZoneKind::SequentialPreferred;
    Ok(Zone { id, kind, cond, start, size, capacity, wp, non_sequential })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::zones::ReportHeader;
    use super::*;

    const ORDER: ByteOrder = ByteOrder::HighFirst;

    fn answers() -> Answers {
        Answers {
            inquiry: Inquiry { device_type: 0x14, vendor: *b"ATA     ", product: [b'x'; 16] },
            serial: None,
            unique: None,
            limits: None,
            characteristics: None,
            max_open: Some(128),
            capacity: Capacity {
                last: 0,
                block_bytes: 512,
                physical_exponent: 3,
                lowest_aligned: 0,
                basis: 1,
            },
            cache: None,
        }
    }

    /// Zones of these types and lengths, one behind the other.
    fn row(zones: &[(ZoneType, u64)]) -> (Vec<Descriptor>, Lba) {
        let mut next = 0;
        let descriptors = zones.iter().map(|(kind, blocks)| {
            let cond = match kind {
                ZoneType::Conventional | ZoneType::Gap => ZoneCond::NotWp,
                _ => ZoneCond::Empty,
            };
            let (start, blocks) = (Lba::new(next), LbaCount::new(*blocks));
            next += blocks.get();
            let (non_sequential, reset_recommended) = (false, false);
            let (kind, cond, wp) = (*kind, Some(cond), start);
            Descriptor { kind, cond, non_sequential, reset_recommended, blocks, start, wp }
        });
        let descriptors = descriptors.collect();
        (descriptors, Lba::new(next - 1))
    }

    const CONVENTIONAL: ZoneType = ZoneType::Conventional;
    const REQUIRED: ZoneType = ZoneType::SequentialRequired;
    const PREFERRED: ZoneType = ZoneType::SequentialPreferred;

    fn shape(zones: &[(ZoneType, u64)]) -> Result<(Geometry, Limits), String> {
        let (zones, last) = row(zones);
        decode(&answers(), &zones, last, 1 << 19)
    }

    #[test]
    fn zones_are_those_of_host_managed_and_host_aware_drives() {
        let has_zones = |device_type, zoned| {
            let inquiry = Inquiry { device_type, ..answers().inquiry };
            let characteristics = Some(Characteristics { rotation_rate: 7200, zoned });
            Answers { inquiry, characteristics, ..answers() }.has_zones()
        };
        assert!(has_zones(Inquiry::HOST_MANAGED, 0));
        assert!(has_zones(Inquiry::DISK, 1));
        assert!(!has_zones(Inquiry::DISK, 0), "an ordinary disk");
        assert!(!has_zones(Inquiry::DISK, 2), "the drive manages its zones itself");
        assert!(!has_zones(0x05, 1), "an optical drive");
    }

    #[test]
    fn shape_is_in_physical_blocks() {
        let zones = [(CONVENTIONAL, 800), (REQUIRED, 800), (REQUIRED, 800), (REQUIRED, 80)];
        let (geometry, limits) = shape(&zones).unwrap();
        assert_eq!((geometry.block_size(), limits.shift), (BlockSize::B4096, 3));
        assert_eq!((geometry.zone_size().get(), geometry.zone_count()), (100, 4));
        assert_eq!(geometry.size_of(ZoneId::new(3)).get(), 10);
        assert_eq!((geometry.max_open(), geometry.max_active()), (Some(128), None));
        assert_eq!((limits.transfer.get(), limits.cache), (128, WriteCache::Volatile));
    }

    #[test]
    fn shape_joins_zone_and_gap() {
        let gap = ZoneType::Gap;
        let zones = [(CONVENTIONAL, 800), (REQUIRED, 720), (gap, 80), (REQUIRED, 720), (gap, 16)];
        let (geometry, _) = shape(&zones).unwrap();
        assert_eq!((geometry.zone_size().get(), geometry.spec().zone_capacity.get()), (100, 90));
        assert_eq!(geometry.size_of(ZoneId::new(2)).get(), 92);
        assert_eq!(geometry.capacity_of(ZoneId::new(2)).get(), 90);
        assert_eq!(geometry.spec().conventional_zones, ZoneRuns::leading(1));
    }

    #[test]
    fn shape_of_host_aware_drive_has_no_limits() {
        let (geometry, _) = shape(&[(PREFERRED, 800), (PREFERRED, 800)]).unwrap();
        assert_eq!(geometry.sequential_kind(), ZoneKind::SequentialPreferred);
        assert_eq!(geometry.max_open(), None);
    }

    #[test]
    fn shape_unsupported_is_refused_by_name() {
        let refused = |zones: &[(ZoneType, u64)], what: &str| {
            let error = shape(zones).unwrap_err();
            assert!(error.contains(what), "{error}");
        };
        refused(&[(REQUIRED, 800), (REQUIRED, 400), (REQUIRED, 800)], "zones that differ");
        refused(&[(REQUIRED, 800), (REQUIRED, 808)], "zones that differ");
        refused(&[(REQUIRED, 800), (REQUIRED, 720), (ZoneType::Gap, 80)], "zones that differ");
        refused(&[(REQUIRED, 800), (PREFERRED, 800)], "beside sequential ones");
        refused(&[(ZoneType::SequentialOrBeforeRequired, 8)], "sequential or before required");
        refused(&[(ZoneType::Gap, 8)], "behind no zone");
        refused(&[(REQUIRED, 804), (REQUIRED, 804)], "no multiple of 8");
        refused(&[(REQUIRED, 800), (REQUIRED, 0)], "zone of 0 blocks");
        let (mut zones, last) = row(&[(REQUIRED, 800), (REQUIRED, 800)]);
        let error = decode(&answers(), &zones, Lba::new(1600), 1 << 19).unwrap_err();
        assert!(error.contains("last block"), "{error}");
        assert!(decode(&answers(), &zones, last, 4095).unwrap_err().contains("less than a block"));
        zones[1].cond = None;
        let error = decode(&answers(), &zones, last, 1 << 19).unwrap_err();
        assert!(error.contains("inactive"), "{error}");
        let refused = |change: fn(&mut Capacity), what: &str| {
            let mut capacity = answers().capacity;
            change(&mut capacity);
            let error = block_size(&capacity).unwrap_err();
            assert!(error.contains(what), "{error}");
        };
        refused(|capacity| capacity.block_bytes = 520, "blocks of 520");
        refused(|capacity| capacity.physical_exponent = 1, "blocks of 1024");
        refused(|capacity| capacity.physical_exponent = 15, "blocks of 16777216");
        refused(|capacity| capacity.lowest_aligned = 7, "begin at block 7");
    }

    fn report_of(zones: &[Descriptor], last: Lba) -> Vec<u8> {
        let list_bytes = u32::try_from(zones.len() * 64).unwrap();
        let header = ReportHeader { list_bytes, same: 0, last, granularity: LbaCount::ZERO };
        let mut report = header.encode(ORDER).to_vec();
        report.extend(zones.iter().flat_map(|zone| zone.encode(ORDER)));
        report
    }

    #[test]
    fn zone_report_errors_are_refused() {
        let (good, last) = row(&[(CONVENTIONAL, 800), (REQUIRED, 800), (REQUIRED, 800)]);
        let (geometry, _) = decode(&answers(), &good, last, 1 << 19).unwrap();
        let decoded = |zones: &[Descriptor]| {
            super::zones(ORDER, &report_of(zones, last), &geometry, 3, ZoneId::ZERO)
        };
        assert_eq!(decoded(&good).unwrap().len(), 3);
        assert!(decoded(&[]).unwrap_err().contains("no zone"));
        let refused = |change: fn(&mut Descriptor), what: &str| {
            let mut zones = good.clone();
            change(&mut zones[1]);
            let error = decoded(&zones).unwrap_err();
            assert!(error.contains(what), "{error}");
        };
        refused(|zone| zone.start = Lba::new(801), "at block 801");
        refused(|zone| zone.kind = ZoneType::Conventional, "type 1");
        refused(|zone| zone.blocks = LbaCount::new(792), "792");
        refused(|zone| zone.cond = None, "inactive");
        refused(|zone| zone.cond = Some(ZoneCond::NotWp), "impossible");
        for wp in [799, 1601, u64::MAX] {
            let mut zones = good.clone();
            (zones[1].cond, zones[1].wp) = (Some(ZoneCond::Closed), Lba::new(wp));
            assert!(decoded(&zones).is_err() || wp == 799, "799 is rounded up");
        }
        let mut zones = good.clone();
        zones[0].cond = Some(ZoneCond::Empty);
        assert!(decoded(&zones).unwrap_err().contains("impossible"));
    }

    proptest! {
        #[test]
        fn zone_report_decode_handles_any_bytes(
            changes in prop::collection::vec((0..256_usize, any::<u8>()), 0..6),
            cut in 0..257_usize,
            first in 0..5_u32,
        ) {
            let (good, last) = row(&[(CONVENTIONAL, 800), (REQUIRED, 800), (REQUIRED, 800)]);
            let (geometry, _) = decode(&answers(), &good, last, 1 << 19).unwrap();
            let mut report = report_of(&good, last);
            for (at, byte) in changes {
                report[at] = byte;
            }
            report.truncate(cut);
            let found: Vec<Descriptor> = descriptors(ORDER, &report).flatten().collect();
            let _ = decode(&answers(), &found, last, 1 << 19);
            if let Ok(zones) = super::zones(ORDER, &report, &geometry, 3, ZoneId::new(first)) {
                prop_assert!(!zones.is_empty());
                for zone in &zones {
                    // D1.
                    let end = zone.start + zone.capacity;
                    prop_assert!(zone.wp.is_none_or(|wp| zone.start <= wp && wp <= end));
                }
            }
        }
    }
}
