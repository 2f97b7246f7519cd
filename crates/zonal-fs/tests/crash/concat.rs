//! Furrow over two drives that are joined, of which one fails while the other goes on.

use std::sync::Arc;

use zonal::image::{Image, ImageDrive};
use zonal::layer::concat::Concat;
use zonal::layer::fault::{Fault, FaultKind, FaultOp, FaultPlan, FaultRule};
use zonal::{Clock, Geometry, ZonedDevice};
use zonal_fs::furrow::sample::shape;
use zonal_fs::furrow::{Access, Furrow, MountOptions};
use zonal_fs::tree::{Tree, snapshot};
use zonal_fs::vfs::FileSystem;

use crate::ops::Op;
use crate::ops::drives::{self, StepClock};
use crate::ops::session::{Reply, Session};
use crate::run::parts;
use crate::{count, random_ops, seed};

/// The drives of a concat, in order.
type Members = [Arc<Fault<Arc<ImageDrive>>>; 2];

/// The drives below, as they are when the faulty ones get new cables.
type Drives = [Arc<ImageDrive>; 2];

fn empty_drives() -> Drives {
    let geometry = Geometry::new(shape(14, 64)).expect("a small drive");
    std::array::from_fn(|_| Arc::new(Image::empty(&geometry).power_on()))
}

fn faulty(drives: &Drives, failing: usize, plan: &FaultPlan) -> Members {
    std::array::from_fn(|at| {
        let plan = if at == failing { plan.clone() } else { FaultPlan::default() };
        Arc::new(Fault::new(Arc::clone(&drives[at]), plan))
    })
}

fn join<D: ZonedDevice + 'static>(members: &[Arc<D>; 2]) -> Arc<dyn ZonedDevice> {
    Arc::new(Concat::new(members.to_vec()).expect("they are alike"))
}

fn mount(
    drive: &Arc<dyn ZonedDevice>,
    clock: &Arc<StepClock>,
    access: Access,
) -> zonal_fs::vfs::Result<Furrow> {
    let options = MountOptions { access, ..MountOptions::default() };
    Furrow::mount(Arc::clone(drive), Arc::clone(clock) as Arc<_>, options)
}

/// The states since the last promise; the newest is the last.
struct History(Vec<Tree>);

impl History {
    fn assert_shown_by(&self, fs: &Furrow) {
        let live = snapshot(fs).expect("what is there can be read");
        let states = self.0.iter().rev().map(|tree| snapshot(tree).expect("it can be read"));
        let differences: Vec<_> = states.map_while(|state| live.first_difference(&state)).collect();
        assert!(
            differences.len() < self.0.len(),
            "none of the states since the last promise: {differences:#?}"
        );
    }
}

/// Two drives with a file that leaves room on both, and the reference.
fn start(clock: &Arc<StepClock>) -> (Drives, Tree) {
    let (drives, tree) = (empty_drives(), Tree::new(Arc::clone(clock) as Arc<_>));
    let drive = join(&drives);
    drives::format(Arc::clone(&drive), &**clock);
    let furrow =
        mount(&drive, clock, Access::ReadWrite).expect("what was just formatted can be mounted");
    let free = furrow.statfs().expect("it tells its size").blocks_free;
    drives::fill(&furrow, free / 2).expect("the ballast fits");
    drives::fill(&tree, free / 2).expect("the reference has room");
    furrow.shutdown().expect("a healthy drive unmounts cleanly");
    (drives, tree)
}

/// The copy that was done, where a copy was cut short.
fn part_of_copy(op: &Op, reply: &Reply) -> Option<Op> {
    let Op::CopyRange { source, from, target, to, .. } = *op else { return None };
    let len = reply.as_ref().ok()?.parse().ok()?;
    Some(Op::CopyRange { source, from, target, to, len })
}

/// Does operations until one fails.
fn perform(ops: &[Op], furrow: Furrow, tree: Tree, clock: &Arc<StepClock>) -> History {
    let mut furrow = Session::new(Arc::new(furrow));
    let mut tree = Session::new(Arc::new(tree));
    let mut history = History(vec![(*tree.fs).clone()]);
    let mut now_ns = clock.monotonic_ns();
    let ops = ops.iter().filter(|op| **op != Op::Remount);
    for op in &ops.flat_map(parts).collect::<Vec<_>>() {
        now_ns += StepClock::pause_ns(op);
        clock.set(now_ns);
        let names = tree.names();
        let Some(reply) = furrow.reply(op, &names) else { continue };
        let before = (*tree.fs).clone();
        let expected = tree.reply(op, &names).expect("it exists in both");
        if reply != expected {
            // It is done or not done, or a part of a copy is.
            if let Some(part) = part_of_copy(op, &reply) {
                tree = tree.with(Arc::new(before.clone()));
                assert_eq!(tree.reply(&part, &names), Some(reply), "{op:?}");
            } else {
                assert!(reply.is_err(), "{op:?}: {reply:?}, the reference: {expected:?}");
            }
            history.0.extend([before, (*tree.fs).clone()]);
            break;
        }
        if op.is_durable() && reply.is_ok() {
            history.0.clear();
        }
        history.0.push((*tree.fs).clone());
    }
    // No unmount: the program ends with the drive.
    history
}

/// A workload on two drives of which one failed.
struct Run {
    drives: Drives,
    members: Members,
    history: History,
    clock: Arc<StepClock>,
}

impl Run {
    /// Does operations while a member fails by `rule`; `None` if they ended before the fault.
    fn new(failing: usize, rule: FaultRule, seed: u64) -> Option<Self> {
        let clock = Arc::new(StepClock::default());
        let (drives, tree) = start(&clock);
        let plan = FaultPlan { rules: vec![rule], seed };
        let members = faulty(&drives, failing, &plan);
        let history = match mount(&join(&members), &clock, Access::ReadWrite) {
            Ok(furrow) => perform(&random_ops(seed, 100), furrow, tree, &clock),
            Err(_) => History(vec![tree]),
        };
        let fired = members[failing].fired() > 0;
        fired.then_some(Self { drives, members, history, clock })
    }

    /// A mount shows one of the states that may be there.
    fn check_states(&self, drive: &Arc<dyn ZonedDevice>, access: Access) {
        let furrow = mount(drive, &self.clock, access).expect("all that was promised can be read");
        self.history.assert_shown_by(&furrow);
    }
}

/// Random workloads with a member that fails at or from the n-th operation. Returns how many
/// failed.
fn run_all(rounds: u64, rule: impl Fn(u64) -> FaultRule, check: impl Fn(&Run)) -> u64 {
    let seed = seed();
    let mut failed = 0;
    for round in 0..rounds {
        let failing = usize::from(!round.is_multiple_of(3));
        let nth = 1 + (seed.wrapping_add(round * 7919)) % 60;
        println!("round {round}: member {failing} fails at operation {nth}");
        let Some(run) = Run::new(failing, rule(nth), seed ^ round) else { continue };
        check(&run);
        failed += 1;
    }
    failed
}

#[test]
fn concat_member_losing_power_loses_nothing_promised() {
    let rounds = count(120);
    let rule = |nth| FaultRule::new(FaultOp::Any, FaultKind::PowerCut).at_nth(nth);
    // Afterwards both have power.
    let failed = run_all(rounds, rule, |run| {
        let drive = join(&run.drives);
        run.check_states(&drive, Access::ReadWrite);
        let problems = drives::problems(drive);
        assert!(problems.is_empty(), "{problems:#?}");
    });
    assert!(failed * 2 > rounds, "{failed} of {rounds} members lost power");
}

/// Each write to the member makes its zone ReadOnly: old blocks stay readable, and writes go on to
/// the other member.
#[test]
fn concat_member_turning_read_only_loses_nothing_promised() {
    let rounds = count(60);
    let rule = |nth| FaultRule { from: nth, ..FaultRule::new(FaultOp::Write, FaultKind::ReadOnly) };
    let failed = run_all(rounds, rule, |run| {
        run.check_states(&join(&run.members), Access::ReadOnly);
    });
    assert!(failed * 4 > rounds, "{failed} of {rounds} members failed");
}
