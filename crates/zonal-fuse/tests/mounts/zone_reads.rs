//! Direct reads of a writable zonefs, by the hidden mount: many at once. The hidden mount ends with
//! the visible one, even if programs have files open there.
//!
//! The drive is held back at the moments that matter, so that nothing here depends on time. The
//! programs are Python, with asynchronous I/O by `aio.py`.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::thread;
use std::time::Duration;

use crate::mounted;
use crate::mounted::content::{O_DIRECT, aligned};
use crate::mounted::held::{held, hold};
use crate::mounted::{Mounted, NEVER, offer, tools};
use rustix::mount::UnmountFlags;
use zonal::wait::wait_until;
use zonal_fuse::unmount::{Unmounted, unmount_and_wait};

const BLOCK: usize = 4096;
/// Reads of a program that are on their way together, and bytes of the file.
const READS: usize = 32;
const BYTES: usize = READS * BLOCK;

/// A zonefs with a file of [`BYTES`], each block of another byte.
fn mount() -> Option<(Mounted, PathBuf)> {
    mount_with("")
}

/// The same with mount options.
fn mount_with(options: &str) -> Option<(Mounted, PathBuf)> {
    let mounted = mounted::mount_zones(&format!("threads=40,{options}"))?;
    let path = mounted.path("seq/0");
    let (mut buffer, place) = aligned(BYTES, 0);
    for (number, block) in (1..).zip(buffer[place.clone()].chunks_mut(BLOCK)) {
        block.fill(number);
    }
    writer(&path).write_all_at(&buffer[place], 0).unwrap();
    Some((mounted, path))
}

fn try_reader(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(O_DIRECT).open(path)
}

fn reader(path: &Path) -> File {
    try_reader(path).unwrap()
}

fn writer(path: &Path) -> File {
    OpenOptions::new().write(true).custom_flags(O_DIRECT).open(path).unwrap()
}

/// The first byte of a block.
fn read(file: &File, block: u8) -> io::Result<u8> {
    let (mut buffer, place) = aligned(BLOCK, 0);
    file.read_exact_at(&mut buffer[place.clone()], u64::from(block) * BLOCK as u64)?;
    Ok(buffer[place.start])
}

/// Many reads are with the drive while a write by another descriptor goes across the end of the
/// zone.
const BOTH: &str = r"
path, hold, held = sys.argv[1:]
READS, BLOCK = 32, 4096
reader = os.open(path, os.O_RDONLY | os.O_DIRECT)
writer = os.open(path, os.O_WRONLY | os.O_DIRECT)
size, room = os.fstat(reader).st_size, os.fstat(reader).st_blocks * 512
assert size == READS * BLOCK
piece = mmap.mmap(-1, 1 << 20)
piece.write(b'w' * len(piece))
while room - size > len(piece):
    size += os.pwrite(writer, piece, size)
buffers = [mmap.mmap(-1, BLOCK) for _ in range(READS)]
reads, writes = setup(READS), setup(1)
open(hold, 'x').close()
try:
    submit(reads, [control(at, PREAD, reader, address(buffers[at]), BLOCK, at * BLOCK) for at in range(READS)])
    wait_until(lambda: os.path.exists(held) and os.stat(held).st_size == READS)
    submit(writes, [control(7, PWRITE, writer, address(piece), len(piece), size)])
    written = results(writes, 1, 1)
finally:
    os.unlink(hold)
assert written == {7: room - size}, (written, room - size)
assert results(reads, READS, READS) == {at: BLOCK for at in range(READS)}
for at, buffer in enumerate(buffers):
    assert buffer[:] == bytes([at + 1]) * BLOCK, at
# At the end reads are short, and beyond it empty.
submit(reads, [control(at, PREAD, reader, address(piece), BLOCK * 2, room - BLOCK + at * BLOCK) for at in range(2)])
assert results(reads, 2, 2) == {0: BLOCK, 1: 0}
";

fn check_both(options: &str) {
    let Some(mut python) = tools::aio(BOTH) else { return };
    let Some((mut mounted, path)) = mount_with(options) else { return };
    python.arg(&path).arg(hold(mounted.drive(), "read")).arg(held(mounted.drive(), "read"));
    tools::run(&mut python);
    mounted.unmount();
}

#[test]
fn reads_are_concurrent_during_short_write_across_end() {
    check_both("nouring");
}

#[test]
fn reads_are_concurrent_with_uring() {
    let Some(_offer) = offer::set("Y") else { return };
    check_both("uring");
}

/// Reads of a program that wait for the drive; it ends well once each of them has failed.
fn reads_that_fail(mounted: &Mounted, path: &Path) -> Option<Child> {
    const FAILING: &str = r"
path, = sys.argv[1:]
READS, BLOCK = 32, 4096
reader = os.open(path, os.O_RDONLY | os.O_DIRECT)
buffer, context = mmap.mmap(-1, BLOCK), setup(READS)
submit(context, [control(at, PREAD, reader, address(buffer), BLOCK, at * BLOCK) for at in range(READS)])
sys.exit(any(result >= 0 for result in results(context, READS, READS).values()))
";
    let mut python = tools::aio(FAILING)?;
    File::create(hold(mounted.drive(), "read")).unwrap();
    let program = python.arg(path).stdin(Stdio::null()).spawn().unwrap();
    let waiting = || fs::metadata(held(mounted.drive(), "read"));
    wait_until(|| waiting().is_ok_and(|held| held.len() == READS as u64));
    Some(program)
}

#[test]
fn readers_of_killed_daemon_get_errors() {
    let Some((mut mounted, path)) = mount() else { return };
    let file = reader(&path);
    assert_eq!(read(&file, 0).unwrap(), 1);
    let Some(mut program) = reads_that_fail(&mounted, &path) else { return };
    // It has ended when this returns.
    mounted.kill_daemon();
    assert!(program.wait().unwrap().success());
    assert!(read(&file, 0).is_err());
    drop(file);
    let unmounted = unmount_and_wait(&mounted.root(), NEVER).unwrap();
    assert_eq!(unmounted, Unmounted::DaemonWasDead);
    assert!(!mounted.is_mounted());
    let _ = fs::remove_file(hold(mounted.drive(), "read"));
    mounted.start("");
    assert_eq!(read(&reader(&path), 0).unwrap(), 1);
    mounted.unmount();
}

#[test]
fn daemons_killed_during_opens_end() {
    let Some((mut mounted, path)) = mount() else { return };
    for turn in 0..8 {
        thread::scope(|scope| {
            let openers: Vec<_> = (0..4)
                .map(|_| {
                    // Each open of a file that no other process has open asks the hidden mount.
                    scope.spawn(|| while try_reader(&path).is_ok() {})
                })
                .collect();
            thread::park_timeout(Duration::from_millis(20 + 7 * turn));
            mounted.kill();
            for opener in openers {
                opener.join().unwrap();
            }
        });
        mounted.start("");
    }
    assert_eq!(read(&reader(&path), 0).unwrap(), 1);
    mounted.unmount();
}

#[test]
fn mount_taken_away_is_served_until_last_close() {
    let Some((mut mounted, path)) = mount() else { return };
    let (file, beside) = (reader(&path), File::open(&path).unwrap());
    rustix::mount::unmount(mounted.root(), UnmountFlags::DETACH).unwrap();
    assert_eq!(read(&file, 5).unwrap(), 6);
    assert_eq!(read(&beside, 6).unwrap(), 7);
    drop((file, beside));
    mounted.wait();
    mounted.start("");
    assert_eq!(read(&reader(&path), 5).unwrap(), 6);
    mounted.unmount();
}

#[test]
fn hidden_mount_is_taken_from_readers_at_daemon_end() {
    let Some((mut mounted, path)) = mount() else { return };
    let file = reader(&path);
    assert_eq!(read(&file, 0).unwrap(), 1);
    let Some(mut program) = reads_that_fail(&mounted, &path) else { return };
    mounted.signal();
    wait_until(|| !mounted.is_mounted());
    fs::remove_file(hold(mounted.drive(), "read")).unwrap();
    mounted.wait();
    let _ = program.wait();
    assert!(read(&file, 0).is_err());
}
