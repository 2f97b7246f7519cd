//! The zone-mapped translation layer: zones on whole superblocks, one table entry per superblock.
//!
//! The host writes each zone in order, so the layer has nothing to move: no GC and no
//! over-provisioning. What it still decides is which superblock a zone gets next: the free one
//! with the fewest erases, which levels wear. Its addresses are those of
//! [`Request`](crate::load::Request): zones follow each other without the gap between capacity
//! and size.
//!
//! Open and Closed zones are the same here: at its open limit a drive closes another zone
//! implicitly, which moves no data. Active zones are counted. The drive above this layer keeps both
//! limits, as the command set has them.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::ops::Range;

use super::{Block, Counters, Slot, Translation, Unit, Work};
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
}

/// What is known of a zone.
#[derive(Clone, Copy, Debug, Default)]
struct Zone {
    /// Units the host has written.
    written: u32,
    stage: Stage,
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
    /// Units of a zone random write area.
    zrwa_units: u32,
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
    /// A drive without data, whatever `drive.kind` says.
    pub fn new(config: &Config) -> Result<Self> {
        let mut config = config.clone();
        config.drive.kind = crate::config::Kind::Zns;
        let layout = Layout::new(&config)?;
        let superblocks = config.zones.superblocks;
        let zone_units = superblocks * layout.block_units;
        let zones = layout.user_units / zone_units;
        Ok(Self {
            layout,
            superblocks,
            zone_units,
            zrwa_units: u32::try_from(config.zones.zrwa.0 / layout.unit).unwrap_or(u32::MAX),
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

    /// How much there is of what.
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

    /// Places the next unit of its zone.
    pub fn try_place(&mut self, unit: Unit) -> std::result::Result<Slot, Refusal> {
        let (index, offset) = (unit / self.zone_units, unit % self.zone_units);
        let zone = self.zones[index as usize];
        if zone.stage == Stage::Full {
            return Err(Refusal::Full);
        }
        if offset != zone.written {
            return Err(Refusal::NotAtWritePointer);
        }
        if zone.stage == Stage::Empty && self.active == self.active_max {
            return Err(Refusal::TooManyActive);
        }
        let (part, at) = (offset / self.layout.block_units, offset % self.layout.block_units);
        let entry = (index * self.superblocks + part) as usize;
        if at == 0 {
            let Reverse((_, block)) = self.free.pop().ok_or(Refusal::NotErased)?;
            self.table[entry] = block;
            self.mapped += 1;
        }
        if zone.stage == Stage::Empty {
            self.active += 1;
        }
        let full = offset + 1 == self.zone_units;
        self.active -= u32::from(full);
        let stage = if full { Stage::Full } else { Stage::Active };
        self.zones[index as usize] = Zone { written: offset + 1, stage };
        self.counters.host += 1;
        Ok(self.table[entry] * self.layout.block_units + at)
    }

    /// Writes units, erasing where needed: counting mode.
    pub fn write(&mut self, units: &[Unit]) -> std::result::Result<(), Refusal> {
        for &unit in units {
            if self.rewrite(unit) {
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

    /// Finishes a zone and returns how many units of padding were programmed. A superblock that was
    /// begun is filled, because a partly programmed erase block does not keep its data well; one
    /// that was not begun stays free. Nothing for an empty or full zone.
    pub fn finish(&mut self, zone: u32) -> u32 {
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
        self.counters.trimmed += u64::from(written);
        self.assert_conservation();
    }

    /// Erases what is to be erased.
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
        let (zone, offset) = (unit / self.zone_units, unit % self.zone_units);
        let (part, at) = (offset / self.layout.block_units, offset % self.layout.block_units);
        (offset < self.zones[zone as usize].written).then(|| {
            self.table[(zone * self.superblocks + part) as usize] * self.layout.block_units + at
        })
    }

    fn place(&mut self, unit: Unit, _handle: u8) -> Option<Slot> {
        self.try_place(unit).ok()
    }

    fn rewrite(&mut self, unit: Unit) -> bool {
        let (zone, offset) = (unit / self.zone_units, unit % self.zone_units);
        let Zone { written, stage } = self.zones[zone as usize];
        let is_in_area =
            stage == Stage::Active && offset < written && written - offset <= self.zrwa_units;
        if is_in_area {
            self.counters.host += 1;
            self.counters.rewritten += 1;
        }
        is_in_area
    }

    fn finish_zone(&mut self, unit: Unit) -> Range<Slot> {
        let zone = unit / self.zone_units;
        let last = self.written(zone).checked_sub(1);
        let last = last.and_then(|last| self.locate(zone * self.zone_units + last));
        let padding = self.finish(zone);
        last.map_or(0..0, |slot| slot + 1..slot + 1 + padding)
    }

    /// Resets the zones that lie wholly in the range; what is left over is only a hint, and a
    /// zoned drive cannot use it.
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
    fn zone_random_write_area_costs_no_flash() {
        let mut config = config();
        config.zones.zrwa = crate::Size(3 * 4096);
        let mut drive = ZoneMapped::new(&config).expect("a drive");
        drive.write(&(0..6).collect::<Vec<_>>()).expect("in order");
        let slots: Vec<_> = (0..6).map(|unit| drive.locate(unit)).collect();
        drive.write(&[3, 5, 4, 5, 6]).expect("the last three units, and the next one");
        assert_eq!(drive.try_place(2), Err(Refusal::NotAtWritePointer));
        assert_eq!(drive.write(&[3]), Err(Refusal::NotAtWritePointer), "the area went on");
        assert!((0..6).map(|unit| drive.locate(unit)).eq(slots));
        let counters = drive.counters();
        assert_eq!((counters.host, counters.rewritten), (11, 4));
        assert!((counters.wa() - 7.0 / 11.0).abs() < 1e-12);
        assert_eq!(drive.finish_zone(3), 7..8);
        assert_eq!(drive.write(&[6]), Err(Refusal::Full));
        assert!([0, 16].into_iter().all(|unit| drive.finish_zone(unit).is_empty()));
        assert_eq!(drive.counters().padded, 1);
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
