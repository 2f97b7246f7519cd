//! ublk: a device as a zoned block device `/dev/ublkbN` of this machine.
//!
//! [`serve`] serves until SIGTERM or SIGINT; [`Server`] is the same under the caller's control. What
//! the kernel asks is one `match` here; how it asks is in `queue.rs`.
//!
//! A write is answered when the device has it. A flush, or a write with FUA, is answered when the
//! device says that it is durable. When a server was killed and another takes over, the kernel asks
//! again what was not answered; `again.rs` knows what of that is done already.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

use rustix::io::Errno;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use zonal::{DeviceError, ZonedDevice};

use super::again::Again;
use super::{Device, Durability, Error, Queues, Reply, Request, Result, Target, mounted, node};

/// Which ublk device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Number {
    /// A new one with any number.
    Any,
    /// A new one with this number.
    New(u32),
    /// The one whose server is gone.
    Recovered(u32),
}

/// A device that is being served.
pub struct Server {
    id: u32,
    /// `None` when it has ended.
    served: Option<Device>,
    device: Arc<dyn ZonedDevice>,
}

impl Server {
    /// Makes the block device, or takes it over, and serves it.
    pub fn start(device: Arc<dyn ZonedDevice>, number: Number, queues: Queues) -> Result<Self> {
        let geometry = *device.geometry();
        let target = |again| Arc::new(Export { device: Arc::clone(&device), again });
        let served = match number {
            Number::Any => Device::create(&geometry, None, queues, target(Again::nothing())),
            Number::New(id) => {
                Device::create(&geometry, Some(id), queues, target(Again::nothing()))
            }
            Number::Recovered(id) => {
                let again = Again::after_kill(&*device).map_err(Error::Report)?;
                Device::recover(&geometry, id, queues.threads, target(again))
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

    /// Takes the block device away after its running requests, and makes everything durable.
    pub fn stop(self) -> Result<()> {
        stop(self.id)?;
        self.wait()
    }

    /// Serves until the device is stopped elsewhere; then makes everything durable.
    pub fn wait(mut self) -> Result<()> {
        if let Some(served) = self.served.take() {
            served.wait()?;
        }
        self.device.flush().map_err(Error::Flush)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Only after a failure; nobody is left to tell.
        if let Some(served) = self.served.take() {
            let _ = super::stop(self.id).and_then(|()| served.wait());
        }
    }
}

/// Serves until SIGTERM or SIGINT arrives, or until the device is removed elsewhere. Calls `ready` with
/// the block device as soon as programs can use it.
pub fn serve(
    device: Arc<dyn ZonedDevice>,
    number: Number,
    queues: Queues,
    ready: impl FnOnce(&Path),
) -> Result<()> {
    let failed = |source| Error::refused("waiting for signals", source);
    // Before there is a device: a signal from now on removes it cleanly.
    let mut signals = Signals::new([SIGTERM, SIGINT]).map_err(failed)?;
    let server = Server::start(device, number, queues)?;
    ready(&server.node());
    let (id, handle) = (server.id(), signals.handle());
    let stopper = thread::Builder::new().name("signals".to_owned()).spawn(move || {
        if let Some(signal) = signals.forever().next() {
            tracing::info!(signal, "ending");
            if let Err(error) = stop(id) {
                tracing::error!(%error, "the device cannot be stopped");
            }
        }
    });
    let stopper = stopper.map_err(failed)?;
    let outcome = server.wait();
    if outcome.is_ok() {
        handle.close();
        // It ends now, if no signal has ended it.
        let _ = stopper.join();
    }
    outcome
}

/// Takes a block device away that is served, after what its users still have to write.
fn stop(id: u32) -> Result<()> {
    mounted::sync(&node(id));
    super::stop(id)
}

/// A device and what the kernel asks of it.
struct Export {
    device: Arc<dyn ZonedDevice>,
    again: Again,
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
                self.again.write(&*self.device, lba, data)?;
                durability
            }
            Request::Append { zone, data, durability } => {
                self.again.forget(zone);
                reply = Reply::At(self.device.append(zone, data)?);
                durability
            }
            Request::Manage { zones, action } => {
                self.again.forget_all(zones);
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
