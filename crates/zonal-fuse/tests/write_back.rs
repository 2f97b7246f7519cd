//! The kernel's write-back cache (`-o writeback`): bounded, sent in time, and without surprises.

#![allow(clippy::unwrap_used, reason = "this is test code")]

mod mounted;

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::process::Command;

use mounted::Mounted;
use mounted::held::until;
use rustix::fs::{AtFlags, SeekFrom, StatxFlags};

/// What the kernel may collect.
const COLLECTED_MAX: u64 = 32 << 20;

#[test]
#[ignore = "the daemon of the other tests"]
fn daemon() {
    mounted::daemon();
}

fn mount() -> Option<Mounted> {
    mounted::mount_with("writeback")
}

/// Bytes that the file system itself has of a file.
fn stored(file: &File) -> u64 {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_FORCE_SYNC;
    rustix::fs::statx(file, "", flags, StatxFlags::BLOCKS).unwrap().stx_blocks * 512
}

#[test]
fn the_kernel_collects_no_more_than_it_may() {
    let Some(mounted) = mount() else { return };
    let device = fs::metadata(mounted.root()).unwrap().dev();
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let limit = |name: &str| -> u64 {
        let path = format!("/sys/class/bdi/{major}:{minor}/{name}");
        fs::read_to_string(path).unwrap().trim().parse().unwrap()
    };
    until(|| {
        limit("strict_limit") == 1 && limit("max_bytes") <= COLLECTED_MAX + (COLLECTED_MAX >> 4)
    });
}

#[test]
fn what_a_program_leaves_in_the_cache_is_sent_after_some_seconds() {
    let Some(mut mounted) = mount() else { return };
    let mut file = File::create_new(mounted.path("file")).unwrap();
    file.write_all(&[7; 8192]).unwrap();
    assert_eq!(stored(&file), 0, "the kernel has it");
    until(|| stored(&file) == 8192);
    drop(file);
    mounted.unmount();
}

#[test]
fn holes_are_exact_in_files_that_nobody_has_open_for_writing() {
    let Some(mut mounted) = mount() else { return };
    let path = mounted.path("file");
    let writer = File::create_new(&path).unwrap();
    for at in [64, 100, 250] {
        writer.write_all_at(&[at; 4096], u64::from(at) * 4096).unwrap();
    }
    writer.set_len(1 << 21).unwrap();
    let reader = File::open(&path).unwrap();
    let seek = |whence| rustix::fs::seek(&reader, whence).map(|offset| offset / 4096);
    assert_eq!(seek(SeekFrom::Data(0)), Err(rustix::io::Errno::INVAL), "the kernel may have data");
    drop(writer);
    until(|| seek(SeekFrom::Data(0)).is_ok());
    assert_eq!(seek(SeekFrom::Data(0)), Ok(64));
    assert_eq!(seek(SeekFrom::Hole(64 * 4096)), Ok(65));
    assert_eq!(seek(SeekFrom::Data(65 * 4096)), Ok(100));
    assert_eq!(seek(SeekFrom::Data(101 * 4096)), Ok(250));
    assert_eq!(seek(SeekFrom::Hole(250 * 4096)), Ok(251));
    drop(reader);
    mounted.unmount();
}

/// Bytes that there is room for.
fn room(mounted: &Mounted) -> u64 {
    let stat = rustix::fs::statvfs(mounted.root()).unwrap();
    stat.f_bavail * stat.f_frsize
}

/// Writes and syncs 8 MiB at a time to a new file until there is no room: which call says so, and how much it took.
fn fill(mounted: &Mounted, name: &str) -> (&'static str, usize) {
    let mut file = File::create_new(mounted.path(name)).unwrap();
    let chunk = vec![9; 8 << 20];
    for synced in 0.. {
        let written = file.write_all(&chunk).map_err(|error| ("write", error));
        let done = written.and_then(|()| file.sync_all().map_err(|error| ("fsync", error)));
        if let Err((who, error)) = done {
            assert_eq!(error.kind(), ErrorKind::StorageFull, "{error}");
            return (who, synced * chunk.len());
        }
    }
    unreachable!("a drive is full at some time")
}

#[test]
fn a_full_drive_is_said_by_fsync_and_by_write_to_files_opened_since() {
    let Some(mut mounted) = mount() else { return };
    // Less than what makes the kernel collect again.
    fs::write(mounted.path("room"), vec![1; 40 << 20]).unwrap();
    let (who, first) = fill(&mounted, "first");
    assert!(who == "fsync" && first > 1 << 30, "{who} after {first} bytes");
    fs::remove_file(mounted.path("room")).unwrap();
    let (who, second) = fill(&mounted, "second");
    assert_eq!(who, "write", "after {second} bytes");
    mounted.remount("writeback");
    for (name, synced) in [("first", first), ("second", second)] {
        let content = fs::read(mounted.path(name)).unwrap();
        assert!(content[..synced].iter().all(|&byte| byte == 9), "{name}: {synced} bytes");
    }
    mounted.unmount();
}

#[test]
fn a_full_drive_is_said_by_write_and_close_of_a_file_opened_before() {
    let Some(mut mounted) = mount() else { return };
    // More than what makes the kernel open files for direct writes.
    fs::write(mounted.path("room"), vec![1; 120 << 20]).unwrap();
    fill(&mounted, "first");
    fs::remove_file(mounted.path("room")).unwrap();
    let path = mounted.path("second");
    let mut file = File::create_new(&path).unwrap();
    let chunk = vec![9; 1 << 20];
    let mut writes = 0;
    let error = loop {
        match file.write_all(&chunk) {
            Ok(()) => writes += 1,
            Err(error) => break error,
        }
        assert!(writes < 400, "a program that fills the drive would never end");
    };
    assert_eq!(error.kind(), ErrorKind::StorageFull, "{error}, after {writes} MiB");
    assert!(file.metadata().is_ok(), "it can be looked at still");
    assert_eq!(file.write(&chunk).unwrap_err().kind(), ErrorKind::StorageFull);
    fs::remove_file(mounted.path("first")).unwrap();
    file.sync_all().unwrap_err();
    file.sync_all().unwrap();
    file.write_all(&chunk).unwrap();
    file.sync_all().unwrap();
    drop(file);
    fs::remove_file(path).unwrap();
    mounted.unmount();
}

#[test]
fn nothing_is_lost_without_an_error() {
    let Some(mut mounted) = mount() else { return };
    fs::write(mounted.path("room"), vec![1; 80 << 20]).unwrap();
    fill(&mounted, "first");
    fs::remove_file(mounted.path("room")).unwrap();
    for attempt in 0..2 {
        let mut writer = Command::new("dd");
        let held = File::create(mounted.path("held")).unwrap();
        let room = room(&mounted);
        // There is no room for the end, which the kernel has when the program closes the file.
        writer.args(["if=/dev/zero", "bs=4k", "conv=notrunc", "status=none"]);
        writer.arg(format!("count={}", room / 4096 + 2000)).stdout(held);
        let done = writer.output().unwrap();
        let said = String::from_utf8_lossy(&done.stderr);
        assert!(!done.status.success(), "attempt {attempt}: nobody was told");
        assert!(said.contains("No space left"), "attempt {attempt}: {said}");
        fs::remove_file(mounted.path("held")).unwrap();
    }
    mounted.unmount();
}

#[test]
fn times_of_kernel_and_file_system_are_in_order() {
    let Some(mut mounted) = mount() else { return };
    for round in 0..50 {
        let (earlier, later) = (format!("earlier-{round}"), format!("later-{round}"));
        fs::write(mounted.path(&earlier), "the kernel's time").unwrap();
        fs::create_dir(mounted.path(&later)).unwrap();
        let time = |name: &str| {
            let found = fs::metadata(mounted.path(name)).unwrap();
            (found.mtime(), found.mtime_nsec())
        };
        assert!(time(&earlier) <= time(&later), "round {round}");
    }
    mounted.unmount();
}
