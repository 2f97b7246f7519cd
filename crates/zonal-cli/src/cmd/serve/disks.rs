//! Disks that a server has open, by `DEVICE//NAME`: each drive is opened once. `zonal disk` changes
//! them meanwhile through a socket: `disk/control.rs`.

use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use zonal::shown;
use zonal::spec::{Base, Stack};
use zonal_fs::disk::{DiskName, Disks, FurrowDisk};
use zonal_fs::vfs::Access;

use crate::cmd::disk::control::Control;
use crate::cmd::files;
use crate::device::{self, OpenMode};
use crate::mounts::is_folder;

/// Drives whose disks are served.
#[derive(Default)]
pub(super) struct Drives(Vec<Drive>);

struct Drive {
    device: String,
    is_block_device: bool,
    disks: Arc<Disks>,
    /// None for a drive that no other process can name, or without a place for sockets.
    control: Option<Control>,
}

impl Drives {
    /// Opens a disk.
    pub(super) fn open(&mut self, spec: &DiskSpec<'_>) -> Result<Arc<FurrowDisk>> {
        self.open_by(spec, Disks::open)
    }

    /// Opens a disk by a function of its drive's [`Disks`].
    pub(super) fn open_by(
        &mut self,
        spec: &DiskSpec<'_>,
        open: fn(&Disks, &DiskName) -> zonal_fs::disk::Result<Arc<FurrowDisk>>,
    ) -> Result<Arc<FurrowDisk>> {
        let DiskSpec { device, name } = spec;
        if self.find(spec).is_none() {
            self.0.push(Drive::open(device)?);
        }
        let drive = self.find(spec).expect("it was opened");
        let opened = open(&drive.disks, name);
        opened.with_context(|| format!("opening {}", shown(format!("{device}//{name}"))))
    }

    /// A name of a disk that is open, which no disk of another drive has.
    pub(super) fn unique_name(&self, spec: &DiskSpec<'_>) -> Result<String> {
        Ok(self.find(spec).expect("it is open").disks.unique_name(&spec.name)?)
    }

    /// Whether the drive of a disk is a block device.
    pub(super) fn is_on_block_device(&self, spec: &DiskSpec<'_>) -> bool {
        self.find(spec).expect("it is open").is_block_device
    }

    /// The drive of a disk, if it is open.
    fn find(&self, spec: &DiskSpec<'_>) -> Option<&Drive> {
        self.0.iter().find(|drive| drive.device == spec.device)
    }

    /// Makes everything durable and closes the drives. Their disks are closed.
    pub(super) fn close(self) -> Result<()> {
        for Drive { device, disks, control, .. } in self.0 {
            // First, since a call may be running now.
            drop(control);
            let closed = disks.close();
            closed.with_context(|| format!("making changes of {} durable", shown(&device)))?;
        }
        Ok(())
    }
}

impl Drive {
    fn open(device: &str) -> Result<Self> {
        let stack = device::open_stack(device, OpenMode::ReadWrite)?;
        let held = held(&stack);
        let is_block_device = is_block_device(&stack);
        let volume = files::open_on(&stack.device, device, Access::ReadWrite)?;
        let disks = Arc::new(Disks::new(volume).with_context(|| shown(device))?);
        let control = held.and_then(|held| {
            let started = Control::start(Arc::clone(&disks), device, &held);
            let failed = |error| {
                tracing::warn!("`zonal disk` will not reach the disks of {device}: {error:#}");
            };
            started.map_err(failed).ok()
        });
        Ok(Self { device: device.to_owned(), is_block_device, disks, control })
    }
}

/// Whether a drive is a block device, or several.
fn is_block_device(stack: &Stack) -> bool {
    let is_block =
        |path: &PathBuf| fs::metadata(path).is_ok_and(|of| of.file_type().is_block_device());
    matches!(stack.base, Base::Device) && stack.files.iter().all(is_block)
}

/// The file or node that this process has locked for a device; of several, the one that another
/// process tries to lock first.
fn held(stack: &Stack) -> Option<PathBuf> {
    match stack.base {
        Base::File(_) | Base::Device => stack.files.first().cloned(),
        Base::Memory | Base::Simulated(_) => None,
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

/// Whether `spec` names a disk, not a device. A path may have two slashes too, but then a directory
/// stands before them.
pub(super) fn is_disk(spec: &str) -> bool {
    let path = |device: &str| device.rsplit_once(':').map_or(device, |(_, path)| path).to_owned();
    let parts = spec.rsplit_once("//").filter(|(device, _)| !device.is_empty());
    parts.is_some_and(|(device, name)| !name.contains('/') && !is_folder(path(device).as_ref()))
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
