//! A mount being served: its requests come from the kernel and go to a [`Serve`].
//!
//! They come from `/dev/fuse` to a `worker_pool`, or over `io_uring` to `rings`.

use std::io;
use std::sync::Arc;

use rustix::mount::UnmountFlags;

use crate::abi::InitFlags;
use crate::device::Device;
use crate::init::{InitRequest, UseRings, negotiate};
use crate::mount::{Mount, MountSpec};
use crate::notify::Notifier;
use crate::rings::{RingSizes, RingThreads, Rings};
use crate::serve::Serve;
use crate::worker_pool::{PoolOptions, WorkerPool};

/// How requests come from the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// Read from `/dev/fuse`.
    Device,
    /// Over `io_uring`.
    Rings,
}

impl Transport {
    /// Name for statistics and logs.
    pub fn name(self) -> &'static str {
        match self {
            Self::Device => "/dev/fuse",
            Self::Rings => "io_uring",
        }
    }
}

/// A mount that has negotiated INIT and can be served.
pub struct Session {
    mount: Arc<Mount>,
    negotiated: InitFlags,
    request_max: usize,
    threads: usize,
    rings: Option<Rings>,
}

impl Session {
    /// Mounts, and negotiates the INIT flags with the kernel.
    pub fn new(spec: &MountSpec, request: &InitRequest, threads: usize) -> io::Result<Self> {
        let mount = Arc::new(Mount::new(spec)?);
        let request_max = usize::try_from(request.request_max).map_err(io::Error::other)?;
        let mut rings = match request.rings {
            UseRings::Never => None,
            choice => {
                let sizes = RingSizes { request_max, entries_max: threads };
                unless_required(Rings::new(&mount, sizes), choice)?
            }
        };
        let mut request = *request;
        if rings.is_some() {
            request.optional |= InitFlags::OVER_IO_URING;
        }
        let negotiated = negotiate(mount.device(), &request, request_max)?;
        if let Some(made) = rings.take() {
            let registered = if negotiated.contains(InitFlags::OVER_IO_URING) {
                made.register().map(|()| made)
            } else {
                Err(io::Error::new(io::ErrorKind::Unsupported, "the kernel does not offer it"))
            };
            rings = unless_required(registered, request.rings)?;
        }
        Ok(Self { mount, negotiated, request_max, threads, rings })
    }

    /// Negotiated INIT flags.
    pub fn negotiated(&self) -> InitFlags {
        self.negotiated
    }

    /// How requests come.
    pub fn transport(&self) -> Transport {
        if self.rings.is_some() { Transport::Rings } else { Transport::Device }
    }

    /// Sends notifications to the kernel.
    pub fn notifier(&self) -> Notifier {
        Notifier::over(self.mount.device())
    }

    /// The connection of the mount, for ioctls.
    pub(crate) fn device(&self) -> &Arc<Device> {
        self.mount.device()
    }

    /// Serves until the mount has ended. If serving fails, unmounts.
    pub fn run(self, server: &Arc<dyn Serve>) -> io::Result<()> {
        let mount = Arc::clone(&self.mount);
        let outcome = self.serve(server);
        // Not by the drop: threads that still wait for requests hold the mount too.
        mount.end(UnmountFlags::empty());
        outcome
    }

    fn serve(self, server: &Arc<dyn Serve>) -> io::Result<()> {
        let rings = self.rings.map(|rings| rings.serve(server));
        // With rings, /dev/fuse brings only requests without an answer.
        let threads = if rings.is_some() { 1 } else { self.threads };
        let mut connections = vec![Arc::clone(self.mount.device())];
        for _ in 1..threads {
            connections.push(Arc::new(self.mount.device().another()?));
        }
        let options = PoolOptions { request_max: self.request_max, ended: Arc::default() };
        let pool = WorkerPool::start("fuse", connections, server, &options);
        let outcome = pool.and_then(WorkerPool::join);
        outcome.and(rings.map_or(Ok(()), RingThreads::join))
    }
}

/// Falls back to `/dev/fuse` if there are no rings and they are not required.
fn unless_required(rings: io::Result<Rings>, choice: UseRings) -> io::Result<Option<Rings>> {
    match rings {
        Ok(rings) => Ok(Some(rings)),
        Err(error) if choice == UseRings::Required => {
            Err(io::Error::new(error.kind(), format!("FUSE over io_uring: {error}")))
        }
        Err(error) => {
            tracing::info!(%error, "no FUSE over io_uring; requests come by /dev/fuse");
            Ok(None)
        }
    }
}
