//! The n-th I/O fails, n = 1, 2, 3 … until none is left: each operation is done or not done, what
//! was promised stays, nothing panics, and the drive is clean when it has recovered.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use zonal::image::ImageDrive;
use zonal::layer::fault::{Fault, FaultKind, FaultOp, FaultPlan, FaultRule};
use zonal_fs::furrow::{Furrow, MountOptions};
use zonal_fs::tree::{Snapshot, Tree, snapshot};
use zonal_fs::vfs::{Caller, FileKind, FileSystem, RenameFlags, SyncKind, WriteFlags, XattrMode};

use crate::ops::Op;
use crate::ops::drives::{self, METADATA, SHAPES, SMALL, StepClock};
use crate::ops::session::Session;
use crate::run::Start;

type Drive = Arc<Fault<ImageDrive>>;

/// A little of everything, with commits and a clean remount, then `writes` large writes: enough of
/// them start reclaim on a full drive.
fn workload(writes: u64) -> Vec<Op> {
    let create = |name, kind| Op::Create { dir: 0, name, kind, perm: 0o644, caller: Caller::ROOT };
    let write = |file, offset, len, flags| Op::Write { file, offset, len, seed: 9, flags };
    let plain = WriteFlags::empty();
    let mut ops = vec![
        create(0, FileKind::Regular),
        write(0, 0, 30_000, plain),
        Op::Sync,
        create(1, FileKind::Directory),
        Op::Rename { source: 0, dir: 1, name: 2, flags: RenameFlags::empty() },
        write(0, 5000, 9000, WriteFlags::DURABLE),
        Op::SetXattr { entry: 1, name: 0, len: 100, seed: 1, mode: XattrMode::Any },
        Op::Read { file: 0, offset: 0, len: 40_000 },
        Op::Remount,
        Op::Read { file: 0, offset: 100, len: 9000 },
        Op::CopyRange { source: 0, from: 0, target: 0, to: 40_960, len: 8192 },
        Op::Truncate { file: 0, size: 10_000 },
        Op::Hold { file: 0 },
        create(3, FileKind::Regular),
        write(0, 0, 65_536, WriteFlags::DIRECT),
        Op::Fsync { file: 0, kind: SyncKind::Data },
        Op::Unlink { entry: 1 },
        write(0, 0, 12_000, plain),
        Op::Tick,
    ];
    ops.extend((0..writes).map(|at| write(0, at * 7 % 60 * 24_576, 20_000, WriteFlags::DIRECT)));
    ops.extend([Op::Release { held: 0 }, Op::Sync, write(0, 3000, 8000, plain)]);
    ops
}

/// Furrow on a drive that fails, with the states it may go back to.
struct Trial {
    drive: Drive,
    clock: Arc<StepClock>,
    now_ns: u64,
    furrow: Session<Furrow>,
    tree: Session<Tree>,
    /// The states between operations, from the last promise on.
    history: Vec<Tree>,
}

fn mount(drive: &Drive, clock: &Arc<StepClock>) -> zonal_fs::vfs::Result<Session<Furrow>> {
    let options = MountOptions::default();
    Furrow::mount(drives::of(drive.clone()), clock.clone(), options)
        .map(|fs| Session::new(Arc::new(fs)))
}

/// A fault may hit the look at the file system, too: it fires once, so a second look succeeds.
fn look(fs: &Furrow, drive: &Drive) -> Snapshot {
    snapshot(fs).unwrap_or_else(|_| {
        drive.disarm();
        snapshot(fs).expect("without faults everything can be read")
    })
}

impl Trial {
    /// Does the workload with one plan of faults. `false`: no fault was left to be made.
    fn run(start: &Start, ops: &[Op], plan: FaultPlan) -> bool {
        let drive: Drive = Arc::new(Fault::new(start.image.power_on(), plan));
        let clock = start.clock();
        clock.set(start.now_ns);
        // A mount that fails changes nothing that matters: the next one succeeds.
        let furrow = mount(&drive, &clock).or_else(|_| {
            drive.disarm();
            mount(&drive, &clock)
        });
        let furrow = furrow.expect("a healthy drive can be mounted");
        let tree = Session::new(Arc::new(start.tree()));
        let mut trial =
            Self { drive, clock, now_ns: start.now_ns, furrow, tree, history: Vec::new() };
        trial.promise();
        for op in ops {
            trial.perform(op);
        }
        trial.end();
        trial.drive.fired() > 0
    }

    fn perform(&mut self, op: &Op) {
        self.now_ns += StepClock::pause_ns(op);
        self.clock.set(self.now_ns);
        let names = self.tree.names();
        let before = self.tree.with(Arc::new((*self.tree.fs).clone()));
        let Some(reply) = self.furrow.reply(op, &names) else { return };
        let expected = self.tree.reply(op, &names).expect("it exists in both");
        if *op == Op::Remount {
            self.remount();
            return;
        }
        if reply != expected {
            assert!(reply.is_err(), "{op:?}: {reply:?}, the reference: {expected:?}");
            self.settle(op, before, &reply);
        }
        if op.is_durable() && reply.is_ok() {
            self.promise();
        } else {
            self.remember();
        }
    }

    /// An operation failed: it is done or not done, nothing between.
    fn settle(&mut self, op: &Op, before: Session<Tree>, reply: &Result<String, String>) {
        let live = look(&self.furrow.fs, &self.drive);
        let after = snapshot(&*self.tree.fs).expect("the reference can be read");
        if live == after {
            return;
        }
        let undone = snapshot(&*before.fs).expect("the reference can be read");
        if let Some(difference) = live.first_difference(&undone) {
            let done = live.first_difference(&after);
            panic!("{op:?}: {reply:?}: neither undone: {difference}; nor done: {done:?}");
        }
        self.tree = before;
    }

    fn promise(&mut self) {
        self.history.clear();
        self.remember();
    }

    fn remember(&mut self) {
        self.history.push((*self.tree.fs).clone());
    }

    fn remount(&mut self) {
        self.remember();
        let clean = self.furrow.fs.shutdown();
        let furrow = mount(&self.drive, &self.clock).or_else(|_| {
            self.drive.disarm();
            mount(&self.drive, &self.clock)
        });
        self.furrow = furrow.expect("a healthy drive can be mounted");
        if clean.is_ok() {
            self.promise();
        }
        self.find_in_history("after a remount");
        self.promise();
    }

    /// The drive shows one of the states from the last promise on; the reference goes back to it.
    fn find_in_history(&mut self, when: &str) {
        let live = look(&self.furrow.fs, &self.drive);
        let mut differences = Vec::new();
        for tree in self.history.iter().rev() {
            let state = snapshot(tree).expect("the reference can be read");
            match live.first_difference(&state) {
                None => {
                    self.tree = Session::new(Arc::new(tree.clone()));
                    return;
                }
                Some(difference) => differences.push(difference),
            }
        }
        panic!("{when}: none of the states since the last promise: {differences:#?}");
    }

    /// The program dies; the drive is well again.
    fn end(&mut self) {
        let fired = self.drive.fired();
        self.drive.disarm();
        self.furrow = mount(&self.drive, &self.clock).expect("a healthy drive can be mounted");
        self.find_in_history("at the end");
        let problems = drives::problems(drives::of(self.drive.clone()));
        assert!(problems.is_empty(), "after {fired} faults: {problems:#?}");
        self.furrow.fs.shutdown().expect("a healthy drive unmounts cleanly");
    }
}

/// Each n, or every `step`th, for one kind of fault. Returns how many places there were.
fn every_nth(start: &Start, ops: &[Op], (op, kind): (FaultOp, FaultKind), step: usize) -> u64 {
    for nth in (1..100_000).step_by(step) {
        let rule = FaultRule::new(op, kind).at_nth(nth);
        let plan = FaultPlan { rules: vec![rule], seed: nth };
        let text = plan.to_string();
        let outcome = catch_unwind(AssertUnwindSafe(|| Trial::run(start, ops, plan)));
        let fired = outcome.unwrap_or_else(|panic| {
            println!("with --fault '{text}':");
            resume_unwind(panic)
        });
        if !fired {
            return nth - 1;
        }
    }
    panic!("the workload has no end");
}

const FAULTS: [(FaultOp, FaultKind); 9] = [
    (FaultOp::Read, FaultKind::Medium),
    (FaultOp::Write, FaultKind::Medium),
    (FaultOp::Write, FaultKind::Torn),
    (FaultOp::Write, FaultKind::Late),
    (FaultOp::Flush, FaultKind::Medium),
    (FaultOp::Flush, FaultKind::Late),
    (FaultOp::Manage, FaultKind::Medium),
    (FaultOp::Manage, FaultKind::Late),
    (FaultOp::Write, FaultKind::ActiveLimit),
];

fn try_all(name: &str, start: &Start, ops: &[Op], step: usize) -> u64 {
    let mut manage = 0;
    for fault in FAULTS {
        // There are many more reads: the content is looked at after each trial.
        let step = if fault.0 == FaultOp::Read && step > 1 { 10 * step } else { step };
        let count = every_nth(start, ops, fault, step);
        println!("{name}: {:?} fails ({:?}): {count} places", fault.0, fault.1);
        assert!(count > 0 || fault.0 == FaultOp::Manage, "the workload does some of it");
        manage += if fault.0 == FaultOp::Manage { count } else { 0 };
    }
    manage
}

#[test]
fn io_failing_at_nth_loses_nothing() {
    try_all("an empty drive", &Start::new(&SMALL, 0, &[]), &workload(4), 1);
    let manage = try_all("four open zones", &Start::new(&SHAPES[4], 0, &[]), &workload(4), 1);
    assert!(manage > 0, "zones are finished and reset");
}

#[test]
fn io_failing_at_nth_with_conventional_data_is_safe() {
    for shape in &SHAPES[6..8] {
        try_all(shape.name, &Start::new(shape, 0, &[]), &workload(4), 2);
    }
}

#[test]
fn io_failing_at_nth_beside_metadata_drive_is_safe() {
    try_all(METADATA.name, &Start::new(&METADATA, 0, &[]), &workload(4), 2);
}

#[test]
fn io_failing_at_some_nth_during_reclaim_loses_nothing() {
    let start = Start::new(&SMALL, SMALL.ballast_max() + 100, &[]);
    let manage = try_all("a full drive", &start, &workload(60), 29);
    assert!(manage > 0, "zones are reset");
}

#[test]
#[ignore = "takes minutes; run by cargo xtask test --soak"]
fn io_failing_at_nth_during_reclaim_loses_nothing() {
    let start = Start::new(&SMALL, SMALL.ballast_max() + 100, &[]);
    try_all("a full drive", &start, &workload(60), 1);
}

#[test]
fn io_failing_from_nth_on_loses_nothing() {
    let start = Start::new(&SMALL, 0, &[]);
    let ops = workload(4);
    for op in [FaultOp::Write, FaultOp::Flush, FaultOp::Manage, FaultOp::Read] {
        for nth in (1..).step_by(3) {
            let rule = FaultRule { from: nth, ..FaultRule::new(op, FaultKind::Medium) };
            if !Trial::run(&start, &ops, FaultPlan { rules: vec![rule], seed: nth }) {
                break;
            }
        }
    }
}
