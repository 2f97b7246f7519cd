//! Many requests in flight on a device in virtual time: by queue depth, in several zones, and along
//! with writes or resets.
//!
//! A request begins when an earlier one of its place in the queue has ended. No thread waits, so a
//! run is repeated exactly.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use super::{Measured, Pattern, Result, WorkloadError};
use crate::device::batch::Io;
use crate::{
    ByteCount, Clock, DeviceError, HeadWork, LbaCount, Select, VirtualQueue, ZoneAction, ZoneCond,
    ZoneId, ZonedDevice,
};

/// Bytes of a zone that reads use: whole programs of any drive, and many for each die.
const READ_SPAN_BYTES: u64 = 256 << 20;

/// Virtual time that a drive gets to empty its write buffer before a measurement.
const REST_NS: u64 = 1_000_000_000;

/// The tag of a request that fills a zone.
const FILL: u64 = 0;

/// The first part of a run is not measured: one in so many. The write buffer fills in it.
const RAMP: u64 = 5;

/// A workload of requests in flight.
#[derive(Clone, Debug)]
pub struct Workload {
    /// The pattern.
    pub pattern: Pattern,
    /// Blocks of one operation.
    pub blocks: LbaCount,
    /// Zones in use at once.
    pub zones: u32,
    /// Operations in flight in each of them; a write has one at a time, whatever this says.
    pub depth: u32,
    /// Virtual time to measure.
    pub time_ns: u64,
    /// Seed of random addresses.
    pub seed: u64,
    /// The other work of the drive.
    pub beside: Beside,
}

/// The work of a drive in addition to the measured operations, in zones of its own.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Beside {
    /// Nothing.
    Nothing,
    /// Writes, one in flight, so many bytes a second at most.
    Writes {
        /// Blocks of one.
        blocks: LbaCount,
        /// Bytes a second.
        bytes_s: f64,
    },
    /// Resets of full zones, one after the other.
    Resets,
}

/// The measurements of a run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The operations.
    pub main: Measured,
    /// The other work of the drive.
    pub beside: Measured,
    /// The work of the head in the measured time, of a disk. An operation counts when it begins.
    pub head: Option<HeadWork>,
}

/// Runs a workload in empty zones, and empties them again.
pub fn run(device: &dyn ZonedDevice, workload: &Workload) -> Result<Outcome> {
    let Some(queue) = device.virtual_queue() else {
        let what = "has no queue in virtual time".into();
        return Err(WorkloadError::Device(DeviceError::Unsuitable {
            path: "the device".into(),
            what,
        }));
    };
    let zones = device.report_all()?;
    let empty = zones.iter().filter(|zone| zone.cond == ZoneCond::Empty).map(|zone| zone.id);
    let mut free: Vec<ZoneId> = empty.collect();
    free.reverse();
    let mut run = Run {
        device,
        queue,
        workload,
        free,
        used: Vec::new(),
        buffer: Vec::new(),
        random: workload.seed,
        events: BinaryHeap::new(),
        in_flight: BTreeMap::new(),
        sequence: FILL,
    };
    let outcome = run.measure();
    // A run that fails leaves requests in flight.
    while run.queue.next_end(u64::MAX).is_some() {}
    for zone in std::mem::take(&mut run.used) {
        let now_ns = run.queue.clock().monotonic_ns();
        let end_ns = run.queue.manage_at(Select::One(zone), ZoneAction::Reset, now_ns)?;
        run.queue.clock().advance_ns(end_ns.saturating_sub(now_ns));
    }
    outcome
}

/// Writes zeroes to the first blocks of an empty zone from `at_ns` on, one request after the other,
/// and returns when that ends. The clock stays as it is.
pub fn fill(
    device: &dyn ZonedDevice,
    queue: &dyn VirtualQueue,
    zone: ZoneId,
    blocks: LbaCount,
    at_ns: u64,
) -> std::result::Result<u64, DeviceError> {
    let step = LbaCount::new(device.geometry().max_append().get().clamp(1, 256));
    let zeroes = vec![0; super::byte_len(device, step)];
    let start = device.geometry().zone_start(zone);
    let (mut at, mut end_ns) = (LbaCount::ZERO, at_ns);
    while at < blocks {
        let count = (blocks - at).min(step);
        let mut io = Io::write(start + at, &zeroes[..super::byte_len(device, count)]);
        queue.begin(&mut io, end_ns, FILL);
        io.outcome()?;
        while let Some((_, ended_ns)) = queue.next_end(u64::MAX) {
            end_ns = ended_ns;
        }
        at += count;
    }
    Ok(end_ns)
}

/// A place in the queue, whose next request may begin.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    /// Of the operations, in the zone of this number.
    Main(usize),
    /// Of the writes in addition to them.
    Writes,
    /// Of the resets.
    Resets,
}

/// A request in flight.
#[derive(Clone, Copy)]
struct InFlight {
    place: Place,
    began_ns: u64,
    bytes: u64,
}

/// A zone that is written from its start to its end, and replaced then.
struct Stream {
    zone: ZoneId,
    next: LbaCount,
}

/// The zones of a run.
struct Zones {
    streams: Vec<Stream>,
    /// The zone of the writes in addition to the operations.
    beside: Stream,
    /// Full zones, to be reset.
    full: Vec<ZoneId>,
}

/// An operation that was begun.
enum Begun {
    InFlight,
    /// It needs no queue, and ends at this time.
    Ended(u64),
    NothingLeft,
}

struct Run<'a> {
    device: &'a dyn ZonedDevice,
    queue: &'a dyn VirtualQueue,
    workload: &'a Workload,
    /// Empty zones, the next one last.
    free: Vec<ZoneId>,
    /// Zones that hold something.
    used: Vec<ZoneId>,
    buffer: Vec<u8>,
    random: u64,
    /// Times at which requests begin.
    events: BinaryHeap<Reverse<(u64, u64, Place)>>,
    in_flight: BTreeMap<u64, InFlight>,
    sequence: u64,
}

impl Run<'_> {
    fn measure(&mut self) -> Result<Outcome> {
        let mut zones = self.zones()?;
        self.queue.clock().advance_ns(REST_NS);
        let start_ns = self.queue.clock().monotonic_ns();
        let ramp_ns = self.workload.time_ns / RAMP;
        let (begin_ns, mut end_ns) =
            (start_ns + ramp_ns, start_ns + ramp_ns + self.workload.time_ns);
        self.begin(start_ns, zones.streams.len());
        let mut outcome = Outcome { main: Measured::new(), beside: Measured::new(), head: None };
        let (mut head_begin, mut head_end) = (self.queue.head_work(), None);
        let mut written = 0.0;
        loop {
            let next = self.events.peek().map_or(u64::MAX, |Reverse((at_ns, ..))| *at_ns);
            let (ended, done_ns) = if let Some((tag, done_ns)) = self.queue.next_end(next) {
                (self.in_flight.remove(&tag).expect("it was begun"), done_ns)
            } else {
                let Some(Reverse((at_ns, _, place))) = self.events.pop() else { break };
                if at_ns >= end_ns {
                    continue;
                }
                match self.begin_one(place, at_ns, &mut zones)? {
                    Begun::InFlight => continue,
                    Begun::Ended(done_ns) => {
                        (InFlight { place, began_ns: at_ns, bytes: 0 }, done_ns)
                    }
                    Begun::NothingLeft => {
                        end_ns = at_ns;
                        continue;
                    }
                }
            };
            let InFlight { place, began_ns, bytes } = ended;
            if done_ns <= begin_ns {
                head_begin = self.queue.head_work();
            } else if done_ns <= end_ns {
                head_end = self.queue.head_work();
            }
            if done_ns > begin_ns && done_ns <= end_ns {
                let measured = match place {
                    Place::Main(_) => &mut outcome.main,
                    Place::Writes | Place::Resets => &mut outcome.beside,
                };
                measured.operations += 1;
                measured.bytes += ByteCount::new(bytes);
                measured.latency_ns.saturating_record(done_ns - began_ns);
            }
            let next_ns = if place == Place::Writes {
                let (_, bytes_s) = self.writes_beside();
                done_ns.max(start_ns + after_ns(&mut written, bytes, bytes_s))
            } else {
                done_ns
            };
            self.push(next_ns, place);
        }
        outcome.head = head_begin.map(|begin| head_end.unwrap_or(begin).since(begin));
        for measured in [&mut outcome.main, &mut outcome.beside] {
            measured.time_ns = end_ns.saturating_sub(begin_ns);
        }
        let now_ns = self.queue.clock().monotonic_ns();
        self.queue.clock().advance_ns(end_ns.saturating_sub(now_ns) + REST_NS);
        Ok(outcome)
    }

    /// The zones of all operations.
    fn zones(&mut self) -> Result<Zones> {
        let streams = self.streams()?;
        let mut beside = Stream { zone: ZoneId::ZERO, next: LbaCount::ZERO };
        let mut full = Vec::new();
        match self.workload.beside {
            Beside::Nothing => {}
            Beside::Writes { .. } => beside.zone = self.take()?,
            Beside::Resets => full = self.fill_for_resets()?,
        }
        Ok(Zones { streams, beside, full })
    }

    /// Begins the next operation of a place.
    fn begin_one(&mut self, place: Place, at_ns: u64, zones: &mut Zones) -> Result<Begun> {
        match place {
            Place::Main(zone) if self.workload.pattern.writes() => {
                self.write(place, &mut zones.streams[zone], self.workload.blocks, at_ns)?;
            }
            Place::Main(zone) => self.read(place, &mut zones.streams[zone], at_ns)?,
            Place::Writes => {
                let (blocks, _) = self.writes_beside();
                self.write(place, &mut zones.beside, blocks, at_ns)?;
            }
            Place::Resets => {
                let Some(zone) = zones.full.pop() else { return Ok(Begun::NothingLeft) };
                let reset = self.queue.manage_at(Select::One(zone), ZoneAction::Reset, at_ns);
                return Ok(Begun::Ended(reset?));
            }
        }
        Ok(Begun::InFlight)
    }

    /// Blocks and rate of the writes in addition to the operations.
    fn writes_beside(&self) -> (LbaCount, f64) {
        match self.workload.beside {
            Beside::Writes { blocks, bytes_s } => (blocks, bytes_s),
            Beside::Nothing | Beside::Resets => {
                unreachable!("the workload has no writes beside its operations")
            }
        }
    }

    /// Begins a request, which has moved its data then.
    fn submit(&mut self, place: Place, mut io: Io<'_>, bytes: usize, at_ns: u64) -> Result<()> {
        self.sequence += 1;
        let flight = InFlight { place, began_ns: at_ns, bytes: bytes as u64 };
        self.in_flight.insert(self.sequence, flight);
        self.queue.begin(&mut io, at_ns, self.sequence);
        Ok(io.outcome().map(drop)?)
    }

    /// The zones of the operations; reads get full ones.
    fn streams(&mut self) -> Result<Vec<Stream>> {
        let writing = self.workload.pattern.writes();
        let mut streams = Vec::new();
        for _ in 0..self.workload.zones {
            let zone = self.take()?;
            if !writing {
                self.fill(zone, self.read_span())?;
            }
            streams.push(Stream { zone, next: LbaCount::ZERO });
        }
        Ok(streams)
    }

    /// Puts the first requests into the queue.
    fn begin(&mut self, start_ns: u64, zones: usize) {
        let depth = if self.workload.pattern == Pattern::Write { 1 } else { self.workload.depth };
        for _ in 0..depth {
            (0..zones).for_each(|zone| self.push(start_ns, Place::Main(zone)));
        }
        match self.workload.beside {
            Beside::Nothing => {}
            Beside::Writes { .. } => self.push(start_ns, Place::Writes),
            Beside::Resets => self.push(start_ns, Place::Resets),
        }
    }

    fn push(&mut self, at_ns: u64, place: Place) {
        self.sequence += 1;
        self.events.push(Reverse((at_ns, self.sequence, place)));
    }

    /// An empty zone.
    fn take(&mut self) -> Result<ZoneId> {
        let zones = self.used.len();
        let zone = self
            .free
            .pop()
            .ok_or(WorkloadError::Threads { threads: self.workload.zones, zones })?;
        self.used.push(zone);
        Ok(zone)
    }

    fn capacity(&self) -> LbaCount {
        self.device.geometry().spec().zone_capacity
    }

    /// Whole operations of a zone that reads use.
    fn read_span(&self) -> LbaCount {
        let span = READ_SPAN_BYTES >> self.device.geometry().block_size().shift();
        let blocks = self.workload.blocks.get().max(1);
        LbaCount::new(span.min(self.capacity().get()) / blocks * blocks)
    }

    fn read(&mut self, place: Place, stream: &mut Stream, at_ns: u64) -> Result<()> {
        let (span, blocks) = (self.read_span(), self.workload.blocks);
        let offset = match self.workload.pattern {
            Pattern::RandomRead => {
                let places = span.get() / blocks.get();
                LbaCount::new(self.random_below(places) * blocks.get())
            }
            Pattern::Read | Pattern::Write | Pattern::Append => {
                let offset = if stream.next + blocks > span { LbaCount::ZERO } else { stream.next };
                stream.next = offset + blocks;
                offset
            }
        };
        let lba = self.device.geometry().zone_start(stream.zone) + offset;
        let bytes = self.sized(blocks);
        let mut buffer = std::mem::take(&mut self.buffer);
        let begun = self.submit(place, Io::read(lba, &mut buffer[..bytes]), bytes, at_ns);
        self.buffer = buffer;
        begun
    }

    /// Writes or appends at the end of a stream; a full zone is replaced by an empty one.
    fn write(
        &mut self,
        place: Place,
        stream: &mut Stream,
        blocks: LbaCount,
        at_ns: u64,
    ) -> Result<()> {
        if stream.next + blocks > self.capacity() {
            self.seal(stream.zone, at_ns)?;
            if self.free.is_empty() {
                // The written data is not needed: no request waits for these resets.
                let used = std::mem::take(&mut self.used);
                for &zone in used.iter().filter(|&&zone| zone != stream.zone) {
                    if self.device.zone(zone)?.cond == ZoneCond::Full {
                        self.queue.manage_at(Select::One(zone), ZoneAction::Reset, at_ns)?;
                        self.free.push(zone);
                    } else {
                        self.used.push(zone);
                    }
                }
                self.used.push(stream.zone);
            }
            *stream = Stream { zone: self.take()?, next: LbaCount::ZERO };
        }
        let lba = self.device.geometry().zone_start(stream.zone) + stream.next;
        let bytes = self.sized(blocks);
        let buffer = std::mem::take(&mut self.buffer);
        let io = if self.workload.pattern == Pattern::Append {
            Io::append(stream.zone, &buffer[..bytes])
        } else {
            Io::write(lba, &buffer[..bytes])
        };
        let begun = self.submit(place, io, bytes, at_ns);
        self.buffer = buffer;
        begun?;
        stream.next += blocks;
        Ok(())
    }

    /// Gives up the rest of a zone, if there is one.
    fn seal(&self, zone: ZoneId, at_ns: u64) -> Result<()> {
        if self.device.zone(zone)?.cond != ZoneCond::Full {
            self.queue.manage_at(Select::One(zone), ZoneAction::Finish, at_ns)?;
        }
        Ok(())
    }

    /// Writes the first blocks of an empty zone, and finishes it.
    fn fill(&mut self, zone: ZoneId, blocks: LbaCount) -> Result<()> {
        let clock = self.queue.clock();
        let now_ns = clock.monotonic_ns();
        let end_ns = fill(self.device, self.queue, zone, blocks, now_ns)?;
        clock.advance_ns(end_ns.saturating_sub(now_ns));
        self.seal(zone, clock.monotonic_ns())?;
        clock.advance_ns(REST_NS);
        Ok(())
    }

    /// Full zones, enough for resets of ten milliseconds all the time, or all that are left.
    fn fill_for_resets(&mut self) -> Result<Vec<ZoneId>> {
        const RESET_NS: u64 = 10_000_000;
        let wanted = (self.workload.time_ns + self.workload.time_ns / RAMP) / RESET_NS + 1;
        let mut full = Vec::new();
        while (full.len() as u64) < wanted && !self.free.is_empty() {
            let zone = self.take()?;
            self.queue.mark_written(zone)?;
            full.push(zone);
        }
        Ok(full)
    }

    /// Makes the buffer as large as `blocks`. It holds zeroes, for which a drive in memory takes no
    /// memory.
    fn sized(&mut self, blocks: LbaCount) -> usize {
        let bytes = super::byte_len(self.device, blocks);
        if self.buffer.len() < bytes {
            self.buffer.resize(bytes, 0);
        }
        bytes
    }

    fn random_below(&mut self, limit: u64) -> u64 {
        super::random_below(&mut self.random, limit)
    }
}

/// The time after which so many bytes more are due, at `bytes_s` a second.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "below 2^53 for days and for petabytes"
)]
fn after_ns(written: &mut f64, bytes: u64, bytes_s: f64) -> u64 {
    *written += bytes as f64;
    (*written * 1e9 / bytes_s) as u64
}
