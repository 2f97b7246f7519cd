//! Mounts of the command.

use std::fs;
use std::io::Write;

use rustix::process::{Pid, Signal, kill_process};
use zonal::claim;

use crate::Place;

fn daemon(place: &Place) -> Pid {
    let process = claim::holder_of(&place.path("drive.zns")).unwrap();
    Pid::from_raw(i32::try_from(process).unwrap()).unwrap()
}

/// A mounted Furrow.
fn mounted(options: &str) -> Option<Place> {
    let place = Place::mountable()?;
    place.make();
    place.mount(options);
    Some(place)
}

#[test]
fn mounts_that_are_well_raise_no_alarm() {
    let Some(place) = mounted("noatime") else { return };
    place.is_well("mnt");
    fs::write(place.path("mnt/private-name"), vec![1; 3 << 20]).unwrap();
    place.is_well("mnt");
    place.is_well("drive.zns");
    fs::remove_file(place.path("mnt/private-name")).unwrap();
    place.is_well("mnt");
    place.must("doctor mnt --bundle bundle.json");
    let text = fs::read_to_string(place.path("bundle.json")).unwrap();
    assert!(text.contains("user_bytes") && !text.contains("private-name"), "{text}");
    place.must("umount mnt");
    place.mount("ro");
    place.is_well("mnt");
}

#[test]
fn deleted_file_that_is_open_is_noted() {
    let Some(place) = mounted("noatime") else { return };
    let path = place.path("mnt/file");
    let mut file = fs::File::create(&path).unwrap();
    file.write_all(&vec![1; 1 << 20]).unwrap();
    fs::remove_file(&path).unwrap();
    let (report, code) = place.look("mnt");
    let text = report["findings"].to_string();
    assert!(text.contains("1 deleted files are still open and hold 1 MiB"), "{report:#}");
    assert_eq!(code, Some(0));
    drop(file);
    let (report, _) = place.look("mnt");
    assert!(!report["findings"].to_string().contains("deleted files"), "{report:#}");
}

#[test]
fn dead_mount_is_named() {
    let Some(place) = mounted("noatime") else { return };
    kill_process(daemon(&place), Signal::KILL).unwrap();
    zonal::wait::wait_until(|| fs::metadata(place.path("mnt")).is_err());
    place.names("mnt", "it is dead");
}

#[test]
fn stopped_daemon_is_named() {
    let Some(place) = mounted("noatime") else { return };
    let daemon = daemon(&place);
    kill_process(daemon, Signal::STOP).unwrap();
    let (report, code) = place.look("mnt");
    kill_process(daemon, Signal::CONT).unwrap();
    let text = report["findings"].to_string();
    assert!(text.contains("its daemon is stopped"), "{report:#}");
    assert_eq!(code, Some(1));
    place.is_well("mnt");
}

#[test]
fn foreign_writer_below_mount_is_named() {
    let Some(place) = mounted("noatime") else { return };
    // The drive gets blocks past the file system.
    fs::write(place.path("mnt/.zonal/command"), "write 33 8192\n").unwrap();
    place.names("mnt", "a foreign writer");
}

#[test]
fn full_mount_is_named() {
    let Some(place) = mounted("noatime") else { return };
    let mut file = fs::File::create(place.path("mnt/file")).unwrap();
    let data = vec![1; 64 << 10];
    while file.write_all(&data).is_ok() {}
    while file.write_all(&[1; 4 << 10]).is_ok() {}
    place.names("mnt", "it is full");
}

#[test]
fn zone_that_fails_below_mount_is_named() {
    let Some(place) = mounted("noatime") else { return };
    fs::write(place.path("mnt/.zonal/command"), "offline 33\n").unwrap();
    let file = fs::File::create(place.path("mnt/file")).unwrap();
    file.sync_all().unwrap();
    drop(file);
    place.must("umount mnt");
    place.names("drive.zns", "offline zones: 1");
    place.mount("noatime");
    place.names("mnt", "have failed");
}
