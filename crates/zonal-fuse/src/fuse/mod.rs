//! FUSE requests turned into calls of a [`FileSystem`].
//!
//! - `nodes`: inode numbers of the two sides.
//! - `open`: opening and closing; `openings`: how zone files are open, and with which backing file.
//! - `hidden`: the mount by which zone files are read directly.
//! - `zone_files`: writes to files that are zones.
//! - `ops`: one method per request; `data`: those of file contents; `actions`: what several of them share; `reply`: the answers.
//! - `convert`: attributes, times, kinds and flags of the two sides.
//! - `ioctl`: inode flags and shutdown.
//! - `inbox`: work for the threads of a mount.
//! - `links`: files that are losing a name, and the kernel's count of their names.
//! - `pins`: how often the kernel has looked each inode up.
//! - `pages`: pages of the page cache that direct writes make stale, or fill.
//! - `rights`: what a caller may do, and what a change takes of privileges.
//! - `syncs`: waiting for a commit, without a serving thread.
//! - `space`: waiting for the space of deleted files.
//! - `write_back`: what the kernel collects before it sends it.
//!
//! # What the kernel does itself
//! It checks permissions (`default_permissions`), keeps locks, keeps the page cache and, since
//! only the kernel changes the tree, may keep names and attributes as long as it likes: [`TTL`]. It
//! strips setgid in chmod and create, knowing the caller's groups and capabilities.
//!
//! # What is left to us
//! The umask and default ACLs (`FUSE_DONT_MASK`), and clearing setuid, setgid and capabilities on
//! write, truncate and chown (`FUSE_HANDLE_KILLPRIV_V2`). Offsets of appending writes come from the
//! kernel, which knows the size: this covers `RWF_APPEND` too, for which requests have no flag.

mod actions;
mod convert;
mod data;
mod hidden;
mod inbox;
mod ioctl;
mod links;
mod nodes;
mod open;
mod openings;
mod ops;
mod pages;
mod pins;
mod reply;
mod rights;
mod space;
mod syncs;
mod write_back;
mod zone_files;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};
use std::time::Duration;

use zonal_fs::FsError;
use zonal_fs::named::Named;
use zonal_fs::vfs::{Attr, FileModel, FileSystem, Ino, Wake};
use zonal_fuse_transport::abi::{self, InitFlags};
use zonal_fuse_transport::init::{Choice, Wishes};
use zonal_fuse_transport::notify::Notifier;
use zonal_fuse_transport::{Errno, NodeId};

use crate::control;
use crate::guarded::Guarded;
use crate::latency::{Latencies, Operation};
use crate::options::{
    Access, AsyncDirect, Atime, DirectWrites, MountConfig, Restrict, TransportChoice, WriteCache,
};
use crate::read_only::RemountTrigger;
pub(crate) use hidden::make_hidden;
use links::Links;
use nodes::Nodes;
use open::Closings;
use openings::Openings;
pub(crate) use pages::PageTasks;
use pages::Pages;
use pins::Pins;
use rights::TakenCapability;
use space::Releases;
use syncs::Syncs;
use write_back::Collected;
use zone_files::ZoneWrites;

/// How long the kernel may keep names and attributes. Nobody but the kernel changes the tree.
pub const TTL: Duration = Duration::from_hours(24);

/// Largest read and write request: the kernel's limit of 256 pages.
const REQUEST_MAX: u32 = 1 << 20;

/// `st_blksize` of a file system that does not say.
const BLKSIZE: u32 = 4096;

/// Requests in the background (readahead, asynchronous direct I/O) that the kernel sends at once.
/// Its default of 12 leaves a queue depth of 32 waiting.
const BACKGROUND_MAX: u16 = 64;

/// A file system as FUSE sees it. Clones serve the same file system.
#[derive(Clone)]
pub struct Front {
    shared: Arc<Shared>,
}

struct Shared {
    fs: Arc<Guarded>,
    latencies: Arc<Latencies>,
    nodes: Nodes,
    /// What its files are as a rule.
    model: FileModel,
    /// `st_blksize`.
    blksize: u32,
    pins: Pins,
    releases: Releases,
    links: Links,
    pages: Pages,
    syncs: Syncs,
    collected: Collected,
    direct_writes: DirectWrites,
    openings: Openings,
    /// As it was mounted.
    access: Access,
    async_direct: AsyncDirect,
    zone_writes: ZoneWrites,
    became_read_only: Arc<RemountTrigger>,
    /// Counts files that were closed after writing.
    closings: Closings,
    taken_capability: TakenCapability,
    /// Sends notifications to the kernel; set once there is a session.
    notifier: OnceLock<Notifier>,
    /// What the kernel has agreed to; set likewise.
    agreed: OnceLock<InitFlags>,
    write_cache: WriteCache,
    atime: Atime,
    /// Listings move no access time.
    nodiratime: bool,
    rings: Choice,
    /// Nothing reaches the file system any more.
    stopped: AtomicBool,
    /// Attributes of the root when the shutdown ioctl stopped the mount.
    stopped_root: OnceLock<Attr>,
    /// Held for reading by every request inside the file system.
    running: RwLock<()>,
    /// Whether it could be written to when it was closed.
    access_at_end: OnceLock<Access>,
    /// The outcome of closing it, if the kernel has had it closed.
    closed: Mutex<Option<Result<(), FsError>>>,
}

impl Shared {
    /// Whether writes can be short, so that the kernel must not be asked for asynchronous direct I/O.
    fn has_short_writes(&self) -> bool {
        self.model == FileModel::Zones && self.access == Access::ReadWrite
    }
}

impl Front {
    /// Serves `fs`, and measures it with `latencies`.
    pub fn new(fs: Arc<dyn FileSystem>, latencies: Arc<Latencies>, config: &MountConfig) -> Self {
        let became_read_only = Arc::<RemountTrigger>::default();
        let fs = Arc::new(Guarded::new(fs, Arc::clone(&became_read_only)));
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
            latencies,
            pins: Pins::default(),
            releases: Releases::default(),
            links: Links::default(),
            pages: Pages::default(),
            syncs: Syncs::default(),
            collected: Collected::default(),
            direct_writes: config.direct_writes,
            openings: Openings::default(),
            access: config.access,
            async_direct: config.async_direct,
            notifier: OnceLock::new(),
            agreed: OnceLock::new(),
            write_cache: config.write_cache,
            atime: config.atime,
            nodiratime: config.restrict.contains(Restrict::NODIRATIME),
            rings: match config.transport {
                TransportChoice::Device => Choice::Never,
                TransportChoice::Fastest => Choice::Possible,
                TransportChoice::Rings => Choice::Needed,
            },
            stopped: AtomicBool::new(false),
            stopped_root: OnceLock::new(),
            running: RwLock::new(()),
            access_at_end: OnceLock::new(),
            closed: Mutex::default(),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Sets how notifications reach the kernel, and what it has agreed to.
    pub fn connect(&self, notifier: Notifier, agreed: InitFlags) {
        let first =
            self.shared.notifier.set(notifier).is_ok() && self.shared.agreed.set(agreed).is_ok();
        assert!(first, "a front end has one session");
    }

    /// Refuses all further requests, and waits for those that are running, however long that is.
    fn stop(&self) {
        self.refuse();
        drop(self.shared.running.write().unwrap_or_else(PoisonError::into_inner));
    }

    /// Refuses all further requests.
    fn refuse(&self) {
        self.shared.stopped.store(true, Ordering::SeqCst);
    }

    /// Refuses all further requests, waits for those that are running, lets go of every inode that
    /// the kernel still knew, so that those without a name are deleted, and closes the file system,
    /// unless the end of the mount has done that.
    pub fn close(&self) -> Result<(), FsError> {
        let mut closed = self.closed();
        closed.take().unwrap_or_else(|| self.close_now())
    }

    fn closed(&self) -> MutexGuard<'_, Option<Result<(), FsError>>> {
        self.shared.closed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn close_now(&self) -> Result<(), FsError> {
        self.stop();
        self.shared.pins.release_all(&*self.shared.fs);
        let _ = self.shared.access_at_end.set(self.shared.fs.access());
        self.shared.fs.shutdown()
    }

    /// What is to be done about pages, for the thread that does it. The thread ends
    /// with [`end_page_tasks`](Self::end_page_tasks).
    pub(crate) fn page_tasks(&self) -> PageTasks {
        self.shared.pages.open()
    }

    /// Nothing more is done about pages.
    pub(crate) fn end_page_tasks(&self) {
        self.shared.pages.close();
    }

    /// The kernel is not made to send anything more.
    pub(crate) fn end_sending(&self) {
        self.shared.collected.close();
    }

    /// Whether the file system could still be written to when it was closed.
    pub(crate) fn access_at_end(&self) -> Access {
        self.shared.access_at_end.get().copied().unwrap_or(self.shared.access)
    }

    /// Fires when the file system has become read-only after a failure.
    pub(crate) fn became_read_only(&self) -> &RemountTrigger {
        &self.shared.became_read_only
    }

    /// A thread of the mount has panicked: the file system becomes read-only.
    pub(crate) fn panicked(&self, message: &str) {
        self.shared.fs.note(message);
    }

    /// Does regular work, unless stopped.
    pub fn tick(&self) {
        if let Some(Err(error)) = self.inside(|fs| fs.tick()) {
            tracing::error!(%error, "regular commit failed");
        }
    }

    /// Sets how to hear of work for [`tick`](Self::tick).
    pub fn on_work(&self, wake: Wake) {
        self.shared.fs.on_work(wake);
    }

    /// Calls the file system, unless stopped.
    fn inside<T>(&self, call: impl FnOnce(&dyn FileSystem) -> T) -> Option<T> {
        // Once before, so as not to queue behind requests that wait for the running one.
        if self.is_stopped() {
            return None;
        }
        let _running = self.shared.running.read().unwrap_or_else(PoisonError::into_inner);
        (!self.is_stopped()).then(|| call(&*self.shared.fs))
    }

    fn is_stopped(&self) -> bool {
        self.shared.stopped.load(Ordering::SeqCst)
    }

    /// Runs one operation of the file system, and measures how long it takes. What is asked of the
    /// control directory does not count.
    fn run<T>(
        &self,
        operation: Operation,
        ino: NodeId,
        run: impl FnMut(&dyn FileSystem, Ino) -> Result<T, FsError>,
    ) -> Result<T, Errno> {
        let since_ns = self.shared.latencies.now_ns();
        let outcome = self.call(operation, ino, run);
        if !control::is_own(self.ino(ino)) {
            self.shared.latencies.record(operation, since_ns);
        }
        outcome
    }

    /// Runs one operation of the file system. Failures that users see as EIO are logged, since
    /// the errno says so little.
    fn call<T>(
        &self,
        operation: Operation,
        ino: NodeId,
        mut run: impl FnMut(&dyn FileSystem, Ino) -> Result<T, FsError>,
    ) -> Result<T, Errno> {
        let ino_of = self.ino(ino);
        let outcome = self.inside(|fs| self.shared.releases.with_space(fs, || run(fs, ino_of)));
        let Some(outcome) = outcome else {
            return Err(Errno::IO);
        };
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
    fn ino(&self, node: NodeId) -> Ino {
        self.shared.nodes.ino(node)
    }

    /// Attributes that are told now, with the inode's own number.
    fn attr(&self, attr: &Attr) -> abi::Attr {
        self.shared.zone_writes.see(attr.ino);
        self.keep_count(attr.ino);
        convert::attr(attr, self.shared.blksize)
    }

    /// Makes the kernel ask for an inode's attributes again.
    fn forget_attributes(&self, ino: NodeId) {
        if let Some(notifier) = self.shared.notifier.get()
            && let Err(error) = notifier.inval_inode(ino, -1, 0)
        {
            // The kernel may not know the inode any more.
            tracing::debug!(inode = ino.0, %error, "attributes not forgotten");
        }
    }

    /// What the kernel has agreed to; nothing before it has.
    fn agreed(&self) -> InitFlags {
        self.shared.agreed.get().copied().unwrap_or_default()
    }

    /// Whether there is to be a hidden mount, which takes root, and a kernel that collects no writes.
    fn wants_hidden(&self) -> bool {
        self.shared.async_direct == AsyncDirect::Together
            && self.shared.write_cache == WriteCache::Through
            && rustix::process::geteuid().is_root()
    }

    /// What is wanted of the kernel.
    pub(crate) fn wishes(&self) -> Wishes {
        let zones = self.shared.model == FileModel::Zones;
        // Without these, permissions would be wrong. Zone files have no ACLs.
        let acl = if zones { InitFlags::empty() } else { InitFlags::POSIX_ACL };
        // Not FUSE_ALLOW_IDMAP: with it the kernel names no user in most requests, on any mount.
        // Not FUSE_ATOMIC_O_TRUNC: the kernel would have us truncate before it looks whether the file
        // is a program that runs.
        let mut wished = InitFlags::HANDLE_KILLPRIV_V2
            | InitFlags::PARALLEL_DIROPS
            | InitFlags::DO_READDIRPLUS
            | InitFlags::READDIRPLUS_AUTO
            | InitFlags::EXPLICIT_INVAL_DATA
            | InitFlags::EXPORT_SUPPORT
            | InitFlags::HAS_IOCTL_DIR
            | InitFlags::SETXATTR_EXT;
        // With it, the kernel makes EIO of a short asynchronous write (fuse_get_res_by_io); without it, it sends
        // asynchronous reads in turn, except by a hidden mount.
        if !self.shared.has_short_writes() {
            wished |= InitFlags::ASYNC_DIO;
        } else if self.wants_hidden() {
            wished |= InitFlags::PASSTHROUGH;
        }
        if !zones {
            // A zone file that is open for writing cannot be mapped: pages are not written in order.
            wished |= InitFlags::DIRECT_IO_ALLOW_MMAP;
        }
        if self.shared.atime != Atime::Always {
            // Otherwise every look at a link is to be seen.
            wished |= InitFlags::CACHE_SYMLINKS;
        }
        if self.shared.write_cache == WriteCache::Back {
            wished |= InitFlags::WRITEBACK_CACHE;
        }
        Wishes {
            needed: InitFlags::DONT_MASK | acl,
            wished,
            request_max: REQUEST_MAX,
            background_max: BACKGROUND_MAX,
            rings: self.shared.rings,
        }
    }
}

#[cfg(test)]
mod tests;
