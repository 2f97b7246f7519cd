//! SCSI drives with zones in the guest, made by the kernel's `scsi_debug`, and file systems on
//! them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::export::{queue_attribute, wait_for};
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
    /// Where the kernel lists it.
    place: PathBuf,
    /// The name of the node by which it is used.
    node: String,
}

impl Drive {
    /// A drive of which the kernel makes a block device.
    pub(super) fn new(options: &[&str]) -> Result<Self> {
        for module in ["sd_mod", "sg"] {
            run::quietly(Command::new("modprobe").arg(module))?;
        }
        let mut load = Command::new("modprobe");
        load.args(["scsi_debug", "zbc=host-managed", "delay=0", "zone_nr_conv=3"]);
        run::quietly(load.args(["zone_max_open=12"]).args(options))?;
        let mut place = None;
        wait_for(|| {
            place = unit()?;
            Ok(place.is_some())
        })?;
        let mut drive = Self { place: place.context("it has appeared")?, node: String::new() };
        drive.node = drive.wait_for_node("block")?;
        Ok(drive)
    }

    /// A drive that has only a SCSI generic node, as the zoned drives that a kernel does not
    /// support.
    pub(super) fn generic(options: &[&str]) -> Result<Self> {
        let mut drive = Self::new(options)?;
        drive.unbind()?;
        Ok(drive)
    }

    /// Takes the drive from `sd`, which removes its block device.
    pub(super) fn unbind(&mut self) -> Result<()> {
        let disk = self.wait_for_node("block")?;
        let address = self.address()?;
        fs::write("/sys/bus/scsi/drivers/sd/unbind", address)?;
        wait_for(|| Ok(!Path::new(&disk).exists()))?;
        ensure!(!self.place.join("block").exists(), "{address} still has a block device");
        self.node = self.wait_for_node("scsi_generic")?;
        Ok(())
    }

    /// Gives the drive back to `sd`, which makes its block device.
    pub(super) fn bind(&mut self) -> Result<()> {
        fs::write("/sys/bus/scsi/drivers/sd/bind", self.address()?)?;
        self.node = self.wait_for_node("block")?;
        // The node is there before `sd` has asked the drive for its zones.
        let disk = PathBuf::from(&self.node);
        wait_for(|| Ok(queue_attribute(&disk, "zoned")? != "none"))
    }

    /// Has the drive answer commands with errors: a rule of the module's `error` file, which
    /// `drivers/scsi/scsi_debug.c` explains. It keeps one rule for each type and command.
    pub(super) fn inject(&self, rule: &str) -> Result<()> {
        let debug = Path::new("/sys/kernel/debug");
        if !debug.join("scsi_debug").exists() {
            run::quietly(Command::new("mount").args(["-t", "debugfs", "none"]).arg(debug))?;
        }
        let file = debug.join("scsi_debug").join(self.address()?).join("error");
        fs::write(&file, rule).with_context(|| format!("writing {rule:?} to {}", file.display()))
    }

    /// Its host, channel, target and unit.
    fn address(&self) -> Result<&str> {
        self.place.file_name().and_then(|name| name.to_str()).context("its address")
    }

    pub(super) fn name(&self) -> &str {
        &self.node
    }

    /// The node by which programs send SCSI commands, which is there beside a block device too.
    pub(super) fn generic_node(&self) -> Result<String> {
        self.wait_for_node("scsi_generic")
    }

    /// The node of one of the drive's devices, which appears a moment after the drive.
    fn wait_for_node(&self, class: &str) -> Result<String> {
        let mut node = None;
        wait_for(|| {
            let entries = fs::read_dir(self.place.join(class)).ok();
            let name = entries.and_then(|mut entries| entries.next()?.ok());
            node = name.map(|name| Path::new("/dev").join(name.file_name()));
            Ok(node.as_ref().is_some_and(|node| node.exists()))
        })?;
        let node = node.context("it has appeared")?;
        Ok(node.to_str().context("the kernel names it in letters")?.to_owned())
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

/// Where the kernel lists the drive of the module, if it is there.
fn unit() -> Result<Option<PathBuf>> {
    for unit in fs::read_dir("/sys/bus/scsi/devices")? {
        let place = unit?.path();
        let model = fs::read_to_string(place.join("model"));
        if model.is_ok_and(|model| model.trim() == "scsi_debug") {
            return Ok(Some(place));
        }
    }
    Ok(None)
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
