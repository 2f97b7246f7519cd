//! The mounts of a device, for the message of a command that finds the device in use.

use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use zonal::mounts::{self, Mount};

/// Where a file system of ours on the device at `path` is mounted, if it is.
pub(crate) fn place_of(path: &Path) -> Option<PathBuf> {
    let device = path.canonicalize().ok()?;
    mounts::all().ok()?.into_iter().find(|mount| is_of(mount, &device)).map(|mount| mount.point)
}

/// The source of the mount at a directory, as its daemon named it when it mounted.
pub(crate) fn source_at(dir: &Path) -> Option<String> {
    let dir = dir.canonicalize().ok()?;
    // The last one covers the others.
    let mount = mounts::all().ok()?.into_iter().rfind(|mount| mount.point == dir)?;
    String::from_utf8(mount.source.into_vec()).ok()
}

/// Whether `mount` is one of ours of the device, with layers in front or without.
fn is_of(mount: &Mount, device: &Path) -> bool {
    let layers = mount.source.as_bytes().strip_suffix(device.as_os_str().as_bytes());
    let is_whole = layers.is_some_and(|layers| layers.is_empty() || layers.ends_with(b":"));
    is_whole && is_ours(mount)
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
    fn a_mount_is_found_by_its_device_whatever_layers_are_in_front() {
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
