//! Mounting, as root by the system call and as a user by `fusermount3`.

use std::ffi::CString;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;

use rustix::mount::{MountFlags, UnmountFlags};

use crate::Errno;
use crate::device::Device;
use crate::own_mount::{self, Call};

mod helper;
mod stand_in;

/// A mount that is to be made.
#[derive(Clone, Debug)]
pub struct MountSpec {
    /// The directory, as an absolute path.
    pub point: PathBuf,
    /// Source in the mount table.
    pub source: String,
    /// Type of the mount.
    pub kind: MountType,
    /// Type of the file system, which the mount table shows after the type of the mount.
    pub subtype: String,
    /// Restrictions that the kernel enforces.
    pub flags: MountFlags,
    /// The users who may use it.
    pub audience: Audience,
}

/// Type of a mount, as the kernel knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MountType {
    /// `fuse`: without a block device.
    Fuse,
    /// `fuseblk`: on a block device, which the kernel opens exclusively while it is mounted. Needs
    /// root. The kernel passes sync(2) and syncfs(2) on, from Linux 6.18, and umount(2) waits for
    /// [`Serve::end`](crate::Serve::end).
    Fuseblk(BlockDevice),
}

/// The block device of a `fuseblk`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockDevice {
    /// The source itself.
    Source,
    /// A small loop device, which is never read or written; the source may be anything.
    StandIn,
}

impl MountType {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Fuse => "fuse",
            Self::Fuseblk(_) => "fuseblk",
        }
    }
}

/// Users that may use a mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Audience {
    /// Only the user who mounted it.
    Owner,
    /// Every user, as permissions allow (`allow_other`).
    Everyone,
}

/// A mount; dropping it unmounts.
#[derive(Debug)]
pub(crate) struct Mount {
    point: PathBuf,
    kind: MountType,
    device: Arc<Device>,
}

impl Mount {
    /// Mounts. The kernel checks permissions (`default_permissions`).
    pub(crate) fn new(spec: &MountSpec) -> io::Result<Self> {
        let device = match mount_as_root(spec)? {
            Some(device) => device,
            None if spec.kind == MountType::Fuse => {
                helper::mount(&spec.point, &helper_options(spec))?
            }
            None => return Err(Errno::PERM.into()),
        };
        Ok(Self { point: spec.point.clone(), kind: spec.kind, device: Arc::new(device) })
    }

    pub(crate) fn device(&self) -> &Arc<Device> {
        &self.device
    }
}

impl Mount {
    /// Unmounts, unless the mount has ended already. With `FORCE` in `how`, pending requests fail.
    pub(crate) fn end(&self, how: UnmountFlags) {
        // Otherwise this could unmount a later mount at the same directory.
        if !self.device.is_mounted() {
            return;
        }
        let unmounted = match self.detach(how | UnmountFlags::DETACH) {
            Err(error) if Errno::from_io_error(&error) == Some(Errno::PERM) => {
                helper::unmount(&self.point)
            }
            outcome => outcome,
        };
        if let Err(error) = unmounted {
            tracing::warn!(point = %self.point.display(), %error, "the mount remains");
        }
    }

    fn detach(&self, flags: UnmountFlags) -> io::Result<()> {
        match self.kind {
            MountType::Fuse => {
                Ok(rustix::mount::unmount(&self.point, flags | UnmountFlags::NOFOLLOW)?)
            }
            // The kernel waits for our answer, and no thread may be left to give it. Then the call
            // returns when the connection closes.
            MountType::Fuseblk(_) => {
                own_mount::start(Call::Unmount { point: self.point.clone(), flags }).map(drop)
            }
        }
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        self.end(UnmountFlags::empty());
    }
}

/// Mounts by the system call; `None` if the caller lacks the permission.
fn mount_as_root(spec: &MountSpec) -> io::Result<Option<Device>> {
    let device = Device::open()?;
    let root = std::fs::metadata(&spec.point)?;
    let (user, group) = (rustix::process::getuid(), rustix::process::getgid());
    let data = format!(
        "fd={},rootmode={:o},user_id={},group_id={},{}{}",
        device.raw(),
        root.mode(),
        user.as_raw(),
        group.as_raw(),
        common_options(spec),
        block_options(spec.kind)
    );
    let data = CString::new(data)?;
    let mounted = match spec.kind {
        MountType::Fuseblk(BlockDevice::StandIn) => stand_in::mount(spec, &data),
        MountType::Fuse | MountType::Fuseblk(BlockDevice::Source) => {
            let kind = spec.kind.name();
            rustix::mount::mount(&*spec.source, &spec.point, kind, spec.flags, &*data)
                .map_err(io::Error::from)
        }
    };
    match mounted {
        // If another process has mounted this `fuseblk`, the kernel shows that mount here too.
        Ok(()) if !device.is_mounted() => {
            let flags = UnmountFlags::DETACH | UnmountFlags::NOFOLLOW;
            rustix::mount::unmount(&spec.point, flags)?;
            Err(Errno::BUSY.into())
        }
        Ok(()) => Ok(Some(device)),
        Err(error) if Errno::from_io_error(&error) == Some(Errno::PERM) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Options of both ways to mount.
fn common_options(spec: &MountSpec) -> String {
    let others = match spec.audience {
        Audience::Owner => "",
        Audience::Everyone => ",allow_other",
    };
    format!("subtype={},default_permissions{others}", spec.subtype)
}

/// Options of a mount type. The block size is that of a page, the unit of the page cache.
fn block_options(kind: MountType) -> &'static str {
    match kind {
        MountType::Fuse => "",
        MountType::Fuseblk(_) => ",blksize=4096",
    }
}

/// Options for fusermount3. `nodiratime`, `strictatime` and `lazytime` are left out: not every
/// fusermount3 knows them, and on a FUSE mount they only show in the mount table. A fusermount3
/// that does not know `nosymfollow` refuses to mount.
fn helper_options(spec: &MountSpec) -> String {
    let mut options = vec![format!("fsname={}", escaped(&spec.source)), common_options(spec)];
    for (flag, on, off) in [
        (MountFlags::RDONLY, "ro", Some("rw")),
        (MountFlags::NODEV, "nodev", Some("dev")),
        (MountFlags::NOSUID, "nosuid", Some("suid")),
        (MountFlags::NOEXEC, "noexec", None),
        (MountFlags::NOATIME, "noatime", None),
        (MountFlags::SYNCHRONOUS, "sync", None),
        (MountFlags::DIRSYNC, "dirsync", None),
        (MountFlags::NOSYMFOLLOW, "nosymfollow", None),
    ] {
        let option = if spec.flags.contains(flag) { Some(on) } else { off };
        options.extend(option.map(str::to_owned));
    }
    options.join(",")
}

/// Escapes commas, which separate options.
fn escaped(source: &str) -> String {
    source.replace('\\', "\\\\").replace(',', "\\,")
}

/// Whether this process can use FUSE: the error of opening the kernel's device.
pub fn check_available() -> io::Result<()> {
    Device::open().map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn helper_options_are_spelled_for_fusermount() {
        let spec = MountSpec {
            point: PathBuf::from("/mnt"),
            source: "a,b".to_owned(),
            kind: MountType::Fuse,
            subtype: "furrow".to_owned(),
            flags: MountFlags::NODEV | MountFlags::NOSUID | MountFlags::RDONLY,
            audience: Audience::Everyone,
        };
        let expected = "fsname=a\\,b,subtype=furrow,default_permissions,allow_other,\
            ro,nodev,nosuid";
        assert_eq!(helper_options(&spec), expected);
    }
}
