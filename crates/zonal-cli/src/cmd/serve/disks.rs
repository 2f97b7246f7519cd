//! Disks that a server has open, by `DEVICE//NAME`: each drive is opened once.

use std::path::Path;

use anyhow::{Context, Result, bail};
use zonal::shown;
use zonal_fs::disk::{DiskName, Disks, FurrowDisk};
use zonal_fs::vfs::Access;

use crate::cmd::disk;

/// Drives whose disks are served.
#[derive(Default)]
pub(super) struct Drives(Vec<Drive>);

struct Drive {
    device: String,
    disks: Disks,
}

impl Drives {
    /// Opens a disk.
    pub(super) fn open(&mut self, spec: &str) -> Result<FurrowDisk> {
        let DiskSpec { device, name } = DiskSpec::parse(spec)?;
        if !self.0.iter().any(|drive| drive.device == device) {
            let disks = disk::disks(device, Access::ReadWrite)?;
            self.0.push(Drive { device: device.to_owned(), disks });
        }
        let drive = self.0.iter().find(|drive| drive.device == device).expect("it was opened");
        drive.disks.open(&name).with_context(|| format!("opening {}", shown(spec)))
    }

    /// Makes everything durable and closes the drives. Their disks are closed.
    pub(super) fn close(self) -> Result<()> {
        for Drive { device, disks } in self.0 {
            let closed = disks.close();
            closed.with_context(|| format!("making changes of {} durable", shown(&device)))?;
        }
        Ok(())
    }
}

/// `DEVICE//NAME`, taken apart.
pub(super) struct DiskSpec<'a> {
    /// The drive.
    pub(super) device: &'a str,
    /// The disk.
    pub(super) name: DiskName,
}

impl<'a> DiskSpec<'a> {
    pub(super) fn parse(spec: &'a str) -> Result<Self> {
        let Some((device, name)) = spec.rsplit_once("//").filter(|(device, _)| !device.is_empty())
        else {
            bail!("{} names no disk: DEVICE//NAME", shown(spec));
        };
        Ok(Self { device, name: name.parse()? })
    }
}

/// Whether a device or a disk is meant by this: a path may have two slashes as well, and then a
/// directory before them.
pub(super) fn is_disk(spec: &str) -> bool {
    let path = |device: &str| device.rsplit_once(':').map_or(device, |(_, path)| path).to_owned();
    let parts = spec.rsplit_once("//").filter(|(device, _)| !device.is_empty());
    parts.is_some_and(|(device, name)| !name.contains('/') && !Path::new(&path(device)).is_dir())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disk_splits_at_last_two_slashes() {
        for (spec, device, name) in [
            ("drive.zns//root", "drive.zns", "root"),
            ("po2:/a//b.zns//root@monday", "po2:/a//b.zns", "root@monday"),
        ] {
            let found = DiskSpec::parse(spec).unwrap();
            assert_eq!((found.device, found.name.to_string().as_str()), (device, name));
            assert!(is_disk(spec), "{spec}");
        }
        for spec in ["drive.zns", "drive.zns/root", "//root", "drive.zns//", "drive.zns//a/b"] {
            assert!(DiskSpec::parse(spec).is_err(), "{spec}");
        }
    }

    #[test]
    fn slashes_after_directory_are_path() {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().display();
        let spec = format!("{folder}//drive.zns");
        assert!(!is_disk(&spec) && !is_disk(&format!("po2:{spec}")), "{spec}");
        assert!(is_disk(&format!("{spec}//root")) && !is_disk("drive.zns"), "{spec}");
    }
}
