//! 032x and 0330: data is read back, and durable writes.

use std::io::IoSlice;

use rustix::fs::OFlags;
use rustix::io::{Errno, ReadWriteFlags};

use crate::drive::{Drive, ODD, PLAIN, SEPARATE, SHAPES, SHORT, Shape};
use crate::io::{self, Aligned, append, open, read_at, size, truncate, write_at};
use crate::programs::{APPEND, Aio, Fio};

/// fio fills a file with eight requests in flight; after the next mount it reads and compares.
fn check_read(shape: &'static Shape, write: &[&str], read: &[&str]) {
    let Some(fio) = Fio::find() else { return };
    let Some(drive) = Drive::mounted(shape, SEPARATE) else { return };
    let (file, len) = (drive.seq(0), format!("--size={}", shape.capacity));
    let asynchronous = ["--ioengine=libaio", "--iodepth=8", "--verify=md5", &len];
    let filling = [APPEND, "--rw=write", "--direct=1"];
    fio.run(&drive, &file, &[write, &asynchronous, &filling].concat());
    assert_eq!(size(&file), shape.capacity);
    for engine in [&asynchronous[..], &["--ioengine=psync", "--verify=md5", &len]] {
        drive.remount("");
        fio.run(&drive, &file, &[write, engine, read].concat());
    }
}

const BLOCKS: &[&str] = &["--bs=128k"];

#[test]
#[ignore = "needs fio; run by cargo xtask test"]
fn t0320_random_read() {
    check_read(&PLAIN, BLOCKS, &["--rw=randread"]);
}

#[test]
#[ignore = "needs fio; run by cargo xtask test"]
fn t0321_random_read_direct() {
    check_read(&SHORT, BLOCKS, &["--rw=randread", "--direct=1"]);
}

#[test]
#[ignore = "needs fio; run by cargo xtask test"]
fn t0322_sequential_read() {
    check_read(&SHORT, BLOCKS, &["--rw=read"]);
}

#[test]
#[ignore = "needs fio; run by cargo xtask test"]
fn t0323_sequential_read_direct() {
    check_read(&PLAIN, BLOCKS, &["--rw=read", "--direct=1"]);
}

#[test]
fn t0324_readahead() {
    let Some(drive) = Drive::mounted(&PLAIN, SEPARATE) else { return };
    let file = drive.seq(0);
    let reader = open(&file, OFlags::RDONLY).unwrap();
    let mut buffer = Aligned::new(4096);
    // An earlier reader sees later writes, through its page cache.
    for round in 0..4 {
        let offset = round * 4096;
        assert_eq!(rustix::io::pread(&reader, &mut *buffer, offset), Ok(0));
        append(&file, 4096).unwrap();
        assert_eq!(rustix::io::pread(&reader, &mut *buffer, offset), Ok(4096));
        assert!(*buffer == *Aligned::content(offset, 4096), "at {offset}");
    }
    // After a reset no old data is left, and a reader sees the new data.
    truncate(&file, 0).unwrap();
    assert_eq!(rustix::io::pread(&reader, &mut *buffer, 0), Ok(0));
    let other = Aligned::content(1 << 30, 4096);
    let writer = io::open_direct(&file);
    assert_eq!(rustix::io::pwrite(&writer, &other, 0), Ok(4096));
    assert_eq!(rustix::io::pread(&reader, &mut *buffer, 0), Ok(4096));
    assert!(*buffer == *other);
}

#[test]
fn t0325_read_beyond_the_end() {
    for shape in SHAPES {
        let Some(drive) = Drive::mounted(shape, SEPARATE) else { return };
        let file = drive.seq(0);
        let read = |flags, offset, len| read_at(&file, flags, offset, len).map(|read| read.len());
        let block = usize::try_from(shape.block).unwrap();
        append(&file, shape.block).unwrap();
        for flags in [OFlags::empty(), OFlags::DIRECT] {
            assert_eq!(read(flags, 0, 2 * shape.block), Ok(block), "{flags:?}");
            assert_eq!(read(flags, shape.block, shape.block), Ok(0));
            assert_eq!(read(flags, shape.capacity, shape.block), Ok(0));
            assert_eq!(read(flags, shape.zone + 1, shape.block), Ok(0));
        }
        assert_eq!(read(OFlags::DIRECT, 1, shape.block), Err(Errno::INVAL));
        assert_eq!(read(OFlags::DIRECT, 0, 100), Err(Errno::INVAL));
        let rest = shape.capacity - shape.block;
        assert_eq!(write_at(&file, OFlags::DIRECT, shape.block, rest), Ok(rest));
        for flags in [OFlags::empty(), OFlags::DIRECT] {
            assert_eq!(read(flags, rest, 2 * shape.block), Ok(block), "{flags:?}");
            assert_eq!(read(flags, shape.capacity, shape.block), Ok(0));
        }
    }
}

const DSYNC_WRITE: u64 = 2 << 20;

/// Durable direct writes fill a file; the daemon is killed and no data is missing.
fn check_dsync(flags: OFlags, each: ReadWriteFlags, vectors: u64) {
    for shape in [&PLAIN, &SHORT] {
        let Some(drive) = Drive::mounted(shape, SEPARATE) else { return };
        let file = open(&drive.seq(0), OFlags::WRONLY | OFlags::DIRECT | flags).unwrap();
        let mut end = 0;
        while end < shape.capacity {
            let part = DSYNC_WRITE / vectors;
            let data: Vec<_> =
                (0..vectors).map(|at| Aligned::content(end + at * part, part)).collect();
            let slices: Vec<_> = data.iter().map(|data| IoSlice::new(data)).collect();
            end += rustix::io::pwritev2(&file, &slices, end, each).unwrap() as u64;
        }
        drive.kill();
        drop(file);
        drive.mount("");
        io::assert_content(&drive.seq(0), shape.capacity);
    }
}

#[test]
fn t0326_dsync_write() {
    check_dsync(OFlags::DSYNC, ReadWriteFlags::empty(), 1);
    check_dsync(OFlags::empty(), ReadWriteFlags::DSYNC, 1);
}

/// The same with eight writes in flight.
fn check_dsync_asynchronous(vectors: u64) {
    for mode in ["dsync", "each-dsync"] {
        for shape in [&PLAIN, &ODD] {
            let Some(drive) = Drive::mounted(shape, SEPARATE) else { return };
            Aio { mode, vectors, bytes: DSYNC_WRITE, depth: 8 }.overfill(&drive.seq(0));
            drive.kill();
            drive.mount("");
            assert_eq!(size(&drive.seq(0)), shape.capacity);
        }
    }
}

#[test]
fn t0327_dsync_write_asynchronous() {
    check_dsync_asynchronous(1);
}

#[test]
fn t0328_dsync_write_vectors() {
    check_dsync(OFlags::DSYNC, ReadWriteFlags::empty(), 64);
    check_dsync(OFlags::empty(), ReadWriteFlags::DSYNC, 64);
}

#[test]
fn t0329_dsync_write_asynchronous_vectors() {
    check_dsync_asynchronous(512);
}

#[test]
#[ignore = "needs fio; run by cargo xtask test"]
fn t0330_large_read() {
    check_read(&PLAIN, &["--bs=4m"], &["--rw=read"]);
}
