//! A drive whose calls a test can hold back, and whose host can be full.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use zonal::error::Result;
use zonal::{
    DeviceError, Geometry, GeometrySpec, Lba, MemoryDrive, Select, Zone, ZoneAction, ZoneId,
    ZonedDevice,
};

/// A kind of call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    Read,
    Append,
    Flush,
}

#[derive(Debug, Default)]
struct Held {
    /// Calls of this kind wait.
    kind: Option<Call>,
    /// Not more of them at once.
    most: usize,
    waiting: usize,
}

/// A drive in memory behind a gate.
pub(crate) struct Gate {
    inner: MemoryDrive,
    held: Mutex<Held>,
    changed: Condvar,
    host_full: AtomicBool,
    broken: AtomicBool,
    resets: AtomicU64,
}

impl Gate {
    pub(crate) fn new(spec: GeometrySpec) -> Arc<Self> {
        Arc::new(Self {
            inner: MemoryDrive::new(spec).unwrap(),
            held: Mutex::default(),
            changed: Condvar::new(),
            host_full: AtomicBool::new(false),
            broken: AtomicBool::new(false),
            resets: AtomicU64::new(0),
        })
    }

    /// From now on calls of this kind wait.
    pub(crate) fn hold(&self, kind: Call) {
        let mut held = self.held.lock().unwrap();
        (held.kind, held.most) = (Some(kind), usize::MAX);
    }

    /// From now on a call of this kind waits, and others pass meanwhile.
    pub(crate) fn hold_one(&self, kind: Call) {
        let mut held = self.held.lock().unwrap();
        (held.kind, held.most) = (Some(kind), 1);
    }

    /// Lets all calls go on.
    pub(crate) fn open(&self) {
        self.held.lock().unwrap().kind = None;
        self.changed.notify_all();
    }

    /// Waits until `calls` calls wait.
    pub(crate) fn wait_for(&self, calls: usize) {
        let held = self.held.lock().unwrap();
        drop(self.changed.wait_while(held, |held| held.waiting < calls).unwrap());
    }

    /// Whether `calls` calls wait within a moment. For calls that must not come: a busy machine
    /// makes them come later.
    pub(crate) fn comes_to(&self, calls: usize) -> bool {
        const MOMENT: Duration = Duration::from_millis(200);
        let held = self.held.lock().unwrap();
        let few = |held: &mut Held| held.waiting < calls;
        !self.changed.wait_timeout_while(held, MOMENT, few).unwrap().1.timed_out()
    }

    /// From now on writes find no space on the host.
    pub(crate) fn fill_host(&self) {
        self.host_full.store(true, Ordering::Release);
    }

    /// The host has space again.
    pub(crate) fn empty_host(&self) {
        self.host_full.store(false, Ordering::Release);
    }

    /// From now on writes fail.
    pub(crate) fn break_writes(&self) {
        self.broken.store(true, Ordering::Release);
    }

    /// Writes succeed again.
    pub(crate) fn mend_writes(&self) {
        self.broken.store(false, Ordering::Release);
    }

    /// Resets so far.
    pub(crate) fn resets(&self) -> u64 {
        self.resets.load(Ordering::Acquire)
    }

    fn pass(&self, kind: Call) {
        let mut held = self.held.lock().unwrap();
        if held.kind != Some(kind) || held.waiting >= held.most {
            return;
        }
        held.waiting += 1;
        self.changed.notify_all();
        let mut held = self.changed.wait_while(held, |held| held.kind == Some(kind)).unwrap();
        held.waiting -= 1;
    }

    fn check_write(&self) -> Result<()> {
        if self.broken.load(Ordering::Acquire) {
            let source = std::io::Error::from_raw_os_error(5);
            return Err(DeviceError::Io { what: "writing".into(), source });
        }
        if self.host_full.load(Ordering::Acquire) {
            return Err(DeviceError::NoSpace { what: "writing".into() });
        }
        Ok(())
    }
}

impl ZonedDevice for Gate {
    fn geometry(&self) -> &Geometry {
        self.inner.geometry()
    }
    fn report(&self, first: ZoneId, zones: &mut Vec<Zone>, limit: usize) -> Result<()> {
        self.inner.report(first, zones, limit)
    }
    fn read(&self, lba: Lba, buffer: &mut [u8]) -> Result<()> {
        self.pass(Call::Read);
        self.inner.read(lba, buffer)
    }
    fn write(&self, lba: Lba, data: &[u8]) -> Result<()> {
        self.check_write()?;
        self.inner.write(lba, data)
    }
    fn append(&self, zone: ZoneId, data: &[u8]) -> Result<Lba> {
        self.pass(Call::Append);
        self.check_write()?;
        self.inner.append(zone, data)
    }
    fn manage(&self, zones: Select, action: ZoneAction) -> Result<()> {
        if action == ZoneAction::Reset {
            self.resets.fetch_add(1, Ordering::AcqRel);
        }
        self.inner.manage(zones, action)
    }
    fn flush(&self) -> Result<()> {
        self.pass(Call::Flush);
        self.inner.flush()
    }
}
