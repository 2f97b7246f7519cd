//! The promises of every device, as one list of checks, for the tests of every crate that has a
//! device.
//!
//! After each check the invariants D1 and D2 are checked as well.

#![expect(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "a test of small devices"
)]

mod batches;
mod deallocation;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::ScopedJoinHandle;

use zonal::{
    DeviceError as E, Geometry, Lba, LbaCount, Select, Zone, ZoneAction, ZoneCond, ZoneId,
    ZoneKind, ZonedDevice,
};

/// One check. It expects a fresh device.
pub(crate) type Check = fn(&dyn ZonedDevice);

/// Every check, with the promise that it is about.
pub(crate) const CHECKS: &[(&str, Check)] = &[
    ("zones tile the device", zones_tile_the_device),
    ("reports can be taken in parts", reports_can_be_taken_in_parts),
    ("a new device reads as zeroes", a_new_device_reads_as_zeroes),
    ("writes go to the pointer only", writes_go_to_the_pointer_only),
    ("appends tell where they went", appends_tell_where_they_went),
    ("a zone fills up to its capacity", a_zone_fills_up_to_its_capacity),
    ("reads cross zones", reads_cross_zones),
    ("what is written stays until a reset", what_is_written_stays_until_a_reset),
    ("a finished zone reads as zeroes where nothing was written", finish_partly_written),
    ("actions follow the state machine", actions_follow_the_state_machine),
    ("bad addresses and lengths are refused", bad_addresses_and_lengths_are_refused),
    ("nothing is done for empty buffers", nothing_is_done_for_empty_buffers),
    ("the least recently used open zone is closed", least_recently_used_is_closed),
    ("explicitly opened zones are not closed", explicitly_opened_zones_are_not_closed),
    ("the active limit is an error", the_active_limit_is_an_error),
    ("actions can be for all zones", actions_can_be_for_all_zones),
    ("conventional zones are written anywhere", conventional_zones_are_written_anywhere),
    ("deallocated blocks are those asked for", deallocation::deallocates_what_is_asked_for),
    ("only blocks of one conventional zone are deallocated", deallocation::refuses_other_blocks),
    ("results of a batch stand with their requests", batches::results_stand_with_their_requests),
    ("writes of a batch to a zone keep their order", batches::writes_to_a_zone_keep_their_order),
    ("appends of a batch tell where they went", batches::appends_of_a_batch_tell_where_they_went),
    ("a request that fails stops no other", batches::a_request_that_fails_stops_no_other),
    ("many reads are one batch", batches::many_reads_are_one_batch),
    ("threads do not disturb each other", threads_do_not_disturb_each_other),
];

/// Runs one check on a device of this name; the name stands in the failure.
pub(crate) fn run(device: &dyn ZonedDevice, name: &str, what: &str, check: Check) {
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        check(device);
        check_invariants(device);
    }));
    assert!(outcome.is_ok(), "{name}: {what}");
}

/// D1 and D2.
fn check_invariants(device: &dyn ZonedDevice) {
    let (zones, geometry) = (device.report_all().unwrap(), device.geometry());
    for zone in &zones {
        assert!(zone.capacity <= zone.size, "{zone:?}");
        if let Some(wp) = zone.wp {
            assert!(zone.start <= wp && wp <= zone.start + zone.capacity, "D1: {zone:?}");
        }
    }
    let count = |test: fn(ZoneCond) -> bool| {
        u32::try_from(zones.iter().filter(|zone| test(zone.cond)).count()).unwrap()
    };
    assert!(geometry.max_open().is_none_or(|limit| count(ZoneCond::is_open) <= limit), "D2");
    assert!(geometry.max_active().is_none_or(|limit| count(ZoneCond::is_active) <= limit), "D2");
}

fn bytes(geometry: &Geometry, blocks: u64) -> usize {
    usize::try_from(geometry.bytes(LbaCount::new(blocks)).get()).unwrap()
}

/// `blocks` blocks, each filled with its own value from `first` on.
fn data(device: &dyn ZonedDevice, first: u8, blocks: u64) -> Vec<u8> {
    let block = bytes(device.geometry(), 1);
    (0..blocks).flat_map(|at| vec![first.wrapping_add(at as u8); block]).collect()
}

fn read(device: &dyn ZonedDevice, lba: Lba, blocks: u64) -> Vec<u8> {
    let mut buffer = vec![0xee; bytes(device.geometry(), blocks)];
    device.read(lba, &mut buffer).unwrap();
    buffer
}

fn sequential(device: &dyn ZonedDevice) -> Vec<Zone> {
    let mut zones = device.report_all().unwrap();
    zones.retain(|zone| zone.kind.is_sequential());
    zones
}

/// Sequential zones that hold at least `blocks` blocks.
fn roomy(device: &dyn ZonedDevice, blocks: u64) -> Vec<Zone> {
    let mut zones = sequential(device);
    zones.retain(|zone| zone.capacity.get() >= blocks);
    zones
}

fn cond(device: &dyn ZonedDevice, zone: &Zone) -> ZoneCond {
    device.zone(zone.id).unwrap().cond
}

fn zones_tile_the_device(device: &dyn ZonedDevice) {
    let (geometry, mut next) = (device.geometry(), Lba::ZERO);
    let zones = device.report_all().unwrap();
    assert_eq!(zones.len(), geometry.zone_count() as usize);
    for (zone, id) in zones.iter().zip(geometry.zones()) {
        let fresh = match geometry.kind(id) {
            ZoneKind::Conventional => (ZoneCond::NotWp, None),
            ZoneKind::SequentialRequired | ZoneKind::SequentialPreferred => {
                (ZoneCond::Empty, Some(next))
            }
        };
        assert_eq!((zone.id, zone.start), (id, next));
        assert_eq!((zone.cond, zone.wp), fresh);
        assert_eq!((zone.size, zone.capacity), (geometry.size_of(id), geometry.capacity_of(id)));
        assert_eq!(zone.kind, geometry.kind(id));
        assert_eq!(zone.remaining(), zone.capacity);
        next += zone.size;
    }
    assert_eq!(next - Lba::ZERO, geometry.block_count());
}

fn reports_can_be_taken_in_parts(device: &dyn ZonedDevice) {
    let all = device.report_all().unwrap();
    for first in 0..=all.len() + 1 {
        for limit in [0, 1, 3, usize::MAX] {
            let mut part = vec![all[0]];
            device.report(ZoneId::new(first as u32), &mut part, limit).unwrap();
            let end = first.saturating_add(limit).min(all.len());
            assert_eq!(part[1..], all[first.min(end)..end], "from {first}, {limit}");
        }
    }
    let beyond = ZoneId::new(all.len() as u32);
    assert!(matches!(device.zone(beyond), Err(E::NoSuchZone { zone }) if zone == beyond));
}

fn a_new_device_reads_as_zeroes(device: &dyn ZonedDevice) {
    let blocks = device.geometry().block_count().get();
    assert!(read(device, Lba::ZERO, blocks).iter().all(|&byte| byte == 0));
}

fn writes_go_to_the_pointer_only(device: &dyn ZonedDevice) {
    let Some(zone) = roomy(device, 4).first().copied() else { return };
    let ahead = device.write(zone.start + LbaCount::new(1), &data(device, 1, 1));
    assert!(
        matches!(ahead, Err(E::NotAtWritePointer { zone: id, wp, lba })
            if (id, wp, lba) == (zone.id, zone.start, zone.start + LbaCount::new(1))),
        "{ahead:?}"
    );
    assert_eq!(cond(device, &zone), ZoneCond::Empty, "a refused write opens nothing");
    device.write(zone.start, &data(device, 1, 2)).unwrap();
    let again = device.write(zone.start, &data(device, 9, 1));
    assert!(matches!(again, Err(E::NotAtWritePointer { .. })), "{again:?}");
    let wp = zone.start + LbaCount::new(2);
    device.write(wp, &data(device, 3, 1)).unwrap();
    let now = device.zone(zone.id).unwrap();
    assert_eq!((now.cond, now.wp), (ZoneCond::ImplicitOpen, Some(wp + LbaCount::new(1))));
    assert_eq!(now.remaining(), zone.capacity - LbaCount::new(3));
    assert_eq!(read(device, zone.start, 4), [data(device, 1, 3), data(device, 0, 1)].concat());
}

fn appends_tell_where_they_went(device: &dyn ZonedDevice) {
    for zone in roomy(device, 4) {
        assert_eq!(device.append(zone.id, &data(device, 1, 1)).unwrap(), zone.start);
        let second = zone.start + LbaCount::new(1);
        assert_eq!(device.append(zone.id, &data(device, 2, 2)).unwrap(), second);
        assert_eq!(read(device, zone.start, 3), data(device, 1, 3));
        device.manage(Select::One(zone.id), ZoneAction::Reset).unwrap();
    }
    let limit = device.geometry().max_append();
    let zone = sequential(device)[0].id;
    let large = device.append(zone, &data(device, 1, limit.get() + 1));
    assert!(matches!(large, Err(E::AppendTooLarge { limit: found, .. }) if found == limit));
}

fn a_zone_fills_up_to_its_capacity(device: &dyn ZonedDevice) {
    for zone in sequential(device) {
        let capacity = zone.capacity.get();
        let most = device.write(zone.start, &data(device, 1, capacity + 1));
        let last = zone.start + zone.capacity == Lba::ZERO + device.geometry().block_count();
        match most {
            Err(E::CrossesZone { lba, .. }) => assert_eq!(lba, zone.start),
            Err(E::OutOfRange { .. }) => assert!(last),
            other => panic!("{other:?}"),
        }
        device.write(zone.start, &data(device, 1, capacity)).unwrap();
        let full = device.zone(zone.id).unwrap();
        assert_eq!((full.cond, full.wp), (ZoneCond::Full, Some(zone.start + zone.capacity)));
        assert_eq!(full.remaining(), LbaCount::ZERO);
        assert_eq!(read(device, zone.start, capacity), data(device, 1, capacity));
        let rewrite = device.write(zone.start, &data(device, 1, 1));
        assert!(matches!(rewrite, Err(E::ZoneFull { zone: id }) if id == zone.id));
        let append = device.append(zone.id, &data(device, 1, 1));
        assert!(matches!(append, Err(E::ZoneFull { .. })), "{append:?}");
        let gap = zone.size - zone.capacity;
        let zeroes = read(device, zone.start + zone.capacity, gap.get());
        assert!(zeroes.iter().all(|&byte| byte == 0), "above the capacity there is nothing");
    }
}

fn reads_cross_zones(device: &dyn ZonedDevice) {
    let blocks = device.geometry().block_count().get();
    let mut shadow = vec![0; bytes(device.geometry(), blocks)];
    for (zone, first) in sequential(device).into_iter().zip((1_u8..200).step_by(30).cycle()) {
        let count = zone.capacity.get().saturating_sub(1).max(1);
        let what = data(device, first, count);
        device.write(zone.start, &what).unwrap();
        let at = bytes(device.geometry(), (zone.start - Lba::ZERO).get());
        shadow[at..at + what.len()].copy_from_slice(&what);
        device.manage(Select::One(zone.id), ZoneAction::Finish).unwrap();
    }
    // Every place of a small device, and places all over a large one.
    let step = usize::try_from(blocks / 200).unwrap() | 1;
    for first in (0..blocks).step_by(step) {
        for count in [1, 3, blocks - first] {
            let count = count.min(blocks - first);
            let (at, end) =
                (bytes(device.geometry(), first), bytes(device.geometry(), first + count));
            assert!(read(device, Lba::new(first), count) == shadow[at..end], "{first}+{count}");
        }
    }
}

/// D3.
fn what_is_written_stays_until_a_reset(device: &dyn ZonedDevice) {
    let Some(zone) = roomy(device, 3).first().copied() else { return };
    let written = data(device, 1, 2);
    device.write(zone.start, &written).unwrap();
    let steps = [ZoneAction::Close, ZoneAction::Open, ZoneAction::Close, ZoneAction::Finish];
    for action in steps {
        device.manage(Select::One(zone.id), action).unwrap();
        device.flush().unwrap();
        assert_eq!(read(device, zone.start, 2), written, "after {}", action.name());
    }
    device.manage(Select::One(zone.id), ZoneAction::Reset).unwrap();
    assert_eq!(read(device, zone.start, 2), data(device, 0, 1).repeat(2));
    device.write(zone.start, &data(device, 7, 1)).unwrap();
    device.flush().unwrap();
    assert_eq!(read(device, zone.start, 2), [data(device, 7, 1), data(device, 0, 1)].concat());
}

fn finish_partly_written(device: &dyn ZonedDevice) {
    let Some(zone) = roomy(device, 3).first().copied() else { return };
    device.write(zone.start, &data(device, 1, 3)).unwrap();
    device.manage(Select::One(zone.id), ZoneAction::Reset).unwrap();
    device.write(zone.start, &data(device, 5, 1)).unwrap();
    device.manage(Select::One(zone.id), ZoneAction::Finish).unwrap();
    assert_eq!(device.zone(zone.id).unwrap().wp, Some(zone.start + zone.capacity));
    let zeroes = vec![0; bytes(device.geometry(), 2)];
    assert_eq!(read(device, zone.start, 3), [data(device, 5, 1), zeroes].concat());
}

fn actions_follow_the_state_machine(device: &dyn ZonedDevice) {
    let Some(zone) = roomy(device, 2).first().copied() else { return };
    let act = |action| device.manage(Select::One(zone.id), action);
    let refused = |action, from| {
        let outcome = act(action);
        assert!(
            matches!(outcome, Err(E::Transition { zone: id, cond, action: asked })
                if (id, cond, asked) == (zone.id, from, action)),
            "{} in {}: {outcome:?}",
            action.name(),
            from.name()
        );
    };
    refused(ZoneAction::Close, ZoneCond::Empty);
    act(ZoneAction::Reset).unwrap();
    assert_eq!(cond(device, &zone), ZoneCond::Empty);
    act(ZoneAction::Open).unwrap();
    assert_eq!(cond(device, &zone), ZoneCond::ExplicitOpen);
    device.append(zone.id, &data(device, 1, 1)).unwrap();
    assert_eq!(cond(device, &zone), ZoneCond::ExplicitOpen, "a write leaves it explicitly open");
    act(ZoneAction::Close).unwrap();
    act(ZoneAction::Close).unwrap();
    assert_eq!(cond(device, &zone), ZoneCond::Closed);
    act(ZoneAction::Finish).unwrap();
    act(ZoneAction::Finish).unwrap();
    assert_eq!(cond(device, &zone), ZoneCond::Full);
    refused(ZoneAction::Open, ZoneCond::Full);
    refused(ZoneAction::Close, ZoneCond::Full);
    act(ZoneAction::Reset).unwrap();
    assert_eq!(device.zone(zone.id).unwrap(), zone, "as new");
}

fn bad_addresses_and_lengths_are_refused(device: &dyn ZonedDevice) {
    let end = Lba::ZERO + device.geometry().block_count();
    let last = Lba::new(end.get() - 1);
    let mut two = data(device, 1, 2);
    for lba in [end, last, Lba::new(u64::MAX)] {
        let outcome = device.read(lba, &mut two);
        assert!(matches!(outcome, Err(E::OutOfRange { lba: found, .. }) if found == lba));
        let outcome = device.write(lba, &two);
        assert!(matches!(outcome, Err(E::OutOfRange { lba: found, .. }) if found == lba));
    }
    let odd = vec![0; 100];
    for lba in [Lba::ZERO, last, end, Lba::new(end.get() + 1), Lba::new(end.get() << 4)] {
        for more in [0, bytes(device.geometry(), 1)] {
            let mut odd = vec![0; 100 + more];
            for outcome in [device.write(lba, &odd), device.read(lba, &mut odd)] {
                assert!(matches!(outcome, Err(E::Unaligned { .. })), "{lba}: {outcome:?}");
            }
        }
    }
    let zone = sequential(device)[0].id;
    assert!(matches!(device.append(zone, &odd), Err(E::Unaligned { bytes: 100, .. })));
    let none = ZoneId::new(device.geometry().zone_count());
    assert!(matches!(device.append(none, &data(device, 1, 1)), Err(E::NoSuchZone { .. })));
    for action in ZoneAction::ALL {
        assert!(matches!(device.manage(Select::One(none), action), Err(E::NoSuchZone { .. })));
    }
}

fn nothing_is_done_for_empty_buffers(device: &dyn ZonedDevice) {
    let before = device.report_all().unwrap();
    let end = Lba::ZERO + device.geometry().block_count();
    for lba in [Lba::ZERO, end] {
        device.read(lba, &mut []).unwrap();
        device.write(lba, &[]).unwrap();
    }
    device.flush().unwrap();
    for zone in &before {
        assert_eq!(device.append(zone.id, &[]).unwrap(), zone.start, "zone {}", zone.id);
    }
    assert_eq!(device.report_all().unwrap(), before);
    let none = ZoneId::new(device.geometry().zone_count());
    assert!(matches!(device.append(none, &[]), Err(E::NoSuchZone { zone }) if zone == none));
    // A zone that takes no more blocks still accepts a request of none.
    let Some(zone) = roomy(device, 3).first().copied() else { return };
    device.append(zone.id, &data(device, 1, 1)).unwrap();
    assert_eq!(device.append(zone.id, &[]).unwrap(), zone.start + LbaCount::new(1));
    device.manage(Select::One(zone.id), ZoneAction::Finish).unwrap();
    let full = device.zone(zone.id).unwrap();
    assert_eq!(device.append(zone.id, &[]).unwrap(), zone.start + zone.capacity);
    device.write(zone.start, &[]).unwrap();
    assert_eq!(device.zone(zone.id).unwrap(), full);
}

/// Opens as many zones as may be open and active at once, and returns them and one more.
fn at_the_open_limit(device: &dyn ZonedDevice) -> Option<(Vec<Zone>, Zone)> {
    let limit = device.geometry().max_open()? as usize;
    let more_active = device.geometry().max_active().is_none_or(|active| active as usize > limit);
    let zones = roomy(device, 3);
    (more_active && zones.len() > limit).then(|| (zones[..limit].to_vec(), zones[limit]))
}

fn least_recently_used_is_closed(device: &dyn ZonedDevice) {
    let Some((zones, next)) = at_the_open_limit(device) else { return };
    for zone in &zones {
        device.append(zone.id, &data(device, 1, 1)).unwrap();
    }
    // Used again: now the second zone is the one that was not used for longest.
    device.append(zones[0].id, &data(device, 2, 1)).unwrap();
    device.append(next.id, &data(device, 1, 1)).unwrap();
    let victim = zones.get(1).unwrap_or(&zones[0]);
    for zone in &zones {
        let expected = if zone.id == victim.id { ZoneCond::Closed } else { ZoneCond::ImplicitOpen };
        assert_eq!(cond(device, zone), expected, "zone {}", zone.id);
    }
    assert_eq!(cond(device, &next), ZoneCond::ImplicitOpen);
    device.append(victim.id, &data(device, 2, 1)).unwrap();
    assert_eq!(cond(device, victim), ZoneCond::ImplicitOpen, "a closed zone opens again");
}

fn explicitly_opened_zones_are_not_closed(device: &dyn ZonedDevice) {
    let Some((zones, next)) = at_the_open_limit(device) else { return };
    for zone in &zones {
        device.manage(Select::One(zone.id), ZoneAction::Open).unwrap();
    }
    let limit = u32::try_from(zones.len()).unwrap();
    let one = Select::One(next.id);
    for outcome in [
        device.manage(one, ZoneAction::Open),
        device.append(next.id, &data(device, 1, 1)).map(drop),
        device.write(next.start, &data(device, 1, next.capacity.get())),
    ] {
        assert!(
            matches!(outcome, Err(E::TooManyOpen { zone, limit: found })
                if (zone, found) == (next.id, limit)),
            "{outcome:?}"
        );
    }
    assert_eq!(cond(device, &next), ZoneCond::Empty);
    device.manage(one, ZoneAction::Finish).unwrap();
    device.manage(Select::One(zones[0].id), ZoneAction::Close).unwrap();
    device.manage(one, ZoneAction::Reset).unwrap();
    device.append(next.id, &data(device, 1, 1)).unwrap();
}

fn the_active_limit_is_an_error(device: &dyn ZonedDevice) {
    let Some(limit) = device.geometry().max_active() else { return };
    let zones = roomy(device, 3);
    if zones.len() <= limit as usize {
        return;
    }
    let (active, next) = (&zones[..limit as usize], zones[limit as usize]);
    for zone in active {
        device.append(zone.id, &data(device, 1, 1)).unwrap();
    }
    for outcome in [
        device.append(next.id, &data(device, 1, 1)).map(drop),
        device.manage(Select::One(next.id), ZoneAction::Open),
    ] {
        assert!(
            matches!(outcome, Err(E::TooManyActive { zone, limit: found })
                if (zone, found) == (next.id, limit)),
            "{outcome:?}"
        );
    }
    device.append(active[0].id, &data(device, 2, 1)).unwrap();
    device.manage(Select::One(active[0].id), ZoneAction::Finish).unwrap();
    device.append(next.id, &data(device, 1, 1)).unwrap();
}

fn actions_can_be_for_all_zones(device: &dyn ZonedDevice) {
    let zones = roomy(device, 3);
    let most = device.geometry().max_open().unwrap_or(3).min(2) as usize;
    let most = most.min(device.geometry().max_active().unwrap_or(2) as usize);
    let Some(used) = zones.get(..most) else { return };
    let all = |action| device.manage(Select::All, action).unwrap();
    let conds = || device.report_all().unwrap().iter().map(|zone| zone.cond).collect::<Vec<_>>();
    let fresh = conds();
    for action in ZoneAction::ALL {
        all(action);
        assert_eq!(conds(), fresh, "{} of nothing", action.name());
    }
    let expect = |expected| {
        for zone in used {
            assert_eq!(cond(device, zone), expected);
        }
        let others = conds().iter().filter(|&&cond| cond == expected).count();
        assert_eq!(others, used.len(), "other zones stay as they are");
    };
    for zone in used {
        device.append(zone.id, &data(device, 1, 1)).unwrap();
    }
    all(ZoneAction::Close);
    expect(ZoneCond::Closed);
    all(ZoneAction::Open);
    expect(ZoneCond::ExplicitOpen);
    all(ZoneAction::Finish);
    expect(ZoneCond::Full);
    all(ZoneAction::Reset);
    assert_eq!(conds(), fresh);
}

fn conventional_zones_are_written_anywhere(device: &dyn ZonedDevice) {
    let zones = device.report_all().unwrap();
    let mut conventional = zones.iter().filter(|zone| zone.kind == ZoneKind::Conventional);
    let Some(zone) = conventional.next() else { return };
    let at = zone.start + LbaCount::new(5);
    device.write(at, &data(device, 1, 2)).unwrap();
    device.write(zone.start, &data(device, 3, 1)).unwrap();
    device.write(at, &data(device, 7, 1)).unwrap();
    assert_eq!(read(device, at, 2), [data(device, 7, 1), data(device, 2, 1)].concat());
    let end = zone.start + zone.capacity;
    device.write(Lba::new(end.get() - 1), &data(device, 9, 1)).unwrap();
    assert_eq!(read(device, Lba::new(end.get() - 1), 1), data(device, 9, 1));
    let crossing = device.write(Lba::new(end.get() - 1), &data(device, 9, 2));
    assert!(matches!(crossing, Err(E::CrossesZone { zone: id, .. }) if id == zone.id));
    let append = device.append(zone.id, &data(device, 1, 1));
    assert!(matches!(append, Err(E::Conventional { zone: id }) if id == zone.id));
    for action in ZoneAction::ALL {
        let outcome = device.manage(Select::One(zone.id), action);
        assert!(matches!(outcome, Err(E::Conventional { .. })), "{outcome:?}");
    }
    assert_eq!(device.zone(zone.id).unwrap(), *zone, "its report never changes");
}

/// Four threads fill and reset zones, more than may be open; one watches the limits.
fn threads_do_not_disturb_each_other(device: &dyn ZonedDevice) {
    let zones = roomy(device, 2);
    let active = device.geometry().max_active().unwrap_or(u32::MAX).min(4) as usize;
    let zones = &zones[..zones.len().min(active)];
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let workers: Vec<_> = zones
            .iter()
            .zip((1_u8..200).step_by(50).cycle())
            .map(|(zone, first)| {
                scope.spawn(move || {
                    for round in 0..6_u8 {
                        for block in 0..zone.capacity.get() {
                            let what = data(
                                device,
                                first.wrapping_add(round).wrapping_add(block as u8),
                                1,
                            );
                            let at = device.append(zone.id, &what).unwrap();
                            assert_eq!(at, zone.start + LbaCount::new(block));
                            assert_eq!(read(device, at, 1), what);
                        }
                        let all = data(device, first + round, zone.capacity.get());
                        assert_eq!(read(device, zone.start, zone.capacity.get()), all);
                        device.manage(Select::One(zone.id), ZoneAction::Reset).unwrap();
                    }
                })
            })
            .collect();
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                device.flush().unwrap();
                device.report_all().unwrap();
            }
        });
        let outcomes: Vec<_> = workers.into_iter().map(ScopedJoinHandle::join).collect();
        done.store(true, Ordering::Relaxed);
        assert!(outcomes.iter().all(Result::is_ok));
    });
}
