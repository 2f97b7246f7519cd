//! The mounts of a device: for commands that work on a mount and get the name of its device, and
//! for the message of a command that finds the device in use.

use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use zonal::file::is_in_pieces;
use zonal::mounts::{self, Mount};
use zonal::{claim, shown};
use zonal_fuse::users::{self, namespaces_with};

/// Where a file system of ours on the device at `path` is mounted, if it is.
pub(crate) fn place_of(path: &Path) -> Option<PathBuf> {
    // A mount may hide the file of its own drive.
    let device = path.canonicalize().or_else(|_| std::path::absolute(path)).ok()?;
    mounts::all().ok()?.into_iter().find(|mount| is_of(mount, &device)).map(|mount| mount.point)
}

/// A command was to mount a device that is mounted at another directory.
#[derive(Debug)]
pub(crate) struct MountedAt {
    /// The device.
    pub(crate) device: PathBuf,
    /// Where it is mounted.
    pub(crate) first: PathBuf,
    /// Where it was to be mounted.
    pub(crate) second: PathBuf,
}

impl std::error::Error for MountedAt {}

impl fmt::Display for MountedAt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { device, first, .. } = self;
        write!(f, "{} is mounted at {}", shown(device), shown(first))
    }
}

/// The mount that a user names: by its directory, or by the device that is mounted there.
pub(crate) fn dir_of(named: &Path) -> Result<PathBuf> {
    // Not even stat(2) returns from a mount whose process hangs, and the user may want to unmount
    // it.
    let found = named.canonicalize();
    if found.is_ok_and(|found| is_mount_point(&found)) {
        return Ok(named.to_owned());
    }
    if is_folder(named) {
        return Ok(named.to_owned());
    }
    match (place_of(named), named.metadata()) {
        (Some(dir), _) => Ok(dir),
        (None, Ok(_)) => bail!("{} is not mounted", shown(named)),
        // The command that uses the path reports a path that does not exist.
        (None, Err(_)) => Ok(named.to_owned()),
    }
}

/// The target of `zonal umount`.
pub(crate) enum Target {
    /// The mount at a directory.
    Here(PathBuf),
    /// The daemon of a device that is not mounted here any more: other mount namespaces have the
    /// mount, programs have files of a detached one open, or it is about to end.
    Daemon {
        /// The device.
        device: PathBuf,
        /// The process.
        process: u32,
    },
}

/// The target that a user names, by a directory or a device.
pub(crate) fn target_of(named: &Path) -> Result<Target> {
    let dir = match dir_of(named) {
        Ok(dir) => dir,
        Err(error) => {
            let process = daemon_of(named).ok_or(error)?;
            return Ok(Target::Daemon { device: named.canonicalize()?, process });
        }
    };
    if let Ok(found) = dir.canonicalize()
        && !is_mount_point(&found)
    {
        let users = namespaces_with(|mount| mount.point == found && is_ours(mount));
        if !users.is_empty() {
            bail!(
                "{} is not mounted here, but in other mount namespaces: {}; `zonal umount DEVICE` \
                 waits for their end, `zonal umount --force DEVICE` ends the mount there too",
                shown(&dir),
                users::listed(&users)
            );
        }
    }
    Ok(Target::Here(dir))
}

/// The process that serves the mount of a device: it has locked the device, and has the connection
/// to the kernel.
pub(crate) fn daemon_of(device: &Path) -> Option<u32> {
    let process = claim::holder_of(device)?;
    let open = std::fs::read_dir(format!("/proc/{process}/fd")).ok()?.flatten();
    let mut files = open.filter_map(|entry| std::fs::read_link(entry.path()).ok());
    files.any(|file| file == Path::new("/dev/fuse")).then_some(process)
}

/// The drive of the mount at a directory: the source without layers.
pub(crate) fn drive_at(dir: &Path) -> Option<PathBuf> {
    let point = dir.canonicalize().ok()?;
    let mount = mounts::all().ok()?.into_iter().rfind(|mount| mount.point == point)?;
    path_in(&mount.source).map(Path::to_owned)
}

/// A device as the mount table shows it: with layers, if it has some, and an absolute path.
pub(crate) fn source(spec: &str) -> String {
    let found = path_in(spec.as_ref()).and_then(|path| Some((path, path.canonicalize().ok()?)));
    let Some((path, absolute)) = found else { return spec.to_owned() };
    let layers = &spec[..spec.len() - path.as_os_str().len()];
    format!("{layers}{}", absolute.display())
}

/// The path in a specification of a device, behind layers: the longest one that exists.
fn path_in(spec: &OsStr) -> Option<&Path> {
    let bytes = spec.as_bytes();
    let ends = bytes.iter().enumerate().filter(|(_, byte)| **byte == b':').map(|(at, _)| at + 1);
    let paths = std::iter::once(0).chain(ends).map(|at| OsStr::from_bytes(&bytes[at..]));
    paths.map(Path::new).find(|path| path.exists())
}

fn is_mount_point(dir: &Path) -> bool {
    mounts::all().is_ok_and(|mounts| mounts.iter().any(|mount| mount.point == dir))
}

/// Whether a path is a directory, and not that of a drive in pieces.
pub(crate) fn is_folder(path: &Path) -> bool {
    path.is_dir() && !is_in_pieces(path)
}

/// Refuses a directory as a device: it is often the mount of one.
pub(crate) fn refuse_dir(spec: &str) -> Result<()> {
    let dir = Path::new(spec);
    if !is_folder(dir) {
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

/// The mount point of ours that an absolute path without links lies in.
pub(crate) fn around(path: &Path) -> Option<PathBuf> {
    let all = mounts::all().ok()?.into_iter().filter(|mount| path.starts_with(&mount.point));
    // A later mount hides an earlier one at the same place.
    let innermost = all.max_by_key(|mount| mount.point.as_os_str().len())?;
    is_ours(&innermost).then_some(innermost.point)
}

/// Whether `mount` is a mount of ours with this device, with layers in front or without.
pub(crate) fn is_of(mount: &Mount, device: &Path) -> bool {
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

/// Whether a process of ours serves it, by its type.
pub(crate) fn is_ours(mount: &Mount) -> bool {
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
