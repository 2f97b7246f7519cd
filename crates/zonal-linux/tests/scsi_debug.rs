//! The contract of every device, kept by SCSI drives with zones: the kernel's `scsi_debug`. Runs as
//! root in a kernel that has it; `cargo xtask vm` has one.

#![expect(clippy::unwrap_used, reason = "a test")]

#[path = "../../zonal/tests/contract/mod.rs"]
mod contract;

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::Command;

use contract::CHECKS;
use zonal::wait::wait_until;
use zonal::{BlockSize, Lba, LbaCount, OpenMode, ZoneId, ZonedDevice};
use zonal_linux::{BlockDrive, ScsiDrive};

/// Where the driver lists its adapters.
const ADAPTERS: &str = "/sys/bus/pseudo/drivers/scsi_debug";

/// Options of the module for each shape; every shape has common options too. Sizes are in MiB.
const SHAPES: [(&str, &[&str]); 3] = [
    (
        "4Kn, gaps, limits",
        &[
            "sector_size=4096",
            "zone_size_mb=2",
            "zone_cap_mb=1",
            "dev_size_mb=20",
            "zone_nr_conv=2",
            "zone_max_open=3",
        ],
    ),
    (
        PHYSICAL,
        &["sector_size=512", "physblk_exp=3", "zone_size_mb=1", "dev_size_mb=9", "zone_nr_conv=2"],
    ),
    ("a smaller last zone", &["sector_size=4096", "zone_size_mb=2", "dev_size_mb=9"]),
];

/// Blocks of 4096 bytes, addressed by 512: sequential zones take only whole ones.
const PHYSICAL: &str = "512e";

/// A drive that exists as long as this does. There is one at a time: options are of the module.
struct ScsiDebug {
    node: PathBuf,
}

impl ScsiDebug {
    fn new(options: &[&str]) -> Self {
        // The driver of the disks, which no udev loads here.
        for module in [&["sd_mod"], &["scsi_debug", "zbc=host-managed", "delay=0"][..]] {
            let mut load = Command::new("modprobe");
            load.args(module).args(if module.len() > 1 { options } else { &[] });
            assert!(load.status().unwrap().success(), "{load:?}");
        }
        let mut node = None;
        wait_until(|| {
            node = find().filter(|node| node.exists());
            node.is_some()
        });
        Self { node: node.unwrap() }
    }
}

impl Drop for ScsiDebug {
    fn drop(&mut self) {
        // A moment after the last one has closed the disk the module is still in use.
        let unload = || Command::new("modprobe").args(["-q", "-r", "scsi_debug"]).status();
        wait_until(|| unload().is_ok_and(|status| status.success()));
    }
}

/// The node of the disk, which appears a moment after the module is there.
fn find() -> Option<PathBuf> {
    // adapter0/host0/target0:0:0/0:0:0:0/block/sda
    let below = |folder: PathBuf, start: &str| {
        let entries = fs::read_dir(folder).ok()?.flatten().map(|entry| entry.path());
        let named = |path: &PathBuf| path.file_name()?.to_str().map(|name| name.starts_with(start));
        entries.into_iter().find(|path| named(path) == Some(true))
    };
    let unit = ["adapter", "host", "target", ""];
    let place = unit.iter().try_fold(ADAPTERS.into(), |place, start| match *start {
        "" => fs::read_dir(place)
            .ok()?
            .flatten()
            .map(|entry| entry.path())
            .find(|path| path.join("block").exists()),
        start => below(place, start),
    })?;
    let disk = below(place.join("block"), "sd")?;
    Some(Path::new("/dev").join(disk.file_name()?))
}

/// Checks that ZBC lets drives break, and the behaviour that differs.
const OTHERWISE: [(&str, &str); 2] = [
    ("actions follow the state machine", "by ZBC-2 a zone that is not open may be closed"),
    (
        "the least recently used open zone is closed",
        "ZBC-2 leaves the choice to the drive; scsi_debug closes the first in the order of zones",
    ),
];

/// Runs every check on a new disk of each shape, which `open` opens. Returns how many there were.
fn keep_contract(open: impl Fn(&ScsiDebug) -> Box<dyn ZonedDevice>) -> usize {
    let (mut number, mut failed) = (0, Vec::new());
    for (shape, options) in SHAPES {
        for (what, check) in CHECKS {
            if OTHERWISE.iter().any(|(name, _)| name == what) {
                continue;
            }
            number += 1;
            let disk = ScsiDebug::new(options);
            let device = open(&disk);
            let name = format!("scsi_debug, {shape}");
            let run = || contract::run(&*device, &name, what, *check);
            if catch_unwind(AssertUnwindSafe(run)).is_err() {
                failed.push(format!("{shape}: {what}"));
            }
        }
    }
    assert!(failed.is_empty(), "{failed:#?}");
    number
}

#[test]
#[ignore = "needs scsi_debug; run by cargo xtask test in a virtual machine"]
fn scsi_disks_keep_device_contract() {
    let open = |disk: &ScsiDebug| -> Box<dyn ZonedDevice> {
        Box::new(BlockDrive::open(&disk.node, OpenMode::ReadWrite).unwrap())
    };
    println!("{} checks; not asked: {OTHERWISE:#?}", keep_contract(open));
}

/// The same disks by commands of our own, while their block devices are there, and claimed.
#[test]
#[ignore = "needs scsi_debug and sg; run by cargo xtask test in a virtual machine"]
fn scsi_generic_nodes_keep_device_contract() {
    let mut load = Command::new("modprobe");
    assert!(load.arg("sg").status().unwrap().success(), "{load:?}");
    let open = |disk: &ScsiDebug| -> Box<dyn ZonedDevice> {
        let name = disk.node.file_name().unwrap();
        let nodes = Path::new("/sys/block").join(name).join("device/scsi_generic");
        let mut node = None;
        wait_until(|| {
            let entry = fs::read_dir(&nodes).ok().and_then(|mut nodes| nodes.next()?.ok());
            node = entry.map(|entry| Path::new("/dev").join(entry.file_name()));
            node.as_ref().is_some_and(|node| node.exists())
        });
        Box::new(ScsiDrive::open(&node.unwrap(), OpenMode::ReadWrite).unwrap())
    };
    println!("{} checks; not asked: {OTHERWISE:#?}", keep_contract(open));
}

#[test]
#[ignore = "needs scsi_debug; run by cargo xtask test in a virtual machine"]
fn scsi_disk_of_512e_has_blocks_of_its_write_granularity() {
    let (_, options) = SHAPES.iter().find(|(name, _)| *name == PHYSICAL).unwrap();
    let disk = ScsiDebug::new(options);
    let device = BlockDrive::open(&disk.node, OpenMode::ReadWrite).unwrap();
    let geometry = *device.geometry();
    assert_eq!(geometry.block_size(), BlockSize::B4096);
    assert_eq!(geometry.zone_size(), LbaCount::new(256));
    let zone = ZoneId::new(geometry.spec().conventional_zones.leading_count());
    assert_eq!(device.append(zone, &[7; 4096]).unwrap(), Lba::new(512));
    assert_eq!(device.zone(zone).unwrap().wp, Some(Lba::new(513)));
}
