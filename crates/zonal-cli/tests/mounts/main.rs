//! Mounts as users see them: logs, the output of `-v` and `-vv`, general options of mount(8),
//! advice.
#![expect(clippy::unwrap_used, reason = "a test")]

mod advice;
mod full_drive;
mod full_host;
mod log;
mod options;
mod remount;
mod umount;
mod verbose;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

const ZONAL: &str = env!("CARGO_BIN_EXE_zonal");

fn run(program: &Path, arguments: &[&str]) -> Output {
    Command::new(program).args(arguments).stdin(Stdio::null()).output().unwrap()
}

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Runs the command, which must succeed, and returns its output.
fn zonal(arguments: &[&str]) -> String {
    let output = run(Path::new(ZONAL), arguments);
    assert!(output.status.success(), "{arguments:?}: {}", errors(&output));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// A drive with a Furrow and a place for its mount, which ends when this is dropped.
struct Place {
    folder: TempDir,
}

impl Place {
    /// `None`, with a word why, where nothing can be mounted.
    #[expect(clippy::print_stdout, reason = "why a test does nothing is a part of its result")]
    fn mountable() -> Option<Self> {
        if !rustix::process::geteuid().is_root() || fs::File::open("/dev/fuse").is_err() {
            println!("SKIP: mounting needs root and /dev/fuse");
            return None;
        }
        Some(Self::new())
    }

    fn new() -> Self {
        let place = Self { folder: tempfile::tempdir().unwrap() };
        let drive = place.drive();
        zonal(&["create", text(&drive), "--zones", "40", "--zone-size", "1MiB"]);
        zonal(&["mkfs", text(&drive)]);
        fs::create_dir(place.dir()).unwrap();
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().canonicalize().unwrap().join(name)
    }

    fn drive(&self) -> PathBuf {
        self.path("drive.zns")
    }

    fn dir(&self) -> PathBuf {
        self.path("mnt")
    }

    /// The log of the mount's daemon.
    fn log(&self) -> String {
        fs::read_to_string(self.path("log")).unwrap_or_default()
    }

    fn try_mount(&self, options: &str) -> Output {
        let (drive, dir, log) = (self.drive(), self.dir(), self.path("log"));
        let arguments = ["mount", text(&drive), text(&dir), "--log", text(&log), "-o", options];
        run(Path::new(ZONAL), &arguments)
    }

    fn mount(&self, options: &str) {
        let output = self.try_mount(options);
        assert!(output.status.success(), "{options}: {}", errors(&output));
    }

    fn umount(&self) {
        zonal(&["umount", text(&self.dir())]);
    }

    fn stats(&self) -> serde_json::Value {
        serde_json::from_str(&zonal(&["stats", text(&self.dir()), "--json"])).unwrap()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        drop(run(Path::new(ZONAL), &["umount", "--lazy", text(&self.dir())]));
    }
}
