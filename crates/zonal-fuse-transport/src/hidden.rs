//! A mount that no directory shows, and files of another mount that are read through it (`FUSE_PASSTHROUGH`).
//!
//! To name a file of the hidden mount to the kernel it has to be open, so this process makes
//! requests that its own threads answer. So one thread makes all these requests, and it has a
//! table of its own (`alone`) of open files, without the connection of the hidden mount; `apart`
//! says why.
//!
//! The same thread ends the hidden mount when the other one has ended, though programs may have files of it open: the
//! answering threads wait for requests, so it makes some, and each of them ends after its next answer.

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
use crate::apart::alone;
use crate::crew::{Crew, Work};
use crate::device::{BackingId, Device};
use crate::init::Wishes;
use crate::notify::Notifier;
use crate::session::{self, Serve, Session};
use crate::{Errno, NodeId};

/// A name that the kernel asks for each time, since nothing has it.
const NOTHING: &str = "nothing";

/// A hidden mount that is not served yet. In its root, the name of a file is the number of its node.
pub struct Hidden {
    device: Arc<Device>,
    root: OwnedFd,
    request_max: usize,
}

impl Hidden {
    /// Makes one, and agrees with the kernel on `wishes`, of which none may be missing. Takes root.
    pub fn new(wishes: &Wishes) -> io::Result<Self> {
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
        let request_max = usize::try_from(wishes.request_max).map_err(io::Error::other)?;
        let agreed = session::agree(&device, wishes, request_max)?;
        if !agreed.contains(wishes.needed | wishes.wished) {
            return Err(Errno::OPNOTSUPP.into());
        }
        Ok(Self { device, root, request_max })
    }

    /// Sends what the kernel is to hear of the hidden mount unasked.
    pub fn notifier(&self) -> Notifier {
        Notifier::over(&self.device)
    }

    /// Has so many threads serve it, for files of the mount of `session`. Fails if the kernel does not let
    /// those be read so.
    pub fn serve(
        self,
        server: &Arc<dyn Serve>,
        session: &Session,
        threads: usize,
    ) -> io::Result<Backings> {
        if !session.agreed().contains(InitFlags::PASSTHROUGH) {
            return Err(Errno::OPNOTSUPP.into());
        }
        let mut connections = vec![self.device];
        for _ in 1..threads.max(1) {
            connections.push(Arc::new(connections[0].another()?));
        }
        let work = Work { request_max: self.request_max, ended: Arc::default() };
        let crew = Crew::start("hidden", connections, server, &work)?;
        let over = Arc::clone(session.device());
        let (orders, inbox) = channel();
        let (ready, is_ready) = channel();
        let kept = [self.root.as_raw_fd(), over.raw()];
        let asker = thread::Builder::new().name("hidden".to_owned());
        let asker = asker.spawn(move || {
            let outcome = alone(kept);
            let (ready, outcome) = match outcome {
                Ok(files) => (ready.send(Ok(())), Some(files)),
                Err(error) => (ready.send(Err(error)), None),
            };
            if let (Ok(()), Some([root, over])) = (ready, outcome) {
                ask(&root, &Device::from(over), &inbox);
            }
        })?;
        let backings = Backings { orders, over, work, crew, asker };
        let started = is_ready.recv().unwrap_or_else(|_| Err(Errno::IO.into()));
        // From now on the asking thread has it open.
        drop(self.root);
        // Any number will do: whether the kernel takes a file is the question.
        match started.and_then(|()| backings.open(NodeId(2))) {
            Ok(id) => {
                backings.close(id);
                Ok(backings)
            }
            Err(error) => {
                backings.end();
                Err(error)
            }
        }
    }
}

/// What the asking thread is to do.
enum Order {
    /// Open a file of the hidden mount, and make it a backing file.
    Open(NodeId, Sender<io::Result<BackingId>>),
    /// Make requests until nobody answers.
    End,
}

/// Backing files on a hidden mount, which is served as long as this lives.
pub struct Backings {
    orders: Sender<Order>,
    /// The connection of the mount whose files are read through them.
    over: Arc<Device>,
    work: Work,
    crew: Crew,
    asker: JoinHandle<()>,
}

impl Backings {
    /// A backing file: the file of this node on the hidden mount. Two calls give two, of which the kernel does
    /// not take both for one file.
    pub fn open(&self, node: NodeId) -> io::Result<BackingId> {
        let (answer, answered) = channel();
        let gone = || io::Error::from(Errno::NOTCONN);
        self.orders.send(Order::Open(node, answer)).map_err(|_| gone())?;
        answered.recv().unwrap_or_else(|_| Err(gone()))
    }

    /// Nothing will be opened with this backing file any more. What is open stays so.
    pub fn close(&self, id: BackingId) {
        if let Err(error) = self.over.close_backing(id) {
            tracing::debug!(%error, "a backing file that is gone");
        }
    }

    /// Ends the hidden mount. Requests that are with its threads are answered before.
    pub fn end(self) {
        self.work.ended.store(true, Ordering::SeqCst);
        let _ = self.orders.send(Order::End);
        if self.asker.join().is_err() {
            tracing::error!("the thread of a hidden mount panicked");
        }
        if let Err(error) = self.crew.join() {
            tracing::warn!(%error, "serving a hidden mount");
        }
    }
}

/// What the asking thread does.
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
