//! Ordinary disks over ublk in the guest: the block device that the kernel finds, the kernel's own
//! file systems, LVM and LUKS on one, and the data that survives a killed server.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};

use super::export::{Export, bytes_written, queue_attribute, wait_for};
use super::plain_fs::PlainFs;
use super::side::{ZONAL, next_number, zonal};
use xtask::run;
use xtask::tally::Tally;

/// Bytes that are written to a file system: less than the size of its disk.
const FILL_BYTES: u64 = 40 << 20;

/// `PF_MEMALLOC_NOIO` of `include/linux/sched.h`: the flag that `PR_SET_IO_FLUSHER` sets.
const FLAG_NO_IO: u64 = 0x0008_0000;

/// A job of fio that writes, and reads its data back.
struct FioJob {
    name: &'static str,
    options: &'static [&'static str],
}

/// fio removes trimmed blocks from its list, but not from its sequence of random numbers, unless it
/// verifies that they are zeroes: then it finds wrong seeds, on any disk. A part of a physical
/// block may keep its data, so fio trims whole physical blocks. fio trims blocks that are still
/// being written, unless it serializes overlapping requests.
const FIO_JOBS: [FioJob; 4] = [
    FioJob { name: "512 B to 128 KiB at depth 1", options: &["--bsrange=512-128k"] },
    FioJob { name: "512 B to 1 MiB at depth 32", options: &["--bsrange=512-1m", "--iodepth=32"] },
    FioJob {
        name: "blocks again and again",
        options: &[
            "--bsrange=512-256k",
            "--iodepth=32",
            "--norandommap=1",
            "--io_size=80M",
            "--serialize_overlap=1",
        ],
    },
    FioJob {
        name: "and trims 4 KiB to 1 MiB",
        options: &[
            "--bsrange=4k-1m",
            "--iodepth=32",
            "--trim_percentage=10",
            "--trim_backlog=32",
            "--trim_verify_zero=1",
            "--serialize_overlap=1",
        ],
    },
];

/// Disks over ublk.
pub(super) fn checks(tally: &mut Tally) {
    tally.check("disk over ublk: what the kernel finds", attributes);
    tally.check("disk over ublk: partitions are found", partitions);
    tally.check("disk over ublk: discards and zeroes", discards_and_zeroes);
    tally.check("disk over ublk: it grows while it is used", growth);
    tally.check("disk over ublk: other disks cannot take it over", takeovers);
    tally.check("disk over ublk: threads never wait for their disk", protected);
    for job in &FIO_JOBS {
        let name = format!("disk over ublk: the server is killed while fio writes {}", job.name);
        tally.check(&name, || killed_while_writing(job));
    }
    for kind in PlainFs::ALL {
        let name = format!("disk over ublk: {}, and its server is killed", kind.name());
        tally.check(&name, || {
            let mut disk = ServedDisk::start(&["--size=300M"])?;
            let block = disk.block.clone();
            let exercised = kind.exercise(&block, FILL_BYTES, || disk.kill_and_recover())?;
            exercised.verify(&block)?;
            disk.end()
        });
    }
    tally.check("disk over ublk: LVM", lvm);
    tally.check("disk over ublk: LUKS", luks);
}

/// The name of every disk.
const DISK: &str = "root";

/// Makes a drive in a file, and returns its name.
fn new_drive() -> Result<String> {
    let name = format!("/root/disk{}.zns", next_number());
    zonal(&["create", &name, "--zones=160", "--zone-size=4M", "--zone-capacity=3M"])?;
    Ok(name)
}

/// Makes a disk with these options on a drive, and returns its specification.
fn new_disk(drive: &str, options: &[&str]) -> Result<String> {
    zonal(&["mkfs", drive])?;
    zonal(&[&["disk", "create", drive, DISK], options].concat())?;
    Ok(format!("{drive}//{DISK}"))
}

/// A disk on a drive, and its server. Dropping this ends the server and removes the drive, if it is
/// a file.
pub(super) struct ServedDisk {
    export: Export,
    block: PathBuf,
    spec: String,
    drive: PathBuf,
}

impl ServedDisk {
    /// Serves a new disk with these options, on a new drive.
    fn start(options: &[&str]) -> Result<Self> {
        Self::on(&new_drive()?, options, &[])
    }

    /// Serves a snapshot of such a disk.
    fn start_snapshot(options: &[&str], snapshot: &str) -> Result<Self> {
        let drive = new_drive()?;
        let disk = new_disk(&drive, options)?;
        zonal(&["disk", "snapshot", &drive, DISK, snapshot])?;
        Self::serve(&drive, format!("{disk}@{snapshot}"), &[])
    }

    /// Serves a new disk on a drive that there is, by a server with these options.
    pub(super) fn on(drive: &str, options: &[&str], server: &[&str]) -> Result<Self> {
        Self::serve(drive, new_disk(drive, options)?, server)
    }

    fn serve(drive: &str, spec: String, server: &[&str]) -> Result<Self> {
        let (export, block) = Export::ublk(&spec, server)?;
        Ok(Self { export, block, spec, drive: PathBuf::from(drive) })
    }

    pub(super) fn block(&self) -> &Path {
        &self.block
    }

    /// KiB of the server that are in memory.
    pub(super) fn memory_in_place(&self) -> Result<u64> {
        let sums = fs::read_to_string(format!("/proc/{}/smaps_rollup", self.export.pid()))?;
        let line = sums.lines().find_map(|line| line.strip_prefix("Rss:"));
        Ok(line.and_then(|line| line.trim().strip_suffix(" kB")).context("Rss")?.parse()?)
    }

    pub(super) fn kill_and_recover(&mut self) -> Result<()> {
        self.export.kill()?;
        self.export.recover(&self.spec)
    }

    fn number(&self) -> Result<String> {
        let name = self.block.to_str().and_then(|name| name.strip_prefix("/dev/ublkb"));
        Ok(name.context("a ublk disk")?.to_owned())
    }

    /// Ends the server, which has to end well, and checks all data of the drive.
    pub(super) fn end(self) -> Result<()> {
        let notes = Path::new("/run/zonal").join(format!("ublk{}", self.number()?));
        ensure!(notes.join("unflushed").exists(), "there were no notes");
        self.export.end()?;
        ensure!(!self.block.exists(), "{} is still there", self.block.display());
        ensure!(!notes.exists(), "its notes are left");
        let outcome = run::quietly(Command::new(ZONAL).args(["check", "--data"]).arg(&self.drive));
        if self.drive.is_file() {
            fs::remove_file(&self.drive)?;
        }
        outcome.map(drop).context("checking the drive")
    }
}

fn attributes() -> Result<()> {
    for (options, snapshot, logical, read_only) in [
        (["--size=40M", "--thin"], None, "4096", "0"),
        (["--size=40M", "--block-size=512"], None, "512", "0"),
        (["--size=40M", "--thin"], Some("monday"), "4096", "1"),
    ] {
        let disk = match snapshot {
            None => ServedDisk::start(&options)?,
            Some(name) => ServedDisk::start_snapshot(&options, name)?,
        };
        for (attribute, expected) in [
            ("zoned", "none"),
            ("logical_block_size", logical),
            ("physical_block_size", "4096"),
            ("minimum_io_size", "4096"),
            ("write_cache", "write back"),
            ("fua", "1"),
            ("discard_granularity", "4096"),
            ("discard_max_bytes", "4294963200"),
            ("write_zeroes_max_bytes", "4294963200"),
        ] {
            let found = queue_attribute(&disk.block, attribute)?;
            ensure!(found == expected, "{attribute} is {found}, not {expected}");
        }
        let size = run::quietly(Command::new("blockdev").arg("--getsize64").arg(&disk.block))?;
        ensure!(size.trim() == "41943040", "a size of {size}");
        let found = run::quietly(Command::new("blockdev").arg("--getro").arg(&disk.block))?;
        ensure!(found.trim() == read_only, "read-only: {found}");
        disk.end()?;
    }
    Ok(())
}

/// The kernel reads a table of partitions while the device is started: its server answers by then.
fn partitions() -> Result<()> {
    let disk = ServedDisk::start(&["--size=40M", "--block-size=512"])?;
    // One entry of an MBR: type 83h, from sector 2048 on, 4096 sectors.
    let mut sector = [0; 512];
    sector[446 + 4] = 0x83;
    sector[446 + 8..][..4].copy_from_slice(&2048_u32.to_le_bytes());
    sector[446 + 12..][..4].copy_from_slice(&4096_u32.to_le_bytes());
    sector[510..].copy_from_slice(&[0x55, 0xaa]);
    let file = File::options().write(true).open(&disk.block)?;
    file.write_all_at(&sector, 0)?;
    file.sync_all()?;
    drop(file);
    let ServedDisk { export, spec, drive, .. } = disk;
    export.end()?;
    let (export, block) = Export::ublk(&spec, &[])?;
    let partition = PathBuf::from(format!("{}p1", block.display()));
    wait_for(|| Ok(partition.exists()))?;
    let size = run::quietly(Command::new("blockdev").arg("--getsz").arg(&partition))?;
    ensure!(size.trim() == "4096", "a partition of {size}");
    ServedDisk { export, block, spec, drive }.end()
}

/// Discards the whole disk, and zeroes parts of it with and without freeing their space. A thin
/// disk gives its space back.
fn discards_and_zeroes() -> Result<()> {
    let disk = ServedDisk::start(&["--size=200M", "--thin", "--block-size=512"])?;
    let file = File::options().read(true).write(true).open(&disk.block)?;
    let data = vec![7; 4 << 20];
    file.write_all_at(&data, 0)?;
    file.write_all_at(&data, 196 << 20)?;
    file.sync_all()?;
    let run_on = |program: &str, options: &[&str]| {
        run::quietly(Command::new(program).args(options).arg(&disk.block))
    };
    // An odd sector at each end, which are parts of blocks.
    run_on("blkdiscard", &["--zeroout", "--offset", "1049088", "--length", "1048064"])?;
    run_on("fallocate", &["--punch-hole", "--offset", "2097152", "--length", "1048576"])?;
    let mut held = vec![1; 4 << 20];
    file.read_exact_at(&mut held, 0)?;
    let is_zero = |range: std::ops::Range<usize>| held[range].iter().all(|byte| *byte == 0);
    ensure!(is_zero(1_049_088..2_097_152), "zeroes are not there");
    ensure!(is_zero(2_097_152..3_145_728), "a hole is not there");
    ensure!(held[..1_049_088] == data[..1_049_088], "data before the zeroes");
    ensure!(held[3_145_728..] == data[3_145_728..], "data behind the hole");
    run_on("blkdiscard", &[])?;
    // A discarded disk of ours reads as zeroes.
    drop(file);
    let file = File::open(&disk.block)?;
    for at in [0, 196 << 20] {
        file.read_exact_at(&mut held, at)?;
        ensure!(held.iter().all(|byte| *byte == 0), "data that was discarded");
    }
    drop(file);
    let ServedDisk { export, block, spec, drive } = disk;
    export.end()?;
    let name = drive.to_str().context("a name")?;
    let info = zonal(&["disk", "info", name, DISK])?;
    ensure!(info.contains("0 B allocated"), "{info}");
    let (export, _) = Export::ublk(&spec, &[])?;
    ServedDisk { export, block, spec, drive }.end()
}

/// The block device has the new size of a disk that grows: at once, or when a server takes over.
fn growth() -> Result<()> {
    let mut disk = ServedDisk::start(&["--size=40M"])?;
    let drive = disk.drive.to_str().context("a name")?.to_owned();
    let file = File::options().read(true).write(true).open(&disk.block)?;
    let grow = |mib: u64| zonal(&["disk", "resize", &drive, DISK, &format!("--size={mib}M")]);
    let is_of = |mib: u64| {
        let found = run::quietly(Command::new("blockdev").arg("--getsize64").arg(&disk.block))?;
        ensure!(found.trim() == (mib << 20).to_string(), "{found}, not {mib} MiB");
        file.write_all_at(&[5; 4096], (mib << 20) - 4096).context("writing its last block")
    };
    grow(44)?;
    is_of(44)?;
    disk.export.kill()?;
    grow(48)?;
    disk.export.recover(&disk.spec)?;
    is_of(48)?;
    grow(52)?;
    is_of(52)?;
    file.sync_all()?;
    drop(file);
    disk.end()
}

fn takeovers() -> Result<()> {
    let mut disk = ServedDisk::start(&["--size=40M"])?;
    let drive = disk.drive.to_str().context("a name")?.to_owned();
    let file = File::options().read(true).write(true).open(&disk.block)?;
    disk.export.kill()?;
    zonal(&["disk", "create", &drive, "other", "--size=40M"])?;
    zonal(&["disk", "create", &drive, "small", "--size=20M"])?;
    for (name, expected) in [("other", "has another identity"), ("small", "sectors")] {
        let spec = format!("{drive}//{name}");
        let refused = zonal(&["serve", "ublk", &spec, "--recover", &disk.number()?]);
        let words = refused.err().with_context(|| format!("{name} takes over"))?.to_string();
        ensure!(words.contains(expected), "{words}");
    }
    disk.export.recover(&disk.spec)?;
    file.write_all_at(&[5; 4096], 8192)?;
    file.sync_all()?;
    drop(file);
    disk.end()
}

/// Each thread of the server has the flag, and all that the process has is in memory and locked.
fn protected() -> Result<()> {
    let disk = ServedDisk::start(&["--size=40M"])?;
    let place = PathBuf::from(format!("/proc/{}", disk.export.pid()));
    let mut threads = 0;
    for thread in fs::read_dir(place.join("task"))? {
        // A thread may end meanwhile.
        let Ok(stat) = fs::read_to_string(thread?.path().join("stat")) else { continue };
        // The ninth word, where the second ends with the last bracket.
        let (_, rest) = stat.rsplit_once(')').context("a name of a thread")?;
        let flags: u64 = rest.split_whitespace().nth(6).context("flags")?.parse()?;
        ensure!(flags & FLAG_NO_IO != 0, "a thread may wait for its disk: {stat}");
        threads += 1;
    }
    ensure!(threads > 16, "only {threads} threads");
    let status = fs::read_to_string(place.join("status"))?;
    let kib = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        let value = line.and_then(|line| line.trim().strip_suffix(" kB")).context("a size")?;
        value.parse::<u64>().with_context(|| name.to_owned())
    };
    let (locked, resident) = (kib("VmLck:")?, kib("VmRSS:")?);
    println!("{threads} threads; of {locked} KiB that are locked, {resident} KiB are in memory");
    // All but guard pages.
    ensure!(locked > 0 && resident >= locked - locked / 10, "a first touch may wait");
    disk.end()
}

/// A program that ends with this.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It has ended already, if nothing went wrong.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// fio writes at random, and compares all data with the data that it wrote.
fn killed_while_writing(job: &FioJob) -> Result<()> {
    let mut disk = ServedDisk::start(&["--size=200M", "--block-size=512", "--thin"])?;
    let seed = std::env::var("SEED").unwrap_or_else(|_| "7".to_owned());
    println!("SEED={seed}");
    let log = "/tmp/ublk-fio";
    let fio = Command::new("fio")
        .args(["--name=job", "--rw=randwrite", "--size=40M", "--direct=1", "--ioengine=libaio"])
        .args(["--verify=crc32c", "--verify_fatal=1", "--verify_state_save=0"])
        .args(job.options)
        .arg(format!("--randseed={seed}"))
        .arg(format!("--filename={}", disk.block.display()))
        .stdout(File::create(log)?)
        .stderr(Stdio::inherit())
        .spawn()?;
    let mut fio = Running(fio);
    for part in 1..=3_u64 {
        let written = (part * 8) << 20;
        let block = disk.block.clone();
        wait_for(|| Ok(fio.0.try_wait()?.is_some() || bytes_written(&block)? >= written))?;
        ensure!(fio.0.try_wait()?.is_none(), "fio ended too early\n{}", fs::read_to_string(log)?);
        disk.kill_and_recover()?;
    }
    let ended = fio.0.wait()?;
    ensure!(ended.success(), "fio ended with {ended}\n{}", fs::read_to_string(log)?);
    disk.end()
}

/// A command that makes or removes a device of device mapper: nothing here listens to udev.
fn mapper(program: &str, arguments: &[&str]) -> Result<String> {
    let mut command = Command::new(program);
    run::quietly(command.args(arguments).env("DM_DISABLE_UDEV", "1"))
}

/// Two disks in a volume group: a volume that is on both, with a file system.
fn lvm() -> Result<()> {
    run::quietly(Command::new("modprobe").arg("dm-mod"))?;
    let mut first = ServedDisk::start(&["--size=140M"])?;
    let other = ServedDisk::start(&["--size=140M"])?;
    let names = [&first.block, &other.block].map(|block| block.display().to_string());
    let config = ["--config", "activation{udev_sync=0 udev_rules=0} devices{use_devicesfile=0}"];
    let lvm = |arguments: &[&str]| mapper("lvm", &[arguments, &config].concat());
    lvm(&["vgcreate", "group", &names[0], &names[1]])?;
    lvm(&["lvcreate", "--yes", "--stripes=2", "--extents=100%FREE", "--name=volume", "group"])?;
    let volume = Path::new("/dev/mapper/group-volume");
    let exercised = PlainFs::Ext4.exercise(volume, FILL_BYTES, || first.kill_and_recover())?;
    exercised.verify(volume)?;
    lvm(&["vgchange", "--activate=n", "group"])?;
    first.end()?;
    other.end()
}

/// A file system in an encrypted disk.
fn luks() -> Result<()> {
    run::quietly(Command::new("modprobe").arg("dm-crypt"))?;
    let mut disk = ServedDisk::start(&["--size=300M"])?;
    let block = disk.block.display().to_string();
    fs::write("/tmp/luks-key", [9; 64])?;
    let key = ["--batch-mode", "--key-file=/tmp/luks-key"];
    // Little memory and time for the derivation of a key that is random anyway.
    let cheap = ["--pbkdf=pbkdf2", "--pbkdf-force-iterations=1000"];
    mapper("cryptsetup", &[&["luksFormat"], &key[..], &cheap, &[&block]].concat())?;
    let open = ["open", "--allow-discards"];
    mapper("cryptsetup", &[&open[..], &key, &[&block, "secret"]].concat())?;
    let opened = Path::new("/dev/mapper/secret");
    let exercised = PlainFs::Ext4.exercise(opened, FILL_BYTES, || disk.kill_and_recover())?;
    exercised.verify(opened)?;
    mapper("cryptsetup", &["close", "secret"])?;
    disk.end()
}
