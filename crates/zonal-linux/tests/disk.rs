//! Virtual zones on disks that have none: loop devices over files full of old data. The contract of
//! every device, and faults that only a disk can have. Needs root and loop devices.

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a test")]

#[path = "../../zonal/tests/contract/mod.rs"]
mod contract;

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

use contract::CHECKS;
use zonal::file::{self, CreateOptions, Overwrite};
use zonal::profile::Changes;
use zonal::{
    ByteCount, DeviceError, FileDrive, GeometrySpec, OpenMode, Rules, ZoneId, ZonedDevice,
};

/// Old data, on a disk that is reused.
const OLD: u8 = 0xa5;

const DISK_BYTES: usize = 16 << 20;

/// A disk that exists as long as this does.
struct Disk {
    node: PathBuf,
    file: PathBuf,
    _dir: tempfile::TempDir,
    _turn: MutexGuard<'static, ()>,
}

/// One test at a time. A disk is opened with `O_EXCL`, and each process with a copy of the
/// descriptor keeps others from opening it so: until its `exec`, also a `losetup` that another test
/// starts. A file lock can be released in spite of such a copy; an exclusive open cannot.
static TURN: Mutex<()> = Mutex::new(());

impl Disk {
    /// Attaches a disk full of `byte`; `None`, with a message, where that is not possible.
    fn new(byte: u8) -> Option<Self> {
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("disk");
        fs::write(&file, vec![byte; DISK_BYTES]).unwrap();
        match attach(&file) {
            Ok(node) => Some(Self { node, file, _dir: dir, _turn: turn }),
            Err(why) => {
                println!("SKIP: no loop device: {why}");
                None
            }
        }
    }

    /// Takes the disk away and brings it back.
    fn replug(&mut self) {
        detach(&self.node);
        self.node = attach(&self.file).unwrap();
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        detach(&self.node);
    }
}

fn attach(file: &Path) -> Result<PathBuf, String> {
    let output = Command::new("losetup").args(["--find", "--show"]).arg(file).output();
    let output = output.map_err(|error| error.to_string())?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    if output.status.success() {
        Ok(text(&output.stdout).into())
    } else {
        Err(text(&output.stderr))
    }
}

fn detach(node: &Path) {
    let _ = Command::new("losetup").arg("--detach").arg(node).status();
}

/// A shape in the words of the command line.
fn shape(words: &str) -> GeometrySpec {
    words.parse::<Changes>().unwrap().geometry().unwrap()
}

fn create(disk: &Disk, words: &str, overwrite: Overwrite) -> Result<(), DeviceError> {
    let options =
        CreateOptions { geometry: shape(words), rules: Rules::Zns, uuid: [3; 16], overwrite };
    FileDrive::create(&disk.node, &options)
}

/// Opens the disk as the command line does.
fn open(disk: &Disk, mode: OpenMode) -> Result<FileDrive, DeviceError> {
    assert!(zonal_linux::open(&disk.node, mode)?.is_none(), "left to the drive file");
    FileDrive::open(&disk.node, mode)
}

const SMALL: &str = "zone=96K,zones=12,open=3,active=5";

#[test]
#[ignore = "needs root and loop devices; run by cargo xtask test"]
fn disk_keeps_device_contract() {
    let Some(disk) = Disk::new(OLD) else { return };
    for words in [
        SMALL,
        "block=512,zone=64K,zones=20,conventional=2,open=none,active=none",
        "zone=128K,capacity=96K,zones=12,conventional=3,open=3,active=5,append=32K",
    ] {
        for (what, check) in CHECKS {
            create(&disk, words, Overwrite::Replace).unwrap();
            let drive = open(&disk, OpenMode::ReadWrite).unwrap();
            contract::run(&drive, &format!("disk, {words}"), what, *check);
        }
    }
}

#[test]
#[ignore = "needs root and loop devices; run by cargo xtask test"]
fn disk_takes_as_many_zones_as_fit() {
    let Some(disk) = Disk::new(0) else { return };
    let len = file::disk_len(&disk.node).unwrap();
    assert_eq!(len.get(), DISK_BYTES as u64);
    let zones = file::zones_that_fit(len, ByteCount::new(1 << 20));
    let words = |zones: u32| format!("zone=1M,zones={zones}");
    let error = create(&disk, &words(zones + 1), Overwrite::Refuse).unwrap_err();
    assert!(matches!(error, DeviceError::Geometry { .. }), "{error}");
    create(&disk, &words(zones), Overwrite::Refuse).unwrap();
    let drive = open(&disk, OpenMode::ReadWrite).unwrap();
    assert_eq!(drive.geometry().zone_count(), zones);
    let last = ZoneId::new(zones - 1);
    let lba = drive.append(last, &vec![9; 1 << 20]).unwrap();
    let mut back = vec![0; 1 << 20];
    drive.read(lba, &mut back).unwrap();
    assert!(back.iter().all(|byte| *byte == 9));
}

#[test]
#[ignore = "needs root and loop devices; run by cargo xtask test"]
fn disk_with_content_is_left_alone() {
    let Some(disk) = Disk::new(0) else { return };
    let refused = |what: &str| {
        let before = fs::read(&disk.file).unwrap();
        let error = create(&disk, SMALL, Overwrite::Refuse).unwrap_err();
        assert!(error.to_string().contains("holds data"), "{what}: {error}");
        assert!(fs::read(&disk.file).unwrap() == before, "{what}: untouched");
    };
    let write = |at: u64, bytes: &[u8]| {
        let node = File::options().write(true).open(&disk.node).unwrap();
        node.write_all_at(bytes, at).unwrap();
        node.sync_all().unwrap();
    };
    for (what, at, bytes) in [
        ("a file system", 0, &b"XFSB"[..]),
        ("a partition table", 510, &[0x55, 0xaa]),
        ("a table's copy at the end", DISK_BYTES as u64 - 512, b"EFI PART"),
    ] {
        write(at, bytes);
        let error = open(&disk, OpenMode::ReadOnly).err().unwrap();
        assert!(matches!(error, DeviceError::NoZones { .. }), "{what}: {error}");
        refused(what);
        write(at, &vec![0; bytes.len()]);
    }
    create(&disk, SMALL, Overwrite::Refuse).unwrap();
    refused("a drive");
    write(DISK_BYTES as u64 - 512, b"EFI PART");
    create(&disk, SMALL, Overwrite::Replace).unwrap();
    let mut end = [1; 512];
    File::open(&disk.node).unwrap().read_exact_at(&mut end, DISK_BYTES as u64 - 512).unwrap();
    assert_eq!(end, [0; 512], "no table is found at the end");
}

#[test]
#[ignore = "needs root and loop devices; run by cargo xtask test"]
fn disk_has_one_writer() {
    let Some(disk) = Disk::new(0) else { return };
    create(&disk, SMALL, Overwrite::Refuse).unwrap();
    let drive = open(&disk, OpenMode::ReadWrite).unwrap();
    let locked = |outcome: Result<(), DeviceError>| {
        assert!(matches!(outcome, Err(DeviceError::Locked { .. })), "{outcome:?}");
    };
    locked(open(&disk, OpenMode::ReadWrite).map(drop));
    locked(open(&disk, OpenMode::ReadLocked).map(drop));
    locked(create(&disk, SMALL, Overwrite::Replace));
    drive.append(ZoneId::new(4), &[6; 4096]).unwrap();
    let reader = open(&disk, OpenMode::ReadOnly).unwrap();
    assert_eq!(reader.zone(ZoneId::new(4)).unwrap().written().unwrap().get(), 1);
    drop(drive);
    let reader = open(&disk, OpenMode::ReadLocked).unwrap();
    locked(open(&disk, OpenMode::ReadWrite).map(drop));
    drop(reader);
    open(&disk, OpenMode::ReadWrite).unwrap();
}

/// The environment of a process that writes two blocks, flushes after the first, and is killed.
const VICTIM: &str = "VICTIM_DISK";

#[test]
#[ignore = "needs root and loop devices; run by cargo xtask test"]
fn disk_kill_loses_nothing_pull_only_unflushed() {
    if let Some(node) = std::env::var_os(VICTIM) {
        let drive = FileDrive::open(PathBuf::from(node), OpenMode::ReadWrite).unwrap();
        drive.append(ZoneId::new(2), &[1; 4096]).unwrap();
        drive.flush().unwrap();
        drive.append(ZoneId::new(2), &[2; 4096]).unwrap();
        std::process::abort();
    }
    let Some(mut disk) = Disk::new(OLD) else { return };
    create(&disk, SMALL, Overwrite::Replace).unwrap();
    let written = |disk: &Disk| {
        let drive = open(disk, OpenMode::ReadOnly).unwrap();
        drive.zone(ZoneId::new(2)).unwrap().written().unwrap().get()
    };
    let name = "disk_kill_loses_nothing_pull_only_unflushed";
    let status = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", name])
        .env(VICTIM, &disk.node)
        .output()
        .unwrap()
        .status;
    assert!(!status.success(), "killed");
    assert_eq!(written(&disk), 2, "after the kill");
    disk.replug();
    assert_eq!(written(&disk), 1, "the disk may have lost the second block");
    let drive = open(&disk, OpenMode::ReadWrite).unwrap();
    let mut back = [9; 8192];
    drive.read(drive.geometry().zone_start(ZoneId::new(2)), &mut back).unwrap();
    assert_eq!((back[0], back[4096]), (1, 0));
}
