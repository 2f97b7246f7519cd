//! The contract of every device, kept by block devices of the kernel: `null_blk`, made through
//! configfs. Runs as root in a kernel with zoned block devices; `cargo xtask vm` has one.

#![expect(clippy::unwrap_used, reason = "a test")]

#[path = "../../zonal/tests/contract/mod.rs"]
mod contract;

use std::fs;
use std::path::{Path, PathBuf};

use contract::CHECKS;
use zonal::{DeviceError, OpenMode, ZoneId, ZonedDevice};
use zonal_linux::BlockDrive;

const CONFIG: &str = "/sys/kernel/config/nullb";

/// Attributes of `null_blk` for each shape; every shape has common ones too. Sizes are in MiB.
const SHAPES: [(&str, &[(&str, u32)]); 4] = [
    ("plain", &[("blocksize", 4096), ("zone_size", 1), ("size", 8)]),
    ("blocks of 512", &[("blocksize", 512), ("zone_size", 1), ("size", 6), ("zone_nr_conv", 2)]),
    (
        LIMITS,
        &[
            ("blocksize", 4096),
            ("zone_size", 2),
            ("zone_capacity", 1),
            ("size", 20),
            ("zone_nr_conv", 2),
            ("zone_max_open", 3),
            ("zone_max_active", 5),
        ],
    ),
    ("a smaller last zone", &[("blocksize", 4096), ("zone_size", 2), ("size", 9)]),
];

/// A device that exists as long as this does.
struct NullBlk {
    config: PathBuf,
    node: PathBuf,
}

impl NullBlk {
    fn new(number: u32, attributes: &[(&str, u32)]) -> Self {
        let name = format!("contract{number}");
        let config = Path::new(CONFIG).join(&name);
        fs::create_dir(&config).unwrap();
        let device = Self { config, node: Path::new("/dev").join(name) };
        for (attribute, value) in [("memory_backed", 1), ("zoned", 1)] {
            device.set(attribute, value);
        }
        for (attribute, value) in attributes {
            device.set(attribute, *value);
        }
        device.set("power", 1);
        device
    }

    fn set(&self, attribute: &str, value: u32) {
        fs::write(self.config.join(attribute), value.to_string()).unwrap();
    }
}

impl Drop for NullBlk {
    fn drop(&mut self) {
        let _ = fs::write(self.config.join("power"), "0");
        let _ = fs::remove_dir(&self.config);
    }
}

/// The shape with limits on open and active zones.
const LIMITS: &str = "limits";

/// Checks that `null_blk` breaks by design at its limits, and the behaviour that differs.
const OTHERWISE: [(&str, &str); 4] = [
    (
        "the least recently used open zone is closed",
        "null_blk closes the next in the order of zones",
    ),
    (
        "explicitly opened zones are not closed",
        "null_blk finishes an empty zone only if it could be opened",
    ),
    ("the active limit is an error", "null_blk at its limit closes no zone to open another"),
    (
        "threads do not disturb each other",
        "null_blk closes a zone to open another without the lock of the first, and so counts a \
         zone that is just being written as open and closed (Linux 6.12, null_blk/zoned.c)",
    ),
];

#[test]
#[ignore = "needs zoned block devices; run by cargo xtask test in a virtual machine"]
fn block_devices_keep_device_contract() {
    let mut number = 0;
    for (shape, attributes) in SHAPES {
        for (what, check) in CHECKS {
            let otherwise = OTHERWISE.iter().find(|(name, _)| shape == LIMITS && name == what);
            if let Some((_, why)) = otherwise {
                println!("not asked: {what}: {why}");
                continue;
            }
            number += 1;
            let null_blk = NullBlk::new(number, attributes);
            let device = BlockDrive::open(&null_blk.node, OpenMode::ReadWrite).unwrap();
            contract::run(&device, &format!("null_blk, {shape}"), what, *check);
        }
    }
    println!("{number} checks");
}

#[test]
#[ignore = "needs zoned block devices; run by cargo xtask test in a virtual machine"]
fn block_device_tolerates_other_writers() {
    let null_blk = NullBlk::new(1000, SHAPES[0].1);
    let ours = BlockDrive::open(&null_blk.node, OpenMode::ReadWrite).unwrap();
    // Not exclusive: `dd` is another program that writes to the device.
    let theirs = std::process::Command::new("dd")
        .arg(format!("of={}", null_blk.node.display()))
        .args(["if=/dev/zero", "bs=4096", "count=2", "oflag=direct", "conv=notrunc"])
        .status();
    assert!(theirs.unwrap().success());
    let zone = ZoneId::new(0);
    let start = ours.geometry().zone_start(zone);
    let error = ours.write(start, &[1; 4096]).unwrap_err();
    assert!(matches!(error, DeviceError::NotAtWritePointer { .. }), "{error}");
    let lba = ours.append(zone, &[2; 4096]).unwrap();
    assert_eq!((lba - start).get(), 2);
    let mut back = [9; 3 * 4096];
    ours.read(start, &mut back).unwrap();
    assert!(
        back[..8192].iter().all(|byte| *byte == 0) && back[8192..].iter().all(|byte| *byte == 2)
    );
    for mode in [OpenMode::ReadWrite, OpenMode::ReadLocked] {
        let second = BlockDrive::open(&null_blk.node, mode);
        assert!(matches!(second, Err(DeviceError::Locked { .. })), "{mode:?}");
    }
    assert!(BlockDrive::open(&null_blk.node, OpenMode::ReadOnly).is_ok());
}

#[test]
#[ignore = "needs zoned block devices; run by cargo xtask test in a virtual machine"]
fn zones_fail_as_kernel_reports() {
    let null_blk = NullBlk::new(1001, SHAPES[0].1);
    let device = BlockDrive::open(&null_blk.node, OpenMode::ReadWrite).unwrap();
    let (read_only, offline) = (ZoneId::new(3), ZoneId::new(4));
    device.append(read_only, &[7; 4096]).unwrap();
    let sector =
        |zone: ZoneId| u32::try_from(device.geometry().zone_start(zone).get() * 8).unwrap();
    null_blk.set("zone_readonly", sector(read_only));
    null_blk.set("zone_offline", sector(offline));
    let write = |zone| device.append(zone, &[1; 4096]).unwrap_err();
    assert!(matches!(write(read_only), DeviceError::ZoneReadOnly { .. }), "{}", write(read_only));
    assert!(matches!(write(offline), DeviceError::ZoneOffline { .. }), "{}", write(offline));
    let read = device.read(device.geometry().zone_start(offline), &mut [0; 4096]).unwrap_err();
    assert!(matches!(read, DeviceError::ZoneOffline { .. }), "{read}");
}
