//! A host that is too small for a mounted drive file: on tmpfs, ext4 and XFS.

use std::ffi::CStr;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::fs::statvfs;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use zonal::wait::wait_until;

use super::{Place, ZONAL, errors, run, text, zonal};

const MIB: u64 = 1 << 20;

/// A small file system for a drive file, until this is dropped.
pub(crate) struct Host(pub(crate) PathBuf);

impl Host {
    /// In memory.
    fn tmpfs(place: &Place, size: &CStr) -> Self {
        let host = Self::folder(place);
        mount("host", &host.0, "tmpfs", MountFlags::empty(), Some(size)).unwrap();
        host
    }

    /// In a file of `mib` MiB; `None` where such a file system cannot be made or mounted.
    pub(crate) fn in_file(place: &Place, mib: u64, mkfs: &[&str]) -> Option<Self> {
        let image = place.path("host.img");
        File::create(&image).unwrap().set_len(mib * MIB).unwrap();
        let run = |program: &str, arguments: &[&str], ends: &[&Path]| {
            let mut command = Command::new(program);
            command.args(arguments).args(ends).stdout(Stdio::null()).stderr(Stdio::null());
            command.status().is_ok_and(|status| status.success())
        };
        let host = Self::folder(place);
        let is_there = run(mkfs[0], &mkfs[1..], &[&image])
            && run("mount", &["-o", "loop"], &[&image, &host.0]);
        is_there.then_some(host)
    }

    fn folder(place: &Place) -> Self {
        let path = place.path("host");
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    /// Bytes that it has free.
    fn free(&self) -> u64 {
        let found = statvfs(&self.0).unwrap();
        found.f_bfree * found.f_frsize
    }

    /// A mounted drive in it, larger than it.
    fn mount_drive(&self, place: &Place, zones: &str) -> PathBuf {
        let drive = self.0.join("drive.zns");
        zonal(&["create", text(&drive), "--zones", zones, "--zone-size", "4MiB"]);
        zonal(&["mkfs", text(&drive)]);
        self.mount_again(place);
        drive
    }

    fn mount_again(&self, place: &Place) {
        let (drive, log) = (self.0.join("drive.zns"), place.path("log"));
        zonal(&["mount", text(&drive), text(&place.dir()), "--log", text(&log)]);
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = unmount(&self.0, UnmountFlags::DETACH);
    }
}

/// Writes a file of its own content and syncs it.
fn write_file(path: &Path, number: u8) -> std::io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(&vec![number; 4 << 20])?;
    file.sync_all()
}

/// Fills the host by files of 4 MiB, deletes 80 MiB of them, and mounts again.
fn fill_and_delete(place: &Place, host: &Host) {
    let drive = host.mount_drive(place, "160");
    let name = |number: u8| place.dir().join(number.to_string());
    let full = (0..=u8::MAX).find_map(|number| {
        let error = write_file(&name(number), number).err()?;
        assert_eq!(error.raw_os_error(), Some(28), "ENOSPC: {error}");
        Some(number)
    });
    let full = full.expect("the drive is larger than its host");
    fs::remove_file(name(full)).unwrap();
    (0..20).for_each(|number| fs::remove_file(name(number)).unwrap());
    wait_until(|| host.free() >= 40 * MIB);
    // The mount takes new data again, by itself.
    wait_until(|| write_file(&name(full), full).is_ok());
    zonal(&["umount", text(&place.dir())]);
    zonal(&["check", "--data", text(&drive)]);
    let log = place.log();
    let errors: Vec<&str> = log.lines().filter(|line| line.contains("ERROR")).collect();
    let is_cause = |line: &&str| line.contains(text(&drive)) && line.contains("is full: new data");
    assert!(!errors.is_empty() && errors.iter().all(is_cause), "{log}");
    // Full once, or again by the last file.
    assert!(errors.len() <= 3 && log.contains("has room again"), "{log}");
    host.mount_again(place);
    for number in 20..=full {
        assert!(fs::read(name(number)).unwrap() == vec![number; 4 << 20], "{number}");
    }
}

#[test]
fn full_tmpfs_gets_space_of_deleted_files_back() {
    let Some(place) = Place::mountable() else { return };
    fill_and_delete(&place, &Host::tmpfs(&place, c"size=160m"));
    drop(run(Path::new(ZONAL), &["umount", text(&place.dir())]));
}

#[test]
fn full_ext4_and_xfs_get_space_of_deleted_files_back() {
    let makers: [&[&str]; 2] = [&["mkfs.ext4", "-q", "-F", "-m", "0"], &["mkfs.xfs", "-q", "-f"]];
    for mkfs in makers {
        let Some(place) = Place::mountable() else { return };
        let Some(host) = Host::in_file(&place, 400, mkfs) else {
            println!("SKIP: {} makes nothing that can be mounted here", mkfs[0]);
            continue;
        };
        fill_and_delete(&place, &host);
        drop(run(Path::new(ZONAL), &["umount", text(&place.dir())]));
    }
}

/// Files of ext4 with blocks of 4 KiB end at 16 TiB.
#[test]
fn drive_of_28_tb_on_ext4_becomes_directory_and_mounts() {
    let Some(place) = Place::mountable() else { return };
    let mkfs = ["mkfs.ext4", "-q", "-F", "-b", "4096"];
    let Some(host) = Host::in_file(&place, 256, &mkfs) else {
        return println!("SKIP: {} makes nothing that can be mounted here", mkfs[0]);
    };
    let drive = host.0.join("drive.zns");
    let made = zonal(&["create", text(&drive), "--profile", "smr", "--size", "28TB"]);
    assert!(made.contains("a directory of 2 sparse files"), "{made}");
    let len = |piece: &str| drive.join(piece).metadata().unwrap().len();
    assert!(len("0") > 15 << 40 && len("1") > 9 << 40, "{} and {}", len("0"), len("1"));
    zonal(&["mkfs", text(&drive)]);
    host.mount_again(&place);
    write_file(&place.dir().join("file"), 7).unwrap();
    // Named by its directory, not by that of the mount.
    zonal(&["stats", text(&drive)]);
    zonal(&["umount", text(&drive)]);
    zonal(&["check", text(&drive), "--data"]);
    let moved = host.0.join("moved");
    fs::rename(&drive, &moved).unwrap();
    let listed = zonal(&["ls", &format!("{}:/", text(&moved))]);
    assert_eq!(listed.trim(), "file");
}

/// Another program takes the reserve, too.
#[test]
fn umount_with_full_host_names_cause() {
    let Some(place) = Place::mountable() else { return };
    let host = Host::tmpfs(&place, c"size=24m");
    let drive = host.mount_drive(&place, "40");
    let file = place.dir().join("file");
    fs::write(&file, vec![1; 100_000]).unwrap();
    let filler = host.0.join("filler");
    let mut taken = File::create(&filler).unwrap();
    let mut fill = || while taken.write_all(&[1; 4096]).is_ok() {};
    let file = File::open(&file).unwrap();
    file.sync_all().unwrap();
    fill();
    let change = |mode| {
        let mut permissions = file.metadata().unwrap().permissions();
        std::os::unix::fs::PermissionsExt::set_mode(&mut permissions, mode);
        file.set_permissions(permissions).unwrap();
    };
    change(0o640);
    file.sync_all().unwrap();
    fill();
    change(0o600);
    drop(file);
    let output = run(Path::new(ZONAL), &["umount", text(&place.dir())]);
    let said = errors(&output);
    assert!(!output.status.success(), "{said}");
    assert!(said.contains("No space left on device"), "{said}");
    assert!(said.contains("the file system that holds the drive file"), "{said}");
    assert!(!said.contains(".zonal") && !said.contains("sync:"), "{said}");
    drop(taken);
    fs::remove_file(&filler).unwrap();
    zonal(&["umount", text(&place.dir())]);
    zonal(&["check", text(&drive)]);
}
