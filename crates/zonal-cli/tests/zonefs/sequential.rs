//! 030x and 031x: sequential files, written only at their end.

use std::fs;
use std::io::IoSlice;

use rustix::fs::OFlags;
use rustix::io::{Errno, ReadWriteFlags};

use crate::drive::{Drive, LIMITED, ODD, PLAIN, SEPARATE, SEQUENTIAL, SHAPES, SHORT};
use crate::io::{self, Aligned, append, open, open_direct, read_at, size, truncate, write_at};
use crate::programs::{APPEND, Aio, Fio, python};

#[test]
fn t0300_truncate() {
    for shape in SHAPES {
        let Some(drive) = Drive::mounted(shape, SEPARATE) else { return };
        let file = drive.seq(0);
        append(&file, 8192).unwrap();
        for to in [1, 4096, 8192, 12288, shape.capacity - shape.block] {
            assert_eq!(truncate(&file, to), Err(Errno::PERM), "to {to}");
        }
        for to in [shape.zone + 1, 1 << 40] {
            assert_eq!(truncate(&file, to), Err(Errno::FBIG), "to {to}");
        }
        assert_eq!(truncate(&file, u64::MAX), Err(Errno::INVAL));
        assert_eq!(size(&file), 8192);
        // Truncation to 0 resets the zone; once more, the zone stays empty.
        assert_eq!(truncate(&file, 0), Ok(()));
        assert_eq!(truncate(&file, 0), Ok(()));
        assert_eq!(size(&file), 0);
        assert_eq!(truncate(&file, 4096), Err(Errno::PERM));
        assert_eq!(append(&file, 4096), Ok(4096));
        // Truncation to the maximum finishes the zone, and its data stays.
        assert_eq!(truncate(&file, shape.capacity), Ok(()));
        assert_eq!(truncate(&file, shape.capacity), Ok(()));
        assert_eq!(size(&file), shape.capacity);
        assert!(*read_at(&file, OFlags::DIRECT, 0, 4096).unwrap() == *Aligned::content(0, 4096));
        assert_eq!(append(&drive.seq(1), 4096), Ok(4096));
        drive.unmount();
        assert_eq!(drive.zone(shape.first_seq()).0, "full");
        drive.mount("");
        assert_eq!(size(&file), shape.capacity);
        // O_TRUNC empties the file, even if it is open for reading only.
        open(&file, OFlags::RDONLY | OFlags::TRUNC).unwrap();
        assert_eq!(size(&file), 0);
        drive.unmount();
        assert_eq!(drive.zone(shape.first_seq()).0, "empty");
    }
}

#[test]
fn t0301_unlink() {
    let Some(drive) = Drive::mounted(&PLAIN, SEPARATE) else { return };
    let errno = |result: std::io::Result<()>| result.unwrap_err().raw_os_error();
    let eperm = Some(Errno::PERM.raw_os_error());
    assert_eq!(errno(fs::remove_file(drive.seq(0))), eperm);
    assert_eq!(errno(fs::rename(drive.seq(0), drive.seq(1))), eperm);
    assert_eq!(errno(fs::remove_dir(drive.root().join("seq"))), eperm);
    // No new name can be made.
    let enoent = Some(Errno::NOENT.raw_os_error());
    let new = drive.root().join("seq/new");
    assert_eq!(errno(fs::write(&new, "")), enoent);
    assert_eq!(errno(fs::create_dir(&new)), enoent);
    assert_eq!(errno(fs::hard_link(drive.seq(0), &new)), enoent);
    assert_eq!(errno(fs::rename(drive.seq(0), &new)), enoent);
    assert_eq!(errno(std::os::unix::fs::symlink("x", &new)), enoent);
    assert!(drive.seq(0).exists());
}

#[test]
fn t0302_buffered_write() {
    let Some(drive) = Drive::mounted(&PLAIN, SEPARATE) else { return };
    let file = drive.seq(0);
    for flags in [OFlags::empty(), OFlags::APPEND, OFlags::DSYNC] {
        assert_eq!(write_at(&file, flags, 0, 4096), Err(Errno::IO), "{flags:?}");
        assert_eq!(size(&file), 0);
    }
    // Neither the file nor the file system has been damaged.
    assert_eq!(io::mode(&file), 0o640);
    assert!(!drive.is_read_only());
    assert_eq!(append(&file, 4096), Ok(4096));
    assert_eq!(write_at(&file, OFlags::empty(), 4096, 4096), Err(Errno::IO));
    io::assert_content(&file, 4096);
    // Beyond the zone's capacity, EFBIG takes precedence.
    assert_eq!(write_at(&file, OFlags::empty(), PLAIN.capacity, 4096), Err(Errno::FBIG));
}

#[test]
fn t0303_overwrite() {
    for shape in [&PLAIN, &SHORT] {
        let Some(drive) = Drive::mounted(shape, SEPARATE) else { return };
        let file = drive.seq(0);
        append(&file, 8192).unwrap();
        for offset in [0, 4096] {
            assert_eq!(write_at(&file, OFlags::DIRECT, offset, 4096), Err(Errno::INVAL));
        }
        io::assert_content(&file, 8192);
        truncate(&file, 0).unwrap();
        assert_eq!(append(&file, 4096), Ok(4096));
    }
}

#[test]
fn t0304_unaligned_write() {
    for shape in [&PLAIN, &SHORT] {
        let Some(drive) = Drive::mounted(shape, SEPARATE) else { return };
        let file = drive.seq(0);
        let write = |offset, len| write_at(&file, OFlags::DIRECT, offset, len);
        // A write away from the write pointer, or not in whole blocks.
        for (offset, len) in
            [(4096, 4096), (shape.block, shape.block), (0, 100), (0, shape.block + 1), (8, 4096)]
        {
            assert_eq!(write(offset, len), Err(Errno::INVAL), "{len} bytes at {offset}");
            assert_eq!(size(&file), 0);
        }
        assert_eq!(write(shape.capacity, 4096), Err(Errno::FBIG));
        assert_eq!(write(0, 4096), Ok(4096));
        assert_eq!(write(4096, 0), Ok(0));
        // The file system has not changed.
        assert!(!drive.is_read_only());
        io::assert_content(&file, 4096);
    }
}

#[test]
fn t0305_unaligned_write_asynchronous() {
    for shape in [&PLAIN, &SHORT] {
        let Some(drive) = Drive::mounted(shape, SEPARATE) else { return };
        let file = drive.seq(0);
        Aio { mode: "offset", vectors: 1, bytes: ODD_WRITE, depth: 8 }.miss(&file);
        assert_eq!(size(&file), 0);
        assert!(!drive.is_read_only());
        assert_eq!(append(&file, 4096), Ok(4096));
    }
}

/// No zone is a multiple of this size: the last write is a short one.
const ODD_WRITE: u64 = 135_168;

#[test]
fn t0306_append() {
    for shape in SHAPES {
        let Some(drive) = Drive::mounted(shape, SEPARATE) else { return };
        let file = drive.seq(0);
        for (flags, each) in
            [(OFlags::APPEND, ReadWriteFlags::empty()), (OFlags::empty(), ReadWriteFlags::APPEND)]
        {
            append(&file, 4096).unwrap();
            let open = open(&file, OFlags::WRONLY | OFlags::DIRECT | flags).unwrap();
            let mut end = 4096;
            while end < shape.capacity {
                let data = Aligned::content(end, ODD_WRITE);
                // The offset of the write has no effect.
                let written =
                    rustix::io::pwritev2(&open, &[IoSlice::new(&data)], 0, each).unwrap() as u64;
                assert_eq!(written, ODD_WRITE.min(shape.capacity - end));
                end += written;
                assert_eq!(size(&file), end);
            }
            let data = Aligned::new(4096);
            let full = rustix::io::pwritev2(&open, &[IoSlice::new(&data)], 0, each);
            assert_eq!(full, Err(Errno::FBIG), "{flags:?} {each:?}");
            io::assert_content(&file, shape.capacity);
            truncate(&file, 0).unwrap();
        }
    }
}

#[test]
fn t0307_append_asynchronous() {
    for shape in [&PLAIN, &ODD] {
        for mode in ["append", "each-append"] {
            let Some(drive) = Drive::mounted(shape, SEPARATE) else { return };
            append(&drive.seq(0), 4096).unwrap();
            Aio { mode, vectors: 1, bytes: ODD_WRITE, depth: 8 }.overfill(&drive.seq(0));
            assert_eq!(size(&drive.seq(0)), shape.capacity);
        }
    }
}

#[test]
#[ignore = "needs fio; run by cargo xtask test"]
fn t0309_mapping() {
    let Some(fio) = Fio::find() else { return };
    let Some(drive) = Drive::mounted(&PLAIN, SEPARATE) else { return };
    let file = drive.seq(0);
    fio.run(
        &drive,
        &file,
        &[APPEND, "--rw=write", "--size=4m", "--bs=256k", "--direct=1", "--verify=md5"],
    );
    drive.remount("");
    fio.run(
        &drive,
        &file,
        &["--rw=randread", "--ioengine=mmap", "--size=4m", "--bs=256k", "--verify=md5"],
    );
    let script = "
import errno, mmap, os, sys
def refused(fd, flags, prot):
    try:
        mmap.mmap(fd, 4096, flags, prot)
    except OSError as error:
        assert error.errno in (errno.EINVAL, errno.ENODEV), error
    else:
        assert False, 'mapped'
both = os.open(sys.argv[1], os.O_RDWR)
refused(both, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
refused(both, mmap.MAP_SHARED, mmap.PROT_READ)
reader = os.open(sys.argv[1], os.O_RDONLY)
shared = mmap.mmap(reader, 4096, mmap.MAP_SHARED, mmap.PROT_READ)
assert shared[:] == os.pread(reader, 4096, 0)
for fd in both, reader:
    private = mmap.mmap(fd, 4096, mmap.MAP_PRIVATE)
    private[0:2] = b'ab'
    assert os.pread(fd, 4096, 0) == shared[:]
";
    python(script, &file);
}

/// fio fills a file with one request at a time, and compares all of it.
fn check_fill(bytes: &str) {
    let Some(fio) = Fio::find() else { return };
    for shape in [&PLAIN, &SHORT] {
        let Some(drive) = Drive::mounted(shape, SEPARATE) else { return };
        let (bs, len) = (format!("--bs={bytes}"), format!("--size={}", shape.capacity));
        let job =
            [APPEND, "--rw=write", "--ioengine=psync", "--direct=1", "--verify=md5", &bs, &len];
        fio.run(&drive, &drive.seq(0), &job);
    }
}

#[test]
#[ignore = "needs fio; run by cargo xtask test"]
fn t0310_small_writes() {
    check_fill("4k");
}

#[test]
#[ignore = "needs fio; run by cargo xtask test"]
fn t0311_large_writes() {
    // More than one request of FUSE and more than the drive takes in one append.
    check_fill("1048576");
    for shape in SHAPES {
        let Some(drive) = Drive::mounted(shape, SEPARATE) else { return };
        let file = open_direct(&drive.seq(0));
        let mut end = 0;
        while end < shape.capacity {
            let data = Aligned::content(end, (1 << 20) + 4096);
            end += rustix::io::pwrite(&file, &data, end).unwrap() as u64;
        }
        io::assert_content(&drive.seq(0), shape.capacity);
        // Everything in one call.
        let all = write_at(&drive.seq(1), OFlags::DIRECT, 0, shape.capacity + 4096);
        assert_eq!(all, Ok(shape.capacity));
        io::assert_content(&drive.seq(1), shape.capacity);
    }
}

#[test]
fn t0312_explicit_open() {
    for shape in [&LIMITED, &SEQUENTIAL, &SHORT, &ODD] {
        let Some(drive) = Drive::formatted(shape, SEPARATE) else { return };
        drive.mount("explicit-open");
        let limit = u64::from(shape.max_open);
        let files: Vec<_> = (0..limit).map(|number| open_direct(&drive.seq(number))).collect();
        for number in limit..2 * limit {
            let one_more = open(&drive.seq(number), OFlags::WRONLY | OFlags::DIRECT);
            assert_eq!(one_more.err(), Some(Errno::BUSY), "file {number}");
            let truncating = open(&drive.seq(number), OFlags::WRONLY | OFlags::TRUNC);
            assert_eq!(truncating.err(), Some(Errno::BUSY), "file {number}");
        }
        // For reading there is no limit, and a file that is open may be opened again.
        open(&drive.seq(limit), OFlags::RDONLY).unwrap();
        open_direct(&drive.seq(0));
        // Open files can be written to the end; then they need no open zone.
        let data = Aligned::new(shape.capacity);
        for (number, file) in (0..).zip(&files) {
            let written = rustix::io::pwrite(file, &data, 0).unwrap() as u64;
            assert_eq!(written, shape.capacity, "file {number}");
        }
        drop(files);
        drive.await_count("nr_wro_seq_files", 0);
        let files: Vec<_> =
            (limit..2 * limit).map(|number| open_direct(&drive.seq(number))).collect();
        drop(files);
        drive.await_count("nr_wro_seq_files", 0);
        drive.unmount();
        for number in 0..limit {
            assert_eq!(drive.zone(shape.first_seq() + number).0, "full");
            // A file that was opened and not written leaves its zone empty.
            assert_eq!(drive.zone(shape.first_seq() + limit + number).0, "empty");
        }
    }
}
