//! The content of files through a real mount: mappings, direct and synchronous writes, holes,
//! ranges, copies and locks.
//!
//! Mapping memory needs `unsafe` in Rust, so the tests of mappings are Python.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom as StdSeek, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::Command;

use crate::mounted;
use crate::mounted::content::{O_DIRECT, aligned, open, pattern};
use crate::mounted::held::{held, hold};
use crate::mounted::tools;
use rustix::fs::{FallocateFlags, SeekFrom, copy_file_range, fallocate, seek};
use rustix::io::{Errno, ReadWriteFlags};
use zonal::wait::wait_until;

fn python(script: &str, path: &Path) {
    tools::run(Command::new("python3").args(["-c", script]).arg(path));
}

#[test]
fn mmap_shared_writes_file() {
    let Some(mounted) = mounted::mount() else { return };
    python(
        "
import mmap, os, sys, time
path = sys.argv[1]
fd = os.open(path, os.O_RDWR | os.O_CREAT)
os.write(fd, b'a' * 10000)
before = os.stat(path)
time.sleep(0.01)
shared = mmap.mmap(fd, 10000)
shared[0:4] = b'MMAP'
shared[9000:9004] = b'LAST'
assert os.pread(fd, 4, 0) == b'MMAP', 'read(2) sees the mapping'
os.pwrite(fd, b'WRITTEN', 100)
assert shared[100:107] == b'WRITTEN', 'the mapping sees write(2)'
shared.flush()
after = os.stat(path)
assert after.st_mtime_ns > before.st_mtime_ns, 'mtime after msync'
assert after.st_ctime_ns > before.st_ctime_ns
time.sleep(0.01)
shared[1:2] = b'x'
shared.close()
assert os.stat(path).st_mtime_ns > after.st_mtime_ns, 'mtime after munmap'
assert os.stat(path).st_size == 10000
open('/proc/sys/vm/drop_caches', 'w').write('1')
assert os.pread(fd, 4, 0) == b'MxAP' and os.pread(fd, 4, 9000) == b'LAST'
",
        &mounted.path("file"),
    );
}

#[test]
fn mmap_private_leaves_file_alone() {
    let Some(mounted) = mounted::mount() else { return };
    python(
        "
import mmap, os, sys
fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
os.write(fd, b'a' * 5000)
private = mmap.mmap(fd, 5000, flags=mmap.MAP_PRIVATE)
private[0:5] = b'local'
assert os.pread(fd, 5, 0) == b'aaaaa'
private.close()
read = mmap.mmap(fd, 5000, prot=mmap.PROT_READ)
assert read[4999:5000] == b'a'
",
        &mounted.path("file"),
    );
}

#[test]
fn mmap_works_on_direct_file() {
    let Some(mounted) = mounted::mount() else { return };
    python(
        "
import mmap, os, sys
path = sys.argv[1]
fd = os.open(path, os.O_RDWR | os.O_CREAT)
os.write(fd, b'a' * 8192)
direct = os.open(path, os.O_RDWR | os.O_DIRECT)
shared = mmap.mmap(direct, 8192)
assert shared[0:4] == b'aaaa'
shared[0:4] = b'MMAP'
shared.flush()
block = mmap.mmap(-1, 4096)
assert os.preadv(direct, [block], 0) == 4096 and block[0:4] == b'MMAP'
block[0:6] = b'DIRECT'
assert os.pwritev(direct, [block], 0) == 4096
assert os.pread(fd, 6, 0) == b'DIRECT', 'the page cache sees a direct write'
",
        &mounted.path("file"),
    );
}

#[test]
fn direct_and_cached_io_see_each_other() {
    let Some(mounted) = mounted::mount() else { return };
    let path = mounted.path("file");
    fs::write(&path, pattern(1 << 20)).unwrap();
    let (cached, direct) = (open(&path, 0), open(&path, O_DIRECT));
    let (mut buffer, range) = aligned(65536, 0);
    direct.read_exact_at(&mut buffer[range.clone()], 4096).unwrap();
    assert!(buffer[range.clone()] == pattern(1 << 20)[4096..4096 + 65536]);
    buffer[range.clone()].fill(9);
    direct.write_all_at(&buffer[range.clone()], 8192).unwrap();
    let mut seen = [0; 3];
    cached.read_exact_at(&mut seen, 8191).unwrap();
    assert_eq!(seen[1..], [9, 9]);
    cached.write_all_at(b"cached", 8192).unwrap();
    direct.read_exact_at(&mut buffer[range.clone()], 8192).unwrap();
    assert_eq!(&buffer[range][..6], b"cached");
    // Past the end, and grown by a direct write.
    let (grown, range) = aligned(4096, 5);
    direct.write_all_at(&grown[range], 2 << 20).unwrap();
    assert_eq!(cached.metadata().unwrap().len(), (2 << 20) + 4096);
}

#[test]
fn append_by_several_writers_loses_nothing() {
    let Some(mounted) = mounted::mount() else { return };
    let path = mounted.path("file");
    tools::shell(
        &mounted.root(),
        "for i in 1 2 3 4; do (for j in $(seq 250); do echo \"$i $j\" >> file; done) & done; wait",
        &[],
    );
    let mut lines: Vec<_> = fs::read_to_string(&path).unwrap().lines().map(str::to_owned).collect();
    lines.sort();
    lines.dedup();
    assert_eq!(lines.len(), 1000);
}

#[test]
fn append_by_single_pwritev2_goes_to_end() {
    let Some(mounted) = mounted::mount() else { return };
    let file = open(&mounted.path("file"), 0);
    file.write_all_at(b"start", 0).unwrap();
    let data = [std::io::IoSlice::new(b" end")];
    let flags = ReadWriteFlags::from_bits_retain(0x10); // RWF_APPEND
    assert_eq!(rustix::io::pwritev2(&file, &data, 0, flags).unwrap(), 4);
    assert_eq!(fs::read(mounted.path("file")).unwrap(), b"start end");
}

#[test]
fn files_reach_eight_exbibytes() {
    let Some(mounted) = mounted::mount() else { return };
    let file = open(&mounted.path("file"), 0);
    let last = u64::try_from(i64::MAX).unwrap() - 1;
    file.write_all_at(b"!", last - 1).unwrap();
    assert_eq!(file.metadata().unwrap().len(), last);
    file.write_all_at(b"?", 1 << 40).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, last - 1).unwrap();
    assert_eq!(&byte, b"!");
    assert!(file.metadata().unwrap().blocks() <= 64);
    assert_eq!(seek(&file, SeekFrom::Data(0)).unwrap() & !0xfff, 1 << 40);
    file.set_len(0).unwrap();
    file.set_len(last).unwrap();
    assert_eq!(seek(&file, SeekFrom::Data(0)), Err(Errno::NXIO));
}

#[test]
fn seek_tells_holes_from_data() {
    let Some(mounted) = mounted::mount() else { return };
    let file = open(&mounted.path("file"), 0);
    file.write_all_at(&[1; 4096], 1 << 20).unwrap();
    file.set_len(3 << 20).unwrap();
    assert_eq!(seek(&file, SeekFrom::Data(0)).unwrap(), 1 << 20);
    assert_eq!(seek(&file, SeekFrom::Hole(1 << 20)).unwrap(), (1 << 20) + 4096);
    assert_eq!(seek(&file, SeekFrom::Hole(5)).unwrap(), 5);
    assert_eq!(seek(&file, SeekFrom::Data((1 << 20) + 4096)), Err(Errno::NXIO));
    assert_eq!(seek(&file, SeekFrom::Hole(3 << 20)), Err(Errno::NXIO));
    assert!(file.metadata().unwrap().blocks() < 64);
}

#[test]
fn fallocate_extends_punches_and_zeroes() {
    let Some(mounted) = mounted::mount() else { return };
    let file = open(&mounted.path("file"), 0);
    let read = || fs::read(mounted.path("file")).unwrap();
    let mut expected = pattern(100_000);
    file.write_all_at(&expected, 0).unwrap();
    fallocate(&file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 5000, 50_000).unwrap();
    expected[5000..55_000].fill(0);
    assert!(read() == expected);
    fallocate(&file, FallocateFlags::ZERO_RANGE, 90_000, 20_000).unwrap();
    expected[90_000..].fill(0);
    expected.resize(110_000, 0);
    assert!(read() == expected);
    fallocate(&file, FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE, 80_000, 50_000)
        .unwrap();
    expected[80_000..].fill(0);
    assert!(read() == expected);
    fallocate(&file, FallocateFlags::KEEP_SIZE, 0, 1 << 20).unwrap();
    assert!(read() == expected);
    fallocate(&file, FallocateFlags::empty(), 0, 200_000).unwrap();
    expected.resize(200_000, 0);
    assert!(read() == expected);
    let refused = fallocate(&file, FallocateFlags::COLLAPSE_RANGE, 0, 4096);
    assert_eq!(refused, Err(Errno::OPNOTSUPP));
}

#[test]
fn copy_file_range_works_between_files() {
    let Some(mounted) = mounted::mount() else { return };
    let (source, target) = (open(&mounted.path("source"), 0), open(&mounted.path("target"), 0));
    let data = pattern(3 << 20);
    source.write_all_at(&data, 0).unwrap();
    let (mut from, mut to) = (4096, 8192);
    let mut left: usize = 2 << 20;
    while left > 0 {
        let copied =
            copy_file_range(&source, Some(&mut from), &target, Some(&mut to), left).unwrap();
        assert!(copied > 0);
        left -= copied;
    }
    // One side changes: the other must not.
    source.write_all_at(&vec![0; 65536], 100_000).unwrap();
    let seen = fs::read(mounted.path("target")).unwrap();
    assert!(seen[..8192].iter().all(|byte| *byte == 0));
    assert!(seen[8192..] == data[4096..4096 + (2 << 20)]);
    let end = copy_file_range(&source, Some(&mut (3 << 20)), &target, Some(&mut 0), 10).unwrap();
    assert_eq!(end, 0);
}

#[test]
fn locks_hold_between_processes() {
    let Some(mounted) = mounted::mount() else { return };
    python(
        "
import fcntl, os, struct, sys
path = sys.argv[1]
fd = os.open(path, os.O_RDWR | os.O_CREAT)
os.write(fd, b'x' * 100)
def other(take):
    pid = os.fork()
    if pid == 0:
        try:
            take(os.open(path, os.O_RDWR))
        except OSError as error:
            os._exit(error.errno)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
def record(start):
    return lambda fd: fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 10, start)
record(0)(fd)
assert other(record(5)) == 11, 'a locked range is refused'
assert other(record(50)) == 0, 'another range is free'
fcntl.lockf(fd, fcntl.LOCK_UN)
assert other(record(5)) == 0
whole = lambda fd: fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
whole(fd)
assert other(whole) == 11
fcntl.flock(fd, fcntl.LOCK_UN)
assert other(whole) == 0
ofd = lambda fd: fcntl.fcntl(fd, 37, struct.pack('hhqqi4x', fcntl.F_WRLCK, 0, 0, 10, 0))
ofd(fd)
assert other(ofd) == 11, 'an open file description lock'
",
        &mounted.path("file"),
    );
}

#[test]
fn truncate_cuts_and_fills_with_zeroes() {
    let Some(mounted) = mounted::mount() else { return };
    let mut file = open(&mounted.path("file"), 0);
    file.write_all(&[7; 10_000]).unwrap();
    file.set_len(5_001).unwrap();
    file.set_len(9_000).unwrap();
    let mut seen = Vec::new();
    file.seek(StdSeek::Start(0)).unwrap();
    file.read_to_end(&mut seen).unwrap();
    assert_eq!(seen.len(), 9_000);
    assert!(seen[..5_001].iter().all(|byte| *byte == 7));
    assert!(seen[5_001..].iter().all(|byte| *byte == 0));
    File::options().write(true).truncate(true).open(mounted.path("file")).unwrap();
    assert_eq!(fs::read(mounted.path("file")).unwrap(), b"");
}

#[test]
fn direct_writes_by_aio_leave_no_old_pages() {
    if tools::find("fio").is_none() {
        return;
    }
    let Some(mounted) = mounted::mount() else { return };
    let path = mounted.path("file");
    fs::write(&path, vec![0; 1 << 20]).unwrap();
    let cached = open(&path, 0);
    let mut buffer = vec![0; 1 << 20];
    for round in 1..=6 {
        let mut writer = Command::new("fio")
            .args(["--name=w", "--filename=file", "--rw=write", "--bs=16k", "--size=1m"])
            .args(["--direct=1", "--ioengine=libaio", "--iodepth=16", "--invalidate=0"])
            .args(["--overwrite=1", &format!("--buffer_pattern=0x{round:02x}")])
            .current_dir(mounted.root())
            .stdout(std::process::Stdio::null())
            .spawn()
            .unwrap();
        // Reads that race with the writes fill the page cache with data that is about to be
        // overwritten.
        while writer.try_wait().unwrap().is_none() {
            cached.read_exact_at(&mut buffer, 0).unwrap();
        }
        cached.read_exact_at(&mut buffer, 0).unwrap();
        assert!(buffer.iter().all(|byte| *byte == round), "old pages after round {round}");
    }
}

/// A program's queue depth is the drive's. The threads that wait are held back until all of them
/// are there.
#[test]
fn reads_waiting_for_device_equal_thread_count() {
    const READS: u64 = 32;
    let Some(mounted) = mounted::mount_with("threads=34") else { return };
    let path = mounted.path("file");
    let content: Vec<u8> = (0..READS).flat_map(|at| [u8::try_from(at).unwrap(); 4096]).collect();
    fs::write(&path, &content).unwrap();
    let file = open(&path, O_DIRECT);
    file.sync_all().unwrap();
    File::create(hold(mounted.drive(), "read")).unwrap();
    let is_there = || {
        let held = fs::metadata(held(mounted.drive(), "read"));
        held.is_ok_and(|held| held.len() == READS)
    };
    std::thread::scope(|scope| {
        let (file, content) = (&file, content.chunks(4096));
        let reads: Vec<_> = (0..READS)
            .zip(content)
            .map(|(at, expected)| {
                scope.spawn(move || {
                    let (mut buffer, place) = aligned(4096, 0xee);
                    file.read_exact_at(&mut buffer[place.clone()], at * 4096).unwrap();
                    assert!(buffer[place] == *expected, "block {at}");
                })
            })
            .collect();
        wait_until(is_there);
        fs::remove_file(hold(mounted.drive(), "read")).unwrap();
        for read in reads {
            read.join().unwrap();
        }
    });
}

/// Fills the file system with a file of about 150 MB, after preallocating the rest to another file.
/// Only written space takes a moment to come back.
fn fill(mounted: &mounted::Mounted) -> std::io::Result<File> {
    const LEFT: u64 = 150 << 20;
    let stat = rustix::fs::statvfs(mounted.root())?;
    if let Some(len) = (stat.f_bfree * stat.f_bsize).checked_sub(LEFT).filter(|len| *len > 0) {
        let ballast = File::create(mounted.path(&format!("ballast {len}")))?;
        fallocate(&ballast, FallocateFlags::empty(), 0, len)?;
    }
    let mut file = File::create(mounted.path("full"))?;
    for data in [vec![1; 1 << 20], vec![1; 4096]] {
        while file.write_all(&data).is_ok() {}
    }
    Ok(file)
}

#[test]
fn space_of_deleted_file_returns_at_close() {
    let Some(mounted) = mounted::mount() else { return };
    let data = vec![7; 1_000_000];
    let kept = File::create(mounted.path("kept")).unwrap();
    for turn in 0..3 {
        let full = fill(&mounted).unwrap();
        fs::remove_file(mounted.path("full")).unwrap();
        if turn == 0 {
            let refused = kept.write_all_at(&data, 0).unwrap_err();
            assert_eq!(refused.raw_os_error(), Some(Errno::NOSPC.raw_os_error()));
        }
        drop(full);
        kept.write_all_at(&data, 0).unwrap_or_else(|error| panic!("turn {turn}: {error}"));
        kept.set_len(0).unwrap();
    }
}
