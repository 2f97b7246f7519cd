//! Flags of opening a file, and their conversion from those of open(2).

use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::vfs::OpenFor;

bitflags::bitflags! {
    /// Flags of opening a file, like those of open(2).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct OpenFlags: u32 {
        /// Read it.
        const READ = 1;
        /// Write it.
        const WRITE = 2;
        /// Write it, and only at its end.
        const APPEND = 4;
        /// Create it if it is missing.
        const CREATE = 8;
        /// Create it; fail if the path exists.
        const CREATE_NEW = 16;
        /// Empty it.
        const TRUNCATE = 32;
        /// Go to the device now rather than through the write buffer (`O_DIRECT`).
        const DIRECT = 64;
        /// Every write is durable when it returns (`O_DSYNC`).
        const DURABLE = 128;
        /// Do not follow a symbolic link at the end of the path.
        const NO_FOLLOW = 256;
    }
}

impl OpenFlags {
    pub(super) const ANY_CREATE: Self = Self::CREATE.union(Self::CREATE_NEW);
    pub(super) const CREATED: Self =
        Self::READ.union(Self::WRITE).union(Self::CREATE).union(Self::TRUNCATE);

    pub(super) fn purpose(self) -> OpenFor {
        if self.intersects(Self::WRITE | Self::APPEND | Self::TRUNCATE) {
            OpenFor::Writing
        } else {
            OpenFor::Reading
        }
    }
}

/// Flags of open(2) that a volume does not support.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnusableFlags {
    /// `O_TMPFILE`.
    #[error("files without a name")]
    NoName,
    /// Neither `O_RDONLY`, `O_WRONLY` nor `O_RDWR`.
    #[error("flags that neither read nor write")]
    NoAccess,
}

impl UnusableFlags {
    /// The error number of open(2).
    pub fn errno(self) -> i32 {
        match self {
            Self::NoName => Errno::OPNOTSUPP.raw_os_error(),
            Self::NoAccess => Errno::INVAL.raw_os_error(),
        }
    }
}

/// From the flags of open(2), for bindings of other languages. A volume ignores flags that are not
/// in the table.
impl TryFrom<i32> for OpenFlags {
    type Error = UnusableFlags;

    fn try_from(flags: i32) -> Result<Self, UnusableFlags> {
        let flags = OFlags::from_bits_retain(flags.cast_unsigned());
        if flags.contains(OFlags::TMPFILE) {
            return Err(UnusableFlags::NoName);
        }
        let mut open = match flags & OFlags::RWMODE {
            OFlags::RDONLY => Self::READ,
            OFlags::WRONLY => Self::WRITE,
            OFlags::RDWR => Self::READ | Self::WRITE,
            _ => return Err(UnusableFlags::NoAccess),
        };
        let is_exclusive = flags.contains(OFlags::EXCL);
        for (theirs, ours) in [
            (OFlags::CREATE, if is_exclusive { Self::CREATE_NEW } else { Self::CREATE }),
            (OFlags::TRUNC, Self::TRUNCATE),
            (OFlags::APPEND, Self::APPEND),
            (OFlags::DIRECT, Self::DIRECT),
            (OFlags::DSYNC, Self::DURABLE),
            (OFlags::NOFOLLOW, Self::NO_FOLLOW),
        ] {
            if flags.contains(theirs) {
                open |= ours;
            }
        }
        Ok(open)
    }
}
