//! Which devices and disks Linux accepts, and their parameters.

use zonal::crc32c::crc32c;
use zonal::disk::DiskShape;
use zonal::{BlockSize, Geometry, Identity, LbaCount, Zone, ZoneCond, ZoneId, ZoneKind};

use super::abi::{
    ATTR_FUA, ATTR_READ_ONLY, ATTR_VOLATILE_CACHE, BasicParams, DiscardParams, IO_BYTES_MAX,
    PARAMS_BASIC, PARAMS_DISCARD, PARAMS_ZONED, Params, SECTOR_SHIFT, ZonedParams,
};
use super::error::{Error, Result};
use crate::ioctl::RawZone;

/// The parameters of a device; an error if Linux does not accept such a device.
///
/// The driver and `blk_revalidate_disk_zones` in `block/blk-zoned.c` refuse without a message: a
/// zone size that is not a power of two, no sequential zone, and a conventional zone with less
/// capacity than size. The driver has only whole zones: a smaller last zone that is
/// sequential is served with full size and less capacity.
pub(super) fn params(geometry: &Geometry) -> Result<Params> {
    let unsuitable = |why: String| Err(Error::Unsuitable { why });
    let block_shift = geometry.block_size().shift() - SECTOR_SHIFT;
    let zone_size = geometry.zone_size();
    let last = ZoneId::new(geometry.zone_count() - 1);
    if !zone_size.get().is_power_of_two() {
        return Err(Error::ZoneSize { kib: geometry.bytes(zone_size).get() >> 10 });
    }
    if geometry.sequential_kind() == ZoneKind::SequentialPreferred {
        return unsuitable(
            "its zones are sequential write preferred, which Linux has dropped: it would be a disk \
             without zones"
                .into(),
        );
    }
    if geometry.sequential_count() == 0 {
        return unsuitable("all its zones are conventional".into());
    }
    if geometry.kind(last) == ZoneKind::Conventional && geometry.size_of(last) < zone_size {
        return unsuitable(format!(
            "its last zone is conventional and smaller than the others; try: `slice(0-{}):` in front \
             of it",
            last.get() - 1
        ));
    }
    let Ok(zone_sectors) = u32::try_from(zone_size.get() << block_shift) else {
        return unsuitable("its zones are of 2 TiB or more".into());
    };
    // The driver refuses limits above the number of zones, which have no effect anyway.
    let zones = geometry.zone_count();
    let limit = |limit: Option<u32>| limit.filter(|limit| *limit < zones).unwrap_or(0);
    let append = geometry.bytes(geometry.max_append()).get().min(IO_BYTES_MAX.into());
    let shift = u8::try_from(geometry.block_size().shift()).expect("9 or 12");
    let discard = discard(geometry, zone_sectors);
    let discards = if discard.is_some() { PARAMS_DISCARD } else { 0 };
    Ok(Params {
        len: u32::try_from(size_of::<Params>()).expect("small"),
        types: PARAMS_BASIC | PARAMS_ZONED | discards,
        basic: BasicParams {
            attributes: ATTR_VOLATILE_CACHE | ATTR_FUA,
            logical_shift: shift,
            physical_shift: shift,
            io_opt_shift: shift,
            io_min_shift: shift,
            io_sectors_max: IO_BYTES_MAX >> SECTOR_SHIFT,
            zone_sectors,
            device_sectors: served_blocks(geometry).get() << block_shift,
            virt_boundary_mask: 0,
        },
        zoned: ZonedParams {
            max_open: limit(geometry.max_open()),
            max_active: limit(geometry.max_active()),
            append_sectors_max: u32::try_from(append >> SECTOR_SHIFT).expect("at most an I/O"),
            reserved: [0; 20],
        },
        discard: discard.unwrap_or_default(),
        ..Params::default()
    })
}

/// Blocks that the kernel sees: whole zones.
pub(super) fn served_blocks(geometry: &Geometry) -> LbaCount {
    LbaCount::new(u64::from(geometry.zone_count()) * geometry.zone_size().get())
}

/// Most sectors of a discard or of zeroes: as many as a bio of the kernel has, in whole physical
/// blocks.
const RANGE_SECTORS_MAX: u32 = (u32::MAX >> SECTOR_SHIFT) & !7;

/// The parameters of an ordinary disk.
pub(super) fn disk_params(shape: &DiskShape) -> Params {
    let shift = |bytes: BlockSize| u8::try_from(bytes.shift()).expect("9 or 12");
    let (logical_shift, physical_shift) = (shift(shape.block_size), shift(shape.physical_size));
    let read_only = if shape.is_read_only { ATTR_READ_ONLY } else { 0 };
    Params {
        len: u32::try_from(size_of::<Params>()).expect("small"),
        types: PARAMS_BASIC | PARAMS_DISCARD,
        basic: BasicParams {
            attributes: ATTR_VOLATILE_CACHE | ATTR_FUA | read_only,
            logical_shift,
            physical_shift,
            io_opt_shift: physical_shift,
            io_min_shift: physical_shift,
            io_sectors_max: IO_BYTES_MAX >> SECTOR_SHIFT,
            zone_sectors: 0,
            device_sectors: shape.bytes() >> SECTOR_SHIFT,
            virt_boundary_mask: 0,
        },
        discard: DiscardParams {
            alignment: 0,
            granularity: 1 << physical_shift,
            sectors_max: RANGE_SECTORS_MAX,
            zeroes_sectors_max: RANGE_SECTORS_MAX,
            segments_max: 1,
            reserved: 0,
        },
        ..Params::default()
    }
}

/// Discards are for conventional zones: a sequential one is reset. A discard is a zone long at
/// most, since the kernel splits it at multiples of the largest, not at the ends of zones.
fn discard(geometry: &Geometry, zone_sectors: u32) -> Option<DiscardParams> {
    let has_conventional = !geometry.spec().conventional_zones.is_empty();
    let block_bytes = u32::try_from(geometry.block_size().bytes()).expect("512 or 4096");
    has_conventional.then_some(DiscardParams {
        granularity: block_bytes,
        sectors_max: zone_sectors,
        segments_max: 1,
        ..DiscardParams::default()
    })
}

/// Our parameters as they were when `found` was made: a disk may have grown since then.
pub(super) fn as_made(ours: Params, found: &Params) -> Params {
    let is_disk = ours.types & PARAMS_ZONED == 0;
    let device_sectors = match found.basic.device_sectors {
        fewer if is_disk && fewer < ours.basic.device_sectors => fewer,
        _ => ours.basic.device_sectors,
    };
    Params { basic: BasicParams { device_sectors, ..ours.basic }, ..ours }
}

/// An error if device `id` was created with other parameters.
pub(super) fn compare(id: u32, found: &Params, ours: &Params) -> Result<()> {
    let numbers = [
        ("sectors", found.basic.device_sectors, ours.basic.device_sectors),
        ("zone sectors", found.basic.zone_sectors.into(), ours.basic.zone_sectors.into()),
        ("block shift", found.basic.logical_shift.into(), ours.basic.logical_shift.into()),
        ("open zones", found.zoned.max_open.into(), ours.zoned.max_open.into()),
        ("active zones", found.zoned.max_active.into(), ours.zoned.max_active.into()),
        (
            "sectors of an append",
            found.zoned.append_sectors_max.into(),
            ours.zoned.append_sectors_max.into(),
        ),
    ];
    for (what, theirs, ours) in numbers {
        if theirs != ours {
            return Err(Error::OtherShape { id, what: format!("{what}: {theirs}, not {ours}") });
        }
    }
    // A device that an older server made takes no discards, and needs none.
    let has_discards = found.types & PARAMS_DISCARD != 0 && found.discard != ours.discard;
    let is_other_kind = (found.types ^ ours.types) & PARAMS_ZONED != 0;
    if is_other_kind || found.basic != ours.basic || has_discards {
        return Err(Error::OtherShape { id, what: "it was not made by zonal".into() });
    }
    Ok(())
}

/// Set in the mark of a drive that says which one it is.
const MARKED: u64 = 1 << 32;

/// The mark by which a server that takes a device over recognises the drive; 0 if the drive reports
/// no unique name.
pub(super) fn mark(identity: &Identity) -> u64 {
    identity.unique.as_ref().map_or(0, |name| MARKED | u64::from(crc32c(name.as_bytes())))
}

/// The same for a disk, from a name that no other disk has.
pub(super) fn mark_of_disk(unique: &str) -> u64 {
    MARKED | u64::from(crc32c(unique.as_bytes()))
}

/// An error if device `id` was made of another drive. A device without a mark may be of any drive.
pub(super) fn compare_marks(id: u32, found: u64, ours: u64) -> Result<()> {
    if found == ours || found & MARKED == 0 || ours & MARKED == 0 {
        return Ok(());
    }
    Err(Error::OtherShape { id, what: "its drive has another identity".into() })
}

/// A zone as the kernel reports it; the device has blocks of 2^`block_shift` sectors.
pub(super) fn raw_zone(zone: &Zone, block_shift: u32) -> RawZone {
    let mut raw = RawZone::default();
    raw.start = zone.start.get() << block_shift;
    raw.len = zone.size.get() << block_shift;
    raw.capacity = zone.capacity.get() << block_shift;
    raw.wp = match (zone.cond, zone.wp) {
        // Not valid in this condition; null_blk reports the same.
        (ZoneCond::Full | ZoneCond::NotWp, _) => raw.start + raw.len,
        (_, Some(wp)) => wp.get() << block_shift,
        (_, None) => raw.start,
    };
    raw.kind = zone.kind.code();
    raw.cond = zone.cond.code();
    raw
}

#[cfg(test)]
mod tests {
    use zonal::{GeometrySpec, Profile, ZoneRuns};

    use super::*;

    fn spec() -> GeometrySpec {
        GeometrySpec {
            block_count: LbaCount::new(16 * 256),
            zone_size: LbaCount::new(256),
            zone_capacity: LbaCount::new(200),
            conventional_zones: ZoneRuns::leading(2),
            ..Profile::Small.geometry()
        }
    }

    #[test]
    fn ublk_parameters_are_in_sectors() {
        let params = params(&Geometry::new(spec()).unwrap()).unwrap();
        assert_eq!(params.basic.device_sectors, 16 * 256 * 8);
        assert_eq!(params.basic.zone_sectors, 256 * 8);
        assert_eq!(params.basic.logical_shift, 12);
    }

    #[test]
    fn ublk_smaller_last_zone_is_served_whole() {
        let spec = GeometrySpec { block_count: LbaCount::new(15 * 256 + 1), ..spec() };
        let params = params(&Geometry::new(spec).unwrap()).unwrap();
        assert_eq!(params.basic.device_sectors, 16 * 256 * 8);
    }

    #[test]
    fn ublk_refuses_preferred_zones() {
        let geometry = Geometry::new(GeometrySpec {
            sequential_kind: ZoneKind::SequentialPreferred,
            max_open: None,
            max_active: None,
            ..spec()
        });
        let error = params(&geometry.unwrap()).unwrap_err().to_string();
        assert!(error.contains("sequential write preferred"), "{error}");
    }

    #[test]
    fn ublk_discards_need_conventional_zones() {
        let told = |conventional: &str| {
            let spec = GeometrySpec { conventional_zones: conventional.parse().unwrap(), ..spec() };
            let params = params(&Geometry::new(spec).unwrap()).unwrap();
            (params.types & PARAMS_DISCARD, params.discard.sectors_max, params.discard.segments_max)
        };
        for conventional in ["2", "5-6,15"] {
            assert_eq!(told(conventional), (PARAMS_DISCARD, 256 * 8, 1));
        }
        assert_eq!(told("0"), (0, 0, 0));
    }

    #[test]
    fn ublk_limits_without_effect_are_none() {
        let told = |limit: u32| {
            let spec = GeometrySpec { max_open: Some(limit), max_active: Some(limit), ..spec() };
            params(&Geometry::new(spec).unwrap()).unwrap().zoned.max_open
        };
        assert_eq!((told(3), told(14), told(15), told(16)), (3, 14, 15, 0));
    }

    #[test]
    fn ublk_explains_what_linux_refuses_silently() {
        let good = spec();
        for (what, spec) in [
            (
                "768 KiB, not a power of two",
                GeometrySpec {
                    zone_size: LbaCount::new(192),
                    zone_capacity: LbaCount::new(192),
                    block_count: LbaCount::new(192 * 16),
                    ..good
                },
            ),
            (
                "try: `slice(0-14):`",
                GeometrySpec {
                    conventional_zones: "15-15".parse().unwrap(),
                    block_count: LbaCount::new(15 * 256 + 1),
                    ..good
                },
            ),
            ("all its zones", GeometrySpec { conventional_zones: ZoneRuns::leading(16), ..good }),
        ] {
            let error = params(&Geometry::new(spec).unwrap()).unwrap_err().to_string();
            assert!(error.contains(what), "{error}");
        }
    }

    #[test]
    fn ublk_refuses_other_drive_by_identity() {
        let [one, other] = [1, 2].map(|byte| mark(&Identity::of_uuid([byte; 16])));
        let unknown = mark(&Identity::default());
        assert!(compare_marks(3, one, one).is_ok());
        assert!(compare_marks(3, one, unknown).is_ok() && compare_marks(3, unknown, one).is_ok());
        let error = compare_marks(3, one, other).unwrap_err().to_string();
        assert!(error.contains("its drive has another identity"), "{error}");
    }

    #[test]
    fn ublk_disk_has_physical_blocks_and_whole_ranges() {
        let shape = DiskShape {
            block_size: BlockSize::B512,
            physical_size: BlockSize::B4096,
            blocks: LbaCount::new(800),
            atomic: zonal::ByteCount::new(1 << 20),
            is_read_only: false,
        };
        let params = disk_params(&shape);
        let basic = params.basic;
        assert_eq!((basic.logical_shift, basic.physical_shift), (9, 12));
        assert_eq!((basic.device_sectors, basic.attributes & ATTR_READ_ONLY), (800, 0));
        assert_eq!((params.discard.granularity, params.discard.sectors_max), (4096, 8_388_600));
        assert_eq!(disk_params(&DiskShape { is_read_only: true, ..shape }).basic.attributes & 1, 1);
        let grown = disk_params(&DiskShape { blocks: LbaCount::new(808), ..shape });
        assert!(compare(3, &params, &as_made(grown, &params)).is_ok());
        assert!(compare(3, &grown, &as_made(params, &grown)).is_err());
        let zoned = super::params(&Geometry::new(spec()).unwrap()).unwrap();
        assert!(compare(3, &params, &params).is_ok());
        assert!(compare(3, &zoned, &params).is_err() && compare(3, &params, &zoned).is_err());
    }

    #[test]
    fn ublk_refuses_changed_parameters() {
        let ours = params(&Geometry::new(spec()).unwrap()).unwrap();
        assert!(compare(3, &ours, &ours).is_ok());
        let smaller = GeometrySpec { block_count: LbaCount::new(15 * 256), ..spec() };
        let theirs = params(&Geometry::new(smaller).unwrap()).unwrap();
        let error = compare(3, &theirs, &ours).unwrap_err().to_string();
        assert!(error.contains("sectors: 30720, not 32768"), "{error}");
    }
}
