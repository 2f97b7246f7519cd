//! The random write area of a zone, as the zoned command set of NVMe has it: a window that begins
//! at the write pointer and lies in the write buffer.
//!
//! In the window the host writes in any order, and again. The write pointer passes over units by a
//! *commit*, and only then does the drive program them: the host commits explicitly, or a write
//! behind the window moves the pointer on until the write lies in it. Both move it by whole
//! granules; the drive pads the units of a granule that the host has not written.
//!
//! This module has the window only; [`ZoneMapped`](super::ZoneMapped) has the zone around it, and
//! places committed units.

use std::collections::VecDeque;

/// The next step of a layer for a write of the host, or for a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AreaStep {
    /// There is no area: the write goes to the write pointer, and a commit is over.
    None,
    /// A unit was committed and is programmed in this slot; more steps follow.
    Committed(super::Slot),
    /// A unit is to be committed, and every free superblock is still to be erased.
    NoRoom,
    /// The area has the unit, in the write buffer.
    Taken,
}

/// A write of a unit into an area.
#[derive(Clone, Copy, Debug)]
pub struct AreaWrite {
    /// The unit.
    pub unit: super::Unit,
    /// The last unit of the same request.
    pub last: super::Unit,
    /// Stream or reclaim unit handle.
    pub handle: u8,
}

/// The sizes of areas, in units.
#[derive(Clone, Copy, Debug)]
pub(super) struct AreaShape {
    /// Units of an area.
    pub(super) units: u32,
    /// Units of a granule.
    pub(super) granule: u32,
}

/// An area.
#[derive(Clone, Debug)]
pub(super) struct Area {
    shape: AreaShape,
    /// Of each unit from the write pointer on, whether the host has written it.
    held: VecDeque<bool>,
    /// Units that are still to be committed.
    due: u32,
}

impl Area {
    pub(super) fn new(shape: AreaShape) -> Self {
        let held = std::iter::repeat_n(false, shape.units as usize).collect();
        Self { shape, held, due: 0 }
    }

    /// Whether a unit so far from the write pointer lies in the window.
    pub(super) const fn contains(&self, ahead: u32) -> bool {
        ahead < self.shape.units
    }

    /// Whether the host has written this unit of the window.
    pub(super) fn holds(&self, ahead: u32) -> bool {
        self.held.get(ahead as usize).copied().unwrap_or(false)
    }

    /// Units from the write pointer to behind the last one that the host has written.
    pub(super) fn reach(&self) -> u32 {
        let last = self.held.iter().rposition(|held| *held);
        last.map_or(0, |last| u32::try_from(last + 1).expect("units of a zone"))
    }

    /// Units that the host has written.
    pub(super) fn count(&self) -> u32 {
        u32::try_from(self.held.iter().filter(|held| **held).count()).expect("units of a zone")
    }

    /// The host writes a unit of the window; returns whether it had written it before.
    pub(super) fn take(&mut self, ahead: u32) -> bool {
        std::mem::replace(&mut self.held[ahead as usize], true)
    }

    /// Makes a write possible at a unit behind the window: by commits of whole granules.
    /// Returns how many units the window moves. The zone has `left` units behind its write pointer,
    /// which is the most.
    pub(super) fn make_way(&mut self, ahead: u32, left: u32) -> u32 {
        self.demand(ahead + 1 - self.shape.units, left)
    }

    /// Makes these units due, and the rest of their last granule.
    pub(super) fn demand(&mut self, units: u32, left: u32) -> u32 {
        self.due = self.due.max(units.next_multiple_of(self.shape.granule).min(left));
        self.due
    }

    /// Whether units are still to be committed.
    pub(super) const fn is_due(&self) -> bool {
        self.due > 0
    }

    /// The write pointer passes a unit; returns whether the host had written it.
    pub(super) fn pass(&mut self) -> bool {
        self.due -= 1;
        self.held.push_back(false);
        self.held.pop_front().expect("an area has a unit")
    }
}

#[cfg(test)]
mod tests {
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    use crate::config::Config;
    use crate::ftl::{Refusal, Translation, Unit, ZoneMapped};

    /// Units of a zone, of an area and of a granule.
    const ZONE: u32 = 16;
    const AREA: u32 = 6;
    const GRANULE: u32 = 2;

    /// 8 zones of 2 superblocks of 8 units; one of them may have an area.
    fn drive() -> ZoneMapped {
        let config = Config::parse(
            "[flash]\nchannels = 2\ndies_per_channel = 2\nplanes = 1\npage = 4096\n\
             pages_per_program = 1\nprograms_per_block = 2\nsuperblocks = 16\n\
             [drive]\nkind = \"zns\"\n[gc]\nlow_water = 2\n\
             [zones]\nsuperblocks = 2\nmax_open = 3\nmax_active = 3\n\
             zrwa = \"24KiB\"\nzrwa_granule = \"8KiB\"\nzrwa_zones = 1",
        );
        ZoneMapped::new(&config.expect("a config")).expect("a drive")
    }

    #[test]
    fn area_takes_writes_again_without_programs() {
        let mut drive = drive();
        drive.open_with_area(1).expect("an area");
        assert_eq!(drive.write(&[16 + 2 * AREA]), Err(Refusal::BehindArea));
        drive.write(&[20, 17, 16, 17, 17]).expect("in any order, and again");
        assert_eq!((drive.written(1), drive.locate(17), drive.active()), (0, None, 1));
        assert_eq!((drive.counters().host, drive.counters().rewritten), (5, 2));
        // Writes behind the area commit granules; the drive pads their unwritten units.
        drive.write(&[22]).expect("behind the area");
        assert_eq!((drive.written(1), drive.counters().padded), (2, 0));
        drive.write(&[25]).expect("behind the area");
        let counters = drive.counters();
        assert_eq!((drive.written(1), counters.padded, counters.implicit_commits), (4, 2, 2));
        assert!((16..20).all(|unit| drive.locate(unit).is_some()), "padding is flash, too");
        drive.commit(20);
        assert_eq!((drive.written(1), drive.counters().explicit_commits), (6, 1));
        assert_eq!((drive.counters().commit_padded, drive.counters().saved()), (3, -1));
        assert_eq!(drive.write(&[21]), Err(Refusal::NotAtWritePointer), "it was committed");
    }

    #[test]
    fn area_beyond_limit_or_of_begun_zone_is_refused() {
        let mut drive = drive();
        drive.open_with_area(0).expect("an area");
        assert_eq!(drive.open_with_area(1), Err(Refusal::NoArea));
        drive.write(&[16]).expect("without an area");
        assert_eq!(drive.open_with_area(1), Err(Refusal::NotEmpty));
        drive.write(&[0, 1, 0]).expect("in the area");
        drive.reset(0);
        let counters = drive.counters();
        assert_eq!((counters.rewritten, counters.trimmed, counters.programs()), (3, 2, 1));
        drive.open_with_area(2).expect("the area of the zone that was reset");
        assert_eq!(drive.finish(2), 0, "nothing was written");
        drive.open_with_area(3).expect("the area of the zone that was finished");
        drive.write(&[48, 50]).expect("in the area");
        assert_eq!((drive.finish(3), drive.counters().commit_padded), (4, 2), "two granules");
        assert!(drive.is_full(3) && !drive.has_area(3));
    }

    /// A zone as the rules describe it.
    struct Model {
        pointer: u32,
        written: [bool; ZONE as usize],
        host: u64,
        rewritten: u64,
        padded: u64,
        implicit: u64,
        explicit: u64,
    }

    impl Model {
        /// Moves the write pointer over whole granules, at least to `least`.
        fn advance(&mut self, least: u32) {
            let granules = least.saturating_sub(self.pointer).div_ceil(GRANULE);
            let to = (self.pointer + granules * GRANULE).min(ZONE);
            for unit in self.pointer..to {
                self.padded += u64::from(!self.written[unit as usize]);
            }
            self.pointer = to;
        }

        fn write(&mut self, first: u32, count: u32) {
            for unit in first..first + count {
                let again = std::mem::replace(&mut self.written[unit as usize], true);
                self.rewritten += u64::from(again);
            }
            self.host += u64::from(count);
            let least = (first + count).saturating_sub(AREA);
            self.implicit += u64::from(least > self.pointer);
            self.advance(least);
        }
    }

    #[test]
    fn area_moves_write_pointer_as_rules_say() {
        let mut random = ChaCha8Rng::seed_from_u64(zonal::repeat::seed(1));
        let mut drive = drive();
        for round in 0..3000 {
            let zone = random.random_range(0..8);
            drive.reset(zone);
            drive.open_with_area(zone).expect("the only area");
            let before = drive.counters();
            let mut model = Model {
                pointer: 0,
                written: [false; ZONE as usize],
                host: 0,
                rewritten: 0,
                padded: 0,
                implicit: 0,
                explicit: 0,
            };
            while model.pointer < ZONE {
                let window = model.pointer..(model.pointer + AREA + 1).min(ZONE);
                let first = random.random_range(window);
                if random.random_range(0..4) == 0 && first < model.pointer + AREA {
                    drive.commit(zone * ZONE + first);
                    model.explicit += 1;
                    model.advance(first + 1);
                } else {
                    let count = random.random_range(1..=(ZONE - first).min(AREA));
                    let units = zone * ZONE + first..zone * ZONE + first + count;
                    drive.write(&units.collect::<Vec<Unit>>()).expect("in reach of the area");
                    model.write(first, count);
                }
                assert_eq!(drive.written(zone), model.pointer, "round {round}");
                for unit in 0..ZONE {
                    let at = zone * ZONE + unit;
                    assert_eq!(drive.locate(at).is_some(), unit < model.pointer);
                    let is_held = unit >= model.pointer && model.written[unit as usize];
                    assert_eq!(drive.holds(at), is_held, "round {round}, unit {unit}");
                }
            }
            assert!(drive.is_full(zone) && !drive.has_area(zone));
            let done = drive.counters().since(&before);
            let found = [done.host, done.rewritten, done.commit_padded];
            assert_eq!(found, [model.host, model.rewritten, model.padded]);
            assert_eq!(done.programs(), u64::from(ZONE), "each unit is programmed once");
            let commits = [done.implicit_commits, done.explicit_commits];
            assert_eq!(commits, [model.implicit, model.explicit]);
        }
    }
}
