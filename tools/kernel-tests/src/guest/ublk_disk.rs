//! Ordinary disks over ublk in the guest: what the kernel finds, the kernel's own file systems, LVM
//! and LUKS on one, and what survives when its server is killed.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::contents::{Contents, Syncing};
use super::export::{Export, queue_attribute, wait_for};
use super::mounted::Mounted;
use super::side::{self, ZONAL, next_number, zonal};
use xtask::run;
use xtask::tally::Tally;

/// What is written to a file system: less than its disk holds.
const FILL_BYTES: u64 = 40 << 20;

/// The file systems that need nothing of a disk: how they are made and checked.
const FILE_SYSTEMS: [(&str, &[&str], &[&str]); 3] = [
    ("ext4", &["mkfs.ext4", "-q"], &["e2fsck", "-f", "-n"]),
    ("xfs", &["mkfs.xfs", "-q", "-f"], &["xfs_repair", "-n"]),
    ("btrfs", &["mkfs.btrfs", "-q", "-f"], &["btrfs", "check", "--readonly"]),
];

/// `PF_MEMALLOC_NOIO` of `include/linux/sched.h`: what `PR_SET_IO_FLUSHER` sets.
const FLAG_NO_IO: u64 = 0x0008_0000;

/// Disks over ublk.
pub(super) fn checks(tally: &mut Tally) {
    tally.check("disk over ublk: what the kernel finds", attributes);
    tally.check("disk over ublk: partitions are found", partitions);
    tally.check("disk over ublk: discards and zeroes", discards_and_zeroes);
    tally.check("disk over ublk: other disks cannot take it over", takeovers);
    tally.check("disk over ublk: threads never wait for their disk", protected);
    for (kind, make, check) in FILE_SYSTEMS {
        tally.check(&format!("disk over ublk: {kind}, and its server is killed"), || {
            let mut disk = ServedDisk::start(&["--size=300M"], "")?;
            let block = disk.block.clone();
            file_system(kind, make, check, &block, || disk.kill_and_recover())?;
            disk.end()
        });
    }
    tally.check("disk over ublk: LVM", lvm);
    tally.check("disk over ublk: LUKS", luks);
}

/// A disk on a drive in a file, and its server. All of it ends with this.
struct ServedDisk {
    export: Export,
    block: PathBuf,
    spec: String,
    drive: PathBuf,
}

impl ServedDisk {
    /// Makes a disk with these options on a new drive, and `snapshot` of it if that has a name,
    /// which is served then.
    fn start(options: &[&str], snapshot: &str) -> Result<Self> {
        let drive = PathBuf::from(format!("/root/disk{}.zns", next_number()));
        let name = drive.to_str().context("we made it of letters")?;
        zonal(&["create", name, "--zones=160", "--zone-size=4M", "--zone-capacity=3M"])?;
        zonal(&["mkfs", name])?;
        zonal(&[&["disk", "create", name, "root"], options].concat())?;
        let mut spec = format!("{name}//root");
        if !snapshot.is_empty() {
            zonal(&["disk", "snapshot", name, "root", snapshot])?;
            spec = format!("{spec}@{snapshot}");
        }
        let (export, block) = Export::ublk(&spec, &[])?;
        Ok(Self { export, block, spec, drive })
    }

    fn kill_and_recover(&mut self) -> Result<()> {
        self.export.kill()?;
        self.export.recover(&self.spec)
    }

    fn number(&self) -> Result<String> {
        let name = self.block.to_str().and_then(|name| name.strip_prefix("/dev/ublkb"));
        Ok(name.context("a ublk disk")?.to_owned())
    }

    /// Ends the server, which has to end well, and checks all data of the drive.
    fn end(self) -> Result<()> {
        let notes = Path::new("/run/zonal").join(format!("ublk{}", self.number()?));
        ensure!(notes.join("unflushed").exists(), "there were no notes");
        self.export.end()?;
        ensure!(!self.block.exists(), "{} is still there", self.block.display());
        ensure!(!notes.exists(), "its notes are left");
        let outcome = run::quietly(Command::new(ZONAL).args(["check", "--data"]).arg(&self.drive));
        fs::remove_file(&self.drive)?;
        outcome.map(drop).context("checking the drive")
    }
}

fn attributes() -> Result<()> {
    for (options, snapshot, logical, read_only) in [
        (["--size=40M", "--thin"], "", "4096", "0"),
        (["--size=40M", "--block-size=512"], "", "512", "0"),
        (["--size=40M", "--thin"], "monday", "4096", "1"),
    ] {
        let disk = ServedDisk::start(&options, snapshot)?;
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
    let disk = ServedDisk::start(&["--size=40M", "--block-size=512"], "")?;
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

/// The whole disk is discarded, parts are zeroed with and without their space, and a thin disk
/// gives back what it has space for.
fn discards_and_zeroes() -> Result<()> {
    let disk = ServedDisk::start(&["--size=200M", "--thin", "--block-size=512"], "")?;
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
    // Of a disk that was discarded, zeroes are what ours gives.
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
    let info = zonal(&["disk", "info", name, "root"])?;
    ensure!(info.contains("0 B allocated"), "{info}");
    let (export, _) = Export::ublk(&spec, &[])?;
    ServedDisk { export, block, spec, drive }.end()
}

fn takeovers() -> Result<()> {
    let mut disk = ServedDisk::start(&["--size=40M"], "")?;
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

/// Each thread of the server has the flag, and what the process touches is locked.
fn protected() -> Result<()> {
    let disk = ServedDisk::start(&["--size=40M"], "")?;
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
    let locked = status.lines().find_map(|line| line.strip_prefix("VmLck:")).context("VmLck")?;
    println!("{threads} threads, locked:{}", locked.trim_start());
    ensure!(locked.trim() != "0 kB", "nothing is locked");
    disk.end()
}

/// Files on a file system: written, changed while `disturb` does what it does, and read back before
/// and after it is mounted anew.
fn file_system(
    kind: &str,
    make: &[&str],
    check: &[&str],
    block: &Path,
    mut disturb: impl FnMut() -> Result<()>,
) -> Result<()> {
    run::quietly(Command::new(make[0]).args(&make[1..]).arg(block))?;
    let place = side::mount_point()?;
    let mounted = Mounted::kernel(kind, "discard", block, &place)?;
    let mut contents = Contents::new(&place.join("files"), Syncing::Files)?;
    contents.fill(FILL_BYTES / 2)?;
    disturb()?;
    contents.fill(FILL_BYTES / 2)?;
    contents.change()?;
    disturb()?;
    contents.fill(FILL_BYTES / 4)?;
    run::quietly(Command::new("fstrim").arg(&place))?;
    contents.verify().context("reading everything back")?;
    mounted.unmount()?;
    let checked = run::quietly(Command::new(check[0]).args(&check[1..]).arg(block));
    checked.context("its own check")?;
    let mounted = Mounted::kernel(kind, "ro", block, &place).context("mounting it again")?;
    contents.verify().context("reading everything back after it was mounted again")?;
    mounted.unmount()
}

/// A command that makes or removes a device of device mapper: nothing here listens to udev.
fn mapper(program: &str, arguments: &[&str]) -> Result<String> {
    let mut command = Command::new(program);
    run::quietly(command.args(arguments).env("DM_DISABLE_UDEV", "1"))
}

/// Two disks in a volume group: a volume that is on both, with a file system.
fn lvm() -> Result<()> {
    run::quietly(Command::new("modprobe").arg("dm-mod"))?;
    let mut first = ServedDisk::start(&["--size=140M"], "")?;
    let other = ServedDisk::start(&["--size=140M"], "")?;
    let names = [&first.block, &other.block].map(|block| block.display().to_string());
    let config = ["--config", "activation{udev_sync=0 udev_rules=0} devices{use_devicesfile=0}"];
    let lvm = |arguments: &[&str]| mapper("lvm", &[arguments, &config].concat());
    lvm(&["vgcreate", "group", &names[0], &names[1]])?;
    lvm(&["lvcreate", "--yes", "--stripes=2", "--extents=100%FREE", "--name=volume", "group"])?;
    let (kind, make, check) = FILE_SYSTEMS[0];
    let used = file_system(kind, make, check, Path::new("/dev/mapper/group-volume"), || {
        first.kill_and_recover()
    });
    used?;
    lvm(&["vgchange", "--activate=n", "group"])?;
    first.end()?;
    other.end()
}

/// A file system in an encrypted disk.
fn luks() -> Result<()> {
    run::quietly(Command::new("modprobe").arg("dm-crypt"))?;
    let mut disk = ServedDisk::start(&["--size=300M"], "")?;
    let block = disk.block.display().to_string();
    fs::write("/tmp/luks-key", [9; 64])?;
    let key = ["--batch-mode", "--key-file=/tmp/luks-key"];
    // Little memory and time for the derivation of a key that is random anyway.
    let cheap = ["--pbkdf=pbkdf2", "--pbkdf-force-iterations=1000"];
    mapper("cryptsetup", &[&["luksFormat"], &key[..], &cheap, &[&block]].concat())?;
    let open = ["open", "--allow-discards"];
    mapper("cryptsetup", &[&open[..], &key, &[&block, "secret"]].concat())?;
    let (kind, make, check) = FILE_SYSTEMS[0];
    file_system(kind, make, check, Path::new("/dev/mapper/secret"), || disk.kill_and_recover())?;
    mapper("cryptsetup", &["close", "secret"])?;
    disk.end()
}
