//! Requests that wait for a commit.
//!
//! A commit takes as long as the device does. So that it delays no other request, a request for one
//! is queued here and the serving thread continues with the next request. One thread commits
//! for all queued requests, and answers them.

use std::sync::mpsc::Receiver;

use zonal_fs::vfs::{FileModel, FileSystem, SyncKind};
use zonal_fuse_transport::{Errno, NodeId};

use super::Front;
use super::inbox::Inbox;
use crate::latency::Operation;

/// An answer to be given once a commit has ended.
type Then = Box<dyn FnOnce(Result<(), Errno>) + Send>;

/// A request that waits.
pub(super) struct Waiting {
    ino: NodeId,
    kind: SyncKind,
    then: Then,
}

/// Where they are handed in.
pub(super) type Syncs = Inbox<Waiting>;

/// What the thread works on; it ends when the [`Syncs`] it belongs to are closed.
pub(crate) struct SyncTasks {
    front: Front,
    waiting: Receiver<Waiting>,
}

impl Front {
    /// What waits for a commit, for the thread that makes them. The thread ends with
    /// [`end_sync_tasks`](Self::end_sync_tasks).
    pub(crate) fn sync_tasks(&self) -> SyncTasks {
        SyncTasks { front: self.clone(), waiting: self.shared.syncs.open() }
    }

    /// From now on everybody commits for themselves.
    pub(crate) fn end_sync_tasks(&self) {
        self.shared.syncs.close();
    }

    /// Makes everything durable, then runs `then`.
    pub(super) fn sync_all_then(&self, then: impl FnOnce(Result<(), Errno>) + Send + 'static) {
        match self.shared.model {
            // A commit for one file is a commit for all.
            FileModel::Posix => self.sync_then(NodeId::ROOT, SyncKind::Full, then),
            FileModel::Zones => then(self.run(Operation::Fsync, NodeId::ROOT, |fs, _| fs.sync())),
        }
    }

    /// Makes a file durable, then runs `then`. Where a thread commits for all, this returns before.
    pub(super) fn sync_then(
        &self,
        ino: NodeId,
        kind: SyncKind,
        then: impl FnOnce(Result<(), Errno>) + Send + 'static,
    ) {
        let (front, since_ns) = (self.clone(), self.shared.latencies.now_ns());
        let then = move |outcome| {
            front.shared.latencies.record(Operation::Fsync, since_ns);
            then(outcome);
        };
        // A zone file has nothing to commit, and each its own condition.
        let shares = self.shared.fs.model(self.ino(ino)) == FileModel::Posix;
        let waiting = Waiting { ino, kind, then: Box::new(then) };
        let sent = if shares { self.shared.syncs.send(waiting) } else { Err(waiting) };
        if let Err(Waiting { ino, kind, then }) = sent {
            then(self.call(Operation::Fsync, ino, |fs, ino| fs.fsync(ino, kind)));
        }
    }
}

impl SyncTasks {
    /// Commits for those who wait, until the end.
    pub(crate) fn run(&self) {
        for first in &self.waiting {
            let mut all = vec![first];
            all.extend(self.waiting.try_iter());
            let outcome = match &all[..] {
                [one] => {
                    self.front.call(Operation::Fsync, one.ino, |fs, ino| fs.fsync(ino, one.kind))
                }
                [one, ..] => self.front.call(Operation::Fsync, one.ino, |fs, _| fs.sync()),
                [] => unreachable!("it begins with one"),
            };
            for waiting in all {
                (waiting.then)(outcome);
            }
        }
    }
}
