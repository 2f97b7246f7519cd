//! Devices: their shape, their zones, and reading and writing them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyList, PyTuple};
use rustix::io::Errno;
use zonal::spec::{Base, Openers};
use zonal::{
    Clock, DeviceError, Geometry, Lba, LbaCount, ManualClock, OpenMode, Select, SystemClock, Zone,
    ZoneAction, ZoneId, ZonedDevice,
};
use zonal_fs::signature;

use crate::batch::{self, Io};
use crate::edge::{self, Buffer, Bytes, Failure, Name, Outcome, from_bool};

/// The access with which a device or a volume is opened.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    ReadOnly,
    ReadWrite,
}

from_bool!(Access, ReadOnly, ReadWrite);

/// A zoned device. `Device(spec, read_only=False)` opens the device of a specification: a drive
/// file, `mem:zone=4M,zones=64`, `sim:`, a block device, an NVMe namespace, or layers in front of
/// one.
///
/// Offsets and lengths are bytes, and whole blocks. A zone is named by its number. Failures raise
/// zonal.Error. While a volume is mounted on the device, only reports and reads are possible.
#[pyclass(frozen, subclass, module = "zonal")]
pub(crate) struct Device {
    /// The specification that opened it.
    #[pyo3(get)]
    spec: String,
    access: Access,
    geometry: Geometry,
    opened: Mutex<Option<Opened>>,
    is_mounted: Arc<AtomicBool>,
}

#[derive(Clone)]
struct Opened {
    device: Arc<dyn ZonedDevice>,
    /// The clock of a simulated drive.
    clock: Option<Arc<ManualClock>>,
}

/// Keeps other writers from a device while a volume is mounted on it.
pub(crate) struct Lease {
    is_held: AtomicBool,
    is_mounted: Arc<AtomicBool>,
}

impl Lease {
    /// Gives the device back; the second time does nothing.
    pub(crate) fn end(&self) {
        if self.is_held.swap(false, Ordering::AcqRel) {
            self.is_mounted.store(false, Ordering::Release);
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.end();
    }
}

impl Device {
    /// Opens the device that `spec` names; with read-only access in the mode `reading`.
    pub(crate) fn opened(spec: &str, access: Access, reading: OpenMode) -> Outcome<Self> {
        let mode = match access {
            Access::ReadOnly => reading,
            Access::ReadWrite => OpenMode::ReadWrite,
        };
        let openers = Openers::builtin()
            .with_schemes(&[zonal_sim::SCHEME])
            .with_schemes(&zonal_linux::SCHEMES)
            .with_paths(zonal_linux::open);
        let stack = openers.open(spec, mode, Arc::new(SystemClock::new()))?;
        let clock = match stack.base {
            Base::Simulated(clock) => Some(clock),
            Base::Memory | Base::File(_) | Base::Device => None,
        };
        Ok(Self {
            spec: spec.to_owned(),
            access,
            geometry: *stack.device.geometry(),
            opened: Mutex::new(Some(Opened { device: stack.device, clock })),
            is_mounted: Arc::default(),
        })
    }

    fn open(&self) -> Outcome<Opened> {
        let opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        opened.clone().ok_or_else(|| Failure::closed("device"))
    }

    /// The device, for calls that do not change it.
    pub(crate) fn device(&self) -> Outcome<Arc<dyn ZonedDevice>> {
        Ok(self.open()?.device)
    }

    /// The device, for calls that change it.
    pub(crate) fn writable(&self) -> Outcome<Arc<dyn ZonedDevice>> {
        if self.is_mounted.load(Ordering::Acquire) {
            return Err(self.busy());
        }
        self.device()
    }

    /// The device for a volume: until the lease ends, it is the volume's.
    pub(crate) fn lease(&self) -> Outcome<(Arc<dyn ZonedDevice>, Lease)> {
        let device = self.device()?;
        if self.is_mounted.swap(true, Ordering::AcqRel) {
            return Err(self.busy());
        }
        let is_mounted = Arc::clone(&self.is_mounted);
        Ok((device, Lease { is_held: AtomicBool::new(true), is_mounted }))
    }

    pub(crate) fn spec(&self) -> &str {
        &self.spec
    }

    pub(crate) fn access(&self) -> Access {
        self.access
    }

    fn busy(&self) -> Failure {
        Failure::new(Errno::BUSY, format!("a volume is mounted on {}", self.spec))
    }

    fn block(&self, offset: u64) -> Outcome<Lba> {
        block(&self.geometry, offset)
    }

    fn of_blocks(&self, count: LbaCount) -> u64 {
        self.geometry.bytes(count).get()
    }

    fn manage(&self, py: Python<'_>, zones: Select, action: ZoneAction) -> Outcome<()> {
        let device = self.writable()?;
        edge::detached(py, || Ok(device.manage(zones, action)?))
    }

    /// The `zonal.Zone` of a zone.
    fn told<'py>(&self, py: Python<'py>, zone: &Zone) -> PyResult<Bound<'py, PyAny>> {
        static ZONE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let block = self.geometry.block_size().bytes();
        ZONE.import(py, "zonal._types", "Zone")?.call1((
            zone.id.get(),
            zone.kind.name(),
            zone.cond.name(),
            zone.start.get() * block,
            self.of_blocks(zone.size),
            self.of_blocks(zone.capacity),
            zone.wp.map(|wp| wp.get() * block),
            zone.written().map(|blocks| self.of_blocks(blocks)),
            zone.non_sequential,
        ))
    }
}

/// The block that begins at byte `offset`.
pub(crate) fn block(geometry: &Geometry, offset: u64) -> Outcome<Lba> {
    let block = geometry.block_size().bytes();
    if !offset.is_multiple_of(block) {
        let text = format!("byte {offset} is not a multiple of the block size, {block}");
        return Err(Failure::new(Errno::INVAL, text));
    }
    Ok(Lba::new(offset / block))
}

/// The first block of a read; an error, before a buffer is made for it, if the range is not all on
/// the device.
pub(crate) fn readable(geometry: &Geometry, offset: u64, length: usize) -> Outcome<Lba> {
    let lba = block(geometry, offset)?;
    let blocks = LbaCount::new(length as u64 / geometry.block_size().bytes());
    if lba.get().saturating_add(blocks.get()) > geometry.block_count().get() {
        return Err(DeviceError::OutOfRange { lba, blocks }.into());
    }
    Ok(lba)
}

#[pymethods]
impl Device {
    #[new]
    #[pyo3(
        signature = (spec, *, read_only = Access::ReadWrite),
        text_signature = "(spec, *, read_only=False)"
    )]
    fn new(py: Python<'_>, spec: Name, read_only: Access) -> Outcome<Self> {
        let spec = spec.text()?;
        edge::detached(py, || Self::opened(spec, read_only, OpenMode::ReadOnly))
    }

    /// Closes the device. Data that was not flushed may not survive a power cut. A volume that is
    /// mounted on it keeps it. The second time does nothing.
    fn close(&self, py: Python<'_>) {
        let opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner).take();
        py.detach(|| drop(opened));
    }

    /// Whether it is closed.
    #[getter]
    fn closed(&self) -> bool {
        self.opened.lock().unwrap_or_else(PoisonError::into_inner).is_none()
    }

    /// Whether it was opened for reading only.
    #[getter]
    fn read_only(&self) -> bool {
        self.access == Access::ReadOnly
    }

    /// Bytes of the whole device.
    #[getter]
    fn capacity_bytes(&self) -> u64 {
        self.of_blocks(self.geometry.block_count())
    }

    /// Bytes of a logical block: 512 or 4096.
    #[getter]
    fn block_size(&self) -> u64 {
        self.geometry.block_size().bytes()
    }

    /// Number of zones.
    #[getter]
    fn zones(&self) -> u32 {
        self.geometry.zone_count()
    }

    /// Bytes from one zone's start to the next zone's.
    #[getter]
    fn zone_size_bytes(&self) -> u64 {
        self.of_blocks(self.geometry.zone_size())
    }

    /// Bytes of a zone that can be written.
    #[getter]
    fn zone_capacity_bytes(&self) -> u64 {
        self.of_blocks(self.geometry.spec().zone_capacity)
    }

    /// Number of conventional zones.
    #[getter]
    fn conventional_zones(&self) -> u32 {
        self.geometry.spec().conventional_zones.zone_count()
    }

    /// Zones that can be open at once; None: no limit.
    #[getter]
    fn max_open(&self) -> Option<u32> {
        self.geometry.max_open()
    }

    /// Zones that can be active at once; None: no limit.
    #[getter]
    fn max_active(&self) -> Option<u32> {
        self.geometry.max_active()
    }

    /// Bytes that one append can take.
    #[getter]
    fn max_append_bytes(&self) -> u64 {
        self.of_blocks(self.geometry.max_append())
    }

    /// Time of a simulated drive in nanoseconds: its requests advance it. None for other devices.
    #[getter]
    fn simulated_ns(&self) -> Outcome<Option<u64>> {
        Ok(self.open()?.clock.map(|clock| clock.monotonic_ns()))
    }

    /// The model, the serial number and the unique name that the device reports, each a str or
    /// None.
    fn identity<'py>(&self, py: Python<'py>) -> Outcome<Bound<'py, PyAny>> {
        static IDENTITY: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let device = self.device()?;
        let identity = edge::detached(py, || Ok(device.identity()))?;
        let found = (identity.model, identity.serial, identity.unique);
        Ok(IDENTITY.import(py, "zonal._types", "Identity")?.call1(found)?)
    }

    /// The name of the file system that it holds, such as "furrow", "zonefs" or "ext4"; None if
    /// none is found.
    fn holds(&self, py: Python<'_>) -> Outcome<Option<&'static str>> {
        let device = self.device()?;
        edge::detached(py, || Ok(signature::find(&*device)?.map(|found| found.kind.name())))
    }

    /// Reports zones as a list of zonal.Zone, from number `first` on: `count` of them, or all.
    #[pyo3(signature = (first = 0, count = None))]
    fn report<'py>(
        &self,
        py: Python<'py>,
        first: u32,
        count: Option<u32>,
    ) -> Outcome<Bound<'py, PyList>> {
        let device = self.device()?;
        let left = self.geometry.zone_count().saturating_sub(first);
        let count = count.unwrap_or(left).min(left);
        let zones = edge::detached(py, || {
            let mut zones = Vec::with_capacity(count as usize);
            if count > 0 {
                device.report(ZoneId::new(first), &mut zones, count as usize)?;
            }
            Ok(zones)
        })?;
        let told = zones.iter().map(|zone| self.told(py, zone));
        Ok(PyList::new(py, told.collect::<PyResult<Vec<_>>>()?)?)
    }

    /// Reports one zone as a zonal.Zone.
    fn zone<'py>(&self, py: Python<'py>, zone: u32) -> Outcome<Bound<'py, PyAny>> {
        let device = self.device()?;
        let zone = edge::detached(py, || Ok(device.zone(ZoneId::new(zone))?))?;
        Ok(self.told(py, &zone)?)
    }

    /// Reads whole blocks: `length` bytes from byte `offset` on. Blocks that were never written
    /// read as zeroes.
    fn read<'py>(
        &self,
        py: Python<'py>,
        offset: u64,
        length: usize,
    ) -> Outcome<Bound<'py, PyBytes>> {
        let device = self.device()?;
        let lba = readable(&self.geometry, offset, length)?;
        let data = edge::detached(py, || {
            let mut data = edge::room(length)?;
            device.read(lba, &mut data)?;
            Ok(data)
        })?;
        Ok(PyBytes::new(py, &data))
    }

    /// Reads whole blocks from byte `offset` on, as many as fill the buffer, and returns how many
    /// bytes.
    fn readinto(&self, py: Python<'_>, offset: u64, buffer: Buffer<'_>) -> Outcome<usize> {
        let device = self.device()?;
        let (lba, length) = (readable(&self.geometry, offset, buffer.len)?, buffer.len);
        let data = edge::detached(py, || {
            let mut data = edge::room(length)?;
            device.read(lba, &mut data)?;
            Ok(data)
        })?;
        Ok(buffer.put(&data)?)
    }

    /// Writes whole blocks at byte `offset`: the write pointer of its zone, or anywhere in a
    /// conventional zone. Returns how many bytes: all of them.
    fn write(&self, py: Python<'_>, offset: u64, data: Bytes) -> Outcome<usize> {
        let (device, lba) = (self.writable()?, self.block(offset)?);
        edge::detached(py, || Ok(device.write(lba, &data)?))?;
        Ok(data.len())
    }

    /// Writes whole blocks at the write pointer of a zone, wherever that is, and returns the byte
    /// where they went.
    fn append(&self, py: Python<'_>, zone: u32, data: Bytes) -> Outcome<u64> {
        let device = self.writable()?;
        let at = edge::detached(py, || {
            // A missing zone is an error here; an append need not check for it.
            device.zone(ZoneId::new(zone))?;
            Ok(device.append(ZoneId::new(zone), &data)?)
        })?;
        Ok(at.get() * self.geometry.block_size().bytes())
    }

    /// Says that the data of a range of bytes in a conventional zone is not needed any more.
    fn deallocate(&self, py: Python<'_>, offset: u64, length: u64) -> Outcome<()> {
        let (device, lba) = (self.writable()?, self.block(offset)?);
        let blocks = LbaCount::new(self.block(length)?.get());
        edge::detached(py, || Ok(device.deallocate(lba, blocks)?))
    }

    /// Makes everything that returned before this call survive a power cut.
    fn flush(&self, py: Python<'_>) -> Outcome<()> {
        let device = self.device()?;
        edge::detached(py, || Ok(device.flush()?))
    }

    /// Empties a zone.
    fn reset_zone(&self, py: Python<'_>, zone: u32) -> Outcome<()> {
        self.manage(py, Select::One(ZoneId::new(zone)), ZoneAction::Reset)
    }

    /// Empties every zone but conventional ones.
    fn reset_all_zones(&self, py: Python<'_>) -> Outcome<()> {
        self.manage(py, Select::All, ZoneAction::Reset)
    }

    /// Opens a zone explicitly.
    fn open_zone(&self, py: Python<'_>, zone: u32) -> Outcome<()> {
        self.manage(py, Select::One(ZoneId::new(zone)), ZoneAction::Open)
    }

    /// Closes a zone; it stays active.
    fn close_zone(&self, py: Python<'_>, zone: u32) -> Outcome<()> {
        self.manage(py, Select::One(ZoneId::new(zone)), ZoneAction::Close)
    }

    /// Makes a zone full.
    fn finish_zone(&self, py: Python<'_>, zone: u32) -> Outcome<()> {
        self.manage(py, Select::One(ZoneId::new(zone)), ZoneAction::Finish)
    }

    /// Performs a batch of zonal.Io, in parallel as far as the device can. Returns a list with the
    /// result of each: bytes of a read, the byte where a write or an append went, None of a flush,
    /// or the zonal.Error of one that failed, which stops no other. Writes to one zone are done in
    /// their order.
    fn submit<'py>(&self, py: Python<'py>, batch: Vec<Py<Io>>) -> Outcome<Bound<'py, PyList>> {
        let writes = batch.iter().any(|io| io.get().writes());
        let device = if writes { self.writable()? } else { self.device()? };
        batch::submit(py, &*device, &batch)
    }

    fn __enter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    #[pyo3(signature = (*_raised))]
    fn __exit__(&self, py: Python<'_>, _raised: &Bound<'_, PyTuple>) {
        self.close(py);
    }

    fn __repr__(&self) -> String {
        let zones = self.geometry.zone_count();
        let size = self.of_blocks(self.geometry.zone_size());
        let closed = if self.closed() { ", closed" } else { "" };
        format!("<zonal.Device {:?}: {zones} zones of {size} bytes{closed}>", self.spec)
    }
}
