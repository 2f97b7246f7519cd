//! Generations of zones: each reset begins one in which no remap table names the zone.
//!
//! A map row names blocks in the generation to which they were written. As long as there is a remap
//! table of a generation, rows may name it, and the zone must not come to it again.

use crate::furrow::format::{GENERATIONS, ZoneGeneration};
use crate::furrow::zones::Zones;

impl Zones {
    /// A zone with the generation that it has.
    pub(in crate::furrow) fn generation(&self, zone: u32) -> ZoneGeneration {
        ZoneGeneration::new(zone, self.slot(zone).generation)
    }

    /// Whether a zone may get a remap table: another generation must be left for it.
    pub(in crate::furrow) fn has_free_generation(&self, zone: u32) -> bool {
        self.free_generation(zone, 1).is_some()
    }

    /// A generation of a zone without remap tables: the first one from `ahead` generations ahead
    /// on.
    fn free_generation(&self, zone: u32, ahead: u8) -> Option<u8> {
        let now = self.slot(zone).generation;
        let mut others = (ahead..GENERATIONS).map(|ahead| (now + ahead) % GENERATIONS);
        others
            .find(|&generation| !self.remapped.contains_key(&ZoneGeneration::new(zone, generation)))
    }

    /// A zone has been reset: no row names its next generation.
    pub(super) fn begin_generation(&mut self, zone: u32) {
        if let Some(generation) = self.free_generation(zone, 1) {
            self.slot_mut(zone).generation = generation;
        }
    }

    /// Enters the remap tables that a mount finds, by the zones that they are of. Where nothing
    /// lives, no row tells the generation: such a zone gets one without tables.
    pub(in crate::furrow) fn restore_generations(&mut self, remapped: &[ZoneGeneration]) {
        for &zone in remapped {
            self.add_remap(zone);
        }
        for &zone in remapped {
            let zone = zone.zone();
            if self.ids().contains(&zone)
                && self.slot(zone).live == 0
                && let Some(generation) = self.free_generation(zone, 0)
            {
                self.slot_mut(zone).generation = generation;
            }
        }
    }

    /// Counts a new remap table of blocks that were moved out of a zone.
    pub(in crate::furrow) fn add_remap(&mut self, zone: ZoneGeneration) {
        *self.remapped.entry(zone).or_default() += 1;
    }

    /// A remap table of blocks that were moved out of a zone is dropped.
    pub(in crate::furrow) fn remove_remap(&mut self, zone: ZoneGeneration) {
        if let Some(tables) = self.remapped.get_mut(&zone) {
            *tables -= 1;
            if *tables == 0 {
                self.remapped.remove(&zone);
            }
        }
    }

    /// Whether no zone has a remap table.
    #[cfg(test)]
    pub(in crate::furrow) fn has_no_remaps(&self) -> bool {
        self.remapped.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::furrow::drive::layout::ZoneLimits;
    use crate::furrow::sample::formatted;
    use crate::furrow::zones::{Role, ZoneSlot};
    use crate::furrow::{Furrow, MountOptions};

    #[test]
    fn remap_zone_generation_is_free_of_tables_when_reused() {
        let mut zones = Zones::new(vec![ZoneSlot::new(Role::Sealed, 64); 3], formatted_limits());
        for generation in 0..3 {
            assert_eq!(zones.generation(1), ZoneGeneration::new(1, generation));
            assert!(zones.has_free_generation(1));
            zones.add_remap(zones.generation(1));
            zones.release(1);
            zones.claim(1);
        }
        assert_eq!(zones.generation(1), ZoneGeneration::new(1, 3));
        assert!(!zones.has_free_generation(1), "no other would be left");
        zones.release(1);
        assert_eq!(zones.generation(1), ZoneGeneration::new(1, 3), "without tables it goes on");
        zones.remove_remap(ZoneGeneration::new(1, 1));
        zones.claim(1);
        assert!(zones.has_free_generation(1));
        zones.release(1);
        assert_eq!(zones.generation(1), ZoneGeneration::new(1, 1));
    }

    fn formatted_limits() -> ZoneLimits {
        let (drive, clock) = formatted(48, 64);
        let fs = Furrow::mount(drive, clock, MountOptions::default()).unwrap();
        fs.tree.layout().zone_limits()
    }
}
