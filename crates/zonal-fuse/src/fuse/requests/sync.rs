//! Requests that make data durable.

use std::sync::mpsc::Receiver;

use zonal_fs::vfs::{FileModel, FileSystem, SyncKind};
use zonal_fuse_transport::{Errno, NodeId};

use crate::fuse::fsync_queue::{self, Commit, QueuedSync};
use crate::fuse::server::FuseServer;
use crate::latency::Operation;

/// Body of the thread that commits for queued syncs.
pub(crate) struct SyncTasks {
    server: FuseServer,
    queue: Receiver<QueuedSync>,
}

impl FuseServer {
    /// Opens the queue of syncs, for the thread that commits until
    /// [`end_threads`](Self::end_threads). From then on each sync commits in its own thread.
    pub(crate) fn sync_tasks(&self) -> SyncTasks {
        SyncTasks { server: self.clone(), queue: self.fsync_queue.open() }
    }

    /// Makes everything durable, then calls `then`.
    pub(in crate::fuse) fn sync_all_then(
        &self,
        then: impl FnOnce(Result<(), Errno>) + Send + 'static,
    ) {
        match self.model {
            // A commit for one file is a commit for all.
            FileModel::Posix => self.sync_then(NodeId::ROOT, SyncKind::Full, then),
            FileModel::Zones => {
                then(self.backend.run(Operation::Fsync, NodeId::ROOT, |fs, _| fs.sync()));
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
        let (server, since_ns) = (self.clone(), self.backend.latencies.now_ns());
        let then = move |outcome| {
            server.backend.latencies.record(Operation::Fsync, since_ns);
            then(outcome);
        };
        // Zone files share no commit: each has a zone of its own.
        let is_shared = self.backend.fs.model(self.backend.ino(node)) == FileModel::Posix;
        let sync = QueuedSync { node, kind, answer: Box::new(then) };
        let sent = if is_shared { self.fsync_queue.send(sync) } else { Err(sync) };
        if let Err(QueuedSync { node, kind, answer }) = sent {
            answer(self.commit(Commit::One(node, kind)));
        }
    }

    fn commit(&self, commit: Commit) -> Result<(), Errno> {
        let (Commit::One(node, _) | Commit::All(node)) = commit;
        self.backend.run_uncounted(Operation::Fsync, node, |fs, ino| match commit {
            Commit::One(_, kind) => fs.fsync(ino, kind),
            Commit::All(_) => fs.sync(),
        })
    }
}

impl SyncTasks {
    /// Commits for queued syncs, until the end of the mount.
    pub(crate) fn run(&self) {
        fsync_queue::run(&self.queue, |commit| self.server.commit(commit));
    }
}
