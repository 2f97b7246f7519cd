//! Bounded exhaustive crash tests: all sequences of one and of two steps, and some of three, each
//! step ended by nothing or by a sync, with the power cut after every change of the drive.
//!
//! A cut before the last step began leaves a state of a shorter sequence, so it is tried there and
//! not again. A step that fails changes nothing, so the sequence is a shorter one, too. Endings
//! that make the drive change in the same way, with the same promises, are looked at once.

use std::panic::{AssertUnwindSafe, catch_unwind};

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use zonal_fs::furrow::PlantedBug;

use crate::check::{Checker, Effort};
use crate::ops::drives::{CONVENTIONAL, SMALL, Shape};
use crate::run::{Run, Start};
use crate::steps::Ending::{Nothing, Sync};
use crate::steps::{self, Ending, Sequence, Step};
use crate::{Report, count, options, seed};

/// Every state where there are at most 256 new ones; some recoveries are cut, too.
const EFFORT: Effort =
    Effort { exhaustive: 256, samples: 64, moments_one_in: 1, again_one_in: 64, use_one_in: 1024 };

/// Goes through sequences and counts.
struct Search {
    report: Report,
    checker: Checker,
    start: Start,
    seed: u64,
}

impl Search {
    fn new(name: &'static str, shape: &Shape) -> Self {
        let seed = seed();
        let (report, checker) = (Report::begin(name), Checker::new(seed, None));
        Self { report, checker, start: steps::start(shape), seed }
    }

    fn random(&self) -> ChaCha8Rng {
        ChaCha8Rng::seed_from_u64(self.seed)
    }

    /// These steps with all endings.
    fn check(&mut self, steps: &[&Step]) {
        let mut done: Vec<Run> = Vec::new();
        for endings in endings(steps.len()) {
            let sequence = Sequence(steps.iter().copied().zip(endings).collect());
            let options = options(self.report.workloads / 16);
            self.checker.options = options;
            self.report.workloads += 1;
            let run = run(&self.start.clone().with(options), &sequence);
            let Some((run, from)) = run else {
                self.report.refused += 1;
                continue;
            };
            if done.iter().any(|other| other.is_same(&run)) {
                self.report.same += 1;
                continue;
            }
            if let Err(violation) = self.checker.check_run_from(&run, from, EFFORT) {
                panic!("SEED={}: {sequence}: {violation}", self.seed);
            }
            done.push(run);
        }
    }

    fn end(self) {
        self.report.end(&self.checker);
    }
}

/// Every choice of endings for `steps` steps.
fn endings(steps: usize) -> impl Iterator<Item = Vec<Ending>> {
    let choices = Ending::ALL.len();
    (0..choices.pow(steps as u32)).map(move |number| {
        (0..steps as u32).map(|at| Ending::ALL[number / choices.pow(at) % choices]).collect()
    })
}

/// Runs a sequence. Nothing if a step fails, else also the first change to look at: a cut before
/// the last step is a cut of a shorter sequence.
fn run(start: &Start, sequence: &Sequence<'_>) -> Option<(Run, usize)> {
    let run = start.run(&sequence.ops(), None);
    if run.refused {
        return None;
    }
    let before = sequence.before_last();
    let from = if before == 0 { 0 } else { run.boundaries[before].at + 1 };
    Some((run, from))
}

/// All pairs, in an order that the seed decides: a run that ends early has tried a fair share.
fn pairs(count: usize, random: &mut ChaCha8Rng) -> Vec<(usize, usize)> {
    let mut pairs: Vec<_> =
        (0..count).flat_map(|first| (0..count).map(move |second| (first, second))).collect();
    for at in (1..pairs.len()).rev() {
        pairs.swap(at, (random.next_u64() % (at as u64 + 1)) as usize);
    }
    pairs
}

fn check_all_of_one(name: &'static str, shape: &Shape) {
    let mut search = Search::new(name, shape);
    for step in &steps::all() {
        search.check(&[step]);
    }
    search.end();
}

#[test]
fn sequences_of_one_step_survive_cuts() {
    check_all_of_one("sequences of one", &SMALL);
}

#[test]
fn conventional_sequences_of_one_step_survive_cuts() {
    check_all_of_one("sequences of one, conventional zones", &CONVENTIONAL);
}

/// `COUNT` multiplies how many states are looked at.
#[test]
fn sequences_of_two_steps_survive_cuts_some() {
    let mut search = Search::new("sequences of two, some", &SMALL);
    let steps = steps::all();
    let states = count(8000);
    for (first, second) in pairs(steps.len(), &mut search.random()) {
        if search.checker.states > states {
            break;
        }
        search.check(&[&steps[first], &steps[second]]);
    }
    search.end();
}

#[test]
#[ignore = "takes many minutes; run by cargo xtask test --soak"]
fn sequences_of_two_steps_survive_cuts_all() {
    let mut search = Search::new("sequences of two, all", &SMALL);
    let steps = steps::all();
    for (first, second) in pairs(steps.len(), &mut search.random()) {
        search.check(&[&steps[first], &steps[second]]);
    }
    search.end();
}

/// `COUNT` multiplies how many triples of steps are chosen.
#[test]
#[ignore = "takes minutes; run by cargo xtask test --soak"]
fn sequences_of_three_steps_survive_cuts_some() {
    let mut search = Search::new("sequences of three, some", &SMALL);
    let steps = steps::all();
    let mut random = search.random();
    for _ in 0..count(1000) {
        let three = [(); 3].map(|()| &steps[(random.next_u64() % steps.len() as u64) as usize]);
        search.check(&three);
    }
    search.end();
}

/// Steps by their names.
type Named = &'static [(&'static str, Ending)];

/// Mistakes that a short sequence shows, with one that does; the last step ends with a sync. The
/// others need a drive that is used for longer or is full, bad bits, or several threads: `planted`
/// and the storm show them.
const SHOWN: &[(PlantedBug, Named)] = &[
    (PlantedBug::SkipDataFlush, &[("link unnamed file", Sync)]),
    (PlantedBug::SkipRecordFlush, &[("create", Sync)]),
    (PlantedBug::SkipRecordChecksum, &[("create", Sync)]),
    (PlantedBug::BelieveNewestBatch, &[("link unnamed file", Sync)]),
    (PlantedBug::ForgetOrphans, &[("unlink held", Sync)]),
    (PlantedBug::SuperblockBeforeManifest, &[("create", Sync)]),
    (PlantedBug::ForgetXattrRows, &[("unlink inside", Sync)]),
    (PlantedBug::ForgetEntryDeletes, &[("unlink", Sync)]),
    (PlantedBug::SkipWriteBack, &[("link unnamed file", Sync)]),
    (PlantedBug::ReplayStopsEarly, &[("create", Sync)]),
    (
        PlantedBug::ContinueBehindTornRecord,
        &[("punch later", Sync), ("exchange directories", Sync)],
    ),
    (PlantedBug::ReleaseMetaEarly, &[("create", Sync)]),
    (PlantedBug::ForgetTailZeroing, &[("truncate link", Nothing), ("write by link", Sync)]),
    (PlantedBug::ForgetLinkCount, &[("create", Sync)]),
    (PlantedBug::ForgetCount, &[("create", Sync)]),
    (PlantedBug::ForgetTotals, &[("create", Sync)]),
    (PlantedBug::ForgetZoneRows, &[("link unnamed file", Sync)]),
    (PlantedBug::ForgetOrphanRows, &[("unlink held", Sync)]),
    (PlantedBug::ForgetDiscards, &[("punch later", Sync)]),
    (PlantedBug::ForgetNames, &[("create", Sync)]),
    (PlantedBug::ListOpenZones, &[("write at end", Sync), ("set attribute", Sync)]),
    (
        PlantedBug::KeepOlderBuffered,
        &[("write across blocks", Nothing), ("write directly over end", Sync)],
    ),
    (PlantedBug::SplitWrite, &[("write across blocks", Sync)]),
    (PlantedBug::DeletePinned, &[("write unlinked", Sync)]),
    (PlantedBug::ReplaceKeepsLink, &[("rename over", Sync)]),
];

/// Whether cuts of a sequence, and of every recovery after them, show a mistake. A step that fails
/// and a panic show it, too.
fn is_shown(start: &Start, sequence: &Sequence<'_>, bug: PlantedBug) -> bool {
    let effort = Effort { again_one_in: 1, ..EFFORT };
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        let run = start.run(&sequence.ops(), Some(bug));
        run.refused || Checker::new(0, Some(bug)).check_run(&run, effort).is_err()
    }));
    outcome.unwrap_or(true)
}

#[test]
fn sequences_show_planted_mistakes() {
    let (steps, start) = (steps::all(), steps::start(&SMALL));
    let step = |(name, ending): &(&str, Ending)| {
        let named = steps.iter().find(|step| step.name == *name);
        (named.unwrap_or_else(|| panic!("no step is called {name:?}")), *ending)
    };
    let is_missed = |(bug, names): &&(PlantedBug, Named)| {
        let sequence = Sequence(names.iter().map(step).collect());
        !is_shown(&start, &sequence, *bug)
    };
    let missed: Vec<_> = SHOWN.iter().filter(is_missed).collect();
    assert!(missed.is_empty(), "{missed:?}");
}
