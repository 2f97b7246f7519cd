//! Reads that the drive refuses for a while: nothing old is shown, nothing readable counts as lost,
//! and when the faults end all space comes back without a remount.

use zonal::image::ImageDrive;
use zonal::layer::fault::{Fault, FaultKind, FaultOp, FaultPlan, FaultRule};
use zonal_fs::furrow::Eviction;
use zonal_fs::vfs::Allocate;

use super::leaves::many_pieces;
use super::*;

const BLOCKS: u64 = 3000;
const BYTES: u64 = BLOCKS * 4096;
const SECOND_NS: u64 = 1_000_000_000;

/// A mount of a drive that can refuse reads.
pub(super) struct Mounted {
    drive: Arc<Fault<ImageDrive>>,
    clock: Arc<ManualClock>,
    pub(super) fs: Furrow,
    /// Zones of the table.
    zones: BTreeSet<u32>,
}

impl Mounted {
    pub(super) fn new(image: &Image) -> Self {
        let mut zones = BTreeSet::new();
        dump(Arc::new(image.power_on()), DumpWhat::Parts, &mut |part| {
            let ids = part["zone"].as_array().unwrap();
            zones.extend(ids.iter().map(|zone| u32::try_from(zone.as_u64().unwrap()).unwrap()));
        })
        .unwrap();
        let drive = Arc::new(Fault::new(image.power_on(), FaultPlan::default()));
        let clock = Arc::new(ManualClock::new(1));
        let options = MountOptions {
            atime: AtimePolicy::Never,
            eviction: Eviction::AtEveryLock,
            ..MountOptions::default()
        };
        let fs = Furrow::mount(drive.clone(), clock.clone(), options).unwrap();
        Self { drive, clock, fs, zones }
    }

    /// Refuses reads of metadata: `times` of them, from the one with number `from` on.
    pub(super) fn refuse(&self, from: u64, times: Option<u64>) {
        let rule = FaultRule::new(FaultOp::Read, FaultKind::Medium);
        let of_zone = |&zone| FaultRule { zones: Some(zone..=zone), from, times, ..rule.clone() };
        self.drive.arm(self.zones.iter().map(of_zone).collect());
    }

    /// Takes all steps of truncation that are due.
    pub(super) fn step(&self) {
        while self.fs.step(Work::Truncate).unwrap() == StepProgress::More {}
    }

    /// Ends the faults and the pauses after them.
    pub(super) fn recover(&self) {
        self.drive.disarm();
        self.clock.advance_ns(64 * SECOND_NS);
        self.step();
        self.fs.sync().unwrap();
        assert_eq!(self.fs.stats().removals_owed, 0);
    }

    pub(super) fn end(self) {
        self.fs.shutdown().unwrap();
        drop(self.fs);
        let report = check(self.drive, DataCheck::Read, &mut |_| ()).unwrap();
        assert!(report.is_clean(), "{report:?}");
    }
}

fn size(bytes: u64) -> SetAttr {
    SetAttr { size: Some(bytes), ..SetAttr::default() }
}

/// The blocks of a file that show something; `None` for a block that cannot be read.
fn shown(fs: &Furrow, file: Ino) -> Vec<u64> {
    let is_shown = |block: &u64| {
        let mut found = [0; 4096];
        let read = fs.read(file, block * 4096, &mut found);
        read.is_ok_and(|_| found != [0; 4096])
    };
    (0..BLOCKS).filter(is_shown).collect()
}

#[test]
fn truncation_with_refused_reads_shows_no_old_content() {
    let (image, file) = many_pieces(BLOCKS);
    let (mut refused, mut owed) = (0, 0);
    for from in 1..12 {
        let mounted = Mounted::new(&image);
        let fs = &mounted.fs;
        mounted.refuse(from, None);
        if fs.setattr(&Caller::ROOT, file, &size(0)).is_err() {
            continue;
        }
        mounted.step();
        owed += u64::from(fs.stats().removals_owed > 0);
        // Growth of the file waits for the truncation, or fails.
        let grown = [
            fs.setattr(&Caller::ROOT, file, &size(BYTES)).map(drop),
            fs.write(file, BYTES, b"end", WriteFlags::empty()).map(drop),
            fs.fallocate(file, Allocate::Extend, BYTES, 4096).map(drop),
        ];
        refused += grown.iter().filter(|grown| grown.is_err()).count();
        assert!(shown(fs, file).is_empty(), "faults from read {from} on");
        mounted.recover();
        fs.setattr(&Caller::ROOT, file, &size(BYTES)).unwrap();
        assert!(shown(fs, file).is_empty(), "after the faults");
        mounted.end();
    }
    assert!(refused > 0 && owed > 0, "{refused} refused, {owed} truncations were owed");
}

#[test]
fn deletion_with_refused_reads_gives_all_space_back() {
    let (image, _) = many_pieces(BLOCKS);
    let mut owed = 0;
    for is_open in [false, true] {
        for (from, times) in [(1, None), (2, None), (3, None), (2, Some(1)), (1, Some(2))] {
            let mounted = Mounted::new(&image);
            let fs = &mounted.fs;
            let before = fs.statfs().unwrap();
            let file = fs.lookup(Ino::ROOT, b"file").unwrap().ino;
            fs.pin(file).unwrap();
            fs.unlink(Ino::ROOT, b"file").unwrap();
            if !is_open {
                fs.unpin(file);
            }
            mounted.refuse(from, times);
            if is_open {
                fs.unpin(file);
            }
            for _ in 0..3 {
                mounted.step();
                mounted.clock.advance_ns(SECOND_NS);
            }
            owed += u64::from(fs.stats().removals_owed > 0);
            mounted.recover();
            let after = fs.statfs().unwrap();
            assert_eq!(after.blocks_free - before.blocks_free, BLOCKS, "{from}, {times:?}");
            assert_eq!(after.inodes, before.inodes - 1);
            mounted.end();
        }
    }
    assert!(owed > 2, "{owed} deletions were owed");
}

#[test]
fn discard_with_refused_reads_ends_after_them() {
    let (image, file) = many_pieces(BLOCKS);
    let mounted = Mounted::new(&image);
    let fs = &mounted.fs;
    let before = fs.statfs().unwrap().blocks_free;
    fs.fallocate(file, Allocate::PunchLater, 0, BYTES).unwrap();
    mounted.refuse(1, None);
    mounted.step();
    assert_eq!(fs.stats().removals_owed, 1);
    assert!(shown(fs, file).is_empty());
    mounted.recover();
    assert_eq!(fs.statfs().unwrap().blocks_free - before, BLOCKS);
    mounted.end();
}

#[test]
fn writer_without_space_retries_deletion_at_once() {
    let (image, _) = many_pieces(BLOCKS);
    let mounted = Mounted::new(&image);
    let fs = &mounted.fs;
    fs.unlink(Ino::ROOT, b"file").unwrap();
    mounted.refuse(1, None);
    mounted.step();
    assert_eq!(fs.stats().removals_owed, 1);
    mounted.drive.disarm();
    // No time passes, so the worker still pauses.
    mounted.step();
    assert_eq!(fs.stats().removals_owed, 1);
    let filler = make(fs, Ino::ROOT, "filler", FileKind::Regular);
    let mut at = 0;
    while fs.write(filler, at, &vec![3; 64 << 10], WriteFlags::DIRECT).is_ok() {
        at += 64 << 10;
    }
    assert_eq!(fs.stats().removals_owed, 0, "it was needed after {at} bytes");
    mounted.end();
}

#[test]
fn deletion_refused_for_nine_minutes_loses_no_row() {
    let (image, _) = many_pieces(BLOCKS);
    let mounted = Mounted::new(&image);
    let fs = &mounted.fs;
    let before = fs.statfs().unwrap().blocks_free;
    fs.unlink(Ino::ROOT, b"file").unwrap();
    mounted.refuse(1, None);
    let reads = mounted.drive.fired();
    for _ in 0..540 {
        mounted.step();
        fs.tick().unwrap();
        mounted.clock.advance_ns(SECOND_NS);
    }
    let reads = mounted.drive.fired() - reads;
    assert!((10..2000).contains(&reads), "{reads} attempts in nine minutes");
    mounted.recover();
    assert_eq!(fs.statfs().unwrap().blocks_free - before, BLOCKS);
    mounted.end();
}
