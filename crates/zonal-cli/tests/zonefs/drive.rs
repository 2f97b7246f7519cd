//! An emulated drive with a zonefs on it, used through the command alone and always unmounted.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use rustix::mount::{UnmountFlags, unmount};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use zonal::wait::wait_until;

/// The kind of drive.
#[derive(Debug)]
pub(crate) struct Shape {
    pub(crate) block: u64,
    pub(crate) zone: u64,
    pub(crate) capacity: u64,
    pub(crate) zones: u64,
    pub(crate) conventional: u64,
    pub(crate) max_open: u32,
    pub(crate) max_active: u32,
}

const MIB: u64 = 1 << 20;

/// Ten conventional zones and no limits.
pub(crate) const PLAIN: Shape = Shape {
    block: 512,
    zone: 4 * MIB,
    capacity: 4 * MIB,
    zones: 64,
    conventional: 10,
    max_open: 0,
    max_active: 0,
};

/// The same with limits.
pub(crate) const LIMITED: Shape = Shape { max_open: 8, max_active: 9, ..PLAIN };

/// Only sequential zones.
pub(crate) const SEQUENTIAL: Shape = Shape { conventional: 0, ..LIMITED };

/// The one conventional zone holds the super block.
pub(crate) const ONE: Shape = Shape { conventional: 1, ..LIMITED };

/// Zones that hold less than their size.
pub(crate) const SHORT: Shape = Shape { block: 4096, capacity: 3 * MIB, ..LIMITED };

/// Zones whose size is no power of two: no kernel takes such a drive.
pub(crate) const ODD: Shape = Shape { zone: 3 * MIB, capacity: 3 * MIB - 4096, ..LIMITED };

/// Zones that take a large write.
pub(crate) const LARGE: Shape =
    Shape { zone: 32 * MIB, capacity: 24 * MIB, zones: 8, conventional: 1, ..PLAIN };

/// The small drives.
pub(crate) const SHAPES: [&Shape; 6] = [&PLAIN, &LIMITED, &SEQUENTIAL, &ONE, &SHORT, &ODD];

/// Drives with conventional files.
pub(crate) const CONVENTIONAL: [&Shape; 4] = [&PLAIN, &LIMITED, &SHORT, &ODD];

/// Options of mkzonefs for one file for each conventional zone, and for one file for all.
pub(crate) const SEPARATE: &[&str] = &[];
pub(crate) const AGGREGATED: &[&str] = &["-o", "aggr_cnv"];

impl Shape {
    /// How many conventional files there are if each zone has its own. Zone 0 has none.
    pub(crate) fn cnv_files(&self) -> u64 {
        self.conventional.saturating_sub(1)
    }

    /// The zone of the first sequential file.
    pub(crate) fn first_seq(&self) -> u64 {
        self.conventional.max(1)
    }

    /// How many sequential files there are.
    pub(crate) fn seq_files(&self) -> u64 {
        self.zones - self.first_seq()
    }

    /// Bytes that all files together can hold.
    pub(crate) fn usable(&self) -> u64 {
        self.cnv_files() * self.zone + self.seq_files() * self.capacity
    }

    fn create(&self, file: &Path) {
        let number = |option: &str, value: u64| format!("--{option}={value}");
        let bytes = |option: &str, value: u64| format!("--{option}={value}B");
        run(command(["create"]).arg(file).args([
            number("zones", self.zones),
            bytes("zone-size", self.zone),
            bytes("zone-capacity", self.capacity),
            bytes("block-size", self.block),
            number("conventional", self.conventional),
            number("max-open", self.max_open.into()),
            number("max-active", self.max_active.into()),
        ]));
    }
}

/// A drive, and the directory at which it is mounted, if it is.
pub(crate) struct Drive {
    place: TempDir,
    pub(crate) shape: &'static Shape,
    /// The process that serves it.
    daemon: AtomicI32,
}

impl Drive {
    /// A new drive without a file system, or `None` after saying why this machine cannot mount.
    pub(crate) fn new(shape: &'static Shape) -> Option<Self> {
        if File::options().read(true).write(true).open("/dev/fuse").is_err() {
            println!("SKIP: /dev/fuse cannot be opened");
            return None;
        }
        if !rustix::process::geteuid().is_root() {
            println!("SKIP: needs root");
            return None;
        }
        let place = TempDir::with_prefix("zonal-zonefs-").unwrap();
        let drive = Self { place, shape, daemon: AtomicI32::new(0) };
        fs::create_dir(drive.root()).unwrap();
        shape.create(&drive.device());
        Some(drive)
    }

    /// A new drive with a file system, made with these options of mkzonefs.
    pub(crate) fn formatted(shape: &'static Shape, options: &[&str]) -> Option<Self> {
        let drive = Self::new(shape)?;
        drive.format(options);
        Some(drive)
    }

    /// The same, mounted.
    pub(crate) fn mounted(shape: &'static Shape, options: &[&str]) -> Option<Self> {
        let drive = Self::formatted(shape, options)?;
        drive.mount("");
        Some(drive)
    }

    /// The drive file.
    pub(crate) fn device(&self) -> PathBuf {
        self.place.path().join("drive")
    }

    /// A scratch path outside of the file system.
    pub(crate) fn outside(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    /// The directory at which it is mounted.
    pub(crate) fn root(&self) -> PathBuf {
        self.place.path().join("mnt")
    }

    /// A conventional file.
    pub(crate) fn cnv(&self, number: u64) -> PathBuf {
        self.root().join("cnv").join(number.to_string())
    }

    /// A sequential file.
    pub(crate) fn seq(&self, number: u64) -> PathBuf {
        self.root().join("seq").join(number.to_string())
    }

    /// Every zone file.
    pub(crate) fn files(&self, aggregated: &[&str]) -> Vec<PathBuf> {
        let cnv = if aggregated.is_empty() {
            self.shape.cnv_files()
        } else {
            self.shape.cnv_files().min(1)
        };
        let seq = (0..self.shape.seq_files()).map(|number| self.seq(number));
        (0..cnv).map(|number| self.cnv(number)).chain(seq).collect()
    }

    /// Runs `mkzonefs` under that name.
    pub(crate) fn mkzonefs(&self, arguments: &[&str], device: &Path) -> Output {
        let name = self.outside("mkzonefs");
        if !name.exists() {
            std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_zonal"), &name).unwrap();
        }
        output(Command::new(&name).args(arguments).arg(device))
    }

    /// Makes the file system, over any content.
    pub(crate) fn format(&self, options: &[&str]) {
        must(&self.mkzonefs(&[&["-f"], options].concat(), &self.device()));
    }

    /// Mounts with a list of options, or an empty one.
    pub(crate) fn mount(&self, options: &str) {
        let mounted = self.try_mount(options, &self.device());
        must(&mounted);
        let mounted: serde_json::Value = serde_json::from_slice(&mounted.stdout).unwrap();
        let process = i32::try_from(mounted["pid"].as_i64().unwrap()).unwrap();
        self.daemon.store(process, Ordering::Relaxed);
    }

    /// Kills the daemon and clears the dead mount away.
    pub(crate) fn kill(&self) {
        let daemon = Pid::from_raw(self.daemon.swap(0, Ordering::Relaxed)).expect("mounted");
        kill_process(daemon, Signal::KILL).unwrap();
        unmount(self.root(), UnmountFlags::DETACH).unwrap();
        // Until the daemon has released the drive. The test takes no lock of its own: a process
        // that another test is just starting would keep it.
        let mut free = Command::new("flock");
        free.arg("--nonblock").arg(self.device()).arg("true");
        wait_until(|| output(&mut free).status.success());
    }

    /// Tries to mount a device or any other file.
    pub(crate) fn try_mount(&self, options: &str, device: &Path) -> Output {
        let mut mount = command(["mount", "--json", "-t", "zonefs"]);
        if !options.is_empty() {
            mount.args(["-o", options]);
        }
        mount.arg("--log").arg(self.outside("log"));
        output(mount.arg(device).arg(self.root()))
    }

    /// Unmounts and waits until the drive is free.
    pub(crate) fn unmount(&self) {
        // A process that another test is just starting holds our files until it runs its program.
        let mut tries = 0;
        wait_until(|| {
            let done = output(command(["umount"]).arg(self.root()));
            tries += 1;
            assert!(tries < 200 || done.status.success(), "{}", text(&done));
            done.status.success()
        });
    }

    /// Unmounts and mounts again.
    pub(crate) fn remount(&self, options: &str) {
        self.unmount();
        self.mount(options);
    }

    /// The condition of a zone and the bytes written to it, while the drive is not mounted.
    pub(crate) fn zone(&self, zone: u64) -> (String, Option<u64>) {
        let first = zone.to_string();
        let text =
            run(command(["zones", "--json", "--count=1", "--first", &first]).arg(self.device()));
        let row: serde_json::Value = serde_json::from_str(&text).unwrap();
        (row["condition"].as_str().unwrap().to_owned(), row["written_bytes"].as_u64())
    }

    /// Runs a subcommand on the drive while it is not mounted.
    pub(crate) fn zonal<const N: usize>(&self, words: [&str; N], rest: &[&str]) {
        run(command(words).arg(self.device()).args(rest));
    }

    /// A number from the control directory.
    pub(crate) fn count(&self, name: &str) -> u32 {
        let text = fs::read_to_string(self.root().join(".zonal").join(name)).unwrap();
        text.strip_suffix('\n').expect("a line").parse().unwrap()
    }

    /// Waits for such a number: the kernel reports a close to the file system later.
    pub(crate) fn await_count(&self, name: &str, expected: u32) {
        wait_until(|| self.count(name) == expected);
    }

    /// Does something to the device behind the back of the file system.
    pub(crate) fn order(&self, line: &str) {
        fs::write(self.root().join(".zonal/command"), format!("{line}\n")).unwrap();
    }

    /// Waits until the mount table shows the mount as read-only. It does when the file whose write
    /// failed has been closed.
    pub(crate) fn await_read_only(&self) {
        wait_until(|| self.is_read_only());
    }

    /// Whether the mount table shows the mount as read-only.
    pub(crate) fn is_read_only(&self) -> bool {
        self.shows("ro")
    }

    /// Whether the mount table has an option.
    pub(crate) fn shows(&self, option: &str) -> bool {
        let root = self.root().canonicalize().unwrap();
        let table = fs::read_to_string("/proc/self/mounts").unwrap();
        let line = table.lines().find(|line| line.split(' ').nth(1) == root.to_str()).unwrap();
        line.split(' ').nth(3).unwrap().split(',').any(|shown| shown == option)
    }
}

impl Drop for Drive {
    fn drop(&mut self) {
        // After a test that passed, nothing is mounted any more, or it can be unmounted.
        if output(command(["umount"]).arg(self.root())).status.success() {
            return;
        }
        let _ = unmount(self.root(), UnmountFlags::DETACH | UnmountFlags::FORCE);
    }
}

/// Has the kernel forget unused inodes.
pub(crate) fn drop_inodes() {
    fs::write("/proc/sys/vm/drop_caches", "2").unwrap();
}

/// `zonal` with these words.
pub(crate) fn command<const N: usize>(words: [&str; N]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_zonal"));
    command.args(words);
    command
}

/// Runs a command to its end, successful or not.
pub(crate) fn output(command: &mut Command) -> Output {
    command.stdin(Stdio::null()).output().unwrap()
}

/// The output of a program; panics with it if the program fails.
pub(crate) fn run(command: &mut Command) -> String {
    let output = output(command);
    must(&output);
    String::from_utf8(output.stdout).unwrap()
}

/// The program must have succeeded.
pub(crate) fn must(output: &Output) {
    assert!(output.status.success(), "{}: {}", output.status, text(output));
}

/// Both streams.
pub(crate) fn text(output: &Output) -> String {
    let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.push_str(&String::from_utf8_lossy(&output.stderr));
    text
}

/// The path of a program; `None`, after a message, if it is missing.
pub(crate) fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path)
        .chain(["/usr/sbin", "/sbin"].map(PathBuf::from))
        .map(|folder| folder.join(name))
        .find(|file| file.is_file());
    if found.is_none() {
        println!("SKIP: {name} is not installed");
    }
    found
}

/// A tenth of a second.
pub(crate) fn pause() {
    let (_open, inbox) = channel::<()>();
    assert_eq!(inbox.recv_timeout(Duration::from_millis(100)), Err(RecvTimeoutError::Timeout));
}

/// A path as an argument.
pub(crate) fn argument(option: &str, path: &Path) -> String {
    format!("{option}{}", path.to_str().unwrap())
}
