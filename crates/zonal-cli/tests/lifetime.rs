//! How a program says how long its files will live: by attribute, by ioctl, and by `fcntl` with the
//! library that carries it through FUSE.
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a test")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn run(program: &mut Command) -> String {
    let output = program.output().unwrap();
    assert!(output.status.success(), "{program:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn zonal(arguments: &[&str]) -> String {
    run(Command::new(env!("CARGO_BIN_EXE_zonal")).args(arguments))
}

/// A mounted Furrow, and a compiled program that sets hints.
struct Mount {
    folder: TempDir,
}

impl Mount {
    fn new() -> Option<Self> {
        if !rustix::process::geteuid().is_root() || fs::File::open("/dev/fuse").is_err() {
            println!("SKIP: mounting needs root and /dev/fuse");
            return None;
        }
        if Command::new("cc").arg("--version").output().is_err() {
            println!("SKIP: there is no C compiler, cc");
            return None;
        }
        let mount = Self { folder: tempfile::tempdir().unwrap() };
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/hint.c");
        let mut cc = Command::new("cc");
        cc.args(["-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-o"]);
        run(cc.arg(mount.program()).arg(source));
        fs::create_dir(mount.dir()).unwrap();
        let drive = mount.drive();
        zonal(&["create", text(&drive), "--zones", "40", "--zone-size", "1MiB"]);
        zonal(&["mkfs", text(&drive)]);
        mount.mount();
        Some(mount)
    }

    fn mount(&self) {
        let (drive, dir, log) = (self.drive(), self.dir(), self.folder.path().join("log"));
        zonal(&["mount", text(&drive), text(&dir), "--log", text(&log)]);
    }

    fn dir(&self) -> PathBuf {
        self.folder.path().join("mnt")
    }

    fn drive(&self) -> PathBuf {
        self.folder.path().join("drive.zns")
    }

    fn program(&self) -> PathBuf {
        self.folder.path().join("hint")
    }

    /// Runs the program on a file, with the library or without.
    fn hint(&self, library: Option<&Path>, words: &[&str]) -> Output {
        let mut program = Command::new(self.program());
        program.args(words);
        if let Some(library) = library {
            program.env("LD_PRELOAD", library);
        }
        program.output().unwrap()
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.dir()).output();
    }
}

fn attribute(path: &Path) -> Option<String> {
    let mut value = [0; 16];
    let length = rustix::fs::getxattr(path, "user.zonal.lifetime", &mut value).ok()?;
    Some(String::from_utf8(value[..length].to_vec()).unwrap())
}

fn set(path: &Path, value: &str) -> rustix::io::Result<()> {
    let flags = rustix::fs::XattrFlags::empty();
    rustix::fs::setxattr(path, "user.zonal.lifetime", value.as_bytes(), flags)
}

/// The library to be preloaded, which cargo builds beside the tests of this crate.
fn library() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let library = test.parent().unwrap().join("libzonal_hint.so");
    assert!(library.exists(), "{}", library.display());
    library
}

#[test]
fn lifetime_attribute_is_inherited_and_survives_remount() {
    let Some(mount) = Mount::new() else { return };
    let logs = mount.dir().join("logs");
    fs::create_dir(&logs).unwrap();
    assert_eq!(set(&logs, "brief"), Err(rustix::io::Errno::INVAL));
    set(&logs, "short").unwrap();
    fs::create_dir(logs.join("old")).unwrap();
    for name in ["first", "old/second"] {
        fs::write(logs.join(name), "content").unwrap();
    }
    set(&logs.join("first"), "extreme").unwrap();
    zonal(&["umount", text(&mount.dir())]);
    mount.mount();
    assert_eq!(attribute(&logs.join("first")).as_deref(), Some("extreme"));
    assert_eq!(attribute(&logs.join("old/second")).as_deref(), Some("short"));
    assert_eq!(attribute(&mount.dir()), None);
    zonal(&["umount", text(&mount.dir())]);
    zonal(&["check", text(&mount.drive())]);
}

#[test]
fn lifetime_ioctl_uses_rw_hint_numbers() {
    let Some(mount) = Mount::new() else { return };
    let file = mount.dir().join("file");
    fs::write(&file, "content").unwrap();
    let ioctl = |words: &[&str]| mount.hint(None, &[&["ioctl", text(&file)], words].concat());
    assert!(ioctl(&["4"]).status.success());
    assert_eq!(attribute(&file).as_deref(), Some("long"));
    assert_eq!(mount.hint(None, &["get", text(&file)]).stdout, b"4\n");
    assert!(!ioctl(&["6"]).status.success());
    assert!(ioctl(&["0"]).status.success());
    assert_eq!(attribute(&file), None);
    assert_eq!(mount.hint(None, &["get", text(&file)]).stdout, b"0\n");
}

#[test]
fn lifetime_hints_of_fcntl_pass_fuse_by_library() {
    let Some(mount) = Mount::new() else { return };
    let file = mount.dir().join("file");
    fs::write(&file, "content").unwrap();
    let with = library();
    let set =
        |library, what, hint| mount.hint(library, &[what, text(&file), hint]).status.success();
    assert!(set(None, "fcntl", "2"), "the kernel takes a hint on any file");
    assert_eq!(attribute(&file), None, "and does not pass it on");
    assert!(set(Some(&with), "fcntl", "2"));
    assert_eq!(attribute(&file).as_deref(), Some("short"));
    assert!(set(Some(&with), "narrow", "5"), "4 bytes are enough");
    assert_eq!(attribute(&file).as_deref(), Some("extreme"));
    assert!(!set(Some(&with), "fcntl", "7"), "no such hint");
    assert!(set(Some(&with), "fcntl", "0"));
    assert_eq!(attribute(&file), None);
    let elsewhere = mount.folder.path().join("elsewhere");
    fs::write(&elsewhere, "content").unwrap();
    let outside = mount.hint(Some(&with), &["narrow", text(&elsewhere), "3"]);
    assert!(outside.status.success());
    assert_eq!(attribute(&elsewhere), None, "files that are not on a FUSE mount are left alone");
}
