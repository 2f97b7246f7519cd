//! A drive that is nearly full refuses some calls in a row, and then none any more, as with a loose
//! cable. No zone is lost: a sync succeeds, every block can be replaced, and all room is there
//! again when everything is deleted.

use std::sync::Arc;

use zonal::image::ImageDrive;
use zonal::layer::fault::{Fault, FaultKind, FaultOp, FaultPlan, FaultRule};
use zonal::{GeometrySpec, LbaCount};
use zonal_fs::furrow::{Furrow, MountOptions};
use zonal_fs::tree::{Snapshot, snapshot};
use zonal_fs::vfs::{Caller, FileSystem, Ino, WriteFlags};

use crate::check::{empty, truncate_rest};
use crate::ops::drives::{self, SMALL, Shape, StepClock};
use crate::run::Start;
use crate::zones::PLAIN;
use crate::{count, random_ops};

/// Which calls a drive refuses, and how many in a row: more than it has free zones, if possible.
const REFUSALS: [(FaultOp, u64); 3] =
    [(FaultOp::Write, 20), (FaultOp::Manage, 12), (FaultOp::Any, 20)];

/// Bursts begin at each `STEP`th call.
const STEP: usize = 23;

fn shape(active: u32) -> Shape {
    let spec = GeometrySpec {
        block_count: LbaCount::new(28 * 64),
        max_append: LbaCount::new(32),
        max_open: Some(active),
        max_active: Some(active),
        ..SMALL.spec
    };
    Shape { name: "28 zones of 64 blocks", spec }
}

/// Replaces blocks and commits, and goes on after errors.
fn work(fs: &Furrow, file: Ino, clock: &StepClock) {
    for round in 0..120 {
        clock.set(1_000_000_000 * round);
        for at in 0..4 {
            let data = [u8::try_from(round).expect("small") + 1; 8192];
            let offset = (round * 53 + at * 301) % 700 * 4096;
            let flags = if at == 0 { WriteFlags::DIRECT } else { WriteFlags::empty() };
            // It may fail: the drive does.
            let _ = fs.write(file, offset, &data, flags);
        }
        let _ = fs.sync();
        let _ = fs.tick();
    }
}

/// Works through a burst, if there are enough calls for one, and then as on a drive that has never
/// failed.
fn live_through(start: &Start, rule: FaultRule, what: &str) -> bool {
    let (from, refusals) = (rule.from, rule.times);
    let plan = FaultPlan { rules: vec![rule], seed: from };
    let drive: Arc<Fault<ImageDrive>> = Arc::new(Fault::new(start.image.power_on(), plan));
    let clock = start.clock();
    let Ok(fs) = Furrow::mount(drive.clone(), clock.clone(), MountOptions::default()) else {
        return true;
    };
    let Ok(file) = fs.lookup(Ino::ROOT, b"ballast") else { return true };
    let room = fs.statfs().expect("it needs no drive").blocks;
    work(&fs, file.ino, &clock);
    let was_whole = Some(drive.fired()) == refusals;
    drive.disarm();
    let must = |step: &str, outcome: zonal_fs::vfs::Result<()>| {
        outcome.unwrap_or_else(|error| panic!("{what}: {step}: {error}"));
    };
    must("sync", fs.sync());
    for at in (0..file.size / 4096).step_by(5) {
        let written = fs.write(file.ino, at * 4096, &[99; 4096], WriteFlags::empty());
        must("replacing a block", written.map(drop));
    }
    must("sync of that", fs.sync());
    must("emptying", empty(&fs));
    must("truncating", truncate_rest(&fs));
    must("sync when it is empty", fs.sync());
    must("tick", fs.tick());
    let now = fs.statfs().expect("it needs no drive").blocks;
    assert_eq!(now, room, "{what}: blocks in all");
    let new = fs.create(&Caller::ROOT, Ino::ROOT, b"new", &PLAIN).map(drop);
    must("creating", new);
    must("unmount", fs.shutdown());
    drop(fs);
    assert_eq!(drives::problems(drive), Vec::<String>::new(), "{what}");
    was_whole
}

#[test]
fn full_drive_refusing_calls_loses_no_zone() {
    for active in [4, 14] {
        let shape = shape(active);
        let start = Start::new(&shape, shape.ballast_max() * 97 / 100, &[]);
        for (op, refusals) in REFUSALS {
            let mut bursts = 0;
            for from in (1..).step_by(STEP / usize::try_from(count(1)).expect("small").min(STEP)) {
                let what = format!("{active} active, {op:?} from call {from}");
                let rule = FaultRule::new(op, FaultKind::Medium);
                let rule = FaultRule { from, times: Some(refusals), ..rule };
                if !live_through(&start, rule, &what) {
                    break;
                }
                bursts += 1;
            }
            println!("{active} active, {op:?}: {bursts} bursts");
            assert!(bursts > 1, "{active} active, {op:?}: {bursts}");
        }
    }
}

/// Names and contents, as a reader finds them.
fn seen(drive: Arc<Fault<ImageDrive>>, clock: &Arc<StepClock>) -> Snapshot {
    let fs = Furrow::mount(drive, clock.clone(), MountOptions::default());
    snapshot(&fs.expect("the drive is well")).expect("it can be read")
}

#[test]
fn mount_with_refused_reads_rebuilds_nothing() {
    let start = Start::new(&SMALL, 200, &random_ops(7, 60));
    let healthy = Arc::new(Fault::new(start.image.power_on(), FaultPlan::default()));
    let whole = seen(healthy, &start.clock());
    let (mut mounted, mut refused) = (0, 0);
    for times in [2, 4, 9] {
        for from in 1..80 {
            let rule = FaultRule::new(FaultOp::Read, FaultKind::Medium);
            let rule = FaultRule { from, times: Some(times), ..rule };
            let plan = FaultPlan { rules: vec![rule], seed: 0 };
            let drive = Arc::new(Fault::new(start.image.power_on(), plan));
            let clock = start.clock();
            match Furrow::mount(drive.clone(), clock.clone(), MountOptions::default()) {
                Ok(fs) => {
                    mounted += 1;
                    let _ = fs.tick();
                    drive.disarm();
                    fs.shutdown().expect("the drive is well");
                }
                Err(_) => refused += 1,
            }
            drive.disarm();
            let now = seen(drive, &clock);
            let difference = now.first_difference(&whole);
            assert_eq!(difference, None, "{times} reads from {from}");
        }
    }
    assert!(mounted > 20 && refused > 20, "{mounted} mounted, {refused} refused");
}
