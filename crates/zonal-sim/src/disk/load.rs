//! Loads that disks are measured with: a closed loop of requests in virtual time.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::Deserialize;
use zonal::{
    Clock, DeviceError, Geometry, Io, Lba, LbaCount, Select, VirtualQueue, ZoneAction, ZoneId,
    ZoneKind, ZonedDevice,
};

use super::SimDisk;
use super::account::Account;
use crate::config::DISK_BLOCK_BYTES;
use crate::size::Size;

/// The longest time that the histogram of requests can hold: an hour.
const TIME_MAX_NS: u64 = 3_600_000_000_000;

/// The operation of a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Operation {
    /// Writes at write pointers, in all zones of the load by turns; the load ends with a flush.
    Write,
    /// Reads of written zones, one after the other.
    Read,
    /// Reads of empty zones.
    ReadUnwritten,
    /// Reads anywhere in written zones.
    RandomRead,
    /// Writes anywhere in conventional zones.
    RandomWrite,
    /// One reset of all zones.
    ResetAll,
}

/// A load.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Load {
    /// Its name.
    pub name: String,
    /// The operation.
    pub operation: Operation,
    /// The first zone; negative: so many zones before the end.
    pub from: i64,
    /// Zones in use.
    #[serde(default = "one")]
    pub zones: u32,
    /// Bytes of a request.
    #[serde(default)]
    pub io: Size,
    /// Requests in flight; of writes at write pointers, one for each zone at most.
    #[serde(default = "one")]
    pub depth: u32,
    /// Requests.
    #[serde(default = "one")]
    pub requests: u32,
}

const fn one() -> u32 {
    1
}

/// The measurements of a load.
#[derive(Clone, Debug, PartialEq)]
pub struct Figures {
    /// Bytes a second, in 10^6.
    pub mb_s: f64,
    /// Requests a second.
    pub iops: f64,
    /// Mean time of a request.
    pub mean_ms: f64,
    /// Time that 99 of 100 requests stay within.
    pub p99_ms: f64,
    /// Virtual time of the load.
    pub seconds: f64,
    /// The counts of the disk.
    pub account: Account,
}

struct Run<'a> {
    disk: &'a SimDisk,
    load: &'a Load,
    first: u32,
    random: ChaCha8Rng,
    /// The next block of each zone that is written in order, or of the one reader.
    next: Vec<u64>,
    buffer: Vec<u8>,
}

impl Load {
    /// Runs it on a new disk.
    #[expect(clippy::cast_precision_loss, reason = "figures for people")]
    pub fn run(&self, disk: &SimDisk, seed: u64) -> Result<Figures, DeviceError> {
        let mut run = Run {
            disk,
            load: self,
            first: self.first_zone(disk.geometry())?,
            random: ChaCha8Rng::seed_from_u64(seed),
            next: vec![0; self.zones as usize],
            buffer: vec![0; usize::try_from(self.io.0).expect("a request in memory")],
        };
        run.prepare()?;
        let start = disk.clock().monotonic_ns();
        let (histogram, end) = run.measure(start)?;
        let seconds = (end - start) as f64 / 1e9;
        let requests = histogram.len() as f64;
        Ok(Figures {
            mb_s: requests * self.io.0 as f64 / seconds / 1e6,
            iops: requests / seconds,
            mean_ms: histogram.mean() / 1e6,
            p99_ms: histogram.value_at_quantile(0.99) as f64 / 1e6,
            seconds,
            account: Account { virtual_ns: end, ..disk.account() },
        })
    }

    /// The first zone; refuses a load that the disk has no place for.
    fn first_zone(&self, geometry: &Geometry) -> Result<u32, DeviceError> {
        let zone = geometry.bytes(geometry.spec().zone_size).get();
        let has_io = self.operation == Operation::ResetAll
            || (self.io.0 > 0 && self.io.0 <= zone && zone.is_multiple_of(self.io.0));
        let has_requests = has_io && self.depth > 0 && self.requests > 0 && self.zones > 0;
        let count = geometry.zone_count();
        let before_end = if self.from < 0 { i64::from(count) } else { 0 };
        let first = u32::try_from(self.from.saturating_add(before_end)).ok();
        let has_zones =
            |first: &u32| first.checked_add(self.zones).is_some_and(|limit| limit <= count);
        first.filter(has_zones).filter(|_| has_requests).ok_or_else(|| DeviceError::Unsuitable {
            path: format!("the load {:?}", self.name).into(),
            what: "needs zones of the disk, a depth, and requests of a size that divides a zone"
                .into(),
        })
    }
}

impl Run<'_> {
    /// Writes the zones that are read or reset.
    fn prepare(&self) -> Result<(), DeviceError> {
        let needs_data = matches!(
            self.load.operation,
            Operation::Read | Operation::RandomRead | Operation::ResetAll
        );
        for zone in (self.first..self.first + self.load.zones).filter(|_| needs_data) {
            let zone = ZoneId::new(zone);
            if self.disk.geometry().kind(zone) == ZoneKind::SequentialRequired {
                self.disk.mark_written(zone)?;
            }
        }
        Ok(())
    }

    /// The requests, and when the last one has ended.
    fn measure(&mut self, start: u64) -> Result<(Histogram<u64>, u64), DeviceError> {
        let mut histogram = Histogram::new_with_max(TIME_MAX_NS, 3).expect("three digits");
        if self.load.operation == Operation::ResetAll {
            let end = self.disk.manage_at(Select::All, ZoneAction::Reset, start)?;
            histogram.saturating_record(end - start);
            return Ok((histogram, end));
        }
        let depth = match self.load.operation {
            Operation::Write => self.load.depth.min(self.load.zones),
            _ => self.load.depth,
        };
        let mut begun = BTreeMap::new();
        let (mut now, mut tag) = (start, 0);
        loop {
            while tag < u64::from(self.load.requests) && begun.len() < depth as usize {
                self.begin(tag, now)?;
                begun.insert(tag, now);
                tag += 1;
            }
            let Some((ended, end)) = self.disk.next_end(u64::MAX) else { break };
            now = end;
            let began = begun.remove(&ended).expect("it was begun");
            histogram.saturating_record(end - began);
        }
        if matches!(self.load.operation, Operation::Write | Operation::RandomWrite) {
            self.disk.begin(&mut Io::flush(), now, tag);
            now = self.disk.next_end(u64::MAX).map_or(now, |(_, end)| end);
        }
        Ok((histogram, now))
    }

    fn begin(&mut self, tag: u64, now: u64) -> Result<(), DeviceError> {
        let lba = self.place(tag);
        let mut buffer = std::mem::take(&mut self.buffer);
        let mut io = match self.load.operation {
            Operation::Write | Operation::RandomWrite => Io::write(lba, &buffer),
            _ => Io::read(lba, &mut buffer),
        };
        self.disk.begin(&mut io, now, tag);
        let outcome = io.outcome().map(drop);
        self.buffer = buffer;
        outcome
    }

    /// Where a request goes.
    fn place(&mut self, tag: u64) -> Lba {
        let geometry = self.disk.geometry();
        let blocks = self.load.io.0 / DISK_BLOCK_BYTES;
        let size = geometry.spec().zone_capacity.get();
        let (zone, offset) = match self.load.operation {
            Operation::Write => {
                let stream = usize::try_from(tag).expect("small") % self.next.len();
                let at = self.next[stream];
                self.next[stream] += blocks;
                // A full zone goes on in the zone behind those in use.
                let turns = u32::try_from(at / size).expect("a zone");
                let zone = u32::try_from(stream).expect("a zone") + turns * self.load.zones;
                (zone, at % size)
            }
            Operation::RandomRead | Operation::RandomWrite => {
                let zone = self.random.random_range(0..self.load.zones);
                (zone, self.random.random_range(0..size / blocks) * blocks)
            }
            Operation::Read | Operation::ReadUnwritten | Operation::ResetAll => {
                let at = self.next[0];
                self.next[0] += blocks;
                (u32::try_from(at / size).expect("a zone") % self.load.zones, at % size)
            }
        };
        geometry.zone_start(ZoneId::new(self.first + zone)) + LbaCount::new(offset)
    }
}
