//! Promises of slices and concats beyond the device contract.

#![expect(clippy::unwrap_used, reason = "a test")]

use std::sync::{Arc, Barrier};

use zonal::layer::concat::Concat;
use zonal::layer::fault::Fault;
use zonal::layer::limited::{Limited, ZoneLimits};
use zonal::layer::meter::{Counters, Meter, OpKind};
use zonal::layer::slice::{Slice, ZoneRange};
use zonal::{
    BlockSize, DeviceError, GeometrySpec, Io, Lba, LbaCount, ManualClock, MemoryDrive, Select,
    ZoneAction, ZoneCond, ZoneId, ZoneKind, ZoneRuns, ZonedDevice,
};

const BLOCK: usize = 512;
const ZONE: u64 = 24;

fn spec(zones: u64) -> GeometrySpec {
    GeometrySpec {
        block_size: BlockSize::B512,
        block_count: LbaCount::new(zones * ZONE),
        zone_size: LbaCount::new(ZONE),
        zone_capacity: LbaCount::new(17),
        conventional_zones: ZoneRuns::NONE,
        sequential_kind: ZoneKind::SequentialRequired,
        max_open: Some(4),
        max_active: Some(6),
        max_append: LbaCount::new(8),
    }
}

fn drive(zones: u64) -> MemoryDrive {
    MemoryDrive::new(spec(zones)).unwrap()
}

fn range(first: u32, last: u32) -> ZoneRange {
    ZoneRange { first: ZoneId::new(first), last: Some(ZoneId::new(last)) }
}

fn conds(device: &dyn ZonedDevice) -> Vec<ZoneCond> {
    device.report_all().unwrap().iter().map(|zone| zone.cond).collect()
}

#[test]
fn slice_leaves_other_zones_as_they_are() {
    let below = Arc::new(drive(8));
    for zone in [1, 5] {
        below.append(ZoneId::new(zone), &[9; BLOCK]).unwrap();
    }
    let outside = |zones: &[zonal::Zone]| [&zones[..2], &zones[5..]].concat();
    let before = outside(&below.report_all().unwrap());
    let slice = Slice::new(Arc::clone(&below), range(2, 4)).unwrap();
    for action in [ZoneAction::Close, ZoneAction::Open, ZoneAction::Finish, ZoneAction::Reset] {
        slice.append(ZoneId::ZERO, &[1; BLOCK]).unwrap();
        slice.manage(Select::All, action).unwrap();
        assert_eq!(outside(&below.report_all().unwrap()), before, "{}", action.name());
        slice.manage(Select::All, ZoneAction::Reset).unwrap();
    }
    let end = Lba::new(3 * ZONE);
    let (mut two, last) = ([0; 2 * BLOCK], Lba::new(end.get() - 1));
    for outcome in [slice.read(last, &mut two), slice.read(end, &mut two), slice.write(last, &two)]
    {
        assert!(matches!(outcome, Err(DeviceError::OutOfRange { .. })), "{outcome:?}");
    }
    let beyond = slice.append(ZoneId::new(3), &[1; BLOCK]);
    assert!(matches!(beyond, Err(DeviceError::NoSuchZone { zone }) if zone.get() == 3));
    assert_eq!(outside(&below.report_all().unwrap()), before);
}

#[test]
fn slice_errors_have_numbers_of_slice() {
    let slice = Slice::new(drive(8), range(3, 5)).unwrap();
    let refused = slice.write(Lba::new(ZONE + 4), &[1; BLOCK]).unwrap_err().to_string();
    assert_eq!(refused, "write at 28, but zone 1 has its write pointer at 24");
    let mut batch =
        [Io::write(Lba::new(ZONE + 4), &[1; BLOCK]), Io::append(ZoneId::new(2), &[1; BLOCK])];
    slice.submit(&mut batch);
    let [write, append] = batch.map(Io::outcome);
    assert_eq!(write.unwrap_err().to_string(), refused);
    assert_eq!(append.unwrap(), Lba::new(2 * ZONE));
}

#[test]
fn slices_with_parts_of_limits_are_independent() {
    let below = Arc::new(drive(10));
    let limits = ZoneLimits { open: Some(2), active: Some(3) };
    let part = |first, last| {
        Limited::new(Slice::new(Arc::clone(&below), range(first, last)).unwrap(), limits).unwrap()
    };
    let (low, high) = (part(0, 4), part(5, 9));
    for zone in 0..3 {
        for slice in [&low, &high] {
            slice.append(ZoneId::new(zone), &[1; BLOCK]).unwrap();
        }
    }
    for slice in [&low, &high] {
        let refused = slice.append(ZoneId::new(3), &[1; BLOCK]).unwrap_err();
        assert!(matches!(refused, DeviceError::TooManyActive { limit: 3, .. }), "{refused}");
        let expected = [ZoneCond::Closed, ZoneCond::ImplicitOpen, ZoneCond::ImplicitOpen];
        assert_eq!(conds(slice)[..3], expected);
    }
    // A zone that was emptied by another way counts no more.
    below.manage(Select::One(ZoneId::new(1)), ZoneAction::Reset).unwrap();
    low.append(ZoneId::new(3), &[1; BLOCK]).unwrap();
}

#[test]
fn limits_above_those_of_drive_are_refused() {
    for limits in [
        ZoneLimits { open: Some(5), active: Some(6) },
        ZoneLimits { open: Some(4), active: None },
        ZoneLimits { open: Some(4), active: Some(3) },
    ] {
        let refused = Limited::new(drive(8), limits).err().unwrap();
        assert!(matches!(refused, DeviceError::Geometry { .. }), "{limits:?}: {refused}");
    }
}

#[test]
fn concat_limits_are_smallest_that_zones_can_reach() {
    let member = |zones, open, active| {
        let spec = GeometrySpec { max_open: open, max_active: active, ..spec(zones) };
        MemoryDrive::new(spec).unwrap()
    };
    let limits = |members| {
        let concat = Concat::new(members).unwrap();
        (concat.geometry().max_open(), concat.geometry().max_active())
    };
    let large = || member(20, Some(8), Some(12));
    assert_eq!(limits(vec![large(), member(20, Some(3), Some(14))]), (Some(3), Some(12)));
    // Two zones cannot reach a limit of two.
    assert_eq!(limits(vec![large(), member(2, Some(2), Some(2))]), (Some(8), Some(12)));
    assert_eq!(limits(vec![member(2, Some(2), None)]), (None, None));
    assert_eq!(
        limits(vec![member(20, Some(8), None), member(20, None, Some(5))]),
        (Some(5), Some(5))
    );
}

type Part = Meter<Fault<MemoryDrive>>;

/// Two members of four zones; the second one fails by these rules.
fn failing(rules: &str) -> (Concat<Part>, [Arc<Counters>; 2]) {
    let member = |rules: &str| {
        Meter::new(Fault::new(drive(4), rules.parse().unwrap()), Arc::new(ManualClock::new(0)))
    };
    let members = [member(""), member(rules)];
    let counters = [Arc::clone(members[0].counters()), Arc::clone(members[1].counters())];
    (Concat::new(members.into()).unwrap(), counters)
}

#[test]
fn concat_flush_reaches_members_behind_failed_one() {
    let spec = "concat(fault(flush,nth=1):mem:profile=small,meter:mem:profile=small)";
    let clock = Arc::new(ManualClock::new(0));
    let stack = zonal::spec::open_stack(spec, zonal::OpenMode::ReadWrite, clock).unwrap();
    stack.device.flush().unwrap_err();
    assert_eq!(stack.counters[0].of(OpKind::Flush).count, 1);
    stack.device.flush().unwrap();
    assert_eq!(stack.counters[0].of(OpKind::Flush).count, 2);
}

/// A drive whose flush waits for that of the other one.
struct Meeting {
    below: MemoryDrive,
    flushes: Arc<Barrier>,
}

impl ZonedDevice for Meeting {
    zonal::pass_on!(
        below: geometry, report, read, write, append, manage, deallocate, identity, submit
    );

    fn flush(&self) -> Result<(), DeviceError> {
        self.flushes.wait();
        self.below.flush()
    }
}

#[test]
fn concat_flush_reaches_members_at_same_time() {
    let flushes = Arc::new(Barrier::new(2));
    let member = || Meeting { below: drive(4), flushes: Arc::clone(&flushes) };
    Concat::new(vec![member(), member()]).unwrap().flush().unwrap();
}

#[test]
fn concat_batch_reaches_each_member_once_per_flush() {
    let (concat, counters) = failing("");
    let data = [3; BLOCK];
    let mut across = [0; 2 * BLOCK];
    let mut batch = [
        Io::append(ZoneId::new(1), &data),
        Io::append(ZoneId::new(6), &data),
        Io::flush(),
        Io::append(ZoneId::new(6), &data),
        Io::read(Lba::new(4 * ZONE - 1), &mut across),
    ];
    concat.submit(&mut batch);
    let places: Vec<u64> = batch.into_iter().map(|io| io.outcome().unwrap().get()).collect();
    assert_eq!(places, [ZONE, 6 * ZONE, 0, 6 * ZONE + 1, 4 * ZONE - 1]);
    let counts = |kind| [counters[0].of(kind).count, counters[1].of(kind).count];
    assert_eq!(counts(OpKind::Append), [1, 2]);
    assert_eq!((counts(OpKind::Flush), counts(OpKind::Read)), ([1, 1], [1, 1]));
}

/// D4 for each member: the other one has all that it was given.
#[test]
fn power_cut_of_member_leaves_others_whole() {
    let (concat, _) = failing("append,nth=3,power-cut");
    let (first, second) = (ZoneId::new(1), ZoneId::new(5));
    for round in 0..2_u8 {
        for zone in [first, second] {
            concat.append(zone, &[round; BLOCK]).unwrap();
        }
    }
    concat.append(first, &[2; BLOCK]).unwrap();
    let cut = concat.append(second, &[2; BLOCK]).unwrap_err();
    assert!(matches!(cut, DeviceError::PowerCut), "{cut}");
    assert!(concat.flush().is_err());
    concat.append(first, &[3; BLOCK]).unwrap();
    let mut found = [9; 4 * BLOCK];
    concat.read(concat.geometry().zone_start(first), &mut found).unwrap();
    let expected: Vec<u8> = (0..4_u8).flat_map(|round| [round; BLOCK]).collect();
    assert_eq!(found[..], expected);
    concat.read(concat.geometry().zone_start(second), &mut found).unwrap_err();
}

#[test]
fn concat_errors_have_numbers_of_concat() {
    let (concat, _) = failing("write,zone=2,medium");
    let at = |zone: u64| Lba::new(zone * ZONE);
    let error = |outcome: Result<(), DeviceError>| outcome.unwrap_err().to_string();
    assert_eq!(error(concat.write(at(6), &[1; BLOCK])), "medium error at block 144");
    let skewed = concat.write(at(7) + LbaCount::new(1), &[1; BLOCK]);
    assert_eq!(error(skewed), "write at 169, but zone 7 has its write pointer at 168");
    // From the last zone of the first member into the second.
    let crossing = concat.write(at(3), &[1; 30 * BLOCK]);
    assert!(matches!(crossing, Err(DeviceError::CrossesZone { zone, .. }) if zone.get() == 3));
}
