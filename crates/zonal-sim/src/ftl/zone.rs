//! The zone-mapped translation layer: zones on whole superblocks, one table entry per superblock.
//!
//! The host writes each zone in order, so the layer has nothing to move: no GC and no
//! over-provisioning. It only decides which superblock a zone gets next: the free one with the
//! fewest erases, which levels wear. It has the addresses of [`Request`](crate::load::Request):
//! zones follow each other without the gap between capacity and size.
//!
//! Open and Closed zones are the same here: at its open limit a drive closes another zone
//! implicitly, which moves no data. Active zones are counted. The drive above this layer keeps both
//! limits, as the command set has them.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::ops::Range;

use super::area::{Area, AreaShape};
use super::{AreaStep, AreaWrite, Block, Counters, Slot, Translation, Unit, Work};
use crate::config::{Config, Layout};
use crate::error::Result;

/// Entry of a superblock that the zone does not have yet.
const NONE: Block = Block::MAX;

/// Why a unit cannot be placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The unit is not the next one of its zone.
    NotAtWritePointer,
    /// The zone is full.
    Full,
    /// One more zone than allowed would be active.
    TooManyActive,
    /// Every free superblock is still to be erased.
    NotErased,
    /// The zone is not empty, so it cannot be opened with a random write area.
    NotEmpty,
    /// No random write area is left.
    NoArea,
    /// The zone has a random write area, and the unit lies further behind it than its size.
    BehindArea,
}

/// The write pointer and the stage of a zone.
#[derive(Clone, Copy, Debug, Default)]
struct Zone {
    /// The write pointer: units the host has written, or committed if the zone has an area.
    written: u32,
    stage: Stage,
}

/// Where a unit is.
#[derive(Clone, Copy)]
struct At {
    zone: u32,
    /// Units from the zone's start.
    offset: u32,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    #[default]
    Empty,
    Active,
    Full,
}

/// A zone-mapped layer.
///
/// ```
/// use zonal_sim::Config;
/// use zonal_sim::ftl::{Translation, ZoneMapped};
/// let mut zones = ZoneMapped::new(&Config::parse("[drive]\nkind = \"zns\"")?)?;
/// let first = zones.zone_units(); // of the second zone
/// assert_eq!(zones.place(first, 0), Some(0));
/// assert_eq!(zones.place(first + 2, 0), None); // not the next one
/// assert_eq!(zones.locate(first), Some(0));
/// # Ok::<(), zonal_sim::SimError>(())
/// ```
pub struct ZoneMapped {
    layout: Layout,
    /// Superblocks of a zone.
    superblocks: u32,
    /// Units of a zone.
    zone_units: u32,
    /// Random write areas by their zones, and how many there can be.
    areas: BTreeMap<u32, Area>,
    areas_max: usize,
    area: AreaShape,
    active: u32,
    active_max: u32,
    zones: Vec<Zone>,
    /// Zone × superblocks of a zone + position: the superblock there, or `NONE`.
    table: Vec<Block>,
    /// Erased superblocks by erase count, the least worn first; ties by number.
    free: BinaryHeap<Reverse<(u32, Block)>>,
    /// Superblocks to be erased, and how many are being erased.
    stale: VecDeque<Block>,
    erasing: u32,
    /// Superblocks in the table.
    mapped: u32,
    erases: Vec<u32>,
    counters: Counters,
}

impl ZoneMapped {
    /// A zoned drive without data, also if `drive.kind` is another kind.
    pub fn new(config: &Config) -> Result<Self> {
        let mut config = config.clone();
        config.drive.kind = crate::config::Kind::Zns;
        let layout = Layout::new(&config)?;
        let superblocks = config.zones.superblocks;
        let zone_units = superblocks * layout.block_units;
        let zones = layout.user_units / zone_units;
        let narrow = |bytes: u64| u32::try_from(bytes / layout.unit).unwrap_or(u32::MAX);
        Ok(Self {
            layout,
            superblocks,
            zone_units,
            areas: BTreeMap::new(),
            areas_max: config.zones.areas() as usize,
            area: AreaShape {
                units: narrow(config.zones.zrwa.0),
                granule: narrow(config.zones.granule(layout.unit)),
            },
            active: 0,
            active_max: config.zones.max_active,
            zones: vec![Zone::default(); zones as usize],
            table: vec![NONE; zones as usize * superblocks as usize],
            free: (0..layout.blocks).map(|block| Reverse((0, block))).collect(),
            stale: VecDeque::new(),
            erasing: 0,
            mapped: 0,
            erases: vec![0; layout.blocks as usize],
            counters: Counters::default(),
        })
    }

    const fn at(&self, unit: Unit) -> At {
        At { zone: unit / self.zone_units, offset: unit % self.zone_units }
    }

    /// The layout of the drive.
    pub const fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Units of a zone: its capacity.
    pub const fn zone_units(&self) -> u32 {
        self.zone_units
    }

    /// Zones.
    pub fn zone_count(&self) -> u32 {
        u32::try_from(self.zones.len()).expect("fewer zones than units")
    }

    /// Units written of a zone: its write pointer, except for a finished one.
    pub fn written(&self, zone: u32) -> u32 {
        self.zones[zone as usize].written
    }

    /// Whether a zone is full: written to its end or finished.
    pub fn is_full(&self, zone: u32) -> bool {
        self.zones[zone as usize].stage == Stage::Full
    }

    /// Zones that are active: begun and not full.
    pub const fn active(&self) -> u32 {
        self.active
    }

    /// Memory that a drive needs for the mapping: 4 bytes for each superblock, 4 for each zone's
    /// write pointer.
    pub fn table_bytes(&self) -> u64 {
        (self.table.len() + self.zones.len()) as u64 * 4
    }

    /// Places the next unit of its zone, which has no area.
    pub fn try_place(&mut self, unit: Unit) -> std::result::Result<Slot, Refusal> {
        let At { zone: index, offset } = self.at(unit);
        let zone = self.zones[index as usize];
        if zone.stage == Stage::Full {
            return Err(Refusal::Full);
        }
        if offset != zone.written || self.areas.contains_key(&index) {
            return Err(Refusal::NotAtWritePointer);
        }
        if zone.stage == Stage::Empty && self.active == self.active_max {
            return Err(Refusal::TooManyActive);
        }
        let slot = self.place_next(index)?;
        self.counters.host += 1;
        Ok(slot)
    }

    /// Places a unit at the write pointer of a zone that is not full.
    fn place_next(&mut self, index: u32) -> std::result::Result<Slot, Refusal> {
        let Zone { written: offset, stage } = self.zones[index as usize];
        let (part, at) = (offset / self.layout.block_units, offset % self.layout.block_units);
        let entry = (index * self.superblocks + part) as usize;
        if at == 0 {
            let Reverse((_, block)) = self.free.pop().ok_or(Refusal::NotErased)?;
            self.table[entry] = block;
            self.mapped += 1;
        }
        if stage == Stage::Empty {
            self.active += 1;
        }
        let full = offset + 1 == self.zone_units;
        self.active -= u32::from(full);
        let stage = if full { Stage::Full } else { Stage::Active };
        self.zones[index as usize] = Zone { written: offset + 1, stage };
        Ok(self.table[entry] * self.layout.block_units + at)
    }

    /// Opens an empty zone with a random write area.
    pub fn open_with_area(&mut self, zone: u32) -> std::result::Result<(), Refusal> {
        let found = &mut self.zones[zone as usize];
        if found.stage != Stage::Empty {
            return Err(Refusal::NotEmpty);
        }
        if self.active == self.active_max {
            return Err(Refusal::TooManyActive);
        }
        if self.areas.len() == self.areas_max {
            return Err(Refusal::NoArea);
        }
        found.stage = Stage::Active;
        self.active += 1;
        self.areas.insert(zone, Area::new(self.area));
        Ok(())
    }

    /// Whether a zone has a random write area.
    pub fn has_area(&self, zone: u32) -> bool {
        self.areas.contains_key(&zone)
    }

    /// Whether the area of a zone has a unit.
    pub fn holds(&self, unit: Unit) -> bool {
        let At { zone, offset } = self.at(unit);
        let ahead = offset.checked_sub(self.written(zone));
        let area = self.areas.get(&zone);
        area.zip(ahead).is_some_and(|(area, ahead)| area.holds(ahead))
    }

    /// Writes units by one request, erasing where needed: counting mode.
    pub fn write(&mut self, units: &[Unit]) -> std::result::Result<(), Refusal> {
        let last = units.last().copied().unwrap_or_default();
        for &unit in units {
            if self.has_area(self.at(unit).zone) {
                while self.area_step(AreaWrite { unit, last, handle: 0 })? != AreaStep::Taken {}
                continue;
            }
            match self.try_place(unit) {
                Err(Refusal::NotErased) if !self.stale.is_empty() => {
                    self.erase_all();
                    self.try_place(unit)?;
                }
                placed => _ = placed?,
            }
        }
        Ok(())
    }

    /// A step to write a unit of a zone with an area, erasing where needed.
    fn area_step(&mut self, write: AreaWrite) -> std::result::Result<AreaStep, Refusal> {
        match self.write_area(write) {
            AreaStep::NoRoom if self.stale.is_empty() => Err(Refusal::NotErased),
            AreaStep::None => Err(self.refusal(write.unit)),
            AreaStep::NoRoom => {
                self.erase_all();
                Ok(AreaStep::NoRoom)
            }
            step @ (AreaStep::Committed(_) | AreaStep::Taken) => Ok(step),
        }
    }

    /// Why the area of a zone does not take a unit.
    fn refusal(&self, unit: Unit) -> Refusal {
        let At { zone, offset } = self.at(unit);
        if offset < self.written(zone) { Refusal::NotAtWritePointer } else { Refusal::BehindArea }
    }

    /// Commits the area of a zone up to a unit, erasing where needed: counting mode.
    pub fn commit(&mut self, through: Unit) {
        self.commit_area(through);
        self.commit_due(through);
    }

    /// Places all units that are due for commit in the zone of a unit.
    fn commit_due(&mut self, unit: Unit) {
        loop {
            match self.commit_step(unit) {
                AreaStep::None | AreaStep::Taken => return,
                AreaStep::Committed(_) => {}
                AreaStep::NoRoom => {
                    assert!(!self.stale.is_empty(), "there are superblocks for every zone");
                    self.erase_all();
                }
            }
        }
    }

    /// Finishes a zone, after committing its area, and returns how many units of padding it
    /// programmed. It fills a superblock that was begun, because a partly programmed erase block
    /// does not keep its data well, and leaves the others free. Does nothing to an empty or full
    /// zone.
    pub fn finish(&mut self, zone: u32) -> u32 {
        self.drain_area(zone * self.zone_units);
        self.commit_due(zone * self.zone_units);
        self.areas.remove(&zone);
        let Zone { written, stage } = self.zones[zone as usize];
        if stage == Stage::Active {
            self.active -= 1;
        }
        let padding = match stage {
            Stage::Empty | Stage::Full => 0,
            Stage::Active => {
                written.next_multiple_of(self.layout.block_units).saturating_sub(written)
            }
        };
        self.zones[zone as usize].stage = Stage::Full;
        self.counters.padded += u64::from(padding);
        padding
    }

    /// Resets a zone: its superblocks are to be erased.
    pub fn reset(&mut self, zone: u32) {
        let Zone { written, stage } = std::mem::take(&mut self.zones[zone as usize]);
        self.active -= u32::from(stage == Stage::Active);
        let first = zone as usize * self.superblocks as usize;
        for entry in &mut self.table[first..first + self.superblocks as usize] {
            let block = std::mem::replace(entry, NONE);
            if block != NONE {
                self.stale.push_back(block);
                self.mapped -= 1;
            }
        }
        let held = self.areas.remove(&zone).map_or(0, |area| area.count());
        self.counters.rewritten += u64::from(held);
        self.counters.trimmed += u64::from(written + held);
        self.assert_conservation();
    }

    /// Erases all superblocks that are due.
    fn erase_all(&mut self) {
        while let Some(Work::Erase(block)) = self.work() {
            self.erased(block);
        }
    }

    /// Every superblock is free, or in a zone, or to be erased, or being erased.
    fn assert_conservation(&self) {
        let known = self.free.len() + self.stale.len() + (self.mapped + self.erasing) as usize;
        assert_eq!(known, self.layout.blocks as usize, "no superblock is lost or held twice");
    }
}

impl Translation for ZoneMapped {
    fn locate(&self, unit: Unit) -> Option<Slot> {
        let At { zone, offset } = self.at(unit);
        let (part, at) = (offset / self.layout.block_units, offset % self.layout.block_units);
        (offset < self.zones[zone as usize].written).then(|| {
            self.table[(zone * self.superblocks + part) as usize] * self.layout.block_units + at
        })
    }

    fn place(&mut self, unit: Unit, _handle: u8) -> Option<Slot> {
        self.try_place(unit).ok()
    }

    fn fits_area(&self, unit: Unit) -> bool {
        let At { zone, offset } = self.at(unit);
        let ahead = offset.checked_sub(self.written(zone));
        let area = self.areas.get(&zone).filter(|area| !area.is_due());
        area.zip(ahead).is_some_and(|(area, ahead)| area.contains(ahead))
    }

    fn write_area(&mut self, write: AreaWrite) -> AreaStep {
        let AreaWrite { unit, last, .. } = write;
        let At { zone, offset } = self.at(unit);
        let last = self.at(last).offset;
        let written = self.written(zone);
        let Some(area) = self.areas.get_mut(&zone) else { return AreaStep::None };
        if area.is_due() {
            return self.commit_step(unit);
        }
        let Some(ahead) = offset.checked_sub(written) else { return AreaStep::None };
        if area.contains(ahead) {
            self.counters.rewritten += u64::from(area.take(ahead));
            self.counters.host += 1;
            return AreaStep::Taken;
        }
        if ahead >= 2 * self.area.units {
            return AreaStep::None;
        }
        let moved = area.make_way(ahead, self.zone_units - written);
        // Count one commit for the whole write: the one that lets its last unit in.
        let is_last = area.contains(last.saturating_sub(written + moved));
        self.counters.implicit_commits += u64::from(is_last);
        self.commit_step(unit)
    }

    fn open_area(&mut self, unit: Unit) {
        // Refused where none is left: the zone is then written without one.
        _ = self.open_with_area(self.at(unit).zone);
    }

    fn commit_area(&mut self, through: Unit) {
        let At { zone, offset } = self.at(through);
        let written = self.written(zone);
        let Some(area) = self.areas.get_mut(&zone) else { return };
        if let Some(ahead) = offset.checked_sub(written).filter(|ahead| area.contains(*ahead)) {
            area.demand(ahead + 1, self.zone_units - written);
            self.counters.explicit_commits += 1;
        }
    }

    fn drain_area(&mut self, unit: Unit) {
        let zone = self.at(unit).zone;
        let left = self.zone_units - self.written(zone);
        if let Some(area) = self.areas.get_mut(&zone) {
            area.demand(area.reach(), left);
        }
    }

    fn commit_step(&mut self, unit: Unit) -> AreaStep {
        let zone = self.at(unit).zone;
        if !self.areas.get(&zone).is_some_and(Area::is_due) {
            return AreaStep::None;
        }
        let Ok(slot) = self.place_next(zone) else { return AreaStep::NoRoom };
        let area = self.areas.get_mut(&zone).expect("it has one");
        let padding = u64::from(!area.pass());
        self.counters.padded += padding;
        self.counters.commit_padded += padding;
        if self.is_full(zone) {
            self.areas.remove(&zone);
        }
        AreaStep::Committed(slot)
    }

    fn finish_zone(&mut self, unit: Unit) -> Range<Slot> {
        let zone = self.at(unit).zone;
        let last = self.written(zone).checked_sub(1);
        let last = last.and_then(|last| self.locate(zone * self.zone_units + last));
        let padding = self.finish(zone);
        last.map_or(0..0, |slot| slot + 1..slot + 1 + padding)
    }

    /// Resets the zones that lie wholly in the range. The rest of the range is only a hint, which a
    /// zoned drive cannot use.
    fn trim(&mut self, first: Unit, count: u32) {
        let end = (first + count) / self.zone_units;
        for zone in first.div_ceil(self.zone_units)..end {
            self.reset(zone);
        }
    }

    fn work(&mut self) -> Option<Work> {
        let block = self.stale.pop_front()?;
        self.erasing += 1;
        Some(Work::Erase(block))
    }

    fn moved(&mut self, _unit: Unit, _from: Slot) -> Option<Slot> {
        None
    }

    fn erased(&mut self, block: Block) {
        assert!(self.erasing > 0, "superblock {block} is being erased");
        self.erasing -= 1;
        self.erases[block as usize] += 1;
        self.counters.erased += 1;
        self.free.push(Reverse((self.erases[block as usize], block)));
    }

    fn pace(&self) -> f64 {
        f64::INFINITY
    }

    fn counters(&self) -> Counters {
        self.counters
    }

    fn erases(&self) -> &[u32] {
        &self.erases
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 16 superblocks of 8 units of 4 KiB; zones of 2 superblocks.
    fn config() -> Config {
        Config::parse(
            "[flash]\nchannels = 2\ndies_per_channel = 2\nplanes = 1\npage = 4096\n\
             pages_per_program = 1\nprograms_per_block = 2\nsuperblocks = 16\n\
             [drive]\nkind = \"zns\"\n\
             [zones]\nsuperblocks = 2\nmax_open = 3\nmax_active = 3\n[gc]\nlow_water = 2",
        )
        .expect("a config")
    }

    fn drive() -> ZoneMapped {
        ZoneMapped::new(&config()).expect("a drive")
    }

    #[test]
    fn zone_is_written_in_order_to_its_end() {
        let mut drive = drive();
        assert_eq!((drive.zone_count(), drive.zone_units()), (8, 16));
        assert_eq!(drive.try_place(17), Err(Refusal::NotAtWritePointer));
        let mut slots: Vec<Slot> =
            (16..32).map(|unit| drive.try_place(unit).expect("in order")).collect();
        assert_eq!(drive.try_place(16), Err(Refusal::Full));
        assert!((16..32).map(|unit| drive.locate(unit)).eq(slots.iter().map(|&slot| Some(slot))));
        slots.dedup();
        assert_eq!((slots.len(), drive.locate(0), drive.active()), (16, None, 0));
    }

    #[test]
    fn zone_beyond_active_limit_is_refused() {
        let mut drive = drive();
        for zone in 0..3 {
            drive.try_place(zone * 16).expect("an active zone");
        }
        assert_eq!(drive.try_place(48), Err(Refusal::TooManyActive));
        assert_eq!(drive.finish(1), 7, "the superblock that was begun, not the zone");
        assert_eq!(drive.finish(1), 0);
        drive.try_place(48).expect("room again");
        drive.reset(0);
        assert_eq!(drive.active(), 2);
        let counters = drive.counters();
        assert_eq!((counters.host, counters.padded, counters.trimmed), (4, 7, 1));
        assert!((counters.wa() - 11.0 / 4.0).abs() < 1e-12);
    }

    #[test]
    fn zone_reset_waits_for_erase_only_if_nothing_is_free() {
        let mut drive = drive();
        let all: Vec<Unit> = (0..8 * 16).collect();
        drive.write(&all).expect("every zone in order");
        drive.trim(15, 16 + 16);
        assert_eq!(drive.locate(0), Some(0), "a part of a zone is not reset");
        assert_eq!(drive.try_place(16), Err(Refusal::NotErased));
        let Some(Work::Erase(block)) = drive.work() else { panic!("an erase is wanted") };
        assert_eq!(drive.try_place(16), Err(Refusal::NotErased));
        drive.erased(block);
        assert_eq!(drive.try_place(16), Ok(block * 8));
        drive.write(&all[17..32]).expect("the other superblock is erased when it is needed");
        assert_eq!(drive.counters().erased, 2);
        assert!((drive.counters().wa() - 1.0).abs() < 1e-12);
    }

    #[test]
    fn zones_take_least_worn_superblocks() {
        let mut drive = drive();
        // One zone is written and reset again and again: all superblocks take part in it.
        for _ in 0..80 {
            drive.write(&(0..16).collect::<Vec<_>>()).expect("in order");
            drive.trim(0, 16);
        }
        drive.erase_all();
        let (min, max) = (drive.erases().iter().min(), drive.erases().iter().max());
        assert_eq!((min, max), (Some(&10), Some(&10)));
        assert_eq!(drive.counters().erased, 160);
    }
}
