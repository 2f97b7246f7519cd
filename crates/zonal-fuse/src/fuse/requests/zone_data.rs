//! Writes to zone files, and the effect of other changes of content on the page cache.
//!
//! The kernel sends writes of a zone one after the other, since a mount that can be written does
//! not ask for asynchronous direct I/O. Reads run in parallel by the hidden mount: see `hidden`.

use zonal_fs::vfs::{WriteFlags, Written};
use zonal_fuse_transport::{Errno, Header, NodeId, Reply};

use crate::fuse::convert;
use crate::fuse::page_cache::HoldsNoPage;
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
        let fs = &self.backend.fs;
        let ino = self.backend.ino(node);
        let size = || convert::file_size(fs, ino);
        let before = size();
        // The kernel fills in the offset of an append. It must not leave a gap, but the file may be
        // longer than the kernel knows.
        let flags = if before < offset { flags - WriteFlags::APPEND } else { flags };
        let written =
            self.backend.run(Operation::Write, node, |fs, ino| fs.write(ino, offset, data, flags));
        match &written {
            Err(_) => self.kernel.zone_writes.fail(FailedWrite {
                ino,
                size_before: before,
                size_after: size(),
                thread: request.pid,
            }),
            Ok(written) if written.offset != offset => self.kernel.forget_attributes(node),
            Ok(_) => {}
        }
        written
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
        self.pages.drop_all(node, answered, move || {
            server.kernel.forget_attributes(node);
            server.backend.fs.watch_access();
            reply.error(error);
        });
    }

    /// Handles a failed read like a failed write, but in the background: the read may hold locks of
    /// pages until it is answered.
    pub(super) fn after_failed_read(&self, node: NodeId) {
        self.pages.drop_all_later(node);
        self.kernel.forget_attributes(node);
        self.backend.fs.watch_access();
    }
}
