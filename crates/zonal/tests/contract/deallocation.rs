//! Deallocation. The device chooses the content of such a block, so the checks are about everything
//! else; `tests/layers.rs` checks that it arrives below each layer.

use zonal::{DeviceError as E, Lba, LbaCount, Zone, ZoneKind, ZonedDevice};

use super::{data, read, sequential};

fn conventional(device: &dyn ZonedDevice) -> Option<Zone> {
    let zones = device.report_all().unwrap();
    zones.into_iter().find(|zone| zone.kind == ZoneKind::Conventional)
}

pub(super) fn deallocates_what_is_asked_for(device: &dyn ZonedDevice) {
    let Some(zone) = conventional(device) else { return };
    let block = |at| zone.start + LbaCount::new(at);
    device.write(zone.start, &data(device, 1, 8)).unwrap();
    device.deallocate(block(2), LbaCount::new(4)).unwrap();
    assert_eq!(read(device, zone.start, 2), data(device, 1, 2), "blocks before");
    assert_eq!(read(device, block(6), 2), data(device, 7, 2), "blocks behind");
    read(device, block(2), 4);
    device.write(block(3), &data(device, 50, 2)).unwrap();
    device.flush().unwrap();
    assert_eq!(read(device, block(3), 2), data(device, 50, 2), "written again");
    // A whole zone, twice, and nothing at all.
    for _ in 0..2 {
        device.deallocate(zone.start, zone.capacity).unwrap();
    }
    device.deallocate(zone.start, LbaCount::ZERO).unwrap();
    assert_eq!(device.zone(zone.id).unwrap(), zone, "its report never changes");
    device.write(block(1), &data(device, 9, 1)).unwrap();
    assert_eq!(read(device, block(1), 1), data(device, 9, 1));
}

pub(super) fn refuses_other_blocks(device: &dyn ZonedDevice) {
    let (one, two) = (LbaCount::new(1), LbaCount::new(2));
    for zone in sequential(device) {
        device.write(zone.start, &data(device, 1, 1)).unwrap();
        let outcome = device.deallocate(zone.start, one);
        assert!(matches!(outcome, Err(E::Sequential { zone: id }) if id == zone.id), "{outcome:?}");
        assert_eq!(read(device, zone.start, 1), data(device, 1, 1));
        device.deallocate(zone.start, LbaCount::ZERO).unwrap();
        device.manage(zonal::Select::One(zone.id), zonal::ZoneAction::Finish).unwrap();
    }
    let end = Lba::ZERO + device.geometry().block_count();
    for lba in [Lba::new(end.get() - 1), end, Lba::new(u64::MAX)] {
        let outcome = device.deallocate(lba, two);
        assert!(matches!(outcome, Err(E::OutOfRange { lba: found, .. }) if found == lba));
    }
    let Some(zone) = conventional(device) else { return };
    let last = Lba::new((zone.start + zone.capacity).get() - 1);
    device.write(last, &data(device, 5, 1)).unwrap();
    let outcome = device.deallocate(last, two);
    assert!(
        matches!(outcome, Err(E::CrossesZone { zone: id, lba, .. }) if (id, lba) == (zone.id, last)),
        "{outcome:?}"
    );
    assert_eq!(read(device, last, 1), data(device, 5, 1), "a refused one does nothing");
}
