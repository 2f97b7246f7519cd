//! Experiments: many configs, one question, and the published answer beside ours.
//!
//! | file | question |
//! | --- | --- |
//! | `throughput.rs` | how fast is a drive over successive full drive writes? |
//! | `amplification.rs` | how does over-provisioning change write amplification? |
//! | `latency.rs` | how long does a read take while something writes? |
//! | `drives.rs` | how near do the presets of real drives come to them? |
//! | `disks.rs` | how near do the presets of spinning disks come to them? |
//! | `lifetime.rs` | how much can be written before the flash is worn? |
//! | `cost.rs` | what do flash and DRAM of a usable TB cost? |
//! | `ways.rs` | conventional, FDP or zones: how much do drive and host move? |
//! | [`reproduce`] | which page shows all of them? |
//! | `plan.rs` | which fields does the config file of an experiment have? |
//! | `pool.rs` | how do all runs share the machine? |
//!
//! An experiment is a list of tasks, each one run of one config, and the conclusions from their
//! results. The tasks of all experiments share the threads. Published values, their sources and the
//! way they were measured stand in the config files, not in the code.

mod amplification;
mod cost;
mod disks;
mod drives;
mod files;
mod latency;
mod lifetime;
mod plan;
mod pool;
pub mod reproduce;
mod throughput;
mod ways;

use std::num::NonZeroUsize;

use serde::de::DeserializeOwned;

pub use files::{Document, always, json, save};
pub use plan::{Changes, Overlay, Scope};

use self::plan::{Plan, Values};
use self::pool::{Answer, Task};
use crate::Progress;
use crate::error::{Result, SimError};
use crate::report::page::{PublishedChart, Section};
use crate::report::{Picture, Table};

/// The experiments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Name {
    /// Throughput over successive full drive writes.
    Throughput,
    /// Write amplification against over-provisioning.
    Amplification,
    /// Latency of reads against the rate of writes.
    Latency,
    /// Presets of real drives, compared with these drives.
    Drives,
    /// Presets of spinning disks, compared with such disks.
    Disks,
    /// TBW and DWPD.
    Lifetime,
    /// Flash and DRAM per usable TB.
    Cost,
    /// Conventional, FDP, zoned: drive and host together.
    Ways,
}

impl Name {
    /// All, in the order of the page.
    pub const ALL: [Self; 8] = [
        Self::Throughput,
        Self::Amplification,
        Self::Latency,
        Self::Drives,
        Self::Disks,
        Self::Lifetime,
        Self::Cost,
        Self::Ways,
    ];

    /// Its word on the command line, and in files.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Throughput => "throughput",
            Self::Amplification => "amplification",
            Self::Latency => "latency",
            Self::Drives => "drives",
            Self::Disks => "disks",
            Self::Lifetime => "lifetime",
            Self::Cost => "cost",
            Self::Ways => "ways",
        }
    }

    /// The question: the first line of its config, a comment.
    pub fn about(self) -> &'static str {
        self.text().lines().next().unwrap_or_default().trim_start_matches("# ")
    }

    /// The config that comes with it.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Throughput => include_str!("../../configs/throughput.toml"),
            Self::Amplification => include_str!("../../configs/amplification.toml"),
            Self::Latency => include_str!("../../configs/latency.toml"),
            Self::Drives => include_str!("../../configs/drives.toml"),
            Self::Disks => include_str!("../../configs/disks.toml"),
            Self::Lifetime => include_str!("../../configs/lifetime.toml"),
            Self::Cost => include_str!("../../configs/cost.toml"),
            Self::Ways => include_str!("../../configs/ways.toml"),
        }
    }
}

/// One kind of experiment. `Self` is the section `measure` of its config.
trait Measure: DeserializeOwned + Send + 'static {
    /// The runs it needs.
    fn tasks(plan: &Plan<Self>) -> Result<Vec<Task>>;

    /// Concludes from their answers.
    fn conclude(plan: &Plan<Self>, answers: &[Answer]) -> Result<Findings>;
}

/// Conclusions from answers.
#[derive(Default)]
struct Findings {
    pictures: Vec<Picture>,
    tables: Vec<Table>,
    /// Published charts in addition to the config's own.
    charts: Vec<PublishedChart>,
    /// Values that claims can name.
    values: Values,
}

/// A drive's name as part of a file's.
fn slug(name: &str) -> String {
    let words = name.split(|char: char| !char.is_ascii_alphanumeric());
    let words = words.filter(|word| !word.is_empty()).map(str::to_ascii_lowercase);
    words.collect::<Vec<_>>().join("-")
}

type Conclude = Box<dyn FnOnce(&[Answer]) -> Result<Section> + Send>;

/// An experiment with a parsed config.
pub struct Experiment {
    tasks: Vec<Task>,
    conclude: Conclude,
}

impl Experiment {
    /// An experiment with a config: its own, or another of the same kind.
    pub fn new(name: Name, text: &str, changes: &Changes) -> Result<Self> {
        match name {
            Name::Throughput => Self::of::<throughput::Throughput>(name, text, changes),
            Name::Amplification => Self::of::<amplification::Amplification>(name, text, changes),
            Name::Latency => Self::of::<latency::Latency>(name, text, changes),
            Name::Drives => Self::of::<drives::Drives>(name, text, changes),
            Name::Disks => Self::of::<disks::Disks>(name, text, changes),
            Name::Lifetime => Self::of::<lifetime::Lifetime>(name, text, changes),
            Name::Cost => Self::of::<cost::Cost>(name, text, changes),
            Name::Ways => Self::of::<ways::Ways>(name, text, changes),
        }
    }

    fn of<M: Measure>(name: Name, text: &str, changes: &Changes) -> Result<Self> {
        let plan = Plan::<M>::parse(text, changes)?;
        if plan.experiment != name.word() {
            let (is, wanted) = (&plan.experiment, name.word());
            let what = format!("experiment = {is:?} is not possible here: this is {wanted:?}");
            return Err(SimError::Config { what });
        }
        let tasks = M::tasks(&plan)?;
        let conclude = move |answers: &[Answer]| {
            let findings = M::conclude(&plan, answers)?;
            let held = plan.held(&findings.values);
            let mut text = plan.text.clone();
            if !held.left_out.is_empty() {
                let left_out = held.left_out.join("; ");
                text.push(format!("Not measured, so not compared: {left_out}."));
            }
            Ok(Section {
                name: plan.experiment.clone(),
                title: plan.title.clone(),
                text,
                charts: [held.charts, findings.charts].concat(),
                pictures: findings.pictures,
                tables: findings.tables,
                config: plan.effective.clone(),
            })
        };
        Ok(Self { tasks, conclude: Box::new(conclude) })
    }
}

/// Runs experiments, all their tasks together on some threads.
pub fn run(
    experiments: Vec<Experiment>,
    threads: NonZeroUsize,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<Vec<Section>> {
    let tasks: Vec<Task> = experiments.iter().flat_map(|each| each.tasks.iter().cloned()).collect();
    let answers = pool::run(&tasks, threads, progress)?;
    let mut rest = answers.as_slice();
    let mut sections = Vec::with_capacity(experiments.len());
    for experiment in experiments {
        let (own, others) = rest.split_at(experiment.tasks.len());
        sections.push((experiment.conclude)(own)?);
        rest = others;
    }
    Ok(sections)
}
