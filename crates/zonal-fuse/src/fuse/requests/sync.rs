//! Requests that make data durable.

use std::sync::mpsc::Receiver;

use zonal_fs::vfs::{FileModel, FileSystem, SyncKind};
use zonal_fuse_transport::{Errno, NodeId};

use crate::fuse::fsync_queue::QueuedSync;
use crate::fuse::server::FuseServer;
use crate::latency::Operation;

impl FuseServer {
    /// Makes everything durable, then calls `then`.
    pub(super) fn sync_all_then(&self, then: impl FnOnce(Result<(), Errno>) + Send + 'static) {
        match self.model {
            // A commit for one file is a commit for all.
            FileModel::Posix => self.sync_then(NodeId::ROOT, SyncKind::Full, then),
            FileModel::Zones => {
                then(self.fs.run(Operation::Fsync, NodeId::ROOT, |fs, _| fs.sync()));
            }
        }
    }

    /// Makes a file durable, then calls `then`. If a thread commits for all, this returns before.
    pub(in crate::fuse) fn sync_then(
        &self,
        node: NodeId,
        kind: SyncKind,
        then: impl FnOnce(Result<(), Errno>) + Send + 'static,
    ) {
        let (server, since_ns) = (self.clone(), self.fs.latencies.now_ns());
        let then = move |outcome| {
            server.fs.latencies.record(Operation::Fsync, since_ns);
            then(outcome);
        };
        // Zone files share no commit: each has a zone of its own.
        let is_shared = self.fs.guarded.model(self.fs.ino(node)) == FileModel::Posix;
        let sync = QueuedSync { node, kind, answer: Box::new(then) };
        let sent = if is_shared { self.fsync_queue.send(sync) } else { Err(sync) };
        if let Err(alone) = sent {
            self.commit(vec![alone]);
        }
    }

    /// Commits for all syncs that have queued up, until the queue is closed: from then on each sync
    /// commits in its own thread.
    pub(crate) fn commit_queued(&self, queue: &Receiver<QueuedSync>) {
        for first in queue {
            self.commit([first].into_iter().chain(queue.try_iter()).collect());
        }
    }

    /// Makes one commit for these syncs, and answers them.
    fn commit(&self, syncs: Vec<QueuedSync>) {
        let is_alone = syncs.len() == 1;
        let QueuedSync { node, kind, .. } = syncs[0];
        let outcome = self.fs.run_uncounted(Operation::Fsync, node, |fs, ino| {
            if is_alone { fs.fsync(ino, kind) } else { fs.sync() }
        });
        for sync in syncs {
            (sync.answer)(outcome);
        }
    }
}
