//! Changes of zones behind the file system: they fail, or another program writes to them.
//!
//! In a drive of `null_blk` through configfs and the block device, in one of ours through the
//! control directory of the mount.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::plan::Fate;
use xtask::run;

/// Where a drive is reached past the file system.
#[derive(Clone, Debug)]
pub(super) enum BackingDevice {
    /// `.zonal/command` of a mount.
    Control(PathBuf),
    /// A block device of `null_blk`.
    NullBlk { device: PathBuf, config: PathBuf, zone_sectors: u64 },
}

/// Flag of `open`.
const O_DIRECT: i32 = 0o40000;

/// Bytes of a write; whole blocks on every drive.
const WRITTEN: usize = 4096;

impl BackingDevice {
    /// Of a mount, or of the device that is mounted.
    pub(super) fn new(path: &Path) -> Result<Self> {
        let command = path.join(".zonal/command");
        if command.exists() {
            return Ok(Self::Control(command));
        }
        let name = path.file_name().context("a device has a name")?;
        let sectors = Path::new("/sys/block").join(name).join("queue/chunk_sectors");
        let sectors = fs::read_to_string(&sectors)
            .with_context(|| format!("reading {}", sectors.display()))?;
        Ok(Self::NullBlk {
            device: path.to_path_buf(),
            config: Path::new("/sys/kernel/config/nullb").join(name),
            zone_sectors: sectors.trim().parse()?,
        })
    }

    /// Does it to a zone.
    pub(super) fn act(&self, zone: u64, fate: Fate) -> Result<()> {
        match self {
            Self::Control(command) => {
                let line = match fate {
                    Fate::ReadOnly => format!("read-only {zone}"),
                    Fate::Offline => format!("offline {zone}"),
                    Fate::Written => format!("write {zone} {WRITTEN}"),
                };
                fs::write(command, line)?;
            }
            Self::NullBlk { device, config, zone_sectors } => {
                let sector = zone * zone_sectors;
                match fate {
                    Fate::ReadOnly => fs::write(config.join("zone_readonly"), sector.to_string())?,
                    Fate::Offline => fs::write(config.join("zone_offline"), sector.to_string())?,
                    Fate::Written => write(device, sector, *zone_sectors)?,
                }
            }
        }
        Ok(())
    }
}

/// Zeroes at the write pointer of the zone that starts at `sector`.
fn write(device: &Path, sector: u64, zone_sectors: u64) -> Result<()> {
    let mut report = Command::new("blkzone");
    report.args(["report", "--count=1", "--offset", &sector.to_string()]).arg(device);
    let report = run::quietly(&mut report)?;
    // "wptr 0x000010", in sectors from the start of the zone.
    let (_, rest) = report.split_once("wptr 0x").context("blkzone tells no write pointer")?;
    let digits = rest.split(' ').next().unwrap_or_default();
    let pointer = u64::from_str_radix(digits, 16).context("blkzone tells no write pointer")?;
    // A failed or full zone has no write pointer in its capacity.
    ensure!(pointer < zone_sectors, "write pointer {pointer}");
    let file = OpenOptions::new().write(true).custom_flags(O_DIRECT).open(device)?;
    let memory = [0_u8; 2 * WRITTEN];
    let start = memory.as_ptr().align_offset(WRITTEN);
    let count = file.write_at(&memory[start..start + WRITTEN], (sector + pointer) * 512)?;
    ensure!(count == WRITTEN, "only {count} bytes were written");
    Ok(())
}
