//! SCSI drives with zones that have no block device: `sd` is unbound from the kernel's
//! `scsi_debug`, so that only `/dev/sgN` is there, as on a kernel without zoned block devices.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::compliance::explained;
use super::contents::{Contents, Syncing, bytes_of};
use super::fuseblk::Mount;
use super::mounted::Mounted;
use super::nbd_disk;
use super::plain_fs::PlainFs;
use super::scsi_debug::Drive;
use super::side::zonal;
use super::ublk_disk::ServedDisk;
use super::zone_files;
use xtask::run;
use xtask::tally::Tally;

/// A shape of the drive: options of the module, and what `zonal info` says of it.
struct Shape {
    name: &'static str,
    /// Its name in the tables of compliance.
    short: &'static str,
    /// Its blocks.
    blocks: &'static [&'static str],
    capacity_mib: u64,
}

/// Blocks of 4096 bytes, with gaps behind the capacity of each zone.
const BLOCKS_4KN: &[&str] = &["sector_size=4096", "zone_cap_mb=3"];
/// Blocks of 4096 bytes that are addressed by 512.
const BLOCKS_512E: &[&str] = &["sector_size=512", "physblk_exp=3"];

const SHAPES: [Shape; 2] = [
    Shape { name: "managed, 4Kn with gaps", short: "4Kn", blocks: BLOCKS_4KN, capacity_mib: 3 },
    Shape { name: "managed, 512e", short: "512e", blocks: BLOCKS_512E, capacity_mib: ZONE_MIB },
];

const ZONE_MIB: u64 = 4;

/// Bytes that are written to a Furrow at first.
const FILL: u64 = 80 << 20;

/// Bytes of a file that is synced by itself, and how many are written before the power fails.
const SYNCED_BYTES: u64 = 300_000;
const SYNCED_MAX: u64 = 400;

/// Measurements of each node.
const COST_ROUNDS: usize = 5;

/// All checks of this file.
pub(super) fn checks(tally: &mut Tally) {
    for shape in &SHAPES {
        tally.check(&named(shape, "what the drive is"), || found(shape));
    }
    let first = &SHAPES[0];
    tally.check(&named(first, "zonefs"), || zonefs(first));
    tally.check(&named(first, "Furrow, whose daemon is killed"), || furrow(first));
    tally.check(&named(first, "Furrow, whose power fails"), || power_cuts(first));
    tally.check(&named(first, "Furrow, whose drive reports errors"), || errors(first));
    tally.check(&named(first, "the same drive by its block device"), || both_nodes(first));
    tally.check(&named(first, "disks over ublk and NBD"), || disks(first));
    tally.check(&named(first, "costs beside its block device"), || costs(first));
    for shape in &SHAPES {
        let drive = format!("scsi_debug {}, generic", shape.short);
        tally.check(&named(shape, "compliance"), || {
            explained(&drive, Path::new(shape.drive(64)?.name()), &[])
        });
    }
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

/// The power fails at some write of a mount, again and again: all files that were synced are there.
fn power_cuts(shape: &Shape) -> Result<()> {
    let drive = shape.drive(254)?;
    zonal(&["mkfs", drive.name()])?;
    run::quietly(Command::new("modprobe").arg("loop"))?;
    for nth in [60, 300, 900] {
        let spec = format!("fault(write,nth={nth},power-cut;seed={nth}):{}", drive.name());
        let mount = Mount::new(Path::new(&spec))?;
        let mut synced = Vec::new();
        for number in 0..SYNCED_MAX {
            let path = mount.place().join(format!("cut{nth}-{number}"));
            let Ok(()) = write_synced(&path, number) else { break };
            synced.push(number);
        }
        ensure!(synced.len() < usize::try_from(SYNCED_MAX)?, "the power did not fail");
        println!("write {nth}: {} files were synced before", synced.len());
        mount.kill()?;
        let mount = Mount::new(Path::new(drive.name()))?;
        for number in synced {
            let path = mount.place().join(format!("cut{nth}-{number}"));
            let found = fs::read(&path).with_context(|| format!("{}", path.display()))?;
            ensure!(found == bytes_of(number, SYNCED_BYTES), "{} is wrong", path.display());
        }
        for file in fs::read_dir(mount.place())? {
            let path = file?.path();
            if path.is_file() {
                fs::remove_file(&path)?;
            }
        }
        mount.unmount()?;
        zonal(&["check", "--data", drive.name()])?;
    }
    Ok(())
}

fn write_synced(path: &Path, seed: u64) -> Result<()> {
    fs::write(path, bytes_of(seed, SYNCED_BYTES))?;
    Ok(fs::File::open(path)?.sync_all()?)
}

/// Errors that pass are repeated, and a write that fails for good goes to another zone.
fn errors(shape: &Shape) -> Result<()> {
    let drive = shape.drive(254)?;
    zonal(&["mkfs", drive.name()])?;
    let mount = mounted(drive.name())?;
    let mut contents = Contents::new(&mount.place().join("files"), Syncing::Files)?;
    for (what, rule) in [
        ("aborted writes", "2 -2 0x8a 0 0 0x2 0xb 0x0 0x0"),
        ("a unit attention of a write", "2 -1 0x8a 0 0 0x2 0x6 0x29 0x0"),
        ("a flush while it becomes ready", "2 -1 0x91 0 0 0x2 0x2 0x4 0x1"),
        ("a busy drive", "2 -3 0x8a 0 0 0x8 0x0 0x0 0x0"),
        ("a hardware error of a write", "2 -1 0x8a 0 0 0x2 0x4 0x44 0x0"),
        ("a report that is aborted", "2 -1 0x95 0 0 0x2 0xb 0x0 0x0"),
    ] {
        drive.inject(rule)?;
        contents.fill(FILL / 16).with_context(|| format!("beside {what}"))?;
    }
    drive.inject("2 -2 0x88 0 0 0x2 0xb 0x0 0x0")?;
    fs::write("/proc/sys/vm/drop_caches", "3")?;
    contents.verify().context("beside aborted reads")?;
    mount.unmount()?;
    zonal(&["check", "--data", drive.name()]).map(drop)
}

/// A drive that is written by its generic node, then by its block device, then again.
fn both_nodes(shape: &Shape) -> Result<()> {
    // Linux 7.3 shows no zones of a drive with gaps whose last zone is smaller.
    let mut drive = shape.drive(256)?;
    zonal(&["mkfs", drive.name()])?;
    let mount = mounted(drive.name())?;
    let mut contents = Contents::new(&mount.place().join("files"), Syncing::Files)?;
    contents.fill(FILL / 4)?;
    mount.unmount()?;
    for _ in 0..2 {
        let before = zonal(&["zones", "--json", drive.name()])?;
        if drive.name().starts_with("/dev/sg") {
            drive.bind()?;
        } else {
            drive.unbind()?;
        }
        let zones = zonal(&["zones", "--json", drive.name()])?;
        ensure!(zones == before, "{} reports other zones", drive.name());
        let mount = Mount::new(Path::new(drive.name()))?;
        contents.move_to(&mount.place().join("files"));
        contents.verify().with_context(|| format!("by {}", drive.name()))?;
        contents.change()?;
        contents.fill(FILL / 8)?;
        mount.unmount()?;
        zonal(&["check", "--data", drive.name()])?;
    }
    Ok(())
}

/// Ordinary disks on the drive, with a file system of the kernel in each.
fn disks(shape: &Shape) -> Result<()> {
    let drive = shape.drive(446)?;
    let mut disk = ServedDisk::on(drive.name(), &["--size=100M"], &[])?;
    let block = disk.block().to_owned();
    let exercised = PlainFs::Ext4.exercise(&block, FILL / 4, || disk.kill_and_recover())?;
    exercised.verify(&block)?;
    disk.end()?;
    zonal(&["disk", "create", drive.name(), "one", "--size=100M"])?;
    nbd_disk::ext4_over(drive.name())?;
    zonal(&["check", "--data", drive.name()]).map(drop)
}

/// Prints the time of an operation by the generic node and by the block device of one drive, in
/// turns. The guest has one processor, so that is the work of the program and of the kernel.
fn costs(shape: &Shape) -> Result<()> {
    let drive = Drive::new(&[&["zone_size_mb=4", "dev_size_mb=256"], shape.blocks].concat())?;
    let nodes = [drive.generic_node()?, drive.name().to_owned()];
    let mut taken = BTreeMap::<(String, u64), [Vec<f64>; 2]>::new();
    for round in 0..COST_ROUNDS {
        for which in [round % 2, 1 - round % 2] {
            let ask = ["bench", "--force", "--json", "--seconds=0.5", "--op=write,randread"];
            let said = zonal(&[&ask[..], &["--block-size=4KiB,1MiB", &nodes[which]]].concat())?;
            for row in serde_json::from_str::<Vec<Value>>(&said)? {
                let number = |field: &str| row[field].as_f64().context(field.to_owned());
                let operation = row["operation"].as_str().context("an operation")?.to_owned();
                let bytes = row["operation_bytes"].as_u64().context("a size")?;
                taken.entry((operation, bytes)).or_default()[which].push(number("mean_us")?);
            }
        }
    }
    println!("time by the generic node ÷ by the block device, of {COST_ROUNDS} rounds:");
    for ((operation, bytes), [generic, block]) in taken {
        let mut ratios: Vec<f64> = generic.iter().zip(&block).map(|(one, two)| one / two).collect();
        ratios.sort_by(f64::total_cmp);
        let (least, most) = (ratios[0], ratios[COST_ROUNDS - 1]);
        let median = ratios[COST_ROUNDS / 2];
        println!("{operation} of {bytes} bytes: {median:.2} ({least:.2} to {most:.2})");
    }
    Ok(())
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
