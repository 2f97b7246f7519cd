//! A device whose last mount is about to end, is mounted elsewhere, or would be hidden.
//!
//! umount(8) without our helper returns while the daemon still commits, and a script may mount
//! again meanwhile. With a file system of the kernel, mount(2) waits then; so do we, for a while.

use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use anyhow::{Error, Result, bail};
use zonal::{DeviceError, shown};

use crate::clock::now;
use crate::device::{self, OpenMode, Stack};
use crate::mounts::{self, MountedAt};

/// How long a device may be held by another process: enough for a last commit.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(5);

/// Time between attempts to open the device.
const INTERVAL: Duration = Duration::from_millis(20);

/// Opens `spec` once no other process holds it.
#[expect(clippy::disallowed_methods, reason = "nothing tells of a lock that is let go")]
pub(super) fn open_when_released(spec: &str, mode: OpenMode) -> Result<Stack> {
    let deadline = now() + RELEASE_TIMEOUT;
    loop {
        match device::open_stack(spec, mode) {
            Err(error) if is_held(&error) && now() < deadline => thread::sleep(INTERVAL),
            opened => return opened,
        }
    }
}

fn is_held(error: &Error) -> bool {
    holds(error).is_some()
}

/// The path of a device that another process holds.
fn holds(error: &Error) -> Option<&Path> {
    error.chain().find_map(|cause| match cause.downcast_ref::<DeviceError>() {
        Some(DeviceError::Locked { path, .. }) => Some(path.as_path()),
        _ => None,
    })
}

/// The error of opening a device that is to be mounted at `dir`: if it is mounted at another
/// directory, the error names that one.
pub(super) fn named(error: Error, dir: &Path) -> Error {
    let Some(device) = holds(&error) else { return error };
    match mounts::place_of(device) {
        Some(first) if first != dir => {
            MountedAt { device: device.to_owned(), first, second: dir.to_owned() }.into()
        }
        Some(_) | None => error,
    }
}

/// Refuses a mount that hides a file of its own drive: no command would find the drive.
pub(super) fn refuse_hiding(dir: &Path, files: &[PathBuf]) -> Result<()> {
    let is_below = |file: &&PathBuf| file.canonicalize().is_ok_and(|file| file.starts_with(dir));
    match files.iter().find(is_below) {
        None => Ok(()),
        Some(file) => bail!(
            "a mount at {} would hide its own drive, {}: mount it at another directory",
            shown(dir),
            shown(file)
        ),
    }
}
