//! Random runs on a live device, and the states that a cut leaves. `SEED=n` begins with another
//! run.

use std::collections::{BTreeMap, BTreeSet};

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

use crate::layer::fault::Fault;
use crate::tests::preferred_shadow::{self, Loss, Shadow};
use crate::{
    BlockSize, DeviceError, GeometrySpec, Lba, LbaCount, MemoryDrive, Select, ZoneAction, ZoneCond,
    ZoneId, ZoneKind, ZoneRuns, ZonedDevice, repeat,
};

const BLOCK: usize = 512;
const CAPACITY: u64 = 9;
const ZONES: u32 = 8;

/// The first zone is conventional.
fn geometry(max_active: Option<u32>) -> GeometrySpec {
    GeometrySpec {
        block_size: BlockSize::B512,
        block_count: LbaCount::new(u64::from(ZONES) * 10),
        zone_size: LbaCount::new(10),
        zone_capacity: LbaCount::new(CAPACITY),
        conventional_zones: ZoneRuns::leading(1),
        sequential_kind: ZoneKind::SequentialRequired,
        max_open: max_active.map(|limit| limit.min(2)),
        max_active,
        max_append: LbaCount::new(4),
    }
}

/// The data of one zone since a reset.
#[derive(Clone, Default)]
struct Life {
    stamps: Vec<u8>,
    is_finished: bool,
}

/// The states in which a cut may leave a zone.
#[derive(Clone, Default)]
struct History {
    lives: Vec<Life>,
    flushed_blocks: usize,
    is_flushed_full: bool,
}

/// How far a cut went back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kept {
    Everything,
    /// Not all of the writes, or not the finish.
    Part,
    /// The zone as it was before a reset.
    Earlier,
}

struct Run {
    drive: Fault<MemoryDrive>,
    zones: BTreeMap<ZoneId, History>,
    /// Old and new of each block of the conventional zone.
    blocks: BTreeMap<u64, (u8, u8)>,
    random: ChaCha8Rng,
    stamp: u8,
}

impl Run {
    fn new(seed: u64) -> Self {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let limit = [None, Some(1), Some(3)][below(&mut random, 3)];
        let plan = format!("any,nth={},power-cut;seed={seed}", 1 + below(&mut random, 90));
        let drive = Fault::new(MemoryDrive::new(geometry(limit)).unwrap(), plan.parse().unwrap());
        let history = History { lives: vec![Life::default()], ..History::default() };
        let zones = (1..ZONES).map(|zone| (ZoneId::new(zone), history.clone())).collect();
        let blocks = (0..10).map(|lba| (lba, (0, 0))).collect();
        Self { drive, zones, blocks, random, stamp: 0 }
    }

    /// Runs one operation. A change that may have been made when the power went counts as made.
    fn step(&mut self) -> Result<(), DeviceError> {
        // Few zones, so that each sees much.
        let id = ZoneId::new(1 + u32::try_from(below(&mut self.random, 4)).unwrap());
        let what = below(&mut self.random, 20);
        self.stamp = self.stamp % 250 + 1;
        let stamp = self.stamp;
        let history = self.zones.get_mut(&id).unwrap();
        let life = history.lives.last_mut().unwrap();
        let outcome = match what {
            0..=8 => {
                let count = 1 + below(&mut self.random, 4);
                let outcome = self.drive.append(id, &vec![stamp; count * BLOCK]).map(drop);
                if is_maybe_done(&outcome) && life.stamps.len() + count <= 9 && !life.is_finished {
                    life.stamps.extend(vec![stamp; count]);
                    life.is_finished = life.stamps.len() == 9;
                }
                outcome
            }
            9..=11 => {
                let outcome = self.drive.manage(Select::One(id), ZoneAction::Reset);
                if is_maybe_done(&outcome) {
                    history.lives.push(Life::default());
                }
                outcome
            }
            12 => {
                let outcome = self.drive.manage(Select::One(id), ZoneAction::Finish);
                life.is_finished |= is_maybe_done(&outcome);
                outcome
            }
            13..=14 => self.drive.manage(Select::One(id), ZoneAction::ALL[what - 13]),
            15..=16 => {
                let lba = below(&mut self.random, 10) as u64;
                let outcome = self.drive.write(Lba::new(lba), &[stamp; BLOCK]);
                self.blocks.get_mut(&lba).unwrap().1 = stamp;
                outcome
            }
            17 => self.drive.read(Lba::new(10), &mut [0; BLOCK]),
            _ => self.flush(),
        };
        match outcome {
            Err(
                DeviceError::TooManyActive { .. }
                | DeviceError::TooManyOpen { .. }
                | DeviceError::CrossesZone { .. }
                | DeviceError::ZoneFull { .. }
                | DeviceError::Transition { .. },
            ) => Ok(()),
            other => other,
        }
    }

    fn flush(&mut self) -> Result<(), DeviceError> {
        self.drive.flush()?;
        for history in self.zones.values_mut() {
            history.lives.drain(..history.lives.len() - 1);
            history.flushed_blocks = history.lives[0].stamps.len();
            history.is_flushed_full = history.lives[0].is_finished;
        }
        for (old, new) in self.blocks.values_mut() {
            *old = *new;
        }
        Ok(())
    }

    /// D4 for every zone, and how much was lost.
    fn check(&self) -> BTreeSet<Kept> {
        let drive = self.drive.below();
        let zones = drive.report_all().unwrap();
        let active = zones.iter().filter(|zone| zone.cond.is_active()).count();
        let limit = drive.geometry().max_active();
        assert!(limit.is_none_or(|limit| active <= limit as usize), "D2: {active} active zones");
        for (&lba, &(old, new)) in &self.blocks {
            let mut block = [9; BLOCK];
            drive.read(Lba::new(lba), &mut block).unwrap();
            assert!(block == [old; BLOCK] || block == [new; BLOCK], "block {lba}");
        }
        let mut seen = BTreeSet::new();
        for (id, history) in &self.zones {
            let zone = &zones[id.index()];
            assert!(!zone.cond.is_open(), "{zone:?}");
            let is_full = zone.cond == ZoneCond::Full;
            let mut bytes = vec![0; 9 * BLOCK];
            drive.read(zone.start, &mut bytes).unwrap();
            let mut found: Vec<u8> = bytes.chunks(BLOCK).map(|block| block[0]).collect();
            found.truncate(found.iter().rposition(|stamp| *stamp != 0).map_or(0, |last| last + 1));
            if !is_full {
                assert_eq!(zone.written().unwrap().get(), found.len() as u64, "{zone:?}");
            }
            let is_life = |(at, life): &(usize, &Life)| {
                let is_first = *at == 0;
                life.stamps.starts_with(&found)
                    && (!is_full || life.is_finished)
                    && (!is_first || found.len() >= history.flushed_blocks)
                    && (!is_first || !history.is_flushed_full || is_full)
            };
            let newest = history.lives.len() - 1;
            let possible = history.lives.iter().enumerate().rfind(is_life);
            let (at, life) = possible.unwrap_or_else(|| panic!("zone {id}: {found:?}, {zone:?}"));
            let whole = found == life.stamps && is_full == life.is_finished;
            seen.insert(match (at == newest, whole) {
                (true, true) => Kept::Everything,
                (true, false) => Kept::Part,
                (false, _) => Kept::Earlier,
            });
        }
        seen
    }
}

/// Whether an operation was done, or may have been when the power went.
fn is_maybe_done(outcome: &Result<(), DeviceError>) -> bool {
    matches!(outcome, Ok(()) | Err(DeviceError::PowerCut))
}

fn below(random: &mut ChaCha8Rng, limit: u64) -> usize {
    usize::try_from(random.next_u64() % limit).unwrap()
}

fn run(seed: u64) -> (BTreeSet<Kept>, Vec<u8>) {
    let mut run = Run::new(seed);
    while run.step().is_ok() {}
    let drive = run.drive.below();
    let mut bytes = vec![0; ZONES as usize * 10 * BLOCK];
    drive.read(Lba::ZERO, &mut bytes).unwrap();
    let zones = format!("{:?}", drive.report_all().unwrap()).into_bytes();
    (run.check(), [bytes, zones].concat())
}

#[test]
fn power_cut_keeps_prefix_of_each_zone_since_flush() {
    let first = repeat::seed(0);
    let mut seen = BTreeMap::new();
    for seed in first..first + 600 {
        let outcome = std::panic::catch_unwind(|| run(seed).0);
        for kept in outcome.unwrap_or_else(|_| panic!("failed with SEED={seed}")) {
            *seen.entry(kept).or_insert(0) += 1;
        }
    }
    for kept in [Kept::Everything, Kept::Part, Kept::Earlier] {
        assert!(seen.get(&kept).is_some_and(|count| *count > 20), "{kept:?}: {seen:?}");
    }
}

#[test]
fn power_cut_outcome_is_decided_by_seed() {
    for seed in 0..20 {
        assert!(run(seed).1 == run(seed).1, "SEED={seed}");
    }
}

/// A zone that was reset and is there again was full, so its place is found among few active zones.
#[test]
fn zone_once_full_returns_under_tight_limits() {
    let mut came_back = 0;
    for seed in 0..60 {
        let drive = MemoryDrive::new(geometry(Some(1))).unwrap();
        let [full, other] = [2, 3].map(ZoneId::new);
        drive.append(full, &[7; 2 * BLOCK]).unwrap();
        drive.manage(Select::One(full), ZoneAction::Finish).unwrap();
        let plan = format!("append,nth=1,power-cut;seed={seed}");
        let drive = Fault::new(drive, plan.parse().unwrap());
        drive.manage(Select::One(full), ZoneAction::Reset).unwrap();
        assert!(drive.append(other, &[8; BLOCK]).is_err());
        let zone = |zone| drive.below().zone(zone).unwrap();
        assert!(zone(other).written().unwrap().get() <= 1);
        match zone(full).cond {
            ZoneCond::Empty => {}
            ZoneCond::Full => came_back += 1,
            other => panic!("{other:?}"),
        }
        let mut bytes = [1; 3 * BLOCK];
        drive.below().read(zone(full).start, &mut bytes).unwrap();
        let expected = if zone(full).cond == ZoneCond::Full { 7 } else { 0 };
        assert!(bytes[..2 * BLOCK].iter().all(|byte| *byte == expected), "SEED={seed}");
        assert!(bytes[2 * BLOCK..].iter().all(|byte| *byte == 0), "SEED={seed}");
    }
    assert!(came_back > 10, "{came_back}");
}

/// Overwritten blocks are old or new, each for itself; pointers and flags that were flushed stay.
#[test]
fn power_cut_of_preferred_zones_keeps_what_was_flushed() {
    let first = repeat::seed(0);
    let mut lossy = 0;
    for seed in first..first + 600 {
        let outcome = std::panic::catch_unwind(|| {
            let mut random = ChaCha8Rng::seed_from_u64(seed);
            let plan = format!("any,nth={},power-cut;seed={seed}", 1 + below(&mut random, 90));
            let spec = *preferred_shadow::geometry().spec();
            let drive = Fault::new(MemoryDrive::new(spec).unwrap(), plan.parse().unwrap());
            let mut shadow = Shadow::new();
            while shadow.step(&drive, &mut |limit| random.next_u64() % limit).is_ok() {}
            shadow.check(drive.below(), Loss::Unflushed);
            let zones = drive.below().report_all().unwrap();
            assert!(zones.iter().all(|zone| !zone.cond.is_open()), "{zones:?}");
            shadow.lost(drive.below())
        });
        lossy += usize::from(outcome.unwrap_or_else(|_| panic!("failed with SEED={seed}")) > 0);
    }
    assert!(lossy > 100, "{lossy} cuts lost something");
}
