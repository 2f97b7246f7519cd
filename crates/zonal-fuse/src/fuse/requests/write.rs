//! WRITE: the flags and rights of a write, and the pages that it makes stale.
//!
//! The kernel sends writes of a zone one after the other, since a mount that can be written does
//! not ask for asynchronous direct I/O. Reads run in parallel by the hidden mount: see `hidden`.

use zonal_fs::named::Named;
use zonal_fs::vfs::{FileModel, FileSystem, SyncKind, WriteFlags, Written};
use zonal_fuse_transport::request::Write;
use zonal_fuse_transport::{Errno, Header, NodeId, Reply};

use crate::fuse::page_cache::{HoldsNoPage, PageRange};
use crate::fuse::route::Route;
use crate::fuse::server::FuseServer;
use crate::fuse::zone_writes::FailedWrite;
use crate::fuse::{convert, rights};
use crate::latency::Operation;
use crate::options::DirectWrites;
use crate::small_writes::Noted;

impl FuseServer {
    /// Writes, drops the pages that this makes stale, makes the data durable if the file was opened
    /// so, and answers.
    pub(super) fn write(&self, header: &Header, write: &Write<'_>, reply: Reply) {
        let node = header.node;
        let holds_none = HoldsNoPage::of_write(write.how, Route::from(write.handle));
        let model = self.fs.guarded.model(self.fs.ino(node));
        let how = self.write_flags(header, write);
        let written = match model {
            FileModel::Posix => self.write_file(header, write, how - WriteFlags::DURABLE),
            FileModel::Zones => self.write_zone(header, write, how),
        };
        let written = match written {
            Ok(written) => written,
            Err(error) => {
                if convert::is_collected(write.how) {
                    self.pages.writeback.note_failure(node, error);
                }
                return self.after_failed_write(node, reply, holds_none, error);
            }
        };
        self.note_small(node, write, written);
        let len = u32::try_from(written.len).expect("at most one request");
        let server = self.clone();
        match model {
            FileModel::Posix if how.contains(WriteFlags::DURABLE) => {
                let answer = move || server.answer_durable(node, len, reply, holds_none);
                self.drop_stale(node, written, holds_none, answer);
            }
            // Not data that can be written twice: a read between both writes could find old pages.
            FileModel::Zones if self.pages.direct_writes == DirectWrites::Cache => {
                let data = Box::from(&write.data[..len as usize]);
                self.drop_stale(node, written, holds_none, move || {
                    let answer = || reply.written(len);
                    server.pages.cache.answer_and_store(node, written.offset, data, answer);
                });
            }
            FileModel::Posix | FileModel::Zones => {
                self.drop_stale(node, written, holds_none, move || reply.written(len));
            }
        }
    }

    /// Flags for a write: its kind, the privileges that it clears, and whether it moves times.
    fn write_flags(&self, header: &Header, write: &Write<'_>) -> WriteFlags {
        let route = Route::from(write.handle);
        let mut how = convert::write_flags(write.how, write.flags, route)
            | rights::taken_by_write(header, write.how, route, self.kernel.negotiated());
        if self.model == FileModel::Zones {
            how |= convert::append(write.how, write.flags);
        }
        let keeps_times = self.pages.writeback.is_on() && convert::is_collected(write.how);
        how.set(WriteFlags::KEEP_TIMES, keeps_times);
        how
    }

    fn write_file(
        &self,
        header: &Header,
        write: &Write<'_>,
        how: WriteFlags,
    ) -> Result<Written, Errno> {
        let is_direct = Route::from(write.handle) != Route::Cached;
        self.fs.run(Operation::Write, header.node, |fs, ino| {
            if how.contains(WriteFlags::KILL_PRIVILEGES) && is_direct {
                rights::take_before_direct_write(fs, header, ino)?;
            }
            fs.write(ino, write.offset, write.data, how)
        })
    }

    fn write_zone(
        &self,
        header: &Header,
        write: &Write<'_>,
        how: WriteFlags,
    ) -> Result<Written, Errno> {
        let (node, ino) = (header.node, self.fs.ino(header.node));
        let size = || convert::file_size(&self.fs.guarded, ino);
        let size_before = size();
        // The kernel fills in the offset of an append. It must not leave a gap, but the file may be
        // longer than the kernel knows.
        let how = if size_before < write.offset { how - WriteFlags::APPEND } else { how };
        let written = self
            .fs
            .run(Operation::Write, node, |fs, ino| fs.write(ino, write.offset, write.data, how));
        match &written {
            Err(_) => {
                let (size_after, thread) = (size(), header.pid);
                self.kernel.zone_writes.fail(FailedWrite { ino, size_before, size_after, thread });
            }
            Ok(written) if written.offset != write.offset => self.kernel.forget_attributes(node),
            Ok(_) => {}
        }
        written
    }

    /// Counts a small write that the kernel could have collected with others.
    fn note_small(&self, node: NodeId, write: &Write<'_>, written: Written) {
        let is_collectable = !self.pages.writeback.is_on()
            && self.model == FileModel::Posix
            && Route::from(write.handle) == Route::Cached
            && !convert::is_direct_or_durable(write.flags);
        let (small, ino) = (self.fs.latencies.small_writes(), self.fs.ino(node));
        if is_collectable && small.note(ino, written.offset, written.len) == Noted::Enough {
            let advice = small.advice().unwrap_or_default();
            tracing::warn!(file = %Named::new(&self.fs.guarded, ino), "{advice}");
        }
    }

    /// Drops the pages that a write has made stale, before `then` runs. A write from pages leaves
    /// them up to date.
    fn drop_stale(
        &self,
        node: NodeId,
        written: Written,
        holds_none: Option<HoldsNoPage>,
        then: impl FnOnce() + Send + 'static,
    ) {
        let Some(answered) = holds_none else { return then() };
        let ino = self.fs.ino(node);
        let stale = self.fs.lookup_counts.stale(ino, written.offset, written.len);
        let range = match stale {
            Some(stale) => stale.range,
            None if self.pages.passthrough.has_pages(node) => {
                PageRange { offset: written.offset, len: Some(written.len) }
            }
            None => return then(),
        };
        let server = self.clone();
        self.pages.cache.drop(node, range, answered, move || {
            if let Some(stale) = stale {
                server.fs.lookup_counts.dropped(ino, stale);
            }
            then();
        });
    }

    /// Answers a write of `len` bytes once it is durable.
    fn answer_durable(
        &self,
        node: NodeId,
        len: u32,
        reply: Reply,
        holds_none: Option<HoldsNoPage>,
    ) {
        let server = self.clone();
        self.sync_then(node, SyncKind::Data, move |outcome| match outcome {
            Ok(()) => reply.written(len),
            Err(error) => server.after_failed_write(node, reply, holds_none, error),
        });
    }

    /// Answers a failed write, which may have changed the file and the access of the file system.
    /// The answer waits until pages are dropped only if the request holds none.
    fn after_failed_write(
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
            server.fs.guarded.watch_access();
            reply.error(error);
        });
    }
}
