//! The hidden mount: attached to no directory; files of the visible mount are read through its
//! files (`FUSE_PASSTHROUGH`).
//!
//! To register a backing file, this process opens a file of the hidden mount, and its own threads
//! answer that request. One thread opens all these files; it has a file table of its own, without
//! the connection of the hidden mount, as [`own_mount`](crate::own_mount) explains.
//!
//! When the visible mount has ended, the same thread ends the hidden one, although programs may
//! still have files of it open: it makes requests until each serving thread, after one more answer,
//! has ended.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};

use rustix::fs::{AtFlags, Mode, OFlags, openat, statat};
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsconfig_set_string, fsmount,
    fsopen,
};

use crate::abi::InitFlags;
use crate::answer::BackingId;
use crate::device::Device;
use crate::init::{InitRequest, negotiate};
use crate::notify::Notifier;
use crate::own_mount::unshare_files;
use crate::serve::Serve;
use crate::session::Session;
use crate::worker_pool::{PoolOptions, WorkerPool};
use crate::{Errno, NodeId};

/// A name that does not exist: each stat(2) of it becomes a request.
const NOTHING: &str = "nothing";

/// A hidden mount that is not served yet. The name of a file in its root is its node number.
pub struct HiddenMount {
    device: Arc<Device>,
    root: OwnedFd,
    request_max: usize,
}

impl HiddenMount {
    /// Makes a hidden mount. Fails if the kernel lacks any flag of `request`. Needs root.
    pub fn new(request: &InitRequest) -> io::Result<Self> {
        let device = Arc::new(Device::open()?);
        let context = fsopen("fuse", FsOpenFlags::FSOPEN_CLOEXEC)?;
        let (user, group) = (rustix::process::getuid(), rustix::process::getgid());
        for (key, value) in [
            ("fd", device.raw().to_string()),
            ("rootmode", "40000".to_owned()),
            ("user_id", user.as_raw().to_string()),
            ("group_id", group.as_raw().to_string()),
        ] {
            fsconfig_set_string(context.as_fd(), key, value)?;
        }
        fsconfig_create(context.as_fd())?;
        let attributes = MountAttrFlags::MOUNT_ATTR_NODEV
            | MountAttrFlags::MOUNT_ATTR_NOSUID
            | MountAttrFlags::MOUNT_ATTR_NOATIME;
        let root = fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, attributes)?;
        let request_max = usize::try_from(request.request_max).map_err(io::Error::other)?;
        let negotiated = negotiate(&device, request, request_max)?;
        if !negotiated.contains(request.required | request.optional) {
            return Err(Errno::OPNOTSUPP.into());
        }
        Ok(Self { device, root, request_max })
    }

    /// Sends notifications about the hidden mount.
    pub fn notifier(&self) -> Notifier {
        Notifier::over(&self.device)
    }

    /// Serves it with `threads` threads, for the files of the mount of `session`. Fails if the
    /// kernel refuses backing files.
    pub fn serve(
        self,
        server: &Arc<dyn Serve>,
        session: &Session,
        threads: usize,
    ) -> io::Result<BackingFiles> {
        if !session.negotiated().contains(InitFlags::PASSTHROUGH) {
            return Err(Errno::OPNOTSUPP.into());
        }
        let mut connections = vec![self.device];
        for _ in 1..threads.max(1) {
            connections.push(Arc::new(connections[0].another()?));
        }
        let options = PoolOptions { request_max: self.request_max, ended: Arc::default() };
        let pool = WorkerPool::start("hidden", connections, server, &options)?;
        let over = Arc::clone(session.device());
        let (orders, inbox) = channel();
        let (ready, is_ready) = channel();
        let kept = [self.root.as_raw_fd(), over.raw()];
        let asker = thread::Builder::new().name("hidden".to_owned());
        let asker = asker.spawn(move || {
            let outcome = unshare_files(kept);
            let (ready, outcome) = match outcome {
                Ok(files) => (ready.send(Ok(())), Some(files)),
                Err(error) => (ready.send(Err(error)), None),
            };
            if let (Ok(()), Some([root, over])) = (ready, outcome) {
                ask(&root, &Device::from(over), &inbox);
            }
        })?;
        let files = BackingFiles { orders, over, options, pool, asker };
        let started = is_ready.recv().unwrap_or_else(|_| Err(Errno::IO.into()));
        // The asking thread has it open now.
        drop(self.root);
        // Any node number will do: this tests whether the kernel takes a backing file.
        match started.and_then(|()| files.open(NodeId(2))) {
            Ok(id) => {
                files.close(id);
                Ok(files)
            }
            Err(error) => {
                files.end();
                Err(error)
            }
        }
    }
}

/// Order to the asking thread.
enum Order {
    /// Opens a file of the hidden mount and registers it as a backing file.
    Open(NodeId, Sender<io::Result<BackingId>>),
    /// Makes requests until no thread answers.
    End,
}

/// Source of backing files on the hidden mount, which is served as long as this lives.
pub struct BackingFiles {
    orders: Sender<Order>,
    /// Connection of the visible mount.
    over: Arc<Device>,
    options: PoolOptions,
    pool: WorkerPool,
    asker: JoinHandle<()>,
}

impl BackingFiles {
    /// Registers the file `node` of the hidden mount as a backing file. Each call registers another
    /// one; the kernel accepts only one of them for a file at a time.
    pub fn open(&self, node: NodeId) -> io::Result<BackingId> {
        let (answer, answered) = channel();
        let gone = || io::Error::from(Errno::NOTCONN);
        self.orders.send(Order::Open(node, answer)).map_err(|_| gone())?;
        answered.recv().unwrap_or_else(|_| Err(gone()))
    }

    /// Unregisters a backing file. Files that are open with it stay open.
    pub fn close(&self, id: BackingId) {
        if let Err(error) = self.over.close_backing(id) {
            tracing::debug!(%error, "the kernel does not know the backing file any more");
        }
    }

    /// Ends the hidden mount. Its threads answer the requests that they have first.
    pub fn end(self) {
        self.options.ended.store(true, Ordering::SeqCst);
        let _ = self.orders.send(Order::End);
        if self.asker.join().is_err() {
            tracing::error!("the thread of a hidden mount panicked");
        }
        if let Err(error) = self.pool.join() {
            tracing::warn!(%error, "serving a hidden mount");
        }
    }
}

/// Body of the asking thread.
fn ask(root: &OwnedFd, over: &Device, orders: &Receiver<Order>) {
    for order in orders {
        match order {
            Order::Open(node, answer) => {
                let flags = OFlags::RDONLY | OFlags::DIRECT | OFlags::CLOEXEC;
                let file = openat(root, node.0.to_string(), flags, Mode::empty());
                let opened = file.map_err(io::Error::from);
                let _ = answer.send(opened.and_then(|file| over.open_backing(file.as_fd())));
            }
            Order::End => {
                while matches!(statat(root, NOTHING, AtFlags::empty()), Err(Errno::NOENT)) {}
                return;
            }
        }
    }
}
