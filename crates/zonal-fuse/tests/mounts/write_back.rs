//! The kernel's write-back cache (`-o writeback`): bounded, sent in time, and without surprises.

use std::fs::{self, File, Permissions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, fchown};
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use crate::mounted;
use crate::mounted::Mounted;
use crate::mounted::content::{O_DIRECT, aligned, open};
use rustix::fs::{
    AtFlags, CWD, FallocateFlags, IFlags, SeekFrom, StatxFlags, Timespec, Timestamps, UTIME_NOW,
    UTIME_OMIT, copy_file_range, futimens, ioctl_setflags, utimensat,
};
use rustix::io::Errno;
use zonal::wait::wait_until;

/// The most data that the kernel may collect.
const COLLECTED_MAX: u64 = 32 << 20;

fn mount() -> Option<Mounted> {
    mounted::mount_with("writeback")
}

/// Bytes that the file system itself has of a file.
fn stored(file: &File) -> u64 {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_FORCE_SYNC;
    rustix::fs::statx(file, "", flags, StatxFlags::BLOCKS).unwrap().stx_blocks * 512
}

#[test]
fn writeback_cache_stays_within_limit() {
    let Some(mounted) = mount() else { return };
    let device = fs::metadata(mounted.root()).unwrap().dev();
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let limit = |name: &str| -> u64 {
        let path = format!("/sys/class/bdi/{major}:{minor}/{name}");
        fs::read_to_string(path).unwrap().trim().parse().unwrap()
    };
    wait_until(|| {
        limit("strict_limit") == 1 && limit("max_bytes") <= COLLECTED_MAX + (COLLECTED_MAX >> 4)
    });
}

#[test]
fn writeback_sends_cached_data_within_seconds() {
    let Some(mut mounted) = mount() else { return };
    let mut written = (0..100).map(|number| {
        let mut file = File::create_new(mounted.path(&format!("file{number}"))).unwrap();
        file.write_all(&[7; 8192]).unwrap();
        file
    });
    // On a busy machine the kernel may have sent a file before the test looks.
    let file = written.find(|file| stored(file) == 0).expect("the kernel collects");
    wait_until(|| stored(&file) == 8192);
    drop(file);
    mounted.unmount();
}

#[test]
fn seek_finds_exact_holes_in_files_not_open_for_writing() {
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
    wait_until(|| seek(SeekFrom::Data(0)).is_ok());
    assert_eq!(seek(SeekFrom::Data(0)), Ok(64));
    assert_eq!(seek(SeekFrom::Hole(64 * 4096)), Ok(65));
    assert_eq!(seek(SeekFrom::Data(65 * 4096)), Ok(100));
    assert_eq!(seek(SeekFrom::Data(101 * 4096)), Ok(250));
    assert_eq!(seek(SeekFrom::Hole(250 * 4096)), Ok(251));
    drop(reader);
    mounted.unmount();
}

/// Where the bytes lie that the kernel has collected of a new file, and where the hole below them
/// is read.
const COLLECTED_AT: u64 = 400 << 10;
const HOLE_AT: u64 = 8 << 10;

#[test]
fn direct_read_finds_hole_below_collected_bytes() {
    let Some(mut mounted) = mount() else { return };
    let path = mounted.path("file");
    let writer = File::create_new(&path).unwrap();
    writer.write_all_at(b"collected", COLLECTED_AT).unwrap();
    let direct = open(&path, O_DIRECT);
    let (mut buffer, range) = aligned(4096, 9);
    assert_eq!(direct.read_at(&mut buffer[range.clone()], HOLE_AT).unwrap(), 4096);
    assert!(buffer[range.clone()].iter().all(|&byte| byte == 0));
    // Direct reads also find data that is collected later, and the end of the file.
    writer.write_all_at(b"more", 2 * COLLECTED_AT).unwrap();
    assert_eq!(direct.read_at(&mut buffer[range.clone()], COLLECTED_AT).unwrap(), 4096);
    assert!(buffer[range.clone()].starts_with(b"collected\0\0"));
    assert_eq!(direct.read_at(&mut buffer[range.clone()], 2 * COLLECTED_AT).unwrap(), 4);
    assert_eq!(direct.read_at(&mut buffer[range], 4 * COLLECTED_AT).unwrap(), 0);
    drop((writer, direct));
    mounted.unmount();
}

#[test]
fn copy_takes_hole_below_collected_bytes() {
    let Some(mut mounted) = mount() else { return };
    let (source, target) = (open(&mounted.path("source"), 0), open(&mounted.path("target"), 0));
    source.write_all_at(b"collected", COLLECTED_AT).unwrap();
    let (mut from, mut to) = (HOLE_AT, 0);
    let copied = copy_file_range(&source, Some(&mut from), &target, Some(&mut to), 4096).unwrap();
    assert_eq!(copied, 4096);
    drop((source, target));
    assert_eq!(fs::read(mounted.path("target")).unwrap(), [0; 4096]);
    mounted.unmount();
}

/// Bytes that there is room for.
fn room(mounted: &Mounted) -> u64 {
    let stat = rustix::fs::statvfs(mounted.root()).unwrap();
    stat.f_bavail * stat.f_frsize
}

/// Writes and syncs 8 MiB at a time to a new file until the drive is full. Returns the call that
/// failed, and the bytes that were synced before.
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
fn full_drive_is_reported_by_fsync_and_later_writes() {
    let Some(mut mounted) = mount() else { return };
    // Less space than the kernel needs to collect data again.
    fs::write(mounted.path("room"), vec![1; 40 << 20]).unwrap();
    // The kernel may send at any time, so a write(2) may come after the one that did not fit.
    let (who, first) = fill(&mounted, "first");
    assert!(first > 1 << 30, "{who} after {first} bytes");
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
fn full_drive_is_reported_by_write_and_close() {
    let Some(mut mounted) = mount() else { return };
    // More space than the limit below which files are opened for direct writes.
    fs::write(mounted.path("room"), vec![1; 120 << 20]).unwrap();
    fill(&mounted, "first");
    fs::remove_file(mounted.path("room")).unwrap();
    // The kernel releases a deleted file some time after it was closed.
    wait_until(|| room(&mounted) > 100 << 20);
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
    wait_until(|| room(&mounted) > 1 << 30);
    file.sync_all().unwrap_err();
    file.sync_all().unwrap();
    file.write_all(&chunk).unwrap();
    file.sync_all().unwrap();
    drop(file);
    fs::remove_file(path).unwrap();
    mounted.unmount();
}

#[test]
fn errors_are_reported_for_all_lost_data() {
    let Some(mut mounted) = mount() else { return };
    fs::write(mounted.path("room"), vec![1; 80 << 20]).unwrap();
    fill(&mounted, "first");
    fs::remove_file(mounted.path("room")).unwrap();
    let freed = 80 << 20;
    let (mut refused, mut beyond) = (0, 2000);
    while refused < 2 {
        let mut writer = Command::new("dd");
        let held = File::create(mounted.path("held")).unwrap();
        // The kernel releases a deleted file some time after it was closed.
        wait_until(|| room(&mounted) >= freed);
        // There is no room for the last bytes, which the kernel still holds when the program closes
        // the file.
        let count = freed / 4096 + beyond;
        writer.args(["if=/dev/zero", "bs=4k", "conv=notrunc", "status=none"]);
        writer.arg(format!("count={count}")).stdout(held);
        let done = writer.output().unwrap();
        let said = String::from_utf8_lossy(&done.stderr);
        if !done.status.success() {
            assert!(said.contains("No space left"), "{said}");
            refused += 1;
        } else if let Err(error) = File::open(mounted.path("held")).unwrap().sync_all() {
            // A close(2) hands the error mark on to the next close(2), and a concurrent test closes
            // its copy of the file when it executes a program. fsync(2) gets each error from the
            // kernel.
            assert_eq!(error.kind(), ErrorKind::StorageFull, "{error}");
            refused += 1;
        } else {
            // A step of the table has given zones back meanwhile: then all must be on the drive.
            let held = fs::metadata(mounted.path("held")).unwrap();
            assert_eq!(held.blocks() * 512, count * 4096, "blocks are lost");
            beyond += 2000;
            assert!(beyond <= 8000, "nobody was told");
        }
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

fn set_flags(path: &Path, flags: IFlags) {
    ioctl_setflags(File::open(path).unwrap(), flags).unwrap();
}

/// Sets access and modification time; `None` is now.
fn set_times(path: &Path, times: [Option<i64>; 2]) -> rustix::io::Result<()> {
    let [last_access, last_modification] = times.map(|time| Timespec {
        tv_sec: time.unwrap_or_default(),
        tv_nsec: if time.is_some() { 5 } else { UTIME_NOW },
    });
    utimensat(CWD, path, &Timestamps { last_access, last_modification }, AtFlags::empty())
}

#[test]
fn append_only_file_takes_current_times_only() {
    let Some(mut mounted) = mount() else { return };
    let path = mounted.path("file");
    fs::write(&path, "content").unwrap();
    set_times(&path, [Some(1000), Some(2000)]).unwrap();
    set_flags(&path, IFlags::APPEND);
    set_times(&path, [None, None]).unwrap();
    let now = fs::metadata(&path).unwrap();
    assert!(now.mtime() > 2000 && now.atime() > 1000);
    let writer = File::options().append(true).open(&path).unwrap();
    (&writer).write_all(b" and more").unwrap();
    for times in [[Some(7), Some(7)], [Some(7), None], [None, Some(7)]] {
        assert_eq!(set_times(&path, times), Err(Errno::PERM), "{times:?}");
    }
    let (omit, other) = (UTIME_OMIT, Timespec { tv_sec: 7, tv_nsec: 5 });
    let last_access = Timespec { tv_sec: 0, tv_nsec: omit };
    let times = Timestamps { last_access, last_modification: other };
    assert_eq!(futimens(&writer, &times), Err(Errno::PERM), "as the kernel would flush it");
    writer.sync_all().unwrap();
    drop(writer);
    set_flags(&path, IFlags::IMMUTABLE);
    assert_eq!(set_times(&path, [None, None]), Err(Errno::PERM));
    set_flags(&path, IFlags::empty());
    set_times(&path, [Some(7), Some(7)]).unwrap();
    mounted.unmount();
}

#[test]
fn writeback_reaches_file_protected_since() {
    let Some(mut mounted) = mount() else { return };
    for flags in [IFlags::APPEND, IFlags::IMMUTABLE] {
        let path = mounted.path(&format!("file-{}", flags.bits()));
        let mut file = File::create_new(&path).unwrap();
        file.sync_all().unwrap();
        tick();
        file.write_all(b"content").unwrap();
        // The kernel's modification time is then older than its change time, and has not been sent.
        tick();
        fchown(&file, None, None).unwrap();
        // A flag set through another open file would not do: its close(2) would send the time.
        ioctl_setflags(&file, flags).unwrap();
        file.sync_all().unwrap();
        let kept = fs::metadata(&path).unwrap();
        assert!((kept.mtime(), kept.mtime_nsec()) < (kept.ctime(), kept.ctime_nsec()));
        drop(file);
        set_flags(&path, IFlags::empty());
    }
    mounted.unmount();
}

/// Waits until the kernel's coarse clock has moved.
#[expect(clippy::disallowed_methods, reason = "the clock is the kernel's")]
fn tick() {
    thread::sleep(Duration::from_millis(20));
}

/// When a file was modified and changed.
fn times_of(path: &Path) -> [(i64, i64); 2] {
    let meta = fs::metadata(path).unwrap();
    [(meta.mtime(), meta.mtime_nsec()), (meta.ctime(), meta.ctime_nsec())]
}

#[test]
fn writeback_sent_late_does_not_move_times() {
    let Some(mut mounted) = mount() else { return };
    let root = mounted.root();
    let times = |name: &String| times_of(&root.join(name));
    // Most are made and written in one tick of the kernel's clock.
    let names: Vec<String> = (0..50).map(|number| format!("file-{number}")).collect();
    let files = names.iter().map(|name| {
        let file = File::create_new(root.join(name)).unwrap();
        (&file).write_all(&[1; 9000]).unwrap();
        file
    });
    let files: Vec<File> = files.collect();
    let seen: Vec<_> = names.iter().map(times).collect();
    tick();
    for file in files {
        file.sync_all().unwrap();
    }
    assert_eq!(names.iter().map(times).collect::<Vec<_>>(), seen, "synced");
    mounted.remount("writeback");
    assert_eq!(names.iter().map(times).collect::<Vec<_>>(), seen, "after a new mount");
    mounted.unmount();
}

/// Changes an open file with a path.
type Change<'a> = &'a dyn Fn(&File, &Path);

#[test]
fn times_once_seen_stay() {
    let Some(mut mounted) = mount() else { return };
    let root = mounted.root();
    let changes: [(&str, Change<'_>); 7] = [
        ("write", &|file, _| file.write_all_at(&[2; 9000], 100).unwrap()),
        ("chmod", &|file, _| file.set_permissions(Permissions::from_mode(0o600)).unwrap()),
        ("truncate", &|file, _| file.set_len(4000).unwrap()),
        ("allocate", &|file, _| {
            rustix::fs::fallocate(file, FallocateFlags::KEEP_SIZE, 0, 1 << 20).unwrap();
        }),
        ("utimes", &|_, path| set_times(path, [Some(1000), Some(2000)]).unwrap()),
        ("link", &|_, path| fs::hard_link(path, root.join("linked")).unwrap()),
        ("rename", &|_, path| {
            fs::rename(path, root.join("moved")).unwrap();
            fs::rename(root.join("moved"), path).unwrap();
        }),
    ];
    let times = |name: &str| times_of(&root.join(name));
    let seen = changes.map(|(name, change)| {
        let path = root.join(name);
        let file = File::create_new(&path).unwrap();
        (&file).write_all(&[1; 9000]).unwrap();
        file.sync_all().unwrap();
        tick();
        change(&file, &path);
        let seen = times(name);
        // A time that is sent late stays the same.
        tick();
        file.sync_all().unwrap();
        assert_eq!(times(name), seen, "{name}, synced");
        (name, seen)
    });
    mounted.remount("writeback");
    for (name, seen) in seen {
        assert_eq!(times(name), seen, "{name}, after a new mount");
    }
    mounted.unmount();
}
