//! A full drive that refuses reads for a while: reclaim leaves such zones alone for a pause, and
//! a writer that finds no room otherwise tries them at once. Commits need no read of the table.

use std::sync::Arc;

use zonal::layer::fault::{Fault, FaultKind, FaultOp, FaultPlan, FaultRule};
use zonal::{GeometrySpec, ManualClock, MemoryDrive};
use zonal_fs::FsError;
use zonal_fs::furrow::{Furrow, MkfsOptions, MountOptions, StepProgress, Work, mkfs};
use zonal_fs::vfs::{Caller, FileSystem, Ino, SetAttr, WriteFlags};

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
        Self::of(shape(48, 128), 70)
    }

    /// A drive of which a file fills this share of the space.
    fn of(shape: GeometrySpec, percent: u64) -> Self {
        let drive = MemoryDrive::new(shape).unwrap();
        let drive = Arc::new(Fault::new(drive, FaultPlan::default()));
        let clock = Arc::new(ManualClock::new(1));
        mkfs(drive.clone(), &*clock, &MkfsOptions::default(), &mut |_| ()).unwrap();
        let fs = Furrow::mount(drive.clone(), clock.clone(), MountOptions::default()).unwrap();
        let file = create(&fs, "file");
        let blocks = fs.statfs().unwrap().blocks_free * percent / 100;
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

/// The journal gets full again and again, and few zones are free for another. So its rows go to the
/// table, beside pieces that cannot be merged. With few active zones each flush takes a pair of
/// zones of its own, until there are none.
#[test]
fn commit_goes_on_beside_table_that_cannot_be_read() {
    for (active, overwritten, least) in [(14, 0, 1500), (14, 2, 1500), (4, 0, 300), (4, 2, 300)] {
        let what = format!("{active} active zones, overwritten {overwritten} times");
        let few =
            GeometrySpec { max_active: Some(active), max_open: Some(active), ..shape(48, 128) };
        let mut full = NearlyFull::of(few, 98);
        assert_eq!(full.overwrite(overwritten * full.blocks), [0, 0], "{what}");
        full.fs.sync().unwrap();
        full.drive.arm(vec![FaultRule::new(FaultOp::Read, FaultKind::Medium)]);
        let commit = |round: u16| {
            let set = SetAttr { perm: Some(round % 0o777), ..SetAttr::default() };
            full.fs.setattr(&Caller::ROOT, full.file, &set).unwrap();
            full.fs.sync()
        };
        for round in 0..1500 {
            match commit(round) {
                Err(FsError::NoSpace) if round >= least => break,
                outcome => outcome.unwrap_or_else(|error| panic!("{what}, {round}: {error}")),
            }
        }
        assert!(full.drive.fired() > 0, "{what}: merges were tried");
        full.drive.disarm();
        full.clock.advance_ns(64_000_000_000);
        (0..300).for_each(|round| commit(round).unwrap());
        full.fs.tick().unwrap();
        full.end();
    }
}
