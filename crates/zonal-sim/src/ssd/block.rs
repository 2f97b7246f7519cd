//! An SSD that takes writes in any order, in virtual time: counts and times, no data. It is
//! compared with [`SimSsd`](super::SimSsd) on the same flash: conventional, FDP, or a zoned drive
//! below the host's log.
//!
//! GC runs in the foreground, a victim at a time, as soon as too few superblocks are free: total
//! time and wear are right, the latency of single writes is not. Timed mode paces GC.

use super::dies::Dies;
use super::{Account, COMMAND_NS};
use crate::config::{Config, Kind, Layout};
use crate::error::Result;
use crate::flash::refused;
use crate::ftl::{PageMapped, Slot, Translation, Unit, Work};
use crate::host::HostLog;
use crate::size::Size;

/// A simulated SSD whose blocks may be written in any order.
pub struct BlockSsd {
    map: Below,
    layout: Layout,
    dies: Dies,
    now: u64,
}

/// What decides where data goes.
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
        Ok(Self { map, layout, dies: Dies::new(config, &below), now: 0 })
    }

    /// Units that it has.
    pub const fn units(&self) -> u32 {
        self.layout.user_units
    }

    /// Writes units that follow each other, as one command.
    pub fn write(&mut self, first: Unit, count: u32, handle: u8) {
        let bytes = u64::from(count) * self.layout.unit;
        self.now += COMMAND_NS + self.dies.link_ns(bytes);
        for unit in first..first + count {
            self.collect();
            let slot = self
                .map
                .translation()
                .place(unit, handle)
                .expect("all work is done, so there is room");
            self.now = self.dies.written(self.now, slot);
        }
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

    /// Does what GC wants.
    fn collect(&mut self) {
        while let Some(work) = self.map.translation().work() {
            match work {
                Work::Copy { unit, from } => self.copy(unit, from),
                Work::Erase(block) => {
                    self.dies.erase(self.now);
                    self.map.translation().erased(block);
                }
            }
        }
    }

    fn copy(&mut self, unit: Unit, from: Slot) {
        self.dies.collect(self.now, from);
        if let Some(slot) = self.map.translation().moved(unit, from) {
            self.now = self.dies.written(self.now, slot);
        }
    }

    /// Counts of the flash so far. What the host's log moves is a write of the host's for the
    /// drive.
    pub fn account(&self) -> Account {
        let (counters, layout, erases) = match &self.map {
            Below::Pages(pages) => (pages.counters(), pages.layout(), pages.erases()),
            Below::Log(log) => {
                let zones = log.zones();
                (zones.counters(), zones.layout(), zones.erases())
            }
        };
        let (operations, program) = (self.dies.operations(), self.dies.program_bytes());
        Account::new(&counters, layout, operations, program, erases, self.now)
    }
}

#[cfg(test)]
mod tests {
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    use super::*;

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
        // What the dies did takes the time it takes: at most all of them all the time.
        let dies = 32.0 * account.virtual_ns as f64;
        let busy = account.operations.busy_ns as f64 / dies;
        assert!((0.8..1.05).contains(&busy), "{busy} of the dies' time, {account:?}");
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
