//! Mounting, as root by the system call and as a user by `fusermount3`.

use std::ffi::CString;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::mount::{MountFlags, UnmountFlags};

use crate::apart::{self, Call};
use crate::device::Device;
use crate::{Errno, helper};

/// What is mounted, where and how.
#[derive(Clone, Debug)]
pub struct MountSpec {
    /// The directory, as an absolute path.
    pub point: PathBuf,
    /// What the mount table shows as the source; of a `fuseblk`, the block device.
    pub source: String,
    /// As what the kernel mounts it.
    pub kind: Kind,
    /// What the mount table shows after the type.
    pub subtype: String,
    /// What the kernel watches over.
    pub flags: MountFlags,
    /// Who may use it.
    pub audience: Audience,
}

/// A type of file system of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `fuse`: on whatever the server likes.
    Fuse,
    /// `fuseblk`: on a block device, which the kernel opens exclusively as long as there is the
    /// mount. It takes root. The kernel passes sync(2) and syncfs(2) on, from Linux 6.18, and
    /// umount(2) waits for [`Serve::end`](crate::Serve::end).
    Fuseblk,
}

impl Kind {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Fuse => "fuse",
            Self::Fuseblk => "fuseblk",
        }
    }
}

/// Who may use a mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Audience {
    /// The user who mounts.
    Owner,
    /// Every user.
    Everyone,
}

/// A mount that ends with this, if it has not before.
#[derive(Debug)]
pub(crate) struct Mount {
    point: PathBuf,
    kind: Kind,
    device: Arc<Device>,
}

impl Mount {
    /// Mounts. The kernel checks permissions.
    pub(crate) fn new(spec: &MountSpec) -> io::Result<Self> {
        let device = match mount_as_root(spec)? {
            Some(device) => device,
            None if spec.kind == Kind::Fuse => helper::mount(&spec.point, &helper_options(spec))?,
            None => return Err(Errno::PERM.into()),
        };
        Ok(Self { point: spec.point.clone(), kind: spec.kind, device: Arc::new(device) })
    }

    pub(crate) fn device(&self) -> &Arc<Device> {
        &self.device
    }
}

impl Mount {
    /// Unmounts, if it is mounted still: also from under programs that use it, if `how` says so.
    pub(crate) fn end(&self, how: UnmountFlags) {
        // Not what somebody else has mounted there since.
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
            Kind::Fuse => Ok(rustix::mount::unmount(&self.point, flags | UnmountFlags::NOFOLLOW)?),
            // The kernel waits for our answer, and we may not be able to give it any more. Then the
            // call returns when the connection closes.
            Kind::Fuseblk => {
                apart::start(Call::Unmount { point: self.point.clone(), flags }).map(drop)
            }
        }
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        self.end(UnmountFlags::empty());
    }
}

/// Mounts by the system call; `None` if that is not permitted.
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
    match rustix::mount::mount(&*spec.source, &spec.point, spec.kind.name(), spec.flags, &*data) {
        // A `fuseblk` that another process has mounted is shown at one more place.
        Ok(()) if !device.is_mounted() => {
            let flags = UnmountFlags::DETACH | UnmountFlags::NOFOLLOW;
            rustix::mount::unmount(&spec.point, flags)?;
            Err(Errno::BUSY.into())
        }
        Ok(()) => Ok(Some(device)),
        Err(Errno::PERM) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Those that the kernel takes in every case.
fn common_options(spec: &MountSpec) -> String {
    let others = match spec.audience {
        Audience::Owner => "",
        Audience::Everyone => ",allow_other",
    };
    format!("subtype={},default_permissions{others}", spec.subtype)
}

/// Blocks of a page, which the kernel has cached files in anyway.
fn block_options(kind: Kind) -> &'static str {
    match kind {
        Kind::Fuse => "",
        Kind::Fuseblk => ",blksize=4096",
    }
}

/// Not `nodiratime`, `strictatime` and `lazytime`, which not every fusermount3 knows: of a FUSE
/// mount they only show in the mount table. One that does not know `nosymfollow` refuses to mount.
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

/// A comma would begin the next option.
fn escaped(source: &str) -> String {
    source.replace('\\', "\\\\").replace(',', "\\,")
}

/// Whether this kernel has FUSE.
pub fn is_available() -> bool {
    Path::new(crate::device::PATH).exists()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_the_helper() {
        let spec = MountSpec {
            point: PathBuf::from("/mnt"),
            source: "a,b".to_owned(),
            kind: Kind::Fuse,
            subtype: "furrow".to_owned(),
            flags: MountFlags::NODEV | MountFlags::NOSUID | MountFlags::RDONLY,
            audience: Audience::Everyone,
        };
        let expected = "fsname=a\\,b,subtype=furrow,default_permissions,allow_other,\
            ro,nodev,nosuid";
        assert_eq!(helper_options(&spec), expected);
    }
}
