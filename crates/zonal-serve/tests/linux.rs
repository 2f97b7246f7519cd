//! What Linux adds to POSIX, through a real mount.

mod mounted;

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::Read;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

const NOBODY: u32 = 65534;

#[test]
#[ignore = "the daemon of the other tests"]
fn daemon() {
    mounted::daemon();
}

/// Access time after reading a file through a new handle.
fn read(path: &Path) -> (i64, i64) {
    let mut byte = [0];
    File::open(path).expect("opens").read_exact(&mut byte).expect("reads");
    let meta = fs::metadata(path).expect("it is there");
    (meta.atime(), meta.atime_nsec())
}

#[test]
fn access_times_follow_the_mount_options() {
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
fn a_direct_write_clears_setuid_and_the_kernel_sees_it() {
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
