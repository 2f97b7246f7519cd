//! `zonal quickstart` works on files of its own: the user's files stay as they were.
#![expect(clippy::unwrap_used, reason = "a test")]

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use zonal::wait::wait_until;

/// A directory of a user: a drive, a mount point with a file, and a tree to be copied.
struct Home {
    folder: TempDir,
    /// The bytes of the drive.
    drive: Vec<u8>,
}

impl Home {
    fn new() -> Self {
        let mut home = Self { folder: tempfile::tempdir().unwrap(), drive: Vec::new() };
        fs::create_dir_all(home.path("empty")).unwrap();
        fs::create_dir_all(home.path("tree")).unwrap();
        fs::write(home.path("tree/words"), "one two three").unwrap();
        fs::create_dir_all(home.path("home/mnt")).unwrap();
        let made = home.zonal(&["create", "home/drive.zns", "--zones", "4", "--zone-size", "1MiB"]);
        assert!(made.status.success(), "{}", text(&made));
        home.drive = fs::read(home.path("home/drive.zns")).unwrap();
        for name in ["drive.log", "drive.counts.json", "mnt/file"] {
            fs::write(home.path("home").join(name), name).unwrap();
        }
        home
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn quickstart(&self, arguments: &[&str]) -> Output {
        self.zonal(&[&["quickstart"], arguments].concat())
    }

    fn zonal(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_zonal"));
        command.args(arguments);
        command.current_dir(self.folder.path()).stdin(Stdio::null()).output().unwrap()
    }

    /// The user's files are there, and nothing else.
    fn is_unchanged(&self) {
        let read = |name: &str| fs::read(self.path("home").join(name)).unwrap();
        assert!(read("drive.zns") == self.drive);
        for name in ["drive.log", "drive.counts.json", "mnt/file"] {
            assert_eq!(read(name), name.as_bytes());
        }
        assert_eq!(fs::read_dir(self.path("home")).unwrap().count(), 4);
    }
}

/// A file system in memory at a directory, until it is dropped.
struct Tmpfs(PathBuf);

impl Drop for Tmpfs {
    fn drop(&mut self) {
        let _ = unmount(&self.0, UnmountFlags::DETACH);
    }
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr[..]].concat()).into_owned()
}

/// Both signals of timeout(1) arrive at the same time, since the process is stopped meanwhile.
#[test]
fn quickstart_signals_at_once_remove_all_it_made() {
    let home = Home::new();
    let mut command = Command::new(env!("CARGO_BIN_EXE_zonal"));
    command.args(["quickstart", "--place", "new", "--dir", "tree"]);
    command.current_dir(home.folder.path()).stdin(Stdio::null());
    let mut run = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait_until(|| home.path("new/drive.zns").exists() || run.try_wait().unwrap().is_some());
    for signal in [Signal::STOP, Signal::TERM, Signal::INT, Signal::CONT] {
        kill_process(Pid::from_child(&run), signal).unwrap();
    }
    let output = run.wait_with_output().unwrap();
    let said = text(&output);
    let signals = [Signal::TERM, Signal::INT].map(|signal| Some(signal.as_raw()));
    assert!(signals.contains(&output.status.signal()), "{said}");
    assert!(said.contains("stopped on request"), "{said}");
    assert!(!home.path("new").exists(), "{said}");
    home.is_unchanged();
}

/// Runs that fail: before they make anything, and after the drive has its file.
const FAILING: [&[&str]; 3] = [
    &["--place", "home", "--dir", "empty"],
    &["--place", "home", "--dir", "tree", "--zone-capacity", "97MiB"],
    &["--place", "home", "--dir", "tree", "--zone-capacity", "97MiB", "--no-mount"],
];

#[test]
fn quickstart_failure_leaves_existing_files() {
    for arguments in FAILING {
        let home = Home::new();
        let output = home.quickstart(arguments);
        assert!(!output.status.success(), "{arguments:?}: {}", text(&output));
        home.is_unchanged();
    }
}

#[test]
fn quickstart_leaves_foreign_mount_mounted() {
    if !rustix::process::geteuid().is_root() {
        println!("SKIP: mounting needs root");
        return;
    }
    for arguments in FAILING {
        let home = Home::new();
        let point = home.path("home/mnt");
        mount("other", &point, "tmpfs", MountFlags::empty(), None::<&std::ffi::CStr>).unwrap();
        let mounted = Tmpfs(point.clone());
        fs::write(point.join("in-use"), "x").unwrap();
        let output = home.quickstart(arguments);
        assert!(!output.status.success(), "{arguments:?}: {}", text(&output));
        assert_eq!(fs::read(point.join("in-use")).unwrap(), b"x", "{arguments:?}");
        drop(mounted);
        home.is_unchanged();
    }
}

#[test]
fn quickstart_second_run_leaves_first_drive() {
    /// Everything that shows whether a file was written or replaced.
    fn state(path: &Path) -> (u64, u64, i64, i64) {
        let found = path.metadata().unwrap();
        (found.ino(), found.blocks(), found.mtime(), found.mtime_nsec())
    }
    let home = Home::new();
    let arguments = ["--place", "new place", "--dir", "tree", "--no-mount"];
    let first = home.quickstart(&arguments);
    assert!(first.status.success(), "{}", text(&first));
    let drive = home.path("new place/drive.zns");
    let before = state(&drive);
    let second = home.quickstart(&arguments);
    assert!(second.status.success(), "{}", text(&second));
    assert_eq!(state(&drive), before);
    assert!(home.path("new place/zonal-quickstart/drive.zns").is_file(), "{}", text(&second));
    home.is_unchanged();
    // The printed command, pasted into a shell, removes the files of the run.
    fs::create_dir(home.path("new")).unwrap();
    let said = text(&first);
    let removal = said.lines().find_map(|line| line.trim().strip_prefix("remove it:")).unwrap();
    let removed = Command::new("sh").arg("-c").arg(removal).output().unwrap();
    assert!(removed.status.success(), "{removal}: {}", text(&removed));
    assert!(home.path("new").exists() && !home.path("new place").exists(), "{removal}");
}

/// As `zonal quickstart | head`.
#[test]
fn quickstart_without_reader_removes_all_it_made() {
    let home = Home::new();
    let mut command = Command::new(env!("CARGO_BIN_EXE_zonal"));
    command.args(["quickstart", "--place", "new", "--dir", "tree"]);
    command.current_dir(home.folder.path()).stdin(Stdio::null());
    let mut run = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut lines = BufReader::new(run.stdout.take().unwrap()).lines();
    let is_open =
        |line: &String| ["done  mount", "done  open"].iter().any(|step| line.contains(step));
    lines.by_ref().map(|line| line.unwrap()).find(is_open).unwrap();
    drop(lines);
    assert_eq!(run.wait().unwrap().signal(), Some(Signal::PIPE.as_raw()));
    assert!(!home.path("new").exists());
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    assert!(!mounts.contains(home.folder.path().to_str().unwrap()), "{mounts}");
    home.is_unchanged();
}
