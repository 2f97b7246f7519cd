//! 02xx: conventional files, one for each zone and one for all.

use std::fs;

use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::drive::{
    AGGREGATED, CONVENTIONAL, Drive, ODD, PLAIN, SEPARATE, SHORT, drop_inodes, find, must, output,
};
use crate::io::{self, Aligned, append, open, read_at, size, truncate, write_at};
use crate::programs::{Fio, python};

/// Bytes that tests move: all of a file, or three zones of an aggregated file.
fn part(drive: &Drive) -> u64 {
    size(&drive.cnv(0)).min(3 * drive.shape.zone)
}

/// Truncation fails for any length, even the present one.
fn check_truncate(aggregated: &[&str]) {
    let Some(drive) = Drive::mounted(&PLAIN, aggregated) else { return };
    let len = size(&drive.cnv(0));
    for to in [0, 4096, len] {
        assert_eq!(truncate(&drive.cnv(0), to), Err(Errno::PERM), "to {to}");
    }
    assert_eq!(truncate(&drive.cnv(0), 1 << 40), Err(Errno::FBIG));
    let flags = OFlags::WRONLY | OFlags::TRUNC;
    assert_eq!(open(&drive.cnv(0), flags).err(), Some(Errno::PERM));
    assert_eq!(size(&drive.cnv(0)), len);
}

#[test]
fn t0200_truncate() {
    check_truncate(SEPARATE);
}

#[test]
fn t0201_truncate_aggregated() {
    check_truncate(AGGREGATED);
}

fn check_unlink(aggregated: &[&str]) {
    let Some(drive) = Drive::mounted(&PLAIN, aggregated) else { return };
    let errno = |result: std::io::Result<()>| result.unwrap_err().raw_os_error();
    let eperm = Some(Errno::PERM.raw_os_error());
    assert_eq!(errno(fs::remove_file(drive.cnv(0))), eperm);
    assert_eq!(errno(fs::rename(drive.cnv(0), drive.seq(0))), eperm);
    assert_eq!(errno(fs::remove_dir(drive.root().join("cnv"))), eperm);
    assert!(drive.cnv(0).exists());
}

#[test]
fn t0202_unlink() {
    check_unlink(SEPARATE);
}

#[test]
fn t0203_unlink_aggregated() {
    check_unlink(AGGREGATED);
}

const SYNC: &[&str] = &["--ioengine=psync"];
const ASYNC: &[&str] = &["--ioengine=libaio", "--iodepth=64"];

/// fio writes, reads back and compares, with one request at a time and with many.
fn check_fio(aggregated: &[&str], job: &[&str]) {
    let Some(fio) = Fio::find() else { return };
    for engine in [SYNC, ASYNC] {
        let Some(drive) = Drive::mounted(&PLAIN, aggregated) else { return };
        let len = format!("--size={}", part(&drive));
        fio.run(
            &drive,
            &drive.cnv(0),
            &[engine, job, &["--bs=128k", "--overwrite=1", &len]].concat(),
        );
        drive.unmount();
    }
}

const RANDOM_WRITE: &[&str] = &["--rw=randwrite", "--verify=md5"];
const RANDOM_WRITE_DIRECT: &[&str] = &["--rw=randwrite", "--verify=md5", "--direct=1"];
const WRITE: &[&str] = &["--rw=write", "--verify=md5"];
const WRITE_DIRECT: &[&str] = &["--rw=write", "--verify=md5", "--direct=1"];

#[test]
#[ignore = "needs fio; run by cargo xtask test"]
fn t0204_random_write() {
    check_fio(SEPARATE, RANDOM_WRITE);
}

#[test]
#[ignore = "needs fio; run by cargo xtask test"]
fn t0205_random_write_direct() {
    check_fio(SEPARATE, RANDOM_WRITE_DIRECT);
}

#[test]
#[ignore = "needs fio; run by cargo xtask test"]
fn t0206_random_write_aggregated() {
    check_fio(AGGREGATED, RANDOM_WRITE);
}

#[test]
#[ignore = "needs fio; run by cargo xtask test"]
fn t0207_random_write_aggregated_direct() {
    check_fio(AGGREGATED, RANDOM_WRITE_DIRECT);
}

/// A shared mapping is written, and after the next mount the file has all of it.
fn check_mapping(aggregated: &[&str]) {
    let Some(fio) = Fio::find() else { return };
    for shape in [&PLAIN, &SHORT] {
        let Some(drive) = Drive::mounted(shape, aggregated) else { return };
        let size = format!("--size={}", part(&drive));
        let common = ["--ioengine=mmap", "--bs=256k", "--verify=md5", "--overwrite=1", &size];
        let job = |rw| [&[rw][..], &common].concat();
        fio.run(&drive, &drive.cnv(0), &job("--rw=randwrite"));
        drive.remount("");
        fio.run(&drive, &drive.cnv(0), &job("--rw=randread"));
        let script = "
import mmap, os, sys
fd = os.open(sys.argv[1], os.O_RDWR)
shared = mmap.mmap(fd, 8192)
shared[4095:4097] = b'ab'
shared.flush()
assert os.pread(fd, 2, 4095) == b'ab'
os.pwrite(fd, b'cd', 4095)
assert shared[4095:4097] == b'cd'
private = mmap.mmap(fd, 8192, mmap.MAP_PRIVATE)
private[4095:4097] = b'ef'
assert os.pread(fd, 2, 4095) == b'cd'
";
        python(script, &drive.cnv(0));
    }
}

#[test]
#[ignore = "needs fio; run by cargo xtask test"]
fn t0208_mapping() {
    check_mapping(SEPARATE);
}

#[test]
#[ignore = "needs fio; run by cargo xtask test"]
fn t0209_mapping_aggregated() {
    check_mapping(AGGREGATED);
}

#[test]
#[ignore = "needs fio; run by cargo xtask test"]
fn t0210_sequential_write() {
    check_fio(SEPARATE, WRITE);
}

#[test]
#[ignore = "needs fio; run by cargo xtask test"]
fn t0211_sequential_write_direct() {
    check_fio(SEPARATE, WRITE_DIRECT);
}

#[test]
#[ignore = "needs fio; run by cargo xtask test"]
fn t0212_sequential_write_aggregated() {
    check_fio(AGGREGATED, WRITE);
}

#[test]
#[ignore = "needs fio; run by cargo xtask test"]
fn t0213_sequential_write_aggregated_direct() {
    check_fio(AGGREGATED, WRITE_DIRECT);
}

/// The whole file in one call, through the page cache and around it.
fn check_large_write(aggregated: &[&str]) {
    for shape in [&PLAIN, &ODD] {
        for flags in [OFlags::empty(), OFlags::DIRECT] {
            let Some(drive) = Drive::mounted(shape, aggregated) else { return };
            let len = size(&drive.cnv(0));
            assert_eq!(write_at(&drive.cnv(0), flags, 0, len), Ok(len), "{flags:?}");
            drive.remount("");
            io::assert_content(&drive.cnv(0), len);
        }
    }
}

#[test]
fn t0214_large_write() {
    check_large_write(SEPARATE);
}

#[test]
fn t0215_large_write_aggregated() {
    check_large_write(AGGREGATED);
}

const READ: &[&str] = &["--rw=read"];
const READ_DIRECT: &[&str] = &["--rw=read", "--direct=1"];

#[test]
#[ignore = "needs fio; run by cargo xtask test"]
fn t0216_sequential_read() {
    check_fio(SEPARATE, READ);
}

#[test]
#[ignore = "needs fio; run by cargo xtask test"]
fn t0217_sequential_read_direct() {
    check_fio(SEPARATE, READ_DIRECT);
}

#[test]
#[ignore = "needs fio; run by cargo xtask test"]
fn t0218_sequential_read_aggregated() {
    check_fio(AGGREGATED, READ);
}

#[test]
#[ignore = "needs fio; run by cargo xtask test"]
fn t0219_sequential_read_aggregated_direct() {
    check_fio(AGGREGATED, READ_DIRECT);
}

/// The whole file in one call. Blocks without data read as zeroes.
fn check_large_read(aggregated: &[&str]) {
    let Some(drive) = Drive::mounted(&SHORT, aggregated) else { return };
    let len = size(&drive.cnv(0));
    write_at(&drive.cnv(0), OFlags::DIRECT, 0, len / 2).unwrap();
    for flags in [OFlags::empty(), OFlags::DIRECT] {
        let read = read_at(&drive.cnv(0), flags, 0, len).unwrap();
        assert_eq!(read.len() as u64, len);
        let (written, rest) = read.split_at(read.len() / 2);
        assert!(*written == *Aligned::content(0, len / 2), "{flags:?}");
        assert!(rest.iter().all(|byte| *byte == 0), "{flags:?}");
    }
}

#[test]
fn t0220_large_read() {
    check_large_read(SEPARATE);
}

#[test]
fn t0221_large_read_aggregated() {
    check_large_read(AGGREGATED);
}

#[test]
fn t0222_readahead() {
    let Some(drive) = Drive::mounted(&PLAIN, SEPARATE) else { return };
    // After a direct write, the page cache has the same data, whatever it had before.
    for round in 0..3 {
        let offset = round * 4096;
        write_at(&drive.cnv(0), OFlags::DIRECT, offset, 512).unwrap();
        let read = read_at(&drive.cnv(0), OFlags::empty(), offset, 512).unwrap();
        assert!(*read == *Aligned::content(offset, 512));
        write_at(&drive.cnv(0), OFlags::empty(), offset + 100, 8).unwrap();
        let read = read_at(&drive.cnv(0), OFlags::DIRECT, offset, 512).unwrap();
        assert_eq!(read[100..108], *Aligned::content(offset + 100, 8));
    }
    drop_inodes();
}

#[test]
fn t0223_read_beyond_the_end() {
    for shape in CONVENTIONAL {
        let Some(drive) = Drive::mounted(shape, SEPARATE) else { return };
        let (file, len) = (drive.cnv(0), shape.zone);
        let read = |flags, offset, len| read_at(&file, flags, offset, len).map(|read| read.len());
        for flags in [OFlags::empty(), OFlags::DIRECT] {
            let last = len - shape.block;
            let short = usize::try_from(shape.block).unwrap();
            assert_eq!(read(flags, last, 2 * shape.block), Ok(short), "{flags:?}");
            assert_eq!(read(flags, len, shape.block), Ok(0));
            assert_eq!(read(flags, len + 1, shape.block), Ok(0));
        }
        assert_eq!(read(OFlags::DIRECT, 1, shape.block), Err(Errno::INVAL));
        assert_eq!(read(OFlags::DIRECT, 0, 100), Err(Errno::INVAL));
        // Writes stop at the end of the file too.
        for flags in [OFlags::empty(), OFlags::DIRECT] {
            let last = len - shape.block;
            assert_eq!(write_at(&file, flags, last, 2 * shape.block), Ok(shape.block));
            assert_eq!(write_at(&file, flags, len, shape.block), Err(Errno::FBIG));
        }
        assert_eq!(write_at(&file, OFlags::DIRECT, 1, shape.block), Err(Errno::INVAL));
        for flags in [OFlags::APPEND, OFlags::APPEND | OFlags::DIRECT] {
            assert_eq!(write_at(&file, flags, 0, shape.block), Err(Errno::INVAL), "{flags:?}");
        }
        assert_eq!(append(&drive.seq(0), shape.block), Ok(shape.block));
    }
}

/// The aggregated file is a disk for other file systems: the use that its inventors name.
#[test]
#[ignore = "needs loop devices; run by cargo xtask test"]
fn conventional_aggregated_file_holds_ext4() {
    let (Some(mkfs), Some(fsck)) = (find("mkfs.ext4"), find("e2fsck")) else { return };
    let Some(drive) = Drive::mounted(&SHORT, AGGREGATED) else { return };
    let run = |program: &std::path::Path, arguments: &[&str]| {
        output(std::process::Command::new(program).args(arguments))
    };
    let (disk, inside) = (drive.cnv(0).display().to_string(), drive.outside("inside"));
    let dir = inside.display().to_string();
    fs::create_dir(&inside).unwrap();
    must(&run(&mkfs, &["-q", &disk]));
    let mounted = run("mount".as_ref(), &["-o", "loop", &disk, &dir]);
    if !mounted.status.success() {
        println!("SKIP: no loop device: {}", crate::drive::text(&mounted));
        return;
    }
    let data = Aligned::content(0, 8 << 20);
    fs::write(inside.join("file"), &*data).unwrap();
    must(&run("umount".as_ref(), &[&dir]));
    drive.remount("");
    must(&run(&fsck, &["-f", "-n", &disk]));
    must(&run("mount".as_ref(), &["-o", "loop,ro", &disk, &dir]));
    let same = fs::read(inside.join("file")).unwrap() == *data;
    must(&run("umount".as_ref(), &[&dir]));
    assert!(same, "the content of the file");
}
