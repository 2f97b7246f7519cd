//! 05xx: how many files are open for writing and how many are active, from the control directory.

use rustix::fs::OFlags;

use crate::drive::{CONVENTIONAL, Drive, LIMITED, ODD, PLAIN, SEPARATE, SEQUENTIAL, SHAPES, Shape};
use crate::io::{append, open, open_direct, truncate, write_at};

const OPEN: &str = "nr_wro_seq_files";
const ACTIVE: &str = "nr_active_seq_files";

/// As many as a drive allows; 4 without a limit.
fn some(limit: u32) -> u32 {
    if limit == 0 { 4 } else { limit }
}

#[test]
fn t0510_attributes_after_format() {
    for shape in SHAPES {
        let Some(drive) = Drive::mounted(shape, SEPARATE) else { return };
        assert_eq!(drive.count("max_wro_seq_files"), shape.max_open);
        assert_eq!(drive.count("max_active_seq_files"), shape.max_active);
        assert_eq!(drive.count(OPEN), 0);
        assert_eq!(drive.count(ACTIVE), 0);
    }
}

#[test]
fn t0511_open_zones_are_closed_by_mounting() {
    for shape in [&PLAIN, &LIMITED, &SEQUENTIAL] {
        let Some(drive) = Drive::formatted(shape, SEPARATE) else { return };
        let zone = shape.first_seq() + 1;
        drive.zonal(["zone", "open"], &[&zone.to_string(), "--force"]);
        assert_eq!(drive.zone(zone).0, "explicit-open");
        drive.mount("");
        assert_eq!(drive.count(ACTIVE), 0);
        drive.unmount();
        assert_eq!(drive.zone(zone).0, "empty");
    }
}

#[test]
fn t0512_written_zones_are_active_after_mounting() {
    for shape in SHAPES {
        let Some(drive) = Drive::formatted(shape, SEPARATE) else { return };
        let active = some(shape.max_open);
        let input = drive.outside("block");
        std::fs::write(&input, [7; 4096]).unwrap();
        for zone in shape.first_seq()..shape.first_seq() + u64::from(active) {
            let (zone, input) = (zone.to_string(), input.to_str().unwrap());
            drive.zonal(["append"], &["--force", "--zone", &zone, "--input", input]);
        }
        drive.mount("");
        assert_eq!((drive.count(ACTIVE), drive.count(OPEN)), (active, 0), "{shape:?}");
    }
}

/// Opens one file after the other, then closes them; `counts` has the expected counters.
fn check_open(drive: &Drive, flags: OFlags, files: u32, counts: impl Fn(u32) -> (u32, u32)) {
    let mut open_files = Vec::new();
    for number in 0..files {
        open_files.push(open(&drive.seq(number.into()), flags).unwrap());
        // A second open of the file does not count.
        open_files.push(open(&drive.seq(number.into()), flags).unwrap());
        assert_eq!((drive.count(OPEN), drive.count(ACTIVE)), counts(number + 1), "{flags:?}");
    }
    drop(open_files);
    drive.await_count(OPEN, 0);
    assert_eq!(drive.count(ACTIVE), 0);
}

#[test]
fn t0513_files_open_for_writing() {
    for shape in [&PLAIN, &LIMITED, &ODD] {
        let Some(drive) = Drive::mounted(shape, SEPARATE) else { return };
        let files = some(shape.max_open) + 1;
        check_open(&drive, OFlags::RDONLY, files, |_| (0, 0));
        check_open(&drive, OFlags::WRONLY, files, |open| (open, 0));
        check_open(&drive, OFlags::RDWR | OFlags::DIRECT, files, |open| (open, 0));
    }
}

#[test]
fn t0514_files_open_for_writing_explicitly() {
    for shape in [&PLAIN, &LIMITED, &ODD] {
        let Some(drive) = Drive::formatted(shape, SEPARATE) else { return };
        drive.mount("explicit-open");
        let files = some(shape.max_open);
        check_open(&drive, OFlags::RDONLY, files + 1, |_| (0, 0));
        // Without limits, no zone is opened explicitly.
        let limited = shape.max_open > 0;
        check_open(&drive, OFlags::WRONLY, files, |open| (open, if limited { open } else { 0 }));
        if limited {
            let held: Vec<_> =
                (0..files).map(|file| open_direct(&drive.seq(file.into()))).collect();
            let one_more = open(&drive.seq(files.into()), OFlags::WRONLY);
            assert_eq!(one_more.err(), Some(rustix::io::Errno::BUSY));
            assert_eq!((drive.count(OPEN), drive.count(ACTIVE)), (files, files));
            drop(held);
            drive.await_count(OPEN, 0);
            assert_eq!(drive.count(ACTIVE), 0);
        }
    }
}

/// Files stay active over a mount, until `end` ends that for one after the other.
fn check_active(shape: &'static Shape, end: impl Fn(&std::path::Path, u64)) {
    let Some(drive) = Drive::mounted(shape, SEPARATE) else { return };
    let files = some(shape.max_active);
    for number in 0..files {
        append(&drive.seq(number.into()), 1 << 20).unwrap();
        assert_eq!(drive.count(ACTIVE), number + 1);
    }
    drive.await_count(OPEN, 0);
    drive.remount("");
    assert_eq!((drive.count(ACTIVE), drive.count(OPEN)), (files, 0));
    for number in 0..files {
        end(&drive.seq(number.into()), shape.capacity);
        assert_eq!(drive.count(ACTIVE), files - number - 1);
    }
    drive.await_count(OPEN, 0);
}

const ACTIVE_SHAPES: [&Shape; 4] = [&PLAIN, &LIMITED, &SEQUENTIAL, &ODD];

#[test]
fn t0515_active_until_full() {
    for shape in ACTIVE_SHAPES {
        check_active(shape, |file, capacity| {
            let rest = capacity - (1 << 20);
            assert_eq!(append(file, rest), Ok(rest));
        });
    }
}

#[test]
fn t0516_active_until_reset() {
    for shape in ACTIVE_SHAPES {
        check_active(shape, |file, _| truncate(file, 0).unwrap());
    }
}

#[test]
fn t0517_active_until_finished() {
    for shape in ACTIVE_SHAPES {
        check_active(shape, |file, capacity| truncate(file, capacity).unwrap());
    }
}

#[test]
fn t0518_open_conventional_files_do_not_count() {
    for shape in CONVENTIONAL {
        let Some(drive) = Drive::mounted(shape, SEPARATE) else { return };
        for flags in [OFlags::RDONLY, OFlags::WRONLY, OFlags::RDWR] {
            let files: Vec<_> = (0..shape.cnv_files())
                .map(|number| open(&drive.cnv(number), flags).unwrap())
                .collect();
            assert_eq!((drive.count(OPEN), drive.count(ACTIVE)), (0, 0), "{flags:?}");
            drop(files);
            assert_eq!((drive.count(OPEN), drive.count(ACTIVE)), (0, 0), "{flags:?}");
        }
    }
}

#[test]
fn t0519_written_conventional_files_do_not_count() {
    for shape in CONVENTIONAL {
        let Some(drive) = Drive::mounted(shape, SEPARATE) else { return };
        for number in 0..shape.cnv_files() {
            write_at(&drive.cnv(number), OFlags::DIRECT, 4096, 4096).unwrap();
            assert_eq!((drive.count(OPEN), drive.count(ACTIVE)), (0, 0));
        }
    }
}
