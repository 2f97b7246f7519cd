//! SCSI drives with zones in the guest, made by the kernel's `scsi_debug`, and file systems on
//! them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::export::wait_for;
use super::libtest;
use super::side::{mount_point, zonal};
use xtask::run;
use xtask::tally::Tally;

/// Drives by the options of the module: blocks of 4096 bytes with gaps behind the capacity, and
/// blocks of 4096 that are addressed by 512. Both have conventional zones, limits, and the second a
/// smaller last zone.
pub(super) const DRIVES: [(&str, &[&str]); 2] = [
    ("4Kn with gaps", &["sector_size=4096", "zone_size_mb=4", "zone_cap_mb=3", "dev_size_mb=256"]),
    ("512e", &["sector_size=512", "physblk_exp=3", "zone_size_mb=4", "dev_size_mb=254"]),
];

/// All checks of this file.
pub(super) fn checks(tally: &mut Tally) {
    libtest::check_each(tally, "SCSI", "scsi_debug", &[]);
    for (name, options) in DRIVES {
        tally.check(&format!("SCSI, {name}: what the drive is"), || found(options));
        for make in ["mkzonefs", "mkfs"] {
            tally.check(&format!("SCSI, {name}: {make}"), || file_system(options, make));
        }
        tally.check(&format!("SCSI, {name}: a disk"), || disk(options));
    }
}

/// A drive that exists as long as this does. There is one at a time: options are of the module.
pub(super) struct Drive {
    node: PathBuf,
}

impl Drive {
    pub(super) fn new(options: &[&str]) -> Result<Self> {
        run::quietly(Command::new("modprobe").arg("sd_mod"))?;
        let before = disks()?;
        let mut load = Command::new("modprobe");
        load.args(["scsi_debug", "zbc=host-managed", "delay=0", "zone_nr_conv=3"]);
        run::quietly(load.args(["zone_max_open=12"]).args(options))?;
        let mut node = None;
        wait_for(|| {
            node = disks()?.into_iter().find(|disk| !before.contains(disk) && disk.exists());
            Ok(node.is_some())
        })?;
        Ok(Self { node: node.context("it has appeared")? })
    }

    pub(super) fn name(&self) -> &str {
        self.node.to_str().expect("the kernel names it in letters")
    }
}

impl Drop for Drive {
    fn drop(&mut self) {
        // A moment after the last one has closed the disk the module is still in use.
        let unload = || run::quietly(Command::new("modprobe").args(["-q", "-r", "scsi_debug"]));
        // A failure here is no failure of the check.
        let _ = wait_for(|| Ok(unload().is_ok()));
    }
}

/// The nodes of SCSI disks.
fn disks() -> Result<Vec<PathBuf>> {
    let mut disks = Vec::new();
    for disk in fs::read_dir("/sys/block")? {
        let name = disk?.file_name();
        if name.to_str().is_some_and(|name| name.starts_with("sd")) {
            disks.push(Path::new("/dev").join(name));
        }
    }
    Ok(disks)
}

/// Checks the output of `zonal info` and `zonal zones`.
fn found(options: &[&str]) -> Result<()> {
    let drive = Drive::new(options)?;
    let info = zonal(&["info", drive.name()])?;
    let capacity = if options.contains(&"zone_cap_mb=3") { "3 MiB" } else { "4 MiB" };
    for words in ["in 64 zones", "4 KiB", "at most 12", "no limit", "3 zones", capacity] {
        ensure!(info.contains(words), "{words:?} is not in {info}");
    }
    let zones = zonal(&["zones", drive.name()])?;
    let conventional = zones.lines().filter(|line| line.contains("not-wp")).count();
    ensure!(conventional == 3, "{zones}");
    Ok(())
}

/// Makes a file system, fills files, checks, mounts again and compares.
fn file_system(options: &[&str], make: &str) -> Result<()> {
    let drive = Drive::new(options)?;
    let point = mount_point()?;
    zonal(&[make, drive.name()])?;
    let names = if make == "mkfs" { ["one", "other"] } else { ["cnv/1", "seq/5"] };
    let bytes: Vec<u8> = (0..524_288_u32).flat_map(u32::to_le_bytes).collect();
    fs::write("/tmp/scsi-bytes", &bytes)?;
    let place = point.to_str().context("the mount point's name")?;
    zonal(&["mount", drive.name(), place])?;
    let written = names.iter().try_for_each(|name| {
        let target = format!("of={}", point.join(name).display());
        let copy = ["if=/tmp/scsi-bytes", &target, "bs=128k", "conv=notrunc", "oflag=direct"];
        run::quietly(Command::new("dd").args(copy)).map(drop)
    });
    zonal(&["umount", place])?;
    written?;
    if make == "mkfs" {
        zonal(&["check", drive.name()])?;
    }
    zonal(&["mount", drive.name(), place])?;
    let same = names.iter().try_for_each(|name| {
        let held = fs::read(point.join(name))?;
        ensure!(held.starts_with(&bytes), "{name} holds something else");
        Ok(())
    });
    zonal(&["umount", place])?;
    same
}

/// A disk in Furrow, its snapshot, and a clean check.
fn disk(options: &[&str]) -> Result<()> {
    let drive = Drive::new(options)?;
    zonal(&["mkfs", drive.name()])?;
    zonal(&["disk", "create", drive.name(), "root", "--size=24MiB"])?;
    zonal(&["disk", "snapshot", drive.name(), "root", "before"])?;
    let list = zonal(&["disk", "list", drive.name()])?;
    ensure!(list.contains("root@before") && list.contains("24 MiB"), "{list}");
    zonal(&["disk", "rm", drive.name(), "root@before"])?;
    zonal(&["check", drive.name()]).map(drop)
}
