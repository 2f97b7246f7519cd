//! Furrow against the reference tree: random operations, the same answers, the same content. Once
//! by inode, as front ends call it, and once by path, as programs use a volume over it.
//!
//! Reclaim, commits, clean remounts and time are among the operations, on drives of several shapes
//! that are filled beforehand. A failure prints the shortest sequence that still fails. In the
//! environment: `COUNT` sets the number of sequences (default 96), `SEED` chooses them.

#[path = "../ops/mod.rs"]
mod ops;

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use proptest_state_machine::{ReferenceStateMachine, StateMachineTest, prop_state_machine};
use zonal::image::{Image, ImageDrive};
use zonal::{ByteCount, repeat};

use ops::by_path::ByPath;
use ops::drives::{self, SHAPES, Shape, StepClock};
use ops::session::{Names, Reply, Session};
use ops::{Op, Raw};
use zonal_fs::furrow::{Eviction, Furrow, MountOptions};
use zonal_fs::tree::{Tree, snapshot};
use zonal_fs::vfs::FileSystem;

/// The reference, and its last answer.
struct Model {
    session: Session<Tree>,
    clock: Arc<StepClock>,
    now_ns: u64,
    shape: Shape,
    /// Blocks of a file that takes up space.
    ballast: u64,
    /// How Furrow is mounted. Without memory for metadata it reads everything again all the time,
    /// and writes a run after every commit.
    options: MountOptions,
    /// Paths before the last operation.
    names: Names,
    reply: Option<Reply>,
}

impl Model {
    fn new(shape: Shape, ballast: u64, options: MountOptions) -> Self {
        let clock = Arc::new(StepClock::default());
        let session = Session::new(Arc::new(Tree::new(clock.clone())));
        drives::fill(&*session.fs, ballast).expect("the reference has room");
        let (now_ns, names) = (0, Names::default());
        Self { session, clock, now_ns, shape, ballast, options, names, reply: None }
    }
}

impl Clone for Model {
    fn clone(&self) -> Self {
        let session = self.session.with(Arc::new((*self.session.fs).clone()));
        let (clock, names) = (Arc::clone(&self.clock), self.names.clone());
        Self { session, clock, names, reply: self.reply.clone(), ..*self }
    }
}

impl fmt::Debug for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { shape, ballast, options, .. } = self;
        let MountOptions { memory, eviction, .. } = options;
        write!(f, "drive: {}, ballast of {ballast} blocks, ", shape.name)?;
        write!(f, "memory of {memory} bytes, eviction {eviction:?}, ")?;
        write!(f, "rotational {:?}", options.rotational)
    }
}

struct Reference;

impl ReferenceStateMachine for Reference {
    type State = Model;
    type Transition = Op;

    fn init_state() -> BoxedStrategy<Model> {
        let shapes = proptest::sample::select(&SHAPES[..]);
        let memory = proptest::sample::select(vec![MountOptions::MEMORY, ByteCount::new(0)]);
        let eviction = proptest::sample::select(vec![Eviction::ByNeed, Eviction::AtEveryLock]);
        let rotational = proptest::sample::select(vec![None, None, Some(true)]);
        (shapes, 0..=100_u64, memory, eviction, rotational)
            .prop_map(|(shape, percent, memory, eviction, rotational)| {
                let options =
                    MountOptions { memory, eviction, rotational, ..MountOptions::default() };
                Model::new(shape, shape.ballast_max() * percent / 100, options)
            })
            .no_shrink()
            .boxed()
    }

    fn transitions(_: &Model) -> BoxedStrategy<Op> {
        any::<Raw>().prop_map(Op::decode).boxed()
    }

    fn apply(mut model: Model, op: &Op) -> Model {
        model.now_ns += StepClock::pause_ns(op);
        model.clock.set(model.now_ns);
        model.names = model.session.names();
        model.reply = model.session.reply(op, &model.names);
        model
    }
}

/// How the operations reach Furrow.
trait Way {
    fn over(furrow: Furrow) -> Arc<dyn FileSystem>;
}

struct ByInode;

impl Way for ByInode {
    fn over(furrow: Furrow) -> Arc<dyn FileSystem> {
        Arc::new(furrow)
    }
}

impl Way for ByPath {
    fn over(furrow: Furrow) -> Arc<dyn FileSystem> {
        Arc::new(Self::new(Arc::new(furrow)))
    }
}

/// Furrow on a drive in memory.
struct Subject<W> {
    session: Session<dyn FileSystem>,
    drive: Arc<ImageDrive>,
    clock: Arc<StepClock>,
    options: MountOptions,
    /// The drive is full: the reference, which has no limit, has nothing more to say.
    full: bool,
    way: PhantomData<W>,
}

impl<W: Way> Subject<W> {
    fn mount(
        drive: &Arc<ImageDrive>,
        clock: &Arc<StepClock>,
        options: MountOptions,
    ) -> Session<dyn FileSystem> {
        let fs = Furrow::mount(drives::of(drive.clone()), clock.clone(), options);
        Session::new(W::over(fs.expect("what was unmounted cleanly can be mounted")))
    }

    fn remount(&mut self) {
        self.session.release_all();
        self.session.fs.shutdown().expect("a healthy drive unmounts cleanly");
        self.assert_clean();
        self.session = Self::mount(&self.drive, &self.clock, self.options);
    }

    fn assert_clean(&self) {
        let problems = drives::problems(drives::of(self.drive.clone()));
        assert!(problems.is_empty(), "after a clean unmount: {problems:#?}");
    }
}

struct Comparison<W>(PhantomData<W>);

impl<W: Way> StateMachineTest for Comparison<W> {
    type SystemUnderTest = Subject<W>;
    type Reference = Reference;

    fn init_test(model: &Model) -> Subject<W> {
        let clock = Arc::new(StepClock::default());
        let drive = Arc::new(Image::empty(&model.shape.geometry()).power_on());
        drives::format(drives::of(drive.clone()), &*clock);
        let options = model.options;
        let session = Subject::<W>::mount(&drive, &clock, options);
        drives::fill(&*session.fs, model.ballast).expect("the ballast fits");
        Subject { session, drive, clock, options, full: false, way: PhantomData }
    }

    fn apply(mut subject: Subject<W>, model: &Model, op: Op) -> Subject<W> {
        if subject.full {
            return subject;
        }
        subject.clock.set(model.now_ns);
        let reply = subject.session.reply(&op, &model.names);
        if reply == Some(Err("NoSpace".into())) {
            subject.full = true;
            return subject;
        }
        assert_eq!(reply, model.reply, "left: Furrow, right: the reference, for {op:?}");
        if op == Op::Remount {
            subject.remount();
        }
        subject
    }

    fn check_invariants(subject: &Subject<W>, model: &Model) {
        if subject.full {
            return;
        }
        let furrow = snapshot(&*subject.session.fs).expect("everything can be read");
        let reference = snapshot(&*model.session.fs).expect("everything can be read");
        if let Some(difference) = furrow.first_difference(&reference) {
            panic!("Furrow, then the reference: {difference}");
        }
    }

    fn teardown(mut subject: Subject<W>, model: Model) {
        let before = snapshot(&*subject.session.fs).expect("everything can be read");
        subject.remount();
        let after = snapshot(&*subject.session.fs).expect("everything can be read");
        if let Some(difference) = before.first_difference(&after) {
            panic!("before, then after the last remount: {difference}");
        }
        if !subject.full {
            let inodes = model.session.fs.statfs().expect("the reference answers").inodes;
            let held = subject.session.fs.statfs().expect("Furrow answers").inodes;
            assert!(held <= inodes, "{held} inodes, {inodes} in the reference: some are lost");
        }
    }
}

fn config() -> ProptestConfig {
    ProptestConfig {
        cases: repeat::count(96),
        rng_seed: RngSeed::Fixed(repeat::seed(rand::random())),
        max_shrink_iters: 4000,
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

prop_state_machine! {
    #![proptest_config(config())]
    #[test]
    fn furrow_matches_reference(sequential 1..90 => Comparison<ByInode>);

    #[test]
    fn volume_matches_reference(sequential 1..90 => Comparison<ByPath>);
}
