//! A zoned SSD as a [`ZonedDevice`]: file systems run on it, in virtual time, and every program and
//! erase of its flash is counted.
//!
//! Data and zone conditions are those of [`MemoryDrive`]; placement and wear are those of
//! [`ZoneMapped`]. Memory is taken as data arrives, so a drive of 2 TiB needs only what is written.
//!
//! Time: a call begins at what the [clock](SimSsd::clock) shows and moves it to its own end. Writes
//! end when the write buffer has taken them, which outlives a power cut (assumed, as in data-centre
//! drives), so a flush has nothing to wait for. Reads end with the last byte. Erases go on after a
//! reset has returned. Calls of several threads are executed one after the other, in the order in
//! which they take the lock: the queue depth is 1. A run is repeated exactly only if one thread
//! makes the calls.
//!
//! [`BlockSsd`] is what it is compared with: a drive of the same flash, with the same times, that
//! takes writes in any order.

mod block;
mod dies;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use zonal::{
    BlockSize, Clock, DeviceError, FailZone, Geometry, GeometrySpec, Lba, LbaCount, ManualClock,
    MemoryDrive, Select, Zone, ZoneAction, ZoneCond, ZoneFailure, ZoneId, ZonedDevice,
};

pub use block::BlockSsd;
pub use dies::Operations;

use self::dies::Dies;
use crate::config::{Config, Kind, Layout};
use crate::error::{Result, SimError};
use crate::flash::refused;
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
}

/// What is below the zones, behind one lock.
struct Flash {
    zones: ZoneMapped,
    dies: Dies,
    read_firmware_ns: u64,
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
    /// Bytes programmed per byte the host wrote; 1 before anything is written.
    pub wa: f64,
    /// What the dies did.
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
    /// A drive on which nothing was ever written, with a clock of its own. It is zoned, whatever
    /// `drive.kind` says.
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
            dies: Dies::new(&config, &layout),
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked")]
            read_firmware_ns: (config.drive.read_firmware_us * 1e3).round() as u64,
        };
        let clock = Arc::new(ManualClock::new(0));
        Ok(Self { drive, clock, flash: Mutex::new(flash) })
    }

    /// The clock that the drive's operations move. For whatever runs on the drive.
    pub fn clock(&self) -> Arc<ManualClock> {
        Arc::clone(&self.clock)
    }

    /// Counts of the flash so far.
    pub fn account(&self) -> Account {
        let flash = self.flash();
        let (zones, now) = (&flash.zones, self.clock.monotonic_ns());
        Account::new(&zones.counters(), zones.layout(), &flash.dies, zones.erases(), now)
    }

    /// The counters of the translation layer, in blocks.
    pub fn counters(&self) -> Counters {
        self.flash().zones.counters()
    }

    fn flash(&self) -> MutexGuard<'_, Flash> {
        self.flash.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends a call that began at `begin` (`end`: when the flash is done with it).
    fn pass(&self, begin: u64, end: u64) {
        self.clock.advance_ns(end.saturating_sub(begin));
    }

    /// Writes or appends on the memory drive, then places and times it on the flash.
    fn store<T>(
        &self,
        bytes: usize,
        write: impl FnOnce(&MemoryDrive) -> DeviceResult<T>,
        first: impl FnOnce(&T) -> Lba,
    ) -> DeviceResult<T> {
        let mut flash = self.flash();
        let begin = self.clock.monotonic_ns();
        let outcome = write(&self.drive)?;
        let (zone, offset) = self.geometry().locate(first(&outcome));
        let blocks = self.geometry().blocks(bytes)?.get();
        let begun = begin + COMMAND_NS + flash.dies.link_ns(bytes as u64);
        let end = flash.write(begun, (zone, offset.get()), blocks);
        self.pass(begin, end);
        Ok(outcome)
    }
}

impl Account {
    fn new(
        counters: &Counters,
        layout: &Layout,
        dies: &Dies,
        erases: &[u32],
        virtual_ns: u64,
    ) -> Self {
        let bytes = |units: u64| units * layout.unit;
        let (operations, program_bytes) = (dies.operations(), dies.program_bytes());
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
        conventional_zones: 0,
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

    fn write(&mut self, now: u64, (zone, offset): (ZoneId, u64), blocks: u64) -> u64 {
        let mut end = now;
        for offset in offset..offset + blocks {
            let unit = self.unit(zone, offset);
            let slot = self.zones.try_place(unit).expect("the memory drive took the write");
            end = self.dies.written(end, slot);
        }
        end
    }

    /// Reads the part of a zone that is written; the rest is zeroes and costs nothing.
    fn read(&mut self, now: u64, (zone, offset): (ZoneId, u64), blocks: u64) -> u64 {
        let written = u64::from(self.zones.written(zone.get()));
        let (mut done, mut offset) = (now, offset);
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
            done = done.max(self.dies.read(now, slot..slot + within(count), programmed));
            offset += count;
        }
        done
    }

    /// Applies what an action has changed about a zone to the flash.
    fn follow(&mut self, now: u64, (before, after): (&Zone, &Zone)) -> u64 {
        let zone = before.id.get();
        match (before.cond, after.cond) {
            (from, to) if from == to => now,
            (_, ZoneCond::Empty) => {
                self.reset(now, zone);
                now
            }
            (_, ZoneCond::Full) => self.finish(now, zone),
            (
                _,
                ZoneCond::ImplicitOpen
                | ZoneCond::ExplicitOpen
                | ZoneCond::Closed
                | ZoneCond::ReadOnly
                | ZoneCond::Offline
                | ZoneCond::NotWp,
            ) => now,
        }
    }

    fn reset(&mut self, now: u64, zone: u32) {
        self.zones.reset(zone);
        while let Some(Work::Erase(block)) = self.zones.work() {
            self.dies.erase(now);
            self.zones.erased(block);
        }
    }

    fn finish(&mut self, now: u64, zone: u32) -> u64 {
        let written = self.zones.written(zone);
        let last = written.checked_sub(1).map(|last| self.unit(ZoneId::new(zone), last.into()));
        let padding = self.zones.finish(zone);
        let Some(slot) = last.and_then(|unit| self.zones.locate(unit)) else { return now };
        (slot + 1..=slot + padding).fold(now, |end, slot| self.dies.written(end, slot))
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
        let mut flash = self.flash();
        let begin = self.clock.monotonic_ns();
        self.drive.read(lba, buffer)?;
        let now = begin + flash.read_firmware_ns;
        let (mut at, mut end) = (lba, now);
        let limit = lba + self.geometry().blocks(buffer.len())?;
        while at < limit {
            let (zone, offset) = self.geometry().locate(at);
            let count = (limit - at).min(self.geometry().size_of(zone) - offset);
            end = end.max(flash.read(now, (zone, offset.get()), count.get()));
            at += count;
        }
        self.pass(begin, end);
        Ok(())
    }

    fn write(&self, lba: Lba, data: &[u8]) -> DeviceResult<()> {
        self.store(data.len(), |drive| drive.write(lba, data), |()| lba)
    }

    fn append(&self, zone: ZoneId, data: &[u8]) -> DeviceResult<Lba> {
        self.store(data.len(), |drive| drive.append(zone, data), |&lba| lba)
    }

    fn manage(&self, zones: Select, action: ZoneAction) -> DeviceResult<()> {
        let mut flash = self.flash();
        let begin = self.clock.monotonic_ns();
        let report = || match zones {
            Select::One(zone) => self.drive.zone(zone).map(|zone| vec![zone]),
            Select::All => self.drive.report_all(),
        };
        let before = report()?;
        // Also an action that fails for one zone has been done for those before it.
        let outcome = self.drive.manage(zones, action);
        let after = report()?;
        let mut end = begin + COMMAND_NS;
        for pair in before.iter().zip(&after) {
            end = flash.follow(end, pair);
        }
        self.pass(begin, end);
        outcome
    }

    fn deallocate(&self, lba: Lba, blocks: LbaCount) -> DeviceResult<()> {
        let _one_at_a_time = self.flash();
        self.clock.advance_ns(COMMAND_NS);
        self.drive.deallocate(lba, blocks)
    }

    fn flush(&self) -> DeviceResult<()> {
        let _one_at_a_time = self.flash();
        self.clock.advance_ns(COMMAND_NS);
        self.drive.flush()
    }
}
