//! Every cell of the error table: four policies, three conditions of the zone, every way to fail.
//!
//! The table is that of the kernel's documentation, with the sizes that Linux 7.3 was seen to leave:
//! `Documentation/filesystems/zonefs.rst`, "IO error handling".

use std::sync::Arc;

use zonal::layer::fault::Fault;
use zonal::{LbaCount, ZoneId, ZonedDevice};
use zonal_fs::vfs::{Access, FileSystem, OpenFor};
use zonal_fs::zonefs::{ErrorPolicy, MountOptions, ZoneFs};

use super::{APPEND, BLOCK, BLOCK_LEN, DIRECT, drive, errno, format, mount, seq, truncate};

const ZONE: ZoneId = ZoneId::new(2);

/// What the zone is when it has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    Good,
    ReadOnly,
    Offline,
}

/// What becomes of the size of a file that had two blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Size {
    /// It stays.
    Kept,
    /// What the zone holds, but no more than before.
    Least,
    /// What the zone holds.
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

#[test]
fn zone_that_fails_close_makes_all_read_only() {
    let below = drive("zone=3M,zones=6,open=2,active=2");
    format(&*below, &zonal_fs::zonefs::MkfsOptions::default());
    let plan = "close,zone=2".parse().expect("a fault plan");
    let device: Arc<dyn ZonedDevice> = Arc::new(Fault::new(below, plan));
    let open = zonal_fs::zonefs::OpenPolicy::Explicit;
    let errors = ErrorPolicy::Repair;
    let fs = mount(&device, MountOptions { errors, open, ..MountOptions::default() });
    let file = seq(&fs, 1);
    fs.open(file, OpenFor::Writing).expect("opened");
    fs.write(file, 0, &[1; BLOCK_LEN], DIRECT).expect("written");
    assert_eq!(fs.access(), Access::ReadWrite);
    fs.close(file, OpenFor::Writing);
    assert_eq!(fs.access(), Access::ReadOnly);
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
