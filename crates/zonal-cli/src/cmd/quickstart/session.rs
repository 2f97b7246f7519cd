//! A file system in use: mounted by a daemon of its own, or used as a library.
//!
//! The daemon is another process: if it dies, users of the mount get errors. In one process, both
//! would wait for each other.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::mount::UnmountFlags;
use zonal::SystemClock;
use zonal_fs::furrow::stats::Traffic;
use zonal_fs::furrow::{Furrow, MountOptions};
use zonal_fs::volume::{self, VolumeOptions};
use zonal_fuse::daemon;
use zonal_fuse::unmount::{detach, unmount_and_wait};

use super::place::Place;
use super::volume::{Mounted, Volume};
use crate::device::{self, OpenMode};

/// How long the drive may take to become clean.
const UNMOUNT_TIMEOUT: Duration = Duration::from_mins(1);

/// How the file system is used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// At this directory.
    Mount(PathBuf),
    /// By calls, for this reason.
    Library(String),
}

impl Way {
    /// The name of the step that opens the file system.
    pub(super) fn opening(&self) -> &'static str {
        match self {
            Self::Mount(_) => "mount",
            Self::Library(_) => "open",
        }
    }

    /// The name of the step that closes it.
    pub(super) fn closing(&self) -> &'static str {
        match self {
            Self::Mount(_) => "unmount",
            Self::Library(_) => "close",
        }
    }
}

/// An open file system. Dropping it without [`Session::end`] detaches its mount.
pub(super) struct Session {
    open: Open,
}

enum Open {
    Mount { point: PathBuf, counts: PathBuf },
    Library { fs: Arc<Furrow>, volume: volume::Volume },
    Ended,
}

impl Session {
    /// Opens the file system on the drive of a place.
    pub(super) fn start(place: &Place) -> Result<Self> {
        let open = match &place.way {
            Way::Mount(point) => mount(place, point)?,
            Way::Library(_) => {
                let spec = place.drive.display().to_string();
                let device = device::open(&spec, OpenMode::ReadWrite)?;
                let clock = Arc::new(SystemClock::new());
                let fs = Furrow::mount(device, clock, MountOptions::default())
                    .with_context(|| format!("opening the file system on {spec}"))?;
                let fs = Arc::new(fs);
                let volume = volume::Volume::new(Arc::clone(&fs) as _, &VolumeOptions::default());
                Open::Library { fs, volume }
            }
        };
        Ok(Self { open })
    }

    /// The tree in which the work runs.
    pub(super) fn volume(&self) -> Box<dyn Volume> {
        match &self.open {
            Open::Mount { point, .. } => Box::new(Mounted::new(point)),
            Open::Library { volume, .. } => Box::new(volume.clone()),
            Open::Ended => unreachable!("ending a session consumes it"),
        }
    }

    /// Where it is mounted.
    pub(super) fn mount_point(&self) -> Option<&Path> {
        match &self.open {
            Open::Mount { point, .. } => Some(point),
            Open::Library { .. } | Open::Ended => None,
        }
    }

    /// Makes everything durable, unmounts, and returns the traffic of this session.
    pub(super) fn end(mut self) -> Result<Traffic> {
        match std::mem::replace(&mut self.open, Open::Ended) {
            Open::Mount { point, counts } => {
                if let Err(error) = unmount_and_wait(&point, UNMOUNT_TIMEOUT) {
                    self.open = Open::Mount { point, counts };
                    return Err(error.into());
                }
                Traffic::load(&counts).with_context(|| format!("reading {}", counts.display()))
            }
            Open::Library { fs, volume } => {
                volume.close()?;
                Ok(fs.live().since_mount)
            }
            Open::Ended => unreachable!("ending a session consumes it"),
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if let Open::Mount { point, .. } = &self.open {
            // The failure that led here is being reported already.
            let _ = detach(point, UnmountFlags::DETACH);
        }
    }
}

/// Starts `zonal mount`, as users do.
fn mount(place: &Place, point: &Path) -> Result<Open> {
    let counts = place.counts();
    let mut command = daemon::this_program("zonal");
    command.arg("mount").arg("--foreground");
    command.arg("--log").arg(place.log());
    command.arg("--counts").arg(&counts);
    command.arg(&place.drive).arg(point);
    daemon::spawn(&mut command).with_context(|| format!("mounting at {}", point.display()))?;
    Ok(Open::Mount { point: point.to_owned(), counts })
}
