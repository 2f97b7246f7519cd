//! `zonal serve ublk` in the guest: the block device that the kernel finds, refusals, and the fate
//! of the device when its server ends or is killed.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};

use super::export::{Export, queue_attribute, wait_for};
use super::libtest;
use super::mounted::Mounted;
use super::side::{ZONAL, mount_point, next_number, zonal};
use xtask::run;
use xtask::tally::Tally;

/// All checks of this file.
pub(super) fn checks(tally: &mut Tally) {
    tally.check("ublk: the driver", || {
        run::quietly(Command::new("modprobe").args(["-r", "ublk_drv"]))?;
        let missing = zonal(&["serve", "ublk", "mem:"]).err().context("it is there already")?;
        let words = missing.to_string();
        ensure!(words.contains("modprobe ublk_drv"), "{words}");
        run::quietly(Command::new("modprobe").arg("ublk_drv")).map(drop)
    });
    libtest::check_each(tally, "ublk", "ublk", &[]);
    tally.check("ublk: what the kernel finds", attributes);
    tally.check("ublk: every action of blkzone", actions);
    tally.check("ublk: discards of conventional zones", discards);
    for (drive, zones) in MIXED {
        let name = format!("ublk: conventional zones and a smaller last zone, {zones} zones");
        tally.check(&name, || conventional_and_smaller(drive, zones));
    }
    tally.check("ublk: conventional zones anywhere", conventional_anywhere);
    tally.check("ublk: two devices at once", two_devices);
    tally.check("ublk: what Linux does not accept is refused with a reason", refusals);
    tally.check("ublk: a mounted file system is synced at the end", mounted_at_the_end);
    tally.check("ublk: the server is killed between writes", killed_between_writes);
    for round in 0..3 {
        let name = format!("ublk: the server is killed while fio writes, {round}");
        tally.check(&name, killed_while_writing);
    }
    tally.check("ublk: the server is killed, and the device removed", killed_and_removed);
    tally.check("ublk: a device is removed while it is served", removed_while_served);
}

/// A drive in a file, which ends with this.
struct DriveFile(PathBuf);

impl DriveFile {
    fn new(options: &[&str]) -> Result<Self> {
        let file = Self(PathBuf::from(format!("/tmp/ublk{}.zns", next_number())));
        run::quietly(Command::new(ZONAL).arg("create").arg(&file.0).args(options))?;
        Ok(file)
    }

    fn name(&self) -> &str {
        self.0.to_str().expect("we made it of letters")
    }
}

impl Drop for DriveFile {
    fn drop(&mut self) {
        // The guest's memory is small.
        let _ = fs::remove_file(&self.0);
    }
}

fn blkzone(arguments: &[&str], disk: &Path) -> Result<String> {
    run::quietly(Command::new("blkzone").args(arguments).arg(disk))
}

fn number(disk: &Path) -> Result<&str> {
    let name = disk.to_str().context("a disk's name")?;
    name.strip_prefix("/dev/ublkb").context("a ublk disk")
}

fn attributes() -> Result<()> {
    let drive =
        "mem:block=512,zone=4M,capacity=3M,zones=40,conventional=0,open=8,active=12,append=64K";
    let (export, disk) = Export::ublk(drive, &[])?;
    for (attribute, expected) in [
        ("zoned", "host-managed"),
        ("chunk_sectors", "8192"),
        ("nr_zones", "40"),
        ("logical_block_size", "512"),
        ("max_open_zones", "8"),
        ("max_active_zones", "12"),
        ("zone_append_max_bytes", "65536"),
        ("write_cache", "write back"),
        ("fua", "1"),
        ("discard_max_bytes", "0"),
    ] {
        let found = queue_attribute(&disk, attribute)?;
        ensure!(found == expected, "{attribute} is {found}, not {expected}");
    }
    let capacity = blkzone(&["capacity"], &disk)?;
    ensure!(capacity.trim().ends_with("3c000"), "a capacity of {capacity}");
    export.end()
}

/// `BLKDISCARD` in conventional zones, also across two of them, and not in others.
fn discards() -> Result<()> {
    let (export, disk) = Export::ublk("mem:zone=4M,zones=12,conventional=3", &[])?;
    let most = queue_attribute(&disk, "discard_max_bytes")?;
    ensure!(most == "4194304", "discard_max_bytes is {most}");
    let data = vec![7; 12 << 20];
    let file = File::options().read(true).write(true).open(&disk)?;
    file.write_all_at(&data, 0)?;
    file.sync_all()?;
    let discard = |offset: &str, length: &str| {
        run::quietly(
            Command::new("blkdiscard").args(["--offset", offset, "--length", length]).arg(&disk),
        )
    };
    discard("1048576", "6291456")?;
    let mut held = vec![0; 12 << 20];
    file.read_exact_at(&mut held, 0)?;
    ensure!(held[..1 << 20] == data[..1 << 20], "blocks before");
    ensure!(held[7 << 20..] == data[7 << 20..], "blocks behind");
    ensure!(held[1 << 20..7 << 20].iter().all(|&byte| byte == 0), "a drive in memory gives zeroes");
    // In a sequential zone nothing is discarded. The kernel makes a success of EOPNOTSUPP (Linux
    // 4.7, `blkdev_issue_discard` in `block/blk-lib.c`).
    file.write_all_at(&data[..1 << 20], 12 << 20)?;
    file.sync_all()?;
    discard("12582912", "4194304")?;
    let mut held = vec![0; 1 << 20];
    file.read_exact_at(&mut held, 12 << 20)?;
    ensure!(held == data[..1 << 20], "a sequential zone has lost its data");
    drop(file);
    export.end()
}

/// Drives whose last zone has room for 1 MiB, and the number of zones that the kernel sees.
const MIXED: [(&str, usize); 2] = [
    ("mem:profile=smr,zone=4M,size=33M,conventional=2", 9),
    ("po2:mem:profile=smr,zone=3M,size=31M,conventional=3", 10),
];

/// The kernel finds whole zones. A conventional one takes writes anywhere, the last one as much as
/// it has room for, and behind that it reads as zeroes.
fn conventional_and_smaller(drive: &str, zones: usize) -> Result<()> {
    let (export, disk) = Export::ublk(drive, &[])?;
    let report = blkzone(&["report"], &disk)?;
    let lines: Vec<&str> = report.lines().collect();
    ensure!(lines.len() == zones, "{report}");
    let is_whole = |line: &&str| line.contains("len 0x002000, cap 0x002000");
    ensure!(lines[..2].iter().all(is_whole) && lines[1].contains("CONVENTIONAL"), "{report}");
    let last = lines[zones - 1];
    ensure!(last.contains("len 0x002000, cap 0x000800"), "{last}");
    let file = File::options().read(true).write(true).open(&disk)?;
    let data: Vec<u8> = (0..6_u32 << 18).flat_map(u32::to_le_bytes).collect();
    // Writes across the end of the real zone, and across the ends of the zones that the kernel
    // sees.
    file.write_all_at(&data, 1 << 20)?;
    file.sync_all()?;
    write_at(&disk, &data[..1 << 20], (zones as u64 - 1) * 4)?;
    let beyond = write_at(&disk, &data[..1 << 20], (zones as u64 - 1) * 4 + 1);
    ensure!(beyond.is_err(), "a write behind the last zone's room");
    let mut held = vec![7; 4 << 20];
    let read = File::open(&disk)?;
    read.read_exact_at(&mut held, ((zones as u64 - 1) * 4) << 20)?;
    ensure!(held[..1 << 20] == data[..1 << 20], "the last zone holds something else");
    ensure!(held[1 << 20..].iter().all(|&byte| byte == 0), "its gap holds something");
    run::quietly(Command::new("blockdev").arg("--flushbufs").arg(&disk))?;
    let mut held = vec![7; data.len()];
    read.read_exact_at(&mut held, 1 << 20)?;
    ensure!(held == data, "conventional zones hold something else");
    drop((file, read));
    export.end()
}

/// The kernel and our own commands find the same conventional zones on the block device, the
/// kernel's zonefs makes files of them, and the last one takes writes at its end.
fn conventional_anywhere() -> Result<()> {
    let (export, disk) = Export::ublk("mem:zone=4M,zones=12,conventional=0,5-6,11", &[])?;
    let report = blkzone(&["report"], &disk)?;
    let zones = report.lines().enumerate().filter(|(_, line)| line.contains("CONVENTIONAL"));
    let zones: Vec<usize> = zones.map(|(zone, _)| zone).collect();
    ensure!(zones == [0, 5, 6, 11], "{report}");
    let info = zonal(&["info", &disk.display().to_string()])?;
    ensure!(info.contains("4 zones: 0,5-6,11"), "{info}");
    write_at(&disk, &vec![7; 1 << 20], 47)?;
    for (features, files) in [("", &[4, 4, 4][..]), ("aggr_cnv", &[8, 4])] {
        let mut command = Command::new("mkzonefs");
        if !features.is_empty() {
            command.args(["-o", features]);
        }
        run::quietly(command.arg("-f").arg(&disk))?;
        let point = mount_point()?;
        let mounted = Mounted::kernel("zonefs", "rw", &disk, &point)?;
        let file = |nth: usize| fs::metadata(point.join(format!("cnv/{nth}")));
        for (nth, mib) in files.iter().enumerate() {
            let size = file(nth)?.len();
            ensure!(size == mib << 20, "{features}: cnv/{nth} of {size} bytes");
        }
        ensure!(file(files.len()).is_err(), "{features}: more than {} files", files.len());
        mounted.unmount()?;
    }
    export.end()
}

/// Writes at a place in MiB, past the page cache.
fn write_at(disk: &Path, data: &[u8], mib: u64) -> Result<()> {
    fs::write("/tmp/ublk-data", data)?;
    let (target, seek) = (format!("of={}", disk.display()), format!("seek={mib}"));
    let how = ["if=/tmp/ublk-data", "bs=1M", "oflag=direct", "conv=fsync,notrunc"];
    run::quietly(Command::new("dd").args([target, seek]).args(how)).map(drop)
}

/// Compares the condition of zone 1 in `blkzone report` after each action.
fn actions() -> Result<()> {
    let (export, disk) = Export::ublk("mem:zone=4M,zones=12,open=8,active=12", &[])?;
    let condition = || {
        let report = blkzone(&["report", "--offset=8192", "--count=1"], &disk)?;
        let found = report.split("zcond:").nth(1).and_then(|rest| rest.split('(').nth(1));
        anyhow::Ok(found.context("a condition")?[..2].to_owned())
    };
    let zone = ["--offset=8192", "--length=8192"];
    for (action, expected) in
        [("open", "oe"), ("close", "cl"), ("finish", "fu"), ("reset", "em"), ("open", "oe")]
    {
        blkzone(&[&[action], &zone[..]].concat(), &disk)?;
        let found = condition()?;
        ensure!(found == expected, "{found} after {action}, not {expected}");
    }
    // Seven more, and one too many.
    for start in 2..9 {
        blkzone(&["open", &format!("--offset={}", start * 8192), "--length=8192"], &disk)?;
    }
    let refused = blkzone(&["open", "--offset=0", "--length=8192"], &disk);
    let words = refused.err().context("a ninth open zone")?.to_string();
    ensure!(words.contains("Too many references"), "{words}");
    blkzone(&["reset"], &disk)?;
    ensure!(condition()? == "em", "a reset of all zones");
    export.end()
}

fn two_devices() -> Result<()> {
    let data: Vec<Vec<u8>> = [3_u8, 5]
        .iter()
        .map(|step| (0..1_u32 << 20).map(|at| at.to_le_bytes()[1].wrapping_mul(*step)).collect())
        .collect();
    let (first, first_disk) = Export::ublk("mem:zone=4M,zones=8", &[])?;
    let (other, other_disk) = Export::ublk("po2:mem:zone=3M,zones=8", &["--id=7"])?;
    ensure!(other_disk == Path::new("/dev/ublkb7"), "{}", other_disk.display());
    let taken = zonal(&["serve", "ublk", "mem:zone=4M", "--id=7"]);
    let words = taken.err().context("a second device 7")?.to_string();
    ensure!(words.contains("there is a ublk device 7 already"), "{words}");
    for (disk, data) in [&first_disk, &other_disk].into_iter().zip(&data) {
        write(disk, data)?;
    }
    for (disk, data) in [&first_disk, &other_disk].into_iter().zip(&data) {
        let mut held = vec![0; data.len()];
        File::open(disk)?.read_exact_at(&mut held, 0)?;
        ensure!(held == *data, "{} holds something else", disk.display());
    }
    let list = zonal(&["serve", "ublk", "--list"])?;
    ensure!(list.lines().filter(|line| line.contains("live")).count() == 2, "{list}");
    first.end()?;
    other.end()?;
    let list = zonal(&["serve", "ublk", "--list"])?;
    ensure!(list.lines().count() == 1, "{list}");
    Ok(())
}

/// Writes at the start of a disk's first zone, durably.
fn write(disk: &Path, data: &[u8]) -> Result<()> {
    fs::write("/tmp/ublk-data", data)?;
    let target = format!("of={}", disk.display());
    let how = ["if=/tmp/ublk-data", "bs=64k", "oflag=direct", "conv=fsync,notrunc"];
    run::quietly(Command::new("dd").arg(target).args(how)).map(drop)
}

fn refusals() -> Result<()> {
    for (device, expected) in [
        ("mem:zone=3M,zones=8", "3072 KiB, not a power of two"),
        ("mem:zone=3M,zones=8", "try: `po2:`"),
        ("mem:zone=4M,zones=8,conventional=8", "all its zones are conventional"),
    ] {
        let refused = zonal(&["serve", "ublk", device]);
        let words = refused.err().with_context(|| format!("{device} is served"))?.to_string();
        ensure!(words.contains(expected), "{device}: {words}");
    }
    let (export, disk) = Export::ublk("mem:zone=4M,zones=8", &[])?;
    let number = number(&disk)?;
    for (device, id, expected) in [
        ("mem:zone=4M,zones=8", "99", "there is no ublk device 99"),
        ("mem:zone=4M,zones=8", number, "is served by process"),
        ("mem:zone=4M,zones=9", number, "for a different device: sectors"),
    ] {
        let refused = zonal(&["serve", "ublk", device, "--recover", id]);
        let words = refused.err().with_context(|| format!("{device} recovers {id}"))?.to_string();
        ensure!(words.contains(expected), "{device}: {words}");
    }
    let refused = zonal(&["serve", "ublk", "--remove=99"]);
    let words = refused.err().context("99 is removed")?.to_string();
    ensure!(words.contains("there is no ublk device 99"), "{words}");
    export.end()
}

fn mounted_at_the_end() -> Result<()> {
    let file = DriveFile::new(&["--size=256M", "--zone-size=4M", "--zone-capacity=4M"])?;
    let (export, disk) = Export::ublk(file.name(), &[])?;
    run::quietly(Command::new("mkfs.btrfs").args(["-q", "-O", "zoned"]).arg(&disk))?;
    let point = Path::new("/tmp/ublk-mount");
    fs::create_dir_all(point)?;
    run::quietly(Command::new("mount").arg(&disk).arg(point))?;
    // In the page cache only.
    fs::write(point.join("file"), vec![7; 3 << 20])?;
    export.end()?;
    run::quietly(Command::new("umount").arg(point))?;
    let (export, disk) = Export::ublk(file.name(), &[])?;
    run::quietly(Command::new("btrfs").args(["check", "--readonly"]).arg(&disk))?;
    run::quietly(Command::new("mount").arg(&disk).arg(point))?;
    let held = fs::read(point.join("file"));
    run::quietly(Command::new("umount").arg(point))?;
    ensure!(held? == vec![7; 3 << 20], "the file holds something else");
    export.end()
}

fn killed_between_writes() -> Result<()> {
    let file = DriveFile::new(&["--size=64M", "--zone-size=4M", "--zone-capacity=4M"])?;
    let (mut export, disk) = Export::ublk(file.name(), &[])?;
    let open = File::options().read(true).write(true).open(&disk)?;
    let data = vec![9; 1 << 20];
    write(&disk, &data)?;
    export.kill()?;
    wait_for(|| Ok(zonal(&["serve", "ublk", "--list"])?.contains("waiting")))?;
    let other = DriveFile::new(&["--size=64M", "--zone-size=4M", "--zone-capacity=4M"])?;
    let refused = zonal(&["serve", "ublk", other.name(), "--recover", number(&disk)?]);
    let words = refused.err().context("another drive takes it over")?.to_string();
    ensure!(words.contains("its drive has another identity"), "{words}");
    export.recover(file.name())?;
    // A program that had the disk open still reads the same data.
    let mut held = vec![0; data.len()];
    open.read_exact_at(&mut held, 0)?;
    ensure!(held == data, "the disk holds something else");
    drop(open);
    export.end()
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

/// fio writes several zones, and reads back and compares all of it when it has written.
fn killed_while_writing() -> Result<()> {
    let file =
        DriveFile::new(&["--size=64M", "--zone-size=4M", "--zone-capacity=3M", "--max-open=4"])?;
    let (export, disk) = Export::ublk(file.name(), &[])?;
    let log = "/tmp/ublk-fio";
    let fio = Command::new("fio")
        .args(["--name=job", "--zonemode=zbd", "--rw=write", "--bs=16k", "--size=40M"])
        .args(["--direct=1", "--ioengine=libaio", "--iodepth=8", "--max_open_zones=4"])
        .args(["--verify=crc32c", "--do_verify=1", "--verify_fatal=1"])
        .arg(format!("--filename={}", disk.display()))
        .stdout(File::create(log)?)
        .stderr(Stdio::inherit())
        .spawn()?;
    let mut fio = Running(fio);
    // Ends before fio, which waits for it after a failure.
    let mut export = export;
    for part in 1..=4_u64 {
        let written = (part * 8) << 20;
        wait_for(|| Ok(fio.0.try_wait()?.is_some() || sectors_written(&disk)? * 512 >= written))?;
        export.kill()?;
        export.recover(file.name())?;
    }
    wait_for(|| Ok(fio.0.try_wait()?.is_some()))?;
    let ended = fio.0.wait()?;
    ensure!(ended.success(), "fio ended with {ended}\n{}", fs::read_to_string(log)?);
    export.end()
}

/// Sectors written to a disk, as the kernel counts them: `Documentation/ABI/stable/sysfs-block`.
fn sectors_written(disk: &Path) -> Result<u64> {
    let name = disk.file_name().context("a name")?;
    let text = fs::read_to_string(Path::new("/sys/block").join(name).join("stat"))?;
    Ok(text.split_whitespace().nth(6).context("the seventh number")?.parse()?)
}

fn killed_and_removed() -> Result<()> {
    let (mut export, disk) = Export::ublk("mem:zone=4M,zones=8", &[])?;
    export.kill()?;
    let reader = Command::new("dd")
        .arg(format!("if={}", disk.display()))
        .args(["of=/dev/null", "bs=4k", "count=1", "iflag=direct"])
        .stderr(Stdio::null())
        .spawn()?;
    let mut reader = Running(reader);
    // As above.
    let export = export;
    // Until its read waits: state D of proc(5), `/proc/PID/stat`.
    let state = format!("/proc/{}/stat", reader.0.id());
    wait_for(|| Ok(fs::read_to_string(&state)?.contains("(dd) D")))?;
    zonal(&["serve", "ublk", "--remove", number(&disk)?])?;
    wait_for(|| Ok(reader.0.try_wait()?.is_some()))?;
    ensure!(!reader.0.wait()?.success(), "a read of a device that is gone");
    ensure!(!disk.exists(), "{} is still there", disk.display());
    drop(export);
    Ok(())
}

fn removed_while_served() -> Result<()> {
    let (export, disk) = Export::ublk("mem:zone=4M,zones=8", &[])?;
    zonal(&["serve", "ublk", "--remove", number(&disk)?])?;
    export.ended()
}
