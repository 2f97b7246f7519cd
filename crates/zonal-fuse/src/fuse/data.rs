//! Requests about the content of files, and about what is durable.

use zonal_fs::named::Named;
use zonal_fs::vfs::{FileModel, FileSystem, SyncKind, WriteFlags, Written};
use zonal_fuse_transport::abi::FopenFlags;
use zonal_fuse_transport::reply::Opened;
use zonal_fuse_transport::request::{CopyRange, Count, Read, Write};
use zonal_fuse_transport::{Errno, Header, NodeId, Op, Reply};

use super::pages::{HoldsNoPage, PageRange};
use super::reply::Route;
use super::{Front, convert, reply, rights};
use crate::control;
use crate::latency::Operation;
use crate::options::{Atime, DirectWrites, WriteCache};
use crate::small_writes::Noted;

impl Front {
    /// Answers a request about content; ENOSYS to any that is not served at all.
    pub(super) fn serve_data(&self, header: &Header, op: &Op<'_>, reply: Reply) {
        let node = header.node;
        match *op {
            Op::Read(read) => self.read(node, read, reply),
            Op::Write(ref write) => self.write(header, write, reply),
            Op::Fsync { datasync } | Op::Fsyncdir { datasync } => {
                self.shared.latencies.small_writes().synced(self.ino(node));
                let kind = if datasync { SyncKind::Data } else { SyncKind::Full };
                self.sync_then(node, kind, move |synced| reply::empty(reply, synced));
            }
            Op::Syncfs => self.sync_all_then(move |synced| reply::empty(reply, synced)),
            Op::Fallocate { offset, len, mode } => {
                self.fallocate(header, mode, (offset, len), reply);
            }
            Op::Lseek { offset, whence } => self.lseek(node, offset, whence, reply),
            Op::CopyFileRange(range) => self.copy_range(header, range, reply),
            // Every listing is to be seen.
            Op::Opendir if self.shared.atime == Atime::Always => {
                let flags = FopenFlags::empty();
                reply.opened(&Opened { handle: 0, flags, backing: None });
            }
            // Of OPENDIR: the kernel then opens directories without asking again, and keeps their
            // listings until it changes the directory: nobody else does.
            _ => reply.error(Errno::NOSYS),
        }
    }

    pub(super) fn read(&self, ino: NodeId, read: Read, reply: Reply) {
        let end = read.offset.saturating_add(read.size.into());
        // Where a page is filled, the kernel knows the length of the file itself.
        if let Some(answered) = HoldsNoPage::of_read(read.how)
            && let Some(pages) = self.collected_beyond(ino, end)
        {
            let front = self.clone();
            let then = move || front.answer_read(ino, read, reply);
            return self.shared.pages.drop(ino, pages, answered, then);
        }
        self.answer_read(ino, read, reply);
    }

    fn answer_read(&self, ino: NodeId, read: Read, reply: Reply) {
        reply.filled(read.size, |target| {
            let how = convert::read_flags(read.how, read.flags);
            let outcome = self
                .run(Operation::Read, ino, |fs, ino| fs.read_with(ino, read.offset, target, how));
            outcome.inspect_err(|_| self.after_failed_read(ino))
        });
    }

    fn write(&self, header: &Header, write: &Write<'_>, reply: Reply) {
        let (ino, Write { offset, data, .. }) = (header.node, *write);
        let route = Route::from(write.handle);
        let mut how = convert::write_flags(write.how, write.flags, route);
        how |= rights::taken_by_write(header, write.how, route, self.agreed());
        if self.shared.model == FileModel::Zones {
            how |= convert::append(write.how, write.flags);
        }
        how.set(WriteFlags::KEEP_TIMES, self.has_write_back() && convert::is_collected(write.how));
        let holds_none = HoldsNoPage::of_write(write.how, route);
        let model = self.shared.fs.model(self.ino(ino));
        let durable = model == FileModel::Posix && how.contains(WriteFlags::DURABLE);
        let written = match model {
            FileModel::Posix => self.run(Operation::Write, ino, |fs, ino| {
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
                    self.refuse_writes(ino, error);
                }
                return self.after_failed_write(ino, (reply, holds_none), error);
            }
        };
        self.note_small(ino, write, written);
        let len = u32::try_from(written.len).expect("at most one request");
        // What is written twice could be read between the two from pages that are old.
        let warms = model == FileModel::Zones && self.shared.direct_writes == DirectWrites::Cache;
        let warm = warms.then(|| (written.offset, Box::from(&data[..len as usize])));
        let front = self.clone();
        let answer = move || {
            if durable {
                let synced = front.clone();
                return front.sync_then(ino, SyncKind::Data, move |outcome| match outcome {
                    Ok(()) => reply.written(len),
                    Err(error) => synced.after_failed_write(ino, (reply, holds_none), error),
                });
            }
            reply.written(len);
            if let Some((offset, data)) = warm {
                front.shared.pages.store(ino, offset, data);
            }
        };
        // What the kernel has written from its pages is in them.
        let Some(answered) = holds_none else { return answer() };
        let stale = self.shared.pins.stale(self.ino(ino), written.offset, written.len);
        let range = match stale {
            Some(stale) => stale.range,
            None if self.shared.openings.has_pages(self.ino(ino)) => {
                PageRange { offset: written.offset, len: Some(written.len) }
            }
            None => return answer(),
        };
        let front = self.clone();
        self.shared.pages.drop(ino, range, answered, move || {
            if let Some(stale) = stale {
                front.shared.pins.dropped(front.ino(ino), stale);
            }
            answer();
        });
    }

    /// Takes a write into account that the kernel could have collected with others.
    fn note_small(&self, ino: NodeId, write: &Write<'_>, written: Written) {
        let front = &self.shared;
        let is_collectable = front.write_cache == WriteCache::Through
            && front.model == FileModel::Posix
            && Route::from(write.handle) == Route::Cached
            && !convert::is_direct_or_durable(write.flags);
        let small = front.latencies.small_writes();
        if is_collectable
            && !control::is_own(self.ino(ino))
            && small.note(self.ino(ino), written.offset, written.len) == Noted::Enough
        {
            let advice = small.advice().unwrap_or_default();
            let file = Named::new(&*front.fs, self.ino(ino));
            tracing::warn!(%file, "{advice}");
        }
    }

    fn fallocate(&self, header: &Header, mode: i32, (offset, len): (u64, u64), reply: Reply) {
        let result = convert::allocate(mode).and_then(|how| {
            self.run(Operation::Fallocate, header.node, |fs, ino| {
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
            if self.is_collecting(ino) {
                // Programs then read all of the file.
                return Err(Errno::INVAL);
            }
            self.run(Operation::Seek, ino, |fs, ino| fs.seek(ino, what, offset))
        });
        match result {
            Ok(offset) if i64::try_from(offset).is_ok() => reply.offset(offset),
            Ok(_) => reply.error(Errno::OVERFLOW),
            Err(error) => reply.error(error),
        }
    }

    fn copy_range(&self, header: &Header, range: CopyRange, reply: Reply) {
        // Where the reply has room for 32 bits, the kernel asks again for the rest.
        let len = match range.count {
            Count::Narrow => range.len.min(u64::from(u32::MAX) & !0xfff),
            Count::Wide => range.len,
        };
        let how = rights::taken_by_copy(header);
        let result = self.run(Operation::CopyFileRange, header.node, |fs, source| {
            let target = (self.ino(range.target), range.target_offset);
            fs.copy_range((source, range.source_offset), target, len, how)
        });
        match result {
            Ok(copied) => reply.copied(copied, range.count),
            Err(error) => reply.error(error),
        }
    }
}
