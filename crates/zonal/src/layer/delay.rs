//! `Delay`: lets I/O take a time, as on a drive that works on any number of requests at once, and
//! counts how often a caller waited.
//!
//! It shows where a caller makes requests one after the other that could go together.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::device::batch::Io;
use crate::error::Result;
use crate::{Lba, ZoneId, ZonedDevice};

/// A device on which each call takes a time, however many requests it has.
///
/// ```
/// use std::time::Duration;
/// use zonal::layer::delay::Delay;
/// use zonal::{Io, MemoryDrive, Profile, ZoneId, ZonedDevice};
/// let drive = Delay::new(MemoryDrive::new(Profile::Small.geometry())?, Duration::ZERO);
/// let data = [1; 4096];
/// drive.submit(&mut [0, 1, 2].map(|zone| Io::append(ZoneId::new(zone), &data)));
/// drive.flush()?;
/// assert_eq!((drive.requests(), drive.rounds(), drive.deepest()), (4, 2, 3));
/// # Ok::<(), zonal::DeviceError>(())
/// ```
pub struct Delay<D> {
    below: D,
    latency: Duration,
    requests: AtomicU64,
    rounds: AtomicU64,
    deepest: AtomicU64,
}

impl<D: ZonedDevice> Delay<D> {
    /// `below`, where reads, writes, appends and flushes take `latency` longer.
    pub const fn new(below: D, latency: Duration) -> Self {
        let (requests, rounds, deepest) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
        Self { below, latency, requests, rounds, deepest }
    }

    /// Requests so far: reads, writes, appends and flushes.
    pub fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    /// Calls that they came in: how often a caller waited for the device.
    pub fn rounds(&self) -> u64 {
        self.rounds.load(Ordering::Relaxed)
    }

    /// Most requests of one call.
    pub fn deepest(&self) -> u64 {
        self.deepest.load(Ordering::Relaxed)
    }

    /// Counts from nothing again.
    pub fn clear(&self) {
        for count in [&self.requests, &self.rounds, &self.deepest] {
            count.store(0, Ordering::Relaxed);
        }
    }

    fn wait(&self, requests: usize) {
        let requests = requests as u64;
        self.requests.fetch_add(requests, Ordering::Relaxed);
        self.rounds.fetch_add(1, Ordering::Relaxed);
        self.deepest.fetch_max(requests, Ordering::Relaxed);
        if !self.latency.is_zero() {
            #[expect(clippy::disallowed_methods, reason = "this is what a latency is")]
            std::thread::sleep(self.latency);
        }
    }
}

impl<D: ZonedDevice> ZonedDevice for Delay<D> {
    crate::pass_on!(below: geometry, report, manage, deallocate, identity, rotates);
    crate::pass_on!(below: keep_reserve, use_reserve);

    fn read(&self, lba: Lba, buffer: &mut [u8]) -> Result<()> {
        self.wait(1);
        self.below.read(lba, buffer)
    }
    fn write(&self, lba: Lba, data: &[u8]) -> Result<()> {
        self.wait(1);
        self.below.write(lba, data)
    }
    fn append(&self, zone: ZoneId, data: &[u8]) -> Result<Lba> {
        self.wait(1);
        self.below.append(zone, data)
    }
    fn flush(&self) -> Result<()> {
        self.wait(1);
        self.below.flush()
    }
    fn submit(&self, batch: &mut [Io<'_>]) {
        self.wait(batch.len());
        self.below.submit(batch);
    }
}
