//! The kernel's own file systems on drives that Zonal serves: made, filled, changed until zones are
//! reset, checked by their own tools, and read back.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::contents::{Contents, Syncing};
use super::export::{Export, Way};
use super::mounted::Mounted;
use super::{side, zone_files};
use crate::drives;
use xtask::run;
use xtask::tally::Tally;

/// A file system of the kernel that knows zones.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    /// A file per zone.
    Zonefs,
    /// All on the drive.
    Btrfs,
    /// Metadata on a disk without zones, files on the drive.
    Xfs,
    /// The same.
    F2fs,
    /// All on the drive, metadata in its conventional zones.
    F2fsAlone,
}

/// The combinations to test: a server, a file system, and a drive. With many writes at once, F2FS
/// needs zones that are writable to their end. The drives over ublk have conventional zones;
/// `refused.rs` tests the other file systems over ublk.
const DONE: [(Way, Kind, &str); 6] = [
    (Way::NvmeTcp, Kind::Zonefs, "mem:zone=4M,capacity=3M,zones=64,open=8,active=12"),
    (Way::NvmeTcp, Kind::Btrfs, "mem:zone=4M,capacity=3M,zones=96,open=14,active=28"),
    (Way::NvmeTcp, Kind::Xfs, "mem:zone=4M,capacity=3M,zones=64,open=8,active=12"),
    (Way::NvmeTcp, Kind::F2fs, "mem:block=512,zone=4M,zones=64,open=8,active=12"),
    (Way::Ublk, Kind::Zonefs, "mem:zone=4M,zones=64,conventional=8,open=8,active=12"),
    (Way::Ublk, Kind::F2fsAlone, "mem:zone=4M,zones=96,conventional=16,open=8,active=12"),
];

/// The most that is written at first: an interpreted kernel is slow.
const FILL_MAX: u64 = 300 << 20;

/// Room for the metadata of an F2FS.
const BESIDE_BYTES: u64 = 128 << 20;

/// Bytes that are written to an F2FS before it is synced, if zones have gaps. F2FS takes the
/// capacity of such a zone for not yet reached (`is_end_zone_blkaddr` of fs/f2fs/data.c), and goes
/// on to the next zones before its writes are done, so a longer write exceeds the limit of active
/// zones.
const GAP_STEP: u64 = 16 << 20;

/// How often btrfs is tried: under load, one of Linux 7.3 stops by itself once in many runs.
const BTRFS_ATTEMPTS: u32 = 3;

/// The unit of sizes in Linux.
const SECTOR: u64 = 512;

/// All checks of this file.
pub(super) fn checks(tally: &mut Tally) {
    for (way, kind, device) in DONE {
        tally.check(&format!("{kind:?} on a drive over {way}"), || {
            let (export, disk) = Export::start(way, device)?;
            kind.exercise(&disk)?;
            export.end()
        });
    }
}

impl Kind {
    /// Makes one on a zoned disk, uses it as this file says, and leaves it unmounted.
    pub(super) fn exercise(self, disk: &Path) -> Result<()> {
        let beside = Beside::new(self, disk)?;
        for _ in 1..BTRFS_ATTEMPTS {
            match self.attempt(disk, &beside) {
                Err(error) if self.stopped_by_itself(&error) => {
                    println!("{self:?} stopped by itself, so it is made once more: {error:#}");
                }
                outcome => return outcome,
            }
        }
        self.attempt(disk, &beside)
    }

    fn attempt(self, disk: &Path, beside: &Beside) -> Result<()> {
        self.format(disk, beside).context("making it")?;
        let outcome = match self {
            Self::Zonefs => {
                zone_files::exercise(|place| Mounted::kernel("zonefs", "rw", disk, place))
            }
            Self::Btrfs | Self::Xfs | Self::F2fs | Self::F2fsAlone => self.files(disk, beside),
        };
        outcome.with_context(kernel_words)
    }

    /// Whether btrfs ended a transaction with EAGAIN: a block of metadata that comes first in its
    /// zone was not ready to be written (`btrfs_check_meta_write_pointer` of fs/btrfs/zoned.c). No
    /// failed command of a drive becomes this error.
    fn stopped_by_itself(self, error: &anyhow::Error) -> bool {
        matches!(self, Self::Btrfs) && format!("{error:#}").contains("errno=-11")
    }

    fn format(self, disk: &Path, beside: &Beside) -> Result<()> {
        let (program, options) = match self {
            Self::Zonefs => ("mkzonefs", ["-f"].as_slice()),
            Self::Btrfs => (
                "mkfs.btrfs",
                ["-q", "-f", "-O", "zoned", "-m", "single", "-d", "single"].as_slice(),
            ),
            Self::Xfs => ("mkfs.xfs", ["-q", "-f", "-r"].as_slice()),
            Self::F2fs => ("mkfs.f2fs", ["-q", "-f", "-m", "-c"].as_slice()),
            Self::F2fsAlone => ("mkfs.f2fs", ["-q", "-f", "-m"].as_slice()),
        };
        let mut command = Command::new(program);
        command.args(options);
        match self {
            Self::Zonefs | Self::Btrfs | Self::F2fsAlone => command.arg(disk),
            Self::Xfs => command.arg(format!("zoned=1,rtdev={}", disk.display())).arg(&beside.disk),
            Self::F2fs => command.arg(disk).arg(&beside.disk),
        };
        run::quietly(&mut command).map(drop)
    }

    fn mount(self, disk: &Path, beside: &Beside, place: &Path) -> Result<Mounted> {
        let realtime = format!("rtdev={}", disk.display());
        match self {
            Self::Zonefs => Mounted::kernel("zonefs", "rw", disk, place),
            Self::Btrfs => Mounted::kernel("btrfs", "rw", disk, place),
            Self::Xfs => Mounted::kernel("xfs", &realtime, &beside.disk, place),
            Self::F2fs => Mounted::kernel("f2fs", "rw", &beside.disk, place),
            Self::F2fsAlone => Mounted::kernel("f2fs", "rw", disk, place),
        }
    }

    /// Looks at it with its own tool, which changes nothing. Nothing checks a zonefs: it has no
    /// metadata that could be wrong.
    fn check(self, disk: &Path, beside: &Beside) -> Result<()> {
        let mut command = match self {
            Self::Zonefs => return Ok(()),
            Self::Btrfs => Command::new("btrfs"),
            Self::Xfs => Command::new("xfs_repair"),
            Self::F2fs | Self::F2fsAlone => Command::new("fsck.f2fs"),
        };
        match self {
            Self::Zonefs | Self::Btrfs => command.args(["check", "--readonly"]).arg(disk),
            Self::Xfs => command.args(["-n", "-r"]).arg(disk).arg(&beside.disk),
            Self::F2fs => command.arg("--dry-run").arg(&beside.disk),
            Self::F2fsAlone => command.arg("--dry-run").arg(disk),
        };
        run::quietly(&mut command).context("its own check").map(drop)
    }

    /// Hundredths of the drive that are filled: btrfs and F2FS need zones to move blocks to.
    fn fill_percent(self) -> u64 {
        match self {
            Self::Zonefs | Self::Xfs => 100,
            Self::F2fs | Self::F2fsAlone => 70,
            Self::Btrfs => 40,
        }
    }

    /// With files that are synced by themselves, btrfs of Linux 7.3 may write the last block of a
    /// zone for metadata twice ("double scheduling") and then abort, on QEMU's drive as it is.
    fn syncing(self) -> Syncing {
        match self {
            Self::Zonefs | Self::Xfs | Self::F2fs | Self::F2fsAlone => Syncing::Files,
            Self::Btrfs => Syncing::Whole,
        }
    }

    /// Frees zones, if removing files alone does not.
    fn reclaim(self, place: &Path) -> Result<()> {
        match self {
            Self::Zonefs | Self::Xfs | Self::F2fs | Self::F2fsAlone => Ok(()),
            Self::Btrfs => {
                let mut command = Command::new("btrfs");
                command.args(["balance", "start", "-dusage=50"]).arg(place);
                run::quietly(&mut command).context("moving blocks").map(drop)
            }
        }
    }

    /// Files, filled, changed and read back before and after it is mounted anew.
    fn files(self, disk: &Path, beside: &Beside) -> Result<()> {
        let place = side::mount_point()?;
        let mounted = self.mount(disk, beside, &place)?;
        let zones = report(disk)?;
        let capacity: u64 = zones.iter().map(|zone| zone.capacity_bytes).sum();
        let level = (capacity * self.fill_percent() / 100).min(FILL_MAX);
        let mut contents = Contents::new(&place.join("files"), self.syncing())?;
        let step = match self {
            Self::F2fs | Self::F2fsAlone if zones.iter().any(|zone| zone.has_gap) => GAP_STEP,
            Self::F2fs | Self::F2fsAlone | Self::Zonefs | Self::Btrfs | Self::Xfs => u64::MAX,
        };
        fill(&mut contents, level, step).context("filling it")?;
        let before = report(disk)?;
        contents.change().context("changing files")?;
        self.reclaim(&place)?;
        fill(&mut contents, level / 3, step).context("filling it again")?;
        contents.verify().context("reading everything back")?;
        mounted.unmount()?;
        self.check(disk, beside)?;
        let mounted = self.mount(disk, beside, &place).context("mounting it again")?;
        contents.verify().context("reading everything back after it was mounted again")?;
        mounted.unmount()?;
        let was_reset = |(before, after): (&Zone, &Zone)| before.is_full && !after.is_full;
        let count = before.iter().zip(&report(disk)?).filter(|pair| was_reset(*pair)).count();
        let megabytes = contents.written() >> 20;
        ensure!(count > 0, "no zone was reset, although {megabytes} MiB were written");
        println!("{self:?}: {megabytes} MiB written, {count} zones reset");
        Ok(())
    }
}

/// Fills a file system, and syncs it after every `step` bytes.
fn fill(contents: &mut Contents, bytes: u64, step: u64) -> Result<()> {
    let mut left = bytes;
    while left > 0 {
        let part = left.min(step);
        contents.fill(part)?;
        left -= part;
    }
    Ok(())
}

/// The disk without zones that a file system keeps its metadata on.
struct Beside {
    disk: PathBuf,
    looped: Option<PathBuf>,
}

impl Beside {
    fn new(kind: Kind, disk: &Path) -> Result<Self> {
        if !matches!(kind, Kind::F2fs) {
            return Ok(Self { disk: drives::PLAIN.into(), looped: None });
        }
        // F2FS fills the rest of the metadata disk first, so a small one leaves the files to the
        // zones.
        run::quietly(Command::new("modprobe").arg("loop"))?;
        let file = PathBuf::from(format!("/root/beside{}.img", side::next_number()));
        File::create(&file)?.set_len(BESIDE_BYTES)?;
        let sector = format!("--sector-size={}", block_size(disk)?);
        let looped = ["--find", "--show", &sector];
        let disk = run::quietly(Command::new("losetup").args(looped).arg(&file))?;
        Ok(Self { disk: disk.trim().into(), looped: Some(file) })
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        if let Some(file) = &self.looped {
            // The guest ends soon anyway.
            let _ = run::quietly(Command::new("losetup").arg("--detach").arg(&self.disk));
            let _ = fs::remove_file(file);
        }
    }
}

/// Bytes of a block of a disk.
fn block_size(disk: &Path) -> Result<u64> {
    let said = run::quietly(Command::new("blockdev").arg("--getss").arg(disk))?;
    said.trim().parse().context("blockdev")
}

/// A zone in a report.
struct Zone {
    capacity_bytes: u64,
    /// Whether it cannot be written to its end.
    has_gap: bool,
    is_full: bool,
}

/// The zones of a disk, as blkzone of util-linux prints them.
fn report(disk: &Path) -> Result<Vec<Zone>> {
    let printed = run::quietly(Command::new("blkzone").arg("report").arg(disk))?;
    let zone = |line: &str| {
        let sectors = |name: &str| {
            let (_, rest) = line.split_once(name)?;
            u64::from_str_radix(rest.split_once(',')?.0.trim(), 16).ok()
        };
        let (size, capacity) = (sectors("len 0x")?, sectors("cap 0x")?);
        let (capacity_bytes, has_gap) = (capacity * SECTOR, capacity < size);
        Some(Zone { capacity_bytes, has_gap, is_full: line.contains("(fu)") })
    };
    let zones = printed.lines().map(|line| zone(line).with_context(|| format!("blkzone: {line}")));
    zones.collect()
}

/// The last lines of the kernel's log: a failed call says little.
fn kernel_words() -> String {
    let log = run::quietly(&mut Command::new("dmesg")).unwrap_or_default();
    let lines: Vec<&str> = log.lines().collect();
    format!("the kernel said\n{}\n", lines[lines.len().saturating_sub(20)..].join("\n"))
}
