//! Serves a device as the zoned block device `/dev/ublkbN` of the running kernel.
//!
//! [`serve`] serves until SIGTERM or SIGINT; a [`Server`] is stopped by its caller. `export.rs`
//! answers each request of the kernel; how requests arrive is in `queue.rs`.
//!
//! A write completes when the device has it. A flush, or a write with FUA, completes when the device
//! says that it is durable. When a server was killed and another takes over, the kernel reissues the
//! requests that were not completed; `reissue.rs` finds out which of them were already done.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use zonal::ZonedDevice;

use super::export::Export;
use super::reissue::Reissue;
use super::{Device, Error, Queues, Result, mounted, node};

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
        let export = |reissue| Arc::new(Export::new(Arc::clone(&device), reissue));
        let served = match number {
            Number::Any => Device::create(&geometry, None, queues, export(Reissue::none())),
            Number::New(id) => Device::create(&geometry, Some(id), queues, export(Reissue::none())),
            Number::Recovered(id) => {
                let reissue = Reissue::after_kill(&*device).map_err(Error::Report)?;
                Device::recover(&geometry, id, queues.threads, export(reissue))
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
