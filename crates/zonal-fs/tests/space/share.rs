//! Overwriting blocks while a given share of the drive is live: never refused, and at which cost.

use std::sync::Arc;

use zonal::layer::meter::{Meter, OpKind};
use zonal::{ManualClock, MemoryDrive};
use zonal_fs::furrow::{Furrow, MkfsOptions, mkfs};
use zonal_fs::vfs::{FileSystem, Ino, WriteFlags};

use super::{BLOCK, Dice, assert_clean, create, fill, mount, shape};

/// Bytes written for each byte that the program wrote.
#[derive(Debug)]
struct Amplification {
    /// Data, with the blocks that reclaim moves.
    data: f64,
    metadata: f64,
}

/// Overwrites random blocks for `turns` turns of the drive, with `percent` of it live, and measures
/// the second half. None where `statfs` does not sell that much.
fn measure(zones: u64, zone_blocks: u64, percent: u64, turns: u64) -> Option<Amplification> {
    let drive = MemoryDrive::new(shape(zones, zone_blocks)).unwrap();
    let drive = Arc::new(Meter::new(drive, Arc::new(ManualClock::new(0))));
    // The space that is not live is the only reserve.
    let options = MkfsOptions { reserve_percent: 0, ..MkfsOptions::default() };
    mkfs(drive.clone(), &ManualClock::new(0), &options, &mut |_| ()).unwrap();
    let fs = mount(drive.clone());
    let file = create(&fs, "file");
    let all = zones * zone_blocks;
    let blocks = all * percent / 100;
    let sold = fs.statfs().unwrap().blocks_free;
    if sold < blocks {
        println!(
            "{zones} zones of {zone_blocks} blocks: {percent} % of {all} is not sold, {sold} are"
        );
        return None;
    }
    fill(&fs, file, blocks);
    let mut dice = Dice(percent);
    overwrite(&fs, file, blocks, all * turns / 2, &mut dice);
    let before = written(&fs, &drive);
    overwrite(&fs, file, blocks, all * turns / 2, &mut dice);
    let after = written(&fs, &drive);
    let [user, data, written] = [0, 1, 2].map(|at| (after[at] - before[at]) as f64);
    let found = Amplification { data: data / user, metadata: (written - data) / user };
    println!("{zones} zones of {zone_blocks} blocks, {percent} % live: {found:.2?}");
    fs.shutdown().unwrap();
    drop(fs);
    assert_clean(drive);
    Some(found)
}

/// Bytes of users, of data, and of everything.
fn written(fs: &Furrow, drive: &Meter<MemoryDrive>) -> [u64; 3] {
    fs.sync().unwrap();
    let stats = fs.stats();
    let bytes = |kind| drive.counters().of(kind).bytes.get();
    let all = bytes(OpKind::Write) + bytes(OpKind::Append);
    [stats.user_bytes, stats.user_bytes + stats.reclaim_bytes, all]
}

fn overwrite(fs: &Furrow, ino: Ino, blocks: u64, count: u64, dice: &mut Dice) {
    for step in 0..count {
        let block = dice.below(blocks);
        fs.write(ino, block * BLOCK, &[3; 4096], WriteFlags::DIRECT)
            .unwrap_or_else(|error| panic!("overwrite {step}, block {block}: {error}"));
    }
}

/// Every share that statfs offers. The bounds, about half above the measured values, catch a change
/// for the worse.
fn check_all(zones: u64, zone_blocks: u64, turns: u64) {
    for (percent, data, metadata) in [(80, 12.0, 4.0), (90, 38.0, 6.0), (95, 40.0, 10.0)] {
        let Some(found) = measure(zones, zone_blocks, percent, turns) else { continue };
        let is_bounded = found.data < data && found.metadata < metadata;
        assert!(is_bounded, "{percent} % live: {found:?}");
    }
}

#[test]
fn overwrite_is_never_refused_at_any_live_share() {
    for (zones, zone_blocks) in [(256, 64), (128, 128)] {
        check_all(zones, zone_blocks, 2);
    }
}

#[test]
#[ignore = "takes half an hour; run by cargo xtask test --soak"]
fn overwrite_five_turns_is_never_refused() {
    for (zones, zone_blocks) in [(256, 64), (128, 256), (1024, 256)] {
        check_all(zones, zone_blocks, 5);
    }
}
