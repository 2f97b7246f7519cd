//! Drives of any shape are filled to the last block that statfs offers, and then overwritten: no
//! write is refused.

use std::fmt;
use std::sync::Arc;

use zonal::{GeometrySpec, LbaCount, ManualClock, MemoryDrive, ZoneRun, ZoneRuns, repeat};
use zonal_fs::FsError;
use zonal_fs::furrow::{Furrow, MkfsOptions, mkfs};
use zonal_fs::vfs::{FileSystem, Ino, WriteFlags};

use super::{Dice, assert_clean, create, mount, shape};

/// Times that a drive is overwritten.
const TURNS: u64 = 3;

/// Bytes of half a block.
const HALF: usize = 2048;

/// In which order blocks are overwritten.
#[derive(Clone, Copy, Debug)]
enum Order {
    Uniform,
    /// Half of the writes go to a sixteenth.
    Hot,
    Sequential,
    /// Up to 16 blocks at once.
    Runs,
    /// Up to four blocks and a half, from the middle of a block or to it.
    Halves,
}

/// A drive and its work.
#[derive(Clone, Copy, Debug)]
struct Plan {
    zones: u64,
    zone_blocks: u64,
    conventional: ZoneRuns,
    active: u32,
    /// Blocks that the last zone has less than the others.
    short: u64,
    reserve_percent: u32,
    flags: WriteFlags,
    order: Order,
    /// Writes between two syncs, ticks and mounts, 0 for never.
    syncs: u64,
    ticks: u64,
    mounts: u64,
}

/// At most eleven conventional zones: none, all at the start, or in up to three places.
fn conventional(dice: &mut Dice, zones: u64) -> ZoneRuns {
    let mut draw = |below: u64| u32::try_from(dice.below(below)).unwrap();
    match draw(4) {
        0 | 1 => ZoneRuns::NONE,
        2 => ZoneRuns::leading(1 + draw(11)),
        _ => {
            let third = u32::try_from(zones / 3).unwrap();
            let place = |nth: u32| ZoneRun { first: nth * third + draw(8), count: draw(4) };
            let mut runs: Vec<ZoneRun> = (0..3).map(place).collect();
            // The last one ends the drive.
            runs[2].first = u32::try_from(zones).unwrap() - runs[2].count;
            ZoneRuns::new(runs).unwrap()
        }
    }
}

impl Plan {
    fn of(dice: &mut Dice) -> Self {
        let now_and_then = |dice: &mut Dice, every: u64| match dice.below(2) {
            0 => 0,
            _ => 1 + dice.below(every),
        };
        let up_to = |dice: &mut Dice, few: u64, many: u64| {
            let limit = if dice.below(2) == 0 { few } else { many };
            dice.below(limit)
        };
        let zone_blocks = 64 + up_to(dice, 64, 193);
        let zones = 40 + up_to(dice, 60, 161);
        Self {
            zones,
            zone_blocks,
            conventional: conventional(dice, zones),
            active: 4 + u32::try_from(up_to(dice, 10, 30)).unwrap(),
            short: if dice.below(2) == 0 { 0 } else { dice.below(zone_blocks) },
            reserve_percent: u32::try_from(dice.below(8)).unwrap(),
            flags: if dice.below(2) == 0 { WriteFlags::empty() } else { WriteFlags::DIRECT },
            order: [Order::Uniform, Order::Hot, Order::Sequential, Order::Runs, Order::Halves]
                [usize::try_from(dice.below(5)).unwrap()],
            syncs: now_and_then(dice, 2000),
            ticks: now_and_then(dice, 1000),
            mounts: now_and_then(dice, 20_000),
        }
    }

    fn drive(&self) -> Arc<MemoryDrive> {
        let whole = shape(self.zones, self.zone_blocks);
        let limits = GeometrySpec {
            block_count: LbaCount::new(self.zones * self.zone_blocks - self.short),
            conventional_zones: self.conventional,
            max_open: Some(self.active),
            max_active: Some(self.active),
            ..whole
        };
        Arc::new(MemoryDrive::new(limits).unwrap())
    }

    /// Which of the `all` halves of blocks the next write goes to: the first, and how many.
    fn next(&self, dice: &mut Dice, (step, all): (u64, u64)) -> (u64, u64) {
        let blocks = all / 2;
        let (first, count) = match self.order {
            Order::Hot if dice.below(2) == 0 => (2 * dice.below(blocks / 16), 2),
            Order::Uniform | Order::Hot => (2 * dice.below(blocks), 2),
            Order::Sequential => (2 * (step % blocks), 2),
            Order::Runs => (2 * dice.below(blocks), 2 + 2 * dice.below(16)),
            Order::Halves => (dice.below(all), 1 + dice.below(9)),
        };
        (first, count.min(all - first))
    }
}

/// Each half of a block has the content of its last write.
fn verify(fs: &Furrow, file: Ino, tags: &[u8]) {
    let mut found = vec![0; 512 * HALF];
    for (at, tags) in (0..).step_by(found.len()).zip(tags.chunks(512)) {
        let found = &mut found[..tags.len() * HALF];
        assert_eq!(fs.read(file, at, found).unwrap(), found.len());
        for (index, (half, &tag)) in found.chunks(HALF).zip(tags).enumerate() {
            assert!(half.iter().all(|&byte| byte == tag), "byte {at} and {index} halves of blocks");
        }
    }
}

fn overwrite(seed: u64) {
    let mut dice = Dice(seed);
    let plan = Plan::of(&mut dice);
    let drive = plan.drive();
    let options = MkfsOptions { reserve_percent: plan.reserve_percent, ..MkfsOptions::default() };
    mkfs(drive.clone(), &ManualClock::new(0), &options, &mut |_| ()).unwrap();
    let mut fs = mount(drive.clone());
    let file = create(&fs, "file");
    let all = 2 * fs.statfs().unwrap().blocks_free;
    let mut tags = vec![0; usize::try_from(all).unwrap()];
    let write = |fs: &Furrow, tags: &mut [u8], (first, count): (u64, u64), tag: u8| {
        let (from, len) = (usize::try_from(first).unwrap(), usize::try_from(count).unwrap());
        tags[from..from + len].fill(tag);
        fs.write(file, first * HALF as u64, &vec![tag; len * HALF], plan.flags)
    };
    let named = |what: fmt::Arguments<'_>, error: FsError| {
        println!("SEED={seed} {plan:?}: {what}: {error}");
        error
    };
    for first in (0..all).step_by(512) {
        write(&fs, &mut tags, (first, 512.min(all - first)), 1)
            .map_err(|error| named(format_args!("half {first} of {all} of the fill"), error))
            .unwrap();
    }
    let is_time = |step: u64, every: u64| every > 0 && step % every == every - 1;
    let (mut step, mut written) = (0, 0);
    while written < TURNS * all {
        let at = plan.next(&mut dice, (step, all));
        let tag = u8::try_from(dice.below(256)).unwrap();
        write(&fs, &mut tags, at, tag)
            .map_err(|error| named(format_args!("{written} halves after {all}"), error))
            .unwrap();
        written += at.1;
        if is_time(step, plan.syncs) {
            fs.sync().map_err(|error| named(format_args!("a sync"), error)).unwrap();
        }
        if is_time(step, plan.ticks) {
            fs.tick().map_err(|error| named(format_args!("a tick"), error)).unwrap();
        }
        if is_time(step, plan.mounts) {
            fs.shutdown().map_err(|error| named(format_args!("an end"), error)).unwrap();
            drop(fs);
            fs = mount(drive.clone());
        }
        step += 1;
    }
    verify(&fs, file, &tags);
    fs.shutdown().map_err(|error| named(format_args!("the end"), error)).unwrap();
    drop(fs);
    assert_clean(drive);
}

fn overwrite_drives(count: u64) {
    let (seed, count) = (repeat::seed(1), repeat::count(count));
    for seed in seed..seed + count {
        overwrite(seed);
    }
}

#[test]
fn full_drive_of_any_shape_can_be_overwritten() {
    overwrite_drives(4);
}

#[test]
#[ignore = "takes minutes; run by cargo xtask test --all"]
fn full_drives_of_many_shapes_can_be_overwritten() {
    overwrite_drives(40);
}
