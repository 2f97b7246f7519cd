//! Furrow over two drives, joined or one for metadata, of which one fails while the other goes on.

use std::sync::Arc;

use zonal::image::{Image, ImageDrive};
use zonal::layer::concat::Concat;
use zonal::layer::fault::{Fault, FaultKind, FaultOp, FaultPlan, FaultRule};
use zonal::{Clock, Geometry, ZonedDevice};
use zonal_fs::furrow::sample::shape;
use zonal_fs::furrow::{Access, Drives, Furrow, MountOptions};
use zonal_fs::tree::{Tree, snapshot};
use zonal_fs::vfs::{FileSystem, Result};

use crate::ops::Op;
use crate::ops::drives::{self, StepClock};
use crate::ops::session::{Reply, Session};
use crate::run::parts;
use crate::{count, random_ops, seed};

/// How a file system uses two drives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    /// Joined as one.
    Joined,
    /// The second one for metadata.
    Metadata,
}

impl Use {
    /// Zones of each drive.
    const fn zones(self) -> [u64; 2] {
        match self {
            Self::Joined => [14, 14],
            Self::Metadata => [24, 10],
        }
    }

    fn drives<D: ZonedDevice + 'static>(self, [first, second]: &[Arc<D>; 2]) -> Drives {
        let (first, second) = (Arc::clone(first), Arc::clone(second));
        match self {
            Self::Joined => Arc::new(Concat::new(vec![first, second]).expect("alike")).into(),
            Self::Metadata => Drives::with_metadata(first, second).expect("alike"),
        }
    }
}

/// The drives of a concat, in order.
type Members = [Arc<Fault<Arc<ImageDrive>>>; 2];

/// The drives below, as they are when the faulty ones get new cables.
type Images = [Arc<ImageDrive>; 2];

fn empty_drives(used: Use) -> Images {
    used.zones().map(|zones| {
        let geometry = Geometry::new(shape(zones, 64)).expect("a small drive");
        Arc::new(Image::empty(&geometry).power_on())
    })
}

fn faulty(drives: &Images, failing: usize, plan: &FaultPlan) -> Members {
    std::array::from_fn(|at| {
        let plan = if at == failing { plan.clone() } else { FaultPlan::default() };
        Arc::new(Fault::new(Arc::clone(&drives[at]), plan))
    })
}

fn mount(drives: Drives, clock: &Arc<StepClock>, options: MountOptions) -> Result<Furrow> {
    Furrow::mount(drives, Arc::clone(clock) as Arc<_>, options)
}

/// The options of a workload: a third of them spare the head of a disk.
fn options(seed: u64) -> MountOptions {
    MountOptions { rotational: Some(seed.is_multiple_of(3)), ..MountOptions::default() }
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
fn start(used: Use, clock: &Arc<StepClock>) -> (Images, Tree) {
    let (images, tree) = (empty_drives(used), Tree::new(Arc::clone(clock) as Arc<_>));
    drives::format(used.drives(&images), &**clock);
    let furrow = mount(used.drives(&images), clock, options(1))
        .expect("what was just formatted can be mounted");
    let free = furrow.statfs().expect("it tells its size").blocks_free;
    drives::fill(&furrow, free / 2).expect("the ballast fits");
    drives::fill(&tree, free / 2).expect("the reference has room");
    furrow.shutdown().expect("a healthy drive unmounts cleanly");
    (images, tree)
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
    used: Use,
    images: Images,
    members: Members,
    history: History,
    clock: Arc<StepClock>,
}

impl Run {
    /// Does operations while a member fails by `rule`; `None` if they ended before the fault.
    fn new(used: Use, failing: usize, rule: FaultRule, seed: u64) -> Option<Self> {
        let clock = Arc::new(StepClock::default());
        let (images, tree) = start(used, &clock);
        let plan = FaultPlan { rules: vec![rule], seed };
        let members = faulty(&images, failing, &plan);
        let history = match mount(used.drives(&members), &clock, options(seed)) {
            Ok(furrow) => perform(&random_ops(seed, 100), furrow, tree, &clock),
            Err(_) => History(vec![tree]),
        };
        let fired = members[failing].fired() > 0;
        fired.then_some(Self { used, images, members, history, clock })
    }

    /// A mount shows one of the states that may be there.
    fn check_states(&self, drives: Drives, access: Access) {
        let options = MountOptions { access, ..MountOptions::default() };
        let furrow =
            mount(drives, &self.clock, options).expect("all that was promised can be read");
        self.history.assert_shown_by(&furrow);
    }
}

/// Random workloads with a member that fails at or from the n-th operation. Returns how many
/// failed.
fn run_all(used: Use, rounds: u64, rule: impl Fn(u64) -> FaultRule, check: impl Fn(&Run)) -> u64 {
    let seed = seed();
    let mut failed = 0;
    for round in 0..rounds {
        let failing = usize::from(!round.is_multiple_of(3));
        let nth = 1 + (seed.wrapping_add(round * 7919)) % 40;
        println!("round {round}: {used:?}, member {failing} fails at operation {nth}");
        let Some(run) = Run::new(used, failing, rule(nth), seed ^ round) else { continue };
        check(&run);
        failed += 1;
    }
    failed
}

fn power_cuts(used: Use) {
    let rounds = count(120);
    let rule = |nth| FaultRule::new(FaultOp::Any, FaultKind::PowerCut).at_nth(nth);
    // Afterwards both have power.
    let failed = run_all(used, rounds, rule, |run| {
        run.check_states(used.drives(&run.images), Access::ReadWrite);
        let problems = drives::problems(used.drives(&run.images));
        assert!(problems.is_empty(), "{problems:#?}");
    });
    assert!(failed * 2 > rounds, "{failed} of {rounds} members lost power");
}

#[test]
fn concat_member_losing_power_loses_nothing_promised() {
    power_cuts(Use::Joined);
}

#[test]
fn metadata_drive_losing_power_loses_nothing_promised() {
    power_cuts(Use::Metadata);
}

/// Each write to the member makes its zone ReadOnly: old blocks stay readable, and writes go on to
/// the other member.
fn read_only_zones(used: Use) {
    let rounds = count(60);
    let rule = |nth| FaultRule { from: nth, ..FaultRule::new(FaultOp::Write, FaultKind::ReadOnly) };
    let failed = run_all(used, rounds, rule, |run| {
        run.check_states(run.used.drives(&run.members), Access::ReadOnly);
    });
    assert!(failed * 12 > rounds, "{failed} of {rounds} members failed");
}

#[test]
fn concat_member_turning_read_only_loses_nothing_promised() {
    read_only_zones(Use::Joined);
}

#[test]
fn metadata_drive_turning_read_only_loses_nothing_promised() {
    read_only_zones(Use::Metadata);
}

/// The data drive alone shows all that was promised: of a mount that does not let its copies trail,
/// at any time, otherwise after an unmount.
#[test]
fn data_drive_without_metadata_drive_shows_what_was_promised() {
    let seed = seed();
    for round in 0..count(40) {
        let (used, seed) = (Use::Metadata, seed ^ round);
        println!("round {round}: seed {seed}");
        let clock = Arc::new(StepClock::default());
        let (images, tree) = start(used, &clock);
        let options = options(seed);
        let fs = mount(used.drives(&images), &clock, options).expect("both are there");
        let mut history = perform(&random_ops(seed, 60), fs, tree, &clock);
        if options.rotational == Some(true) {
            let fs = mount(used.drives(&images), &clock, options).expect("both are there");
            fs.shutdown().expect("both are there");
            let all = mount(used.drives(&images), &clock, options).expect("both are there");
            history.assert_shown_by(&all);
            let live = snapshot(&all).expect("it can be read");
            let same = |tree: &Tree| live == snapshot(tree).expect("it can be read");
            history.0.retain(same);
        }
        let alone = || Drives::without_metadata(images[0].clone()).expect("it names the other");
        let read_only = MountOptions { access: Access::ReadOnly, ..MountOptions::default() };
        let fs = mount(alone(), &clock, read_only).expect("the copies here are whole");
        history.assert_shown_by(&fs);
        let writable = mount(alone(), &clock, MountOptions::default()).map(drop);
        assert!(writable.is_err(), "a writable mount needs both drives");
    }
}
