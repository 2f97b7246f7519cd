//! Ordinary disks that `zonal serve nvme-tcp` serves as namespaces without zones: the attributes
//! that the kernel reads, random I/O that is verified, file systems, a server that is killed, and a
//! disk and zones in one subsystem.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use super::contents::{Contents, Syncing};
use super::drive_with_disk::{DriveWithDisk, FILL};
use super::export::{Export, bytes_written, queue_attribute, wait_for};
use super::mounted::Mounted;
use super::plain_fs::PlainFs;
use super::{side, zone_files};
use xtask::run;
use xtask::tally::Tally;

/// The options of fio in every test.
const FIO: [&str; 6] = [
    "--name=verify",
    "--ioengine=libaio",
    "--direct=1",
    "--verify=crc32c",
    "--verify_fatal=1",
    "--group_reporting",
];

/// All checks of this file.
pub(super) fn checks(tally: &mut Tally) {
    for block_size in [4096, 512] {
        tally.check(&format!("a disk of {block_size}: what the kernel knows of it"), || {
            attributes(block_size)
        });
        tally.check(&format!("a disk of {block_size}: fio verifies it"), || verify(block_size));
    }
    for kind in [PlainFs::Ext4, PlainFs::Xfs] {
        tally.check(&format!("a disk: {} on it", kind.name()), || file_system(kind));
    }
    tally.check("a disk: its server is killed while fio verifies it", killed);
    tally.check("a disk beside zones in one subsystem", beside_zones);
}

/// Every limit that Linux takes from Identify.
fn attributes(block_size: u32) -> Result<()> {
    let drive = DriveWithDisk::new(block_size)?;
    let (export, disk) = Export::nvme_tcp(&drive.disk(), "")?;
    let logical = block_size.to_string();
    // The most blocks that one command can name.
    let zeroes = (u64::from(block_size) << 16).to_string();
    let discard = (u64::from(u32::MAX) << 9).to_string();
    // The guaranteed size of a request (`blk_queue_max_guaranteed_bio`) is less than 1 MiB with
    // blocks below a page, and the kernel allows only powers of two.
    let unit = if block_size == 4096 { "1048576" } else { "524288" };
    for (attribute, expected) in [
        ("zoned", "none"),
        ("logical_block_size", &*logical),
        ("physical_block_size", "4096"),
        ("minimum_io_size", "4096"),
        ("atomic_write_max_bytes", "1048576"),
        ("atomic_write_unit_max_bytes", unit),
        ("atomic_write_unit_min_bytes", &*logical),
        ("atomic_write_boundary_bytes", "0"),
        ("max_hw_sectors_kb", "1024"),
        ("discard_max_hw_bytes", &*discard),
        ("write_zeroes_max_bytes", &*zeroes),
        ("write_zeroes_unmap_max_hw_bytes", &*zeroes),
        ("write_cache", "write back"),
        ("fua", "1"),
    ] {
        let found = queue_attribute(&disk, attribute)?;
        ensure!(found == expected, "{attribute} is {found}, not {expected}");
    }
    let size = run::quietly(Command::new("blockdev").arg("--getsize64").arg(&disk))?;
    ensure!(size.trim() == (320 << 20).to_string(), "{size}");
    // Zeroes by a command without data, and a discard of the whole disk.
    fio(&disk, &["--rw=write", "--bs=1M", "--size=8M"])?;
    run::quietly(Command::new("blkdiscard").args(["--zeroout", "--length=4M"]).arg(&disk))?;
    run::quietly(Command::new("blkdiscard").args(["--force", "--offset=4M"]).arg(&disk))?;
    let mut found = vec![1; 8 << 20];
    fs::File::open(&disk)?.read_exact(&mut found)?;
    let other = found.iter().position(|&byte| byte != 0);
    ensure!(other.is_none(), "byte {other:?} is not zero");
    export.end()?;
    drive.check()
}

/// Random writes at depth 1 and 32, of single blocks up to a MiB, with trims between them.
fn verify(block_size: u32) -> Result<()> {
    let drive = DriveWithDisk::new(block_size)?;
    let (export, disk) = Export::nvme_tcp(&drive.disk(), "")?;
    let sizes = format!("--bsrange={block_size}-1M");
    let align = format!("--ba={block_size}");
    for depth in ["--iodepth=1", "--iodepth=32"] {
        fio(&disk, &["--rw=randwrite", &sizes, &align, depth, "--io_size=64M"])?;
        fio(&disk, &["--rw=randtrimwrite", "--bs=64k", depth, "--io_size=48M"])?;
        let mixed = ["--rw=randrw", "--bs=4k", depth, "--io_size=16M", "--fdatasync=32"];
        fio(&disk, &mixed)?;
    }
    export.end()?;
    drive.check()
}

fn fio(disk: &Path, more: &[&str]) -> Result<()> {
    let mut command = Command::new("fio");
    command.args(FIO).args(more).arg(format!("--filename={}", disk.display()));
    run::quietly(&mut command).map(drop)
}

/// A file system whose files survive a change of servers.
fn file_system(kind: PlainFs) -> Result<()> {
    let drive = DriveWithDisk::new(4096)?;
    let (export, disk) = Export::nvme_tcp(&drive.disk(), "")?;
    let exercised = kind.exercise(&disk, FILL, || Ok(()))?;
    export.end()?;
    // A second server has all data that the first one made durable.
    let (export, disk) = Export::nvme_tcp(&drive.disk(), "")?;
    exercised.verify(&disk)?;
    export.end()?;
    drive.check()
}

/// Without a volatile write cache no write is lost, also not of a file system that stays mounted.
fn killed() -> Result<()> {
    let drive = DriveWithDisk::new(4096)?;
    let arguments = [drive.disk(), "--write-through".to_owned()];
    let mut server = Killable::start(&arguments)?;
    let disk = server.export()?.disk(1)?;
    let cache = queue_attribute(&disk, "write_cache")?;
    ensure!(cache == "write through", "{cache}");
    let depth = ["--rw=randwrite", "--bsrange=4k-256k", "--iodepth=32", "--io_size=200M"];
    let mut job = Command::new("fio");
    job.args(FIO).args(depth).arg(format!("--filename={}", disk.display()));
    let mut job = job.stdout(Stdio::piped()).spawn()?;
    for part in 1..=3_u64 {
        let written = (part * 32) << 20;
        wait_for(|| Ok(job.try_wait()?.is_some() || bytes_written(&disk)? >= written))?;
        server.kill_and_restart()?;
    }
    ended(&mut job).context("fio, over three kills")?;
    PlainFs::Ext4.make(&disk)?;
    let place = side::mount_point()?;
    let mounted = Mounted::kernel("ext4", "rw", &disk, &place)?;
    let mut contents = Contents::new(&place.join("files"), Syncing::Whole)?;
    for _ in 0..3 {
        contents.fill(FILL / 6)?;
        server.kill_and_restart()?;
        contents.change()?;
    }
    contents.verify()?;
    mounted.unmount()?;
    PlainFs::Ext4.check(&disk)?;
    server.end()?;
    drive.check()
}

/// Waits for a process, which has to end well.
fn ended(job: &mut Child) -> Result<()> {
    let status = job.wait()?;
    if status.success() {
        return Ok(());
    }
    let mut said = String::new();
    if let Some(mut output) = job.stdout.take() {
        output.read_to_string(&mut said)?;
    }
    bail!("it ended with {status}: {said}")
}

/// A server that is killed while its host stays connected.
struct Killable {
    export: Option<Export>,
    arguments: Vec<String>,
    nqn: String,
    port: String,
}

impl Killable {
    fn start(arguments: &[String]) -> Result<Self> {
        let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let mut export = Export::serve(&words)?;
        let (nqn, port) = (export.nqn().to_owned(), export.port().to_owned());
        export.connect(&port, ",reconnect_delay=1,ctrl_loss_tmo=600")?;
        let arguments = [arguments, &[format!("--listen=127.0.0.1:{port}")]].concat();
        Ok(Self { export: Some(export), arguments, nqn, port })
    }

    fn export(&self) -> Result<&Export> {
        self.export.as_ref().context("the server")
    }

    fn kill_and_restart(&mut self) -> Result<()> {
        let killed = self.export.take().context("the server")?;
        let controller = killed.controller().to_owned();
        killed.crash()?;
        let words: Vec<&str> = self.arguments.iter().map(String::as_str).collect();
        let mut export = Export::serve_as(&self.nqn, &words)?;
        ensure!(export.port() == self.port, "another port");
        export.adopt(&controller);
        self.export = Some(export);
        // The kernel may take a moment to notice the end of the connection.
        let place = PathBuf::from("/sys/class/nvme").join(controller).join("state");
        wait_for(|| Ok(fs::read_to_string(&place)?.trim() == "live"))
    }

    fn end(mut self) -> Result<()> {
        self.export.take().context("the server")?.end()
    }
}

/// The kernel's zonefs on one namespace, ext4 on the other, at the same time.
fn beside_zones() -> Result<()> {
    let drive = DriveWithDisk::new(4096)?;
    let zoned = "mem:zone=4M,capacity=3M,zones=16,open=8,active=12";
    let mut export = Export::serve(&[zoned, &drive.disk()])?;
    let port = export.port().to_owned();
    export.connect(&port, "")?;
    let (zones, disk) = (export.disk(1)?, export.disk(2)?);
    for (node, expected) in [(&zones, "host-managed"), (&disk, "none")] {
        let found = queue_attribute(node, "zoned")?;
        ensure!(found == expected, "{} is {found}", node.display());
    }
    run::quietly(Command::new("mkzonefs").arg("-f").arg(&zones))?;
    PlainFs::Ext4.make(&disk)?;
    let place = side::mount_point()?;
    let mounted = Mounted::kernel("ext4", "discard", &disk, &place)?;
    let mut contents = Contents::new(&place.join("files"), Syncing::Files)?;
    contents.fill(FILL / 3)?;
    zone_files::exercise(|place| Mounted::kernel("zonefs", "rw", &zones, place))?;
    contents.change()?;
    contents.verify()?;
    mounted.unmount()?;
    PlainFs::Ext4.check(&disk)?;
    export.end()?;
    drive.check()
}
