//! The options of a mount that mount(8) and findmnt(8) list, with options that FUSE has no word
//! for. Skipped where nothing can be mounted.
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a test")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use zonal::wait::wait_until;

/// A Furrow that is mounted and unmounted again and again.
struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    /// `None`, with a word why, where nothing can be mounted.
    fn new() -> Option<Self> {
        let is_root = rustix::process::geteuid().is_root();
        let has_findmnt = Command::new("findmnt").arg("--version").stdout(Stdio::null()).status();
        if !is_root || has_findmnt.is_err() || fs::File::open("/dev/fuse").is_err() {
            println!("SKIP: needs root, /dev/fuse and findmnt");
            return None;
        }
        let place = Self { folder: tempfile::tempdir().unwrap() };
        // A name that the table has to escape.
        fs::create_dir(place.dir()).unwrap();
        place.zonal(&["create", "drive.zns", "--profile", "small"]);
        place.zonal(&["mkfs", "drive.zns"]);
        Some(place)
    }

    fn dir(&self) -> PathBuf {
        self.folder.path().join("a mount")
    }

    fn run(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_zonal"));
        command.args(arguments).current_dir(self.folder.path()).stdin(Stdio::null());
        command.output().unwrap()
    }

    fn zonal(&self, arguments: &[&str]) {
        let output = self.run(arguments);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "zonal {arguments:?}: {errors}");
    }

    fn mount(&self, options: &str) {
        self.zonal(&["mount", "drive.zns", "a mount", "--log", "log", "-o", options]);
    }

    /// The mount's options in the output of findmnt.
    fn listed(&self) -> Vec<String> {
        let mut findmnt = Command::new("findmnt");
        findmnt.args(["--mtab", "--noheadings", "--output", "OPTIONS"]).arg(self.dir());
        let output = findmnt.output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        text.trim().split(',').map(ToOwned::to_owned).collect()
    }

    /// libmount's rows of the directory.
    fn kept(&self) -> Vec<String> {
        let table = fs::read_to_string("/run/mount/utab").unwrap_or_default();
        let name = self.folder.path().display().to_string();
        table.lines().filter(|row| row.contains(&name)).map(ToOwned::to_owned).collect()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if is_mounted(&self.dir()) {
            self.run(&["umount", "a mount"]);
        }
    }
}

fn is_mounted(dir: &Path) -> bool {
    let found = zonal::mounts::all().unwrap();
    found.iter().any(|mount| mount.point == dir)
}

#[test]
fn findmnt_lists_private_options_until_unmount() {
    let Some(place) = Place::new() else { return };
    place.mount("noatime,writeback,memory=64MiB,commit=7,commit=9,threads=3");
    let listed = place.listed();
    for option in ["noatime", "x-zonal.writeback", "x-zonal.memory=64MiB", "x-zonal.threads=3"] {
        assert!(listed.contains(&option.to_owned()), "{option}: {listed:?}");
    }
    let commits: Vec<_> = listed.iter().filter(|option| option.contains("commit")).collect();
    assert_eq!(commits, ["x-zonal.commit=9"]);
    place.zonal(&["umount", "a mount"]);
    assert_eq!(place.kept(), [""; 0]);
}

#[test]
fn findmnt_lists_zonefs_options_after_new_mount() {
    let Some(place) = Place::new() else { return };
    place.zonal(&["mkzonefs", "--force", "drive.zns"]);
    place.mount("ro,warm-cache,noasync-dio");
    place.zonal(&["mount", "-o", "remount,rw", "drive.zns", "a mount"]);
    let listed = place.listed();
    for option in ["rw", "x-zonal.warm-cache", "x-zonal.noasync-dio"] {
        assert!(listed.contains(&option.to_owned()), "{option}: {listed:?}");
    }
    place.zonal(&["umount", "a mount"]);
    assert_eq!(place.kept(), [""; 0]);
}

#[test]
fn findmnt_lists_no_options_of_earlier_mount() {
    let Some(place) = Place::new() else { return };
    place.mount("writeback");
    let daemon = daemon(&place.dir()).unwrap();
    let status = Command::new("kill").args(["-KILL", &daemon]).status().unwrap();
    assert!(status.success());
    wait_until(|| self::daemon(&place.dir()).is_err());
    place.zonal(&["umount", "a mount"]);
    assert!(place.kept().concat().contains("x-zonal.writeback"), "{:?}", place.kept());
    place.mount("ro");
    assert!(!place.listed().concat().contains("x-zonal"), "{:?}", place.listed());
    assert_eq!(place.kept(), [""; 0]);
    place.zonal(&["umount", "a mount"]);
}

/// The process that serves a mount.
fn daemon(dir: &Path) -> rustix::io::Result<String> {
    let mut value = [0; 16];
    let len = rustix::fs::getxattr(dir, "user.zonal.daemon", &mut value)?;
    Ok(String::from_utf8_lossy(&value[..len]).into_owned())
}
