//! A full drive that refuses reads for a while: reclaim leaves such zones alone for a pause, and
//! a writer that finds no room otherwise tries them at once.

use std::sync::Arc;

use zonal::layer::fault::{Fault, FaultKind, FaultOp, FaultPlan, FaultRule};
use zonal::{ManualClock, MemoryDrive};
use zonal_fs::FsError;
use zonal_fs::furrow::{Furrow, MkfsOptions, MountOptions, StepProgress, Work, mkfs};
use zonal_fs::vfs::{FileSystem, Ino, WriteFlags};

use super::{BLOCK, Dice, assert_clean, create, fill, shape};

/// A drive of which one file fills most.
struct NearlyFull {
    drive: Arc<Fault<MemoryDrive>>,
    clock: Arc<ManualClock>,
    fs: Furrow,
    file: Ino,
    blocks: u64,
    dice: Dice,
}

impl NearlyFull {
    fn new() -> Self {
        let drive = MemoryDrive::new(shape(48, 128)).unwrap();
        let drive = Arc::new(Fault::new(drive, FaultPlan::default()));
        let clock = Arc::new(ManualClock::new(1));
        mkfs(drive.clone(), &*clock, &MkfsOptions::default(), &mut |_| ()).unwrap();
        let fs = Furrow::mount(drive.clone(), clock.clone(), MountOptions::default()).unwrap();
        let file = create(&fs, "file");
        let blocks = fs.statfs().unwrap().blocks_free * 7 / 10;
        fill(&fs, file, blocks);
        fs.sync().unwrap();
        Self { drive, clock, fs, file, blocks, dice: Dice(5) }
    }

    /// Overwrites blocks here and there; returns how many writes found no space, and how many
    /// failed otherwise.
    fn overwrite(&mut self, count: u64) -> [u64; 2] {
        let mut failed = [0; 2];
        for _ in 0..count {
            let at = self.dice.below(self.blocks) * BLOCK;
            match self.fs.write(self.file, at, &[7; 4096], WriteFlags::DIRECT) {
                Ok(_) => {}
                Err(FsError::NoSpace) => failed[0] += 1,
                Err(_) => failed[1] += 1,
            }
        }
        failed
    }

    /// Refuses all reads, and overwrites until a write fails.
    fn refuse_reads(&mut self) {
        self.drive.arm(vec![FaultRule::new(FaultOp::Read, FaultKind::Medium)]);
        while self.overwrite(100) == [0, 0] {}
    }

    fn end(self) {
        self.fs.shutdown().unwrap();
        drop(self.fs);
        assert_clean(self.drive);
    }
}

#[test]
fn reclaim_refused_some_reads_leaves_no_zone_behind() {
    let mut full = NearlyFull::new();
    let rule = FaultRule::new(FaultOp::Read, FaultKind::Medium);
    full.drive.arm(vec![FaultRule { probability: 0.02, ..rule }]);
    let [no_space, other] = full.overwrite(4 * full.blocks);
    assert!(full.drive.fired() > 20, "{} reads failed", full.drive.fired());
    assert_eq!(no_space, 0, "no write is refused for space; {other} failed otherwise");
    full.drive.disarm();
    assert_eq!(full.overwrite(full.blocks), [0, 0]);
    full.clock.advance_ns(64_000_000_000);
    assert_eq!(full.overwrite(4 * full.blocks), [0, 0]);
    assert_eq!(full.fs.stats().zones_unread, 0, "all of them were read since");
    full.end();
}

#[test]
fn writer_without_room_retries_unread_zones_at_once() {
    let mut full = NearlyFull::new();
    full.refuse_reads();
    while full.fs.step(Work::Reclaim).unwrap() == StepProgress::More {}
    assert!(full.fs.stats().zones_unread > 0);
    full.drive.disarm();
    // No time passes, so that all pauses go on.
    assert_eq!(full.overwrite(2 * full.blocks), [0, 0]);
    full.end();
}
