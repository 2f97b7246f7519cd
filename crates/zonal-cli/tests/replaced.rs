//! The command while a package upgrade or a build removes or replaces its file: it still starts
//! itself.
#![expect(clippy::unwrap_used, reason = "a test")]

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

/// A change to the program's file before the program looks for itself.
#[derive(Clone, Copy, Debug)]
enum Fate {
    Removed,
    Replaced,
}

/// A directory with a program of its own.
struct Place {
    folder: TempDir,
}

impl Place {
    fn new() -> Self {
        // In the directory of the program, so that a link to its file can be made.
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        fs::create_dir(folder.path().join("mnt")).unwrap();
        Self { folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Runs the program after its file has been removed or replaced: a descriptor, which leads to
    /// the file that was opened, starts it.
    fn zonal(&self, fate: Fate, arguments: &[&str]) -> Output {
        let path = self.path("zonal");
        let _ = fs::remove_file(&path);
        fs::hard_link(env!("CARGO_BIN_EXE_zonal"), &path).unwrap();
        let file = File::open(&path).unwrap();
        match fate {
            Fate::Removed => fs::remove_file(&path).unwrap(),
            Fate::Replaced => {
                fs::write(self.path("new"), "another version").unwrap();
                fs::rename(self.path("new"), &path).unwrap();
            }
        }
        let open = format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
        let mut command = Command::new(open);
        command.arg0("zonal").args(arguments);
        command.current_dir(self.folder.path()).stdin(Stdio::null()).output().unwrap()
    }

    fn must(&self, fate: Fate, arguments: &[&str]) -> String {
        let output = self.zonal(fate, arguments);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{fate:?}, {arguments:?}: {error}");
        String::from_utf8(output.stdout).unwrap()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut umount = Command::new(env!("CARGO_BIN_EXE_zonal"));
        umount.arg("umount").arg(self.path("mnt"));
        let _ = umount.stdout(Stdio::null()).stderr(Stdio::null()).status();
    }
}

#[test]
fn program_removed_or_replaced_mount_starts_daemon() {
    for fate in [Fate::Removed, Fate::Replaced] {
        let place = Place::new();
        let output = place.zonal(fate, &["mount", "missing.zns", "mnt", "--log", "log"]);
        let error = String::from_utf8(output.stderr).unwrap();
        // The daemon has looked for the drive.
        assert!(error.contains("opening missing.zns"), "{fate:?}: {error}");
    }
}

#[test]
fn program_removed_or_replaced_mount_and_quickstart_work() {
    if !rustix::process::geteuid().is_root() || File::open("/dev/fuse").is_err() {
        println!("SKIP: mounting needs root and /dev/fuse");
        return;
    }
    for fate in [Fate::Removed, Fate::Replaced] {
        let place = Place::new();
        place.must(fate, &["create", "drive.zns", "--zones", "60", "--zone-size", "1MiB"]);
        place.must(fate, &["mkfs", "drive.zns"]);
        let answer = place.must(fate, &["mount", "drive.zns", "mnt", "--log", "log", "--json"]);
        let answer: serde_json::Value = serde_json::from_str(&answer).unwrap();
        let name = fs::read_to_string(format!("/proc/{}/comm", answer["pid"])).unwrap();
        assert_eq!(name, "zonal\n");
        fs::write(place.path("mnt/file"), "content").unwrap();
        place.must(fate, &["umount", "mnt"]);
        place.must(fate, &["check", "drive.zns"]);
    }
    let place = Place::new();
    fs::create_dir(place.path("tree")).unwrap();
    fs::write(place.path("tree/words"), "one two three").unwrap();
    let said = place.must(Fate::Removed, &["quickstart", "--place", "new", "--dir", "tree"]);
    let program = place.path("zonal");
    assert!(said.contains("zonal check") && !said.contains("(deleted)"), "{said}");
    assert!(!program.exists());
}
