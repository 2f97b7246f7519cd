//! Ioctls: inode flags, in the two forms of chattr(1) and lsattr(1), shutdown, and the write
//! lifetime of a file.
//!
//! Linux checks from 5.13 on whether a caller may set flags; the server always does. Linux does not
//! enforce flags for FUSE: the file system does, and the server checks them at open. Linux keeps
//! the hint of `fcntl(F_SET_RW_HINT)` in its own inode and never sends it to a FUSE server; the
//! lifetime ioctls take the same numbers.

use zonal_fs::FsError;
use zonal_fs::lifetime::{LIFETIME_XATTR, WriteLifetime};
use zonal_fs::vfs::{Caller, InodeFlags, SetAttr, XattrMode};
use zonal_fuse_transport::{Errno, Header, NodeId, Reply};

use super::reply;
use crate::fuse::rights;
use crate::fuse::server::FuseServer;
use crate::latency::Operation;

/// `_IOR('X', 125, u32)`: makes everything durable, then stops the mount, as in XFS and ext4.
pub(super) const SHUTDOWN: u32 = 0x8004_587d;
/// `_IOR('f', 1, long)`, `_IOW('f', 2, long)`; the argument has 32 bits.
const FS_IOC_GETFLAGS: u32 = 0x8008_6601;
const FS_IOC_SETFLAGS: u32 = 0x4008_6602;
/// `_IOR('X', 31, struct fsxattr)`, `_IOW('X', 32, struct fsxattr)`.
const FS_IOC_FSGETXATTR: u32 = 0x801c_581f;
const FS_IOC_FSSETXATTR: u32 = 0x401c_5820;

/// `_IOR('Z', 1, u64)`, `_IOW('Z', 2, u64)`: the lifetime, as a number for `F_SET_RW_HINT`.
const GET_LIFETIME: u32 = 0x8008_5a01;
const SET_LIFETIME: u32 = 0x4008_5a02;

/// Bytes of `struct fsxattr`. The flags come first; the rest is zero here.
const FSXATTR_BYTES: usize = 28;

/// Our flags, `FS_*_FL` and `FS_XFLAG_*`.
const FLAGS: [(InodeFlags, u32, u32); 5] = [
    (InodeFlags::SYNC, 0x08, 0x20),
    (InodeFlags::IMMUTABLE, 0x10, 0x08),
    (InodeFlags::APPEND_ONLY, 0x20, 0x10),
    (InodeFlags::NO_DUMP, 0x40, 0x80),
    (InodeFlags::NO_ATIME, 0x80, 0x40),
];

/// The two numberings of flags.
#[derive(Clone, Copy)]
enum Numbering {
    /// `FS_*_FL`
    Fl,
    /// `FS_XFLAG_*`
    Xflag,
}

impl FuseServer {
    pub(super) fn ioctl(&self, request: &Header, command: u32, input: &[u8], reply: Reply) {
        let outcome = self.run_ioctl(request, command, input);
        reply::send(reply, outcome, |reply, answer| reply.ioctl(&answer));
    }

    /// Runs an ioctl; returns the bytes for its argument.
    fn run_ioctl(&self, request: &Header, command: u32, input: &[u8]) -> Result<Vec<u8>, Errno> {
        let node = request.node;
        match command {
            FS_IOC_GETFLAGS => Ok(self.flags(node, Numbering::Fl)?.to_le_bytes().into()),
            FS_IOC_SETFLAGS => {
                let (raw, _) = input.split_first_chunk().ok_or(Errno::INVAL)?;
                self.set_flags(request, Numbering::Fl, u32::from_le_bytes(*raw))
            }
            FS_IOC_FSGETXATTR => {
                let mut answer = self.flags(node, Numbering::Xflag)?.to_le_bytes().to_vec();
                answer.resize(FSXATTR_BYTES, 0);
                Ok(answer)
            }
            FS_IOC_FSSETXATTR => {
                let (raw, rest) = input.split_first_chunk().ok_or(Errno::INVAL)?;
                if rest.iter().any(|byte| *byte != 0) {
                    // Extent sizes and projects.
                    return Err(Errno::OPNOTSUPP);
                }
                self.set_flags(request, Numbering::Xflag, u32::from_le_bytes(*raw))
            }
            SHUTDOWN => self.shut_down(request),
            GET_LIFETIME => Ok(self.lifetime(node)?.hint().to_le_bytes().into()),
            SET_LIFETIME => {
                let (raw, _) = input.split_first_chunk().ok_or(Errno::INVAL)?;
                self.set_lifetime(request, u64::from_le_bytes(*raw))
            }
            _ => Err(Errno::NOTTY),
        }
    }

    fn flags(&self, node: NodeId, numbering: Numbering) -> Result<u32, Errno> {
        let flags = self.fs.run(Operation::Ioctl, node, |fs, ino| Ok(fs.getattr(ino)?.flags))?;
        Ok(encode(flags, numbering))
    }

    /// Sets inode flags. Only the owner of the file and root may.
    fn set_flags(
        &self,
        request: &Header,
        numbering: Numbering,
        raw: u32,
    ) -> Result<Vec<u8>, Errno> {
        let node = request.node;
        let flags = decode(raw, numbering).ok_or(Errno::OPNOTSUPP)?;
        let set = SetAttr { flags: Some(flags), ..SetAttr::default() };
        self.fs.run(Operation::Ioctl, node, |fs, ino| {
            if !rights::may_set_flags(request, &fs.getattr(ino)?, flags) {
                return Err(FsError::NotPermitted { what: "setting these flags" });
            }
            fs.setattr(&Caller::ROOT, ino, &set)
        })?;
        // The kernel does not expect a new ctime from an ioctl.
        self.kernel.forget_attributes(node);
        Ok(Vec::new())
    }

    fn lifetime(&self, node: NodeId) -> Result<WriteLifetime, Errno> {
        self.fs.run(Operation::Ioctl, node, |fs, ino| {
            match fs.getxattr(ino, LIFETIME_XATTR.as_bytes()) {
                Ok(value) => Ok(WriteLifetime::from_name(&value).unwrap_or_default()),
                Err(FsError::NoAttribute) => Ok(WriteLifetime::None),
                Err(error) => Err(error),
            }
        })
    }

    /// Sets the write lifetime. Only the owner of the file and root may.
    fn set_lifetime(&self, request: &Header, raw: u64) -> Result<Vec<u8>, Errno> {
        let node = request.node;
        let lifetime = WriteLifetime::from_hint(raw).ok_or(Errno::INVAL)?;
        let file = self.fs.run(Operation::Ioctl, node, |fs, ino| fs.getattr(ino))?;
        if !rights::owns(request, &file) {
            return Err(Errno::PERM);
        }
        self.fs.run(Operation::Ioctl, node, |fs, ino| {
            let name = LIFETIME_XATTR.as_bytes();
            if lifetime != WriteLifetime::None {
                let value = lifetime.name().as_bytes();
                return fs.setxattr(&Caller::ROOT, ino, name, value, XattrMode::Any);
            }
            match fs.removexattr(ino, name) {
                Err(FsError::NoAttribute) => Ok(()),
                outcome => outcome,
            }
        })?;
        // The kernel does not expect a new ctime from an ioctl.
        self.kernel.forget_attributes(node);
        Ok(Vec::new())
    }

    /// Makes everything durable and stops the mount. Only root may.
    fn shut_down(&self, request: &Header) -> Result<Vec<u8>, Errno> {
        if !rights::is_root(request) {
            return Err(Errno::PERM);
        }
        self.fs.sync_and_stop(request.node)?;
        Ok(vec![0; 4])
    }
}

fn encode(flags: InodeFlags, numbering: Numbering) -> u32 {
    let set = FLAGS.iter().filter(|(flag, ..)| flags.contains(*flag));
    set.fold(0, |raw, (_, fl, xflag)| match numbering {
        Numbering::Fl => raw | fl,
        Numbering::Xflag => raw | xflag,
    })
}

/// Flags from their number; `None` if it has unknown flags.
fn decode(raw: u32, numbering: Numbering) -> Option<InodeFlags> {
    let set = FLAGS.iter().filter(|(_, fl, xflag)| match numbering {
        Numbering::Fl => raw & fl != 0,
        Numbering::Xflag => raw & xflag != 0,
    });
    let flags = set.fold(InodeFlags::empty(), |flags, (flag, ..)| flags | *flag);
    (encode(flags, numbering) == raw).then_some(flags)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inode_flags_have_two_numberings() {
        for numbering in [Numbering::Fl, Numbering::Xflag] {
            for (flag, ..) in FLAGS {
                assert_eq!(decode(encode(flag, numbering), numbering), Some(flag));
            }
            assert_eq!(decode(0, numbering), Some(InodeFlags::empty()));
            assert_eq!(decode(1, numbering), None);
        }
        assert_eq!(encode(InodeFlags::IMMUTABLE, Numbering::Fl), 0x10);
        assert_eq!(encode(InodeFlags::IMMUTABLE, Numbering::Xflag), 0x08);
    }
}
