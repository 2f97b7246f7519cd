//! Data in conventional zones, of which a power cut may leave any blocks (D4). Metadata is never
//! there.

use std::sync::Arc;

use serde_json::Value;
use zonal::layer::record::{Recorder, Step};
use zonal::{ZoneFailure, ZoneId, ZoneKind, ZonedDevice};
use zonal_fs::furrow::{DumpWhat, Furrow, MountOptions, dump};
use zonal_fs::vfs::{Caller, FileKind, FileSystem, Ino, WriteFlags};

use crate::check::{Checker, Effort};
use crate::ops::drives::{self, CONVENTIONAL, SHAPES, StepClock};
use crate::ops::{Op, content};
use crate::planted::long_batches;
use crate::run::{Run, Start, end_of};
use crate::zones::PLAIN;
use crate::{Report, check_random, count, seed};

fn mount(drive: &Arc<dyn ZonedDevice>) -> Furrow {
    let (clock, options) = (Arc::new(StepClock::default()), MountOptions::default());
    Furrow::mount(drive.clone(), clock, options).expect("mount")
}

fn dumped(drive: &Arc<dyn ZonedDevice>, what: DumpWhat) -> Vec<Value> {
    let mut values = Vec::new();
    dump(drive.clone(), what, &mut |value| values.push(value)).expect("dump");
    values
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
fn conventional_random_operations_survive_cuts() {
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

/// Zones that hold metadata.
fn metadata_zones(drive: &Arc<dyn ZonedDevice>) -> Vec<u64> {
    let zones = dumped(drive, DumpWhat::Zones).into_iter();
    let is_metadata =
        |zone: &Value| ["superblock", "metadata"].iter().any(|&is| zone["role"] == is);
    zones.filter(is_metadata).filter_map(|zone| zone["zone"].as_u64()).collect()
}

/// The journal leaves its zones for others many times.
#[test]
fn conventional_journal_that_wraps_survives_cuts() {
    let create =
        Op::Create { dir: 0, name: 0, kind: FileKind::Regular, perm: 0o644, caller: Caller::ROOT };
    let write = |round: u16| {
        let flags = WriteFlags::empty();
        let offset = u64::from(round % 40) * 700;
        [Op::Write { file: 0, offset, len: 3000, seed: round, flags }, Op::Sync]
    };
    let ops: Vec<Op> = std::iter::once(create).chain((0..400).flat_map(write)).collect();
    let seed = seed();
    for shape in &SHAPES[6..8] {
        let start = Start::new(shape, 0, &[]);
        let run = start.run(&ops, None);
        let drive: Arc<dyn ZonedDevice> = Arc::new(end_of(&run.recording).power_on());
        let conventional = shape.spec.conventional_zones;
        let is_data =
            |step: &&Step| matches!(step, Step::Store { zone, .. } if conventional.contains(*zone));
        let data = run.recording.steps.iter().filter(is_data).count();
        assert!(data > 0, "{}: conventional zones take data", shape.name);
        let metadata = metadata_zones(&drive);
        assert!(metadata.len() >= 8, "{}: superblocks, journal, table: {metadata:?}", shape.name);
        let kind = |zone: u64| drive.geometry().kind(ZoneId::new(u32::try_from(zone).unwrap()));
        let is_sequential = metadata.iter().all(|&zone| kind(zone) == ZoneKind::SequentialRequired);
        assert!(is_sequential, "{}: metadata is in sequential zones: {metadata:?}", shape.name);
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
fn conventional_superblock_switch_survives_cuts() {
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
fn conventional_batch_of_several_records_survives_cuts() {
    let run = Start::new(&CONVENTIONAL, 0, &[]).run(&long_batches(), None);
    let effort = Effort { samples: 12, exhaustive: 64, again_one_in: 12, ..Effort::EVERYTHING };
    check("batches of several records", &run, seed(), effort);
}

#[test]
fn conventional_zones_failing_in_turn_leave_drive_working() {
    let shape = CONVENTIONAL;
    let start = Start::new(&shape, 50, &[]);
    for failure in [ZoneFailure::ReadOnly, ZoneFailure::Offline] {
        let recorder = Arc::new(Recorder::new(start.image.clone()));
        let drive: Arc<dyn ZonedDevice> = recorder.clone();
        let fs = mount(&drive);
        fs.unlink(Ino::ROOT, b"ballast").expect("what would be lost is given up");
        fs.sync().expect("sync");
        let file = fs.create(&Caller::ROOT, Ino::ROOT, b"file", &PLAIN).expect("create").ino;
        for round in 0..40 {
            if u32::from(round) < shape.spec.conventional_zones.zone_count() {
                let zone = ZoneId::new(round.into());
                recorder.fail_zone(zone, failure).expect("it fails once");
            }
            let data = content(round, 0, 8192);
            fs.write(file, 0, &data, WriteFlags::empty()).expect("write");
            fs.sync().expect("sync");
            fs.tick().expect("tick");
        }
        drop(fs);
        let fs = mount(&drive);
        let mut held = vec![0; 8192];
        fs.read(file, 0, &mut held).expect("read");
        assert!(held == content(39, 0, 8192), "{failure:?}");
        fs.shutdown().expect("unmount");
        assert_eq!(drives::problems(drive), Vec::<String>::new(), "{failure:?}");
    }
}
