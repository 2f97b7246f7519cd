//! `zonal ls|stat|cat|cp|rm|mv|ln|mkdir|df`: files of a drive that is not mounted.
//!
//! A place is `DEVICE:/PATH`, divided at the last `:/`. Each command opens the drive as a mount
//! does, so it refuses a drive that is mounted, or that another program has open. Changes are
//! durable when the command ends, also if a signal ends it. Commands that only read write nothing.
//!
//! A zonefs that a key-value store has given names shows the files with these names, and not its
//! zone files.

mod copy;
pub(crate) mod list;
mod names;
pub(crate) mod space;

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use zonal::{Clock, SystemClock, ZonedDevice, shown};
use zonal_fs::vfs::{Access, Caller, Privilege};
use zonal_fs::volume::{Volume, VolumeOptions};
use zonal_kv::zones::ZoneStore;

use crate::advice;
use crate::device::{self, OpenMode};
use crate::interrupt;

pub(crate) use copy::{cat, run as copy};
pub(crate) use list::{run as list, stat};
pub(crate) use names::{link, make_dir, remove, rename};
pub(crate) use space::run as space;

/// A place on a drive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) device: String,
    pub(super) path: PathBuf,
}

impl Place {
    /// Takes `DEVICE:/PATH` apart; `None` if the text has another form. The path may have any
    /// bytes.
    pub(super) fn of(text: &OsStr) -> Option<Self> {
        let bytes = text.as_bytes();
        let at = bytes.windows(2).rposition(|pair| pair == b":/")?;
        let device = std::str::from_utf8(&bytes[..at]).ok()?;
        let path = OsStr::from_bytes(&bytes[at + 1..]).into();
        (!device.is_empty()).then(|| Self { device: device.to_owned(), path })
    }

    /// Takes an operand apart that must be a place on a drive.
    fn required(text: &OsStr) -> Result<Self> {
        let text_shown = || format!("{} is no place on a drive: DEVICE:/PATH", shown(text));
        Self::of(text).with_context(text_shown)
    }

    /// The place as messages show it.
    fn shown(&self) -> String {
        format!("{}:{}", shown(&self.device), shown(&self.path))
    }
}

/// The name that a path ends in; `None` for the root, and for `.` and `..`, which are no entries of
/// their own. [`Path::file_name`] takes `a/.` for `a`.
fn last_name(path: &Path) -> Option<&OsStr> {
    let bytes = path.as_os_str().as_bytes();
    let end = bytes.iter().rposition(|byte| *byte != b'/')? + 1;
    let start = bytes[..end].iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
    let name = &bytes[start..end];
    (!matches!(name, b"." | b"..")).then(|| OsStr::from_bytes(name))
}

/// Runs `action` on each operand, also after one fails. Returns the last failure and prints the
/// others.
fn each<T>(operands: &[T], mut action: impl FnMut(&T) -> Result<()>) -> Result<()> {
    let mut last = Ok(());
    for operand in operands {
        if interrupt::is_pending() {
            break;
        }
        if let Err(error) = action(operand)
            && let Err(before) = std::mem::replace(&mut last, Err(error))
        {
            advice::print(&before);
        }
    }
    last
}

/// The permission bits that new files do not get.
fn umask() -> u16 {
    // Only setting the mask reads it. This thread is the only one.
    let mask = rustix::process::umask(rustix::fs::Mode::empty());
    rustix::process::umask(mask);
    u16::try_from(mask.bits() & 0o777).expect("nine bits")
}

/// Opens the file system of a device.
pub(super) fn open(spec: &str, access: Access) -> Result<Volume> {
    let mode = match access {
        Access::ReadOnly => OpenMode::ReadLocked,
        Access::ReadWrite => OpenMode::ReadWrite,
    };
    open_on(&device::open(spec, mode)?, spec, access)
}

/// Opens the file system on an open device, which messages call `spec`.
pub(super) fn open_on(device: &Arc<dyn ZonedDevice>, spec: &str, access: Access) -> Result<Volume> {
    let uid = rustix::process::geteuid();
    let privilege = if uid.is_root() { Privilege::Full } else { Privilege::None };
    let options = VolumeOptions {
        access,
        caller: Caller {
            uid: uid.as_raw(),
            gid: rustix::process::getegid().as_raw(),
            umask: umask(),
            privilege,
        },
        ..VolumeOptions::default()
    };
    tracing::debug!(device = shown(spec), "opening the file system");
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let mount = || -> Result<Volume> {
        if ZoneStore::is_on(device, &clock)? {
            let store = ZoneStore::mount(Arc::clone(device), Arc::clone(&clock), access)?;
            return Ok(Volume::new(Arc::new(store), &options));
        }
        Ok(Volume::mount(Arc::clone(device), Arc::clone(&clock), &options)?)
    };
    mount().with_context(|| format!("opening the file system of {}", shown(spec)))
}

/// Runs `action` on the drive of `places`, which must all be on one, and makes its changes durable.
fn change(places: &[Place], action: impl FnOnce(&Volume) -> Result<()>) -> Result<()> {
    let Some(first) = places.first() else { return Ok(()) };
    if let Some(other) = places.iter().find(|place| place.device != first.device) {
        bail!("{} and {}: one drive at a time", first.device, other.device);
    }
    let volume = open(&first.device, Access::ReadWrite)?;
    interrupt::hold()?;
    let outcome = action(&volume);
    // Changes that precede a failure or a signal stay.
    volume.close().with_context(|| format!("making changes of {} durable", first.device))?;
    tracing::debug!(device = shown(&first.device), "changes are durable");
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_name_of_path_is_no_dot_and_no_root() {
        for (path, name) in [
            ("/a", Some("a")),
            ("/a/b//", Some("b")),
            ("a", Some("a")),
            ("/a/...", Some("...")),
            ("/", None),
            ("//", None),
            ("", None),
            (".", None),
            ("/a/.", None),
            ("/a/./", None),
            ("/a/..//", None),
        ] {
            assert_eq!(last_name(Path::new(path)), name.map(OsStr::new), "{path}");
        }
    }

    #[test]
    fn place_splits_at_last_colon_before_slash() {
        let table = [
            ("drive.zns:/a/b", Some(("drive.zns", "/a/b"))),
            ("drive.zns:/", Some(("drive.zns", "/"))),
            ("po2:/dev/nvme0n1:/a", Some(("po2:/dev/nvme0n1", "/a"))),
            ("fault(write,nth=3):drive.zns:/a", Some(("fault(write,nth=3):drive.zns", "/a"))),
            ("drive.zns", None),
            (":/a", None),
            ("plain/file", None),
        ];
        for (text, wanted) in table {
            let wanted =
                wanted.map(|(device, path)| Place { device: device.into(), path: path.into() });
            assert_eq!(Place::of(OsStr::new(text)), wanted, "{text}");
        }
    }
}
