//! Every cell of the error table: four policies, three conditions of the zone, every way to fail.
//!
//! The table is the one in the kernel's documentation, with the sizes that Linux 7.3 leaves:
//! `Documentation/filesystems/zonefs.rst`, "IO error handling".

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use zonal::layer::fault::Fault;
use zonal::{DeviceError, Lba, LbaCount, ManualClock, Zone, ZoneCond, ZoneId, ZonedDevice};
use zonal_fs::vfs::{Access, FileSystem, OpenFor, SyncKind};
use zonal_fs::zonefs::{ErrorPolicy, MountOptions, ZoneFs};

use super::{
    APPEND, BLOCK, BLOCK_LEN, DIRECT, ZONE as ZONE_BYTES, drive, errno, format, mount, seq,
    truncate,
};

const ZONE: ZoneId = ZoneId::new(2);

/// The condition of the zone after the failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    Good,
    ReadOnly,
    Offline,
}

/// The size afterwards of a file that had two blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Size {
    /// It stays.
    Kept,
    /// The bytes that the zone holds, but no more than before.
    Least,
    /// The bytes that the zone holds.
    Pointer,
    /// Nothing.
    None,
}

/// One row: the size, and whether file and device can be read and written after it.
type Row = (ErrorPolicy, Found, Size, [bool; 4]);

const TABLE: [Row; 12] = [
    (ErrorPolicy::RemountRo, Found::Good, Size::Least, [true, false, true, true]),
    (ErrorPolicy::RemountRo, Found::ReadOnly, Size::Kept, [true, false, true, false]),
    (ErrorPolicy::RemountRo, Found::Offline, Size::None, [false, false, false, false]),
    (ErrorPolicy::ZoneRo, Found::Good, Size::Kept, [true, false, true, true]),
    (ErrorPolicy::ZoneRo, Found::ReadOnly, Size::Kept, [true, false, true, false]),
    (ErrorPolicy::ZoneRo, Found::Offline, Size::None, [false, false, false, false]),
    (ErrorPolicy::ZoneOffline, Found::Good, Size::None, [false, false, true, true]),
    (ErrorPolicy::ZoneOffline, Found::ReadOnly, Size::None, [false, false, true, false]),
    (ErrorPolicy::ZoneOffline, Found::Offline, Size::None, [false, false, false, false]),
    (ErrorPolicy::Repair, Found::Good, Size::Pointer, [true, true, true, true]),
    (ErrorPolicy::Repair, Found::ReadOnly, Size::Kept, [true, false, true, false]),
    (ErrorPolicy::Repair, Found::Offline, Size::None, [false, false, false, false]),
];

/// Ways to fail a write of three blocks after one of two.
const GOOD_WRITES: [&str; 3] = ["medium", "torn", "late"];

struct Setup {
    device: Arc<dyn ZonedDevice>,
    fs: ZoneFs,
}

/// A file of two blocks on a device that fails as `fault` says.
fn setup(errors: ErrorPolicy, fault: &str) -> Setup {
    let below = drive("zone=3M,zones=6");
    format(&*below, &zonal_fs::zonefs::MkfsOptions::default());
    let plan = format!("{fault};seed=3").parse().expect("a fault plan");
    let device: Arc<dyn ZonedDevice> = Arc::new(Fault::new(below, plan));
    let fs = mount(&device, MountOptions { errors, ..MountOptions::default() });
    fs.write(seq(&fs, 1), 0, &[7; 2 * BLOCK_LEN], DIRECT).expect("two blocks");
    Setup { device, fs }
}

impl Setup {
    /// Compares everything with a row of the table.
    fn check(&self, row: Row, case: &str) {
        let (errors, _, size, [file_read, file_write, device_read, device_write]) = row;
        let file = seq(&self.fs, 1);
        let zone = self.device.zone(ZONE).expect("reported");
        let pointer = zone.written().map_or(2, LbaCount::get) * BLOCK;
        let expected = match size {
            Size::Kept => 2 * BLOCK,
            Size::Least => pointer.min(2 * BLOCK),
            Size::Pointer => pointer,
            Size::None => 0,
        };
        let attr = self.fs.getattr(file).expect("it is there");
        let perm = match (file_read, file_write || errors == ErrorPolicy::RemountRo) {
            (true, true) if zone.written().is_some() => 0o640,
            (true, _) => 0o440,
            (false, _) => 0,
        };
        assert_eq!((attr.size, attr.perm), (expected, perm), "{case}");
        let read_only = errors == ErrorPolicy::RemountRo;
        assert_eq!(self.fs.access() == Access::ReadOnly, read_only, "{case}");

        let mut buffer = [0; BLOCK_LEN];
        let read = self.fs.read(file, 0, &mut buffer).map_err(|error| error.errno());
        assert_eq!(read, if file_read { Ok(BLOCK_LEN) } else { Err(1) }, "{case}");
        let denied = if perm == 0o640 { 30 } else { 1 };
        let block = [9; BLOCK_LEN];
        let written = self.fs.write(file, attr.size, &block, DIRECT).map_err(|error| error.errno());
        assert_eq!(written.map(|_| ()), if file_write { Ok(()) } else { Err(denied) }, "{case}");
        if !file_write {
            assert_eq!(errno(self.fs.open(file, OpenFor::Writing)), denied, "{case}");
            let denied = if read_only { 30 } else { 1 };
            assert_eq!(truncate(&self.fs, file, 0), Err(denied), "{case}");
        }
        // Other files feel it only where all become read-only.
        let other = self.fs.write(seq(&self.fs, 3), 0, &block, DIRECT).map_err(|e| e.errno());
        assert_eq!(other.map(|_| ()), if read_only { Err(30) } else { Ok(()) }, "{case}");

        let start = self.device.geometry().zone_start(ZONE);
        assert_eq!(self.device.read(start, &mut buffer).is_ok(), device_read, "{case}");
        assert_eq!(self.device.append(ZONE, &block).is_ok(), device_write, "{case}");
    }
}

#[test]
fn write_failure_follows_error_table() {
    for row in TABLE {
        let kinds = match row.1 {
            Found::Good => &GOOD_WRITES[..],
            Found::ReadOnly => &["readonly"],
            Found::Offline => &["offline"],
        };
        for kind in kinds {
            for (flags, offset) in [(DIRECT, 2 * BLOCK), (APPEND, 0)] {
                let case = format!("{:?} {:?} {kind} {flags:?}", row.0, row.1);
                let setup = setup(row.0, &format!("write,zone=2,nth=2,{kind}"));
                let file = seq(&setup.fs, 1);
                assert_eq!(
                    errno(setup.fs.write(file, offset, &[8; 3 * BLOCK_LEN], flags)),
                    5,
                    "{case}"
                );
                setup.check(row, &case);
            }
        }
    }
}

#[test]
fn read_failure_follows_error_table() {
    for row in TABLE {
        // A zone that can only be read does not fail to be read.
        if row.1 == Found::ReadOnly {
            continue;
        }
        let kind = if row.1 == Found::Good { "medium" } else { "offline" };
        let case = format!("{:?} {:?} read", row.0, row.1);
        let setup = setup(row.0, &format!("read,zone=2,nth=1,{kind}"));
        let file = seq(&setup.fs, 1);
        assert_eq!(errno(setup.fs.read(file, 0, &mut [0; BLOCK_LEN])), 5, "{case}");
        if row.1 == Found::Good {
            // With the size as it should be, the zone is taken to be well.
            assert_eq!(
                setup.fs.getattr(file).map(|attr| (attr.size, attr.perm)).ok(),
                Some((2 * BLOCK, 0o640))
            );
            assert_eq!(setup.fs.access(), Access::ReadWrite);
            assert_eq!(setup.fs.read(file, 0, &mut [0; BLOCK_LEN]).ok(), Some(BLOCK_LEN));
        } else {
            setup.check(row, &case);
        }
    }
}

#[test]
fn active_limit_error_follows_error_table() {
    for row in TABLE.into_iter().filter(|row| row.1 == Found::Good) {
        let setup = setup(row.0, "write,zone=2,nth=2,active-limit");
        let file = seq(&setup.fs, 1);
        assert_eq!(errno(setup.fs.write(file, 2 * BLOCK, &[8; BLOCK_LEN], DIRECT)), 75);
        setup.check(row, &format!("{:?} active limit", row.0));
    }
}

#[test]
fn conventional_files_fail_without_consequence() {
    for errors in TABLE.map(|row| row.0) {
        let below = drive("zone=3M,zones=6,conventional=3");
        format(&*below, &zonal_fs::zonefs::MkfsOptions::default());
        let plan = "write,zone=1,nth=1;read,zone=1,nth=1".parse().expect("a fault plan");
        let device: Arc<dyn ZonedDevice> = Arc::new(Fault::new(below, plan));
        let fs = mount(&device, MountOptions { errors, ..MountOptions::default() });
        let file = fs.file(zonal_fs::zonefs::Group::Conventional, 0).expect("it is there");
        let before = fs.getattr(file).expect("it is there");
        let block = [1; BLOCK_LEN];
        assert_eq!(errno(fs.write(file, 0, &block, DIRECT)), 5);
        assert_eq!(errno(fs.read(file, 0, &mut [0; BLOCK_LEN])), 5);
        assert_eq!(fs.getattr(file).expect("it is there"), before);
        assert_eq!(fs.access(), Access::ReadWrite);
        assert!(fs.write(file, 0, &block, DIRECT).is_ok());
    }
}

/// Two zones can be open, and `plan` fails calls of the device.
fn with_explicit_open(plan: &str) -> (Arc<dyn ZonedDevice>, Arc<ManualClock>, ZoneFs) {
    let below = drive("zone=3M,zones=6,open=2,active=2");
    format(&*below, &zonal_fs::zonefs::MkfsOptions::default());
    let plan = plan.parse().expect("a fault plan");
    let device: Arc<dyn ZonedDevice> = Arc::new(Fault::new(below, plan));
    let clock = Arc::new(ManualClock::new(5));
    let open = zonal_fs::zonefs::OpenPolicy::Explicit;
    let options = MountOptions { open, ..MountOptions::default() };
    let fs = ZoneFs::mount(Arc::clone(&device), clock.clone(), options).expect("mounted");
    (device, clock, fs)
}

#[test]
fn zone_that_fails_close_is_closed_later() {
    let (device, clock, fs) = with_explicit_open("close,zone=2,times=5");
    let cond = || device.zone(ZONE).expect("reported").cond;
    let [file, other, third] = [1, 2, 3].map(|number| seq(&fs, number));
    fs.open(file, OpenFor::Writing).expect("opened");
    fs.write(file, 0, &[1; BLOCK_LEN], DIRECT).expect("written");
    fs.close(file, OpenFor::Writing);
    assert_eq!((cond(), fs.access()), (ZoneCond::ExplicitOpen, Access::ReadWrite));
    // At once, and after pauses of 1, 2 and 4 seconds.
    let second = 1_000_000_000;
    for (after_ns, is_closed) in
        [(0, false), (second, false), (second, false), (second, false), (4 * second, false)]
    {
        clock.advance_ns(after_ns);
        fs.tick().expect("a failed close is no failure of the tick");
        assert_eq!(cond() == ZoneCond::Closed, is_closed);
    }
    clock.advance_ns(7 * second);
    fs.tick().expect("still in the pause");
    assert_eq!(cond(), ZoneCond::ExplicitOpen);
    // An open that finds no other room does not wait.
    fs.open(other, OpenFor::Writing).expect("one more can be open");
    fs.write(other, 0, &[1; BLOCK_LEN], DIRECT).expect("written");
    fs.close(other, OpenFor::Writing);
    assert_eq!(truncate(&fs, other, ZONE_BYTES), Ok(ZONE_BYTES));
    fs.open(third, OpenFor::Writing).expect("the second one");
    assert_eq!(truncate(&fs, other, 0), Ok(0));
    let refused = fs.open(other, OpenFor::Writing);
    assert_eq!(errno(refused), 75, "the zone counts as active, open or closed");
    assert_eq!(cond(), ZoneCond::Closed);
    assert_eq!((fs.access(), fs.stats().nr_active_seq_files), (Access::ReadWrite, 2));
}

#[test]
fn truncate_whose_zone_cannot_be_opened_empties_file() {
    let (_device, _clock, fs) = with_explicit_open("open,zone=2,nth=2");
    let file = seq(&fs, 1);
    let block = [1; BLOCK_LEN];
    fs.open(file, OpenFor::Writing).expect("opened");
    fs.write(file, 0, &block, DIRECT).expect("written");
    assert_eq!(truncate(&fs, file, 0), Err(5), "as in Linux");
    assert_eq!(fs.getattr(file).expect("it is there").size, 0);
    assert_eq!(fs.read(file, 0, &mut [0; BLOCK_LEN]).ok(), Some(0), "no zeroes as data");
    assert_eq!(fs.write(file, 0, &block, DIRECT).map(|written| written.len).ok(), Some(BLOCK));
    fs.close(file, OpenFor::Writing);
    assert_eq!((fs.access(), fs.stats().nr_wro_seq_files), (Access::ReadWrite, 0));
}

#[test]
fn truncate_that_fails_late_leaves_size_of_zone() {
    for (fault, size) in [("reset,zone=2,nth=1,late", 0), ("finish,zone=2,nth=1,late", ZONE_BYTES)]
    {
        let setup = setup(ErrorPolicy::RemountRo, fault);
        let file = seq(&setup.fs, 1);
        assert_eq!(truncate(&setup.fs, file, size), Err(5), "{fault}");
        assert_eq!(setup.fs.getattr(file).expect("it is there").size, size, "{fault}");
        assert_eq!(truncate(&setup.fs, file, 0), Ok(0), "{fault}");
        assert!(setup.fs.write(file, 0, &[1; BLOCK_LEN], DIRECT).is_ok(), "{fault}");
    }
}

/// A device that reports no zone for a while.
struct Silent {
    below: Arc<dyn ZonedDevice>,
    reports_nothing: AtomicBool,
}

impl ZonedDevice for Silent {
    zonal::pass_on!(below: geometry, read, write, append, manage, flush);

    fn report(
        &self,
        first: ZoneId,
        zones: &mut Vec<Zone>,
        limit: usize,
    ) -> zonal::error::Result<()> {
        if self.reports_nothing.load(Ordering::Relaxed) {
            return Err(DeviceError::Medium { lba: Lba::ZERO });
        }
        self.below.report(first, zones, limit)
    }
}

#[test]
fn file_waits_for_report_that_device_refuses() {
    let good = TABLE.into_iter().filter(|row| row.1 == Found::Good);
    for (row, failed) in good.flat_map(|row| [(row, "write"), (row, "read")]) {
        let how = if failed == "write" { "write,zone=2,nth=2,torn" } else { "read,zone=2,nth=1" };
        let Setup { device, .. } = setup(row.0, how);
        let silent = Arc::new(Silent { below: device, reports_nothing: AtomicBool::new(false) });
        let device: Arc<dyn ZonedDevice> = Arc::clone(&silent) as _;
        let fs = mount(&device, MountOptions { errors: row.0, ..MountOptions::default() });
        let (file, other) = (seq(&fs, 1), seq(&fs, 3));
        let case = format!("{:?} {failed}", row.0);
        let (mut buffer, block) = ([0; BLOCK_LEN], [8; BLOCK_LEN]);
        silent.reports_nothing.store(true, Ordering::Relaxed);
        if failed == "write" {
            let written = fs.write(file, 2 * BLOCK, &[8; 3 * BLOCK_LEN], DIRECT);
            assert_eq!(errno(written), 5, "{case}");
        } else {
            assert_eq!(errno(fs.read(file, 0, &mut buffer)), 5, "{case}");
        }
        // Only the file waits, and nothing is made of its zone meanwhile.
        assert_eq!(errno(fs.read(file, 0, &mut buffer)), 5, "{case}");
        let all_read_only = row.0 == ErrorPolicy::RemountRo && failed == "write";
        assert_eq!(fs.access() == Access::ReadOnly, all_read_only, "{case}");
        if !all_read_only {
            assert_eq!(errno(fs.write(file, 2 * BLOCK, &block, DIRECT)), 5, "{case}");
            assert_eq!(errno(fs.write(file, 0, &block, APPEND)), 5, "{case}");
            assert_eq!(errno(fs.open(file, OpenFor::Writing)), 5, "{case}");
            assert_eq!(truncate(&fs, file, 0), Err(5), "{case}");
            assert!(fs.write(other, 0, &block, DIRECT).is_ok(), "{case}");
        }
        silent.reports_nothing.store(false, Ordering::Relaxed);
        if failed == "write" {
            let setup = Setup { device, fs };
            let read = setup.fs.read(file, 0, &mut buffer).map_err(|error| error.errno());
            assert_eq!(read, if row.3[0] { Ok(BLOCK_LEN) } else { Err(1) }, "{case}");
            if !all_read_only {
                assert_eq!(truncate(&setup.fs, other, 0), Ok(0), "{case}");
            }
            setup.check(row, &case);
        } else {
            assert_eq!(fs.read(file, 0, &mut buffer).ok(), Some(BLOCK_LEN), "{case}");
            assert!(fs.write(file, 0, &block, APPEND).is_ok(), "{case}");
        }
    }
}

#[test]
fn shutdown_after_failure_flushes_data_of_other_zones() {
    let failed_write = "write,zone=2,nth=2,medium";
    for (flush_fails, plan) in [(false, ""), (true, ";flush")] {
        let setup = setup(ErrorPolicy::RemountRo, &format!("{failed_write}{plan}"));
        let written = setup.fs.write(seq(&setup.fs, 1), 2 * BLOCK, &[8; BLOCK_LEN], DIRECT);
        assert_eq!((errno(written), setup.fs.access()), (5, Access::ReadOnly));
        assert_eq!(setup.fs.shutdown().is_err(), flush_fails, "flush fails: {flush_fails}");
    }
}

#[test]
fn write_that_disk_refuses_late_shows_at_fsync() {
    let below = drive("zone=3M,zones=6");
    format(&*below, &zonal_fs::zonefs::MkfsOptions::default());
    let plan = "write,zone=2,nth=2".parse().expect("a fault plan");
    let device: Arc<dyn ZonedDevice> = Arc::new(Fault::new(below, plan));
    let errors = ErrorPolicy::Repair;
    let options = MountOptions { errors, rotational: Some(true), ..MountOptions::default() };
    let fs = mount(&device, options);
    let [file, other] = [1, 2].map(|number| seq(&fs, number));
    for file in [file, other] {
        // The drive has a limit of active zones, so the first write of a zone goes to it.
        fs.write(file, 0, &[7; BLOCK_LEN], DIRECT).expect("written");
        fs.write(file, BLOCK, &[7; BLOCK_LEN], DIRECT).expect("in memory");
        assert_eq!(fs.getattr(file).expect("it is there").size, 2 * BLOCK);
    }
    assert_eq!(errno(fs.fsync(other, SyncKind::Full)), 5);
    assert_eq!(fs.getattr(file).expect("it is there").size, BLOCK, "what the drive has");
    assert_eq!(fs.getattr(other).expect("it is there").size, 2 * BLOCK);
    fs.write(file, BLOCK, &[8; BLOCK_LEN], DIRECT).expect("from the true write pointer");
    fs.fsync(file, SyncKind::Full).expect("the error is reported once");
    assert_eq!(device.zone(ZONE).expect("reported").written().map(LbaCount::get), Some(2));
}

#[test]
fn writes_to_disk_leave_memory_after_seconds() {
    let device = drive("zone=3M,zones=6");
    format(&*device, &zonal_fs::zonefs::MkfsOptions::default());
    let clock = Arc::new(ManualClock::new(5));
    let options = MountOptions { rotational: Some(true), ..MountOptions::default() };
    let fs = ZoneFs::mount(Arc::clone(&device), clock.clone(), options).expect("mounted");
    fs.write(seq(&fs, 1), 0, &[7; BLOCK_LEN], DIRECT).expect("written");
    fs.write(seq(&fs, 1), BLOCK, &[7; BLOCK_LEN], DIRECT).expect("in memory");
    let on_drive = || device.zone(ZONE).expect("reported").written().map(LbaCount::get);
    fs.tick().expect("too early");
    assert_eq!(on_drive(), Some(1));
    clock.advance_ns(5_000_000_000);
    fs.tick().expect("now");
    assert_eq!(on_drive(), Some(2));
}
