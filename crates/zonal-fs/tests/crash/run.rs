//! A workload on a recorded drive: its changes of the drive, and the states of the file system.

use std::collections::BTreeMap;
use std::sync::Arc;

use zonal::image::Image;
use zonal::layer::record::{Outage, Recorder, Recording, Step};
use zonal::{LbaCount, ZoneId};
use zonal_fs::furrow::{Furrow, MountOptions, PlantedBug};
use zonal_fs::tree::{Snapshot, Tree, snapshot};
use zonal_fs::vfs::{FileSystem, WriteFlags};

use crate::ops::Op;
use crate::ops::drives::{self, Shape, StepClock};
use crate::ops::session::{Names, Session};

/// A formatted drive, perhaps with files, that any number of workloads begin with.
#[derive(Clone)]
pub(crate) struct Start {
    pub(crate) image: Image,
    tree: Tree,
    clock: Arc<StepClock>,
    pub(crate) now_ns: u64,
    options: MountOptions,
    /// Paths that operations mean by their numbers, if not the existing ones.
    paths: Option<Names>,
}

/// The state of the file system between two operations.
#[derive(PartialEq, Eq)]
pub(crate) struct Boundary {
    /// Changes of the drive before it.
    pub(crate) at: usize,
    pub(crate) snapshot: Snapshot,
    /// The operation before it promised that everything is durable.
    pub(crate) durable: bool,
}

/// A recorded workload. Boundary 0 is before the first operation, after the mount.
pub(crate) struct Run {
    pub(crate) recording: Recording,
    pub(crate) boundaries: Vec<Boundary>,
    /// The operations that were done, and their answers.
    pub(crate) log: Vec<String>,
    /// An operation failed, or there was nothing to do it to.
    pub(crate) refused: bool,
    pub(crate) now_ns: u64,
}

impl Start {
    /// A drive of this shape with a ballast of `ballast` blocks and these operations done to it.
    pub(crate) fn new(shape: &Shape, ballast: u64, ops: &[Op]) -> Self {
        Self::with_paths(shape, ballast, None, ops)
    }

    /// A drive of this shape with these operations done to it. Operations on it, these too, mean
    /// the same paths by the same numbers always.
    pub(crate) fn on_paths(shape: &Shape, paths: Names, ops: &[Op]) -> Self {
        Self::with_paths(shape, 0, Some(paths), ops)
    }

    fn with_paths(shape: &Shape, ballast: u64, paths: Option<Names>, ops: &[Op]) -> Self {
        let clock = Arc::new(StepClock::default());
        let empty = Image::empty(&shape.geometry());
        let recorder = Arc::new(Recorder::new(empty));
        drives::format(drives::of(recorder.clone()), &*clock);
        let tree = Tree::new(clock.clone());
        let fs =
            Furrow::mount(drives::of(recorder.clone()), clock.clone(), MountOptions::default());
        let fs = fs.expect("what was just formatted can be mounted");
        if ballast > 0 {
            drives::fill(&fs, ballast).expect("the ballast fits");
            drives::fill(&tree, ballast).expect("the reference has room");
        }
        let mut work = Workload::new(fs, tree, recorder, clock.clone(), 0);
        work.paths = paths;
        for op in ops {
            work.perform(op);
        }
        let now_ns = work.now_ns;
        work.furrow.release_all();
        work.furrow.fs.shutdown().expect("a healthy drive unmounts cleanly");
        let tree = (*work.tree.fs).clone();
        drop(work.furrow);
        let image = end_of(&work.recorder.recording());
        Self { image, tree, clock, now_ns, options: MountOptions::default(), paths: work.paths }
    }

    /// The same, whose workloads run with these options.
    pub(crate) fn with(self, options: MountOptions) -> Self {
        Self { options, ..self }
    }

    /// The reference in the state of the image.
    pub(crate) fn tree(&self) -> Tree {
        self.tree.clone()
    }

    /// The clock of both.
    pub(crate) fn clock(&self) -> Arc<StepClock> {
        Arc::clone(&self.clock)
    }

    /// Mounts and does `ops`, recording everything. Stops early where the drive is full.
    pub(crate) fn run(&self, ops: &[Op], planted: Option<PlantedBug>) -> Run {
        let recorder = Arc::new(Recorder::new(self.image.clone()));
        let clock = Arc::clone(&self.clock);
        clock.set(self.now_ns);
        let options = MountOptions { planted: planted.into(), ..self.options };
        let fs = Furrow::mount(drives::of(recorder.clone()), clock.clone(), options);
        let fs = fs.expect("a clean drive can be mounted");
        let mut work = Workload::new(fs, self.tree.clone(), recorder, clock, self.now_ns);
        work.options = options;
        work.paths.clone_from(&self.paths);
        work.mark(Durable::Yes);
        for op in ops {
            for part in parts(op) {
                work.perform(&part);
            }
        }
        // The mount is dropped without an unmount: the power goes.
        let Workload { recorder, boundaries, log, refused, now_ns, .. } = work;
        Run { recording: recorder.recording(), boundaries, log, refused, now_ns }
    }
}

/// The image when nothing is lost.
pub(crate) fn end_of(recording: &Recording) -> Image {
    let mut outage = Outage::at_start(recording);
    while outage.step() {}
    outage.everything()
}

/// Operations that are several calls are taken apart: a commit may fall between them.
pub(crate) fn parts(op: &Op) -> Vec<Op> {
    let Op::Churn { file, seed } = *op else { return vec![op.clone()] };
    let write = |round: u16, at: u64, len| Op::Write {
        file,
        offset: at * 4096,
        len,
        seed: seed.wrapping_add(round),
        flags: if round == 0 { WriteFlags::empty() } else { WriteFlags::DIRECT },
    };
    let mut parts = vec![write(0, 0, 24 * 4096)];
    for round in 1..4 {
        let again = (0..24).filter(|at| (at + u64::from(round)) % 3 == 0);
        parts.extend(again.map(|at| write(round, at, 4096)));
    }
    parts
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Durable {
    Yes,
    No,
}

/// Furrow and the reference, side by side.
struct Workload {
    furrow: Session<Furrow>,
    tree: Session<Tree>,
    recorder: Arc<Recorder>,
    clock: Arc<StepClock>,
    now_ns: u64,
    options: MountOptions,
    paths: Option<Names>,
    boundaries: Vec<Boundary>,
    log: Vec<String>,
    refused: bool,
}

impl Workload {
    fn new(
        fs: Furrow,
        tree: Tree,
        recorder: Arc<Recorder>,
        clock: Arc<StepClock>,
        now_ns: u64,
    ) -> Self {
        Self {
            furrow: Session::new(Arc::new(fs)),
            tree: Session::new(Arc::new(tree)),
            recorder,
            clock,
            now_ns,
            options: MountOptions::default(),
            paths: None,
            boundaries: Vec::new(),
            log: Vec::new(),
            refused: false,
        }
    }

    /// Does one operation to both. The reference follows only where Furrow succeeds.
    fn perform(&mut self, op: &Op) {
        self.now_ns += StepClock::pause_ns(op);
        self.clock.set(self.now_ns);
        let names = match &self.paths {
            Some(paths) => paths.with_held(self.tree.held()),
            None => self.tree.names(),
        };
        let reply = self.furrow.reply(op, &names);
        self.refused |= !matches!(reply, Some(Ok(_)));
        let Some(reply) = reply else { return };
        if reply.as_ref().is_err_and(|error| error == "NoSpace") {
            self.log.push(format!("{op:?}: no space"));
            self.mark(Durable::No);
            return;
        }
        let expected = self.tree.reply(op, &names).expect("it exists in both");
        let planted = self.options.planted.is_some();
        assert!(
            planted || reply == expected,
            "{op:?}: {reply:?}, the reference: {expected:?}, after {:#?}",
            self.log
        );
        if *op == Op::Remount {
            self.remount();
        }
        self.log.push(format!("{op:?}"));
        let durable = op.is_durable() && reply.is_ok();
        self.mark(if durable { Durable::Yes } else { Durable::No });
    }

    fn remount(&mut self) {
        self.furrow.fs.shutdown().expect("a healthy drive unmounts cleanly");
        let fs = Furrow::mount(drives::of(self.recorder.clone()), self.clock.clone(), self.options);
        self.furrow = Session::new(Arc::new(fs.expect("a clean drive can be mounted")));
    }

    fn mark(&mut self, durable: Durable) {
        let snapshot = snapshot(&*self.tree.fs).expect("the reference can be read");
        let durable = durable == Durable::Yes;
        self.boundaries.push(Boundary { at: self.recorder.len(), snapshot, durable });
    }
}

impl Run {
    /// Whether the drive changed in the same way, with the same states and promises in between.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.boundaries == other.boundaries && self.recording.steps == other.recording.steps
    }

    /// Legal states after a cut at `at`: from the last boundary that is promised up to the end of
    /// the operation that was under way.
    pub(crate) fn legal(&self, at: usize) -> &[Boundary] {
        let begun = self.boundaries.partition_point(|boundary| boundary.at <= at);
        let promised = self.boundaries[..begun].iter().rposition(|boundary| boundary.durable);
        // Before the first boundary the drive is as the start left it: that is boundary 0.
        let limit = (begun + 1).min(self.boundaries.len());
        &self.boundaries[promised.unwrap_or(0)..limit]
    }

    /// When the newest batch was written, if it brought this block along: no flush came in between.
    pub(crate) fn brought_along(&self, zone: ZoneId, block: LbaCount) -> Option<usize> {
        let is_record =
            |step: &Step| matches!(step, Step::Store { data, .. } if data.starts_with(b"FRJB"));
        let newest = self.recording.steps.iter().rposition(is_record)?;
        let before = &self.recording.steps[..newest];
        let since = before.iter().rposition(|step| matches!(step, Step::Flush)).unwrap_or(0);
        let geometry = self.recording.start.geometry();
        let has_block = |step: &Step| match step {
            Step::Store { zone: of, offset, data } => {
                let end = *offset + geometry.blocks(data.len()).expect("whole blocks were stored");
                *of == zone && (*offset..end).contains(&block) && !is_record(step)
            }
            Step::Deallocate { .. } | Step::Manage { .. } | Step::Flush => false,
        };
        before[since..].iter().any(has_block).then_some(newest)
    }

    /// Moments at which the file system had promised something: nothing may be lost there even if
    /// the last change was no flush.
    pub(crate) fn promises(&self) -> BTreeMap<usize, usize> {
        let durable = self.boundaries.iter().enumerate().filter(|(_, boundary)| boundary.durable);
        durable.map(|(index, boundary)| (boundary.at, index)).collect()
    }
}
