//! Queue of requests that wait for a commit.
//!
//! A commit takes as long as the device needs. So that it delays no other request, the serving
//! thread queues a sync and takes the next request. One thread commits once for all queued syncs,
//! and answers them.

use std::sync::mpsc::Receiver;

use zonal_fs::vfs::SyncKind;
use zonal_fuse_transport::{Errno, NodeId};

use super::inbox::Inbox;

/// Answers a request once its commit has ended.
pub(super) type Answer = Box<dyn FnOnce(Result<(), Errno>) + Send>;

/// A sync that waits for a commit.
pub(super) struct QueuedSync {
    pub(super) node: NodeId,
    pub(super) kind: SyncKind,
    pub(super) answer: Answer,
}

/// Sending end of the queue.
pub(super) type FsyncQueue = Inbox<QueuedSync>;

/// A commit for the queue.
#[derive(Clone, Copy)]
pub(super) enum Commit {
    /// For one sync.
    One(NodeId, SyncKind),
    /// For several syncs; the first is about this node.
    All(NodeId),
}

/// Commits for all syncs that have queued up, until the queue is closed.
pub(super) fn run(
    queue: &Receiver<QueuedSync>,
    mut commit: impl FnMut(Commit) -> Result<(), Errno>,
) {
    for first in queue {
        let mut all = vec![first];
        all.extend(queue.try_iter());
        let outcome = match &all[..] {
            [one] => commit(Commit::One(one.node, one.kind)),
            [one, ..] => commit(Commit::All(one.node)),
            [] => unreachable!("it begins with one"),
        };
        for sync in all {
            (sync.answer)(outcome);
        }
    }
}
