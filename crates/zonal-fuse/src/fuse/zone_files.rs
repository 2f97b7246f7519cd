//! Writes to files that are zones.
//!
//! The kernel sends them one after the other, since a mount that can be written does not ask for asynchronous direct
//! I/O. Reads go beside each other by the hidden mount: see `hidden`.
//!
//! After an asynchronous write that was to extend a file and failed, the kernel sets the file's
//! length to what it was before. On a zone that has grown behind the file's back this would be a
//! reset. The kernel's length is then 0 though ours is not: [`Front::takes_back_write`] finds that
//! out. Any other length cannot be set and does no harm.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use zonal_fs::vfs::{Access, FileSystem, Ino, WriteFlags, Written};
use zonal_fuse_transport::{Errno, Header, NodeId, Reply};

use super::Front;
use super::pages::{HoldsNoPage, PageRange};
use crate::latency::Operation;

/// Writes that failed.
#[derive(Default)]
pub(super) struct ZoneWrites {
    state: Mutex<State>,
    /// Whether `unseen` has something in it: this is looked at with every reply of attributes.
    any_unseen: AtomicBool,
}

#[derive(Default)]
struct State {
    /// Files that the kernel believes to be empty though they are not.
    unseen: BTreeSet<Ino>,
    /// Of these, the thread whose write failed last.
    failed: BTreeMap<Ino, u32>,
}

impl ZoneWrites {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers a failed write to a file that was `before` long.
    fn fail(&self, ino: Ino, (before, after): (u64, u64), thread: u32) {
        let mut state = self.state();
        if before == 0 && after > 0 {
            state.unseen.insert(ino);
            self.any_unseen.store(true, Ordering::Release);
        }
        if state.unseen.contains(&ino) {
            state.failed.insert(ino, thread);
        }
    }

    /// The kernel learns the length of a file.
    pub(super) fn see(&self, ino: Ino) {
        if self.any_unseen.load(Ordering::Acquire) {
            let mut state = self.state();
            state.unseen.remove(&ino);
            state.failed.remove(&ino);
            self.any_unseen.store(!state.unseen.is_empty(), Ordering::Release);
        }
    }
}

impl Front {
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
        let size = || size(fs, ino);
        let before = size();
        // The kernel gives an append its place too. It must not go before what is missing there, but
        // it may find that the file has become longer than the kernel knows.
        let flags = if before < offset { flags - WriteFlags::APPEND } else { flags };
        let written =
            self.run(Operation::Write, node, |fs, ino| fs.write(ino, offset, data, flags));
        match &written {
            Err(_) => self.shared.zone_writes.fail(ino, (before, size()), request.pid),
            Ok(written) if written.offset != offset => self.forget_attributes(node),
            Ok(_) => {}
        }
        written
    }

    /// Whether setting the length of a file to 0 is the kernel taking back a write that failed,
    /// though the file is not empty. Asked once, it is the kernel; asked again, a program.
    pub(super) fn takes_back_write(&self, request: &Header, node: NodeId) -> bool {
        let failed = self.shared.zone_writes.state().failed.remove(&self.ino(node));
        failed == Some(request.pid)
    }

    /// The content of a file has changed by other means than a write: no page of before stays when `then` runs.
    pub(super) fn settle(
        &self,
        node: NodeId,
        answered: HoldsNoPage,
        then: impl FnOnce() + Send + 'static,
    ) {
        if self.shared.openings.has_pages(self.ino(node)) {
            self.shared.pages.settle(node, answered, || ());
            self.shared.pages.drop(node, PageRange::ALL, answered, then);
        } else {
            self.shared.pages.settle(node, answered, then);
        }
    }

    /// Answers a write that has failed. It may have changed the file, and the file system. If it
    /// may hold pages until it is answered, the answer must not wait for them.
    pub(super) fn after_failed_write(
        &self,
        node: NodeId,
        (reply, holds_none): (Reply, Option<HoldsNoPage>),
        error: Errno,
    ) {
        let Some(answered) = holds_none else {
            self.after_failed_read(node);
            return reply.error(error);
        };
        let front = self.clone();
        self.settle(node, answered, move || {
            front.forget_attributes(node);
            front.watch_access();
            reply.error(error);
        });
    }

    /// A read has failed, with the same consequences. It holds locks of pages until it is answered, so
    /// the answer must not wait.
    pub(super) fn after_failed_read(&self, node: NodeId) {
        self.shared.pages.settle_later(node);
        if self.shared.openings.has_pages(self.ino(node)) {
            self.shared.pages.drop_later(node, PageRange::ALL);
        }
        self.forget_attributes(node);
        self.watch_access();
    }

    /// Has the mount made read-only if the file system has become so.
    pub(super) fn watch_access(&self) {
        if self.shared.fs.access() == Access::ReadOnly {
            self.shared.became_read_only.fire();
        }
    }
}

/// How long a file is.
pub(super) fn size(fs: &dyn FileSystem, ino: Ino) -> u64 {
    fs.getattr(ino).map_or(0, |attr| attr.size)
}
