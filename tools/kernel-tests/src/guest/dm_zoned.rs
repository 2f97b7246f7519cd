//! dm-zoned and a disk of Furrow on the same drive: how many bytes does the drive take for each
//! byte of random writes of 4 KiB?
//!
//! It counts bytes, since an interpreted guest has no times worth comparing. The drive is
//! `null_blk` in memory and fits dm-zoned: it has some conventional zones, and its zones are
//! writable to their ends (`Documentation/admin-guide/device-mapper/dm-zoned.rst`).

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use bench_support::Report;

use super::export::{Export, bytes_written};
use super::null_blk::NullBlk;
use super::shape::Shape;
use super::side::{next_number, zonal};
use xtask::run;

/// The file of figures for the host.
const JSON: &str = "/share/dm-zoned.json";

const SHAPE: Shape = Shape {
    name: "dm-zoned",
    block: 4096,
    size_mib: 512,
    zone_mib: 4,
    capacity_mib: 4,
    conventional: 8,
    open: 0,
    active: 0,
};

/// Size of both disks: about four fifths of the space that dm-zoned offers on such a drive.
const DISK_MIB: u64 = 352;

/// Numbers of writes of 4 KiB: the first ones are not counted.
struct Writes {
    before: u64,
    measured: u64,
}

/// Few, since dm-zoned copies zones for nearly each write, and does so from the start.
const OF_DM_ZONED: Writes = Writes { before: 32, measured: 128 };

/// A turn of the drive, and another.
const OF_FURROW: Writes = Writes { before: TURN, measured: TURN };

/// Blocks of the drive.
const TURN: u64 = SHAPE.size_mib as u64 * 256;

/// Which blocks are written.
struct Load {
    name: &'static str,
    distribution: &'static str,
}

const LOADS: [Load; 2] = [
    Load { name: "uniform", distribution: "random" },
    Load { name: "Zipf 0.99", distribution: "zipf:0.99" },
];

/// Measures, and leaves the figures for the host.
pub(super) fn run() -> Result<()> {
    let mut arguments = ["--json", JSON].map(str::to_owned).to_vec();
    let mut report = Report::begin("cargo xtask bench dm-zoned", &mut arguments);
    report.subject("dm-zoned", 1);
    for load in &LOADS {
        println!("{}", load.name);
        let sides = [("dm-zoned", dm_zoned(load)?), ("a disk of Zonal", furrow(load)?)];
        for (name, bytes) in sides {
            report.add_variant((load.name, name), "bytes for each", &[bytes]);
        }
    }
    report.end();
    Ok(())
}

fn dm_zoned(load: &Load) -> Result<f64> {
    let drive = NullBlk::new(&SHAPE)?;
    run::quietly(Command::new("dmzadm").arg("--format").arg(drive.path()).arg("--force"))?;
    let disk = Mapped::new(drive.path())?;
    amplification(load, &OF_DM_ZONED, &disk.node(), drive.path())
}

fn furrow(load: &Load) -> Result<f64> {
    let drive = NullBlk::new(&SHAPE)?;
    let name = drive.path().to_str().context("the name of a device")?;
    zonal(&["mkfs", name])?;
    zonal(&["disk", "create", name, "disk", &format!("--size={DISK_MIB}M")])?;
    let (export, disk) = Export::ublk(&format!("{name}//disk"), &[])?;
    let found = amplification(load, &OF_FURROW, &disk, drive.path())?;
    export.end()?;
    Ok(found)
}

/// Bytes that the drive takes for each byte that the disk takes.
fn amplification(load: &Load, writes: &Writes, disk: &Path, drive: &Path) -> Result<f64> {
    fio(disk, &["--name=fill", "--rw=write", "--bs=1M"])?;
    let random = |count: u64, seed: u32| {
        let amount = format!("--io_size={}", count * 4096);
        let which = format!("--random_distribution={}", load.distribution);
        let seed = format!("--randseed={seed}");
        let pattern = ["--name=random", "--rw=randwrite", "--bs=4k", "--norandommap=1"];
        fio(disk, &[&pattern[..], &[&amount, &which, &seed]].concat())
    };
    random(writes.before, 1)?;
    let before = bytes_written(drive)?;
    random(writes.measured, 2)?;
    let bytes = bytes_written(drive)? - before;
    #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
    let each = bytes as f64 / (writes.measured * 4096) as f64;
    Ok(each)
}

/// Runs a job of fio on the disk, and flushes at its end.
fn fio(disk: &Path, options: &[&str]) -> Result<()> {
    let mut fio = Command::new("fio");
    fio.args(["--direct=1", "--ioengine=libaio", "--iodepth=8", "--end_fsync=1"]);
    fio.args([format!("--size={DISK_MIB}M"), format!("--filename={}", disk.display())]);
    run::quietly(fio.args(options)).map(drop)
}

/// A disk of the device mapper, which is removed with this.
struct Mapped(String);

impl Mapped {
    /// dm-zoned on a drive that is formatted.
    fn new(drive: &Path) -> Result<Self> {
        let name = format!("zoned{}", next_number());
        let table = format!("0 {} zoned {}", u64::from(SHAPE.size_mib) * 2048, drive.display());
        run::quietly(Command::new("dmsetup").args(["create", &name, "--table", &table]))?;
        run::quietly(Command::new("dmsetup").arg("mknodes"))?;
        Ok(Self(name))
    }

    fn node(&self) -> PathBuf {
        Path::new("/dev/mapper").join(&self.0)
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // The guest ends soon anyway.
        let _ = run::quietly(Command::new("dmsetup").args(["remove", &self.0]));
    }
}
