//! The price of a write in reclaim while room is low, and the calls that wait for it meanwhile.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use zonal::layer::fault::{Fault, FaultKind, FaultOp, FaultPlan, FaultRule};
use zonal::{ByteCount, ManualClock, MemoryDrive, ZonedDevice};
use zonal_fs::furrow::{AtimePolicy, Furrow, MountOptions};
use zonal_fs::vfs::{Allocate, FileSystem, Ino, WriteFlags};

use super::gate::{Call, Gate};
use super::{BLOCK, Dice, assert_clean, create, fill, format, mount, shape};

/// Blocks that a write moves at most at once.
const STEP: u64 = 64;

/// A file that fills `percent` percent of the space for files, and half of which was overwritten.
fn filled(drive: Arc<dyn ZonedDevice>, percent: u64) -> (Furrow, Ino, u64) {
    let fs = format(drive);
    let file = create(&fs, "file");
    let blocks = fs.statfs().unwrap().blocks_free * percent / 100;
    fill(&fs, file, blocks);
    let mut dice = Dice(1);
    for _ in 0..blocks / 2 {
        overwrite(&fs, file, dice.below(blocks));
    }
    (fs, file, blocks)
}

fn overwrite(fs: &Furrow, file: Ino, block: u64) {
    fs.write(file, block * BLOCK, &[3; 4096], WriteFlags::DIRECT).unwrap();
}

#[test]
fn throttle_moves_one_step_beyond_price_at_most() {
    // A victim takes many steps.
    let drive = Arc::new(MemoryDrive::new(shape(48, 1024)).unwrap());
    let (fs, file, blocks) = filled(drive, 90);
    let mut dice = Dice(2);
    let (mut most, mut paid) = (0, 0);
    let start = fs.stats();
    for _ in 0..blocks {
        let before = fs.stats().reclaim_bytes;
        overwrite(&fs, file, dice.below(blocks));
        let moved = (fs.stats().reclaim_bytes - before) / BLOCK;
        most = most.max(moved);
        paid += u64::from(moved > 0);
    }
    let moved = (fs.stats().reclaim_bytes - start.reclaim_bytes) / BLOCK;
    println!("{blocks} writes of a block moved {moved}, in {paid} of them, {most} at most");
    assert!(paid > blocks / STEP, "the price is divided: {paid} of {blocks} paid");
    assert!(most <= STEP, "a write of one block moved {most}");
    let data = vec![4; 1 << 20];
    for _ in 0..100 {
        let before = fs.stats().reclaim_bytes;
        let cost = || fs.live().reclaimed.moved.div_ceil(fs.live().reclaimed.freed);
        let price = 2 * 256 * cost();
        let at = dice.below(blocks - 256) * BLOCK;
        fs.write(file, at, &data, WriteFlags::DIRECT).unwrap();
        let moved = (fs.stats().reclaim_bytes - before) / BLOCK;
        assert!(moved <= price + STEP, "{moved} at a price of {price}");
    }
}

#[test]
fn throttle_of_paying_write_delays_no_read() {
    let gate = Gate::new(shape(48, 256));
    let (fs, file, blocks) = filled(gate.clone(), 90);
    gate.hold_one(Call::Read);
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (fs, is_done) = (&fs, &is_done);
        scope.spawn(move || {
            let mut dice = Dice(3);
            while !is_done.load(Ordering::Acquire) {
                overwrite(fs, file, dice.below(blocks));
            }
        });
        // Only reclaim reads.
        gate.wait_for(1);
        let reader = scope.spawn(move || {
            let mut found = vec![0; 1 << 20];
            for at in 0..(blocks * BLOCK) >> 20 {
                fs.read(file, at << 20, &mut found).unwrap();
            }
            assert_eq!(fs.getattr(file).unwrap().size, blocks * BLOCK);
        });
        // If it waits for reclaim, nothing else ends the wait.
        reader.join().unwrap();
        is_done.store(true, Ordering::Release);
        gate.open();
    });
}

#[test]
fn throttle_shares_reclaim_among_sixteen_writers() {
    let drive = Arc::new(MemoryDrive::new(shape(48, 128)).unwrap());
    let (fs, file, blocks) = filled(drive.clone(), 97);
    std::thread::scope(|scope| {
        for writer in 0..16 {
            let fs = &fs;
            scope.spawn(move || {
                let mut dice = Dice(writer);
                for _ in 0..200 {
                    overwrite(fs, file, dice.below(blocks));
                }
            });
        }
    });
    let live = fs.live();
    assert_eq!((live.reservations.pending, live.reservations.waiting), (0, 0));
    fs.shutdown().unwrap();
    drop(fs);
    assert_clean(drive);
}

/// Waits until `expected` zones are read at once while eight threads move blocks; whether there are
/// more.
fn more_zones_are_read_at_once(memory: ByteCount, expected: usize) -> bool {
    let gate = Gate::new(shape(96, 64));
    drop(format(gate.clone()));
    let options = MountOptions { memory, ..MountOptions::default() };
    let fs = Furrow::mount(gate.clone(), Arc::new(ManualClock::new(1)), options).unwrap();
    let file = create(&fs, "file");
    let blocks = 40 * 64;
    fill(&fs, file, blocks);
    // Half of each zone is dead.
    for block in (0..blocks).step_by(16) {
        fs.fallocate(file, Allocate::Punch, block * BLOCK, 8 * BLOCK).unwrap();
    }
    fs.sync().unwrap();
    gate.hold(Call::Read);
    let more = std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..6 {
                    fs.reclaim_ahead().unwrap();
                }
            });
        }
        gate.wait_for(expected);
        let more = gate.comes_to(expected + 1);
        gate.open();
        more
    });
    assert!(fs.stats().reclaim_bytes > 0);
    let mut found = vec![0; 16 << 12];
    for block in (0..blocks).step_by(16) {
        fs.read(file, block * BLOCK, &mut found).unwrap();
        let halves = found.split_at(8 << 12);
        assert!(halves.0.iter().all(|byte| *byte == 0), "what was punched is a hole");
        assert!(halves.1.iter().all(|byte| *byte == 1), "what lives is as it was");
    }
    fs.shutdown().unwrap();
    drop(fs);
    assert_clean(gate);
    more
}

#[test]
fn reclaim_reads_several_victims_within_memory_bound() {
    let (least, usual) = (MountOptions::MEMORY_MIN, MountOptions::MEMORY);
    assert!(!more_zones_are_read_at_once(usual, 4), "2 MiB each, 8 MiB in all");
    assert!(!more_zones_are_read_at_once(least, 1), "one in the least of memory");
}

/// The last content of each block of a file, after contents that a failed write may have left.
type Content = Vec<Vec<u8>>;

/// Overwrites on a drive whose n-th I/O fails. Returns whether one did, and whether blocks moved.
fn overwrite_with_a_fault(
    drive: &Arc<MemoryDrive>,
    (file, content): (Ino, &mut Content),
    rule: FaultRule,
    dice: &mut Dice,
) -> (bool, bool) {
    let drive = Arc::new(Fault::new(drive.clone(), FaultPlan { rules: vec![rule], seed: 1 }));
    let options = MountOptions { atime: AtimePolicy::Never, ..MountOptions::default() };
    let clock = Arc::new(ManualClock::new(1));
    let fs = Furrow::mount(drive.clone(), clock, options).unwrap_or_else(|_| {
        drive.disarm();
        mount(drive.clone())
    });
    for _ in 0..80 {
        let block = dice.below(content.len() as u64);
        let at = &mut content[usize::try_from(block).unwrap()];
        let byte = u8::try_from(dice.below(250)).unwrap();
        match fs.write(file, block * BLOCK, &[byte; 4096], WriteFlags::DIRECT) {
            Ok(_) => *at = vec![byte],
            Err(_) => at.push(byte),
        }
    }
    let has_moved = fs.stats().reclaim_bytes > 0;
    let has_failed = drive.fired() > 0;
    drive.disarm();
    fs.sync().unwrap();
    (has_failed, has_moved)
}

#[test]
fn io_failing_at_nth_while_writes_pay_loses_nothing() {
    let drive = Arc::new(MemoryDrive::new(shape(32, 256)).unwrap());
    let (fs, file, blocks) = filled(drive.clone(), 95);
    fs.shutdown().unwrap();
    drop(fs);
    let mut content: Content = vec![vec![1, 3]; usize::try_from(blocks).unwrap()];
    let mut dice = Dice(5);
    for (op, kind, most) in [
        (FaultOp::Read, FaultKind::Medium, 160),
        (FaultOp::Write, FaultKind::Medium, 160),
        (FaultOp::Write, FaultKind::Torn, 160),
        (FaultOp::Flush, FaultKind::Medium, 20),
        (FaultOp::Manage, FaultKind::Medium, 20),
    ] {
        let (mut failed, mut moved) = (0, 0);
        for nth in (1..most).step_by(if most > 20 { 7 } else { 1 }) {
            let rule = FaultRule::new(op, kind).at_nth(nth);
            let (has_failed, has_moved) =
                overwrite_with_a_fault(&drive, (file, &mut content), rule, &mut dice);
            failed += u64::from(has_failed);
            moved += u64::from(has_moved);
        }
        println!("{op:?} fails ({kind:?}): {failed} times, blocks moved {moved} times");
        assert!(failed > 0 && moved > 0);
        let fs = mount(drive.clone());
        let mut found = [0; 4096];
        for (block, may_be) in (0..).zip(&content) {
            fs.read(file, block * BLOCK, &mut found).unwrap();
            assert!(found.iter().all(|byte| *byte == found[0]), "block {block} is whole");
            assert!(may_be.contains(&found[0]), "block {block}: {} of {may_be:?}", found[0]);
        }
        fs.shutdown().unwrap();
        drop(fs);
        assert_clean(drive.clone());
    }
}

#[test]
fn unmount_during_reclaim_leaves_data_in_place() {
    let drive = Arc::new(MemoryDrive::new(shape(48, 512)).unwrap());
    let (fs, file, blocks) = filled(drive.clone(), 80);
    let content = |fs: &Furrow, file| {
        let mut bytes = vec![0; usize::try_from(blocks * BLOCK).unwrap()];
        assert_eq!(fs.read(file, 0, &mut bytes).unwrap(), bytes.len());
        bytes
    };
    let before = content(&fs, file);
    let start = fs.stats().reclaim_bytes;
    std::thread::scope(|scope| {
        let emptying = [(); 2].map(|()| {
            scope.spawn(|| {
                // Until the unmount refuses it.
                while fs.reclaim_ahead().is_ok() {}
            })
        });
        while fs.stats().reclaim_bytes < start + (3 << 20) {
            std::thread::yield_now();
        }
        fs.shutdown().unwrap();
        for thread in emptying {
            thread.join().unwrap();
        }
    });
    drop(fs);
    assert_clean(drive.clone());
    let fs = mount(drive);
    let file = fs.lookup(Ino::ROOT, b"file").unwrap().ino;
    assert!(content(&fs, file) == before, "what reclaim moved is what was there");
}
