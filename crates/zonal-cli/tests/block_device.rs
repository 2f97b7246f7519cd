//! A mount that has a block device: sync(1) and umount(2) wait for its commits, and other programs
//! cannot use the device. The drive is a loop device with virtual zones, or the file below it, for
//! which another loop device stands in.
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a test")]

use std::fs;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use rustix::mount::UnmountFlags;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use zonal::mounts::Mount;
use zonal::wait::wait_until;
use zonal_fuse::unmount::daemon_of;

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn run(program: &mut Command) -> Output {
    program.stdin(Stdio::null()).output().unwrap()
}

fn zonal(arguments: &[&str]) -> Output {
    run(Command::new(env!("CARGO_BIN_EXE_zonal")).args(arguments))
}

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn must(output: &Output) -> String {
    assert!(output.status.success(), "{}", errors(output));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// A loop device, which is detached when this is dropped.
struct Loop {
    node: PathBuf,
}

impl Loop {
    fn attach(file: &Path) -> Result<Self, String> {
        let output = Command::new("losetup").args(["--find", "--show"]).arg(file).output();
        let output = output.map_err(|error| error.to_string())?;
        if !output.status.success() {
            return Err(errors(&output));
        }
        Ok(Self { node: String::from_utf8(output.stdout).unwrap().trim().into() })
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").arg("--detach").arg(&self.node).status();
    }
}

/// A disk with a Furrow, and three places to mount it at.
struct Disk {
    /// Before the folder, in which the file of the device is.
    device: Loop,
    folder: TempDir,
}

impl Disk {
    /// `None`, after a message, where the disk cannot be made or the kernel does not pass sync(1)
    /// on.
    fn new() -> Option<Self> {
        let skip = |why: &str| {
            println!("SKIP: {why}");
            None
        };
        if !rustix::process::geteuid().is_root() || fs::File::open("/dev/fuse").is_err() {
            return skip("mounting needs root and /dev/fuse");
        }
        let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
        let mut numbers = release.split(['.', '-']).map(|number| number.parse().unwrap_or(0_u32));
        if (numbers.next(), numbers.next()) < (Some(6), Some(18)) {
            return skip("a fuseblk passes sync(1) on from Linux 6.18 on");
        }
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("disk");
        // The file has the length of such a drive, so it can be one too.
        fs::File::create(&file).unwrap().set_len(42 << 20).unwrap();
        let device = match Loop::attach(&file) {
            Ok(device) => device,
            Err(why) => return skip(&format!("no loop device: {why}")),
        };
        must(&zonal(&["create", text(&device.node), "--zone-size", "1MiB", "--zones", "40"]));
        must(&zonal(&["mkfs", text(&device.node)]));
        for number in 0..3 {
            fs::create_dir(folder.path().join(format!("{number}"))).unwrap();
        }
        Some(Self { device, folder })
    }

    fn place(&self, number: usize) -> PathBuf {
        self.folder.path().join(format!("{number}"))
    }

    /// Mounts it. The commit timer is an hour, so only requests commit.
    fn mount(&self, number: usize, options: &str) -> Output {
        self.mount_drive(text(&self.device.node), number, options)
    }

    /// The same of the file below the device, or with layers in front.
    fn mount_drive(&self, drive: &str, number: usize, options: &str) -> Output {
        let (place, log) = (self.place(number), self.folder.path().join("log"));
        let options = format!("commit=3600,{options}");
        let arguments = ["mount", drive, text(&place), "-o", &options];
        zonal(&[&arguments[..], &["--log", text(&log)]].concat())
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("disk")
    }

    fn in_table(&self, number: usize) -> Option<Mount> {
        let place = self.place(number);
        zonal::mounts::all().unwrap().into_iter().find(|mount| mount.point == place)
    }

    /// The file system type of a place in the mount table.
    fn kind(&self, number: usize) -> Option<String> {
        Some(self.in_table(number)?.kind.into_string().unwrap())
    }

    /// How many loop devices stand in for the file.
    fn stand_ins(&self) -> usize {
        let name = format!("zonal:{}", text(&self.file()));
        let all = fs::read_dir("/sys/block").unwrap();
        let files = all.map(|device| device.unwrap().path().join("loop/backing_file"));
        files.filter(|file| fs::read_to_string(file).is_ok_and(|it| it.contains(&name))).count()
    }

    /// Names of files that a power cut now would leave.
    fn names_after_power_cut(&self) -> String {
        let copy = self.folder.path().join("copy");
        fs::copy(self.file(), &copy).unwrap();
        let copy = Loop::attach(&copy).unwrap();
        must(&zonal(&["ls", &format!("{}:/", text(&copy.node))]))
    }

    fn signal(&self, number: usize, signal: Signal) {
        let daemon = daemon_of(&self.place(number)).unwrap();
        kill_process(Pid::from_raw(i32::try_from(daemon).unwrap()).unwrap(), signal).unwrap();
    }

    /// Whether a program that ignores locks could open the device.
    fn is_free(&self) -> bool {
        let mut options = fs::File::options();
        options.read(true).custom_flags(rustix::fs::OFlags::EXCL.bits().cast_signed());
        options.open(&self.device.node).is_ok()
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        for number in 0..3 {
            let _ = rustix::mount::unmount(self.place(number), UnmountFlags::DETACH);
        }
    }
}

#[test]
#[ignore = "needs root and loop devices; run by cargo xtask test"]
fn sync_waits_for_commit_on_every_drive() {
    let Some(disk) = Disk::new() else { return };
    let (node, file) = (disk.device.node.clone(), disk.file());
    let drives =
        [&node, &file].map(|drive| [text(drive).to_owned(), format!("po2:{}", text(drive))]);
    for (number, drive) in drives.concat().iter().enumerate() {
        for options in ["rw", "writeback"] {
            must(&disk.mount_drive(drive, 0, options));
            let found = disk.in_table(0).unwrap();
            assert_eq!(
                (found.kind.to_str(), &*found.source),
                (Some("fuseblk.furrow"), drive.as_ref())
            );
            let (synced, later) =
                (format!("synced-{number}-{options}"), format!("later-{number}-{options}"));
            fs::write(disk.place(0).join(&synced), "content").unwrap();
            rustix::fs::syncfs(fs::File::open(disk.place(0)).unwrap()).unwrap();
            fs::write(disk.place(0).join(&later), "content").unwrap();
            let names = disk.names_after_power_cut();
            assert!(names.contains(&synced), "{drive}: {names}");
            assert!(!names.contains(&later), "nothing else has committed: {names}");
            must(&zonal(&["umount", text(&disk.place(0))]));
        }
    }
}

#[test]
#[ignore = "needs root and loop devices; run by cargo xtask test"]
fn stand_in_goes_with_mount_however_it_ends() {
    let Some(disk) = Disk::new() else { return };
    let file = disk.file();
    let mount = || {
        must(&disk.mount_drive(text(&file), 0, "rw"));
        assert_eq!(disk.stand_ins(), 1);
    };
    let unmount = |how| rustix::mount::unmount(disk.place(0), how).unwrap();
    mount();
    unmount(UnmountFlags::empty());
    wait_until(|| disk.stand_ins() == 0);

    mount();
    disk.signal(0, Signal::TERM);
    wait_until(|| disk.stand_ins() == 0);

    mount();
    disk.signal(0, Signal::KILL);
    wait_until(|| fs::metadata(disk.place(0)).is_err());
    // The drive file is free for another mount before the dead one has gone.
    must(&disk.mount_drive(text(&file), 1, "rw"));
    assert_eq!(disk.stand_ins(), 2);
    unmount(UnmountFlags::empty());
    must(&zonal(&["umount", text(&disk.place(1))]));
    wait_until(|| disk.stand_ins() == 0);

    mount();
    let open = fs::File::create(disk.place(0).join("open")).unwrap();
    unmount(UnmountFlags::DETACH);
    assert_eq!(disk.stand_ins(), 1);
    drop(open);
    wait_until(|| disk.stand_ins() == 0);
}

#[test]
#[ignore = "needs root and loop devices; run by cargo xtask test"]
fn drive_file_without_loop_devices_is_mounted_as_fuse() {
    let Some(disk) = Disk::new() else { return };
    // A container may have no /dev/loop-control.
    let script = "mount --bind /dev/null /dev/loop-control && \"$0\" mount -q \"$1\" \"$2\" \
        --log \"$3\" && findmnt --noheadings --output FSTYPE \"$2\"; \"$0\" umount \"$2\"";
    let mut unshare = Command::new("unshare");
    unshare.args(["--mount", "sh", "-c", script, env!("CARGO_BIN_EXE_zonal")]);
    unshare.args([disk.file(), disk.place(0), disk.folder.path().join("log")]);
    assert_eq!(must(&run(&mut unshare)).trim(), "fuse.furrow");
}

#[test]
#[ignore = "needs root and loop devices; run by cargo xtask test"]
fn block_device_umount_returns_once_clean() {
    let Some(disk) = Disk::new() else { return };
    must(&disk.mount(0, "rw"));
    fs::write(disk.place(0).join("file"), "content").unwrap();
    // As umount(8) does, without a helper.
    rustix::mount::unmount(disk.place(0), UnmountFlags::empty()).unwrap();
    assert!(disk.is_free());
    assert!(disk.names_after_power_cut().contains("file"));
    must(&zonal(&["check", text(&disk.device.node)]));
    // The end by a signal leaves the same.
    must(&disk.mount(0, "rw"));
    fs::write(disk.place(0).join("other"), "content").unwrap();
    disk.signal(0, Signal::TERM);
    wait_until(|| disk.kind(0).is_none() && disk.is_free());
    assert!(disk.names_after_power_cut().contains("other"));
    must(&disk.mount(0, "rw"));
    assert_eq!(fs::read_to_string(disk.place(0).join("other")).unwrap(), "content");
    must(&zonal(&["umount", text(&disk.place(0))]));
}

#[test]
#[ignore = "needs root and loop devices; run by cargo xtask test"]
fn block_device_has_many_readers_or_one_writer() {
    let Some(disk) = Disk::new() else { return };
    let node = text(&disk.device.node);
    let refused = |output: Output, why: &[&str]| {
        assert!(!output.status.success());
        let said = errors(&output);
        assert!(said.contains("in use by another process"), "{said}");
        assert!(why.iter().all(|why| said.contains(why)), "{why:?}: {said}");
    };
    must(&disk.mount(0, "rw"));
    fs::write(disk.place(0).join("file"), "content").unwrap();
    let place = format!("it is mounted at {}", text(&disk.place(0)));
    let process = format!("process, {}", daemon_of(&disk.place(0)).unwrap());
    for options in ["rw", "ro"] {
        let said = errors(&disk.mount(1, options));
        let first = format!("{node} is mounted at {}", text(&disk.place(0)));
        assert!(said.contains(&first) && said.contains("mount --bind"), "{said}");
    }
    refused(zonal(&["mkfs", "--force", node]), &[&place, &process]);
    refused(zonal(&["check", node]), &[&place, &process]);
    assert!(!disk.is_free(), "the kernel holds it");
    must(&zonal(&["info", node]));
    must(&zonal(&["umount", text(&disk.place(0))]));

    must(&disk.mount(0, "ro"));
    must(&disk.mount(1, "ro"));
    for number in [0, 1] {
        assert_eq!(disk.kind(number).as_deref(), Some("fuse.furrow"));
        assert_eq!(fs::read_to_string(disk.place(number).join("file")).unwrap(), "content");
    }
    must(&zonal(&["check", node]));
    assert!(!disk.is_free());
    refused(zonal(&["mkfs", "--force", node]), &["it is mounted at ", "process, "]);
    // The first mount had the device exclusively.
    must(&zonal(&["umount", text(&disk.place(0))]));
    refused(zonal(&["mkfs", "--force", node]), &["it is mounted at ", "process, "]);
    must(&zonal(&["umount", text(&disk.place(1))]));
    let other = fs::File::options()
        .read(true)
        .custom_flags(rustix::fs::OFlags::EXCL.bits().cast_signed())
        .open(&disk.device.node)
        .unwrap();
    refused(zonal(&["check", node]), &[]);
    drop(other);
    must(&disk.mount(2, "rw"));
    must(&zonal(&["umount", text(&disk.place(2))]));
}

#[test]
#[ignore = "needs root and loop devices; run by cargo xtask test"]
fn block_device_of_killed_daemon_is_busy_until_unmount() {
    let Some(disk) = Disk::new() else { return };
    for options in ["rw", "writeback"] {
        must(&disk.mount(0, options));
        let file = disk.place(0).join(options);
        fs::write(&file, "content").unwrap();
        fs::File::open(&file).unwrap().sync_all().unwrap();
        disk.signal(0, Signal::KILL);
        wait_until(|| fs::metadata(&file).is_err());
        let refused = errors(&disk.mount(1, "rw"));
        assert!(refused.contains(&format!("zonal umount {}", text(&disk.place(0)))), "{refused}");
        must(&zonal(&["umount", text(&disk.place(0))]));
        must(&disk.mount(1, options));
        assert_eq!(fs::read_to_string(disk.place(1).join(options)).unwrap(), "content");
        must(&zonal(&["umount", text(&disk.place(1))]));
    }
}

#[test]
#[ignore = "needs root and loop devices; run by cargo xtask test"]
fn block_device_mount_frees_space_of_deleted_files() {
    let Some(disk) = Disk::new() else { return };
    must(&disk.mount(0, "rw"));
    let content = vec![7; 8 << 20];
    // Together the rounds write more than the drive can hold, so Furrow resets zones and discards
    // their blocks on the disk.
    for round in 0..8 {
        let file = disk.place(0).join(format!("{round}"));
        fs::write(&file, &content).unwrap();
        rustix::fs::syncfs(fs::File::open(disk.place(0)).unwrap()).unwrap();
        assert!(fs::read(&file).unwrap() == content);
        fs::remove_file(&file).unwrap();
    }
    must(&zonal(&["umount", text(&disk.place(0))]));
    must(&zonal(&["check", text(&disk.device.node)]));
}
