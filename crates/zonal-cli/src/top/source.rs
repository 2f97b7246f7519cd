//! The source of looks: the control directory of a mount, or the zone report of a device.

use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow};
use zonal::ZonedDevice;
use zonal_fuse::control::{Report, map};
use zonal_fuse::names::CONTROL_DIR;

use super::snapshot::{Drive, Snapshot, Spot, What};
use crate::control;
use crate::device::{self, Base, OpenMode, Stack};
use crate::mounts;

/// The target of looks.
pub(crate) enum WatchedTarget {
    Mount(PathBuf),
    Device { name: String, stack: Stack },
}

impl WatchedTarget {
    /// A mount point or a device.
    pub(crate) fn open(name: &str) -> Result<Self> {
        let path = Path::new(name);
        if mounts::is_folder(path) {
            // Fails at once if the directory is no mount of ours.
            control::report(path)?;
            return Ok(Self::Mount(path.to_owned()));
        }
        let stack = device::open_stack(name, OpenMode::ReadOnly)?;
        Ok(Self::Device { name: name.to_owned(), stack })
    }

    /// Looks.
    pub(crate) fn look(&mut self, at_ns: u64) -> Result<Snapshot> {
        match self {
            Self::Mount(dir) => {
                let report = control::report(dir)?;
                let zones = zones_with(&report, dir)?;
                let (name, at_ns) = (dir.display().to_string(), report.at_ns);
                Ok(Snapshot { name, at_ns, zones, what: What::Mount(Box::new(report)) })
            }
            Self::Device { name, stack } => {
                // Changes by another process show after a drive file is opened again.
                if matches!(stack.base, Base::File(_)) {
                    *stack = device::open_stack(name, OpenMode::ReadOnly)?;
                }
                let report = device::report(&*stack.device)?;
                let geometry = stack.device.geometry();
                let zones = report.iter().map(Spot::of_zone).collect();
                let drive = Drive {
                    block_bytes: geometry.block_size().bytes(),
                    report,
                    max_open: geometry.max_open(),
                    max_active: geometry.max_active(),
                };
                Ok(Snapshot { name: name.clone(), at_ns, zones, what: What::Drive(drive) })
            }
        }
    }
}

/// The zones of a mount.
pub(crate) fn zones_of_mount(dir: &Path) -> Result<Vec<Spot>> {
    zones_with(&control::report(dir)?, dir)
}

fn zones_with(report: &Report, dir: &Path) -> Result<Vec<Spot>> {
    if report.live.is_some() { zone_map(dir) } else { zones_of(dir) }
}

fn read(dir: &Path, name: &str) -> Result<String> {
    let path = dir.join(CONTROL_DIR).join(name);
    match control::read_file(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(anyhow!(
            "{} is served by another version of zonal: it has no {name}",
            dir.display()
        )),
        read => read.with_context(|| format!("reading {}", path.display())),
    }
}

fn zone_map(dir: &Path) -> Result<Vec<Spot>> {
    Ok(map::parse(&read(dir, "map")?).into_iter().map(Spot::of_line).collect())
}

/// From the zone report that the mount passes on.
fn zones_of(dir: &Path) -> Result<Vec<Spot>> {
    let text = read(dir, "zones")?;
    Ok(text.lines().skip(1).filter_map(Spot::of_report_line).collect())
}
