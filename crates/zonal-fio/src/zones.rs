//! The calls of fio for zones: reports, limits and actions. Addresses are bytes.

use std::ffi::{c_char, c_int, c_uint};
use std::sync::Arc;

use zonal::{
    AlignedBytes, Geometry, Lba, LbaCount, Select, Zone, ZoneAction, ZoneCond, ZoneId, ZoneKind,
};

use crate::abi::{File, Thread, ZoneReport};
use crate::drives::{self, Access, Drive};
use crate::edge;
use crate::error::{Error, Result};
use crate::job;

/// `enum zbd_zoned_model`.
const NO_ZONES: c_uint = 1;
const HOST_AWARE: c_uint = 2;
const HOST_MANAGED: c_uint = 3;

/// The drive that a job has opened, or is going to open.
fn drive(thread: Thread, file: File, access: Access) -> Result<Arc<Drive>> {
    match job::opened(thread, file) {
        Some(drive) => Ok(drive),
        None => drives::look(&file.name().ok_or(Error::Name)?, access),
    }
}

/// # Safety
///
/// `place` is valid for writing.
unsafe fn put<T>(value: T, place: *mut T) -> c_int {
    // SAFETY: the caller says so.
    unsafe { place.write(value) };
    0
}

/// fio makes up zones for a device that has no sequential ones.
pub(crate) unsafe extern "C" fn get_zoned_model(
    thread: Thread,
    file: File,
    model: *mut c_uint,
) -> c_int {
    edge::number(|| {
        let drive = drive(thread, file, Access::Read)?;
        let geometry = drive.device().geometry();
        let found = match geometry.sequential_kind() {
            _ if geometry.sequential_count() == 0 => NO_ZONES,
            ZoneKind::SequentialPreferred => HOST_AWARE,
            ZoneKind::SequentialRequired | ZoneKind::Conventional => HOST_MANAGED,
        };
        // SAFETY: fio has room for it.
        Ok(unsafe { put(found, model) })
    })
}

/// Returns how many zones it has reported.
pub(crate) unsafe extern "C" fn report_zones(
    thread: Thread,
    file: File,
    offset: u64,
    zones: *mut ZoneReport,
    room: c_uint,
) -> c_int {
    edge::number(|| {
        let drive = drive(thread, file, Access::Read)?;
        let geometry = drive.device().geometry();
        let (first, _) = geometry.locate(drive.block(offset)?);
        let mut found = Vec::new();
        drive.device().report(first, &mut found, room as usize)?;
        for (index, zone) in found.iter().enumerate() {
            // SAFETY: no more are reported than there is room for.
            unsafe { put(reported(geometry, zone), zones.wrapping_add(index)) };
        }
        Ok(c_int::try_from(found.len()).unwrap_or(c_int::MAX))
    })
}

fn reported(geometry: &Geometry, zone: &Zone) -> ZoneReport {
    let bytes = |blocks: LbaCount| geometry.bytes(blocks).get();
    let start = bytes(zone.start - Lba::ZERO);
    let capacity = bytes(zone.capacity);
    let written = match zone.cond {
        // fio believes that there is data below the write pointer.
        ZoneCond::Offline => 0,
        ZoneCond::NotWp | ZoneCond::ReadOnly | ZoneCond::Full => capacity,
        ZoneCond::Empty | ZoneCond::ImplicitOpen | ZoneCond::ExplicitOpen | ZoneCond::Closed => {
            zone.written().map_or(capacity, bytes)
        }
    };
    // fio numbers kinds and conditions as ZBC does.
    let kind = c_uint::from(zone.kind.code());
    let cond = c_uint::from(zone.cond.code());
    ZoneReport { start, wp: start + written, len: bytes(zone.size), capacity, kind, cond }
}

pub(crate) extern "C" fn reset_wp(thread: Thread, file: File, offset: u64, length: u64) -> c_int {
    edge::number(|| manage(thread, file, offset..offset + length, ZoneAction::Reset))
}

pub(crate) extern "C" fn finish_zone(
    thread: Thread,
    file: File,
    offset: u64,
    length: u64,
) -> c_int {
    edge::number(|| manage(thread, file, offset..offset + length, ZoneAction::Finish))
}

fn manage(
    thread: Thread,
    file: File,
    range: std::ops::Range<u64>,
    action: ZoneAction,
) -> Result<c_int> {
    let drive = drive(thread, file, Access::Write)?;
    let geometry = drive.device().geometry();
    let (lba, end) = (drive.block(range.start)?, drive.block(range.end)?);
    for (lba, _) in geometry.by_zone(lba, end - lba) {
        let (zone, _) = geometry.locate(lba);
        manage_zone(&drive, zone, action)?;
    }
    Ok(0)
}

/// Conventional zones stay as they are.
fn manage_zone(drive: &Drive, zone: ZoneId, action: ZoneAction) -> Result<()> {
    if drive.device().geometry().kind(zone) == ZoneKind::Conventional {
        return Ok(());
    }
    // Wait for the writes of other jobs to the zone.
    Ok(drive.pool().alone_in(Some(zone), || drive.device().manage(Select::One(zone), action))?)
}

/// Writes at the write pointer that fio gives, zeroes where it gives no data.
pub(crate) unsafe extern "C" fn move_zone_wp(
    thread: Thread,
    file: File,
    zone: *const ZoneReport,
    length: u64,
    data: *const c_char,
) -> c_int {
    edge::number(|| {
        let drive = drive(thread, file, Access::Write)?;
        // SAFETY: fio gives one.
        let zone = unsafe { zone.read() };
        let geometry = drive.device().geometry();
        let lba = drive.block(zone.wp)?;
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        let zeroes =
            if data.is_null() { AlignedBytes::zeroed(length) } else { AlignedBytes::default() };
        let data = if data.is_null() {
            &zeroes[..length]
        } else {
            // SAFETY: fio gives as much as it says.
            unsafe { std::slice::from_raw_parts(data.cast::<u8>(), length) }
        };
        let (id, _) = geometry.locate(lba);
        drive.pool().alone_in(Some(id), || drive.device().write(lba, data))?;
        Ok(0)
    })
}

/// 0 says that there is no limit.
pub(crate) unsafe extern "C" fn get_max_open_zones(
    thread: Thread,
    file: File,
    limit: *mut c_uint,
) -> c_int {
    // SAFETY: fio has room for it.
    edge::number(|| unsafe { give_limit(thread, file, limit, Geometry::max_open) })
}

/// The same of active zones.
pub(crate) unsafe extern "C" fn get_max_active_zones(
    thread: Thread,
    file: File,
    limit: *mut c_uint,
) -> c_int {
    // SAFETY: fio has room for it.
    edge::number(|| unsafe { give_limit(thread, file, limit, Geometry::max_active) })
}

/// # Safety
///
/// As for [`put`].
unsafe fn give_limit(
    thread: Thread,
    file: File,
    limit: *mut c_uint,
    which: fn(&Geometry) -> Option<u32>,
) -> Result<c_int> {
    let drive = drive(thread, file, Access::Read)?;
    // SAFETY: the caller says so.
    Ok(unsafe { put(which(drive.device().geometry()).unwrap_or(0), limit) })
}

/// A trim outside fio's zone mode: whole sequential zones are reset; blocks of conventional ones
/// are given back.
pub(crate) fn trim(drive: &Drive, offset: u64, bytes: u64) -> Result<()> {
    let geometry = drive.device().geometry();
    let (lba, end) = (drive.block(offset)?, drive.block(offset + bytes)?);
    let pieces: Vec<_> = geometry.by_zone(lba, end - lba).collect();
    let is_part = |(lba, blocks): &(Lba, LbaCount)| {
        let (zone, _) = geometry.locate(*lba);
        geometry.kind(zone).is_sequential() && *blocks != geometry.size_of(zone)
    };
    if pieces.iter().any(is_part) {
        return Err(Error::PartOfZone { offset, bytes });
    }
    for (lba, blocks) in pieces {
        let (zone, _) = geometry.locate(lba);
        match geometry.kind(zone) {
            ZoneKind::Conventional => drive.device().deallocate(lba, blocks)?,
            ZoneKind::SequentialRequired | ZoneKind::SequentialPreferred => {
                manage_zone(drive, zone, ZoneAction::Reset)?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use zonal::{MemoryDrive, ZoneFailure, ZonedDevice};

    use super::*;

    #[test]
    fn zones_report_bytes_and_write_pointer_for_fio() {
        let shape = "zone=3M,capacity=2M,zones=9,conventional=1,open=2,active=4";
        let shape = shape.parse::<zonal::profile::Changes>().unwrap().geometry().unwrap();
        let drive = MemoryDrive::new(shape).unwrap();
        drive.append(ZoneId::new(1), &[1; 8192]).unwrap();
        drive.manage(Select::One(ZoneId::new(2)), ZoneAction::Finish).unwrap();
        drive.fail_zone(ZoneId::new(3), ZoneFailure::ReadOnly).unwrap();
        drive.fail_zone(ZoneId::new(4), ZoneFailure::Offline).unwrap();
        let seen: Vec<_> = drive
            .report_all()
            .unwrap()
            .iter()
            .take(6)
            .map(|zone| reported(drive.geometry(), zone))
            .map(|zone| (zone.start >> 20, (zone.wp - zone.start) >> 10, zone.kind, zone.cond))
            .collect();
        let expected = [
            (0, 3072, 1, 0),
            (3, 8, 2, 2),
            (6, 2048, 2, 0xe),
            (9, 2048, 2, 0xd),
            (12, 0, 2, 0xf),
            (15, 0, 2, 1),
        ];
        assert_eq!(seen, expected);
    }
}
