//! Serves a device as the zoned block device `/dev/ublkbN` of the running kernel.
//!
//! [`serve`] serves until SIGTERM or SIGINT; a [`Server`] is stopped by its caller. Each request of
//! the kernel is one `match` arm here; how requests arrive is in `queue.rs`.
//!
//! A write completes when the device has it. A flush, or a write with FUA, completes when the device
//! says that it is durable. When a server was killed and another takes over, the kernel reissues the
//! requests that were not completed; `reissue.rs` finds out which of them were already done.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

use rustix::io::Errno;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use zonal::{DeviceError, ZonedDevice};

use super::reissue::Reissue;
use super::{Device, Durability, Error, Queues, Reply, Request, Result, Target, mounted, node};

/// Which ublk device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Number {
    /// A new device with any free number.
    Any,
    /// A new device with this number.
    New(u32),
    /// The device of this number, whose server is gone.
    Recovered(u32),
}

/// A device that is served.
pub struct Server {
    id: u32,
    /// `None` once it has ended.
    served: Option<Device>,
    device: Arc<dyn ZonedDevice>,
}

impl Server {
    /// Creates the block device, or takes it over, and serves it.
    pub fn start(device: Arc<dyn ZonedDevice>, number: Number, queues: Queues) -> Result<Self> {
        let geometry = *device.geometry();
        let target = |reissue| Arc::new(Export { device: Arc::clone(&device), reissue });
        let served = match number {
            Number::Any => Device::create(&geometry, None, queues, target(Reissue::none())),
            Number::New(id) => Device::create(&geometry, Some(id), queues, target(Reissue::none())),
            Number::Recovered(id) => {
                let reissue = Reissue::after_kill(&*device).map_err(Error::Report)?;
                Device::recover(&geometry, id, queues.threads, target(reissue))
            }
        };
        let served = served?;
        Ok(Self { id: served.id(), served: Some(served), device })
    }

    /// The block device.
    pub fn node(&self) -> PathBuf {
        node(self.id)
    }

    /// Its number.
    pub const fn id(&self) -> u32 {
        self.id
    }

    /// Removes the block device after the running requests, and makes everything durable.
    pub fn stop(self) -> Result<()> {
        stop(self.id)?;
        self.wait()
    }

    /// Serves until the device is stopped by another process; then makes everything durable.
    pub fn wait(mut self) -> Result<()> {
        if let Some(served) = self.served.take() {
            served.wait()?;
        }
        self.device.flush().map_err(Error::Flush)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Only after a failure; no caller remains to return this error to.
        if let Some(served) = self.served.take() {
            let _ = super::stop(self.id).and_then(|()| served.wait());
        }
    }
}

/// Serves until SIGTERM or SIGINT arrives, or until the device is removed by another process. Calls
/// `ready` with the block device as soon as programs can use it.
pub fn serve(
    device: Arc<dyn ZonedDevice>,
    number: Number,
    queues: Queues,
    ready: impl FnOnce(&Path),
) -> Result<()> {
    let failed = |source| Error::refused("waiting for signals", source);
    // Before there is a device: from now on a signal removes it cleanly.
    let mut signals = Signals::new([SIGTERM, SIGINT]).map_err(failed)?;
    let server = Server::start(device, number, queues)?;
    ready(&server.node());
    let (id, handle) = (server.id(), signals.handle());
    let stopper = thread::Builder::new().name("signals".to_owned()).spawn(move || {
        if let Some(signal) = signals.forever().next() {
            tracing::info!(signal, "stopping");
            if let Err(error) = stop(id) {
                tracing::error!(%error, "the device cannot be stopped");
            }
        }
    });
    let stopper = stopper.map_err(failed)?;
    let outcome = server.wait();
    if outcome.is_ok() {
        handle.close();
        // It ends now, unless a signal has already ended it.
        let _ = stopper.join();
    }
    outcome
}

/// Stops a device that is served. File systems that are mounted from it are synced first.
fn stop(id: u32) -> Result<()> {
    mounted::sync(&node(id));
    super::stop(id)
}

/// Answers the requests of the kernel from a device.
struct Export {
    device: Arc<dyn ZonedDevice>,
    reissue: Reissue,
}

impl Export {
    fn perform(&self, request: Request<'_>) -> Result<Reply, DeviceError> {
        let mut reply = Reply::Done;
        let durability = match request {
            Request::Read { lba, buffer } => {
                self.device.read(lba, buffer)?;
                Durability::Volatile
            }
            Request::Write { lba, data, durability } => {
                self.reissue.write(&*self.device, lba, data)?;
                durability
            }
            Request::Append { zone, data, durability } => {
                self.reissue.forget(zone);
                reply = Reply::At(self.device.append(zone, data)?);
                durability
            }
            Request::Manage { zones, action } => {
                self.reissue.forget_all(zones);
                self.device.manage(zones, action)?;
                Durability::Volatile
            }
            Request::Flush => Durability::Durable,
            Request::Report { first, limit, zones } => {
                self.device.report(first, zones, limit)?;
                Durability::Volatile
            }
        };
        if durability == Durability::Durable {
            self.device.flush()?;
        }
        Ok(reply)
    }
}

impl Target for Export {
    fn serve(&self, request: Request<'_>) -> Result<Reply, Errno> {
        self.perform(request).map_err(|error| {
            match error {
                DeviceError::Medium { .. } | DeviceError::Io { .. } | DeviceError::PowerCut => {
                    tracing::error!(%error, "the device failed");
                }
                ref refused => tracing::debug!(%refused, "refused"),
            }
            error.errno()
        })
    }
}
