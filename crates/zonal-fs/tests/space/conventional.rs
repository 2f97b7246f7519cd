//! Conventional zones: the device is told when nothing in one of them is needed any more.

use std::sync::Arc;

use zonal::layer::fault::{Fault, FaultPlan};
use zonal::layer::meter::{Meter, OpKind};
use zonal::{GeometrySpec, ManualClock, MemoryDrive, ZoneRuns};
use zonal_fs::furrow::Work;
use zonal_fs::vfs::{FileSystem, Ino, WriteFlags};

use super::steps::finish;
use super::{assert_clean, create, fill, format, shape};

type Drive = Meter<Fault<MemoryDrive>>;

/// Three of 24 zones are conventional.
fn drive(plan: &str) -> Arc<Drive> {
    let spec = GeometrySpec { conventional_zones: ZoneRuns::leading(3), ..shape(24, 256) };
    let plan: FaultPlan = plan.parse().unwrap();
    let fault = Fault::new(MemoryDrive::new(spec).unwrap(), plan);
    Arc::new(Meter::new(fault, Arc::new(ManualClock::new(0))))
}

/// Fills the conventional zones, and more, and removes the file.
fn fill_and_empty(drive: &Arc<Drive>) {
    let fs = format(drive.clone());
    let file = create(&fs, "file");
    fill(&fs, file, 4 * 256);
    fs.sync().unwrap();
    assert_eq!(drive.counters().of(OpKind::Deallocate).count, 0, "all of it is needed");
    fs.unlink(Ino::ROOT, b"file").unwrap();
    fs.sync().unwrap();
    finish(&fs, Work::Truncate);
    fs.sync().unwrap();
    finish(&fs, Work::Reset);
    let kept = create(&fs, "kept");
    fs.write(kept, 0, &[5; 8192], WriteFlags::empty()).unwrap();
    fs.shutdown().unwrap();
    drop(fs);
    assert_clean(drive.clone());
}

#[test]
fn conventional_zone_that_is_empty_is_deallocated() {
    let drive = drive("");
    fill_and_empty(&drive);
    let told = drive.counters().of(OpKind::Deallocate);
    assert!(told.count >= 1 && told.errors == 0, "{} times", told.count);
}

/// It is a hint: a device that cannot do it costs nothing.
#[test]
fn deallocation_failure_changes_nothing() {
    let drive = drive("deallocate,medium");
    fill_and_empty(&drive);
    assert!(drive.counters().of(OpKind::Deallocate).errors >= 1);
}
