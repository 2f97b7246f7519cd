//! Decodes the reports of a drive about itself: its geometry, limits and zones.
//!
//! The bytes come from a drive, and a drive may be wrong: any bytes become a possible geometry or a
//! message that names the fault. Drives count in logical blocks, and Zonal in physical ones: a disk
//! of 512e addresses blocks of 512 bytes, and its sequential zones take whole ones of 4096.

use zonal::{
    BlockSize, Geometry, GeometrySpec, Identity, Lba, LbaCount, Zone, ZoneCond, ZoneId, ZoneKind,
};

use super::ata::Identification;
use super::grid::{Grid, LeftOut};
use super::inquiry::{BlockLimits, Caching, Capacity, Characteristics, Inquiry, WriteCache, text};
use super::number::ByteOrder;
use super::zones::{Descriptor, ZoneType, descriptors};

/// T10 vendor of disks behind a translation to ATA.
pub(super) const ATA: &str = "ATA";

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
    pub(super) cache: Option<Caching>,
    pub(super) is_write_protected: Option<bool>,
    /// Of a disk of ATA.
    pub(super) identification: Option<Identification>,
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

    /// Whether a disk of ATA is behind a translation.
    pub(super) fn is_translated(&self) -> bool {
        text(&self.inquiry.vendor).as_deref() == Some(ATA)
    }

    /// The medium rotation rate; `None` without a report.
    pub(super) fn rotation_rate(&self) -> Option<u16> {
        let page = self.characteristics.map(|found| found.rotation_rate);
        let disk = || self.identification.as_ref().map(|disk| disk.rotation_rate);
        page.filter(|&rate| rate > 0).or_else(disk).filter(|&rate| rate > 0)
    }

    /// Whether the medium turns. SBC-4 and ACS-4: a rate of 1 stands for one that does not, and
    /// less than 401h is reserved.
    pub(super) fn rotates(&self) -> Option<bool> {
        match self.rotation_rate()? {
            1 => Some(false),
            0x401..=0xfffe => Some(true),
            _ => None,
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
    /// The drive's block at which zone 0 starts.
    pub(super) base: u64,
}

/// The shape of a drive.
#[derive(Debug)]
pub(super) struct Shape {
    pub(super) geometry: Geometry,
    pub(super) limits: Limits,
    /// For each zone, whether it is left out; empty if none is.
    pub(super) is_left_out: Box<[bool]>,
    /// Why zones of the drive are left out.
    pub(super) left_out: Vec<LeftOut>,
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

/// The shape of a drive with these zones, whose last block is `last`; the kernel accepts at most
/// `kernel_bytes` in one command.
pub(super) fn decode(
    answers: &Answers,
    zones: &[Descriptor],
    last: Lba,
    kernel_bytes: u64,
) -> Result<Shape, String> {
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
    let grid = Grid::find(zones, last, shift)?;
    let has_limits = grid.sequential_kind == ZoneKind::SequentialRequired;
    let capacity = LbaCount::new(grid.zone_capacity >> shift);
    let geometry = Geometry::new(GeometrySpec {
        block_size,
        block_count: LbaCount::new((last.get() + 1 - grid.base) >> shift),
        zone_size: LbaCount::new(grid.zone_size >> shift),
        zone_capacity: capacity,
        conventional_zones: grid.conventional,
        sequential_kind: grid.sequential_kind,
        // For preferred zones the drive reports optimal numbers, and refuses nothing beyond them.
        max_open: answers.max_open.filter(|_| has_limits),
        // ZBC has no such limit.
        max_active: None,
        max_append: LbaCount::new(APPEND_BYTES >> block_size.shift()).min(capacity),
    })
    .map_err(|error| format!("says what is {error}"))?;
    let cache = answers.cache.map_or(WriteCache::Volatile, |cache| cache.write);
    let limits = Limits { transfer, cache, shift, base: grid.base };
    let Grid { is_left_out, left_out, .. } = grid;
    Ok(Shape { geometry, limits, is_left_out, left_out })
}

/// Logical blocks in blocks of Zonal; `None` if they are no whole ones.
fn in_blocks(logical: u64, shift: u32) -> Option<u64> {
    logical.is_multiple_of(1 << shift).then_some(logical >> shift)
}

/// The zones of a report that starts with `first`, which is not left out: at least one.
pub(super) fn zones(
    order: ByteOrder,
    report: &[u8],
    shape: &Shape,
    first: ZoneId,
) -> Result<Vec<Zone>, String> {
    let geometry = &shape.geometry;
    let mut ids = geometry.zones().skip(first.index());
    let mut zones = Vec::new();
    for found in descriptors(order, report) {
        if found.is_some_and(|zone| zone.kind == ZoneType::Gap || shape.leaves_out(zone.start)) {
            continue;
        }
        // The zones that are left out in front of it.
        let id = loop {
            match ids.next() {
                Some(id) if shape.is_left_out(id) => zones.push(shape.left_out_zone(id)),
                other => break other,
            }
        };
        let Some(id) = id else { break };
        zones.push(zone(found, geometry, &shape.limits, id)?);
    }
    if zones.is_empty() { Err(format!("reports no zone from {first} on")) } else { Ok(zones) }
}

impl Shape {
    /// Whether a zone is left out: no command may go to it.
    pub(super) fn is_left_out(&self, zone: ZoneId) -> bool {
        self.is_left_out.get(zone.index()).is_some_and(|is_left_out| *is_left_out)
    }

    /// Whether the drive's zone that starts at this block of the drive is none of Zonal.
    fn leaves_out(&self, start: Lba) -> bool {
        let Some(offset) = start.get().checked_sub(self.limits.base) else { return true };
        let lba = Lba::new(offset >> self.limits.shift);
        let is_inside = lba < Lba::ZERO + self.geometry.block_count();
        !is_inside || self.is_left_out(self.geometry.locate(lba).0)
    }

    /// A zone that is left out, as it looks to a user.
    pub(super) fn left_out_zone(&self, id: ZoneId) -> Zone {
        let geometry = &self.geometry;
        Zone {
            id,
            kind: geometry.kind(id),
            cond: ZoneCond::Offline,
            start: geometry.zone_start(id),
            size: geometry.size_of(id),
            capacity: geometry.capacity_of(id),
            wp: None,
            non_sequential: false,
        }
    }
}

/// A zone as the drive reports it. One that became inactive looks offline.
pub(super) fn zone(
    found: Option<Descriptor>,
    geometry: &Geometry,
    limits: &Limits,
    id: ZoneId,
) -> Result<Zone, String> {
    let wrong = || format!("reports an impossible zone {id}");
    let found = found.ok_or_else(wrong)?;
    let (shift, base) = (limits.shift, limits.base);
    let in_zonal = |lba: Lba| in_blocks(lba.get().checked_sub(base)?, shift);
    let (kind, start) = (geometry.kind(id), geometry.zone_start(id));
    let (size, capacity) = (geometry.size_of(id), geometry.capacity_of(id));
    if found.kind.code() != kind.code() || in_zonal(found.start) != Some(start.get()) {
        return Err(format!(
            "reports a zone of type {} at block {}, not zone {id}",
            found.kind.code(),
            found.start
        ));
    }
    if in_blocks(found.blocks.get(), shift) != Some(capacity.get()) {
        return Err(format!("zone {id} now has {} of its blocks to write", found.blocks));
    }
    let cond = found.cond.unwrap_or(ZoneCond::Offline);
    let wp = match cond {
        ZoneCond::NotWp if kind.is_sequential() => return Err(wrong()),
        ZoneCond::NotWp | ZoneCond::ReadOnly | ZoneCond::Offline => None,
        _ if !kind.is_sequential() => return Err(wrong()),
        ZoneCond::Empty => Some(start),
        ZoneCond::Full => Some(start + capacity),
        ZoneCond::ImplicitOpen | ZoneCond::ExplicitOpen | ZoneCond::Closed => {
            // A write to a preferred zone may end inside a physical block.
            let wp = found.wp.get().checked_sub(base).ok_or_else(wrong)?;
            let wp = Lba::new(wp.div_ceil(1 << shift));
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
    use zonal::ZoneRuns;

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
            is_write_protected: None,
            identification: None,
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

    fn shape(zones: &[(ZoneType, u64)]) -> Result<Shape, String> {
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
        let Shape { geometry, limits, .. } = shape(&zones).unwrap();
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
        let Shape { geometry, .. } = shape(&zones).unwrap();
        assert_eq!((geometry.zone_size().get(), geometry.spec().zone_capacity.get()), (100, 90));
        assert_eq!(geometry.size_of(ZoneId::new(2)).get(), 92);
        assert_eq!(geometry.capacity_of(ZoneId::new(2)).get(), 90);
        assert_eq!(geometry.spec().conventional_zones, ZoneRuns::leading(1));
    }

    #[test]
    fn shape_of_host_aware_drive_has_no_limits() {
        let Shape { geometry, .. } = shape(&[(PREFERRED, 800), (PREFERRED, 800)]).unwrap();
        assert_eq!(geometry.sequential_kind(), ZoneKind::SequentialPreferred);
        assert_eq!(geometry.max_open(), None);
    }

    #[test]
    fn shape_unsupported_is_refused_by_name() {
        let refused = |zones: &[(ZoneType, u64)], what: &str| {
            let error = shape(zones).unwrap_err();
            assert!(error.contains(what), "{error}");
        };
        refused(&[(ZoneType::SequentialOrBeforeRequired, 8)], "sequential or before required");
        refused(&[(ZoneType::Gap, 8)], "no zone that Zonal can use: 1 zones from block 0");
        let gap = (ZoneType::Gap, 1 << 40);
        let tiny = [(REQUIRED, 8), (REQUIRED, 8), (REQUIRED, 8), gap, (CONVENTIONAL, 8)];
        refused(&tiny, "differ too much");
        refused(&[(REQUIRED, 804), (REQUIRED, 804)], "no multiple of 8");
        refused(&[(REQUIRED, 800), (REQUIRED, 0)], "zone of 0 blocks");
        let (mut zones, last) = row(&[(REQUIRED, 800), (REQUIRED, 800)]);
        let error = decode(&answers(), &zones, Lba::new(1600), 1 << 19).unwrap_err();
        assert!(error.contains("last block"), "{error}");
        assert!(decode(&answers(), &zones, last, 4095).unwrap_err().contains("less than a block"));
        for zone in &mut zones {
            zone.cond = None;
        }
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
        let shape = decode(&answers(), &good, last, 1 << 19).unwrap();
        let decoded = |zones: &[Descriptor]| {
            super::zones(ORDER, &report_of(zones, last), &shape, ZoneId::ZERO)
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
        refused(|zone| zone.cond = Some(ZoneCond::NotWp), "impossible");
        for wp in [799, 1601, u64::MAX] {
            let mut zones = good.clone();
            (zones[1].cond, zones[1].wp) = (Some(ZoneCond::Closed), Lba::new(wp));
            assert!(decoded(&zones).is_err() || wp == 799, "799 is rounded up");
        }
        let mut zones = good.clone();
        zones[1].cond = None;
        assert_eq!(decoded(&zones).unwrap()[1].cond, ZoneCond::Offline, "it became inactive");
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
            let shape = decode(&answers(), &good, last, 1 << 19).unwrap();
            let mut report = report_of(&good, last);
            for (at, byte) in changes {
                report[at] = byte;
            }
            report.truncate(cut);
            let found: Vec<Descriptor> = descriptors(ORDER, &report).flatten().collect();
            let _ = decode(&answers(), &found, last, 1 << 19);
            if let Ok(zones) = super::zones(ORDER, &report, &shape, ZoneId::new(first)) {
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
