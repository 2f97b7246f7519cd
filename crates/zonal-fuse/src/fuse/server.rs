//! The server of one mount: a composition of parts that own their fields.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use zonal_fs::furrow::AtimePolicy;
use zonal_fs::vfs::{FileModel, FileSystem};

use super::backend::Backend;
use super::event_count::EventCount;
use super::fsync_queue::FsyncQueue;
use super::kernel::Kernel;
use super::pages::Pages;
use crate::control::Control;
use crate::guarded::Guarded;
use crate::latency::Latencies;
use crate::options::{MountConfig, Restrict};

/// How long the kernel may cache names and attributes: only the kernel changes the tree.
pub(crate) const TTL: Duration = Duration::from_hours(24);

/// Content of a mount.
#[derive(Clone)]
pub struct MountContent {
    /// The file system.
    pub fs: Arc<dyn FileSystem>,
    /// The control directory in its root; `None` for a mount without one.
    pub control: Option<Arc<Control>>,
    /// Records the duration of requests.
    pub latencies: Arc<Latencies>,
}

/// `st_blksize` if the file system does not say.
const BLKSIZE: u32 = 4096;

/// The server of one mount. Clones serve the same mount.
#[derive(Clone)]
pub(crate) struct FuseServer(Arc<Parts>);

/// The parts of a server. None uses another; requests use them all.
pub(crate) struct Parts {
    pub(crate) fs: Backend,
    pub(crate) kernel: Kernel,
    pub(crate) pages: Pages,
    pub(crate) fsync_queue: FsyncQueue,
    /// Counts files that are closed after writing, so that an open can wait for a close that is on
    /// its way.
    pub(super) closings: EventCount,
    pub(super) control: Option<Arc<Control>>,
    /// Model of most files.
    pub(super) model: FileModel,
    pub(super) atime: AtimePolicy,
    /// Whether listings leave access times alone.
    pub(super) nodiratime: bool,
}

impl Deref for FuseServer {
    type Target = Parts;

    fn deref(&self) -> &Parts {
        &self.0
    }
}

impl FuseServer {
    /// A server of this content.
    pub(crate) fn new(content: MountContent, config: &MountConfig) -> Self {
        let MountContent { fs, control, latencies } = content;
        let fs = Guarded::new(fs, control.clone());
        let blksize = fs.statfs().map_or(BLKSIZE, |stat| stat.block_size);
        let model = fs.model(fs.root());
        let fs = Backend::new(fs, latencies);
        Self(Arc::new(Parts {
            kernel: Kernel::new(config, model, fs.nodes, blksize),
            fs,
            pages: Pages::new(config),
            fsync_queue: FsyncQueue::default(),
            closings: EventCount::default(),
            control,
            model,
            atime: config.atime,
            nodiratime: config.restrict.contains(Restrict::NODIRATIME),
        }))
    }

    /// Ends the threads of this mount that belong to no session.
    pub(crate) fn end_threads(&self) {
        self.pages.cache.tasks.close();
        self.fsync_queue.close();
        self.pages.writeback.ending.close();
        self.fs.guarded.became_read_only.close();
    }
}
