//! Writes to zone files, and the effect of other changes of content on the page cache.
//!
//! The kernel sends writes of a zone one after the other, since a mount that can be written does
//! not ask for asynchronous direct I/O. Reads run in parallel by the hidden mount: see `hidden`.

use zonal_fs::vfs::{WriteFlags, Written};
use zonal_fuse_transport::{Errno, Header, NodeId, Reply};

use crate::fuse::convert;
use crate::fuse::page_cache::{HoldsNoPage, PageRange};
use crate::fuse::server::FuseServer;
use crate::fuse::zone_writes::FailedWrite;
use crate::latency::Operation;

impl FuseServer {
    /// Writes to a zone file.
    pub(super) fn write_zone(
        &self,
        request: &Header,
        node: NodeId,
        offset: u64,
        data: &[u8],
        flags: WriteFlags,
    ) -> Result<Written, Errno> {
        let fs = &*self.shared.fs;
        let ino = self.ino(node);
        let size = || convert::file_size(fs, ino);
        let before = size();
        // The kernel fills in the offset of an append. It must not leave a gap, but the file may be
        // longer than the kernel knows.
        let flags = if before < offset { flags - WriteFlags::APPEND } else { flags };
        let written =
            self.run(Operation::Write, node, |fs, ino| fs.write(ino, offset, data, flags));
        match &written {
            Err(_) => self.shared.zone_writes.fail(FailedWrite {
                ino,
                size_before: before,
                size_after: size(),
                thread: request.pid,
            }),
            Ok(written) if written.offset != offset => self.forget_attributes(node),
            Ok(_) => {}
        }
        written
    }

    /// Whether setting the length of a file to 0 is the kernel undoing a failed write.
    pub(super) fn undoes_failed_write(&self, request: &Header, node: NodeId) -> bool {
        self.shared.zone_writes.take_failed(self.ino(node), request.pid)
    }

    /// Drops all cached pages of a file, whose content has changed other than by write(2), before
    /// `then` runs.
    pub(super) fn drop_cached_pages(
        &self,
        node: NodeId,
        answered: HoldsNoPage,
        then: impl FnOnce() + Send + 'static,
    ) {
        if self.shared.passthrough.has_pages(self.ino(node)) {
            self.shared.page_cache.cancel_stores(node, answered, || ());
            self.shared.page_cache.drop(node, PageRange::ALL, answered, then);
        } else {
            self.shared.page_cache.cancel_stores(node, answered, then);
        }
    }

    /// Answers a failed write, which may have changed the file and the access of the file system.
    /// The answer waits until pages are dropped only if the request holds none.
    pub(super) fn after_failed_write(
        &self,
        node: NodeId,
        reply: Reply,
        holds_none: Option<HoldsNoPage>,
        error: Errno,
    ) {
        let Some(answered) = holds_none else {
            self.after_failed_read(node);
            return reply.error(error);
        };
        let server = self.clone();
        self.drop_cached_pages(node, answered, move || {
            server.forget_attributes(node);
            server.watch_access();
            reply.error(error);
        });
    }

    /// Handles a failed read like a failed write, but in the background: the read may hold locks of
    /// pages until it is answered.
    pub(super) fn after_failed_read(&self, node: NodeId) {
        self.shared.page_cache.cancel_stores_later(node);
        if self.shared.passthrough.has_pages(self.ino(node)) {
            self.shared.page_cache.drop_later(node, PageRange::ALL);
        }
        self.forget_attributes(node);
        self.watch_access();
    }
}
