//! Ordinary disks that `zonal serve nbd` serves to the kernel's client: its limits, and file systems
//! over several connections.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};

use super::drive_with_disk::{DriveWithDisk, FILL};
use super::export::{queue_attribute, wait_for};
use super::plain_fs::PlainFs;
use super::side;
use xtask::run;
use xtask::tally::Tally;

/// What the kernel's client has of a disk.
const NODE: &str = "/dev/nbd0";

/// Everything.
pub(super) fn checks(tally: &mut Tally) {
    for block_size in [4096, 512] {
        tally.check(&format!("NBD, a disk of {block_size}: what the kernel knows of it"), || {
            attributes(block_size)
        });
    }
    for kind in [PlainFs::Ext4, PlainFs::Xfs] {
        tally.check(&format!("NBD, a disk: {} on it", kind.name()), || file_system(kind));
    }
}

/// A server, and the kernel's client of it. Both end with this.
struct Attached {
    server: Child,
}

impl Attached {
    /// Serves a disk, and attaches it with this many connections.
    fn start(disk: &str, connections: u32) -> Result<Self> {
        let mut serve = Command::new(side::ZONAL);
        serve.args(["serve", "nbd", disk]).stdout(Stdio::piped());
        let mut attached = Self { server: serve.spawn()? };
        let output = attached.server.stdout.take().context("its output")?;
        let line = BufReader::new(output).lines().next().transpose()?.unwrap_or_default();
        ensure!(line.contains(" is nbd://127.0.0.1:"), "zonal serve nbd {disk} said {line:?}");
        run::quietly(Command::new("modprobe").arg("nbd"))?;
        let mut client = Command::new("nbd-client");
        client.args(["127.0.0.1", NODE, "-N", "one", "-C", &connections.to_string()]);
        run::quietly(&mut client)?;
        wait_for(|| Ok(size()? > 0))?;
        Ok(attached)
    }

    /// Detaches the disk, and ends the server, which has to end well.
    fn end(mut self) -> Result<()> {
        run::quietly(Command::new("nbd-client").args(["-d", NODE]))?;
        wait_for(|| Ok(size()? == 0))?;
        run::quietly(Command::new("kill").arg(self.server.id().to_string()))?;
        let ended = self.server.wait()?;
        ensure!(ended.success(), "the server ended with {ended}");
        Ok(())
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        // All has ended already, if nothing went wrong.
        let _ = run::quietly(Command::new("nbd-client").args(["-d", NODE]));
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

/// Bytes of the node; 0 while nothing is attached.
fn size() -> Result<u64> {
    let size = run::quietly(Command::new("blockdev").args(["--getsize64", NODE]))?;
    size.trim().parse().with_context(|| format!("{size:?} is no size"))
}

/// The limits that the kernel takes from the handshake, zeroes without data, and a discard.
fn attributes(block_size: u32) -> Result<()> {
    let drive = DriveWithDisk::new(block_size)?;
    let attached = Attached::start(&drive.disk(), 1)?;
    let node = Path::new(NODE);
    ensure!(size()? == 320 << 20, "the disk has {} bytes", size()?);
    for (attribute, expected) in [("write_cache", "write back"), ("fua", "1"), ("zoned", "none")] {
        let found = queue_attribute(node, attribute)?;
        ensure!(found == expected, "{attribute} is {found}, not {expected}");
    }
    for attribute in ["discard_max_hw_bytes", "write_zeroes_max_bytes"] {
        ensure!(queue_attribute(node, attribute)? != "0", "{attribute} is 0");
    }
    fs::write("/tmp/ones", vec![1; 8 << 20])?;
    let copy = ["if=/tmp/ones", &format!("of={NODE}"), "bs=1M", "oflag=direct", "status=none"];
    run::quietly(Command::new("dd").args(copy))?;
    run::quietly(Command::new("blkdiscard").args(["--zeroout", "--length=4M", NODE]))?;
    run::quietly(Command::new("blkdiscard").args(["--force", "--offset=4M", NODE]))?;
    let mut found = vec![1; 8 << 20];
    fs::File::open(node)?.read_exact(&mut found)?;
    let other = found.iter().position(|&byte| byte != 0);
    ensure!(other.is_none(), "byte {other:?} is not zero");
    attached.end()?;
    drive.check()
}

/// A file system over four connections, and what another server has of it.
fn file_system(kind: PlainFs) -> Result<()> {
    let drive = DriveWithDisk::new(4096)?;
    let attached = Attached::start(&drive.disk(), 4)?;
    let exercised = kind.exercise(Path::new(NODE), FILL, || Ok(()))?;
    attached.end()?;
    let attached = Attached::start(&drive.disk(), 1)?;
    exercised.verify(Path::new(NODE))?;
    attached.end()?;
    drive.check()
}
