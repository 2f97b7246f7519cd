//! Attributes of inodes and sizes of the file system.

use zonal_fs::vfs::{Attr, SetAttr};
use zonal_fuse_transport::abi::Kstatfs;
use zonal_fuse_transport::{Errno, Header, NodeId, Reply, request};

use super::reply::{self, ttl};
use crate::fuse::page_cache::HoldsNoPage;
use crate::fuse::server::FuseServer;
use crate::fuse::{convert, rights};
use crate::latency::Operation;

impl FuseServer {
    pub(super) fn getattr(&self, ino: NodeId, reply: Reply) {
        reply::attr(reply, self.attributes(ino).map(|attr| self.attr(&attr)));
        self.invalidate_attrs_on_pending_error(ino);
    }

    /// Attributes for an open file: the kernel may need them for a write(2).
    pub(super) fn getattr_of_open(&self, ino: NodeId, reply: Reply) {
        match self.pending_write_error(ino) {
            Some(error) => reply.error(error),
            None => self.getattr(ino, reply),
        }
    }

    /// Attributes of an inode. Those of the root stay available on a stopped mount, so that it can
    /// be unmounted.
    fn attributes(&self, ino: NodeId) -> Result<Attr, Errno> {
        match self.shared.stopped_root.get() {
            Some(root) if ino == NodeId::ROOT => Ok(*root),
            Some(_) | None => self.run(Operation::Getattr, ino, |fs, ino| fs.getattr(ino)),
        }
    }

    pub(super) fn statx(&self, ino: NodeId, reply: Reply) {
        match self.attributes(ino) {
            Ok(attr) => {
                let ttl = ttl(&self.attr(&attr));
                reply.statx(&convert::statx(&attr, self.shared.blksize), ttl);
            }
            Err(error) => reply.error(error),
        }
        self.invalidate_attrs_on_pending_error(ino);
    }

    pub(super) fn setattr(&self, header: &Header, what: &request::SetAttr, reply: Reply) {
        let ino = header.node;
        let request::SetAttr { mode, uid, gid, size, atime, mtime, handle, kill_suidgid, .. } =
            *what;
        if handle.is_some() && size == Some(0) && self.undoes_failed_write(header, ino) {
            return reply.error(Errno::IO);
        }
        let mut set = SetAttr {
            perm: mode.map(convert::perm),
            uid,
            gid,
            size,
            atime: atime.map(convert::set_time),
            mtime: mtime.map(convert::set_time),
            ctime: None,
            kill_privileges: kill_suidgid || uid.is_some() || gid.is_some(),
            flags: None,
        };
        if set == SetAttr::default() {
            // A request that sets nothing clears setuid and setgid: chown(-1, -1), or a change of
            // the content by an unprivileged process. If the kernel sends times, a write(2) has
            // none.
            let is_write = self.shared.taken_capability.is_all(header) && what.ctime.is_none();
            set.kill_privileges = !is_write;
        }
        self.shared.writeback.take_kept_times(what, &mut set);
        let caller = rights::changer(header, what);
        let result = self.run(Operation::Setattr, ino, |fs, ino| {
            fs.setattr(&caller, ino, &set).map(|attr| self.attr(&attr))
        });
        if size.is_some() {
            let answered = HoldsNoPage::of_setattr();
            self.drop_cached_pages(ino, answered, move || reply::attr(reply, result));
        } else {
            reply::attr(reply, result);
        }
    }

    pub(super) fn statfs(&self, ino: NodeId, reply: Reply) {
        match self.run(Operation::Statfs, ino, |fs, _| fs.statfs()) {
            Ok(stat) => reply.statfs(&Kstatfs {
                blocks: stat.blocks,
                bfree: stat.blocks_free,
                bavail: stat.blocks_free,
                files: stat.inodes.saturating_add(stat.inodes_free),
                ffree: stat.inodes_free,
                bsize: stat.block_size,
                namelen: u32::try_from(stat.name_max).unwrap_or(u32::MAX),
                frsize: stat.block_size,
                ..Kstatfs::default()
            }),
            Err(error) => reply.error(error),
        }
    }

    /// Makes the kernel forget attributes that stat(2) asked for if the next write(2) must fail: it
    /// then asks for them before that write.
    fn invalidate_attrs_on_pending_error(&self, node: NodeId) {
        if self.pending_write_error(node).is_some() {
            self.forget_attributes(node);
        }
    }

    /// Error with which a write(2) to a file fails, if the kernel collects writes.
    fn pending_write_error(&self, node: NodeId) -> Option<Errno> {
        self.shared.writeback.pending_error(node, &*self.shared.fs)
    }
}
