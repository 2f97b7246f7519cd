//! Superblocks and journal in conventional zones, of which a power cut may leave any blocks.

use std::sync::Arc;

use serde_json::Value;
use zonal::layer::record::Recorder;
use zonal::{ZoneFailure, ZoneId, ZonedDevice};
use zonal_fs::furrow::{DumpWhat, Furrow, MountOptions, dump};
use zonal_fs::vfs::{Caller, FileKind, FileSystem, Ino, WriteFlags};

use crate::ace::{self, Syncs};
use crate::check::{Checker, Effort};
use crate::copies::tear;
use crate::ops::drives::{self, CONVENTIONAL, SHAPES, StepClock};
use crate::ops::{Op, content};
use crate::planted::long_batches;
use crate::run::{Run, Start, end_of};
use crate::zones::PLAIN;
use crate::{Report, check_random, check_sequence, count, seed};

fn mount(drive: &Arc<dyn ZonedDevice>) -> Furrow {
    let (clock, options) = (Arc::new(StepClock::default()), MountOptions::default());
    Furrow::mount(drive.clone(), clock, options).expect("mount")
}

fn dumped(drive: &Arc<dyn ZonedDevice>, what: DumpWhat) -> Vec<Value> {
    let mut values = Vec::new();
    dump(drive.clone(), what, &mut |value| values.push(value)).expect("dump");
    values
}

/// Zones in a role.
fn zones_of(drive: &Arc<dyn ZonedDevice>, role: &str) -> Vec<u64> {
    let zones = dumped(drive, DumpWhat::Zones).into_iter().filter(|zone| zone["role"] == role);
    zones.filter_map(|zone| zone["zone"].as_u64()).collect()
}

fn check(name: &'static str, run: &Run, seed: u64, effort: Effort) {
    let mut report = Report::begin(name);
    let mut checker = Checker::new(seed, None);
    report.workloads += 1;
    if let Err(violation) = checker.check_run(run, effort) {
        panic!("SEED={seed}: {violation}");
    }
    report.end(&checker);
}

#[test]
fn every_operation_in_one_way() {
    let mut report = Report::begin("operations, conventional zones");
    let mut checker = Checker::new(seed(), None);
    let start = ace::start_on(&CONVENTIONAL);
    for op in ace::operations() {
        let syncs = Syncs::ALL[checker.below(4) as usize];
        check_sequence(&mut report, &mut checker, &start, &syncs.weave(&[op]));
    }
    report.end(&checker);
}

#[test]
fn random_operations() {
    let mut report = Report::begin("random operations, conventional zones");
    let seed = seed();
    let mut checker = Checker::new(seed, None);
    for index in 0..count(6) {
        let shape = SHAPES[6 + (index % 2) as usize];
        let percent = checker.below(80);
        check_random(&mut report, seed + index, &mut checker, &shape, percent);
    }
    report.end(&checker);
}

/// The journal leaves its zones and comes back to them, and so do superblocks.
#[test]
fn a_journal_that_goes_round() {
    let create =
        Op::Create { dir: 0, name: 0, kind: FileKind::Regular, perm: 0o644, caller: Caller::ROOT };
    let write = |round: u16| {
        let flags = WriteFlags::empty();
        let offset = u64::from(round % 40) * 700;
        [Op::Write { file: 0, offset, len: 3000, seed: round, flags }, Op::Sync]
    };
    let ops: Vec<Op> = std::iter::once(create).chain((0..400).flat_map(write)).collect();
    let seed = seed();
    for shape in &SHAPES[6..] {
        let start = Start::new(shape, 0, &[]);
        let run = start.run(&ops, None);
        let drive: Arc<dyn ZonedDevice> = Arc::new(end_of(&run.recording).power_on());
        let mut taken = zones_of(&drive, "journal");
        taken.retain(|&zone| zone >= u64::from(shape.spec.conventional_zones));
        assert_eq!(taken, [0; 0], "{}: it is in conventional zones", shape.name);
        let effort = Effort {
            exhaustive: 16,
            samples: 4,
            moments_one_in: 9,
            again_one_in: 8,
            use_one_in: 300,
        };
        check("a journal that goes round", &run, seed, effort);
    }
}

/// A zone of the log takes 64 superblocks; then they go to the other one, and come back.
#[test]
fn superblocks_move_to_the_other_zone() {
    let create = long_batches().remove(0);
    let write = |round: u16| {
        let flags = WriteFlags::empty();
        let write = Op::Write { file: 0, offset: 0, len: 3000, seed: round, flags };
        [write, Op::Sync, Op::Remount]
    };
    let ops: Vec<Op> = (0..6).flat_map(write).collect();
    for before in [60, 124] {
        let remounts = std::iter::repeat_n(Op::Remount, before);
        let before: Vec<Op> = std::iter::once(create.clone()).chain(remounts).collect();
        let run = Start::new(&CONVENTIONAL, 0, &before).run(&ops, None);
        let places = |run: &Run| {
            let drive: Arc<dyn ZonedDevice> = Arc::new(end_of(&run.recording).power_on());
            let found = dumped(&drive, DumpWhat::Superblock).into_iter();
            found.map(|found| found["block"].as_u64()).collect::<Vec<_>>()
        };
        let moved = places(&run).iter().all(|block| block.is_some_and(|block| block < 8));
        assert!(moved, "they are in the other zones: {:?}", places(&run));
        let effort = Effort { samples: 16, again_one_in: 6, ..Effort::EVERYTHING };
        check("superblocks that move", &run, seed(), effort);
    }
}

#[test]
fn a_batch_of_several_records() {
    let run = Start::new(&CONVENTIONAL, 0, &[]).run(&long_batches(), None);
    let effort = Effort { samples: 12, exhaustive: 64, again_one_in: 12, ..Effort::EVERYTHING };
    check("batches of several records", &run, seed(), effort);
}

/// Blocks of what was being written may be there in any place.
#[test]
fn nothing_is_written_over_what_a_power_cut_left() {
    for hole in 0..4 {
        let recorder = Arc::new(Recorder::new(Start::new(&CONVENTIONAL, 20, &[]).image));
        let drive: Arc<dyn ZonedDevice> = recorder.clone();
        let fs = mount(&drive);
        fs.create(&Caller::ROOT, Ino::ROOT, b"before", &PLAIN).expect("create");
        fs.sync().expect("sync");
        drop(fs);
        let before = zones_of(&drive, "journal");
        tear(&*drive, ZoneId::new(before[1] as u32), hole);
        assert_eq!(drives::problems(drive.clone()), Vec::<String>::new(), "it is torn, not lost");
        let fs = mount(&drive);
        fs.create(&Caller::ROOT, Ino::ROOT, b"after", &PLAIN).expect("create");
        fs.sync().expect("sync");
        let now = zones_of(&drive, "journal");
        assert!(before.iter().all(|zone| !now.contains(zone)), "{before:?}, then {now:?}");
        fs.lookup(Ino::ROOT, b"before").expect("it was synced");
        drop(fs);
        let old = zones_of(&drive, "journal-old").len() + zones_of(&drive, "journal-empty").len();
        assert_eq!(old, 2);
        let fs = mount(&drive);
        fs.lookup(Ino::ROOT, b"after").expect("it was synced");
        fs.tick().expect("tick");
        fs.shutdown().expect("unmount");
        assert_eq!(zones_of(&drive, "journal-empty").len(), 2, "it was wiped");
    }
}

#[test]
fn without_its_own_zones_the_journal_is_in_others() {
    let shape = CONVENTIONAL;
    let start = Start::new(&shape, 50, &[]);
    for failure in [ZoneFailure::ReadOnly, ZoneFailure::Offline] {
        let recorder = Arc::new(Recorder::new(start.image.clone()));
        let drive: Arc<dyn ZonedDevice> = recorder.clone();
        let fs = mount(&drive);
        let (taken, free) = (zones_of(&drive, "journal"), zones_of(&drive, "journal-empty"));
        assert_eq!((taken.len(), free.len()), (2, 2));
        // One copy stays, and all that it could go on in fails.
        for zone in free.into_iter().chain([taken[0]]) {
            recorder.fail_zone(ZoneId::new(zone as u32), failure).expect("it fails once");
        }
        let file = fs.create(&Caller::ROOT, Ino::ROOT, b"file", &PLAIN).expect("create").ino;
        for round in 0..40 {
            let data = content(round, 0, 5000);
            fs.write(file, 0, &data, WriteFlags::empty()).expect("write");
            fs.sync().expect("sync");
            fs.tick().expect("tick");
        }
        let zones = dumped(&drive, DumpWhat::Manifest)[0]["journal_zones"].to_string();
        drop(fs);
        let fs = mount(&drive);
        let mut held = vec![0; 5000];
        fs.read(file, 0, &mut held).expect("read");
        assert!(held == content(39, 0, 5000), "journal in {zones}");
        fs.shutdown().expect("unmount");
        assert_eq!(drives::problems(drive), Vec::<String>::new(), "{failure:?}");
    }
}
