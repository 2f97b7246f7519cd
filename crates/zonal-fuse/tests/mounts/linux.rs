//! Linux's additions to POSIX, through a real mount.

use crate::mounted;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use rustix::fs::{
    CWD, Dir, IFlags, Mode, OFlags, RenameFlags, ioctl_getflags, ioctl_setflags, renameat_with,
};

const NOBODY: u32 = 65534;

/// Access time after reading a file through a new handle.
fn read(path: &Path) -> (i64, i64) {
    let mut byte = [0];
    File::open(path).expect("opens").read_exact(&mut byte).expect("reads");
    let meta = fs::metadata(path).expect("it is there");
    (meta.atime(), meta.atime_nsec())
}

#[test]
fn atime_follows_mount_options() {
    let Some(mut mounted) = mounted::mount_with("relatime") else { return };
    let file = mounted.path("file");
    fs::write(&file, "content").unwrap();
    let meta = fs::metadata(&file).unwrap();
    let first = read(&file);
    assert!(first > (meta.mtime(), meta.mtime_nsec()), "the first read after a change");
    assert_eq!(read(&file), first, "relatime: the second");
    mounted.remount("strictatime");
    let strict = read(&file);
    assert!(strict > first, "strictatime");
    let again = read(&file);
    assert!(again > strict, "strictatime, with the content in the page cache");
    mounted.remount("noatime");
    fs::write(&file, "changed").unwrap();
    assert_eq!(read(&file), again, "noatime");
    mounted.remount("ro,strictatime");
    assert_eq!(read(&file), again, "read-only");
}

#[test]
fn atime_is_updated_by_reads_from_page_cache() {
    for options in ["relatime", "relatime,writeback"] {
        let Some(mut mounted) = mounted::mount_with(options) else { return };
        let file = mounted.path("file");
        // A whole page: the kernel has it from the write, and asks for nothing.
        fs::write(&file, [b'x'; 4096]).unwrap();
        let written = fs::metadata(&file).unwrap();
        let before = (written.atime(), written.atime_nsec());
        // The clock may be one of a few ticks in a hundred reads.
        let is_later = |than| (0..100_000).any(|_| read(&file) > than);
        assert!(is_later(before), "{options}: the first");
        let first = read(&file);
        assert_eq!(read(&file), first, "{options}: the second");
        fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
        assert!(is_later(first), "{options}: the first after a change");
        let again = read(&file);
        mounted.remount(options);
        let meta = fs::metadata(&file).unwrap();
        assert_eq!((meta.atime(), meta.atime_nsec()), again, "{options}: after a new mount");
        mounted.unmount();
    }
}

#[test]
fn atime_under_strictatime_covers_listings_and_readlink() {
    let Some(mut mounted) = mounted::mount_with("strictatime") else { return };
    let (dir, link) = (mounted.path("dir"), mounted.path("link"));
    fs::create_dir(&dir).unwrap();
    fs::write(dir.join("file"), "").unwrap();
    std::os::unix::fs::symlink("target", &link).unwrap();
    let times = || {
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 1);
        assert_eq!(fs::read_link(&link).unwrap(), Path::new("target"));
        [&dir, &link].map(|path| {
            let meta = fs::symlink_metadata(path).unwrap();
            (meta.atime(), meta.atime_nsec())
        })
    };
    for round in 0..5 {
        let seen = times();
        // The clock may be one of a few ticks in a hundred reads.
        let both_later = |now: [(i64, i64); 2]| now[0] > seen[0] && now[1] > seen[1];
        assert!((0..10_000).any(|_| both_later(times())), "round {round}: {seen:?}");
    }
    mounted.unmount();
}

#[test]
fn noatime_open_reads_file_without_trace() {
    const O_NOATIME: i32 = 0o1_000_000;
    const O_DIRECT: i32 = 0o40000;
    let Some(mut mounted) = mounted::mount_with("strictatime") else { return };
    let file = mounted.path("file");
    fs::write(&file, [b'x'; 8192]).unwrap();
    let before = read(&file);
    // Nothing is in the page cache.
    mounted.remount("strictatime");
    for flags in [O_NOATIME | O_DIRECT, O_NOATIME] {
        let mut buffer = vec![0; 8192 + 4096];
        let aligned = buffer.as_ptr().align_offset(4096);
        let quiet = OpenOptions::new().read(true).custom_flags(flags).open(&file).unwrap();
        (&quiet).read_exact(&mut buffer[aligned..aligned + 4096]).unwrap();
        let meta = fs::metadata(&file).unwrap();
        assert_eq!((meta.atime(), meta.atime_nsec()), before, "{flags:o}");
    }
    assert!(read(&file) > before, "without the flag");
    mounted.unmount();
}

#[test]
fn noatime_open_lists_directory_without_trace() {
    let Some(mut mounted) = mounted::mount_with("relatime") else { return };
    for options in ["relatime", "strictatime"] {
        mounted.remount(options);
        let dir = mounted.path(options);
        fs::create_dir(&dir).unwrap();
        let atime = || {
            let meta = fs::metadata(&dir).unwrap();
            (meta.atime(), meta.atime_nsec())
        };
        let before = atime();
        // With relatime too the access time is due: the directory has changed since.
        let number = (0..1_000_000).find(|number| {
            fs::write(dir.join(number.to_string()), "").unwrap();
            fs::metadata(&dir).unwrap().mtime_nsec() != before.1
        });
        let names = number.unwrap() + 1;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOATIME;
        let quiet = rustix::fs::open(&dir, flags, Mode::empty()).unwrap();
        let found = Dir::new(quiet).unwrap().count();
        assert_eq!(found, names + 2, "{options}: with . and ..");
        assert_eq!(atime(), before, "{options}");
        // Nothing of the listing is cached.
        mounted.remount(options);
        assert_eq!(fs::read_dir(&dir).unwrap().count(), names);
        assert!(atime() > before, "{options}: without the flag");
    }
    mounted.unmount();
}

#[test]
fn setuid_is_cleared_by_direct_write_and_seen_by_kernel() {
    const O_DIRECT: i32 = 0o40000;
    let Some(mounted) = mounted::mount() else { return };
    let file = mounted.path("file");
    fs::write(&file, [b'x'; 8192]).unwrap();
    fs::set_permissions(&file, Permissions::from_mode(0o4777)).unwrap();
    let mode = || fs::metadata(&file).unwrap().mode() & 0o7777;
    assert!(OpenOptions::new().write(true).custom_flags(O_DIRECT).open(&file).is_ok());
    assert_eq!(mode(), 0o4777);
    let status = Command::new("dd")
        .args(["if=/dev/zero", "bs=4096", "count=1", "oflag=direct", "conv=notrunc", "status=none"])
        .arg(format!("of={}", file.display()))
        .uid(NOBODY)
        .gid(NOBODY)
        .status();
    assert!(status.unwrap().success());
    assert_eq!(mode(), 0o777);
}

#[test]
fn inode_flags_immutable_and_append_only_protect() {
    let Some(mut mounted) = mounted::mount() else { return };
    let file = mounted.path("file");
    fs::write(&file, "content").unwrap();
    let set = |flags| ioctl_setflags(File::open(&file).unwrap(), flags).unwrap();
    let refused = |result: std::io::Result<()>| {
        let kind = result.map_err(|error| error.kind());
        assert_eq!(kind, Err(ErrorKind::PermissionDenied));
    };
    set(IFlags::IMMUTABLE);
    mounted.remount("");
    let flags = || ioctl_getflags(File::open(&file).unwrap()).unwrap();
    assert_eq!(flags(), IFlags::IMMUTABLE, "kept over a remount");
    refused(File::options().write(true).open(&file).map(drop));
    refused(File::options().append(true).open(&file).map(drop));
    refused(fs::set_permissions(&file, Permissions::from_mode(0o600)));
    refused(fs::remove_file(&file));
    refused(fs::rename(&file, mounted.path("other")));
    refused(fs::hard_link(&file, mounted.path("other")));
    let set = |flags| ioctl_setflags(File::open(&file).unwrap(), flags).unwrap();
    set(IFlags::APPEND | IFlags::NODUMP);
    refused(File::options().write(true).open(&file).map(drop));
    refused(File::create(&file).map(drop));
    File::options().append(true).open(&file).unwrap().write_all(b" and more").unwrap();
    assert_eq!(fs::read(&file).unwrap(), b"content and more");
    refused(fs::remove_file(&file));
    set(IFlags::empty());
    fs::remove_file(&file).unwrap();
}

#[test]
fn rename_leaves_whiteout_on_request() {
    let Some(mounted) = mounted::mount() else { return };
    let (source, target) = (mounted.path("source"), mounted.path("target"));
    fs::write(&source, "content").unwrap();
    fs::write(&target, "replaced").unwrap();
    renameat_with(CWD, &source, CWD, &target, RenameFlags::WHITEOUT).unwrap();
    let left = fs::symlink_metadata(&source).unwrap();
    assert!(left.file_type().is_char_device() && left.rdev() == 0);
    assert_eq!(fs::read(&target).unwrap(), b"content");
    let both = RenameFlags::WHITEOUT | RenameFlags::EXCHANGE;
    assert!(renameat_with(CWD, &source, CWD, &target, both).is_err());
}

#[test]
fn listing_ends_while_entries_are_renamed() {
    const FILES: usize = 3000;
    let Some(mounted) = mounted::mount() else { return };
    for file in 0..FILES {
        fs::write(mounted.path(&file.to_string()), "").unwrap();
    }
    let mut seen = 0;
    for entry in fs::read_dir(mounted.root()).unwrap() {
        let path = entry.unwrap().path();
        fs::rename(&path, mounted.path(&format!("renamed{seen}"))).unwrap();
        seen += 1;
        assert!(seen <= FILES, "a renamed entry came again");
    }
    assert_eq!(seen, FILES);
    assert_eq!(fs::read_dir(mounted.root()).unwrap().count(), FILES, "a new listing");
}
