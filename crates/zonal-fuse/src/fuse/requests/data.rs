//! Content of files, except for writes.

use zonal_fs::furrow::AtimePolicy;
use zonal_fs::vfs::SyncKind;
use zonal_fuse_transport::abi::FopenFlags;
use zonal_fuse_transport::answer::Opened;
use zonal_fuse_transport::request::{CopyRange, CountWidth, Read};
use zonal_fuse_transport::{Errno, Header, NodeId, Op, Reply};

use super::reply;
use crate::fuse::page_cache::{HoldsNoPage, PageRange};
use crate::fuse::server::FuseServer;
use crate::fuse::{convert, rights};
use crate::latency::Operation;

impl FuseServer {
    /// Answers a request about content, and any unknown request with ENOSYS.
    pub(super) fn serve_data(&self, header: &Header, op: &Op<'_>, reply: Reply) {
        let node = header.node;
        match *op {
            Op::Read(read) => self.read(node, read, reply),
            Op::Write(ref write) => self.write(header, write, reply),
            Op::Fsync { datasync } | Op::Fsyncdir { datasync } => {
                self.fs.latencies.small_writes().synced(self.fs.ino(node));
                let kind = if datasync { SyncKind::Data } else { SyncKind::Full };
                self.sync_then(node, kind, move |synced| reply::empty(reply, synced));
            }
            Op::Syncfs => self.sync_all_then(move |synced| reply::empty(reply, synced)),
            Op::Fallocate { offset, len, mode } => {
                self.fallocate(header, mode, offset, len, reply);
            }
            Op::Lseek { offset, whence } => self.lseek(node, offset, whence, reply),
            Op::CopyFileRange(range) => self.copy_range(header, range, reply),
            // With `strictatime` every listing must reach us.
            Op::Opendir if self.atime == AtimePolicy::Always => {
                let flags = FopenFlags::empty();
                reply.opened(&Opened { handle: 0, flags, backing: None });
            }
            // ENOSYS to OPENDIR makes the kernel open directories without asking, and cache their
            // listings until it changes the directory.
            _ => reply.error(Errno::NOSYS),
        }
    }

    pub(super) fn read(&self, node: NodeId, read: Read, reply: Reply) {
        let end = read.offset.saturating_add(read.size.into());
        // For a read that fills a page, the kernel knows the length of the file itself.
        if let Some(answered) = HoldsNoPage::of_read(read.how)
            && let Some(pages) = self.unsent_before(node, end)
        {
            let server = self.clone();
            let then = move || server.answer_read(node, read, reply);
            return self.pages.cache.drop(node, pages, answered, then);
        }
        self.answer_read(node, read, reply);
    }

    /// The pages in which the kernel may have data of a file before `end` that has not arrived.
    fn unsent_before(&self, node: NodeId, end: u64) -> Option<PageRange> {
        let size = || self.fs.inside(|fs| convert::file_size(fs, self.fs.ino(node)));
        self.pages.writeback.unsent_before(node, end, size)
    }

    fn answer_read(&self, node: NodeId, read: Read, reply: Reply) {
        reply.filled(read.size, |target| {
            let how = convert::read_flags(read.how, read.flags);
            let outcome = self
                .fs
                .run(Operation::Read, node, |fs, ino| fs.read_with(ino, read.offset, target, how));
            outcome.inspect_err(|_| self.after_failed_read(node))
        });
    }

    /// Handles a failed read like a failed write, but in the background: the read may hold locks of
    /// pages until it is answered.
    pub(super) fn after_failed_read(&self, node: NodeId) {
        self.pages.drop_all_later(node);
        self.kernel.forget_attributes(node);
        self.fs.guarded.watch_access();
    }

    fn fallocate(&self, header: &Header, mode: i32, offset: u64, len: u64, reply: Reply) {
        let result = convert::allocate(mode).and_then(|how| {
            self.fs.run(Operation::Fallocate, header.node, |fs, ino| {
                rights::take_before_allocation(fs, header, ino)?;
                fs.fallocate(ino, how, offset, len)
            })
        });
        reply::empty(reply, result);
    }

    fn lseek(&self, node: NodeId, offset: u64, whence: i32, reply: Reply) {
        let result = convert::seek(whence).and_then(|what| {
            if i64::try_from(offset).is_err() {
                return Err(Errno::NXIO);
            }
            if self.pages.writeback.is_collecting(node) {
                // Programs then read the whole file.
                return Err(Errno::INVAL);
            }
            self.fs.run(Operation::Seek, node, |fs, ino| fs.seek(ino, what, offset))
        });
        reply::send(reply, result, |reply, offset| match i64::try_from(offset) {
            Ok(_) => reply.offset(offset),
            Err(_) => reply.error(Errno::OVERFLOW),
        });
    }

    fn copy_range(&self, header: &Header, range: CopyRange, reply: Reply) {
        // If the answer has only 32 bits, the kernel asks again for the rest.
        let len = match range.width {
            CountWidth::Narrow => range.len.min(u64::from(u32::MAX) & !0xfff),
            CountWidth::Wide => range.len,
        };
        let how = rights::taken_by_copy(header);
        let result = self.fs.run(Operation::CopyFileRange, header.node, |fs, source| {
            let target = (self.fs.ino(range.target), range.target_offset);
            fs.copy_range((source, range.source_offset), target, len, how)
        });
        reply::send(reply, result, |reply, copied| reply.copied(copied, range.width));
    }
}
