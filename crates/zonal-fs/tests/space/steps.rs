//! Background work: which steps are left to it, how workers are woken, and writers that take the
//! steps when space is short.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use zonal::{MemoryDrive, ZoneCond, ZoneFailure, ZonedDevice};
use zonal_fs::furrow::{Furrow, StepProgress, Work};
use zonal_fs::vfs::{Caller, FileSystem, Ino, SetAttr, WriteFlags};

use super::gate::Gate;
use super::{BLOCK, create, fill, format, mount, shape};

/// Does all of some work, and returns the number of steps.
pub(crate) fn finish(fs: &Furrow, work: Work) -> u64 {
    let mut steps = 1;
    while fs.step(work).unwrap() == StepProgress::More {
        steps += 1;
    }
    steps
}

fn empty(fs: &Furrow, ino: Ino) {
    let set = SetAttr { size: Some(0), ..SetAttr::default() };
    fs.setattr(&Caller::ROOT, ino, &set).unwrap();
}

#[test]
fn sync_leaves_resets_to_background() {
    let gate = Gate::new(shape(48, 64));
    let fs = format(gate.clone());
    let woken = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&woken);
    fs.on_work(Arc::new(move || {
        count.fetch_add(1, Ordering::AcqRel);
    }));
    let file = create(&fs, "file");
    let before = fs.stats().zones_free;
    fill(&fs, file, 8 * 64);
    fs.sync().unwrap();
    assert_eq!((gate.resets(), woken.load(Ordering::Acquire)), (0, 0), "nothing to be reset");
    empty(&fs, file);
    fs.sync().unwrap();
    assert_eq!(gate.resets(), 0, "the sync has reset nothing");
    assert_eq!(woken.load(Ordering::Acquire), 1, "the worker is told");
    assert_eq!(fs.stats().zones_free, before - 8, "they are not free yet");
    assert_eq!(finish(&fs, Work::Reset), 8, "a zone a step");
    assert_eq!(gate.resets(), 8);
    assert_eq!(fs.stats().zones_free, before, "they are free again");
}

#[test]
fn worker_is_woken_once_until_it_comes() {
    let fs = format(Arc::new(MemoryDrive::new(shape(48, 64)).unwrap()));
    let woken = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&woken);
    fs.on_work(Arc::new(move || {
        count.fetch_add(1, Ordering::AcqRel);
    }));
    let file = create(&fs, "file");
    for (round, expected) in [1, 1, 2].into_iter().enumerate() {
        fill(&fs, file, 4 * 64);
        empty(&fs, file);
        fs.sync().unwrap();
        assert_eq!(woken.load(Ordering::Acquire), expected, "round {round}");
        if round == 1 {
            fs.tick().unwrap();
        }
    }
}

#[test]
fn zone_become_read_only_is_emptied_in_background() {
    let drive = Arc::new(MemoryDrive::new(shape(64, 64)).unwrap());
    let fs = format(drive.clone());
    let file = create(&fs, "file");
    fill(&fs, file, 5 * 64);
    fs.sync().unwrap();
    assert_eq!(finish(&fs, Work::Reclaim), 1, "nothing to be moved");
    drop(fs);
    let data: Vec<_> = drive
        .report_all()
        .unwrap()
        .into_iter()
        .filter(|zone| zone.cond == ZoneCond::Full)
        .map(|zone| zone.id)
        .collect();
    let failed = data[1];
    drive.fail_zone(failed, ZoneFailure::ReadOnly).unwrap();
    let fs = mount(drive.clone());
    let free = fs.statfs().unwrap().blocks_free;
    let steps = finish(&fs, Work::Reclaim);
    assert!(steps >= 2, "a zone of 64 blocks and a look: {steps} steps");
    assert_eq!(fs.stats().reclaim_bytes, 64 * 4096, "what was in it and no more");
    let taken = free - fs.statfs().unwrap().blocks_free;
    // Less the part that metadata and the reserve take of them, in whole zones.
    assert!(taken <= 64, "it takes space elsewhere now: {taken}");
    fs.sync().unwrap();
    // The next failure takes nothing away.
    drop(fs);
    drive.fail_zone(failed, ZoneFailure::Offline).unwrap();
    let fs = mount(drive.clone());
    assert!(fs.losses().is_empty(), "{:?}", fs.losses());
    let mut found = vec![0; 5 * 64 * 4096];
    fs.read(file, 0, &mut found).unwrap();
    assert!(found.iter().all(|byte| *byte == 1));
    assert_eq!(finish(&fs, Work::Reclaim), 1, "nothing to be moved");
}

#[test]
fn zone_refusing_write_is_emptied_while_writes_go_on() {
    let drive = Arc::new(MemoryDrive::new(shape(64, 64)).unwrap());
    let fs = format(drive.clone());
    let file = create(&fs, "file");
    fill(&fs, file, 64 + 32);
    fs.sync().unwrap();
    let is_open = |zone: &zonal::Zone| {
        zone.cond == ZoneCond::ImplicitOpen && zone.written().is_some_and(|w| w.get() == 32)
    };
    let open = drive.report_all().unwrap().into_iter().find(is_open).unwrap().id;
    drive.fail_zone(open, ZoneFailure::ReadOnly).unwrap();
    fs.write(file, (64 + 32) * BLOCK, &vec![1; 64 << 12], WriteFlags::DIRECT).unwrap();
    assert_eq!(fs.stats().zones_failed, 1);
    finish(&fs, Work::Reclaim);
    fs.sync().unwrap();
    assert_eq!(fs.stats().reclaim_bytes, 32 * 4096);
    drive.fail_zone(open, ZoneFailure::Offline).unwrap();
    let mut found = vec![0; (64 + 32) * 4096];
    fs.read(file, 0, &mut found).unwrap();
    assert!(found.iter().all(|byte| *byte == 1));
}

#[test]
fn write_short_of_room_resets_zones_itself() {
    let gate = Gate::new(shape(32, 64));
    let fs = format(gate.clone());
    let file = create(&fs, "file");
    let blocks = fs.statfs().unwrap().blocks_free;
    for round in 0..4 {
        fill(&fs, file, blocks);
        let before = gate.resets();
        empty(&fs, file);
        fs.sync().unwrap();
        assert_eq!(gate.resets(), before, "round {round}: the sync has reset nothing");
    }
}
