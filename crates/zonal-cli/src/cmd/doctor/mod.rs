//! `zonal doctor`: why a drive is invisible, slow, read-only, full or stuck. It looks and changes
//! nothing. The exit code is 1 if something is wrong.
//!
//! A room may use the rooms that its last column names; `cargo xtask check` compares the paths.
//!
//! | room | what it is | may use |
//! | --- | --- | --- |
//! | `finding` | a finding, and the report | |
//! | `probe` | asks what may not answer, within a time | |
//! | `host`, `disks` | rules on the machine and its disks | `finding` |
//! | `content` | rules on the content of a device | `finding`, `probe` |
//! | `space` | rules on space that does not come back | `finding`, `content` |
//! | `device` | rules on a device | all above |
//! | `mount` | rules on a mount | all above |
//! | `bundle` | the file for a maintainer | `finding` |

mod bundle;
mod content;
mod device;
mod disks;
mod finding;
mod host;
mod mount;
mod probe;
mod space;
#[cfg(test)]
mod tests;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;
use rustix::io::Errno;
use zonal::mounts::Mount;
use zonal::{Clock, SystemClock};
use zonal_linux::machine::Machine;

use self::finding::Seen;
use crate::args::Global;
use crate::args::doctor::Doctor;
use crate::mounts as our_mounts;
use crate::output::json;

pub(crate) use self::finding::Report;

/// The exit code if something is wrong.
const WRONG: u8 = 1;

/// The mounts of this machine.
struct Place {
    mounts: Vec<Mount>,
}

impl Place {
    /// Where a file system of ours on the device at `path` is mounted.
    fn point_of(&self, path: &Path) -> Option<PathBuf> {
        let mount = self.mounts.iter().find(|mount| our_mounts::is_of(mount, path))?;
        Some(mount.point.clone())
    }

    fn is_mounted(&self, path: &Path) -> bool {
        self.point_of(path).is_some()
    }
}

/// Looks, and prints the findings.
pub(crate) fn run(global: &Global, args: &Doctor) -> Result<ExitCode> {
    let place = Place { mounts: zonal::mounts::all().unwrap_or_default() };
    let machine = Machine::here().look();
    let mut seen = Seen::default();
    let mount = args.what.as_deref().and_then(mount::named);
    match (&args.what, &mount) {
        (None, _) => {
            host::look(&machine, SystemClock::new().wall_ns(), open_fuse(), &mut seen);
            disks::look(&machine, |_| true, |node| place.is_mounted(node), &mut seen);
        }
        (Some(_), Some(mount)) => mount::look(mount, &mut seen)?,
        (Some(spec), None) => {
            our_mounts::refuse_dir(spec)?;
            device::look(spec, &machine, &place, &mut seen)?;
        }
    }
    let report = Report::new(args.what.as_deref().unwrap_or("machine"), seen);
    if let Some(file) = &args.bundle {
        bundle::write(file, &report, &machine, mount.as_ref())?;
    }
    if global.json {
        json::document(&report)?;
    } else {
        say!("{}", report.text());
    }
    Ok(if report.healthy { ExitCode::SUCCESS } else { ExitCode::from(WRONG) })
}

/// Opens the kernel's FUSE device: containers refuse that in spite of its mode.
fn open_fuse() -> Result<(), Errno> {
    let opened = File::options().read(true).write(true).open("/dev/fuse");
    opened.map(drop).map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
}
