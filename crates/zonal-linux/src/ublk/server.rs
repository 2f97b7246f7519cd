//! Serves a device or a disk as the block device `/dev/ublkbN` of the running kernel.
//!
//! [`serve`] serves until SIGTERM or SIGINT; a [`Server`] is stopped by its caller. `queue.rs`
//! receives the requests of the kernel, and `zoned.rs` and `disk.rs` answer them.
//!
//! A write completes when the device has it. A flush, or a write with FUA, completes when the
//! device says that it is durable. When another server takes over from a killed one, the kernel
//! reissues the requests that were not completed; `reissue.rs` finds the writes that a device has
//! done already. A disk may repeat them; `unflushed.rs` writes the changes again that the killed
//! server had answered and not flushed.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use zonal::disk::DiskShape;
use zonal::{Disk, ZonedDevice};

use super::abi::feature;
use super::control::Start;
use super::export::Export;
use super::queue::Target;
use super::reissue::Reissue;
use super::{Device, Error, Outline, Queues, Result, mounted, node, shape, unflushed};

/// The device or the disk to serve.
pub enum Source {
    /// A device with zones, served with its zones.
    Device(Arc<dyn ZonedDevice>),
    /// An ordinary disk.
    Disk(NamedDisk),
}

/// A disk, and a name by which a server that takes it over knows it again.
pub struct NamedDisk {
    /// The disk.
    pub disk: Arc<dyn Disk>,
    /// A name that no other disk has.
    pub unique: String,
}

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

impl Source {
    fn outline(&self) -> Result<Outline> {
        Ok(match self {
            Self::Device(device) => Outline {
                params: shape::params(device.geometry())?,
                mark: shape::mark(&device.identity()),
                needed: feature::ZONED | feature::USER_COPY,
            },
            Self::Disk(NamedDisk { disk, unique }) => Outline {
                params: shape::disk_params(&disk.shape()),
                mark: shape::mark_of_disk(unique),
                needed: feature::USER_COPY,
            },
        })
    }

    /// The part that performs the requests for the ublk device `id`.
    fn target(&self, id: u32, mark: u64, start: Start) -> Result<Target> {
        match self {
            Self::Device(device) => {
                let reissue = match start {
                    Start::New => Reissue::none(),
                    Start::Recovered => Reissue::after_kill(&**device).map_err(Error::Report)?,
                };
                Ok(Target::Zoned(Export::new(Arc::clone(device), reissue)))
            }
            Self::Disk(NamedDisk { disk, .. }) => {
                let surviving = match start {
                    Start::New => unflushed::create(Arc::clone(disk), id, mark),
                    Start::Recovered => unflushed::recover(Arc::clone(disk), id, mark),
                };
                let disk = surviving.map_err(|source| Error::Notes { id, source })?;
                Ok(Target::Disk(Arc::new(disk)))
            }
        }
    }

    fn flush(&self) -> Result<()> {
        match self {
            Self::Device(device) => device.flush().map_err(Error::Flush),
            Self::Disk(NamedDisk { disk, .. }) => disk.flush().map_err(Error::FlushDisk),
        }
    }
}

/// A device or a disk that is served.
pub struct Server {
    id: u32,
    /// `None` once it has ended.
    served: Option<Device>,
    source: Source,
}

impl Server {
    /// Creates the block device, or takes it over, and serves it.
    pub fn start(source: Source, number: Number, queues: Queues) -> Result<Self> {
        let outline = source.outline()?;
        let mark = outline.mark;
        let target = |id, start| source.target(id, mark, start);
        let served = match number {
            Number::Any => Device::create(&outline, None, queues, target),
            Number::New(id) => Device::create(&outline, Some(id), queues, target),
            Number::Recovered(id) => Device::recover(&outline, id, queues.threads, target),
        };
        let served = served?;
        let id = served.id();
        if let Source::Disk(NamedDisk { disk, .. }) = &source {
            disk.on_resize(Box::new(move |shape| follow_size(id, &shape)));
            // It may have grown before this, or without a server.
            follow_size(id, &disk.shape());
        }
        Ok(Self { id, served: Some(served), source })
    }

    /// The block device.
    pub fn node(&self) -> PathBuf {
        node(self.id)
    }

    /// Its number.
    pub const fn id(&self) -> u32 {
        self.id
    }

    /// Makes everything durable after the running requests, and removes the block device.
    pub fn stop(self) -> Result<()> {
        stop(self.id)?;
        self.wait()
    }

    /// Serves until the device is stopped by another process; then makes everything durable.
    pub fn wait(mut self) -> Result<()> {
        match self.served.take() {
            Some(served) => served.wait(|| self.source.flush()),
            None => Ok(()),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Only after a failure; no caller remains to return this error to.
        if let Some(served) = self.served.take() {
            let _ = super::stop(self.id).and_then(|()| served.wait(|| self.source.flush()));
        }
    }
}

/// Serves until SIGTERM or SIGINT arrives, or until the device is removed by another process. Calls
/// `ready` with the block device as soon as programs can use it.
pub fn serve(
    source: Source,
    number: Number,
    queues: Queues,
    ready: impl FnOnce(&Path),
) -> Result<()> {
    let failed = |source| Error::refused("waiting for signals", source);
    // Before there is a device: from now on a signal removes it cleanly.
    let mut signals = Signals::new([SIGTERM, SIGINT]).map_err(failed)?;
    let server = Server::start(source, number, queues)?;
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

/// Gives the block device the size of its disk. If that fails, it keeps the size that it has.
fn follow_size(id: u32, disk: &DiskShape) {
    if let Err(error) = super::update_size(id, disk) {
        tracing::warn!("{error}");
    }
}

/// Stops a device that is served. File systems that are mounted from it are synced first.
fn stop(id: u32) -> Result<()> {
    mounted::sync(&node(id));
    super::stop(id)
}
