//! 06xx: the effects of a failing zone on its file and on the file system, for each `errors=`.
//!
//! 060x: the write pointer moves behind the file system's back. 061x: a zone becomes read-only,
//! 062x: offline; even numbers before mounting, odd ones while mounted.

use std::fs::{Permissions, set_permissions};
use std::os::unix::fs::PermissionsExt;

use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::drive::{Drive, LIMITED, ODD, PLAIN, SEPARATE, Shape, command, drop_inodes, run};
use crate::io::{append, mode, open_direct, read_at, size, truncate, write_at};
use crate::programs::{APPEND, Fio};

/// Whether the file system can still be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum System {
    Writable,
    ReadOnly,
}

/// The behaviour of a file after its zone failed.
#[derive(Clone, Copy)]
struct Outcome {
    size: u64,
    mode: u32,
    system: System,
    read: Result<usize, Errno>,
    /// A write at the end, and `truncate` to 0.
    change: Result<(), Errno>,
}

/// Bytes in the file before its zone fails.
const WRITTEN: u64 = 4096;

const READ_ONLY_SYSTEM: Outcome = Outcome {
    size: WRITTEN,
    mode: 0o640,
    system: System::ReadOnly,
    read: Ok(4096),
    change: Err(Errno::ROFS),
};

/// The zone can be read and not written.
const READ_ONLY_FILE: Outcome = Outcome {
    size: WRITTEN,
    mode: 0o440,
    system: System::Writable,
    read: Ok(4096),
    change: Err(Errno::PERM),
};

/// The zone can neither be read nor written.
const DEAD_FILE: Outcome = Outcome {
    size: 0,
    mode: 0,
    system: System::Writable,
    read: Err(Errno::PERM),
    change: Err(Errno::PERM),
};

/// The size is the write pointer.
const REPAIRED: Outcome = Outcome {
    size: 2 * WRITTEN,
    mode: 0o640,
    system: System::Writable,
    read: Ok(4096),
    change: Ok(()),
};

/// The same, with a read-only file system.
const fn and_system(outcome: Outcome) -> Outcome {
    Outcome { system: System::ReadOnly, change: Err(Errno::ROFS), ..outcome }
}

/// Compares a file and the file system with `expected`, now and after the kernel forgot them.
fn check(drive: &Drive, expected: &Outcome) {
    let file = drive.seq(0);
    for _ in 0..2 {
        assert_eq!((size(&file), mode(&file)), (expected.size, expected.mode));
        match expected.system {
            System::Writable => assert!(!drive.is_read_only()),
            System::ReadOnly => drive.await_read_only(),
        }
        for flags in [OFlags::DIRECT, OFlags::empty()] {
            let read = read_at(&file, flags, 0, 4096).map(|read| read.len());
            assert_eq!(read, expected.read, "{flags:?}");
        }
        drop_inodes();
    }
    if expected.change == Err(Errno::PERM) {
        let changed = set_permissions(&file, Permissions::from_mode(0o600)).unwrap_err();
        assert_eq!(changed.raw_os_error(), Some(Errno::PERM.raw_os_error()));
    }
    assert_eq!(append(&file, 4096).map(|_| ()), expected.change, "appending");
    assert_eq!(truncate(&file, 0), expected.change, "truncating");
    let (other, expected_other) = (
        append(&drive.seq(1), 4096),
        match expected.system {
            System::Writable => Ok(4096),
            System::ReadOnly => Err(Errno::ROFS),
        },
    );
    assert_eq!(other, expected_other, "another file");
    assert_eq!(drive.is_read_only(), expected.system == System::ReadOnly);
}

/// Makes the zone of a mounted file fail, and has a write notice it.
fn break_while_mounted(drive: &Drive, how: &str, fio: Option<&Fio>) {
    let (file, zone) = (drive.seq(0), drive.shape.first_seq());
    append(&file, WRITTEN).unwrap();
    match how {
        "write" => drive.order(&format!("write {zone} 4096")),
        condition => drive.order(&format!("{condition} {zone}")),
    }
    assert_eq!((size(&file), mode(&file)), (WRITTEN, 0o640), "nobody has noticed");
    match fio {
        None => assert_eq!(write_at(&file, OFlags::DIRECT, WRITTEN, 4096), Err(Errno::IO)),
        Some(fio) => {
            let job = [APPEND, "--rw=write", "--direct=1", "--ioengine=libaio", "--iodepth=4"];
            let options = [&job[..], &["--bs=4k", "--size=4k"]].concat();
            fio.fail(drive, &file, &options, "Input/output error");
        }
    }
}

const BREAKING: [&Shape; 3] = [&PLAIN, &LIMITED, &ODD];

fn check_mounted(policy: &str, how: &str, expected: &Outcome) {
    for shape in BREAKING {
        let Some(drive) = Drive::formatted(shape, SEPARATE) else { return };
        drive.mount(&format!("errors={policy}"));
        break_while_mounted(&drive, how, None);
        check(&drive, expected);
        drive.unmount();
        if how == "write" {
            // For the next mount, only the state of the drive counts.
            drive.mount("");
            let is = if expected.change.is_ok() { 0 } else { 2 * WRITTEN };
            assert_eq!((size(&drive.seq(0)), mode(&drive.seq(0))), (is, 0o640));
            assert_eq!(append(&drive.seq(0), 4096), Ok(4096));
        }
    }
}

fn check_asynchronous(policy: &str, expected: &Outcome) {
    let Some(fio) = Fio::find() else { return };
    let Some(drive) = Drive::formatted(&PLAIN, SEPARATE) else { return };
    drive.mount(&format!("errors={policy}"));
    break_while_mounted(&drive, "write", Some(&fio));
    check(&drive, expected);
}

/// A zone that cannot be written when the file system is mounted: its file is dead.
fn check_before_mount(policy: &str, condition: &str) {
    for shape in BREAKING {
        let Some(drive) = Drive::mounted(shape, SEPARATE) else { return };
        append(&drive.seq(0), WRITTEN).unwrap();
        drive.unmount();
        drive.zonal(["zone", condition], &[&shape.first_seq().to_string(), "--force"]);
        drive.mount(&format!("errors={policy}"));
        check(&drive, &DEAD_FILE);
    }
}

#[test]
fn t0600_write_error_remount_ro() {
    check_mounted("remount-ro", "write", &READ_ONLY_SYSTEM);
}

#[test]
#[ignore = "needs fio; run by cargo xtask test"]
fn t0601_write_error_remount_ro_asynchronous() {
    check_asynchronous("remount-ro", &READ_ONLY_SYSTEM);
}

#[test]
fn t0602_write_error_zone_ro() {
    check_mounted("zone-ro", "write", &READ_ONLY_FILE);
}

#[test]
#[ignore = "needs fio; run by cargo xtask test"]
fn t0603_write_error_zone_ro_asynchronous() {
    check_asynchronous("zone-ro", &READ_ONLY_FILE);
}

#[test]
fn t0604_write_error_zone_offline() {
    check_mounted("zone-offline", "write", &DEAD_FILE);
}

#[test]
#[ignore = "needs fio; run by cargo xtask test"]
fn t0605_write_error_zone_offline_asynchronous() {
    check_asynchronous("zone-offline", &DEAD_FILE);
}

#[test]
fn t0606_write_error_repair() {
    check_mounted("repair", "write", &REPAIRED);
}

#[test]
#[ignore = "needs fio; run by cargo xtask test"]
fn t0607_write_error_repair_asynchronous() {
    check_asynchronous("repair", &REPAIRED);
}

#[test]
fn failure_keeps_options_of_remount() {
    let Some(drive) = Drive::formatted(&PLAIN, SEPARATE) else { return };
    drive.mount("errors=remount-ro");
    run(command(["mount", "-o", "remount,noexec"]).arg(drive.device()).arg(drive.root()));
    break_while_mounted(&drive, "write", None);
    drive.await_read_only();
    assert!(drive.shows("noexec"));
}

#[test]
fn t0610_read_only_zone_at_mount_remount_ro() {
    check_before_mount("remount-ro", "read-only");
}

#[test]
fn t0611_read_only_zone_remount_ro() {
    check_mounted("remount-ro", "read-only", &and_system(READ_ONLY_FILE));
}

#[test]
fn t0612_read_only_zone_at_mount_zone_ro() {
    check_before_mount("zone-ro", "read-only");
}

#[test]
fn t0613_read_only_zone_zone_ro() {
    check_mounted("zone-ro", "read-only", &READ_ONLY_FILE);
}

#[test]
fn t0614_read_only_zone_at_mount_zone_offline() {
    check_before_mount("zone-offline", "read-only");
}

#[test]
fn t0615_read_only_zone_zone_offline() {
    check_mounted("zone-offline", "read-only", &DEAD_FILE);
}

#[test]
fn t0616_read_only_zone_at_mount_repair() {
    check_before_mount("repair", "read-only");
}

#[test]
fn t0617_read_only_zone_repair() {
    check_mounted("repair", "read-only", &READ_ONLY_FILE);
}

#[test]
fn t0620_offline_zone_at_mount_remount_ro() {
    check_before_mount("remount-ro", "offline");
}

#[test]
fn t0621_offline_zone_remount_ro() {
    check_mounted("remount-ro", "offline", &and_system(DEAD_FILE));
}

#[test]
fn t0622_offline_zone_at_mount_zone_ro() {
    check_before_mount("zone-ro", "offline");
}

#[test]
fn t0623_offline_zone_zone_ro() {
    check_mounted("zone-ro", "offline", &DEAD_FILE);
}

#[test]
fn t0624_offline_zone_at_mount_zone_offline() {
    check_before_mount("zone-offline", "offline");
}

#[test]
fn t0625_offline_zone_zone_offline() {
    check_mounted("zone-offline", "offline", &DEAD_FILE);
}

#[test]
fn t0626_offline_zone_at_mount_repair() {
    check_before_mount("repair", "offline");
}

#[test]
fn t0627_offline_zone_repair() {
    check_mounted("repair", "offline", &DEAD_FILE);
}

/// After a failed asynchronous write, the kernel truncates the file to the size that it knows. Here
/// that is 0, and the zone holds data of another writer.
#[test]
#[ignore = "needs fio; run by cargo xtask test"]
fn aio_failed_write_does_not_reset_zone() {
    let Some(fio) = Fio::find() else { return };
    for options in ["errors=repair", "errors=repair,noasync-dio"] {
        for engine in ["--ioengine=libaio", "--ioengine=io_uring"] {
            let Some(drive) = Drive::formatted(&PLAIN, SEPARATE) else { return };
            drive.mount(options);
            let file = drive.seq(0);
            assert_eq!(size(&file), 0);
            drive.order(&format!("write {} {}", PLAIN.first_seq(), 2 * WRITTEN));
            let job = [APPEND, "--rw=write", "--direct=1", "--bs=4k", "--size=4k", engine];
            fio.fail(&drive, &file, &job, "Input/output error");
            assert_eq!(size(&file), 2 * WRITTEN, "{options}");
            // A truncation by a program takes effect.
            let writer = open_direct(&file);
            rustix::fs::ftruncate(&writer, 0).unwrap();
            assert_eq!(size(&file), 0);
        }
    }
}
