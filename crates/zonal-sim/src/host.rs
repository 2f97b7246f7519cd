//! The host's log over zones: with it a workload that overwrites in place can use a zoned drive.
//!
//! Like a translation layer in the host (dm-zap) or a log-structured file system (F2FS): any unit
//! may be written at any time, goes to the end of a log of whole zones, and is found by a map in
//! the host's memory. When few zones are empty, the log chooses a victim, moves its live units and
//! resets it. That is GC in another place, so it is the same algorithm: a [`PageMapped`] layer
//! whose superblocks are zones, with the same choices (`gc.victim`, `gc.frontier`, `gc.streams`)
//! and the same room to spare (`drive.op` or `drive.user`, of the flash). The [`ZoneMapped`] drive
//! below moves nothing. Together they are a [`Translation`], whose write amplification is
//! [`HostLog::host_wa`] times [`HostLog::drive_wa`].
//!
//! On a drive with random write areas the log opens the zones of its streams with an area each, as
//! long as areas are left. It then overwrites its most recent units in place.

use std::collections::VecDeque;

use crate::config::{Config, Kind, Layout};
use crate::error::{Result, refused};
use crate::ftl::{
    AreaStep, AreaWrite, Block, Counters, PageMapped, Slot, Translation, Unit, Work, ZoneMapped,
};

/// The mark of a superblock that is in no zone.
const NONE: u32 = u32::MAX;

/// A log over zones on a zoned drive.
///
/// ```
/// use zonal_sim::Config;
/// use zonal_sim::host::HostLog;
/// let config = Config::parse("[flash]\nprograms_per_block = 1\n[drive]\nkind = \"zns\"")?;
/// let mut log = HostLog::new(&config)?;
/// log.write(&[5, 3, 5], 0); // in any order, and again
/// assert_eq!(log.host_wa(), 1.0);
/// # Ok::<(), zonal_sim::SimError>(())
/// ```
pub struct HostLog {
    /// Units of the host → places in zones: its slots are the units of `zones`.
    log: PageMapped,
    zones: ZoneMapped,
    /// Superblock of the flash → zone × superblocks of a zone + position.
    owners: Vec<u32>,
    superblocks: u32,
    /// Zones that were reset, the first one first, for which there are no erased superblocks yet.
    waiting: VecDeque<Block>,
    /// Erased superblocks, without the ones for zones that the log may write.
    spare: u32,
    /// Whether the drive has random write areas, and the write whose steps are not all done.
    has_areas: bool,
    unfinished: Option<Unfinished>,
}

/// A write that the log has placed.
#[derive(Clone, Copy, Debug)]
struct Unfinished {
    /// Where, in zones.
    at: Slot,
    is_taken: bool,
}

impl HostLog {
    /// A log on a drive without data.
    pub fn new(config: &Config) -> Result<Self> {
        let zones = ZoneMapped::new(config)?;
        let log = PageMapped::new(&log_config(config, zones.zone_count())?)?;
        let superblocks = config.zones.superblocks;
        let owners = vec![NONE; zones.layout().blocks as usize];
        let spare = zones.layout().blocks - zones.zone_count() * superblocks;
        Ok(Self {
            log,
            zones,
            owners,
            superblocks,
            waiting: VecDeque::new(),
            spare,
            has_areas: config.zones.areas() > 0,
            unfinished: None,
        })
    }

    /// The layout that the log's user sees; its superblocks are zones.
    pub const fn layout(&self) -> &Layout {
        self.log.layout()
    }

    /// The drive below.
    pub const fn zones(&self) -> &ZoneMapped {
        &self.zones
    }

    /// Units written to the drive per unit written to the log.
    pub fn host_wa(&self) -> f64 {
        self.log.counters().wa()
    }

    /// Units programmed per unit written to the drive.
    pub fn drive_wa(&self) -> f64 {
        self.zones.counters().wa()
    }

    /// Writes units, reclaiming zones where needed: counting mode.
    pub fn write(&mut self, units: &[Unit], handle: u8) {
        for &unit in units {
            while let Some(work) = self.work() {
                match work {
                    Work::Copy { unit, from } => _ = self.moved(unit, from),
                    Work::Erase(block) => self.erased(block),
                }
            }
            loop {
                match self.write_area(AreaWrite { unit, last: unit, handle }) {
                    AreaStep::Committed(_) => {}
                    AreaStep::Taken => break,
                    AreaStep::None => {
                        self.place(unit, handle).expect("all work is done, so there is room");
                        break;
                    }
                    AreaStep::NoRoom => panic!("all work is done, so there is room"),
                }
            }
        }
    }

    /// The next step of a write that the log has placed: into the area of its zone, if it has one.
    /// A zone that the log has filled is committed: its blocks may be moved from now on.
    fn store_step(&mut self, mut write: Unfinished) -> AreaStep {
        let zone_units = self.zones.zone_units();
        self.unfinished = Some(write);
        if !write.is_taken {
            let step =
                self.zones.write_area(AreaWrite { unit: write.at, last: write.at, handle: 0 });
            match step {
                AreaStep::Committed(slot) => self.own(slot, write.at / zone_units),
                AreaStep::NoRoom => {}
                AreaStep::Taken | AreaStep::None => write.is_taken = true,
            }
            self.unfinished = Some(write);
            match step {
                AreaStep::None => return AreaStep::Committed(self.store(write.at)),
                AreaStep::Committed(_) | AreaStep::NoRoom => return step,
                AreaStep::Taken => {}
            }
        }
        if (write.at + 1).is_multiple_of(zone_units) {
            self.zones.drain_area(write.at);
            let step = self.zones.commit_step(write.at);
            if let AreaStep::Committed(slot) = step {
                self.own(slot, write.at / zone_units);
            }
            if step != AreaStep::None {
                return step;
            }
        }
        self.unfinished = None;
        AreaStep::Taken
    }

    /// Notes the owner of a superblock: the drive has placed the unit before the write pointer of a
    /// zone in it.
    fn own(&mut self, slot: Slot, zone: u32) {
        let block_units = self.zones.layout().block_units;
        let part = (self.zones.written(zone) - 1) / block_units;
        self.owners[(slot / block_units) as usize] = zone * self.superblocks + part;
    }

    /// Writes the next unit of the log to its zone on the drive; returns its slot of the flash.
    fn store(&mut self, at: Slot) -> Slot {
        let slot = self.zones.try_place(at).expect("the log fills zones in order");
        let block = slot / self.zones.layout().block_units;
        self.owners[block as usize] = at / self.zones.layout().block_units;
        slot
    }

    /// The place in zones of a slot of the flash.
    fn log_slot(&self, slot: Slot) -> Slot {
        let block_units = self.zones.layout().block_units;
        let owner = self.owners[(slot / block_units) as usize];
        assert_ne!(owner, NONE, "slot {slot} is in a zone");
        owner * block_units + slot % block_units
    }

    /// Resets a zone that the log has emptied. The drive erases its superblocks later; the log gets
    /// the zone back once enough superblocks are erased, so that the drive can place every unit of
    /// the log.
    fn reset(&mut self, zone: Block) {
        let first = zone * self.superblocks;
        for owner in &mut self.owners {
            if (first..first + self.superblocks).contains(owner) {
                *owner = NONE;
            }
        }
        self.zones.reset(zone);
        self.waiting.push_back(zone);
        self.give_back();
    }

    fn give_back(&mut self) {
        while self.spare >= self.superblocks
            && let Some(zone) = self.waiting.pop_front()
        {
            self.spare -= self.superblocks;
            self.log.erased(zone);
        }
    }
}

/// The log as a page-mapped drive whose superblocks are these many zones of the config's drive. For
/// a log that a program keeps itself, over zone files.
pub fn log_config(config: &Config, zones: u32) -> Result<Config> {
    let mut log = config.clone();
    log.drive.kind = Kind::Conventional;
    log.drive.reserved = 0.0;
    if log.drive.user.is_none() {
        // Over-provisioning is that of the flash, as for any other drive of it.
        let nominal = Config { drive: log.drive.clone(), ..config.clone() }.layout()?;
        log.drive.user = Some(crate::Size(nominal.user_bytes()));
    }
    log.flash.programs_per_block *= config.zones.superblocks;
    log.flash.superblocks = zones;
    log.gc.wear_gap = 0;
    // Each frontier fills one zone.
    let moved = match config.gc.frontier {
        crate::ftl::Frontier::Mixed => 0,
        crate::ftl::Frontier::Separate => 1,
    };
    let streams = config.gc.streams;
    if streams + moved > config.zones.max_active {
        let allowed = format!("at most zones.max_active, {}, with GC's", config.zones.max_active);
        return Err(refused("gc.streams", streams, &allowed));
    }
    log.check()?;
    Ok(log)
}

impl Translation for HostLog {
    fn locate(&self, unit: Unit) -> Option<Slot> {
        self.log.locate(unit).and_then(|at| self.zones.locate(at))
    }

    fn place(&mut self, unit: Unit, handle: u8) -> Option<Slot> {
        let at = self.log.place(unit, handle)?;
        Some(self.store(at))
    }

    fn fits_area(&self, unit: Unit) -> bool {
        self.has_areas
            && self.unfinished.is_none()
            && self.log.locate(unit).is_some_and(|at| self.zones.holds(at))
    }

    fn write_area(&mut self, write: AreaWrite) -> AreaStep {
        if !self.has_areas {
            return AreaStep::None;
        }
        if let Some(write) = self.unfinished {
            return self.store_step(write);
        }
        if let Some(at) = self.log.locate(write.unit).filter(|at| self.zones.holds(*at)) {
            self.log.count_in_place();
            return self.zones.write_area(AreaWrite { unit: at, last: at, handle: 0 });
        }
        let Some(at) = self.log.place(write.unit, write.handle) else { return AreaStep::NoRoom };
        if at.is_multiple_of(self.zones.zone_units()) {
            self.zones.open_area(at);
        }
        self.store_step(Unfinished { at, is_taken: false })
    }

    fn trim(&mut self, first: Unit, count: u32) {
        self.log.trim(first, count);
    }

    fn work(&mut self) -> Option<Work> {
        loop {
            if let Some(work) = self.zones.work() {
                return Some(work);
            }
            if self.unfinished.is_some() {
                return None; // The zone that is being filled may not be moved yet.
            }
            match self.log.work()? {
                Work::Copy { unit, from } => {
                    let from = self.zones.locate(from).expect("what is valid was written");
                    return Some(Work::Copy { unit, from });
                }
                Work::Erase(zone) => self.reset(zone),
            }
        }
    }

    fn moved(&mut self, unit: Unit, from: Slot) -> Option<Slot> {
        let at = self.log.moved(unit, self.log_slot(from))?;
        Some(self.store(at))
    }

    fn erased(&mut self, block: Block) {
        self.zones.erased(block);
        self.spare += 1;
        self.give_back();
    }

    fn pace(&self) -> f64 {
        self.log.pace()
    }

    /// The writes and moves of the log, and the erases of the drive for them.
    fn counters(&self) -> Counters {
        Counters { erased: self.zones.counters().erased, ..self.log.counters() }
    }

    fn below(&self) -> Option<Counters> {
        Some(self.zones.counters())
    }

    fn erases(&self) -> &[u32] {
        self.zones.erases()
    }
}

#[cfg(test)]
mod tests {
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    use super::*;

    /// 128 superblocks of 8 units; zones of two of them.
    fn config(op: f64) -> Config {
        Config::parse(&format!(
            "[flash]\nchannels = 2\ndies_per_channel = 2\nplanes = 1\npage = 4096\n\
             pages_per_program = 1\nprograms_per_block = 2\nsuperblocks = 128\n\
             [drive]\nop = {op}\n[zones]\nsuperblocks = 2\nmax_open = 2\nmax_active = 2\n\
             [gc]\nlow_water = 2"
        ))
        .expect("a config")
    }

    #[test]
    fn host_log_finds_overwritten_units() {
        let mut log = HostLog::new(&config(0.28)).expect("a log");
        let mut random = ChaCha8Rng::seed_from_u64(3);
        let units = log.layout().user_units;
        assert_eq!(units, 800, "1024 units of flash / 1.28");
        let mut written = vec![false; units as usize];
        for _ in 0..20 * units {
            let unit = random.random_range(0..units);
            log.write(&[unit], 0);
            written[unit as usize] = true;
        }
        let mut slots: Vec<Slot> = (0..units).filter_map(|unit| log.locate(unit)).collect();
        slots.sort_unstable();
        slots.dedup();
        assert_eq!(slots.len(), written.iter().filter(|written| **written).count());
        let (log_counters, drive) = (log.log.counters(), log.zones.counters());
        assert_eq!(log_counters.host + log_counters.moved, drive.host, "all goes to the drive");
        assert_eq!(log.counters().host, u64::from(20 * units));
        assert!(log.host_wa() > 1.5, "{}", log.host_wa());
        assert!((log.drive_wa() - 1.0).abs() < 1e-12, "zones are filled, never finished");
        assert!((log.counters().wa() - log.host_wa()).abs() < 1e-12);
    }

    /// The claim that this module is here to keep honest: moved to the host, GC costs the same.
    #[test]
    fn host_log_amplifies_like_conventional_drive() {
        let config = config(0.28);
        let mut log = HostLog::new(&config).expect("a log");
        let same = log_config(&config, log.zones.zone_count()).expect("a config");
        let mut drive = PageMapped::new(&same).expect("a drive");
        let mut random = ChaCha8Rng::seed_from_u64(4);
        for _ in 0..40 * 800 {
            let unit = random.random_range(0..800);
            log.write(&[unit], 0);
            while let Some(work) = drive.work() {
                match work {
                    Work::Copy { unit, from } => _ = drive.moved(unit, from),
                    Work::Erase(block) => drive.erased(block),
                }
            }
            drive.place(unit, 0).expect("all work is done, so there is room");
        }
        assert_eq!(log.log.counters(), drive.counters());
        assert!(log.host_wa() > 2.0, "{}", log.host_wa());
    }

    #[test]
    fn host_log_refuses_more_streams_than_active_zones() {
        let mut config = config(0.28);
        config.gc.streams = 2;
        let error = HostLog::new(&config).err().expect("refused").to_string();
        assert!(error.starts_with("gc.streams = 2 is not possible"), "{error}");
    }
}
