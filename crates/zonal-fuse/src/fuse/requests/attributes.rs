//! Attributes of inodes and sizes of the file system.

use std::time::Duration;

use zonal_fs::rules::{SETGID, SETUID};
use zonal_fs::vfs::SetAttr;
use zonal_fuse_transport::abi::{self, Kstatfs};
use zonal_fuse_transport::{Errno, Header, NodeId, Reply, request};

use super::reply;
use crate::fuse::page_cache::HoldsNoPage;
use crate::fuse::server::{FuseServer, TTL};
use crate::fuse::{convert, rights};
use crate::latency::Operation;

impl FuseServer {
    pub(super) fn getattr(&self, node: NodeId, reply: Reply) {
        let attr = self.fs.attributes(node).map(|attr| self.kernel.attr(&attr));
        self.reply_attr(reply, node, attr);
    }

    /// Attributes for an open file: the kernel may need them for a write(2).
    pub(super) fn getattr_of_open(&self, node: NodeId, reply: Reply) {
        match self.pending_write_error(node) {
            Some(error) => reply.error(error),
            None => self.getattr(node, reply),
        }
    }

    pub(super) fn statx(&self, node: NodeId, reply: Reply) {
        reply::send(reply, self.fs.attributes(node), |reply, attr| {
            let ttl = self.attr_ttl(node, &self.kernel.attr(&attr));
            reply.statx(&convert::statx(&attr, self.kernel.blksize), ttl);
        });
    }

    pub(super) fn setattr(&self, header: &Header, what: &request::SetAttr, reply: Reply) {
        let node = header.node;
        let request::SetAttr { mode, uid, gid, size, atime, mtime, handle, kill_suidgid, .. } =
            *what;
        if handle.is_some()
            && size == Some(0)
            && self.kernel.zone_writes.take_failed(self.fs.ino(node), header.pid)
        {
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
            let is_write = self.kernel.taken_capability.is_all(header) && what.ctime.is_none();
            set.kill_privileges = !is_write;
        }
        self.pages.writeback.take_kept_times(what, &mut set);
        let caller = rights::changer(header, what);
        let result = self.fs.run(Operation::Setattr, node, |fs, ino| {
            fs.setattr(&caller, ino, &set).map(|attr| self.kernel.attr(&attr))
        });
        if size.is_some() {
            let answered = HoldsNoPage::of_setattr();
            let server = self.clone();
            let answer = move || server.reply_attr(reply, node, result);
            self.pages.drop_all(node, answered, answer);
        } else {
            self.reply_attr(reply, node, result);
        }
    }

    pub(super) fn statfs(&self, node: NodeId, reply: Reply) {
        let stat = self.fs.run(Operation::Statfs, node, |fs, _| fs.statfs());
        reply::send(reply, stat, |reply, stat| {
            reply.statfs(&Kstatfs {
                blocks: stat.blocks,
                bfree: stat.blocks_free,
                bavail: stat.blocks_free,
                files: stat.inodes.saturating_add(stat.inodes_free),
                ffree: stat.inodes_free,
                bsize: stat.block_size,
                namelen: u32::try_from(stat.name_max).unwrap_or(u32::MAX),
                frsize: stat.block_size,
                ..Kstatfs::default()
            });
        });
    }

    fn reply_attr(&self, reply: Reply, node: NodeId, result: Result<abi::Attr, Errno>) {
        reply::send(reply, result, |reply, attr| reply.attr(&attr, self.attr_ttl(node, &attr)));
    }

    /// How long the kernel may cache these attributes of `node`. Not at all
    ///
    /// - if a write may clear setuid or setgid: after a direct write the kernel does not look;
    /// - if the next write(2) must fail: the kernel then asks for them before that write. A
    ///   notification after the answer could come later than the write.
    pub(super) fn attr_ttl(&self, node: NodeId, attr: &abi::Attr) -> Duration {
        let setid = attr.mode & u32::from(SETUID | SETGID) != 0 && convert::is_regular(attr.mode);
        if setid || self.pending_write_error(node).is_some() { Duration::ZERO } else { TTL }
    }

    /// Error with which a write(2) to a file fails, if the kernel collects writes.
    fn pending_write_error(&self, node: NodeId) -> Option<Errno> {
        self.pages.writeback.pending_error(node, &self.fs.guarded)
    }
}
