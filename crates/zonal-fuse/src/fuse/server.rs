//! The server of one mount: its state, and how requests call the file system.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};
use std::time::Duration;

use zonal_fs::FsError;
use zonal_fs::furrow::AtimePolicy;
use zonal_fs::named::Named;
use zonal_fs::vfs::{Attr, FileModel, FileSystem, Ino, Wake};
use zonal_fuse_transport::abi::{self, InitFlags};
use zonal_fuse_transport::init::{InitRequest, UseRings};
use zonal_fuse_transport::notify::Notifier;
use zonal_fuse_transport::{Errno, NodeId};

use super::closings::Closings;
use super::convert;
use super::enospc_retry::ReleaseCount;
use super::fsync_queue::FsyncQueue;
use super::lookup_counts::LookupCounts;
use super::lost_names::LostNames;
use super::nodes::Nodes;
use super::page_cache::{PageCache, PageTasks};
use super::passthrough::PassthroughFiles;
use super::real_time::now;
use super::rights::TakenCapability;
use super::writeback::{Flusher, Writeback};
use super::zone_writes::ZoneWrites;
use crate::control::Control;
use crate::guarded::Guarded;
use crate::latency::{Latencies, Operation};
use crate::options::{Access, AsyncDirect, DirectWrites, MountConfig, Restrict, TransportChoice};
use crate::read_only::RemountTrigger;

/// How long the kernel may cache names and attributes: only the kernel changes the tree.
pub const TTL: Duration = Duration::from_hours(24);

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

/// Largest read or write in bytes: the kernel's limit of 256 pages.
pub(super) const REQUEST_MAX: u32 = 1 << 20;

/// `st_blksize` if the file system does not say.
const BLKSIZE: u32 = 4096;

/// Most background requests (readahead, asynchronous direct I/O) that the kernel sends at once. Its
/// default of 12 is less than a usual queue depth of 32.
pub(super) const BACKGROUND_MAX: u16 = 64;

/// The server of one mount. Clones serve the same mount.
#[derive(Clone)]
pub struct FuseServer {
    pub(super) shared: Arc<Shared>,
}

pub(super) struct Shared {
    pub(super) fs: Arc<Guarded>,
    pub(super) control: Option<Arc<Control>>,
    pub(super) latencies: Arc<Latencies>,
    pub(super) nodes: Nodes,
    /// Model of most of its files.
    pub(super) model: FileModel,
    /// `st_blksize`.
    pub(super) blksize: u32,
    pub(super) lookup_counts: LookupCounts,
    pub(super) releases: ReleaseCount,
    pub(super) lost_names: LostNames,
    pub(super) page_cache: PageCache,
    pub(super) fsync_queue: FsyncQueue,
    pub(super) writeback: Arc<Writeback>,
    pub(super) direct_writes: DirectWrites,
    pub(super) passthrough: PassthroughFiles,
    /// Access of the mount at its start.
    pub(super) access: Access,
    pub(super) async_direct: AsyncDirect,
    pub(super) zone_writes: ZoneWrites,
    pub(super) became_read_only: Arc<RemountTrigger>,
    /// Counts files that are closed after writing.
    pub(super) closings: Closings,
    pub(super) taken_capability: TakenCapability,
    /// Sends notifications to the kernel; set by [`connect`](FuseServer::connect).
    pub(super) notifier: OnceLock<Notifier>,
    /// Negotiated INIT flags; set likewise.
    pub(super) negotiated: OnceLock<InitFlags>,
    pub(super) atime: AtimePolicy,
    /// Whether listings leave access times alone.
    pub(super) nodiratime: bool,
    pub(super) rings: UseRings,
    /// Whether requests fail without reaching the file system.
    pub(super) stopped: AtomicBool,
    /// Attributes of the root when the shutdown ioctl stopped the mount.
    pub(super) stopped_root: OnceLock<Attr>,
    /// Every request inside the file system holds this for reading.
    pub(super) running: RwLock<()>,
    /// Access of the file system just before it was closed.
    pub(super) access_at_end: OnceLock<Access>,
    /// Outcome of closing the file system, if the end of a `fuseblk` has closed it.
    pub(super) closed: Mutex<Option<Result<(), FsError>>>,
}

impl Shared {
    /// Whether writes can be short: then the kernel must not send asynchronous direct I/O.
    fn has_short_writes(&self) -> bool {
        self.model == FileModel::Zones && self.access == Access::ReadWrite
    }
}

impl FuseServer {
    /// A server of this content.
    pub fn new(content: MountContent, config: &MountConfig) -> Self {
        let MountContent { fs, control, latencies } = content;
        let became_read_only = Arc::<RemountTrigger>::default();
        let fs = Arc::new(Guarded::new(fs, Arc::clone(&became_read_only), control.clone()));
        let blksize = fs.statfs().map_or(BLKSIZE, |stat| stat.block_size);
        let shared = Shared {
            nodes: Nodes::new(fs.root()),
            model: fs.model(fs.root()),
            blksize,
            zone_writes: ZoneWrites::default(),
            closings: Closings::default(),
            taken_capability: TakenCapability::default(),
            became_read_only,
            fs,
            control,
            latencies,
            lookup_counts: LookupCounts::default(),
            releases: ReleaseCount::default(),
            lost_names: LostNames::default(),
            page_cache: PageCache::default(),
            fsync_queue: FsyncQueue::default(),
            writeback: Arc::new(Writeback::new(config.write_cache)),
            direct_writes: config.direct_writes,
            passthrough: PassthroughFiles::default(),
            access: config.access,
            async_direct: config.async_direct,
            notifier: OnceLock::new(),
            negotiated: OnceLock::new(),
            atime: config.atime,
            nodiratime: config.restrict.contains(Restrict::NODIRATIME),
            rings: match config.transport {
                TransportChoice::Device => UseRings::Never,
                TransportChoice::Fastest => UseRings::IfOffered,
                TransportChoice::Rings => UseRings::Required,
            },
            stopped: AtomicBool::new(false),
            stopped_root: OnceLock::new(),
            running: RwLock::new(()),
            access_at_end: OnceLock::new(),
            closed: Mutex::default(),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Sets the notifier to the kernel, and the negotiated INIT flags.
    pub fn connect(&self, notifier: Notifier, negotiated: InitFlags) {
        let first = self.shared.notifier.set(notifier).is_ok()
            && self.shared.negotiated.set(negotiated).is_ok();
        assert!(first, "a mount has one session");
    }

    /// Refuses all further requests, and waits for running ones without a limit.
    pub(super) fn stop(&self) {
        self.refuse();
        drop(self.shared.running.write().unwrap_or_else(PoisonError::into_inner));
    }

    /// Refuses all further requests.
    fn refuse(&self) {
        self.shared.stopped.store(true, Ordering::SeqCst);
    }

    /// Refuses all further requests, waits for running ones, unpins all inodes that the kernel
    /// knows, which deletes inodes without a name, and closes the file system. Returns the outcome
    /// of the first call; the end of a `fuseblk` makes it before.
    pub fn close(&self) -> Result<(), FsError> {
        let mut closed = self.closed();
        closed.take().unwrap_or_else(|| self.close_now())
    }

    pub(super) fn closed(&self) -> MutexGuard<'_, Option<Result<(), FsError>>> {
        self.shared.closed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn close_now(&self) -> Result<(), FsError> {
        self.stop();
        self.shared.lookup_counts.release_all(&*self.shared.fs);
        let _ = self.shared.access_at_end.set(self.shared.fs.access());
        self.shared.fs.shutdown()
    }

    /// Receiver of page-cache tasks, for the thread that does them. The thread ends with
    /// [`end_page_tasks`](Self::end_page_tasks).
    pub(crate) fn page_tasks(&self) -> PageTasks {
        self.shared.page_cache.open()
    }

    /// Ends the thread of page-cache tasks.
    pub(crate) fn end_page_tasks(&self) {
        self.shared.page_cache.close();
    }

    /// The thread that makes the kernel flush collected writes; `None` if it collects none. It ends
    /// with [`end_flusher`](Self::end_flusher).
    pub(crate) fn flusher(&self) -> Option<Flusher> {
        self.shared.writeback.flusher()
    }

    /// Stops the periodic writeback flush.
    pub(crate) fn end_flusher(&self) {
        self.shared.writeback.close();
    }

    /// Access of the file system when it was closed.
    pub(crate) fn access_at_end(&self) -> Access {
        self.shared.access_at_end.get().copied().unwrap_or(self.shared.access)
    }

    /// Fires when the file system has become read-only after a failure.
    pub(crate) fn became_read_only(&self) -> &RemountTrigger {
        &self.shared.became_read_only
    }

    /// Fires the remount to read-only if the file system has become read-only.
    pub(super) fn watch_access(&self) {
        if self.shared.fs.access() == Access::ReadOnly {
            self.shared.became_read_only.fire();
        }
    }

    /// A thread of the mount has panicked: the file system becomes read-only.
    pub(crate) fn panicked(&self, message: &str) {
        self.shared.fs.note(message);
    }

    /// Does regular work, unless stopped.
    pub fn tick(&self) {
        self.shared.latencies.sample();
        // The file system logs once that the host is full.
        if let Some(Err(error)) = self.inside(|fs| fs.tick())
            && !error.is_host_full()
        {
            tracing::error!(%error, "regular commit failed");
        }
    }

    /// Sets the callback for work that [`tick`](Self::tick) can do at once.
    pub fn on_work(&self, wake: Wake) {
        self.shared.fs.on_work(wake);
    }

    /// Calls the file system; `None` if the server is stopped.
    pub(super) fn inside<T>(&self, call: impl FnOnce(&dyn FileSystem) -> T) -> Option<T> {
        // Checked before the lock too: `stop` waits for it behind running requests.
        if self.is_stopped() {
            return None;
        }
        let _running = self.shared.running.read().unwrap_or_else(PoisonError::into_inner);
        (!self.is_stopped()).then(|| call(&*self.shared.fs))
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.shared.stopped.load(Ordering::SeqCst)
    }

    /// Runs one operation of the file system, and measures how long it takes.
    pub(super) fn run<T>(
        &self,
        operation: Operation,
        ino: NodeId,
        run: impl FnMut(&dyn FileSystem, Ino) -> Result<T, FsError>,
    ) -> Result<T, Errno> {
        let since_ns = self.shared.latencies.now_ns();
        let outcome = self.call(operation, ino, run);
        self.shared.latencies.record(operation, since_ns);
        outcome
    }

    /// Runs one operation of the file system. Logs failures that callers see as EIO, since the
    /// errno says so little.
    pub(super) fn call<T>(
        &self,
        operation: Operation,
        ino: NodeId,
        mut run: impl FnMut(&dyn FileSystem, Ino) -> Result<T, FsError>,
    ) -> Result<T, Errno> {
        let ino_of = self.ino(ino);
        let outcome = self.inside(|fs| self.shared.releases.with_space(fs, || run(fs, ino_of)));
        let outcome = outcome.ok_or(Errno::IO)?;
        outcome.map_err(|error| {
            let errno = Errno::from_raw_os_error(error.errno());
            if errno == Errno::IO {
                let file = Named::new(&*self.shared.fs, ino_of);
                tracing::error!(operation = operation.name(), %file, %error, "answered EIO");
            }
            errno
        })
    }

    /// The inode of a node.
    pub(super) fn ino(&self, node: NodeId) -> Ino {
        self.shared.nodes.ino(node)
    }

    /// Attributes for an answer that is about to be sent.
    pub(super) fn attr(&self, attr: &Attr) -> abi::Attr {
        self.shared.zone_writes.see(attr.ino);
        // Precedes the answer with a notification if the file is losing a name.
        if self.shared.lost_names.is_losing(attr.ino, now) {
            self.forget_attributes(self.shared.nodes.node(attr.ino));
        }
        convert::attr(attr, self.shared.blksize)
    }

    /// Makes the kernel ask for the attributes of an inode again.
    pub(super) fn forget_attributes(&self, ino: NodeId) {
        if let Some(notifier) = self.shared.notifier.get()
            && let Err(error) = notifier.inval_inode(ino, -1, 0)
        {
            // The kernel may not know the inode any more.
            tracing::debug!(inode = ino.0, %error, "attributes not forgotten");
        }
    }

    /// Negotiated INIT flags; none before [`connect`](Self::connect).
    pub(super) fn negotiated(&self) -> InitFlags {
        self.shared.negotiated.get().copied().unwrap_or_default()
    }

    /// Whether to make a hidden mount. It needs root, and a kernel that collects no writes.
    fn wants_hidden(&self) -> bool {
        self.shared.async_direct == AsyncDirect::Together
            && !self.shared.writeback.is_on()
            && rustix::process::geteuid().is_root()
    }

    /// Flags and sizes that the server asks the kernel for.
    pub(crate) fn init_request(&self) -> InitRequest {
        let zones = self.shared.model == FileModel::Zones;
        // Without these, permissions would be wrong. Zone files have no ACLs.
        let acl = if zones { InitFlags::empty() } else { InitFlags::POSIX_ACL };
        // Not FUSE_ALLOW_IDMAP: with it most requests of any mount carry no user.
        // Not FUSE_ATOMIC_O_TRUNC: we would truncate before the kernel checks whether the file is a
        // running program.
        let mut optional = InitFlags::HANDLE_KILLPRIV_V2
            | InitFlags::PARALLEL_DIROPS
            | InitFlags::DO_READDIRPLUS
            | InitFlags::READDIRPLUS_AUTO
            | InitFlags::EXPLICIT_INVAL_DATA
            | InitFlags::EXPORT_SUPPORT
            | InitFlags::HAS_IOCTL_DIR
            | InitFlags::SETXATTR_EXT;
        // With ASYNC_DIO the kernel turns a short asynchronous write into EIO (fuse_get_res_by_io);
        // without it, it sends asynchronous reads one after the other, except by a hidden mount.
        if !self.shared.has_short_writes() {
            optional |= InitFlags::ASYNC_DIO;
        } else if self.wants_hidden() {
            optional |= InitFlags::PASSTHROUGH;
        }
        if !zones {
            // A zone file that is open for writing cannot be mapped: pages are not written in
            // order.
            optional |= InitFlags::DIRECT_IO_ALLOW_MMAP;
        }
        if self.shared.atime != AtimePolicy::Always {
            // With `strictatime` every readlink(2) must reach us.
            optional |= InitFlags::CACHE_SYMLINKS;
        }
        if self.shared.writeback.is_on() {
            optional |= InitFlags::WRITEBACK_CACHE;
        }
        InitRequest {
            required: InitFlags::DONT_MASK | acl,
            optional,
            request_max: REQUEST_MAX,
            background_max: BACKGROUND_MAX,
            rings: self.shared.rings,
        }
    }
}
