//! Runs of many configs on several threads. The results do not depend on which thread runs which
//! task: each run has its own generator, and answers are in the order of the tasks.

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use crate::Progress;
use crate::config::{Config, Kind, Mode};
use crate::counting::{self, Report};
use crate::disk::load::Load;
use crate::disk::{self, SimDisk};
use crate::error::{Result, SimError};
use crate::measured::{Figures, Point};
use crate::timed::{self, Measured};

/// One run.
#[derive(Clone, Debug)]
pub(super) enum Task {
    /// In the mode of its config.
    Run(Box<Config>),
    /// A measured point, on a drive of the config.
    Point { config: Box<Config>, point: Box<Point> },
    /// A load on a spinning disk of the config.
    Disk { config: Box<Config>, load: Box<Load> },
}

/// The result of a task.
#[derive(Debug)]
pub(super) enum Answer {
    Counted(Box<Report>),
    Timed(Box<Measured>),
    Point(Figures),
    Disk(Box<disk::load::Figures>),
}

impl Answer {
    /// The answer of a task in counting mode.
    pub(super) fn counted(&self) -> &Report {
        match self {
            Self::Counted(report) => report,
            Self::Timed(_) | Self::Point(_) | Self::Disk(_) => {
                unreachable!("the experiment asked for counting mode")
            }
        }
    }

    /// The answer of a task in timed mode.
    pub(super) fn timed(&self) -> &Measured {
        match self {
            Self::Timed(measured) => measured,
            Self::Counted(_) | Self::Point(_) | Self::Disk(_) => {
                unreachable!("the experiment asked for timed mode")
            }
        }
    }

    /// The answer of a task at a point.
    pub(super) fn point(&self) -> Figures {
        match self {
            Self::Point(figures) => *figures,
            Self::Counted(_) | Self::Timed(_) | Self::Disk(_) => {
                unreachable!("the experiment asked for a point")
            }
        }
    }

    /// The answer of a load on a disk.
    pub(super) fn disk(&self) -> &disk::load::Figures {
        match self {
            Self::Disk(figures) => figures,
            Self::Counted(_) | Self::Timed(_) | Self::Point(_) => {
                unreachable!("the experiment asked for a load on a disk")
            }
        }
    }
}

/// Effort of a point, as of so many units: a second of virtual time, more or less.
const POINT_EFFORT: u64 = 1 << 22;

impl Task {
    pub(super) fn new(config: Config) -> Self {
        Self::Run(Box::new(config))
    }

    fn run(&self) -> Result<Answer> {
        let config = match self {
            Self::Run(config) => config,
            Self::Point { config, point } => return Ok(Answer::Point(point.run(config)?)),
            Self::Disk { config, load } => {
                let figures = load.run(&SimDisk::new(config)?, config.seed);
                let failed = |error| SimError::Config { what: format!("{}: {error}", load.name) };
                return figures.map(|figures| Answer::Disk(Box::new(figures))).map_err(failed);
            }
        };
        Ok(match config.run.mode {
            Mode::Counting => Answer::Counted(Box::new(counting::run(config, &mut |_| {})?)),
            Mode::Timed => Answer::Timed(Box::new(timed::run(config)?)),
        })
    }

    /// Roughly how long it takes: units to place, times ten where time passes.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "an estimate that saturates"
    )]
    fn effort(&self) -> u64 {
        let Self::Run(config) = self else { return POINT_EFFORT };
        let run = &config.run;
        let Ok(layout) = config.layout() else { return 1 };
        let wa = match config.drive.kind {
            Kind::Zns => 1.0,
            Kind::Conventional | Kind::Fdp => 1.0 + 0.5 / layout.op_effective().max(0.02),
        };
        let drive_writes = match run.mode {
            Mode::Counting => run.drive_writes,
            Mode::Timed => run.warm_up + 10.0 * (run.drive_writes - run.warm_up),
        };
        1 + (f64::from(layout.user_units) * wa * drive_writes) as u64
    }
}

/// Runs all tasks.
pub(super) fn run(
    tasks: &[Task],
    threads: NonZeroUsize,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<Vec<Answer>> {
    let efforts: Vec<u64> = tasks.iter().map(Task::effort).collect();
    let total = efforts.iter().sum();
    // The longest first, so that no thread is left with a long one at the end.
    let mut order: Vec<usize> = (0..tasks.len()).collect();
    order.sort_by_key(|&task| std::cmp::Reverse(efforts[task]));
    let (next, done) = (AtomicUsize::new(0), AtomicU64::new(0));
    let mut empty = Vec::new();
    empty.resize_with(tasks.len(), || None);
    let answers: Mutex<Vec<Option<Result<Answer>>>> = Mutex::new(empty);
    progress(Progress { done: 0, total });
    thread::scope(|scope| {
        for _ in 0..threads.get().min(tasks.len()) {
            scope.spawn(|| {
                while let Some(&task) = order.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let answer = tasks[task].run();
                    if answer.is_err() {
                        // Begin no further task.
                        next.store(order.len(), Ordering::Relaxed);
                    }
                    // A panic ends the whole scope; the answers that other threads have stored are
                    // complete.
                    answers.lock().unwrap_or_else(PoisonError::into_inner)[task] = Some(answer);
                    let done = done.fetch_add(efforts[task], Ordering::Relaxed) + efforts[task];
                    progress(Progress { done, total });
                }
            });
        }
    });
    let answers = answers.into_inner().unwrap_or_else(PoisonError::into_inner);
    // Only after an error are answers missing, and the first error ends this function.
    let mut all = Vec::with_capacity(tasks.len());
    let (failed, rest): (Vec<_>, Vec<_>) =
        answers.into_iter().flatten().partition(std::result::Result::is_err);
    for answer in failed.into_iter().chain(rest) {
        all.push(answer?);
    }
    assert_eq!(all.len(), tasks.len(), "every task was run");
    Ok(all)
}
