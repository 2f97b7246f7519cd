//! The file system behind the server, and the one way in which requests call it.
//!
//! [`Backend::run`] runs an operation. From the outside in,
//!
//! - latencies count it;
//! - a failure that its caller sees as EIO is logged, since the errno says so little;
//! - it is refused once the mount is stopped, and a stop waits until it has ended;
//! - if it finds no space, it runs again while the kernel releases deleted files
//!   ([`enospc_retry`](super::enospc_retry));
//! - a panic of the file system becomes an error ([`Guarded`]).

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};

use zonal_fs::FsError;
use zonal_fs::named::Named;
use zonal_fs::vfs::{Attr, FileSystem, Ino};
use zonal_fuse_transport::{Errno, NodeId};

use super::enospc_retry::ReleaseCount;
use super::lookup_counts::LookupCounts;
use super::nodes::Nodes;
use crate::guarded::Guarded;
use crate::latency::{Latencies, Operation};
use crate::options::Access;

/// The file system, and what keeps it in use.
pub(crate) struct Backend {
    pub(crate) guarded: Guarded,
    pub(super) latencies: Arc<Latencies>,
    pub(super) nodes: Nodes,
    pub(super) lookup_counts: LookupCounts,
    releases: ReleaseCount,
    /// Whether operations are refused.
    stopped: AtomicBool,
    /// Every operation holds this for reading.
    running: RwLock<()>,
    /// Attributes of the root when the shutdown ioctl stopped the mount.
    stopped_root: OnceLock<Attr>,
    /// Outcome of closing the file system, if the end of a `fuseblk` has closed it.
    closed: Mutex<Option<Result<Access, FsError>>>,
}

impl Backend {
    pub(super) fn new(guarded: Guarded, latencies: Arc<Latencies>) -> Self {
        Self {
            nodes: Nodes::new(guarded.root()),
            guarded,
            latencies,
            lookup_counts: LookupCounts::default(),
            releases: ReleaseCount::default(),
            stopped: AtomicBool::new(false),
            running: RwLock::new(()),
            stopped_root: OnceLock::new(),
            closed: Mutex::default(),
        }
    }

    /// Runs one operation on the inode of a node.
    pub(super) fn run<T>(
        &self,
        operation: Operation,
        node: NodeId,
        run: impl FnMut(&dyn FileSystem, Ino) -> Result<T, FsError>,
    ) -> Result<T, Errno> {
        let since_ns = self.latencies.now_ns();
        let outcome = self.run_uncounted(operation, node, run);
        self.latencies.record(operation, since_ns);
        outcome
    }

    /// As [`run`](Self::run), for a part of an operation whose latency the caller records.
    pub(super) fn run_uncounted<T>(
        &self,
        operation: Operation,
        node: NodeId,
        mut run: impl FnMut(&dyn FileSystem, Ino) -> Result<T, FsError>,
    ) -> Result<T, Errno> {
        let ino = self.ino(node);
        let outcome = self.inside(|fs| self.releases.with_space(fs, || run(fs, ino)));
        outcome.ok_or(Errno::IO)?.map_err(|error| {
            let errno = Errno::from_raw_os_error(error.errno());
            if errno == Errno::IO {
                let file = Named::new(&self.guarded, ino);
                tracing::error!(operation = operation.name(), %file, %error, "answered EIO");
            }
            errno
        })
    }

    /// Calls the file system; `None` if the mount is stopped.
    pub(super) fn inside<T>(&self, call: impl FnOnce(&dyn FileSystem) -> T) -> Option<T> {
        // Checked before the lock too: `stop` waits for it behind running operations.
        if self.is_stopped() {
            return None;
        }
        let _running = self.running.read().unwrap_or_else(PoisonError::into_inner);
        (!self.is_stopped()).then(|| call(&self.guarded))
    }

    /// The inode of a node.
    pub(super) fn ino(&self, node: NodeId) -> Ino {
        self.nodes.ino(node)
    }

    /// Attributes of an inode. A stopped mount still answers with the attributes of its root, so
    /// that umount(8) can unmount it.
    pub(super) fn attributes(&self, node: NodeId) -> Result<Attr, Errno> {
        match self.stopped_root.get() {
            Some(root) if node == NodeId::ROOT => Ok(*root),
            Some(_) | None => self.run(Operation::Getattr, node, |fs, ino| fs.getattr(ino)),
        }
    }

    /// Takes lookups of an inode back. A stopped mount has unpinned all inodes already.
    pub(super) fn forget_lookups(&self, node: NodeId, lookups: u64) {
        let _ = self.run(Operation::Forget, node, |fs, ino| {
            self.releases.note(|| self.lookup_counts.forget(fs, ino, lookups));
            Ok(())
        });
    }

    /// Does regular work, unless stopped.
    pub(crate) fn tick(&self) {
        self.latencies.sample();
        // The file system logs once that the host is full.
        if let Some(Err(error)) = self.inside(|fs| fs.tick())
            && !error.is_host_full()
        {
            tracing::error!(%error, "regular commit failed");
        }
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::SeqCst)
    }

    /// Refuses all further operations, and waits for running ones without a limit.
    fn stop(&self) {
        self.stopped.store(true, Ordering::SeqCst);
        drop(self.running.write().unwrap_or_else(PoisonError::into_inner));
    }

    /// Makes everything durable, then stops the mount.
    pub(super) fn sync_and_stop(&self, node: NodeId) -> Result<(), Errno> {
        let root = self.run(Operation::Ioctl, node, |fs, _| {
            fs.sync()?;
            fs.getattr(Ino::ROOT)
        })?;
        self.stopped_root.get_or_init(|| root);
        tracing::warn!("stopped by the shutdown ioctl: every further request fails");
        self.stop();
        Ok(())
    }

    /// Stops the mount, unpins all inodes that the kernel knows, which deletes inodes without a
    /// name, and closes the file system. Returns its access just before, or the outcome of
    /// [`close_early`](Self::close_early).
    pub(crate) fn close(&self) -> Result<Access, FsError> {
        let mut closed = self.closed.lock().unwrap_or_else(PoisonError::into_inner);
        closed.take().unwrap_or_else(|| self.close_now())
    }

    /// Closes the file system at the end of a `fuseblk`, and keeps the outcome.
    pub(super) fn close_early(&self) {
        let mut closed = self.closed.lock().unwrap_or_else(PoisonError::into_inner);
        if closed.is_none() {
            *closed = Some(self.close_now());
        }
    }

    fn close_now(&self) -> Result<Access, FsError> {
        self.stop();
        self.lookup_counts.release_all(&self.guarded);
        let access = self.guarded.access();
        self.guarded.shutdown().map(|()| access)
    }
}
