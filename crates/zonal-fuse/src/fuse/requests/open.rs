//! Opening and closing.
//!
//! A RELEASE reaches us some time after close(2) has returned. So an open that fails because the
//! device limits the number of open zones waits a little for closes that are on their way.

use std::time::Duration;

use zonal_fs::furrow::AtimePolicy;
use zonal_fs::vfs::{Attr, FileModel, FileSystem, InodeFlags, OpenFor, WriteFlags};
use zonal_fs::{FsError, protect};
use zonal_fuse_transport::abi::InitFlags;
use zonal_fuse_transport::answer::Opened;
use zonal_fuse_transport::{Errno, NodeId, Reply};

use super::reply::opened;
use crate::fuse::convert;
use crate::fuse::passthrough::OpenRequest;
use crate::fuse::real_time::now;
use crate::fuse::route::Route;
use crate::fuse::server::FuseServer;
use crate::latency::Operation;

/// How long an open waits for closes. After that it fails, without any effect.
const CLOSE_TIMEOUT: Duration = Duration::from_millis(100);

impl FuseServer {
    /// Answers a FLUSH. The kernel sends it at close(2) after all collected data of the file has
    /// arrived, and reports errors of that itself; it also keeps locks. So nothing is left to do,
    /// and ENOSYS makes it send no more.
    pub(super) fn flush(&self, reply: Reply) {
        // Linux before 5.8 needs a FLUSH to send collected data at close(2). This flag is newer.
        if self.kernel.negotiated().contains(InitFlags::HANDLE_KILLPRIV_V2) {
            reply.error(Errno::NOSYS);
        } else {
            reply.ok();
        }
    }

    /// Opens a file with these open(2) flags.
    pub(super) fn open_file(&self, node: NodeId, flags: i32) -> Result<Opened, Errno> {
        let (request, model) = self.open_in_time(node, flags)?;
        let ino = self.fs.ino(node);
        let (route, backing) = match (model, request) {
            (FileModel::Zones, _) => self.pages.passthrough.add(node, request, flags),
            (FileModel::Posix, OpenRequest::DirectReads) => (Route::Direct, None),
            (FileModel::Posix, OpenRequest::By(route)) => (route, None),
        };
        if route == Route::Cached {
            self.note_reader(node, flags);
        }
        if has_pages(route, flags) {
            self.fs.lookup_counts.open_cached(ino);
        }
        if route == Route::Cached && purpose(flags) == OpenFor::Writing {
            self.pages.writeback.add_writer(node);
        }
        Ok(opened(route, backing, model, self.atime))
    }

    /// Moves an access time that is due when a file is opened for reading: reads of cached pages do
    /// not reach us.
    fn note_reader(&self, node: NodeId, flags: i32) {
        let reads = flags & convert::O_ACCMODE != convert::O_WRONLY;
        let leaves_traces = reads && flags & convert::O_NOATIME == 0;
        if !leaves_traces
            || self.atime != AtimePolicy::Relative
            || !self.fs.lookup_counts.may_have_pages(self.fs.ino(node))
        {
            return;
        }
        if let Ok(true) = self.fs.run_uncounted(Operation::Open, node, |fs, ino| fs.note_read(ino))
        {
            self.kernel.forget_attributes(node);
        }
    }

    /// Undoes an [`open_file`](Self::open_file).
    pub(super) fn close_file(&self, node: NodeId, handle: u64, flags: i32) {
        let (route, purpose) = (Route::from(handle), purpose(flags));
        if has_pages(route, flags) {
            self.fs.lookup_counts.close_cached(self.fs.ino(node));
        }
        if self.model == FileModel::Zones {
            self.pages.passthrough.remove(node, route, flags);
        }
        if route == Route::Cached && purpose == OpenFor::Writing {
            self.pages.writeback.remove_writer(node);
        }
        // Fails only if stopped: then all files are closed anyway.
        let _ = self.fs.run(Operation::Release, node, |fs, ino| {
            fs.close(ino, purpose);
            Ok(())
        });
        if purpose == OpenFor::Writing {
            self.closings.add();
            self.fs.guarded.watch_access();
        }
    }

    fn open_in_time(&self, node: NodeId, flags: i32) -> Result<(OpenRequest, FileModel), Errno> {
        let purpose = purpose(flags);
        let deadline = now() + CLOSE_TIMEOUT;
        loop {
            let seen = self.closings.count();
            let mut full = false;
            let opened = self.fs.run(Operation::Open, node, |fs, ino| {
                let attr = fs.getattr(ino)?;
                check(&attr, flags)?;
                let outcome = fs.open(ino, purpose);
                full = matches!(outcome, Err(FsError::TooManyOpen { .. } | FsError::ZoneLimit(_)));
                let late = purpose == OpenFor::Writing && self.pages.writeback.is_nearly_full(fs);
                let request = if late {
                    OpenRequest::By(Route::Direct)
                } else {
                    open_request(fs, &attr, flags)
                };
                outcome.map(|()| (request, fs.model(ino)))
            });
            let left = deadline.saturating_duration_since(now());
            if !full || left.is_zero() {
                return opened;
            }
            self.closings.wait(seen, left, usize::MAX);
        }
    }
}

fn purpose(flags: i32) -> OpenFor {
    match flags & convert::O_ACCMODE {
        convert::O_RDONLY => OpenFor::Reading,
        _ => OpenFor::Writing,
    }
}

/// Checks these open(2) flags against the flags of the inode.
fn check(attr: &Attr, flags: i32) -> Result<(), FsError> {
    if purpose(flags) == OpenFor::Reading {
        return Ok(());
    }
    let mut how = WriteFlags::empty();
    how.set(WriteFlags::APPEND, flags & convert::O_APPEND != 0);
    protect::check_open(attr.flags, how)
}

/// How an open wants its data to travel.
fn open_request(fs: &dyn FileSystem, attr: &Attr, flags: i32) -> OpenRequest {
    let direct = flags & convert::O_DIRECT != 0;
    let route = |direct| if direct { Route::Direct } else { Route::Cached };
    match fs.model(attr.ino) {
        FileModel::Posix => OpenRequest::By(route(direct)),
        FileModel::Zones if direct && purpose(flags) == OpenFor::Reading => {
            OpenRequest::DirectReads
        }
        // Writes of a zone bypass the page cache. Reads of an offline zone must reach us, to fail:
        // the kernel would take the file for empty.
        FileModel::Zones => {
            let gone = attr.size == 0 && attr.flags.contains(InodeFlags::IMMUTABLE);
            OpenRequest::By(route(gone || purpose(flags) == OpenFor::Writing))
        }
    }
}

/// Whether an open may bring pages into the page cache: sendfile(2) does, even if reads are direct.
fn has_pages(route: Route, flags: i32) -> bool {
    match route {
        Route::Cached => true,
        Route::DirectForced => purpose(flags) == OpenFor::Reading,
        Route::Direct | Route::Backed => false,
    }
}
