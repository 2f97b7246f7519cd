//! A mount being served: requests come from the kernel and go to a [`Serve`].
//!
//! They come from `/dev/fuse`, as here, or by `io_uring`, as in `rings`. For `/dev/fuse`, each
//! thread of a `crew` has a connection and a buffer of its own. The buffer begins [`BEFORE_DATA`]
//! bytes before a page, so that what WRITE brings lies at the beginning of one.

use std::io;
use std::sync::Arc;

use rustix::mount::UnmountFlags;

use crate::abi::InitFlags;
use crate::crew::{Crew, Member, Next, Work};
use crate::device::Device;
use crate::fields::Malformed;
use crate::init::{Choice, Shake, Wishes, shake};
use crate::mount::{Mount, MountSpec};
use crate::notify::Notifier;
use crate::pages::{PAGE, Pages};
use crate::panics::caught;
use crate::reply::{Answer, Reply};
use crate::request::{self, BEFORE_DATA, Header, Op};
use crate::rings::{Rings, Threads};
use crate::{Errno, NodeId};

/// Least bytes that the kernel wants a buffer to have.
const BUFFER_MIN: usize = 8192;

/// Answers requests.
pub trait Serve: Send + Sync {
    /// Answers one, now or later.
    fn serve(&self, header: &Header, op: Op<'_>, reply: Reply);

    /// The mount has ended for its users, and umount(2) returns after this has. Said of mounts of
    /// the type `fuseblk` alone, and not of one that ended by force.
    fn end(&self) {}

    /// Serving a request, or ending, has panicked with this message. Who asked has got an error.
    fn panicked(&self, message: &str);
}

/// How requests come from the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// Read from `/dev/fuse`.
    Device,
    /// By `io_uring`.
    Rings,
}

impl Transport {
    /// As people read it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Device => "/dev/fuse",
            Self::Rings => "io_uring",
        }
    }
}

/// A mount that the kernel has agreed to.
pub struct Session {
    mount: Arc<Mount>,
    agreed: InitFlags,
    request_max: usize,
    threads: usize,
    rings: Option<Rings>,
}

impl Session {
    /// Mounts, and agrees with the kernel on how to go on.
    pub fn new(spec: &MountSpec, wishes: &Wishes, threads: usize) -> io::Result<Self> {
        let mount = Arc::new(Mount::new(spec)?);
        let request_max = usize::try_from(wishes.request_max).map_err(io::Error::other)?;
        let mut rings = match wishes.rings {
            Choice::Never => None,
            choice => {
                let made = Rings::new(&mount, (request_max, threads));
                unless_needed(made, choice)?
            }
        };
        let mut wishes = *wishes;
        if rings.is_some() {
            wishes.wished |= InitFlags::OVER_IO_URING;
        }
        let agreed = agree(mount.device(), &wishes, request_max)?;
        if let Some(made) = rings.take() {
            let registered = if agreed.contains(InitFlags::OVER_IO_URING) {
                made.register().map(|()| made)
            } else {
                Err(io::Error::new(io::ErrorKind::Unsupported, "the kernel does not offer it"))
            };
            rings = unless_needed(registered, wishes.rings)?;
        }
        Ok(Self { mount, agreed, request_max, threads, rings })
    }

    /// What the kernel does of what was wished.
    pub fn agreed(&self) -> InitFlags {
        self.agreed
    }

    /// How requests come.
    pub fn transport(&self) -> Transport {
        if self.rings.is_some() { Transport::Rings } else { Transport::Device }
    }

    /// Sends what the kernel is to hear unasked.
    pub fn notifier(&self) -> Notifier {
        Notifier::over(self.mount.device())
    }

    /// The mount's connection, for what goes by ioctls.
    pub(crate) fn device(&self) -> &Arc<Device> {
        self.mount.device()
    }

    /// Serves until the mount has ended. Unmounts if it ends for another reason.
    pub fn run(self, server: &Arc<dyn Serve>) -> io::Result<()> {
        let mount = Arc::clone(&self.mount);
        let outcome = self.serve(server);
        // Threads that still wait for requests have a hand on it too.
        mount.end(UnmountFlags::empty());
        outcome
    }

    fn serve(self, server: &Arc<dyn Serve>) -> io::Result<()> {
        let rings = self.rings.map(|rings| rings.serve(server));
        // Beside rings, one hears what needs no answer.
        let threads = if rings.is_some() { 1 } else { self.threads };
        let mut connections = vec![Arc::clone(self.mount.device())];
        for _ in 1..threads {
            connections.push(Arc::new(self.mount.device().another()?));
        }
        let how = Work { request_max: self.request_max, ended: Arc::default() };
        let outcome = Crew::start("fuse", connections, server, &how).and_then(Crew::join);
        outcome.and(rings.map_or(Ok(()), Threads::join))
    }
}

/// What came of an attempt at rings; an error only where there has to be some.
fn unless_needed(rings: io::Result<Rings>, choice: Choice) -> io::Result<Option<Rings>> {
    match rings {
        Ok(rings) => Ok(Some(rings)),
        Err(error) if choice == Choice::Needed => {
            Err(io::Error::new(error.kind(), format!("FUSE over io_uring: {error}")))
        }
        Err(error) => {
            tracing::info!(%error, "no FUSE over io_uring; requests come by /dev/fuse");
            Ok(None)
        }
    }
}

/// Answers the first messages of the kernel.
pub(crate) fn agree(device: &Device, wishes: &Wishes, request_max: usize) -> io::Result<InitFlags> {
    let mut buffer = Buffer::new(request_max);
    loop {
        let message = buffer.receive(device)?;
        let message = message.ok_or_else(|| io::Error::from(io::ErrorKind::NotConnected))?;
        match shake(message, wishes, device)? {
            Shake::Agreed(agreed) => return Ok(agreed),
            Shake::Again => {}
        }
    }
}

/// Serves one request after the other, in a thread of a crew.
pub(crate) fn work(
    device: &Arc<Device>,
    server: &dyn Serve,
    request_max: usize,
    member: &Member,
) -> io::Result<()> {
    let mut buffer = Buffer::new(request_max);
    let answers = Arc::clone(device) as Arc<dyn Answer>;
    loop {
        member.wait();
        let Some(message) = buffer.receive(device)? else { return Ok(()) };
        member.take();
        if let Err(error) = dispatch(message, server, &answers) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, error));
        }
        if member.end() == Next::Leave {
            return Ok(());
        }
    }
}

/// Has a message served, which is about the node that is returned; its answer may come later. Fails
/// only if it is none.
pub(crate) fn dispatch(
    message: &[u8],
    server: &dyn Serve,
    answers: &Arc<dyn Answer>,
) -> Result<NodeId, Malformed> {
    let (header, op) = request::parse(message)?;
    // A reply that is dropped has told the caller of an error.
    if let Err(message) = caught(|| answer(&header, op, server, answers)) {
        server.panicked(&message);
    }
    Ok(header.node)
}

fn answer(
    header: &Header,
    op: Result<Op<'_>, Malformed>,
    server: &dyn Serve,
    answers: &Arc<dyn Answer>,
) {
    let reply = || Reply::new(header.unique, Arc::clone(answers));
    match op {
        // The kernel then ends the connection, which all threads hear.
        Ok(Op::Destroy) => {
            server.end();
            reply().ok();
        }
        // What was asked is answered as soon as it can be. With this, the kernel says it no more.
        Ok(Op::Interrupt) => reply().error(Errno::NOSYS),
        Ok(op) if op.is_answered() => server.serve(header, op, reply()),
        Ok(op) => server.serve(header, op, Reply::none()),
        Err(error) => {
            tracing::error!(%error, "a request that cannot be read");
            reply().error(Errno::INVAL);
        }
    }
}

/// Where requests land.
struct Buffer {
    pages: Pages,
}

impl Buffer {
    fn new(request_max: usize) -> Self {
        Self { pages: Pages::new(PAGE + request_max.max(BUFFER_MIN)) }
    }

    /// The next message; `None` once the mount has ended.
    fn receive(&mut self, device: &Device) -> io::Result<Option<&[u8]>> {
        let bytes = &mut self.pages.bytes_mut()[PAGE - BEFORE_DATA..];
        Ok(device.receive(bytes)?.map(|len| &bytes[..len]))
    }
}
