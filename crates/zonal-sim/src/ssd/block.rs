//! An SSD that takes writes in any order, in virtual time: counts and times, no data. It is
//! compared with [`SimSsd`](super::SimSsd) on the same flash: conventional, FDP, or a zoned drive
//! below the host's log.
//!
//! Without a controller GC runs in the foreground, a victim at a time, as soon as too few
//! superblocks are free: total time and wear are right, the latency of single writes is not. A
//! drive with a [controller](crate::config::Controller) paces GC by the writes of the host, as
//! timed mode does, and its commands overlap if the caller begins them at times of its own
//! ([`BlockSsd::begin_at`]).

use super::array::Left;
use super::timing::Timing;
use super::{Account, COMMAND_NS};
use crate::config::{Config, Kind, Layout};
use crate::controller::{First, WriteKind};
use crate::error::{Result, refused};
use crate::ftl::{PageMapped, Translation, Unit, Work};
use crate::host::HostLog;
use crate::size::Size;

/// A simulated SSD whose blocks may be written in any order.
pub struct BlockSsd {
    map: Below,
    layout: Layout,
    /// Units of a superblock, below a log of the host too.
    block_units: u32,
    timing: Timing,
    now: u64,
    /// Units that the host may write before GC moves another one.
    credit: f64,
}

/// Units that the host may write at most behind a unit that GC has moved out of an almost empty
/// victim.
const CREDIT_MAX: f64 = 1024.0;

/// The layer that places data.
enum Below {
    Pages(Box<PageMapped>),
    Log(Box<HostLog>),
}

impl Below {
    fn translation(&mut self) -> &mut dyn Translation {
        match self {
            Self::Pages(pages) => &mut **pages,
            Self::Log(log) => &mut **log,
        }
    }
}

impl BlockSsd {
    /// A drive on which nothing was ever written, of `drive.kind`.
    pub fn new(config: &Config) -> Result<Self> {
        config.check()?;
        let (unit, page) =
            (config.drive.unit, config.flash.page.0 * u64::from(config.flash.planes));
        if unit.0 > page || !config.flash.program_bytes().is_multiple_of(unit.0) {
            let allowed = format!("at most a page of all planes, {}", Size(page));
            return Err(refused("drive.unit", unit, &allowed));
        }
        let (map, layout, below) = match config.drive.kind {
            Kind::Conventional | Kind::Fdp => {
                let pages = PageMapped::new(config)?;
                let layout = *pages.layout();
                (Below::Pages(Box::new(pages)), layout, layout)
            }
            Kind::Zns => {
                let log = HostLog::new(config)?;
                let (layout, below) = (*log.layout(), *log.zones().layout());
                (Below::Log(Box::new(log)), layout, below)
            }
        };
        let block_units = below.block_units;
        Ok(Self {
            map,
            layout,
            block_units,
            timing: Timing::new(config, &below),
            now: 0,
            credit: 0.0,
        })
    }

    /// Units that it has.
    pub const fn units(&self) -> u32 {
        self.layout.user_units
    }

    /// When the last command ended.
    pub const fn now_ns(&self) -> u64 {
        self.now
    }

    /// The next command begins at this time, which may be before the last one has ended: they
    /// overlap. It is not before the last one began.
    pub const fn begin_at(&mut self, at_ns: u64) {
        self.now = at_ns;
    }

    /// Writes units that follow each other, as one command.
    pub fn write(&mut self, first: Unit, count: u32, handle: u8) {
        let begun = self.now;
        let bytes = u64::from(count) * self.layout.unit;
        let arrival = self.timing.write(begun, WriteKind::Write, bytes, First::No);
        let mut end = arrival.buffer_ns;
        let of_units = count as usize;
        for (done, unit) in (first..first + count).enumerate() {
            end = self.collect(begun, end);
            let slot = loop {
                if let Some(slot) = self.map.translation().place(unit, handle) {
                    break slot;
                }
                let work = self.map.translation().work();
                end = self.perform(work.expect("GC makes room for a write"), begun, end);
            };
            let left = Left { units: of_units - done, of_units };
            end = self.timing.written(begun, end, slot, left);
        }
        self.now = end + arrival.rest_ns;
    }

    /// Reads units that follow each other, as one command. Unwritten units cost nothing.
    pub fn read(&mut self, first: Unit, count: u32) {
        let begun = self.now;
        let from = self.timing.read_arrives(begun);
        let (mut end, mut unit, limit) = (from, first, first + count);
        while unit < limit {
            let Some(slot) = self.map.translation().locate(unit) else {
                unit += 1;
                continue;
            };
            let block_end = (slot / self.block_units + 1) * self.block_units;
            let mut slots = slot..slot + 1;
            unit += 1;
            while unit < limit
                && slots.end < block_end
                && self.map.translation().locate(unit) == Some(slots.end)
            {
                slots.end += 1;
                unit += 1;
            }
            end = end.max(self.timing.read(begun, from, slots, block_end));
        }
        self.now = self.timing.deliver(begun, end, u64::from(count) * self.layout.unit);
    }

    /// Tells the drive that units are not needed any more, as one command.
    pub fn trim(&mut self, first: Unit, count: u32) {
        self.now += COMMAND_NS;
        self.map.translation().trim(first, count);
    }

    /// A flush: the write buffer outlives a power cut, so there is nothing to wait for.
    pub fn flush(&mut self) {
        self.now += COMMAND_NS;
    }

    /// Runs GC before a unit is written, at the pace of the host if the drive has a controller.
    /// Returns when the write goes on.
    fn collect(&mut self, begun: u64, mut end: u64) -> u64 {
        let is_paced = self.timing.is_controlled();
        while !is_paced || self.credit < 1.0 {
            let Some(work) = self.map.translation().work() else {
                self.credit = 1.0;
                break;
            };
            if matches!(work, Work::Copy { .. }) {
                self.credit += self.map.translation().pace().min(CREDIT_MAX);
            }
            end = self.perform(work, begun, end);
        }
        self.credit -= 1.0;
        end
    }

    fn perform(&mut self, work: Work, begun: u64, end: u64) -> u64 {
        match work {
            Work::Copy { unit, from } => {
                self.timing.collect(end, from);
                let slot = self.map.translation().moved(unit, from);
                let left = Left { units: 1, of_units: 1 };
                slot.map_or(end, |slot| self.timing.written(begun, end, slot, left))
            }
            Work::Erase(block) => {
                self.timing.erase(end);
                self.map.translation().erased(block);
                end
            }
        }
    }

    /// Counts of the flash so far. To the drive, a unit that the host's log moves is a write of the
    /// host.
    pub fn account(&self) -> Account {
        let (counters, layout, erases) = match &self.map {
            Below::Pages(pages) => (pages.counters(), pages.layout(), pages.erases()),
            Below::Log(log) => {
                let zones = log.zones();
                (zones.counters(), zones.layout(), zones.erases())
            }
        };
        let (operations, program) = (self.timing.operations(), self.timing.program_bytes());
        Account::new(&counters, layout, operations, program, erases, self.now)
    }
}

#[cfg(test)]
mod tests {
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    use super::*;
    use crate::preset::Preset;

    /// The published drive with superblocks of a stripe, and as many of them.
    fn drive(op: f64) -> BlockSsd {
        let config = Config::default();
        let flash = config.flash.shrunk(1);
        let drive = crate::config::Drive { op, ..config.drive.clone() };
        BlockSsd::new(&Config { flash, drive, ..config }).expect("a drive")
    }

    #[test]
    #[expect(clippy::cast_precision_loss, reason = "shares")]
    fn block_ssd_programs_are_host_writes_or_moves() {
        let mut drive = drive(0.28);
        let units = drive.units();
        let mut random = ChaCha8Rng::seed_from_u64(5);
        for round in 0..3 * units / 16 {
            let any = random.random_range(0..units / 16);
            let unit = if round < units / 16 { round * 16 } else { any * 16 };
            drive.write(unit, 16, 0);
        }
        let account = drive.account();
        let placed = account.host_bytes + account.moved_bytes;
        let programmed = account.operations.programs * account.program_bytes;
        assert_eq!(programmed + account.buffered_bytes, placed, "{account:?}");
        assert!(account.wa > 1.3, "{account:?}");
        // The dies are busy nearly all of the time, and never longer.
        let dies = 32.0 * account.virtual_ns as f64;
        let busy = account.operations.busy_ns as f64 / dies;
        assert!((0.8..1.05).contains(&busy), "{busy} of the dies' time, {account:?}");
    }

    /// A small conventional drive with the flash and the controller of `zn540`.
    fn controlled() -> BlockSsd {
        let mut config = Config::parse(Preset::find("zn540").expect("a preset").text).expect("it");
        config.flash = config.flash.shrunk(1);
        (config.flash.superblocks, config.drive.kind) = (128, Kind::Conventional);
        (config.drive.unit, config.drive.op) = (Size(4096), 0.145);
        BlockSsd::new(&config).expect("a drive")
    }

    #[test]
    fn block_ssd_with_controller_overlaps_commands() {
        let run = |overlap: bool| {
            let mut drive = controlled();
            drive.write(0, 4096, 0);
            let start = drive.now_ns() + 1_000_000_000;
            let mut end = start;
            for at in 0..32 {
                drive.begin_at(if overlap { start } else { end });
                drive.read(at * 97, 1);
                end = end.max(drive.now_ns());
            }
            end - start
        };
        let (side_by_side, one_by_one) = (run(true), run(false));
        assert!(one_by_one > 32 * 60_000, "{one_by_one} ns");
        assert!(side_by_side < one_by_one / 5, "{side_by_side} of {one_by_one} ns");
    }

    #[test]
    fn block_ssd_with_controller_paces_gc() {
        let mut drive = controlled();
        let units = drive.units();
        let mut random = ChaCha8Rng::seed_from_u64(6);
        let mut longest = 0;
        for round in 0..3 * units / 16 {
            let unit = if round < units / 16 { round } else { random.random_range(0..units / 16) };
            let begun = drive.now_ns();
            drive.write(unit * 16, 16, 0);
            longest = longest.max(drive.now_ns() - begun);
        }
        let account = drive.account();
        assert!(account.wa > 1.5, "{account:?}");
        // A superblock has 24 programs: GC of a whole victim would hold a write for much longer.
        assert!(longest < 15_000_000, "a write took {longest} ns");
    }

    #[test]
    fn block_ssd_refuses_units_larger_than_page() {
        let mut config = Config::default();
        config.drive.unit = Size(64 << 10);
        let error = BlockSsd::new(&config).err().expect("refused").to_string();
        assert_eq!(
            error,
            "drive.unit = 64KiB is not possible: at most a page of all planes, 32KiB"
        );
    }
}
