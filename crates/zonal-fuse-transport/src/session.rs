//! A mount being served: requests come from `/dev/fuse` and go to a [`Serve`].
//!
//! Each thread has a connection and a buffer of its own. The buffer begins [`BEFORE_DATA`] bytes before
//! a page, so that what WRITE brings lies at the beginning of one.

use std::io;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use crate::Errno;
use crate::abi::InitFlags;
use crate::device::Device;
use crate::init::{Shake, Wishes, shake};
use crate::mount::{Mount, MountSpec};
use crate::notify::Notifier;
use crate::pages::{PAGE, Pages};
use crate::reply::Reply;
use crate::request::{self, BEFORE_DATA, Header, Op};

/// Least bytes that the kernel wants a buffer to have.
const BUFFER_MIN: usize = 8192;

/// Answers requests.
pub trait Serve: Send + Sync {
    /// Answers one, now or later.
    fn serve(&self, header: &Header, op: Op<'_>, reply: Reply);
}

/// A mount that the kernel has agreed to.
#[derive(Debug)]
pub struct Session {
    mount: Mount,
    agreed: InitFlags,
    request_max: usize,
}

impl Session {
    /// Mounts, and agrees with the kernel on how to go on.
    pub fn new(spec: &MountSpec, wishes: &Wishes) -> io::Result<Self> {
        let mount = Mount::new(spec)?;
        let request_max = usize::try_from(wishes.request_max).map_err(io::Error::other)?;
        let mut buffer = Buffer::new(request_max);
        let agreed = loop {
            let message = buffer.receive(mount.device())?;
            let message = message.ok_or_else(|| io::Error::from(io::ErrorKind::NotConnected))?;
            match shake(message, wishes, &**mount.device())? {
                Shake::Agreed(agreed) => break agreed,
                Shake::Again => {}
            }
        };
        Ok(Self { mount, agreed, request_max })
    }

    /// What the kernel does of what was wished.
    pub fn agreed(&self) -> InitFlags {
        self.agreed
    }

    /// Sends what the kernel is to hear unasked.
    pub fn notifier(&self) -> Notifier {
        Notifier::new(Arc::clone(self.mount.device()) as _)
    }

    /// Serves with so many threads, until the mount has ended. Unmounts if it ends for another reason.
    pub fn run(self, server: &(impl Serve + Clone + 'static), threads: usize) -> io::Result<()> {
        let mut connections = vec![Arc::clone(self.mount.device())];
        for _ in 1..threads {
            connections.push(Arc::new(self.mount.device().another()?));
        }
        let mut workers = Vec::new();
        for (index, device) in connections.into_iter().enumerate() {
            let (server, request_max) = (server.clone(), self.request_max);
            let worker = thread::Builder::new().name(format!("fuse-{index}"));
            workers.push(worker.spawn(move || work(&device, &server, request_max))?);
        }
        let mut outcome = Ok(());
        for ended in workers.into_iter().map(JoinHandle::join) {
            let ended =
                ended.unwrap_or_else(|_| Err(io::Error::other("a serving thread panicked")));
            outcome = outcome.and(ended);
        }
        outcome
    }
}

/// Serves one request after the other.
fn work(device: &Arc<Device>, server: &impl Serve, request_max: usize) -> io::Result<()> {
    let mut buffer = Buffer::new(request_max);
    while let Some(message) = buffer.receive(device)? {
        let (header, op) = request::parse(message)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        let reply = || Reply::new(header.unique, Arc::clone(device) as _);
        match op {
            Ok(Op::Destroy) => {
                reply().ok();
                return Ok(());
            }
            // What was asked is answered as soon as it can be. With this, the kernel says it no more.
            Ok(Op::Interrupt) => reply().error(Errno::NOSYS),
            Ok(op) if op.is_answered() => server.serve(&header, op, reply()),
            Ok(op) => server.serve(&header, op, Reply::none()),
            Err(error) => {
                tracing::error!(%error, "a request that cannot be read");
                reply().error(Errno::INVAL);
            }
        }
    }
    Ok(())
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
