//! A spinning zoned disk as a [`ZonedDevice`], in virtual time.
//!
//! [`MemoryDrive`] keeps data and zone conditions. `platters.rs` has the place of each byte and the
//! time to get there, `head.rs` the work of the head, `cache.rs` the memory of the disk,
//! `schedule.rs` the order of commands, [`account`] their cost, [`load`] loads that measure a disk.
//!
//! Time: a call begins at the time of the [clock](SimDisk::clock) and moves the clock to its own
//! end. A write ends when the write cache has it; the arm writes it later, while the clock goes on.
//! A flush ends when all is on the platters that the write cache had when it began. Requests are in
//! flight together in a batch, and for a program that begins them at times of its own
//! ([`VirtualQueue`]); then the arm takes them in the order in which it reaches them. A run is
//! repeated exactly only if one thread makes the calls.

pub mod account;
mod cache;
mod head;
pub mod load;
mod platters;
mod schedule;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use zonal::{
    BlockSize, Clock, DeviceError, FailZone, Geometry, GeometrySpec, HeadWork, Io, Lba, LbaCount,
    ManualClock, MemoryDrive, Op, Rules, Select, VirtualQueue, Zone, ZoneAction, ZoneCond,
    ZoneFailure, ZoneId, ZoneKind, ZoneRuns, ZonedDevice,
};

use self::account::Account;
use self::cache::Piece;
use self::schedule::{Read, Schedule};
use crate::config::{Config, DISK_BLOCK_BYTES, Disk, Zones};
use crate::controller::ns;
use crate::ends::Tag;
use crate::error::{Result, SimError, refused};

/// Bytes of the largest append, as the kernel's emulation of appends on SCSI disks takes: a command
/// of 1 MiB. Assumed.
const APPEND_BYTES: u64 = 1 << 20;

/// Tags of calls that wait for their end; a program counts its own from 0.
const OWN_TAGS: Tag = 1 << 63;

type DeviceResult<T> = std::result::Result<T, DeviceError>;

/// A simulated spinning disk.
///
/// ```
/// use zonal::{Clock, ZoneId, ZonedDevice};
/// use zonal_sim::{Config, SimDisk, preset::Preset};
/// let config = Config::parse(Preset::find("hc620").unwrap().text)?; // 14 TB
/// let disk = SimDisk::new(&config)?;
/// disk.append(ZoneId::new(1000), &[7; 1 << 20])?;
/// let acknowledged = disk.clock().monotonic_ns();
/// disk.flush()?; // the arm moves, the platter turns, 1 MiB passes below the head
/// assert!(disk.clock().monotonic_ns() > acknowledged + 4_000_000);
/// assert_eq!(disk.account().jumps, 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct SimDisk {
    drive: MemoryDrive,
    clock: Arc<ManualClock>,
    state: Mutex<State>,
}

struct State {
    schedule: Schedule,
    /// The number of the next call that waits.
    calls: Tag,
    manage_ns: u64,
    reset_ns: u64,
    reset_all_ns: u64,
}

impl SimDisk {
    /// A disk on which nothing was ever written, with a clock of its own.
    pub fn new(config: &Config) -> Result<Self> {
        config.check()?;
        let Some(disk) = &config.disk else {
            return Err(refused("disk", "none", "a spinning disk needs this section"));
        };
        let spec = geometry(disk, &config.zones);
        let drive = MemoryDrive::with_rules(spec, Rules::Zbc).map_err(|error| {
            let (value, allowed) = (config.zones.size.to_string(), error.to_string());
            SimError::Field { field: "zones.size", value, allowed }
        })?;
        let state = State {
            schedule: Schedule::new(disk, config.zones.size.0),
            calls: OWN_TAGS,
            manage_ns: ns(disk.manage_us),
            reset_ns: ns(disk.reset_us),
            reset_all_ns: ns(disk.reset_all_ms * 1e3),
        };
        Ok(Self { drive, clock: Arc::new(ManualClock::new(0)), state: Mutex::new(state) })
    }

    /// The clock that the disk's operations move. Programs on the disk share it.
    pub fn clock(&self) -> Arc<ManualClock> {
        Arc::clone(&self.clock)
    }

    /// Counts so far.
    pub fn account(&self) -> Account {
        let mut account = self.state().schedule.head.account.clone();
        account.virtual_ns = self.clock.monotonic_ns();
        account
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a request: its data moves at once, and its time passes in the schedule.
    fn begin_request(
        &self,
        state: &mut State,
        op: &mut Op<'_>,
        now: u64,
        tag: Tag,
    ) -> DeviceResult<Lba> {
        let schedule = &mut state.schedule;
        let begun = match op {
            Op::Read { lba, buffer } => self.drive.read(*lba, buffer).and_then(|()| {
                let read = self.parts(*lba, buffer.len() as u64)?;
                schedule.head.account.host_read_bytes += buffer.len() as u64;
                schedule.read(tag, now, &read);
                Ok(*lba)
            }),
            Op::Write { lba, data } => self.drive.write(*lba, data).map(|()| {
                self.store(schedule, *lba, data.len() as u64, now, tag);
                *lba
            }),
            Op::Append { zone, data } => self.drive.append(*zone, data).inspect(|lba| {
                self.store(schedule, *lba, data.len() as u64, now, tag);
            }),
            Op::Flush => self.drive.flush().map(|()| {
                schedule.head.account.flushes += 1;
                schedule.flush(tag, now);
                Lba::ZERO
            }),
        };
        if begun.is_err() {
            schedule.other(tag, now, state.manage_ns);
        }
        begun
    }

    fn store(&self, schedule: &mut Schedule, lba: Lba, bytes: u64, now: u64, tag: Tag) {
        schedule.head.account.host_written_bytes += bytes;
        if bytes == 0 {
            schedule.other(tag, now, 0);
            return;
        }
        let (zone, offset) = self.geometry().locate(lba);
        let start = offset.get() * DISK_BLOCK_BYTES;
        schedule.write(tag, now, Piece { zone: zone.get(), bytes: start..start + bytes });
    }

    /// The parts of a read.
    fn parts(&self, lba: Lba, bytes: u64) -> DeviceResult<Read> {
        let (mut parts, mut unwritten) = (Vec::new(), 0);
        let (mut at, limit) = (lba, lba + LbaCount::new(bytes / DISK_BLOCK_BYTES));
        while at < limit {
            let (zone, offset) = self.geometry().locate(at);
            let count = (limit - at).min(self.geometry().size_of(zone) - offset);
            let (first, size) = (self.geometry().zone_start(zone), self.geometry().size_of(zone));
            let written = self.drive.zone(zone)?.wp.map_or(size, |wp| wp - first);
            let end = written.min(offset + count).max(offset);
            let bytes = offset.get() * DISK_BLOCK_BYTES..end.get() * DISK_BLOCK_BYTES;
            unwritten += (offset + count - end).get() * DISK_BLOCK_BYTES;
            if bytes.start < bytes.end {
                let piece = Piece { zone: zone.get(), bytes };
                parts.push((piece, written.get() * DISK_BLOCK_BYTES));
            }
            at += count;
        }
        Ok(Read { written: parts, unwritten })
    }

    /// Performs one request, and moves the clock to its end.
    fn perform_now(&self, mut op: Op<'_>) -> DeviceResult<Lba> {
        let mut state = self.state();
        let (begin, tag) = (self.clock.monotonic_ns(), state.own_tag());
        let outcome = self.begin_request(&mut state, &mut op, begin, tag);
        self.pass(begin, state.wait_from(tag).unwrap_or(begin));
        outcome
    }

    /// A command that neither moves data nor changes a zone.
    fn pass_command(&self) {
        let takes = self.state().manage_ns;
        self.clock.advance_ns(takes);
    }

    /// Ends a call that began at `begin`.
    fn pass(&self, begin: u64, end: u64) {
        self.clock.advance_ns(end.saturating_sub(begin));
    }

    /// Changes the condition of zones from `now` on; returns the outcome, and when it ends.
    fn manage_from(
        &self,
        state: &mut State,
        zones: Select,
        action: ZoneAction,
        now: u64,
    ) -> (DeviceResult<()>, u64) {
        let lost = match (zones, action) {
            (Select::One(zone), ZoneAction::Reset) => vec![zone],
            (Select::All, ZoneAction::Reset) => self.with_data(),
            _ => Vec::new(),
        };
        let outcome = self.drive.manage(zones, action);
        for zone in lost {
            let is_empty = self.drive.zone(zone).is_ok_and(|zone| zone.cond == ZoneCond::Empty);
            if is_empty {
                state.schedule.reset(now, zone.get());
            }
        }
        let takes = match (zones, action) {
            (Select::One(_), ZoneAction::Reset) => state.reset_ns,
            (Select::All, ZoneAction::Reset) => state.reset_all_ns,
            _ => state.manage_ns,
        };
        (outcome, now + takes)
    }

    /// Zones that are not empty.
    fn with_data(&self) -> Vec<ZoneId> {
        let zones = self.drive.report_all().unwrap_or_default();
        zones.iter().filter(|zone| zone.cond != ZoneCond::Empty).map(|zone| zone.id).collect()
    }
}

impl State {
    fn own_tag(&mut self) -> Tag {
        self.calls += 1;
        self.calls
    }

    /// Lets time pass until the calls from this tag on have ended; returns when the last one does.
    fn wait_from(&mut self, first: Tag) -> Option<u64> {
        let tags = first..=self.calls;
        let (mut last, mut others) = (None, Vec::new());
        for _ in tags.clone() {
            last = loop {
                let (tag, end) = self.schedule.next_end(u64::MAX).expect("every command ends");
                if tags.contains(&tag) {
                    break Some(end);
                }
                others.push((tag, end));
            };
        }
        for (tag, end) in others {
            self.schedule.put_back(tag, end);
        }
        last
    }
}

/// The shape that the host sees.
fn geometry(disk: &Disk, zones: &Zones) -> GeometrySpec {
    let zone = LbaCount::new(zones.size.0 / DISK_BLOCK_BYTES);
    let conventional_zones = ZoneRuns::leading(disk.conventional);
    let sequential = disk.conventional < disk.zones;
    let most = |limit: u32| sequential.then_some(limit);
    GeometrySpec {
        block_size: BlockSize::B4096,
        block_count: LbaCount::new(u64::from(disk.zones) * zone.get()),
        zone_size: zone,
        zone_capacity: zone,
        conventional_zones,
        sequential_kind: ZoneKind::SequentialRequired,
        max_open: most(zones.max_open),
        max_active: None,
        max_append: LbaCount::new(APPEND_BYTES / DISK_BLOCK_BYTES),
    }
}

impl FailZone for SimDisk {
    fn fail_zone(&self, zone: ZoneId, failure: ZoneFailure) -> DeviceResult<()> {
        self.drive.fail_zone(zone, failure)
    }
}

impl ZonedDevice for SimDisk {
    fn geometry(&self) -> &Geometry {
        self.drive.geometry()
    }

    fn rotates(&self) -> bool {
        true
    }

    fn report(&self, first: ZoneId, zones: &mut Vec<Zone>, limit: usize) -> DeviceResult<()> {
        self.pass_command();
        self.drive.report(first, zones, limit)
    }

    fn read(&self, lba: Lba, buffer: &mut [u8]) -> DeviceResult<()> {
        self.perform_now(Op::Read { lba, buffer }).map(drop)
    }

    fn write(&self, lba: Lba, data: &[u8]) -> DeviceResult<()> {
        self.perform_now(Op::Write { lba, data }).map(drop)
    }

    fn append(&self, zone: ZoneId, data: &[u8]) -> DeviceResult<Lba> {
        self.perform_now(Op::Append { zone, data })
    }

    fn submit(&self, batch: &mut [Io<'_>]) {
        let mut state = self.state();
        let begin = self.clock.monotonic_ns();
        let (mut at, mut first) = (begin, state.calls + 1);
        for io in batch {
            let is_flush = matches!(io.op, Op::Flush);
            if is_flush {
                let end = state.wait_from(first);
                (at, first) = (end.unwrap_or(at), state.calls + 1);
            }
            let tag = state.own_tag();
            io.result = Some(self.begin_request(&mut state, &mut io.op, at, tag));
            if is_flush {
                let end = state.wait_from(first);
                (at, first) = (end.unwrap_or(at), state.calls + 1);
            }
        }
        let end = state.wait_from(first);
        self.pass(begin, end.unwrap_or(at));
    }

    fn virtual_queue(&self) -> Option<&dyn VirtualQueue> {
        Some(self)
    }

    fn manage(&self, zones: Select, action: ZoneAction) -> DeviceResult<()> {
        let mut state = self.state();
        let begin = self.clock.monotonic_ns();
        let (outcome, end) = self.manage_from(&mut state, zones, action, begin);
        self.pass(begin, end);
        outcome
    }

    fn deallocate(&self, lba: Lba, blocks: LbaCount) -> DeviceResult<()> {
        self.pass_command();
        self.drive.deallocate(lba, blocks)
    }

    fn flush(&self) -> DeviceResult<()> {
        self.perform_now(Op::Flush).map(drop)
    }
}

impl VirtualQueue for SimDisk {
    fn clock(&self) -> &ManualClock {
        &self.clock
    }

    fn begin(&self, io: &mut Io<'_>, at_ns: u64, tag: Tag) {
        let outcome = self.begin_request(&mut self.state(), &mut io.op, at_ns, tag);
        io.result = Some(outcome);
    }

    fn next_end(&self, until_ns: u64) -> Option<(Tag, u64)> {
        self.state().schedule.next_end(until_ns)
    }

    fn manage_at(&self, zones: Select, action: ZoneAction, at_ns: u64) -> DeviceResult<u64> {
        let (outcome, end) = self.manage_from(&mut self.state(), zones, action, at_ns);
        outcome.map(|()| end)
    }

    fn mark_written(&self, zone: ZoneId) -> DeviceResult<()> {
        self.drive.mark_written(zone)
    }

    fn head_work(&self) -> Option<HeadWork> {
        Some(self.state().schedule.head.account.work())
    }
}
