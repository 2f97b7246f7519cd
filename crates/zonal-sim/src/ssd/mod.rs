//! A zoned SSD as a [`ZonedDevice`]: file systems run on it, in virtual time, and every program and
//! erase of its flash is counted.
//!
//! [`MemoryDrive`] keeps data and zone conditions; [`ZoneMapped`] decides placement and wear.
//! Memory is taken as data arrives, so a drive of 2 TiB needs only as much as the host writes.
//!
//! Time: a call begins at the time of the [clock](SimSsd::clock) and moves the clock to its own
//! end. Writes end when the write buffer has taken them, which outlives a power cut (assumed, as in
//! data-centre drives), so a flush has nothing to wait for. Reads end with the last byte. Erases go
//! on after a reset has returned. Calls of several threads are executed one after the other, in the
//! order in which they take the lock. A run is repeated exactly only if one thread makes the calls.
//!
//! Requests overlap in a batch ([`SimSsd::side_by_side`]), and if a program begins them at times of
//! its own ([`VirtualQueue`]). They share the flash, and the
//! [controller](crate::config::Controller) if the drive has one.
//!
//! [`BlockSsd`] is the drive to compare it with: the same flash and the same times, but it takes
//! writes in any order.

mod array;
mod block;
mod dies;
mod place;
mod timing;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use zonal::{
    BlockSize, Clock, DeviceError, FailZone, Geometry, GeometrySpec, Io, Lba, LbaCount,
    ManualClock, MemoryDrive, Op, Select, VirtualQueue, Zone, ZoneAction, ZoneCond, ZoneFailure,
    ZoneId, ZoneKind, ZoneRuns, ZonedDevice,
};

pub use block::BlockSsd;
pub use dies::Operations;

use self::array::Left;
use self::timing::{OpenStripe, Reset, Timing};
use crate::config::{Config, Kind, Layout};
use crate::controller::{First, WriteKind};
use crate::ends::Ends;
use crate::error::{Result, SimError, refused};
use crate::ftl::{Counters, Translation, Work, ZoneMapped};
use crate::size::Size;

/// Bytes of the largest append. 1 MiB: assumed.
const APPEND_BYTES: u64 = 1 << 20;

/// Firmware time of any command but a read, which has its own. 6 µs: assumed, as for reads of the
/// conventional drive.
const COMMAND_NS: u64 = 6_000;

type DeviceResult<T> = std::result::Result<T, DeviceError>;

/// A simulated zoned SSD.
///
/// ```
/// use zonal::{Clock, ZoneId, ZonedDevice};
/// use zonal_sim::{Config, SimSsd};
/// let drive = SimSsd::new(&Config::default())?; // 2 TiB
/// drive.append(ZoneId::new(3), &[7; 1 << 20])?;
/// drive.manage(zonal::Select::All, zonal::ZoneAction::Finish)?;
/// let account = drive.account();
/// assert_eq!(account.host_bytes, 1 << 20);
/// assert_eq!(account.padded_bytes, (1077 << 20) - (1 << 20)); // the rest of its superblock
/// assert!(drive.clock().monotonic_ns() > 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct SimSsd {
    drive: MemoryDrive,
    clock: Arc<ManualClock>,
    flash: Mutex<Flash>,
    batches: Batches,
}

/// How the requests of a batch are performed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Batches {
    OneByOne,
    SideBySide,
}

/// The parts below the zones, behind one lock.
struct Flash {
    zones: ZoneMapped,
    timing: Timing,
    stripe_units: u32,
    /// Ends of requests in flight, with their tags.
    ends: Ends,
}

/// Counts of a drive's flash since the drive was made.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Account {
    /// Bytes the host wrote.
    pub host_bytes: u64,
    /// Bytes the drive moved by itself: GC.
    pub moved_bytes: u64,
    /// Bytes of padding programmed when zones were finished.
    pub padded_bytes: u64,
    /// Bytes of these that still wait in the write buffer for the rest of their program.
    pub buffered_bytes: u64,
    /// Bytes of one program of one die.
    pub program_bytes: u64,
    /// Bytes programmed per byte the host wrote; NaN before anything is written.
    pub wa: f64,
    /// Operations of the dies.
    pub operations: Operations,
    /// Superblocks erased.
    pub erased: u64,
    /// Bytes of a superblock.
    pub superblock_bytes: u64,
    /// Erases of the superblock with the fewest and of the one with the most.
    pub erases_min: u32,
    /// See `erases_min`.
    pub erases_max: u32,
    /// Virtual time since the drive was made, in nanoseconds.
    pub virtual_ns: u64,
}

impl SimSsd {
    /// A drive on which nothing was ever written, with a clock of its own. It is zoned, also if
    /// `drive.kind` is another kind.
    pub fn new(config: &Config) -> Result<Self> {
        let mut config = config.clone();
        config.drive.kind = Kind::Zns;
        // A block is a unit: zones are mapped whole, so small units cost nothing.
        config.drive.unit = Size(BlockSize::B4096.bytes());
        config.check()?;
        let layout = config.layout()?;
        let spec = geometry(&config, &layout)?;
        let drive = MemoryDrive::new(spec).map_err(|error| SimError::Field {
            field: "zones.size",
            value: config.zones.size.to_string(),
            allowed: error.to_string(),
        })?;
        // The memory drive keeps the limits: zones that failed count for it and not for the flash.
        config.zones.max_active = u32::MAX;
        let flash = Flash {
            zones: ZoneMapped::new(&config)?,
            timing: Timing::new(&config, &layout),
            stripe_units: layout.block_units / config.flash.programs_per_block,
            ends: Ends::default(),
        };
        let batches =
            if flash.timing.is_controlled() { Batches::SideBySide } else { Batches::OneByOne };
        let clock = Arc::new(ManualClock::new(0));
        Ok(Self { drive, clock, flash: Mutex::new(flash), batches })
    }

    /// The same drive, where the requests of a batch overlap on dies and channels. A drive with a
    /// controller does that anyway; another one performs them one after the other.
    #[must_use]
    pub fn side_by_side(self) -> Self {
        Self { batches: Batches::SideBySide, ..self }
    }

    /// The clock that the drive's operations move. Programs on the drive share it.
    pub fn clock(&self) -> Arc<ManualClock> {
        Arc::clone(&self.clock)
    }

    /// Counts of the flash so far.
    pub fn account(&self) -> Account {
        let flash = self.flash();
        let (zones, now) = (&flash.zones, self.clock.monotonic_ns());
        let (operations, program) = (flash.timing.operations(), flash.timing.program_bytes());
        let (counters, layout) = (zones.counters(), zones.layout());
        Account::new(&counters, layout, operations, program, zones.erases(), now)
    }

    /// The counters of the translation layer, in blocks.
    pub fn counters(&self) -> Counters {
        self.flash().zones.counters()
    }

    /// Performs a request that begins at `at_ns`, gives it its result and returns when it ends,
    /// which an SSD knows at once. The clock stays as it is.
    pub fn perform_at(&self, io: &mut Io<'_>, at_ns: u64) -> u64 {
        let outcome = self.perform(&mut self.flash(), &mut io.op, at_ns);
        let end = outcome.as_ref().map_or(at_ns, |&(_, end)| end);
        io.result = Some(outcome.map(|(lba, _)| lba));
        end
    }

    fn flash(&self) -> MutexGuard<'_, Flash> {
        self.flash.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends a call that began at `begin` (`end`: when the flash is done with it).
    fn pass(&self, begin: u64, end: u64) {
        self.clock.advance_ns(end.saturating_sub(begin));
    }

    /// Performs a request that arrives at `now`; returns the address of its data and its end.
    fn perform(&self, flash: &mut Flash, op: &mut Op<'_>, now: u64) -> DeviceResult<(Lba, u64)> {
        match op {
            Op::Read { lba, buffer } => {
                self.drive.read(*lba, buffer)?;
                let blocks = self.geometry().blocks(buffer.len())?;
                Ok((*lba, self.read_flash(flash, *lba, blocks, now)))
            }
            Op::Write { lba, data } => {
                self.drive.write(*lba, data)?;
                self.store(flash, WriteKind::Write, *lba, data.len(), now)
            }
            Op::Append { zone, data } => {
                let lba = self.drive.append(*zone, data)?;
                self.store(flash, WriteKind::Append, lba, data.len(), now)
            }
            Op::Flush => {
                self.drive.flush()?;
                Ok((Lba::ZERO, now + COMMAND_NS))
            }
        }
    }

    /// Places blocks on the flash that the memory drive has taken, and times them.
    fn store(
        &self,
        flash: &mut Flash,
        kind: WriteKind,
        lba: Lba,
        bytes: usize,
        now: u64,
    ) -> DeviceResult<(Lba, u64)> {
        let (zone, offset) = self.geometry().locate(lba);
        let blocks = self.geometry().blocks(bytes)?.get();
        let first = if offset.get() == 0 { First::OfZone } else { First::No };
        let arrival = flash.timing.write(now, kind, bytes as u64, first);
        let end = flash.write(now, arrival.buffer_ns, zone, offset.get(), blocks);
        Ok((lba, end + arrival.rest_ns))
    }

    fn read_flash(&self, flash: &mut Flash, lba: Lba, blocks: LbaCount, now: u64) -> u64 {
        let from = flash.timing.read_arrives(now);
        let (mut at, mut end) = (lba, from);
        let limit = lba + blocks;
        while at < limit {
            let (zone, offset) = self.geometry().locate(at);
            let count = (limit - at).min(self.geometry().size_of(zone) - offset);
            end = end.max(flash.read(now, from, zone, offset.get(), count.get()));
            at += count;
        }
        flash.timing.deliver(now, end, self.geometry().bytes(blocks).get())
    }

    /// Performs one request, and moves the clock to its end.
    fn perform_now(&self, mut op: Op<'_>) -> DeviceResult<Lba> {
        let mut flash = self.flash();
        let begin = self.clock.monotonic_ns();
        let (lba, end) = self.perform(&mut flash, &mut op, begin)?;
        self.pass(begin, end);
        Ok(lba)
    }

    /// Changes the condition of zones from `now` on; returns the outcome, and when it ends.
    fn manage_from(
        &self,
        flash: &mut Flash,
        zones: Select,
        action: ZoneAction,
        now: u64,
    ) -> (DeviceResult<()>, u64) {
        let report = || match zones {
            Select::One(zone) => self.drive.zone(zone).map(|zone| vec![zone]),
            Select::All => self.drive.report_all(),
        };
        let before = match report() {
            Ok(before) => before,
            Err(error) => return (Err(error), now),
        };
        // An action that fails for one zone has changed the zones before it.
        let outcome = self.drive.manage(zones, action);
        let after = match report() {
            Ok(after) => after,
            Err(error) => return (Err(error), now),
        };
        let changes = before.iter().zip(&after).filter(|(before, after)| before.cond != after.cond);
        if flash.timing.is_controlled() && changes.clone().next().is_none() {
            return (outcome, flash.follow_nothing(now, action));
        }
        let begun = if flash.timing.is_controlled() { now } else { now + COMMAND_NS };
        (outcome, changes.fold(begun, |end, (before, after)| flash.follow(end, before, after)))
    }
}

impl Account {
    fn new(
        counters: &Counters,
        layout: &Layout,
        operations: Operations,
        program_bytes: u64,
        erases: &[u32],
        virtual_ns: u64,
    ) -> Self {
        let bytes = |units: u64| units * layout.unit;
        let placed = bytes(counters.host + counters.moved + counters.padded);
        let (min, max) = (erases.iter().min(), erases.iter().max());
        Self {
            host_bytes: bytes(counters.host),
            moved_bytes: bytes(counters.moved),
            padded_bytes: bytes(counters.padded),
            buffered_bytes: placed - operations.programs * program_bytes,
            program_bytes,
            wa: counters.wa(),
            operations,
            erased: counters.erased,
            superblock_bytes: bytes(layout.block_units.into()),
            erases_min: min.copied().unwrap_or(0),
            erases_max: max.copied().unwrap_or(0),
            virtual_ns,
        }
    }
}

/// The shape that the host sees.
fn geometry(config: &Config, layout: &Layout) -> Result<GeometrySpec> {
    let zones = &config.zones;
    let capacity = u64::from(zones.superblocks) * u64::from(layout.block_units);
    let blocks = |size: Size| size.0 / BlockSize::B4096.bytes();
    let size = match zones.size {
        Size(0) => capacity.next_power_of_two(),
        size if blocks(size) >= capacity && size.0.is_multiple_of(BlockSize::B4096.bytes()) => {
            blocks(size)
        }
        size => {
            let capacity = Size(capacity * layout.unit);
            let allowed = format!("a multiple of 4KiB, at least the capacity, {capacity}");
            return Err(refused("zones.size", size, &allowed));
        }
    };
    let count = u64::from(layout.user_units) / capacity;
    Ok(GeometrySpec {
        block_size: BlockSize::B4096,
        block_count: LbaCount::new(count * size),
        zone_size: LbaCount::new(size),
        zone_capacity: LbaCount::new(capacity),
        conventional_zones: ZoneRuns::NONE,
        sequential_kind: ZoneKind::SequentialRequired,
        max_open: Some(zones.max_open),
        max_active: Some(zones.max_active),
        max_append: LbaCount::new(APPEND_BYTES / BlockSize::B4096.bytes()),
    })
}

impl Flash {
    /// The unit of a block: zones without the gap.
    fn unit(&self, zone: ZoneId, offset: u64) -> u32 {
        let offset = u32::try_from(offset).expect("inside a zone");
        zone.get() * self.zones.zone_units() + offset
    }

    /// Writes blocks by a command that arrived at `now`, and whose data is there at `from`.
    fn write(&mut self, now: u64, from: u64, zone: ZoneId, offset: u64, blocks: u64) -> u64 {
        let of_units = usize::try_from(blocks).expect("they are in memory");
        let mut end = from;
        for (done, offset) in (offset..offset + blocks).enumerate() {
            let unit = self.unit(zone, offset);
            let slot = self.zones.try_place(unit).expect("the memory drive took the write");
            end = self.timing.written(now, end, slot, Left { units: of_units - done, of_units });
        }
        end
    }

    /// Reads the part of a zone that is written; the rest is zeroes and costs nothing.
    fn read(&mut self, now: u64, from: u64, zone: ZoneId, offset: u64, blocks: u64) -> u64 {
        let written = u64::from(self.zones.written(zone.get()));
        let (mut done, mut offset) = (from, offset);
        let limit = (offset + blocks).min(written);
        let block_units = u64::from(self.zones.layout().block_units);
        while offset < limit {
            // A superblock at a time: inside one, slots follow each other.
            let base = offset - offset % block_units;
            let count = limit.min(base + block_units) - offset;
            let slot = self.zones.locate(self.unit(zone, offset)).expect("it is written");
            let within = |units: u64| u32::try_from(units).expect("inside a superblock");
            let first = slot - within(offset - base);
            let filled = if self.zones.is_full(zone.get()) { block_units } else { written - base };
            let programmed = first + within(filled.min(block_units));
            let slots = slot..slot + within(count);
            done = done.max(self.timing.read(now, from, slots, programmed));
            offset += count;
        }
        done
    }

    /// Applies the change of a zone by an action to the flash.
    fn follow(&mut self, now: u64, before: &Zone, after: &Zone) -> u64 {
        let zone = before.id.get();
        match (before.cond, after.cond) {
            (_, ZoneCond::Empty) => self.reset(now, zone),
            (_, ZoneCond::Full) => self.finish(now, zone),
            (_, ZoneCond::ImplicitOpen | ZoneCond::ExplicitOpen) => self.timing.open(now),
            (_, ZoneCond::Closed) => self.timing.close(now),
            (_, ZoneCond::ReadOnly | ZoneCond::Offline | ZoneCond::NotWp) => now,
        }
    }

    /// Returns when an action ends that changes no zone.
    fn follow_nothing(&mut self, now: u64, action: ZoneAction) -> u64 {
        let nothing = Reset { superblocks: 0.0, open_units: 0, stripe: OpenStripe::None };
        match action {
            ZoneAction::Open => self.timing.open(now),
            ZoneAction::Close => self.timing.close(now),
            ZoneAction::Finish => self.timing.finish(now, 0..0),
            ZoneAction::Reset => self.timing.reset(now, nothing, 0),
        }
    }

    fn reset(&mut self, now: u64, zone: u32) -> u64 {
        let (written, layout) = (self.zones.written(zone), *self.zones.layout());
        let stripe = if self.zones.is_full(zone) || written < self.stripe_units {
            OpenStripe::None
        } else {
            OpenStripe::Programmed
        };
        let superblocks = f64::from(written) / f64::from(layout.block_units);
        let open_units = if self.zones.is_full(zone) { 0 } else { written };
        self.zones.reset(zone);
        let mut erases = 0;
        while let Some(Work::Erase(block)) = self.zones.work() {
            self.zones.erased(block);
            erases += 1;
        }
        self.timing.reset(now, Reset { superblocks, open_units, stripe }, erases)
    }

    /// Places all of an empty zone, and counts its programs.
    fn mark_written(&mut self, zone: ZoneId) {
        for offset in 0..u64::from(self.zones.zone_units()) {
            let unit = self.unit(zone, offset);
            self.zones.try_place(unit).expect("the memory drive had an empty zone");
        }
        self.timing.mark_programmed(self.zones.zone_units());
    }

    fn finish(&mut self, now: u64, zone: u32) -> u64 {
        let written = self.zones.written(zone);
        let last = written.checked_sub(1).map(|last| self.unit(ZoneId::new(zone), last.into()));
        let padding = self.zones.finish(zone);
        let slot = last.and_then(|unit| self.zones.locate(unit));
        self.timing.finish(now, slot.map_or(0..0, |slot| slot + 1..slot + 1 + padding))
    }
}

impl FailZone for SimSsd {
    fn fail_zone(&self, zone: ZoneId, failure: ZoneFailure) -> DeviceResult<()> {
        self.drive.fail_zone(zone, failure)
    }
}

impl ZonedDevice for SimSsd {
    fn geometry(&self) -> &Geometry {
        self.drive.geometry()
    }

    fn report(&self, first: ZoneId, zones: &mut Vec<Zone>, limit: usize) -> DeviceResult<()> {
        self.clock.advance_ns(COMMAND_NS);
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
        if self.batches == Batches::OneByOne {
            for io in batch {
                io.perform(self);
            }
            return;
        }
        let mut flash = self.flash();
        let begin = self.clock.monotonic_ns();
        let (mut at, mut end) = (begin, begin);
        for io in batch {
            let is_flush = matches!(io.op, Op::Flush);
            if is_flush {
                at = end;
            }
            let outcome = self.perform(&mut flash, &mut io.op, at);
            end = end.max(outcome.as_ref().map_or(at, |&(_, done)| done));
            if is_flush {
                at = end;
            }
            io.result = Some(outcome.map(|(lba, _)| lba));
        }
        self.pass(begin, end);
    }

    fn virtual_queue(&self) -> Option<&dyn VirtualQueue> {
        Some(self)
    }

    fn manage(&self, zones: Select, action: ZoneAction) -> DeviceResult<()> {
        let mut flash = self.flash();
        let begin = self.clock.monotonic_ns();
        let (outcome, end) = self.manage_from(&mut flash, zones, action, begin);
        self.pass(begin, end);
        outcome
    }

    fn deallocate(&self, lba: Lba, blocks: LbaCount) -> DeviceResult<()> {
        let _one_at_a_time = self.flash();
        self.clock.advance_ns(COMMAND_NS);
        self.drive.deallocate(lba, blocks)
    }

    fn flush(&self) -> DeviceResult<()> {
        self.perform_now(Op::Flush).map(drop)
    }
}

impl VirtualQueue for SimSsd {
    fn clock(&self) -> &ManualClock {
        &self.clock
    }

    fn begin(&self, io: &mut Io<'_>, at_ns: u64, tag: u64) {
        let end = self.perform_at(io, at_ns);
        self.flash().ends.push(end, tag);
    }

    fn next_end(&self, until_ns: u64) -> Option<(u64, u64)> {
        self.flash().ends.pop(until_ns)
    }

    fn manage_at(&self, zones: Select, action: ZoneAction, at_ns: u64) -> DeviceResult<u64> {
        let (outcome, end) = self.manage_from(&mut self.flash(), zones, action, at_ns);
        outcome.map(|()| end)
    }

    fn mark_written(&self, zone: ZoneId) -> DeviceResult<()> {
        let mut flash = self.flash();
        self.drive.mark_written(zone)?;
        flash.mark_written(zone);
        Ok(())
    }
}
