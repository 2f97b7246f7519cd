//! `zonal cp` compared with cp(1): the copies of trees that it makes, the copies that it refuses,
//! and the rights that copies give.
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a test")]

mod differential;
mod reflink;
mod refused;
mod rights;

use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::{fs, io};

use tempfile::TempDir;

/// A directory in which the commands run, with a drive that holds a Furrow.
struct Place {
    folder: TempDir,
}

impl Place {
    fn new() -> Self {
        let place = Self { folder: tempfile::tempdir().unwrap() };
        // Ordinary users need access.
        fs::set_permissions(place.folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        place.must(["create", "drive.zns", "--zones", "60", "--zone-size", "1MiB"]);
        place.must(["mkfs", "drive.zns"]);
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn read(&self, name: &str) -> io::Result<String> {
        fs::read_to_string(self.path(name))
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.current_dir(self.folder.path()).stdin(Stdio::null());
        command
    }

    fn zonal<A: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = A>) -> Output {
        self.command(env!("CARGO_BIN_EXE_zonal")).args(arguments).output().unwrap()
    }

    /// The output of a command, which must succeed.
    fn must<A: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = A>) -> Vec<u8> {
        let output = self.zonal(arguments);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        output.stdout
    }

    /// The error of a command, which must fail.
    fn refused<A: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = A>) -> String {
        let output = self.zonal(arguments);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{said}");
        said
    }
}

/// Whether this is root, which some of the tests need.
fn is_root() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        println!("SKIP: owners and devices need root");
    }
    is_root
}

/// A drive of a place, mounted until this is dropped.
struct Mounted<'a> {
    place: &'a Place,
    dir: PathBuf,
}

impl<'a> Mounted<'a> {
    /// `None`, with a word why, where nothing can be mounted. `drive.zns` is mounted at
    /// `drive.zns.mnt`.
    fn of(place: &'a Place, drive: &str) -> Option<Self> {
        if !rustix::process::geteuid().is_root() || fs::File::open("/dev/fuse").is_err() {
            println!("SKIP: mounting needs root and /dev/fuse");
            return None;
        }
        let name = format!("{drive}.mnt");
        fs::create_dir(place.path(&name)).unwrap();
        place.must(["mount", drive, &name, "--log", &format!("{drive}.log"), "-o", "allow_other"]);
        Some(Self { place, dir: place.path(&name) })
    }
}

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        let mut command = self.place.command(env!("CARGO_BIN_EXE_zonal"));
        let output = command.arg("umount").arg(&self.dir).output().unwrap();
        if !std::thread::panicking() {
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        }
    }
}
