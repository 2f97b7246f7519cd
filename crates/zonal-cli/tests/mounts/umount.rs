//! `zonal umount` of mounts that other mount namespaces have, that programs use, or whose drive has
//! no power; and places where a drive may not be mounted.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, PidfdFlags, pidfd_open};
use zonal::wait::wait_until;
use zonal_fuse::unmount::daemon_of;

use super::{Place, ZONAL, errors, run, text, zonal};

/// A program that is killed when this is dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Running {
    fn start(command: &mut Command) -> Self {
        Self(command.stdin(Stdio::null()).spawn().unwrap())
    }

    /// A process in a mount namespace of its own, with a copy of each mount; `None` where that is
    /// not allowed.
    #[expect(clippy::print_stdout, reason = "why a test does nothing is a part of its result")]
    fn in_own_namespace() -> Option<Self> {
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", "echo ready; exec sleep 1000000"]);
        let mut child = command.stdout(Stdio::piped()).stdin(Stdio::null()).spawn().ok()?;
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let running = Self(child);
        if line.is_empty() {
            println!("SKIP: no mount namespace can be made");
            return None;
        }
        Some(running)
    }

    /// A process that works in a directory.
    fn inside(dir: &Path) -> Self {
        let mut command = Command::new("sleep");
        Self::start(command.arg("1000000").current_dir(dir))
    }
}

fn is_mounted(dir: &Path) -> bool {
    zonal::mounts::all().unwrap().iter().any(|mount| mount.point == dir)
}

/// Waits until the daemon has ended.
fn wait_for(daemon: u32) {
    let path = format!("/proc/{daemon}");
    wait_until(|| !Path::new(&path).exists());
}

/// Starts an unmount and returns the first line that it prints while it waits.
fn umount_until_told(named: &Path) -> (Running, String) {
    let mut command = Command::new(ZONAL);
    let mut umount = Running::start(command.args(["umount", text(named)]).stderr(Stdio::piped()));
    let mut said = String::new();
    BufReader::new(umount.0.stderr.take().unwrap()).read_line(&mut said).unwrap();
    (umount, said)
}

fn is_running(process: u32) -> bool {
    let pid = Pid::from_raw(i32::try_from(process).unwrap()).unwrap();
    pidfd_open(pid, PidfdFlags::empty()).is_ok()
}

#[test]
fn umount_names_namespace_with_mount_and_waits() {
    let Some(place) = Place::mountable() else { return };
    place.mount("rw");
    fs::write(place.dir().join("file"), "content").unwrap();
    let Some(other) = Running::in_own_namespace() else { return };
    let (mut umount, said) = umount_until_told(&place.dir());
    assert!(said.contains(&format!("process {} (sleep)", other.0.id())), "{said}");
    assert!(said.contains("everything written so far is durable"), "{said}");
    let force = format!("`zonal umount --force {}`", text(&place.drive()));
    assert!(said.contains(&force), "{said}");
    assert!(!is_mounted(&place.dir()), "{said}");
    drop(other);
    assert!(umount.0.wait().unwrap().success());
    place.mount("rw");
    assert_eq!(fs::read(place.dir().join("file")).unwrap(), b"content");
    place.umount();
}

#[test]
fn umount_of_device_ends_mount_in_other_namespace() {
    let Some(place) = Place::mountable() else { return };
    place.mount("rw");
    let daemon = daemon_of(&place.dir()).unwrap();
    fs::write(place.dir().join("file"), "content").unwrap();
    let Some(other) = Running::in_own_namespace() else { return };
    let (dir, drive) = (place.dir(), place.drive());
    let holder = format!("process {} (sleep) uses {}", other.0.id(), text(&dir));
    // The wait is interrupted, and the next one names the device.
    for named in [&dir, &drive] {
        let (waiting, said) = umount_until_told(named);
        assert!(said.contains(&holder) && !is_mounted(&dir), "{said}");
        drop(waiting);
        assert!(is_running(daemon));
    }
    let said = errors(&run(Path::new(ZONAL), &["umount", text(&dir)]));
    assert!(said.contains("not mounted here, but in other mount namespaces"), "{said}");
    zonal(&["umount", "--force", text(&drive)]);
    wait_for(daemon);
    place.mount("rw");
    assert_eq!(fs::read(dir.join("file")).unwrap(), b"content");
    place.umount();
    drop(other);
}

#[test]
fn umount_force_removes_mount_in_use() {
    let Some(place) = Place::mountable() else { return };
    for options in ["rw", "writeback"] {
        place.mount(options);
        let daemon = daemon_of(&place.dir()).unwrap();
        let mut file = File::create(place.dir().join(options)).unwrap();
        file.write_all(b"content").unwrap();
        let inside = Running::inside(&place.dir());
        zonal(&["umount", "--force", text(&place.dir())]);
        assert!(!is_mounted(&place.dir()));
        assert!(file.write_all(b"too late").and_then(|()| file.sync_all()).is_err());
        wait_for(daemon);
        drop(inside);
        place.mount("rw");
        assert_eq!(fs::read(place.dir().join(options)).unwrap(), b"content", "{options}");
        place.umount();
    }
}

/// After a power cut, and after the death of the daemon.
#[test]
fn umount_of_dead_mount_in_use_removes_it() {
    let Some(place) = Place::mountable() else { return };
    let drive = format!("fault(write,nth=1,power-cut):{}", text(&place.drive()));
    let (dir, log) = (place.dir(), place.path("log"));
    zonal(&["mount", &drive, text(&dir), "--log", text(&log)]);
    let inside = Running::inside(&dir);
    let file = File::create(dir.join("file")).unwrap();
    assert!(file.sync_all().is_err(), "the power is cut");
    let daemon = daemon_of(&dir).unwrap();
    let said = errors(&run(Path::new(ZONAL), &["umount", text(&dir)]));
    assert!(said.contains("was not unmounted, since its data could not be synced"), "{said}");
    assert!(is_mounted(&dir), "a refusal ends nothing");
    zonal(&["umount", "--force", text(&dir)]);
    assert!(!is_mounted(&dir));
    drop((file, inside));
    wait_for(daemon);
    place.mount("rw");
    let inside = Running::inside(&dir);
    let daemon = daemon_of(&dir).unwrap();
    let pid = Pid::from_raw(i32::try_from(daemon).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    wait_for(daemon);
    place.umount();
    assert!(!is_mounted(&dir));
    drop(inside);
}

#[test]
fn mount_of_mounted_drive_names_bind_mount() {
    let Some(place) = Place::mountable() else { return };
    place.mount("rw");
    let other = place.path("other place");
    fs::create_dir(&other).unwrap();
    let output = run(Path::new(ZONAL), &["mount", text(&place.drive()), text(&other)]);
    let said = errors(&output);
    assert!(!output.status.success(), "{said}");
    let (drive, dir) = (place.drive(), place.dir());
    assert!(said.contains(&format!("{} is mounted at {}", text(&drive), text(&dir))), "{said}");
    let command = said.split('`').nth(1).unwrap();
    assert_eq!(command, format!("mount --bind {} '{}'", text(&dir), text(&other)));
    let bound = Command::new("sh").args(["-c", command]).status().unwrap();
    assert!(bound.success());
    assert!(is_mounted(&other));
    zonal(&["umount", text(&other)]);
    place.umount();
}

#[test]
fn mount_over_its_own_drive_is_refused() {
    let Some(place) = Place::mountable() else { return };
    let folder = place.path("");
    for drive in [text(&place.drive()), &format!("po2:{}", text(&place.drive()))] {
        let output = run(Path::new(ZONAL), &["mount", drive, text(&folder)]);
        let said = errors(&output);
        assert!(!output.status.success(), "{said}");
        assert!(said.contains("would hide its own drive"), "{said}");
    }
}

#[test]
fn umount_finds_layered_mount_by_relative_drive() {
    let Some(place) = Place::mountable() else { return };
    let here = |arguments: &[&str]| {
        let mut command = Command::new(ZONAL);
        let output = command.args(arguments).current_dir(place.path("")).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", errors(&output));
    };
    here(&["mount", "po2:drive.zns", "mnt", "--log", "log"]);
    assert!(is_mounted(&place.dir()));
    here(&["umount", "drive.zns"]);
    assert!(!is_mounted(&place.dir()));
}

/// Another mount above the drive file may hide it.
#[test]
fn umount_finds_mount_by_hidden_drive() {
    let Some(place) = Place::mountable() else { return };
    place.mount("rw");
    fs::rename(place.drive(), place.path("hidden.zns")).unwrap();
    zonal(&["umount", text(&place.drive())]);
    assert!(!is_mounted(&place.dir()));
}
