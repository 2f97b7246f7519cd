//! The promises of every device about requests that it is given together.

use zonal::{DeviceError as E, Io, Lba, LbaCount, ZoneId, ZonedDevice};

use super::{data, read, roomy};

fn outcomes(device: &dyn ZonedDevice, mut batch: Vec<Io<'_>>) -> Vec<Result<Lba, E>> {
    device.submit(&mut batch);
    batch.into_iter().map(Io::outcome).collect()
}

/// As many zones as may be active, eight at most, each with room for `blocks` blocks.
fn active(device: &dyn ZonedDevice, blocks: u64) -> Vec<zonal::Zone> {
    let mut zones = roomy(device, blocks);
    let geometry = device.geometry();
    let limit = geometry.max_active().unwrap_or(4).min(geometry.max_open().unwrap_or(4));
    zones.truncate(limit.min(8) as usize);
    zones
}

pub(super) fn results_stand_with_their_requests(device: &dyn ZonedDevice) {
    let zones = active(device, 3);
    let contents: Vec<Vec<u8>> =
        (1_u8..).step_by(20).zip(&zones).map(|(first, _)| data(device, first, 3)).collect();
    let batch = zones.iter().zip(&contents).map(|(zone, data)| Io::write(zone.start, data));
    let batch = batch.chain([Io::flush()]).collect();
    let found = outcomes(device, batch);
    assert!(found.last().is_some_and(Result::is_ok), "{found:?}");
    for (zone, found) in zones.iter().zip(&found) {
        assert!(matches!(found, Ok(lba) if *lba == zone.start), "{zone:?}: {found:?}");
    }
    let mut buffers: Vec<Vec<u8>> = contents.iter().map(|data| vec![0xee; data.len()]).collect();
    let reads = zones.iter().zip(&mut buffers).map(|(zone, buffer)| Io::read(zone.start, buffer));
    let found = outcomes(device, reads.collect());
    assert!(found.iter().all(Result::is_ok), "{found:?}");
    assert_eq!(buffers, contents);
    assert!(outcomes(device, Vec::new()).is_empty());
}

pub(super) fn writes_to_a_zone_keep_their_order(device: &dyn ZonedDevice) {
    let zones = active(device, 8);
    let contents: Vec<Vec<u8>> =
        (1_u8..).step_by(20).zip(&zones).map(|(first, _)| data(device, first, 8)).collect();
    let block = contents.first().map_or(0, |data| data.len() / 8);
    let mut batch = Vec::new();
    // Block by block, the zones by turns.
    for (number, at) in (0..8).zip(0_usize..) {
        for (zone, data) in zones.iter().zip(&contents) {
            let part = &data[at * block..(at + 1) * block];
            batch.push(Io::write(zone.start + LbaCount::new(number), part));
        }
    }
    let found = outcomes(device, batch);
    assert!(found.iter().all(Result::is_ok), "{found:?}");
    for (zone, data) in zones.iter().zip(&contents) {
        assert_eq!(device.zone(zone.id).unwrap().written().unwrap().get(), 8);
        assert!(read(device, zone.start, 8) == *data, "zone {}", zone.id);
    }
}

pub(super) fn appends_of_a_batch_tell_where_they_went(device: &dyn ZonedDevice) {
    let Some(zone) = roomy(device, 6).into_iter().next() else { return };
    let blocks: Vec<Vec<u8>> = (0..6).map(|first| data(device, first * 9, 1)).collect();
    let found = outcomes(device, blocks.iter().map(|data| Io::append(zone.id, data)).collect());
    let mut places = Vec::new();
    for (found, data) in found.into_iter().zip(&blocks) {
        let lba = found.unwrap();
        assert!(read(device, lba, 1) == *data, "the append to {lba}");
        places.push((lba - zone.start).get());
    }
    places.sort_unstable();
    assert_eq!(places, [0, 1, 2, 3, 4, 5]);
}

pub(super) fn a_request_that_fails_stops_no_other(device: &dyn ZonedDevice) {
    let zones = active(device, 4);
    let [first, rest @ ..] = zones.as_slice() else { return };
    let one = data(device, 7, 1);
    let too_large =
        vec![1; device.geometry().bytes(device.geometry().max_append()).get() as usize + one.len()];
    let end = Lba::ZERO + device.geometry().block_count();
    let (mut beyond, mut odd, mut there) = (one.clone(), vec![1; 3], vec![0xee; one.len()]);
    let nowhere = ZoneId::new(device.geometry().zone_count());
    let batch = vec![
        Io::write(first.start, &one),
        // Not at the write pointer.
        Io::write(first.start + LbaCount::new(3), &one),
        Io::write(first.start + LbaCount::new(1), &one),
        Io::read(end, &mut beyond),
        Io::read(first.start, &mut odd),
        Io::append(first.id, &too_large),
        Io::append(nowhere, &one),
        Io::flush(),
        Io::read(first.start, &mut there),
    ];
    let found = outcomes(device, batch);
    let [written, skewed, next, beyond, odd, large, nobody, flushed, read_back] = found.as_slice()
    else {
        panic!("{} results", found.len());
    };
    for good in [written, next, flushed, read_back] {
        assert!(good.is_ok(), "{found:?}");
    }
    assert!(matches!(skewed, Err(E::NotAtWritePointer { .. })), "{skewed:?}");
    assert!(matches!(beyond, Err(E::OutOfRange { .. })), "{beyond:?}");
    assert!(odd.is_err(), "{odd:?}");
    assert!(matches!(large, Err(E::AppendTooLarge { .. })), "{large:?}");
    assert!(matches!(nobody, Err(E::NoSuchZone { .. })), "{nobody:?}");
    assert!(there == one);
    assert_eq!(device.zone(first.id).unwrap().written().unwrap().get(), 2);
    // The same in another zone, where nothing fails.
    for zone in rest {
        let found = outcomes(device, vec![Io::write(zone.start, &one), Io::append(zone.id, &one)]);
        assert!(found.iter().all(Result::is_ok), "{found:?}");
        assert_eq!(device.zone(zone.id).unwrap().written().unwrap().get(), 2);
    }
}

/// More than a drive takes at once, of several sizes, at any place.
pub(super) fn many_reads_are_one_batch(device: &dyn ZonedDevice) {
    let zones = active(device, 8);
    for zone in &zones {
        device.write(zone.start, &data(device, zone.id.get() as u8, 8)).unwrap();
    }
    let places: Vec<(Lba, u64)> = (0..100_u64)
        .map(|number| {
            let zone = &zones[number as usize % zones.len().max(1)];
            let offset = number * 5 % 8;
            (zone.start + LbaCount::new(offset), (number % 3 + 1).min(8 - offset))
        })
        .take(if zones.is_empty() { 0 } else { 100 })
        .collect();
    let expected: Vec<Vec<u8>> =
        places.iter().map(|&(lba, blocks)| read(device, lba, blocks)).collect();
    let mut buffers: Vec<Vec<u8>> = expected.iter().map(|data| vec![0xee; data.len()]).collect();
    let reads = places.iter().zip(&mut buffers).map(|(&(lba, _), buffer)| Io::read(lba, buffer));
    let found = outcomes(device, reads.collect());
    assert!(found.iter().all(Result::is_ok), "{found:?}");
    assert!(buffers == expected);
}
