//! Workloads: the same few access patterns on any device, measured.
//!
//! `zonal bench` and the benchmarks of this crate both run these, so their figures compare. Each
//! thread has zones of its own and one operation under way; so the number of threads is the queue
//! depth. On a device in virtual time, [`queued`] keeps more of them in flight.

pub mod queued;

use std::sync::atomic::{AtomicBool, Ordering};

use hdrhistogram::Histogram;

use crate::{
    ByteCount, Clock, DeviceError, Lba, LbaCount, Select, ZoneAction, ZoneCond, ZoneId, ZonedDevice,
};

/// Longest latency that is recorded: an hour. A longer one counts as an hour.
const LATENCY_NS_MAX: u64 = 3_600_000_000_000;

/// The access pattern of each thread, over and over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// Writes at the write pointer; a zone that is full is reset and written again.
    Write,
    /// The same by zone append.
    Append,
    /// Reads in the order of addresses.
    Read,
    /// Reads anywhere.
    RandomRead,
}

impl Pattern {
    /// Whether it writes.
    pub const fn writes(self) -> bool {
        matches!(self, Self::Write | Self::Append)
    }
}

/// When a run ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// After so many nanoseconds.
    AfterNs(u64),
    /// After so many operations of each thread.
    AfterOperations(u64),
}

/// Whether each operation is timed by itself; that costs two readings of the clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Latency {
    /// Only the whole run is timed.
    Skip,
    /// Each operation is timed.
    Measure,
}

/// A workload.
#[derive(Clone, Debug)]
pub struct Workload {
    /// The pattern.
    pub pattern: Pattern,
    /// Blocks of one operation.
    pub blocks: LbaCount,
    /// Threads; each takes every n-th of `zones`, so there must be as many zones.
    pub threads: u32,
    /// Zones to use. Writing patterns reset them.
    pub zones: Vec<ZoneId>,
    /// Blocks to use of each zone; the capacity, if that is less.
    pub span: LbaCount,
    /// When to end.
    pub stop: Stop,
    /// Whether to time operations.
    pub latency: Latency,
    /// Seed of random addresses.
    pub seed: u64,
}

/// Result of a workload.
type Result<T> = std::result::Result<T, WorkloadError>;

/// Why a workload does not run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WorkloadError {
    /// Each thread needs a zone of its own.
    #[error("{threads} threads need at least as many zones, and one thread at least, not {zones}")]
    Threads {
        /// Threads.
        threads: u32,
        /// Zones.
        zones: usize,
    },
    /// No operation fits into the part of a zone that is used.
    #[error("operations of {blocks} blocks do not fit into zone {zone}")]
    OperationSize {
        /// Blocks of an operation.
        blocks: LbaCount,
        /// The zone.
        zone: ZoneId,
    },
    /// The device failed.
    #[error("{0}")]
    Device(
        #[from]
        #[source]
        DeviceError,
    ),
}

/// The measurements of a run.
#[derive(Clone, Debug)]
pub struct Measured {
    /// Reads, writes or appends.
    pub operations: u64,
    /// Bytes that they moved.
    pub bytes: ByteCount,
    /// Nanoseconds of the whole run, resets included.
    pub time_ns: u64,
    /// Nanoseconds of each operation; empty if they were not timed.
    pub latency_ns: Histogram<u64>,
}

impl Measured {
    fn new() -> Self {
        let latency_ns = Histogram::new_with_bounds(1, LATENCY_NS_MAX, 3)
            .expect("three digits and an hour are allowed");
        Self { operations: 0, bytes: ByteCount::ZERO, time_ns: 0, latency_ns }
    }

    /// Operations in a second.
    #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
    pub fn iops(&self) -> f64 {
        self.operations as f64 * 1e9 / self.time_ns.max(1) as f64
    }

    /// Millions of bytes in a second.
    #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
    pub fn mb_per_s(&self) -> f64 {
        self.bytes.get() as f64 * 1e3 / self.time_ns.max(1) as f64
    }
}

/// Puts the zones into the state that `workload` starts from: Empty for writing, written up to the
/// span for reading.
pub fn prepare(device: &dyn ZonedDevice, workload: &Workload) -> Result<()> {
    for &zone in &workload.zones {
        let area = Area::new(device, zone, workload)?;
        match workload.pattern {
            Pattern::Write | Pattern::Append => area.reset(device)?,
            Pattern::Read | Pattern::RandomRead => area.fill(device)?,
        }
    }
    Ok(())
}

/// Runs a workload on zones that were [prepared](prepare).
///
/// ```
/// use zonal::workload::{Latency, Pattern, Stop, Workload, prepare, run};
/// use zonal::{LbaCount, ManualClock, MemoryDrive, Profile, ZoneId};
/// let drive = MemoryDrive::new(Profile::Small.geometry())?;
/// let workload = Workload {
///     pattern: Pattern::RandomRead,
///     blocks: LbaCount::new(1),
///     threads: 2,
///     zones: vec![ZoneId::new(0), ZoneId::new(1)],
///     span: LbaCount::new(64),
///     stop: Stop::AfterOperations(100),
///     latency: Latency::Measure,
///     seed: 1,
/// };
/// prepare(&drive, &workload)?;
/// let measured = run(&drive, &ManualClock::new(0), &workload)?;
/// assert_eq!(measured.operations, 200);
/// # Ok::<(), zonal::workload::WorkloadError>(())
/// ```
pub fn run(device: &dyn ZonedDevice, clock: &dyn Clock, workload: &Workload) -> Result<Measured> {
    if workload.threads == 0 || workload.zones.len() < workload.threads as usize {
        let (zones, threads) = (workload.zones.len(), workload.threads);
        return Err(WorkloadError::Threads { threads, zones });
    }
    let mut areas: Vec<Vec<Area>> = vec![Vec::new(); workload.threads as usize];
    for (at, &zone) in workload.zones.iter().enumerate() {
        areas[at % workload.threads as usize].push(Area::new(device, zone, workload)?);
    }
    let (failed, start) = (AtomicBool::new(false), clock.monotonic_ns());
    let failed = &failed;
    let parts: Vec<Result<Measured>> = std::thread::scope(|scope| {
        let worker = |(number, areas)| {
            let seed = workload.seed.wrapping_add(number);
            scope.spawn(move || {
                let worker = Worker { device, clock, workload, areas, random: seed };
                let outcome = worker.run(start, failed);
                failed.fetch_or(outcome.is_err(), Ordering::Relaxed);
                outcome
            })
        };
        let workers: Vec<_> = (0_u64..).zip(areas).map(worker).collect();
        workers.into_iter().map(|worker| worker.join().expect("a worker does not panic")).collect()
    });
    let mut total = Measured::new();
    for part in parts {
        let part = part?;
        total.operations += part.operations;
        total.bytes += part.bytes;
        total.latency_ns.add(part.latency_ns).expect("histograms of one kind");
    }
    total.time_ns = clock.monotonic_ns() - start;
    Ok(total)
}

/// The part of a zone that is used.
#[derive(Clone, Copy)]
struct Area {
    zone: ZoneId,
    start: Lba,
    /// Whole operations that fit.
    operations: u64,
    blocks: LbaCount,
}

impl Area {
    fn new(device: &dyn ZonedDevice, id: ZoneId, workload: &Workload) -> Result<Self> {
        let zone = device.zone(id)?;
        let usable = zone.capacity.min(workload.span);
        let operations = usable.get() / workload.blocks.get().max(1);
        if operations == 0 || workload.blocks == LbaCount::ZERO {
            return Err(WorkloadError::OperationSize { blocks: workload.blocks, zone: id });
        }
        Ok(Self { zone: id, start: zone.start, operations, blocks: workload.blocks })
    }

    fn lba(&self, operation: u64) -> Lba {
        self.start + LbaCount::new(operation * self.blocks.get())
    }

    fn reset(&self, device: &dyn ZonedDevice) -> Result<()> {
        match device.zone(self.zone)?.cond {
            ZoneCond::NotWp => Ok(()),
            _ => Ok(device.manage(Select::One(self.zone), ZoneAction::Reset)?),
        }
    }

    /// Writes the part that is not written yet.
    fn fill(&self, device: &dyn ZonedDevice) -> Result<()> {
        let end = self.lba(self.operations);
        let step = device.geometry().max_append().get().clamp(1, 256);
        let data = vec![0xa5; byte_len(device, LbaCount::new(step))];
        let mut at = device.zone(self.zone)?.wp.unwrap_or(self.start);
        while at < end {
            let count = (end - at).min(LbaCount::new(step));
            device.write(at, &data[..byte_len(device, count)])?;
            at += count;
        }
        Ok(())
    }
}

fn byte_len(device: &dyn ZonedDevice, count: LbaCount) -> usize {
    usize::try_from(device.geometry().bytes(count).get()).expect("a buffer fits in memory")
}

struct Worker<'a> {
    device: &'a dyn ZonedDevice,
    clock: &'a dyn Clock,
    workload: &'a Workload,
    areas: Vec<Area>,
    random: u64,
}

impl Worker<'_> {
    fn run(mut self, start_ns: u64, failed: &AtomicBool) -> Result<Measured> {
        let mut measured = Measured::new();
        let mut buffer = vec![0x5a; byte_len(self.device, self.workload.blocks)];
        let (mut area, mut next) = (0, 0);
        while !self.is_over(measured.operations, start_ns) && !failed.load(Ordering::Relaxed) {
            if next == self.areas[area].operations {
                (area, next) = ((area + 1) % self.areas.len(), 0);
            }
            if next == 0 && self.workload.pattern.writes() {
                self.areas[area].reset(self.device)?;
            }
            let began = match self.workload.latency {
                Latency::Skip => 0,
                Latency::Measure => self.clock.monotonic_ns(),
            };
            self.operate(area, next, &mut buffer)?;
            if self.workload.latency == Latency::Measure {
                let time = self.clock.monotonic_ns().saturating_sub(began);
                measured.latency_ns.saturating_record(time);
            }
            next += 1;
            measured.operations += 1;
        }
        let bytes = measured.operations * buffer.len() as u64;
        Ok(Measured { bytes: ByteCount::new(bytes), ..measured })
    }

    fn is_over(&self, operations: u64, start_ns: u64) -> bool {
        match self.workload.stop {
            Stop::AfterOperations(limit) => operations >= limit,
            // Looked at now and then: reading the clock costs as much as a small operation.
            Stop::AfterNs(limit) => {
                operations.is_multiple_of(64)
                    && self.clock.monotonic_ns().saturating_sub(start_ns) >= limit
            }
        }
    }

    fn operate(
        &mut self,
        area: usize,
        next: u64,
        buffer: &mut [u8],
    ) -> std::result::Result<(), DeviceError> {
        let here = self.areas[area];
        match self.workload.pattern {
            Pattern::Write => self.device.write(here.lba(next), buffer),
            Pattern::Append => self.device.append(here.zone, buffer).map(drop),
            Pattern::Read => self.device.read(here.lba(next), buffer),
            Pattern::RandomRead => {
                let area = self.random_below(self.areas.len() as u64);
                let area = self.areas[area];
                let operation = self.random_below(area.operations);
                self.device.read(area.lba(operation as u64), buffer)
            }
        }
    }

    fn random_below(&mut self, limit: u64) -> usize {
        let below = random_below(&mut self.random, limit);
        usize::try_from(below).expect("below a number of operations")
    }
}

/// A xorshift generator: good enough to pick addresses, and nearly free.
fn random_below(random: &mut u64, limit: u64) -> u64 {
    *random |= 1 << 63;
    *random ^= *random << 13;
    *random ^= *random >> 7;
    *random ^= *random << 17;
    let scaled = (u128::from(*random) * u128::from(limit)) >> 64;
    u64::try_from(scaled).expect("below a limit of 64 bits")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ManualClock, MemoryDrive, Profile};

    fn workload(pattern: Pattern) -> Workload {
        Workload {
            pattern,
            blocks: LbaCount::new(3),
            threads: 3,
            zones: (0..7).map(ZoneId::new).collect(),
            span: LbaCount::new(50),
            stop: Stop::AfterOperations(500),
            latency: Latency::Measure,
            seed: 7,
        }
    }

    #[test]
    fn patterns_run_and_count() {
        for pattern in [Pattern::Write, Pattern::Append, Pattern::Read, Pattern::RandomRead] {
            let drive = MemoryDrive::new(Profile::Small.geometry()).unwrap();
            let clock = ManualClock::new(0);
            prepare(&drive, &workload(pattern)).unwrap();
            let measured = run(&drive, &clock, &workload(pattern)).unwrap();
            assert_eq!(measured.operations, 1500);
            assert_eq!(measured.bytes.get(), 1500 * 3 * 4096);
            assert_eq!(measured.latency_ns.len(), 1500);
            assert!(measured.iops() > 0.0 && measured.mb_per_s() > 0.0);
        }
    }

    #[test]
    fn workload_impossible_is_error() {
        let drive = MemoryDrive::new(Profile::Small.geometry()).unwrap();
        let clock = ManualClock::new(0);
        let few = Workload { zones: vec![ZoneId::ZERO], ..workload(Pattern::Write) };
        let error = run(&drive, &clock, &few).unwrap_err();
        assert!(matches!(error, WorkloadError::Threads { threads: 3, zones: 1 }), "{error}");
        let large = Workload { blocks: LbaCount::new(60), ..workload(Pattern::Write) };
        let error = run(&drive, &clock, &large).unwrap_err();
        assert!(matches!(error, WorkloadError::OperationSize { .. }), "{error}");
    }

    #[test]
    fn run_ends_after_its_time() {
        let drive = MemoryDrive::new(Profile::Small.geometry()).unwrap();
        let timed = Workload { stop: Stop::AfterNs(10_000), ..workload(Pattern::Append) };
        let measured = run(&drive, &ManualClock::new(0), &timed).unwrap();
        assert!(measured.time_ns >= 10_000 && measured.operations > 0);
    }
}
