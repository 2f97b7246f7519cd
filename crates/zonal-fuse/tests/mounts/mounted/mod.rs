//! A real mount for the tests, served by a process of its own and always taken down.
//!
//! The daemon is this test binary run again: a mapping that is taken away waits for its daemon,
//! so the two must not be one process. Each test program has a
//! `#[test] #[ignore] fn daemon() { mounted::daemon() }` for it.

#![allow(dead_code, reason = "each test file uses its own part of this")]
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "this is test code")]

pub(crate) mod content;
pub(crate) mod ext4;
pub(crate) mod held;
pub(crate) mod mapped;
pub(crate) mod offer;
pub(crate) mod tools;

use std::env;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::SeekFrom;
use rustix::mount::UnmountFlags;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use zonal::OpenMode;
use zonal::file::{CreateOptions, FileDrive, Overwrite};
use zonal::profile::Changes;
use zonal::wait::wait_until;
use zonal::{Rules, SystemClock};
use zonal_fs::furrow::{self, Furrow, MkfsOptions, MountOptions};
use zonal_fs::vfs::FileSystem;
use zonal_fs::zonefs::{self, ZoneFs};
use zonal_fuse::MountContent;
use zonal_fuse::latency::Latencies;
use zonal_fuse::options::{Access, MountConfig, WriteCache};
use zonal_fuse::unmount::{detach, unmount_and_wait};

/// A daemon takes as long as it takes to end: a month is never.
pub(crate) const NEVER: Duration = Duration::from_hours(720);

const MOUNT_POINT: &str = "ZONAL_TEST_MOUNT_POINT";
const DRIVE: &str = "ZONAL_TEST_DRIVE";
const KIND: &str = "ZONAL_TEST_KIND";
const OPTIONS: &str = "ZONAL_TEST_OPTIONS";

/// Options for every mount, from outside: `MOUNT_OPTIONS=writeback cargo test`.
const MORE_OPTIONS: &str = "MOUNT_OPTIONS";

/// The drive: 2 GiB in a sparse file.
const SHAPE: &str = "zone=24M,capacity=20M,size=2G,open=14,active=28";

/// A mounted file system.
pub(crate) struct Mounted {
    daemon: Child,
    dir: TempDir,
    drive: PathBuf,
    kind: &'static str,
}

/// Mounts a new file system, or says why this machine cannot and returns `None`.
pub(crate) fn mount() -> Option<Mounted> {
    mount_with("")
}

/// The same with mount options.
pub(crate) fn mount_with(options: &str) -> Option<Mounted> {
    mount_kind("furrow", options)
}

/// The same with a zonefs.
pub(crate) fn mount_zones(options: &str) -> Option<Mounted> {
    mount_kind("zonefs", options)
}

fn mount_kind(kind: &'static str, options: &str) -> Option<Mounted> {
    if File::options().read(true).write(true).open("/dev/fuse").is_err() {
        println!("SKIP: /dev/fuse cannot be opened");
        return None;
    }
    if !rustix::process::geteuid().is_root() {
        println!("SKIP: needs root");
        return None;
    }
    let dir = TempDir::with_prefix("zonal-fuse-").unwrap();
    fs::create_dir(dir.path().join("mnt")).unwrap();
    let drive = dir.path().join("drive");
    let daemon = start(&dir.path().join("mnt"), &drive, (kind, options));
    Some(Mounted { daemon, dir, drive, kind })
}

impl Mounted {
    /// The directory it is mounted on.
    pub(crate) fn root(&self) -> PathBuf {
        self.dir.path().join("mnt")
    }

    /// A path inside.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.root().join(name)
    }

    /// A scratch directory outside.
    pub(crate) fn outside(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Everything in the drive file that is stored, with its place: most of the file is a hole.
    pub(crate) fn drive_bytes(&self) -> Vec<(u64, Vec<u8>)> {
        let file = File::open(&self.drive).unwrap();
        let (mut parts, mut from) = (Vec::new(), 0);
        // There is no data behind the last part.
        while let Ok(start) = rustix::fs::seek(&file, SeekFrom::Data(from)) {
            from = rustix::fs::seek(&file, SeekFrom::Hole(start)).unwrap();
            let mut bytes = vec![0; usize::try_from(from - start).unwrap()];
            file.read_exact_at(&mut bytes, start).unwrap();
            parts.push((start, bytes));
        }
        parts
    }

    /// The drive file.
    pub(crate) fn drive(&self) -> &Path {
        &self.drive
    }

    /// The daemon's process id.
    pub(crate) fn pid(&self) -> u32 {
        self.daemon.id()
    }

    /// Unmounts and mounts again.
    pub(crate) fn remount(&mut self, options: &str) {
        self.unmount();
        self.start(options);
    }

    /// Unmounts and waits for the daemon, which must end well.
    pub(crate) fn unmount(&mut self) {
        if self.kind == "zonefs" {
            // Its directory cannot be synced, and there is no control directory here.
            detach(&self.root(), UnmountFlags::empty()).unwrap();
        } else {
            unmount_and_wait(&self.root(), NEVER).unwrap();
        }
        self.wait();
    }

    /// Waits for the daemon, which must end well.
    pub(crate) fn wait(&mut self) {
        assert!(self.ended_well());
    }

    /// Starts the daemon again after an unmount.
    pub(crate) fn start(&mut self, options: &str) {
        self.daemon = start(&self.root(), &self.drive, (self.kind, options));
    }

    /// Kills the daemon without warning: the mount stays, dead.
    pub(crate) fn kill_daemon(&mut self) {
        self.daemon.kill().unwrap();
        self.daemon.wait().unwrap();
    }

    /// Kills the daemon without warning and clears the dead mount away.
    pub(crate) fn kill(&mut self) {
        self.kill_daemon();
        self.clear_away();
    }

    /// Takes a dead mount away.
    pub(crate) fn clear_away(&self) {
        rustix::mount::unmount(self.root(), rustix::mount::UnmountFlags::DETACH).unwrap();
    }

    /// Makes everything durable and stops, by the ioctl that XFS and ext4 have too. It needs
    /// `unsafe` from Rust; python3 is wherever the other suites run.
    pub(crate) fn shut_down(&self) {
        let script = "import fcntl,os,sys; fd=os.open(sys.argv[1],os.O_RDONLY); \
                      fcntl.ioctl(fd,0x8004587d,b'\\0\\0\\0\\0')";
        let status = Command::new("python3").args(["-c", script]).arg(self.root()).status();
        assert!(status.unwrap().success());
    }

    /// Sends SIGTERM and waits for the daemon, which must end well.
    pub(crate) fn terminate(&mut self) {
        self.signal();
        self.wait();
    }

    /// Sends SIGTERM.
    pub(crate) fn signal(&self) {
        self.send(Signal::TERM);
    }

    /// Sends two signals that arrive at the same time, as timeout(1) does: the daemon stands still
    /// meanwhile. Two of the same kind would become one.
    pub(crate) fn signal_twice_at_once(&self) {
        for signal in [Signal::STOP, Signal::TERM, Signal::INT, Signal::CONT] {
            self.send(signal);
        }
    }

    /// Sends SIGTERM again and again until the daemon ends; whether it ended well.
    pub(crate) fn insist(&mut self) -> bool {
        let mut status = None;
        wait_until(|| {
            self.signal();
            status = self.daemon.try_wait().unwrap();
            status.is_some()
        });
        status.unwrap().success()
    }

    fn send(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.daemon), signal).unwrap();
    }

    /// Waits for the daemon; whether it ended well.
    pub(crate) fn ended_well(&mut self) -> bool {
        self.daemon.wait().unwrap().success()
    }

    /// Ends the connection with the kernel, which frees every process that waits for an answer.
    pub(crate) fn abort(&self) {
        let how = rustix::mount::UnmountFlags::DETACH | rustix::mount::UnmountFlags::FORCE;
        rustix::mount::unmount(self.root(), how).unwrap();
    }

    /// Whether the directory is still a mount point.
    pub(crate) fn is_mounted(&self) -> bool {
        let root = self.root().canonicalize().unwrap();
        let table = fs::read_to_string("/proc/self/mounts").unwrap();
        table
            .lines()
            .any(|line| line.split(' ').nth(1).is_some_and(|point| root == Path::new(point)))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(
            self.root(),
            rustix::mount::UnmountFlags::DETACH | rustix::mount::UnmountFlags::FORCE,
        );
        let _ = self.daemon.kill();
        let _ = self.daemon.wait();
    }
}

/// Makes a drive whose zone size is no power of two and whose zones have gaps, and formats it.
fn format(path: &Path, kind: &str) {
    let shape: Changes = SHAPE.parse().unwrap();
    let geometry = shape.geometry().unwrap();
    let overwrite = Overwrite::Refuse;
    let options = CreateOptions { geometry, rules: Rules::Zns, uuid: [1; 16], overwrite };
    FileDrive::create(path, &options).unwrap();
    let drive = Arc::new(FileDrive::open(path, OpenMode::ReadWrite).unwrap());
    match kind {
        "zonefs" => {
            zonefs::mkfs(&*drive, &zonefs::MkfsOptions::default(), &mut |_| ()).map(drop).unwrap();
        }
        _ => furrow::mkfs(drive, &SystemClock::new(), &MkfsOptions::default(), &mut |_| ())
            .map(drop)
            .unwrap(),
    }
}

fn start(point: &Path, drive: &Path, (kind, options): (&str, &str)) -> Child {
    let mut daemon = Command::new(env::current_exe().unwrap())
        .args(["daemon", "--exact", "--ignored", "--nocapture"])
        .env(MOUNT_POINT, point)
        .env(DRIVE, drive)
        .env(KIND, kind)
        .env(OPTIONS, options)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(daemon.stdout.take().unwrap()).lines();
    let ready = lines.by_ref().map_while(Result::ok).any(|line| line.ends_with("READY"));
    assert!(ready, "the daemon did not start: {}", daemon.wait().unwrap());
    // The rest of its output must go somewhere.
    std::thread::spawn(move || lines.for_each(drop));
    daemon
}

/// The body of the daemon's test.
pub(crate) fn daemon() {
    // Run as a test of its own, it has nothing to do.
    let Some(point) = env::var_os(MOUNT_POINT) else { return };
    let drive = PathBuf::from(env::var_os(DRIVE).unwrap());
    // Here, where no test forks: a child would hold the lock of the drive until it runs a program.
    let kind = env::var(KIND).unwrap();
    if !drive.exists() {
        format(&drive, &kind);
    }
    let mut config = MountConfig::new(drive.to_str().unwrap(), Path::new(&point));
    config.apply(&env::var(MORE_OPTIONS).unwrap_or_default()).unwrap();
    config.apply(&env::var(OPTIONS).unwrap()).unwrap();
    let (mode, access) = match config.access {
        Access::ReadWrite => (OpenMode::ReadWrite, furrow::Access::ReadWrite),
        Access::ReadOnly => (OpenMode::ReadOnly, furrow::Access::ReadOnly),
    };
    let below = FileDrive::open(&drive, mode).unwrap();
    let device = Arc::new(held::Held { below, path: drive });
    let clock = match config.write_cache {
        WriteCache::Through => SystemClock::new(),
        WriteCache::Back => SystemClock::coarse(),
    };
    let clock = Arc::new(clock);
    let fs: Arc<dyn FileSystem> = if kind == "zonefs" {
        let options = zonefs::MountOptions { access: config.access, ..Default::default() };
        Arc::new(ZoneFs::mount(device, clock, options).unwrap())
    } else {
        let commit_seconds = MountOptions::COMMIT_SECONDS_OF_MOUNT;
        let atime = config.atime;
        let options = MountOptions { access, atime, commit_seconds, ..MountOptions::default() };
        Arc::new(Furrow::mount(device, clock, options).unwrap())
    };
    let latencies = Arc::new(Latencies::new(Arc::new(SystemClock::new())));
    let content = MountContent { fs, control: None, latencies };
    zonal_fuse::serve(content, &config, |_| println!("READY")).unwrap();
}
