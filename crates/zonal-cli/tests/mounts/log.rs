//! The log of a mount: its first and its last line, names of files, errors that repeat themselves,
//! and truncation by logrotate.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::FileExt;

use rustix::process::{Pid, Signal, kill_process};
use zonal::wait::wait_until;

use super::{Place, text, zonal};

/// The one line of a log that has all these parts.
fn line(log: &str, parts: &[&str]) -> String {
    let mut lines = log.lines().filter(|line| parts.iter().all(|part| line.contains(part)));
    let found = lines.next().unwrap_or_else(|| panic!("no line with {parts:?} in\n{log}"));
    assert_eq!(lines.next(), None, "two lines with {parts:?} in\n{log}");
    found.to_owned()
}

#[test]
fn log_says_what_was_mounted_and_how_it_ended() {
    let Some(place) = Place::mountable() else { return };
    place.mount("nodev,memory=96MiB");
    let uuid = place.stats()["uuid"].as_str().unwrap().to_owned();
    assert_eq!(uuid.len(), 36, "{uuid}");
    let (drive, dir) = (place.drive(), place.dir());
    assert_eq!(place.stats()["mount"], text(&dir));
    let mounted = line(&place.log(), &[" INFO ", "mounted device="]);
    for part in [
        text(&drive),
        text(&dir),
        ".furrow",
        &uuid,
        "options=\"rw,nodev,memory=96MiB\"",
        concat!("version=\"", env!("CARGO_PKG_VERSION"), "\""),
    ] {
        assert!(mounted.contains(part), "{part} is not in {mounted}");
    }
    place.umount();
    line(
        &place.log(),
        &[" INFO ", "unmounted: the device is clean", text(&drive), "by=\"umount\""],
    );
    fs::remove_file(place.path("log")).unwrap();
    place.mount("ro");
    let daemon = zonal_fuse::unmount::daemon_of(&dir).unwrap();
    let daemon = Pid::from_raw(i32::try_from(daemon).unwrap()).unwrap();
    kill_process(daemon, Signal::TERM).unwrap();
    wait_until(|| place.log().contains("unmounted:"));
    line(&place.log(), &["mounted device=", "options=\"ro\""]);
    line(&place.log(), &["unmounted: the device is clean", "by=\"signal 15\""]);
}

/// `copytruncate` of logrotate(8): later lines begin at the new start, without a hole before them.
#[test]
fn log_truncated_while_open_continues_at_start() {
    let Some(place) = Place::mountable() else { return };
    place.mount("rw");
    let log = File::options().write(true).open(place.path("log")).unwrap();
    assert!(log.metadata().unwrap().len() > 0);
    log.set_len(0).unwrap();
    place.umount();
    let all = place.log();
    assert!(!all.contains('\0') && all.contains("unmounted"), "{all:?}");
}

/// Every block of the content has a changed byte on the drive: each read of it fails.
#[test]
fn log_names_failed_file_and_limits_repeats() {
    const FAILURES: usize = 40;
    let Some(place) = Place::mountable() else { return };
    place.mount("rw");
    let file = place.dir().join("some").join("where");
    fs::create_dir(file.parent().unwrap()).unwrap();
    let pattern: Vec<u8> = (0..4096_u32).map(|at| at.wrapping_mul(77).to_le_bytes()[0]).collect();
    fs::write(&file, pattern.repeat(16)).unwrap();
    place.umount();
    let content = fs::read(place.drive()).unwrap();
    let drive = File::options().write(true).open(place.drive()).unwrap();
    let mut spoilt = 0;
    for (block, data) in content.chunks(4096).enumerate() {
        if data == pattern {
            drive.write_all_at(&[data[0] ^ 1], block as u64 * 4096).unwrap();
            spoilt += 1;
        }
    }
    assert!(spoilt >= 16, "{spoilt}");
    place.mount("rw");
    for _ in 0..FAILURES {
        let mut byte = [0];
        let error = File::open(&file).unwrap().read(&mut byte).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(5), "EIO");
    }
    place.umount();
    let log = place.log();
    let (name, message) = ("file=/some/where ", "a read failed");
    let failed = log.lines().filter(|line| line.contains(message) && line.contains(name)).count();
    assert!(failed >= 10, "{log}");
    assert!(!log.contains("inode"), "{log}");
    // A machine that stands still for seconds may see more than one window.
    let more = log.lines().filter_map(|line| line.split_once(" more of these within 5 s: "));
    let mut all = failed;
    for (before, _) in more.filter(|(_, what)| *what == message) {
        all += before.rsplit(' ').next().unwrap().parse::<usize>().unwrap();
    }
    // The kernel may read ahead and read again.
    assert!(all >= FAILURES, "{all} of {FAILURES}:\n{log}");
    assert!(failed < all, "nothing was left out:\n{log}");
    assert!(zonal(&["zones", text(&place.drive())]).contains("zone"));
}
