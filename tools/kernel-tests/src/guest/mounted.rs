//! A mounted file system of the guest: the kernel's, or one of ours.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use super::side;
use xtask::run;

/// A mount that ends with this.
pub(super) struct Mounted {
    place: PathBuf,
    unmount: &'static [&'static str],
}

impl Mounted {
    /// Mounts a file system by its name in the kernel.
    pub(super) fn kernel(kind: &str, options: &str, disk: &Path, place: &Path) -> Result<Self> {
        let mut command = Command::new("mount");
        run::quietly(command.args(["-t", kind, "-o", options]).arg(disk).arg(place))?;
        Ok(Self { place: place.to_path_buf(), unmount: &["umount"] })
    }

    /// Mounts one of our file systems.
    pub(super) fn zonal(kind: &str, device: &str, place: &Path) -> Result<Self> {
        let mut command = Command::new(side::ZONAL);
        run::quietly(command.args(["mount", "-t", kind, device]).arg(place))?;
        Ok(Self { place: place.to_path_buf(), unmount: &[side::ZONAL, "umount"] })
    }

    /// Unmounts, which has to end well.
    pub(super) fn unmount(self) -> Result<()> {
        let mut command = Command::new(self.unmount[0]);
        run::quietly(command.args(&self.unmount[1..]).arg(&self.place)).map(drop)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // Only after a failed check is it still mounted.
        let _ = run::quietly(Command::new("umount").arg("-l").arg(&self.place));
    }
}
