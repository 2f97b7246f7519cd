//! `Meter`: counts operations, bytes, errors and time, for each kind of operation.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hdrhistogram::Histogram;

use crate::device::batch::{Io, Op};
use crate::error::Result;
use crate::{ByteCount, Clock, Lba, LbaCount, Select, Zone, ZoneAction, ZoneId, ZonedDevice};

/// Kind of an operation, as a meter tells them apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum OpKind {
    /// Zone report.
    Report,
    /// Read.
    Read,
    /// Write at an address.
    Write,
    /// Zone append.
    Append,
    /// Open.
    Open,
    /// Close.
    Close,
    /// Finish.
    Finish,
    /// Reset.
    Reset,
    /// Flush.
    Flush,
    /// Deallocation.
    Deallocate,
}

impl OpKind {
    /// Every kind.
    pub const ALL: [Self; 10] = [
        Self::Report,
        Self::Read,
        Self::Write,
        Self::Append,
        Self::Open,
        Self::Close,
        Self::Finish,
        Self::Reset,
        Self::Flush,
        Self::Deallocate,
    ];

    /// Its name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Report => "report",
            Self::Read => "read",
            Self::Write => "write",
            Self::Append => "append",
            Self::Open => "open",
            Self::Close => "close",
            Self::Finish => "finish",
            Self::Reset => "reset",
            Self::Flush => "flush",
            Self::Deallocate => "deallocate",
        }
    }

    pub(super) const fn of_request(op: &Op<'_>) -> Self {
        match op {
            Op::Read { .. } => Self::Read,
            Op::Write { .. } => Self::Write,
            Op::Append { .. } => Self::Append,
            Op::Flush => Self::Flush,
        }
    }

    pub(super) const fn of(action: ZoneAction) -> Self {
        match action {
            ZoneAction::Open => Self::Open,
            ZoneAction::Close => Self::Close,
            ZoneAction::Finish => Self::Finish,
            ZoneAction::Reset => Self::Reset,
        }
    }
}

/// The measurements of one kind of operation.
#[derive(Clone, Debug)]
pub struct OpStats {
    /// Operations that succeeded.
    pub count: u64,
    /// Operations that failed.
    pub errors: u64,
    /// Bytes that the successful operations read or wrote.
    pub bytes: ByteCount,
    /// Time of the successful operations, in nanoseconds.
    pub latency_ns: Histogram<u64>,
}

impl OpStats {
    fn new() -> Self {
        let latency_ns = Histogram::new(3).expect("three digits are allowed");
        Self { count: 0, errors: 0, bytes: ByteCount::ZERO, latency_ns }
    }
}

/// The measurements of a [`Meter`]; they outlive it, and can be read while it counts.
pub struct Counters(Mutex<[OpStats; OpKind::ALL.len()]>);

impl Counters {
    fn new() -> Self {
        Self(Mutex::new(std::array::from_fn(|_| OpStats::new())))
    }

    fn lock(&self) -> MutexGuard<'_, [OpStats; OpKind::ALL.len()]> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The measurements of one kind so far.
    pub fn of(&self, kind: OpKind) -> OpStats {
        self.lock()[kind as usize].clone()
    }

    /// Starts again from nothing.
    pub fn clear(&self) {
        *self.lock() = std::array::from_fn(|_| OpStats::new());
    }

    fn add(&self, kind: OpKind, bytes: usize, time_ns: u64, outcome: Outcome) {
        let mut all = self.lock();
        let stats = &mut all[kind as usize];
        match outcome {
            Outcome::Success => {
                stats.count += 1;
                stats.bytes += ByteCount::new(bytes as u64);
                // Not saturating_record: a small histogram without room for a value would count it
                // as 2.
                stats.latency_ns.record(time_ns).expect("it grows to hold any time");
            }
            Outcome::Failure => stats.errors += 1,
        }
    }
}

#[derive(Clone, Copy)]
enum Outcome {
    Success,
    Failure,
}

/// A device that measures the one below.
///
/// ```
/// use std::sync::Arc;
/// use zonal::layer::meter::{Meter, OpKind};
/// use zonal::{ManualClock, MemoryDrive, Profile, ZoneId, ZonedDevice};
/// let drive = MemoryDrive::new(Profile::Small.geometry())?;
/// let meter = Meter::new(drive, Arc::new(ManualClock::new(0)));
/// meter.append(ZoneId::new(0), &[1; 8192])?;
/// assert_eq!(meter.counters().of(OpKind::Append).bytes.get(), 8192);
/// # Ok::<(), zonal::DeviceError>(())
/// ```
pub struct Meter<D> {
    below: D,
    clock: Arc<dyn Clock>,
    counters: Arc<Counters>,
}

impl<D: ZonedDevice> Meter<D> {
    /// `below`, measured by `clock`.
    pub fn new(below: D, clock: Arc<dyn Clock>) -> Self {
        Self { below, clock, counters: Arc::new(Counters::new()) }
    }

    /// The device below.
    pub const fn below(&self) -> &D {
        &self.below
    }

    /// The measurements.
    pub const fn counters(&self) -> &Arc<Counters> {
        &self.counters
    }

    fn measure<T>(&self, kind: OpKind, bytes: usize, run: impl FnOnce() -> Result<T>) -> Result<T> {
        let start = self.clock.monotonic_ns();
        let outcome = run();
        let time_ns = self.clock.monotonic_ns().saturating_sub(start);
        let how = if outcome.is_ok() { Outcome::Success } else { Outcome::Failure };
        self.counters.add(kind, bytes, time_ns, how);
        outcome
    }
}

impl<D: ZonedDevice> ZonedDevice for Meter<D> {
    crate::pass_on!(below: geometry, identity, rotates, keep_reserve, use_reserve);

    fn report(&self, first: ZoneId, zones: &mut Vec<Zone>, limit: usize) -> Result<()> {
        self.measure(OpKind::Report, 0, || self.below.report(first, zones, limit))
    }
    fn read(&self, lba: Lba, buffer: &mut [u8]) -> Result<()> {
        self.measure(OpKind::Read, buffer.len(), || self.below.read(lba, buffer))
    }
    fn write(&self, lba: Lba, data: &[u8]) -> Result<()> {
        self.measure(OpKind::Write, data.len(), || self.below.write(lba, data))
    }
    fn append(&self, zone: ZoneId, data: &[u8]) -> Result<Lba> {
        self.measure(OpKind::Append, data.len(), || self.below.append(zone, data))
    }
    fn manage(&self, zones: Select, action: ZoneAction) -> Result<()> {
        self.measure(OpKind::of(action), 0, || self.below.manage(zones, action))
    }
    fn flush(&self) -> Result<()> {
        self.measure(OpKind::Flush, 0, || self.below.flush())
    }
    fn deallocate(&self, lba: Lba, blocks: LbaCount) -> Result<()> {
        self.measure(OpKind::Deallocate, 0, || self.below.deallocate(lba, blocks))
    }
    /// Each request has taken as long as the batch.
    fn submit(&self, batch: &mut [Io<'_>]) {
        let start = self.clock.monotonic_ns();
        self.below.submit(batch);
        let time_ns = self.clock.monotonic_ns().saturating_sub(start);
        for Io { op, result } in batch {
            let how =
                if matches!(result, Some(Ok(_))) { Outcome::Success } else { Outcome::Failure };
            self.counters.add(OpKind::of_request(op), op.len(), time_ns, how);
        }
    }
}
