//! Data and names that survive an unmount, a remount, or a killed daemon.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use crate::mounted;
use crate::mounted::content::{O_DIRECT, O_DSYNC, O_SYNC, aligned, open, pattern};
use crate::mounted::held::{held, hold};
use zonal::wait::wait_until;

#[test]
fn writes_are_read_back_after_remount() {
    let Some(mut mounted) = mounted::mount() else { return };
    let data = pattern(5_000_001);
    fs::write(mounted.path("file"), &data).unwrap();
    assert!(fs::read(mounted.path("file")).unwrap() == data);
    mounted.remount("");
    assert!(fs::read(mounted.path("file")).unwrap() == data, "after unmount and mount");
}

#[test]
fn writes_synchronous_survive_kill() {
    let Some(mut mounted) = mounted::mount() else { return };
    let data = pattern(100_000);
    for (name, flags) in [("dsync", O_DSYNC), ("sync", O_SYNC)] {
        open(&mounted.path(name), flags).write_all(&data).unwrap();
    }
    let (direct, range) = aligned(65536, 7);
    open(&mounted.path("direct"), O_DIRECT | O_DSYNC).write_all(&direct[range]).unwrap();
    let fsynced = open(&mounted.path("fsync"), 0);
    fsynced.write_all_at(&data, 0).unwrap();
    fsynced.sync_all().unwrap();
    drop(fsynced);
    mounted.kill();
    mounted.start("");
    for name in ["dsync", "sync", "fsync"] {
        assert!(fs::read(mounted.path(name)).unwrap() == data, "{name}");
    }
    assert_eq!(fs::read(mounted.path("direct")).unwrap(), vec![7; 65536]);
}

#[test]
fn read_waits_for_no_fsync() {
    // More than there are threads that serve.
    let fsyncs = thread::available_parallelism().unwrap().get().min(14) + 4;
    let Some(mounted) = mounted::mount() else { return };
    let (data, range) = aligned(65536, 9);
    let mut file = open(&mounted.path("file"), O_DIRECT);
    file.write_all(&data[range.clone()]).unwrap();
    file.sync_all().unwrap();
    let files: Vec<_> =
        (0..fsyncs).map(|number| open(&mounted.path(&format!("{number}")), O_SYNC)).collect();
    let drive = mounted.outside("drive");
    File::create(hold(&drive, "write")).unwrap();
    let (done, finished) = channel();
    for (number, mut file) in files.into_iter().enumerate() {
        let done = done.clone();
        // Half of them as synchronous writes.
        thread::spawn(move || {
            let outcome = if number % 2 == 0 { file.write_all(b"now") } else { file.sync_all() };
            done.send(outcome).unwrap();
        });
    }
    wait_until(|| held(&drive, "write").exists());
    // The others have come as well by now, or they will not disturb.
    assert!(finished.recv_timeout(Duration::from_millis(300)).is_err(), "the drive is held");
    let (read, has_read) = channel();
    thread::spawn(move || {
        let (mut found, range) = aligned(65536, 0);
        file.read_exact_at(&mut found[range.clone()], 0).unwrap();
        read.send(found[range] == vec![9; 65536]).unwrap();
    });
    // If it waits for an fsync, nothing ends this.
    let right = has_read.recv();
    fs::remove_file(hold(&drive, "write")).unwrap();
    assert_eq!(right, Ok(true));
    for _ in 0..fsyncs {
        finished.recv().unwrap().unwrap();
    }
}

#[test]
fn commit_by_time_survives_kill() {
    let Some(mut mounted) = mounted::mount() else { return };
    let path = mounted.path("file");
    fs::write(&path, "a second old").unwrap();
    // The test does not check how long the commit takes on a busy machine; without it the file is
    // never there.
    wait_until(|| {
        mounted.kill();
        mounted.start("");
        if !path.exists() {
            fs::write(&path, "a second old").unwrap();
            thread::park_timeout(Duration::from_secs(2));
            return false;
        }
        true
    });
    assert_eq!(fs::read_to_string(&path).unwrap(), "a second old");
}

#[test]
fn mount_read_only_writes_nothing() {
    let Some(mut mounted) = mounted::mount() else { return };
    fs::write(mounted.path("file"), "content").unwrap();
    mounted.unmount();
    let before = mounted.drive_bytes();
    mounted.start("ro");
    assert_eq!(fs::read_to_string(mounted.path("file")).unwrap(), "content");
    assert_eq!(fs::read_dir(mounted.root()).unwrap().count(), 1);
    assert_eq!(fs::remove_file(mounted.path("file")).unwrap_err().raw_os_error(), Some(30));
    mounted.unmount();
    assert!(mounted.drive_bytes() == before);
}
