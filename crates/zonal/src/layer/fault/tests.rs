//! Each kind of fault, on a drive in memory.

use super::*;
use crate::{BlockSize, GeometrySpec, MemoryDrive, ZoneKind, ZoneRuns};

const BLOCK: usize = 4096;

fn drive(plan: &str) -> Fault<MemoryDrive> {
    let below = MemoryDrive::new(GeometrySpec {
        block_size: BlockSize::B4096,
        block_count: LbaCount::new(70),
        zone_size: LbaCount::new(10),
        zone_capacity: LbaCount::new(9),
        conventional_zones: ZoneRuns::leading(1),
        sequential_kind: ZoneKind::SequentialRequired,
        max_open: None,
        max_active: None,
        max_append: LbaCount::new(8),
    });
    Fault::new(below.unwrap(), plan.parse().unwrap())
}

const ZONE: ZoneId = ZoneId::new(2);

#[test]
fn fault_torn_append_stores_some_blocks_and_fails() {
    let mut seen = std::collections::BTreeSet::new();
    for seed in 0..40 {
        let drive = drive(&format!("append,nth=1,torn;seed={seed}"));
        drive.append(ZONE, &[1; 4 * BLOCK]).unwrap_err();
        seen.insert(drive.zone(ZONE).unwrap().written().unwrap().get());
        assert_eq!(drive.fired(), 1);
    }
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), [0, 1, 2, 3]);
}

#[test]
fn fault_late_write_is_done_and_fails() {
    let drive = drive("write,nth=1,late");
    assert!(matches!(drive.append(ZONE, &[1; BLOCK]), Err(DeviceError::Medium { .. })));
    assert_eq!(drive.zone(ZONE).unwrap().written(), Some(LbaCount::new(1)));
}

#[test]
fn fault_flip_keeps_bad_bit_in_place() {
    let drive = drive("read,zone=2,flip");
    drive.append(ZONE, &[7; BLOCK]).unwrap();
    let (mut first, mut second) = ([0; BLOCK], [0; BLOCK]);
    drive.read(Lba::new(20), &mut first).unwrap();
    drive.read(Lba::new(20), &mut second).unwrap();
    assert_eq!(first, second);
    let changed: u32 = first.iter().map(|byte| (byte ^ 7).count_ones()).sum();
    assert_eq!(changed, 1);
    drive.read(Lba::new(30), &mut first).unwrap();
    assert_eq!(first, [0; BLOCK], "other zones are well");
}

#[test]
fn zone_failure_is_permanent() {
    let readonly = drive("write,zone=2,nth=2,readonly");
    readonly.append(ZONE, &[7; BLOCK]).unwrap();
    for _ in 0..2 {
        let error = readonly.append(ZONE, &[7; BLOCK]).unwrap_err();
        assert!(matches!(error, DeviceError::ZoneReadOnly { .. }));
    }
    let error = readonly.manage(Select::One(ZONE), ZoneAction::Reset).unwrap_err();
    assert!(matches!(error, DeviceError::ZoneReadOnly { .. }));
    let mut block = [0; BLOCK];
    readonly.read(Lba::new(20), &mut block).unwrap();
    assert_eq!(block, [7; BLOCK]);
    let zone = readonly.zone(ZONE).unwrap();
    assert_eq!((zone.cond, zone.wp), (ZoneCond::ReadOnly, None));

    let offline = drive("read,zone=2,nth=1,offline");
    offline.append(ZONE, &[7; BLOCK]).unwrap();
    for _ in 0..2 {
        let error = offline.read(Lba::new(20), &mut block).unwrap_err();
        assert!(matches!(error, DeviceError::ZoneOffline { .. }));
    }
    assert!(offline.read(Lba::new(18), &mut [0; 4 * BLOCK]).is_err(), "a read that reaches it");
    assert_eq!(offline.zone(ZONE).unwrap().cond, ZoneCond::Offline);
    assert!(offline.append(ZONE, &[7; BLOCK]).is_err());
}

#[test]
fn power_cut_stops_everything() {
    let drive = drive("append,nth=2,power-cut;seed=1");
    drive.append(ZONE, &[1; BLOCK]).unwrap();
    drive.flush().unwrap();
    assert!(matches!(drive.append(ZONE, &[2; 3 * BLOCK]), Err(DeviceError::PowerCut)));
    assert!(matches!(drive.read(Lba::ZERO, &mut [0; BLOCK]), Err(DeviceError::PowerCut)));
    assert!(matches!(drive.flush(), Err(DeviceError::PowerCut)));
    assert!(matches!(drive.report_all(), Err(DeviceError::PowerCut)));
    let zone = drive.below().zone(ZONE).unwrap();
    assert!((1..=4).contains(&zone.written().unwrap().get()), "{zone:?}");
    assert_eq!(zone.cond, ZoneCond::Closed);
}

#[test]
fn rules_count_and_select() {
    let drive = drive("flush,from=3,times=2;any,zone=5,p=0.5,active-limit;seed=3");
    let flushes: Vec<bool> = (0..6).map(|_| drive.flush().is_ok()).collect();
    assert_eq!(flushes, [true, true, false, false, true, true]);
    let reads = (0..1000).filter(|_| drive.read(Lba::new(50), &mut [0; BLOCK]).is_err()).count();
    assert!((400..600).contains(&reads), "about half: {reads}");
    drive.disarm();
    drive.read(Lba::new(50), &mut [0; BLOCK]).unwrap();
    assert!(drive.read(Lba::new(700), &mut [0; BLOCK]).is_err());
    assert!(drive.append(ZoneId::new(99), &[0; BLOCK]).is_err());
}
