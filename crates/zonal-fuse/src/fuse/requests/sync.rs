//! Requests that make data durable.

use std::sync::mpsc::Receiver;

use zonal_fs::vfs::{FileModel, FileSystem, SyncKind};
use zonal_fuse_transport::{Errno, NodeId};

use super::super::fsync_queue::{self, Commit, QueuedSync};
use super::super::server::FuseServer;
use crate::latency::Operation;

/// Body of the thread that commits for queued syncs.
pub(crate) struct SyncTasks {
    server: FuseServer,
    queue: Receiver<QueuedSync>,
}

impl FuseServer {
    /// Opens the queue of syncs, for the thread that commits. The thread ends with
    /// [`end_sync_tasks`](Self::end_sync_tasks).
    pub(crate) fn sync_tasks(&self) -> SyncTasks {
        SyncTasks { server: self.clone(), queue: self.shared.fsync_queue.open() }
    }

    /// Closes the queue: from now on each sync commits in its own thread.
    pub(crate) fn end_sync_tasks(&self) {
        self.shared.fsync_queue.close();
    }

    /// Makes everything durable, then calls `then`.
    pub(in crate::fuse) fn sync_all_then(
        &self,
        then: impl FnOnce(Result<(), Errno>) + Send + 'static,
    ) {
        match self.shared.model {
            // A commit for one file is a commit for all.
            FileModel::Posix => self.sync_then(NodeId::ROOT, SyncKind::Full, then),
            FileModel::Zones => then(self.run(Operation::Fsync, NodeId::ROOT, |fs, _| fs.sync())),
        }
    }

    /// Makes a file durable, then calls `then`. If a thread commits for all, this returns before.
    pub(in crate::fuse) fn sync_then(
        &self,
        node: NodeId,
        kind: SyncKind,
        then: impl FnOnce(Result<(), Errno>) + Send + 'static,
    ) {
        let (server, since_ns) = (self.clone(), self.shared.latencies.now_ns());
        let then = move |outcome| {
            server.shared.latencies.record(Operation::Fsync, since_ns);
            then(outcome);
        };
        // Zone files share no commit: each has a zone of its own.
        let is_shared = self.shared.fs.model(self.ino(node)) == FileModel::Posix;
        let sync = QueuedSync { node, kind, answer: Box::new(then) };
        let sent = if is_shared { self.shared.fsync_queue.send(sync) } else { Err(sync) };
        if let Err(QueuedSync { node, kind, answer }) = sent {
            answer(self.call(Operation::Fsync, node, |fs, ino| fs.fsync(ino, kind)));
        }
    }
}

impl SyncTasks {
    /// Commits for queued syncs, until the end of the mount.
    pub(crate) fn run(&self) {
        let server = &self.server;
        fsync_queue::run(&self.queue, |commit| match commit {
            Commit::One(node, kind) => {
                server.call(Operation::Fsync, node, |fs, ino| fs.fsync(ino, kind))
            }
            Commit::All(node) => server.call(Operation::Fsync, node, |fs, _| fs.sync()),
        });
    }
}
