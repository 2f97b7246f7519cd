//! Extended attributes.

use zonal_fs::FsError;
use zonal_fs::vfs::{Caller, XattrMode};
use zonal_fuse_transport::{Errno, Header, NodeId, Reply};

use super::reply;
use crate::extents::{self, Question};
use crate::fuse::rights;
use crate::fuse::server::FuseServer;
use crate::latency::Operation;
use crate::names::{DAEMON_XATTR, STOPPED_XATTR};

const XATTR_CREATE: i32 = 1;
const XATTR_REPLACE: i32 = 2;

/// Parameters of setxattr(2).
#[derive(Clone, Copy)]
pub(super) struct NewXattr<'a> {
    pub(super) name: &'a [u8],
    pub(super) value: &'a [u8],
    pub(super) flags: i32,
}

/// Whether the server answers an attribute itself.
fn is_own_xattr(node: NodeId, name: &[u8]) -> bool {
    let is_of_root = [DAEMON_XATTR, STOPPED_XATTR].iter().any(|own| own.as_bytes() == name);
    extents::is_ours(name) || node == NodeId::ROOT && is_of_root
}

impl FuseServer {
    pub(super) fn setxattr(&self, caller: &Caller, node: NodeId, new: NewXattr<'_>, reply: Reply) {
        let NewXattr { name, value, flags } = new;
        if is_own_xattr(node, name) {
            return reply.error(Errno::PERM);
        }
        let mode = match flags {
            0 => XattrMode::Any,
            XATTR_CREATE => XattrMode::Create,
            XATTR_REPLACE => XattrMode::Replace,
            _ => return reply.error(Errno::INVAL),
        };
        let result = self
            .fs
            .run(Operation::Setxattr, node, |fs, ino| fs.setxattr(caller, ino, name, value, mode));
        reply::empty(reply, result);
    }

    pub(super) fn getxattr(&self, header: &Header, name: &[u8], size: u32, reply: Reply) {
        let node = header.node;
        let value = if extents::is_ours(name) {
            self.extents(header, name, size)
        } else if !is_own_xattr(node, name) {
            self.fs.run(Operation::Getxattr, node, |fs, ino| fs.getxattr(ino, name))
        } else if name == DAEMON_XATTR.as_bytes() {
            Ok(std::process::id().to_string().into_bytes())
        } else if self.fs.is_stopped() {
            Ok(b"1".to_vec())
        } else {
            Err(Errno::NODATA)
        };
        reply::xattr(reply, size, value);
    }

    /// Extents of a file, or of all files for the user who may read the device anyhow.
    fn extents(&self, header: &Header, name: &[u8], size: u32) -> Result<Vec<u8>, Errno> {
        let (node, is_root) = (header.node, header.node == NodeId::ROOT);
        let is_owner = rights::is_root(header) || header.uid == rustix::process::getuid().as_raw();
        if is_root && !is_owner {
            return Err(Errno::PERM);
        }
        self.fs.run(Operation::Getxattr, node, |fs, ino| {
            let question =
                if is_root { Question::of_root(name) } else { Question::of_file(name, ino) };
            let what = "extents of a file begin at a byte, and those of the root at an inode's";
            question.ok_or(FsError::Invalid { what })?.answer(fs, size as usize)
        })
    }

    pub(super) fn listxattr(&self, header: &Header, size: u32, reply: Reply) {
        let names = self.fs.run(Operation::Listxattr, header.node, |fs, ino| fs.listxattr(ino));
        let names = names.map(|names| {
            let mut list = Vec::new();
            for name in names.iter().filter(|name| rights::may_list(header, name)) {
                list.extend_from_slice(name);
                list.push(0);
            }
            list
        });
        reply::xattr(reply, size, names);
    }

    pub(super) fn removexattr(&self, header: &Header, name: &[u8], reply: Reply) {
        let node = header.node;
        if is_own_xattr(node, name) {
            return reply.error(Errno::PERM);
        }
        let result = self.fs.run(Operation::Removexattr, node, |fs, ino| fs.removexattr(ino, name));
        self.kernel.taken_capability.note(header, name);
        reply::empty(reply, result);
    }
}
