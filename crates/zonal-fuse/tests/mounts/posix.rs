//! Names and attributes through a real mount: the promises of POSIX and Linux. The promises that
//! volumes share are in `rules`.

use std::fs::{self, File, Metadata, Permissions};
use std::io::Read;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, FileExt, FileTypeExt, MetadataExt, PermissionsExt, chown};
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::mounted;
use crate::mounted::tools;
use crate::rules;
use rustix::fs::{
    AtFlags, CWD, Mode, OFlags, Timespec, Timestamps, XattrFlags, getxattr, linkat, listxattr,
    mkfifoat, openat, removexattr, setxattr, statvfs, utimensat,
};
use rustix::io::Errno;
use zonal::wait::wait_until;

const NOBODY: u32 = 65534;

tests_of_every_rule! { on_a_mount }

fn on_a_mount(rule: fn(&dyn rules::Place)) {
    let Some(mounted) = mounted::mount() else { return };
    rule(&mounted);
}

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).expect("it is there").mode() & 0o7777
}

fn changed(before: &Metadata, after: &Metadata) -> bool {
    (before.ctime(), before.ctime_nsec()) < (after.ctime(), after.ctime_nsec())
}

/// Runs a shell command as an unprivileged user.
fn as_nobody(script: &str, path: &Path) -> bool {
    Command::new("sh")
        .args(["-c", script, "sh"])
        .arg(path)
        .uid(NOBODY)
        .gid(NOBODY)
        .status()
        .expect("sh runs")
        .success()
}

#[test]
fn nodes_of_every_kind_are_created() {
    let Some(mounted) = mounted::mount() else { return };
    mkfifoat(CWD, mounted.path("fifo"), Mode::from_raw_mode(0o640)).unwrap();
    assert!(fs::metadata(mounted.path("fifo")).unwrap().file_type().is_fifo());
    let _listener = UnixListener::bind(mounted.path("socket")).unwrap();
    assert!(fs::metadata(mounted.path("socket")).unwrap().file_type().is_socket());
    tools::shell(&mounted.root(), "mknod null c 1 3; mknod block b 259 70000", &[]);
    let null = fs::metadata(mounted.path("null")).unwrap();
    assert!(null.file_type().is_char_device());
    assert_eq!((rustix::fs::major(null.rdev()), rustix::fs::minor(null.rdev())), (1, 3));
    let block = fs::metadata(mounted.path("block")).unwrap();
    assert!(block.file_type().is_block_device());
    assert_eq!((rustix::fs::major(block.rdev()), rustix::fs::minor(block.rdev())), (259, 70000));
    fs::write(mounted.path("null"), "swallowed").unwrap();
    let mut byte = [0];
    assert_eq!(File::open(mounted.path("null")).unwrap().read(&mut byte).unwrap(), 0);
}

#[test]
fn fifos_and_sockets_carry_data() {
    let Some(mounted) = mounted::mount() else { return };
    let out = tools::shell(&mounted.root(), "mkfifo f; (echo through > f &) ; cat f", &[]);
    assert_eq!(out, "through\n");
}

#[test]
fn modes_owners_and_umask_apply() {
    let Some(mounted) = mounted::mount() else { return };
    tools::shell(&mounted.root(), "umask 027; touch f; mkdir d; umask 0; touch g; mkdir e", &[]);
    for (name, expected) in [("f", 0o640), ("d", 0o750), ("g", 0o666), ("e", 0o777)] {
        assert_eq!(mode(&mounted.path(name)), expected, "{name}");
    }
    fs::set_permissions(mounted.path("f"), Permissions::from_mode(0o7531)).unwrap();
    assert_eq!(mode(&mounted.path("f")), 0o7531);
    fs::set_permissions(mounted.path("f"), Permissions::from_mode(0o600)).unwrap();
    assert!(!as_nobody("cat \"$1\" 2>/dev/null", &mounted.path("f")));
    assert!(as_nobody("echo x > \"$1\"/x", &mounted.path("e")));
    let meta = fs::metadata(mounted.path("e/x")).unwrap();
    assert_eq!((meta.uid(), meta.gid()), (NOBODY, NOBODY));
}

#[test]
fn setgid_directories_pass_group_on() {
    let Some(mounted) = mounted::mount() else { return };
    let dir = mounted.path("dir");
    fs::DirBuilder::new().mode(0o777).create(&dir).unwrap();
    chown(&dir, None, Some(1234)).unwrap();
    fs::set_permissions(&dir, Permissions::from_mode(0o2777)).unwrap();
    assert!(as_nobody("umask 022; touch \"$1\"/f; mkdir \"$1\"/d", &dir));
    let (file, sub) = (fs::metadata(dir.join("f")).unwrap(), fs::metadata(dir.join("d")).unwrap());
    assert_eq!((file.uid(), file.gid()), (NOBODY, 1234));
    assert_eq!((sub.gid(), sub.mode() & 0o7777), (1234, 0o2755));
}

#[test]
fn setuid_and_setgid_are_cleared_by_changes() {
    let Some(mounted) = mounted::mount() else { return };
    let file = mounted.path("file");
    for (script, what) in [
        ("echo x >> \"$1\"", "write"),
        ("truncate -s 3 \"$1\"", "truncate"),
        (": > \"$1\"", "open with O_TRUNC"),
        ("fallocate -l 100 \"$1\"", "fallocate"),
    ] {
        fs::write(&file, "content").unwrap();
        fs::set_permissions(&file, Permissions::from_mode(0o6777)).unwrap();
        assert!(as_nobody(script, &file), "{what}");
        assert_eq!(mode(&file), 0o777, "{what} by a user");
        fs::set_permissions(&file, Permissions::from_mode(0o6777)).unwrap();
        tools::shell(&mounted.root(), script, &[file.as_os_str()]);
        assert_eq!(mode(&file), 0o6777, "{what} by root");
    }
    chown(&file, Some(NOBODY), Some(NOBODY)).unwrap();
    assert_eq!(mode(&file), 0o777, "chown");
}

#[test]
fn setgid_without_execution_is_cleared_outside_group() {
    let Some(mounted) = mounted::mount() else { return };
    let file = mounted.path("file");
    for (group, left) in [(1234, 0o666), (NOBODY, 0o2666)] {
        for script in
            ["truncate -s 3 \"$1\"", "fallocate -l 100 \"$1\"", "fallocate -p -l 4096 \"$1\""]
        {
            fs::write(&file, "content").unwrap();
            chown(&file, Some(0), Some(group)).unwrap();
            fs::set_permissions(&file, Permissions::from_mode(0o6666)).unwrap();
            assert!(as_nobody(script, &file), "{script}");
            assert_eq!(mode(&file), left, "{script}, group {group}");
        }
    }
}

#[test]
fn setgid_needs_membership_in_group() {
    let Some(mounted) = mounted::mount() else { return };
    let file = mounted.path("file");
    fs::write(&file, "").unwrap();
    chown(&file, Some(NOBODY), Some(1234)).unwrap();
    assert!(as_nobody("chmod 2755 \"$1\"", &file));
    assert_eq!(mode(&file), 0o755);
    chown(&file, Some(NOBODY), Some(NOBODY)).unwrap();
    assert!(as_nobody("chmod 2755 \"$1\"", &file));
    assert_eq!(mode(&file), 0o2755);
}

#[test]
fn times_have_nanoseconds_in_any_year() {
    let Some(mounted) = mounted::mount() else { return };
    let file = mounted.path("file");
    fs::write(&file, "").unwrap();
    for (secs, nanos) in [
        (1_700_000_000, 123_456_789),
        (0, 0),
        (-5, 300_000_000),
        (17_179_869_183, 1),
        (-100_000_000_000, 999_999_999),
        (1 << 55, 5),
    ] {
        let time = Timespec { tv_sec: secs, tv_nsec: nanos };
        let times = Timestamps { last_access: time, last_modification: time };
        utimensat(CWD, &file, &times, AtFlags::empty()).unwrap();
        let meta = fs::metadata(&file).unwrap();
        assert_eq!((meta.atime(), meta.atime_nsec()), (secs, nanos));
        assert_eq!((meta.mtime(), meta.mtime_nsec()), (secs, nanos));
    }
}

#[test]
fn times_move_with_changes() {
    let Some(mounted) = mounted::mount() else { return };
    let file = mounted.path("file");
    fs::write(&file, "").unwrap();
    let dir = |mounted: &mounted::Mounted| fs::metadata(mounted.root()).unwrap();
    let old = fs::metadata(&file).unwrap();
    fs::write(&file, "x").unwrap();
    let written = fs::metadata(&file).unwrap();
    assert!(changed(&old, &written));
    assert!((old.mtime(), old.mtime_nsec()) < (written.mtime(), written.mtime_nsec()));
    fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
    assert!(changed(&written, &fs::metadata(&file).unwrap()));
    let before = dir(&mounted);
    fs::remove_file(&file).unwrap();
    let after = dir(&mounted);
    assert!((before.mtime(), before.mtime_nsec()) < (after.mtime(), after.mtime_nsec()));
}

#[test]
fn xattrs_of_files_and_directories_work() {
    let Some(mounted) = mounted::mount() else { return };
    let file = mounted.path("file");
    fs::write(&file, "").unwrap();
    for path in [&file, &mounted.root()] {
        setxattr(path, "user.one", b"1", XattrFlags::CREATE).unwrap();
        assert_eq!(setxattr(path, "user.one", b"2", XattrFlags::CREATE), Err(Errno::EXIST));
        assert_eq!(setxattr(path, "user.two", b"2", XattrFlags::REPLACE), Err(Errno::NODATA));
        setxattr(path, "trusted.two", &vec![7; 65536], XattrFlags::empty()).unwrap();
        let mut value = vec![0; 65536];
        assert_eq!(getxattr(path, "trusted.two", &mut value[..]).unwrap(), 65536);
        assert!(value.iter().all(|byte| *byte == 7));
        assert_eq!(getxattr(path, "trusted.two", &mut [0; 9][..]), Err(Errno::RANGE));
        let mut names = [0; 64];
        let len = listxattr(path, &mut names[..]).unwrap();
        let mut listed: Vec<&[u8]> = names[..len].split(|byte| *byte == 0).collect();
        listed.sort();
        assert_eq!(listed, [&b""[..], b"trusted.two", b"user.one"]);
        removexattr(path, "user.one").unwrap();
        assert_eq!(removexattr(path, "user.one"), Err(Errno::NODATA));
    }
    assert_eq!(
        setxattr(&file, "user.big", &vec![0; 65537], XattrFlags::empty()),
        Err(Errno::TOOBIG)
    );
}

#[test]
fn acl_is_enforced_and_inherited() {
    if tools::find("setfacl").is_none() {
        return;
    }
    let Some(mounted) = mounted::mount() else { return };
    let root = mounted.root();
    fs::write(mounted.path("file"), "secret").unwrap();
    fs::set_permissions(mounted.path("file"), Permissions::from_mode(0o600)).unwrap();
    assert!(!as_nobody("cat \"$1\" 2>/dev/null", &mounted.path("file")));
    tools::shell(&root, "setfacl -m u:65534:r file", &[]);
    assert!(as_nobody("cat \"$1\" >/dev/null", &mounted.path("file")));
    assert_eq!(mode(&mounted.path("file")), 0o640, "the mask is the group's part of the mode");
    tools::shell(
        &root,
        "mkdir d; setfacl -d -m u:65534:rwx,o::- d; umask 077; touch d/f; mkdir d/s",
        &[],
    );
    let acl = tools::shell(&root, "getfacl -cnE d/f; getfacl -cnE d/s", &[]);
    let expected = "user::rw-\nuser:65534:rwx\ngroup::r-x\nmask::rw-\nother::---\n\n\
                    user::rwx\nuser:65534:rwx\ngroup::r-x\nmask::rwx\nother::---\n\
                    default:user::rwx\ndefault:user:65534:rwx\ndefault:group::r-x\n\
                    default:mask::rwx\ndefault:other::---\n\n";
    assert_eq!(acl, expected);
    fs::set_permissions(mounted.path("file"), Permissions::from_mode(0o600)).unwrap();
    assert!(!as_nobody("cat \"$1\" 2>/dev/null", &mounted.path("file")), "chmod sets the mask");
}

#[test]
fn statfs_reports_sizes_of_whole() {
    let Some(mounted) = mounted::mount() else { return };
    let before = statvfs(mounted.root()).unwrap();
    assert!(before.f_blocks > 0 && before.f_bfree > 0 && before.f_namemax == 255);
    fs::write(mounted.path("file"), vec![1; 8 << 20]).unwrap();
    let after = statvfs(mounted.root()).unwrap();
    assert!((before.f_bfree - after.f_bfree) * before.f_frsize >= 8 << 20);
    assert_eq!(after.f_blocks, before.f_blocks);
}

#[test]
fn directories_with_many_entries_list_each_once() {
    let Some(mounted) = mounted::mount() else { return };
    let count = 20_000;
    for number in 0..count {
        File::create(mounted.path(&format!("file-{number:05}"))).unwrap();
    }
    let list = || {
        let mut names: Vec<_> =
            fs::read_dir(mounted.root()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names.dedup();
        names.len()
    };
    assert_eq!(list(), count);
    // Entries deleted while listing are seen or not; all others are seen exactly once.
    let mut seen = Vec::new();
    for entry in fs::read_dir(mounted.root()).unwrap() {
        let name = entry.unwrap().file_name();
        fs::remove_file(mounted.root().join(&name)).unwrap();
        seen.push(name);
    }
    assert_eq!(seen.len(), count);
    assert_eq!(list(), 0);
}

#[test]
fn files_are_found_by_handle() {
    let Some(mounted) = mounted::mount() else { return };
    fs::write(mounted.path("file"), "by handle").unwrap();
    let script = "
import ctypes, os, struct, sys, time
libc = ctypes.CDLL(None, use_errno=True)
root = os.open(sys.argv[1], os.O_RDONLY)
handle = ctypes.create_string_buffer(struct.pack('Ii', 128, 0) + bytes(128))
mount = ctypes.c_int()
assert libc.name_to_handle_at(root, b'file', handle, ctypes.byref(mount), 0) == 0
open('/proc/sys/vm/drop_caches', 'w').write('2')
fd = libc.open_by_handle_at(root, handle, os.O_RDONLY)
assert fd >= 0, os.strerror(ctypes.get_errno())
assert os.read(fd, 100) == b'by handle'
os.close(fd)
os.unlink('file', dir_fd=root)
while fd != -1:
    # The kernel releases what was closed when it comes to it, and keeps the inode until then.
    open('/proc/sys/vm/drop_caches', 'w').write('2')
    fd = libc.open_by_handle_at(root, handle, os.O_RDONLY)
    if fd != -1:
        os.close(fd)
        time.sleep(0.02)
assert ctypes.get_errno() == 116, ctypes.get_errno()
";
    tools::run(Command::new("python3").args(["-c", script]).arg(mounted.root()));
}

#[test]
fn unnamed_file_gets_name_or_leaves_nothing() {
    let Some(mounted) = mounted::mount() else { return };
    let inodes = || {
        let stat = statvfs(mounted.root()).unwrap();
        stat.f_files - stat.f_ffree
    };
    let unnamed = |more: OFlags| {
        let flags = OFlags::TMPFILE | OFlags::RDWR | more;
        File::from(openat(CWD, mounted.root(), flags, Mode::from_raw_mode(0o640)).unwrap())
    };
    let link = |file: &File, name: &str| {
        let descriptor = format!("/proc/self/fd/{}", file.as_raw_fd());
        linkat(CWD, descriptor, CWD, mounted.path(name), AtFlags::SYMLINK_FOLLOW)
    };
    let file = unnamed(OFlags::empty());
    file.write_all_at(b"written before it had a name", 0).unwrap();
    let before = file.metadata().unwrap();
    assert_eq!((before.nlink(), before.mode() & 0o7777), (0, 0o640));
    assert_eq!(fs::read_dir(mounted.root()).unwrap().count(), 0);
    link(&file, "named").unwrap();
    assert_eq!(fs::metadata(mounted.path("named")).unwrap().nlink(), 1);
    drop(file);
    assert_eq!(fs::read(mounted.path("named")).unwrap(), b"written before it had a name");
    // One that is never to have a name, and one that loses it, do not get one.
    assert_eq!(link(&unnamed(OFlags::EXCL), "never").unwrap_err(), Errno::NOENT);
    let lost = File::options().read(true).open(mounted.path("named")).unwrap();
    // The kernel releases a closed file some time later.
    wait_until(|| inodes() == 2);
    let left = unnamed(OFlags::empty());
    left.write_all_at(&vec![7; 1 << 20], 0).unwrap();
    assert_eq!(inodes(), 3, "the root, the named file, and this one");
    drop(left);
    wait_until(|| inodes() == 2);
    fs::remove_file(mounted.path("named")).unwrap();
    assert_eq!(link(&lost, "again").unwrap_err(), Errno::NOENT);
}

#[test]
fn statx_reports_birth_time() {
    let Some(mounted) = mounted::mount() else { return };
    let path = mounted.path("file");
    let file = File::create(&path).unwrap();
    let new = file.metadata().unwrap();
    let born = new.created().unwrap();
    assert_eq!(born, new.modified().unwrap());
    file.set_modified(born - Duration::from_hours(1)).unwrap();
    file.write_all_at(b"changed", 0).unwrap();
    let metadata = fs::metadata(&path).unwrap();
    assert_eq!(metadata.created().unwrap(), born, "no change is a birth");
    assert_eq!(metadata.len(), 7);
}
