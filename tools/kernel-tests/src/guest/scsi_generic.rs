//! SCSI drives with zones that have no block device: `sd` is unbound from the kernel's
//! `scsi_debug`, so that only `/dev/sgN` is there, as on a kernel without zoned block devices.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::contents::{Contents, Syncing};
use super::fuseblk::Mount;
use super::mounted::Mounted;
use super::scsi_debug::Drive;
use super::side::zonal;
use super::zone_files;
use xtask::run;
use xtask::tally::Tally;

/// A shape of the drive: options of the module, and what `zonal info` says of it.
struct Shape {
    name: &'static str,
    /// Its blocks.
    blocks: &'static [&'static str],
    capacity_mib: u64,
}

/// Blocks of 4096 bytes, with gaps behind the capacity of each zone.
const BLOCKS_4KN: &[&str] = &["sector_size=4096", "zone_cap_mb=3"];
/// Blocks of 4096 bytes that are addressed by 512.
const BLOCKS_512E: &[&str] = &["sector_size=512", "physblk_exp=3"];

const SHAPES: [Shape; 2] = [
    Shape { name: "managed, 4Kn with gaps", blocks: BLOCKS_4KN, capacity_mib: 3 },
    Shape { name: "managed, 512e", blocks: BLOCKS_512E, capacity_mib: ZONE_MIB },
];

const ZONE_MIB: u64 = 4;

/// Bytes that are written to a Furrow at first.
const FILL: u64 = 80 << 20;

/// All checks of this file.
pub(super) fn checks(tally: &mut Tally) {
    for shape in &SHAPES {
        tally.check(&named(shape, "what the drive is"), || found(shape));
    }
    let first = &SHAPES[0];
    tally.check(&named(first, "zonefs"), || zonefs(first));
    tally.check(&named(first, "Furrow, whose daemon is killed"), || furrow(first));
}

fn named(shape: &Shape, what: &str) -> String {
    format!("SCSI generic node, {}: {what}", shape.name)
}

impl Shape {
    /// A drive of so many MiB.
    fn drive(&self, mib: u64) -> Result<Drive> {
        let (zone, size) = (format!("zone_size_mb={ZONE_MIB}"), format!("dev_size_mb={mib}"));
        Drive::generic(&[&[&*zone, &size], self.blocks].concat())
    }
}

/// The output of `zonal info` and `zonal zones`, by node and by serial number.
fn found(shape: &Shape) -> Result<()> {
    let drive = shape.drive(256)?;
    ensure!(drive.name().starts_with("/dev/sg"), "its node is {}", drive.name());
    let info = |device: &str| -> Result<Value> {
        Ok(serde_json::from_str(&zonal(&["info", "--json", device])?)?)
    };
    let by_node = info(drive.name())?;
    let capacity = shape.capacity_mib << 20;
    for (field, expected) in [
        ("zones", 64),
        ("zone_size_bytes", ZONE_MIB << 20),
        ("zone_capacity_bytes", capacity),
        ("block_size_bytes", 4096),
        ("conventional_zones", 3),
        ("size_bytes", 256 << 20),
        ("capacity_bytes", 3 * (ZONE_MIB << 20) + 61 * capacity),
    ] {
        ensure!(by_node[field] == expected, "{field} is {}, not {expected}", by_node[field]);
    }
    let kind = &by_node["sequential_kind"];
    ensure!(kind == "sequential", "its zones are {kind}");
    let open_max = &by_node["open_zones_max"];
    ensure!(*open_max == 12, "a limit of {open_max}");
    ensure!(by_node["model"] == "scsi_debug", "its model is {}", by_node["model"]);
    let serial = by_node["serial"].as_str().context("a serial number")?;
    let name = format!("sg:{serial}");
    let mut by_serial = info(&name)?;
    ensure!(by_serial["device"] == *name, "{by_serial}");
    by_serial["device"] = by_node["device"].clone();
    ensure!(by_serial == by_node, "by serial number {by_serial}, by node {by_node}");
    let zones = zonal(&["zones", drive.name()])?;
    ensure!(zones == zonal(&["zones", &name])?, "other zones by serial number");
    let conventional = zones.lines().filter(|line| line.contains("not-wp")).count();
    let empty = zones.lines().filter(|line| line.contains("empty")).count();
    ensure!((conventional, empty) == (3, 61), "{zones}");
    Ok(())
}

fn zonefs(shape: &Shape) -> Result<()> {
    let drive = shape.drive(256)?;
    zonal(&["mkzonefs", drive.name()])?;
    zone_files::exercise(|place| Mounted::zonal("zonefs", drive.name(), place))
}

/// Files are filled, changed and read back, while the daemon is killed again and again. All that
/// was synced is there.
fn furrow(shape: &Shape) -> Result<()> {
    let drive = shape.drive(254)?;
    zonal(&["mkfs", drive.name()])?;
    let device = Path::new(drive.name());
    let mut mount = mounted(drive.name())?;
    let mut contents = Contents::new(&mount.place().join("files"), Syncing::Files)?;
    contents.fill(FILL)?;
    for round in 0..3 {
        contents.change()?;
        contents.fill(FILL / 4)?;
        fs::write(mount.place().join("unsynced"), vec![7_u8; 100_000])?;
        mount.kill()?;
        mount = Mount::new(device)?;
        contents.move_to(&mount.place().join("files"));
        contents.verify().with_context(|| format!("after kill {round}"))?;
    }
    mount.unmount()?;
    zonal(&["check", "--data", drive.name()])?;
    let by_serial = format!("sg:{}", serial(&drive)?);
    mount = Mount::new(Path::new(&by_serial))?;
    contents.move_to(&mount.place().join("files"));
    contents.verify().context("mounted by serial number")?;
    mount.unmount()
}

/// Mounts a device. The loop device that lets the kernel pass sync(2) on is a module here.
fn mounted(device: &str) -> Result<Mount> {
    run::quietly(Command::new("modprobe").arg("loop"))?;
    Mount::new(Path::new(device))
}

fn serial(drive: &Drive) -> Result<String> {
    let info: Value = serde_json::from_str(&zonal(&["info", "--json", drive.name()])?)?;
    Ok(info["serial"].as_str().context("a serial number")?.to_owned())
}
