//! Syncs that wait for a commit.
//!
//! A commit takes as long as the device needs. So that it delays no other request, the serving
//! thread queues a sync and takes the next request. One thread commits once for all queued syncs,
//! and answers them.

use zonal_fs::vfs::SyncKind;
use zonal_fuse_transport::{Errno, NodeId};

use super::inbox::Inbox;

/// A sync that waits for a commit.
pub(crate) struct QueuedSync {
    pub(super) node: NodeId,
    pub(super) kind: SyncKind,
    /// Answers the request once the commit has ended.
    pub(super) answer: Box<dyn FnOnce(Result<(), Errno>) + Send>,
}

/// Sending end of the queue.
pub(crate) type FsyncQueue = Inbox<QueuedSync>;
