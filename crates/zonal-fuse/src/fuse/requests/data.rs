//! Content of files.

use zonal_fs::furrow::AtimePolicy;
use zonal_fs::named::Named;
use zonal_fs::vfs::{FileModel, FileSystem, SyncKind, WriteFlags, Written};
use zonal_fuse_transport::abi::FopenFlags;
use zonal_fuse_transport::answer::Opened;
use zonal_fuse_transport::request::{CopyRange, CountWidth, Read, Write};
use zonal_fuse_transport::{Errno, Header, NodeId, Op, Reply};

use super::reply;
use crate::fuse::page_cache::{HoldsNoPage, PageRange};
use crate::fuse::route::Route;
use crate::fuse::server::FuseServer;
use crate::fuse::{convert, rights};
use crate::latency::Operation;
use crate::options::DirectWrites;
use crate::small_writes::Noted;

impl FuseServer {
    /// Answers a request about content, and any unknown request with ENOSYS.
    pub(super) fn serve_data(&self, header: &Header, op: &Op<'_>, reply: Reply) {
        let node = header.node;
        match *op {
            Op::Read(read) => self.read(node, read, reply),
            Op::Write(ref write) => self.write(header, write, reply),
            Op::Fsync { datasync } | Op::Fsyncdir { datasync } => {
                self.backend.latencies.small_writes().synced(self.backend.ino(node));
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

    pub(super) fn read(&self, ino: NodeId, read: Read, reply: Reply) {
        let end = read.offset.saturating_add(read.size.into());
        // For a read that fills a page, the kernel knows the length of the file itself.
        if let Some(answered) = HoldsNoPage::of_read(read.how)
            && let Some(pages) = self.unsent_before(ino, end)
        {
            let server = self.clone();
            let then = move || server.answer_read(ino, read, reply);
            return self.pages.cache.drop(ino, pages, answered, then);
        }
        self.answer_read(ino, read, reply);
    }

    /// The pages in which the kernel may have data of a file before `end` that has not arrived.
    fn unsent_before(&self, node: NodeId, end: u64) -> Option<PageRange> {
        let size = || self.backend.inside(|fs| convert::file_size(fs, self.backend.ino(node)));
        self.pages.writeback.unsent_before(node, end, size)
    }

    fn answer_read(&self, ino: NodeId, read: Read, reply: Reply) {
        reply.filled(read.size, |target| {
            let how = convert::read_flags(read.how, read.flags);
            let outcome = self
                .backend
                .run(Operation::Read, ino, |fs, ino| fs.read_with(ino, read.offset, target, how));
            outcome.inspect_err(|_| self.after_failed_read(ino))
        });
    }

    fn write(&self, header: &Header, write: &Write<'_>, reply: Reply) {
        let (ino, Write { offset, data, .. }) = (header.node, *write);
        let route = Route::from(write.handle);
        let mut how = convert::write_flags(write.how, write.flags, route);
        how |= rights::taken_by_write(header, write.how, route, self.kernel.negotiated());
        if self.model == FileModel::Zones {
            how |= convert::append(write.how, write.flags);
        }
        how.set(
            WriteFlags::KEEP_TIMES,
            self.pages.writeback.is_on() && convert::is_collected(write.how),
        );
        let holds_none = HoldsNoPage::of_write(write.how, route);
        let model = self.backend.fs.model(self.backend.ino(ino));
        let durable = model == FileModel::Posix && how.contains(WriteFlags::DURABLE);
        let written = match model {
            FileModel::Posix => self.backend.run(Operation::Write, ino, |fs, ino| {
                if how.contains(WriteFlags::KILL_PRIVILEGES) && route != Route::Cached {
                    rights::take_before_direct_write(fs, header, ino)?;
                }
                fs.write(ino, offset, data, how - WriteFlags::DURABLE)
            }),
            FileModel::Zones => self.write_zone(header, ino, offset, data, how),
        };
        let written = match written {
            Ok(written) => written,
            Err(error) => {
                if convert::is_collected(write.how) {
                    self.pages.writeback.note_failure(ino, error);
                }
                return self.after_failed_write(ino, reply, holds_none, error);
            }
        };
        self.note_small(ino, write, written);
        let len = u32::try_from(written.len).expect("at most one request");
        // Not if data can be written twice: a read between both writes could find old pages.
        let warms = model == FileModel::Zones && self.pages.direct_writes == DirectWrites::Cache;
        let warm = warms.then(|| (written.offset, Box::from(&data[..len as usize])));
        let server = self.clone();
        let answer = move || {
            if durable {
                let synced = server.clone();
                return server.sync_then(ino, SyncKind::Data, move |outcome| match outcome {
                    Ok(()) => reply.written(len),
                    Err(error) => synced.after_failed_write(ino, reply, holds_none, error),
                });
            }
            let answer = || reply.written(len);
            match warm {
                Some((offset, data)) => {
                    server.pages.cache.answer_and_store(ino, offset, data, answer);
                }
                None => answer(),
            }
        };
        // A write from pages leaves them up to date.
        let Some(answered) = holds_none else { return answer() };
        let stale =
            self.backend.lookup_counts.stale(self.backend.ino(ino), written.offset, written.len);
        let range = match stale {
            Some(stale) => stale.range,
            None if self.pages.passthrough.has_pages(ino) => {
                PageRange { offset: written.offset, len: Some(written.len) }
            }
            None => return answer(),
        };
        let server = self.clone();
        self.pages.cache.drop(ino, range, answered, move || {
            if let Some(stale) = stale {
                server.backend.lookup_counts.dropped(server.backend.ino(ino), stale);
            }
            answer();
        });
    }

    /// Counts a small write that the kernel could have collected with others.
    fn note_small(&self, ino: NodeId, write: &Write<'_>, written: Written) {
        let is_collectable = !self.pages.writeback.is_on()
            && self.model == FileModel::Posix
            && Route::from(write.handle) == Route::Cached
            && !convert::is_direct_or_durable(write.flags);
        let small = self.backend.latencies.small_writes();
        if is_collectable
            && small.note(self.backend.ino(ino), written.offset, written.len) == Noted::Enough
        {
            let advice = small.advice().unwrap_or_default();
            let file = Named::new(&self.backend.fs, self.backend.ino(ino));
            tracing::warn!(%file, "{advice}");
        }
    }

    fn fallocate(&self, header: &Header, mode: i32, offset: u64, len: u64, reply: Reply) {
        let result = convert::allocate(mode).and_then(|how| {
            self.backend.run(Operation::Fallocate, header.node, |fs, ino| {
                rights::take_before_allocation(fs, header, ino)?;
                fs.fallocate(ino, how, offset, len)
            })
        });
        reply::empty(reply, result);
    }

    fn lseek(&self, ino: NodeId, offset: u64, whence: i32, reply: Reply) {
        let result = convert::seek(whence).and_then(|what| {
            if i64::try_from(offset).is_err() {
                return Err(Errno::NXIO);
            }
            if self.pages.writeback.is_collecting(ino) {
                // Programs then read the whole file.
                return Err(Errno::INVAL);
            }
            self.backend.run(Operation::Seek, ino, |fs, ino| fs.seek(ino, what, offset))
        });
        match result {
            Ok(offset) if i64::try_from(offset).is_ok() => reply.offset(offset),
            Ok(_) => reply.error(Errno::OVERFLOW),
            Err(error) => reply.error(error),
        }
    }

    fn copy_range(&self, header: &Header, range: CopyRange, reply: Reply) {
        // If the answer has only 32 bits, the kernel asks again for the rest.
        let len = match range.width {
            CountWidth::Narrow => range.len.min(u64::from(u32::MAX) & !0xfff),
            CountWidth::Wide => range.len,
        };
        let how = rights::taken_by_copy(header);
        let result = self.backend.run(Operation::CopyFileRange, header.node, |fs, source| {
            let target = (self.backend.ino(range.target), range.target_offset);
            fs.copy_range((source, range.source_offset), target, len, how)
        });
        match result {
            Ok(copied) => reply.copied(copied, range.width),
            Err(error) => reply.error(error),
        }
    }
}
