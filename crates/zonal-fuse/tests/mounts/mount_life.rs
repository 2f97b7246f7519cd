//! The life of a mount: ready, unmounted from outside, signalled, killed, read-only.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use crate::mounted;
use crate::mounted::NEVER;
use crate::mounted::content::{O_DIRECT, aligned, open};
use crate::mounted::held::{held, hold};

use rustix::event::{Timespec, poll};
use rustix::fs::{AtFlags, CWD, StatxFlags};
use zonal::wait::wait_until;
use zonal_fuse::ServeError;
use zonal_fuse::unmount::{Unmounted, daemon_of, unmount_and_wait};

#[test]
fn mount_is_in_table_with_source() {
    let Some(mounted) = mounted::mount() else { return };
    let table = fs::read_to_string("/proc/self/mounts").unwrap();
    let root = mounted.root().canonicalize().unwrap();
    let line = table.lines().find(|line| line.contains(root.to_str().unwrap())).unwrap();
    assert!(line.starts_with(mounted.outside("drive").to_str().unwrap()), "{line}");
    assert!(line.contains(".furrow rw,"), "{line}");
    assert!(line.contains("default_permissions") && line.contains("allow_other"), "{line}");
}

#[test]
fn daemon_can_be_found_and_waited_for() {
    let Some(mut mounted) = mounted::mount() else { return };
    assert_eq!(daemon_of(&mounted.root()).unwrap(), mounted.pid());
    fs::write(mounted.path("file"), "content").unwrap();
    mounted.unmount();
    assert!(!mounted.is_mounted());
    let error = daemon_of(&mounted.root()).unwrap_err();
    assert!(matches!(error, ServeError::NotServed { .. }), "{error}");
}

#[test]
fn unmount_of_busy_mount_is_refused() {
    let Some(mut mounted) = mounted::mount() else { return };
    let mut file = File::create_new(mounted.path("file")).unwrap();
    let error = unmount_and_wait(&mounted.root(), NEVER).unwrap_err();
    assert!(matches!(error, ServeError::Busy { .. }), "{error}");
    let (me, path) = (format!("process {} (", std::process::id()), mounted.path("file"));
    let said = error.to_string();
    assert!(said.contains(&me) && said.contains(path.to_str().unwrap()), "{said}");
    file.write_all(b"still there").unwrap();
    drop(file);
    mounted.unmount();
}

#[test]
fn unmount_succeeds_after_file_is_open_briefly() {
    let Some(mut mounted) = mounted::mount() else { return };
    let file = File::create_new(mounted.path("file")).unwrap();
    let begun = Arc::new(Barrier::new(2));
    let other = begun.clone();
    let reader = thread::spawn(move || {
        other.wait();
        let pause = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
        poll(&mut [], Some(&pause)).unwrap();
        drop(file);
    });
    begun.wait();
    mounted.unmount();
    reader.join().unwrap();
}

#[test]
fn sigterm_unmounts() {
    let Some(mut mounted) = mounted::mount() else { return };
    fs::write(mounted.path("file"), "content").unwrap();
    mounted.terminate();
    assert!(!mounted.is_mounted());
}

#[test]
fn signals_at_once_unmount_cleanly() {
    let Some(mut mounted) = mounted::mount() else { return };
    fs::write(mounted.path("file"), "content").unwrap();
    mounted.signal_twice_at_once();
    assert!(mounted.ended_well());
    assert!(!mounted.is_mounted());
    mounted.start("");
    assert_eq!(fs::read(mounted.path("file")).unwrap(), b"content");
    mounted.unmount();
}

/// The kernel has a page that the drive does not take.
#[test]
fn later_signal_ends_mount_at_once_and_removes_it() {
    let Some(mut mounted) = mounted::mount_with("writeback") else { return };
    let file = File::create_new(mounted.path("file")).unwrap();
    File::create(hold(mounted.drive(), "write")).unwrap();
    file.write_all_at(&vec![7; 1 << 20], 0).unwrap();
    assert!(!mounted.insist());
    assert!(!mounted.is_mounted(), "a dead mount is left");
    fs::remove_file(hold(mounted.drive(), "write")).unwrap();
    mounted.start("");
    mounted.unmount();
}

#[test]
fn sigterm_ends_mount_even_with_open_files() {
    let Some(mut mounted) = mounted::mount() else { return };
    let mut file =
        File::options().read(true).write(true).create_new(true).open(mounted.path("file")).unwrap();
    file.write_all(b"kept").unwrap();
    mounted.terminate();
    assert!(!mounted.is_mounted());
    assert!(file.write_all(b"too late").is_err());
    assert!(file.read(&mut [0; 8]).is_err());
}

#[test]
fn kill_of_daemon_leaves_clearable_mount() {
    let Some(mut mounted) = mounted::mount() else { return };
    fs::write(mounted.path("file"), "content").unwrap();
    mounted.kill();
    assert!(!mounted.is_mounted());
}

#[test]
fn unmount_works_after_kill_of_daemon() {
    let Some(mut mounted) = mounted::mount() else { return };
    mounted.kill_daemon();
    let unmounted = unmount_and_wait(&mounted.root(), NEVER).unwrap();
    assert_eq!(unmounted, Unmounted::DaemonWasDead);
    assert!(!mounted.is_mounted());
}

#[test]
fn mount_read_only_refuses_changes() {
    let Some(mounted) = mounted::mount_with("ro") else { return };
    let error = fs::write(mounted.path("file"), "content").unwrap_err();
    assert_eq!(error.raw_os_error(), Some(30), "EROFS");
}

#[test]
fn mount_restrictions_reach_kernel() {
    let Some(mounted) = mounted::mount_with("nodev,nosuid,noexec,noatime") else { return };
    let table = fs::read_to_string("/proc/self/mounts").unwrap();
    let root = mounted.root().canonicalize().unwrap();
    let line = table.lines().find(|line| line.contains(root.to_str().unwrap())).unwrap();
    for option in ["nodev", "nosuid", "noexec", "noatime"] {
        assert!(line.contains(option), "{option} in {line}");
    }
}

#[test]
fn daemon_attribute_is_not_stored() {
    let Some(mounted) = mounted::mount() else { return };
    let mut names = [0; 256];
    assert_eq!(rustix::fs::listxattr(mounted.root(), &mut names).unwrap(), 0);
    let name = zonal_fuse::names::DAEMON_XATTR;
    let flags = rustix::fs::XattrFlags::empty();
    assert!(rustix::fs::setxattr(mounted.root(), name, b"1", flags).is_err());
    assert!(rustix::fs::removexattr(mounted.root(), name).is_err());
}

#[test]
fn shutdown_ioctl_stops_everything() {
    let Some(mut mounted) = mounted::mount() else { return };
    fs::write(mounted.path("file"), "content").unwrap();
    mounted.shut_down();
    assert!(fs::write(mounted.path("other"), "content").is_err());
    let (fresh, all) = (AtFlags::STATX_FORCE_SYNC, StatxFlags::BASIC_STATS);
    let root = rustix::fs::statx(CWD, mounted.root(), fresh, all).unwrap();
    assert_eq!(root.stx_ino, 1, "without its root it could not be unmounted");
    let unmounted = unmount_and_wait(&mounted.root(), NEVER).unwrap();
    assert_eq!(unmounted, Unmounted::Clean);
    mounted.wait();
    mounted.start("");
    assert_eq!(fs::read(mounted.path("file")).unwrap(), b"content");
    mounted.unmount();
}

#[test]
fn unmount_of_one_of_two_mount_points_keeps_other() {
    let Some(mut mounted) = mounted::mount() else { return };
    let elsewhere = tempfile::tempdir().unwrap();
    let (file, folder) = (elsewhere.path().join("file"), elsewhere.path().join("folder"));
    fs::write(&file, "").unwrap();
    fs::write(mounted.path("file"), "content").unwrap();
    fs::create_dir(&folder).unwrap();
    for (from, to) in [(mounted.path("file"), &file), (mounted.root(), &folder)] {
        if let Err(error) = rustix::mount::mount_bind(&from, to) {
            println!("SKIP: {}: {error}", to.display());
            continue;
        }
        let found = unmount_and_wait(to, NEVER).unwrap();
        assert_eq!(found, Unmounted::MountedElsewhere);
        assert_eq!(fs::read(mounted.path("file")).unwrap(), b"content");
    }
    mounted.unmount();
}

#[test]
fn unmount_of_hanging_device_ends_daemon() {
    let Some(mut mounted) = mounted::mount() else { return };
    fs::write(mounted.path("synced"), "content").unwrap();
    File::open(mounted.path("synced")).unwrap().sync_all().unwrap();
    File::create(hold(mounted.drive(), "write")).unwrap();
    let path = mounted.path("file");
    let writer = thread::spawn(move || {
        let (buffer, range) = aligned(1 << 18, 7);
        open(&path, O_DIRECT).write_all_at(&buffer[range], 0)
    });
    wait_until(|| held(mounted.drive(), "write").exists());
    mounted.signal();
    wait_until(|| !mounted.is_mounted());
    assert!(writer.join().unwrap().is_err(), "its request is given up");
    // The daemon would wait for the device a while longer; a second signal makes it end at once.
    assert!(!mounted.insist());
    fs::remove_file(hold(mounted.drive(), "write")).unwrap();
    mounted.start("");
    assert_eq!(fs::read(mounted.path("synced")).unwrap(), b"content");
    mounted.unmount();
}

#[test]
fn unmount_waits_no_longer_than_asked_for_hanging_device() {
    let Some(mut mounted) = mounted::mount() else { return };
    // Before: the mount may commit at any time.
    File::create(hold(mounted.drive(), "write")).unwrap();
    fs::write(mounted.path("file"), "content").unwrap();
    let error = unmount_and_wait(&mounted.root(), Duration::from_millis(100)).unwrap_err();
    assert!(matches!(error, ServeError::NotDurable { .. }), "{error}");
    assert!(mounted.is_mounted());
    fs::remove_file(hold(mounted.drive(), "write")).unwrap();
    mounted.unmount();
}

#[test]
fn daemon_allocates_without_waiting_for_own_mount() {
    const PF_MEMALLOC_NOIO: u32 = 0x8_0000;
    if rustix::process::is_io_flusher().is_err() {
        println!("SKIP: needs CAP_SYS_RESOURCE");
        return;
    }
    let Some(mounted) = mounted::mount() else { return };
    let threads = fs::read_dir(format!("/proc/{}/task", mounted.pid())).unwrap();
    let mut named = 0;
    for thread in threads.map(Result::unwrap) {
        let stat = fs::read_to_string(thread.path().join("stat")).unwrap();
        let (name, fields) = stat.rsplit_once(") ").unwrap();
        // The harness's own first thread serves nothing.
        if fs::read_to_string(thread.path().join("comm")).unwrap().starts_with("mount_life") {
            continue;
        }
        let flags: u32 = fields.split(' ').nth(6).unwrap().parse().unwrap();
        assert_ne!(flags & PF_MEMALLOC_NOIO, 0, "{name}");
        named += 1;
    }
    assert!(named >= 4, "{named} threads");
}
