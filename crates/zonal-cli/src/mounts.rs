//! The mounts of a device: for commands that work on a mount and are given its device, and for the
//! message of one that finds the device in use.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use zonal::mounts::{self, Mount};
use zonal::shown;

/// Where a file system of ours on the device at `path` is mounted, if it is.
pub(crate) fn place_of(path: &Path) -> Option<PathBuf> {
    let device = path.canonicalize().ok()?;
    mounts::all().ok()?.into_iter().find(|mount| is_of(mount, &device)).map(|mount| mount.point)
}

/// A mount as a user names it: the directory, or where the device that stands there is mounted.
pub(crate) fn dir_of(named: &Path) -> Result<PathBuf> {
    // Not even stat(2) returns from a mount whose process hangs, and that is one to be unmounted.
    let found = named.canonicalize();
    if found.is_ok_and(|found| is_mount_point(&found)) {
        return Ok(named.to_owned());
    }
    match named.metadata() {
        Ok(found) if !found.is_dir() => match place_of(named) {
            Some(dir) => Ok(dir),
            None => bail!("{} is not mounted", shown(named)),
        },
        // The command that uses the path reports one that is neither.
        Ok(_) | Err(_) => Ok(named.to_owned()),
    }
}

fn is_mount_point(dir: &Path) -> bool {
    mounts::all().is_ok_and(|mounts| mounts.iter().any(|mount| mount.point == dir))
}

/// Refuses a directory as a device: it is often the mount of one.
pub(crate) fn refuse_dir(spec: &str) -> Result<()> {
    let dir = Path::new(spec);
    if !dir.is_dir() {
        return Ok(());
    }
    let (dir, ours) = (dir.canonicalize()?, mounts::all()?);
    match ours.iter().rfind(|mount| mount.point == dir && is_ours(mount)) {
        Some(mount) => bail!(
            "{} is where {} is mounted: name that, or use ls(1), cp(1), df(1) and `zonal stats` there",
            shown(spec),
            shown(&mount.source)
        ),
        None => bail!("{} is a directory, not a device", shown(spec)),
    }
}

/// Whether `mount` is one of ours of the device, with layers in front or without.
fn is_of(mount: &Mount, device: &Path) -> bool {
    let layers = mount.source.as_bytes().strip_suffix(device.as_os_str().as_bytes());
    let is_whole = layers.is_some_and(|layers| layers.is_empty() || layers.ends_with(b":"));
    is_whole && is_ours(mount)
}

/// Whether a file system of this number, as stat(2) of its files has it, is a Furrow that we serve.
pub(crate) fn is_furrow(number: u64) -> bool {
    let device = format!("{}:{}", rustix::fs::major(number), rustix::fs::minor(number));
    let is_that = |mount: &Mount| {
        let kind = mount.kind.to_str();
        mount.device == *device && matches!(kind, Some("fuse.furrow" | "fuseblk.furrow"))
    };
    mounts::all().is_ok_and(|mounts| mounts.iter().any(is_that))
}

/// Whether we serve it, by its type.
fn is_ours(mount: &Mount) -> bool {
    let kind = mount.kind.to_str().and_then(|kind| kind.split_once('.'));
    matches!(kind, Some(("fuse" | "fuseblk", "furrow" | "zonefs")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_is_found_by_device_behind_any_layers() {
        let is_of = |kind: &str, source: &str| {
            let (device, point) = ("0:52".into(), PathBuf::from("/mnt/a b"));
            let mount = Mount { device, point, kind: kind.into(), source: source.into() };
            is_of(&mount, Path::new("/srv/a b.zns"))
        };
        assert!(is_of("fuse.furrow", "/srv/a b.zns"));
        assert!(is_of("fuse.zonefs", "po2:/srv/a b.zns"));
        assert!(!is_of("fuse.zonefs", "/other/srv/a b.zns"));
        assert!(is_of("fuseblk.furrow", "/srv/a b.zns"));
        assert!(!is_of("fuseblk", "/srv/a b.zns"));
        assert!(!is_of("ext4", "/srv/a b.zns"));
    }
}
