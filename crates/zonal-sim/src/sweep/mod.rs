//! Sweeps: a config run with every combination of some fields' values, on all cores, into one CSV.
//!
//! | file | question |
//! | --- | --- |
//! | `over.rs` | which field takes which values? |
//! | `figures.rs` | which figures does one run give? |
//! | `store.rs` | which rows does the CSV hold, and which belong there? |
//! | `points.rs` | how do the figures of a combination vary over its seeds? |
//! | `picture.rs` | how does a figure look? |
//!
//! Runs are numbered from 1 in the order of the combinations, the last field changing fastest, and
//! the runs of one combination follow each other. A run's seed follows from its number and the
//! seed of the config. So the result of a run depends neither on the runs beside it nor on
//! the machine: the CSV has the same bytes for 1 job and for 8. Rows are written in order, so a
//! stopped sweep resumes at the first missing row.

mod figures;
mod over;
mod picture;
mod points;
mod store;

use std::collections::BTreeMap;
use std::num::NonZero;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;

use sha2::{Digest, Sha256};

pub use figures::FIGURES;
pub use over::Over;
pub use points::{Point, Spread};

use crate::Progress;
use crate::config::{Config, Setting};
use crate::error::{Result, SimError};
use store::Store;

/// Most runs of a sweep.
const RUNS_MAX: usize = 1_000_000;

/// Columns that every CSV begins with.
const FIXED: [&str; 5] = ["run", "runs", "sweep", "config", "seed"];

/// A run that is to be done.
struct Run {
    /// From 1.
    number: usize,
    /// The swept fields' values.
    values: Vec<String>,
    config: Config,
    /// Of the config.
    digest: String,
}

/// A sweep.
pub struct Sweep {
    /// The columns of the swept fields.
    names: Vec<String>,
    /// Runs of each combination.
    seeds: usize,
    runs: Vec<Run>,
    /// Of everything that decides about the figures.
    digest: String,
}

impl Sweep {
    /// Plans a sweep of the config in `text`, after `settings`: so many runs of each combination,
    /// which differ in their seeds. Every run's config is checked before the first one is done.
    pub fn plan(
        text: &str,
        settings: &[Setting],
        overs: &[Over],
        seeds: NonZero<usize>,
    ) -> Result<Self> {
        let wrong = |what: String| SimError::Config { what };
        let names = columns(overs)?;
        let count = overs.iter().try_fold(seeds.get(), |count, over| {
            count.checked_mul(over.values.len()).filter(|count| *count <= RUNS_MAX)
        });
        let count = count.ok_or_else(|| wrong(format!("a sweep has at most {RUNS_MAX} runs")))?;
        let mut runs = Vec::with_capacity(count);
        for number in 1..=count {
            let values = combination(overs, (number - 1) / seeds);
            let mut all = settings.to_vec();
            all.extend(overs.iter().zip(&values).map(|(over, value)| over.setting(value)));
            let mut config = Config::parse_with(text, &all)
                .map_err(|error| wrong(named(&names, &values, number, &error)))?;
            config.seed = seed(config.seed, number);
            let digest = digest([config.to_toml().as_str()]);
            runs.push(Run { number, values, config, digest });
        }
        let configs = runs.iter().map(|run| run.digest.as_str());
        let digest = digest(std::iter::once(env!("CARGO_PKG_VERSION")).chain(configs));
        Ok(Self { names, seeds: seeds.get(), runs, digest })
    }

    /// The columns of the swept fields.
    pub fn fields(&self) -> &[String] {
        &self.names
    }

    /// Runs in all.
    pub fn len(&self) -> usize {
        self.runs.len()
    }

    /// Never: a sweep over nothing is one run.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Does the runs that the file does not hold yet, `jobs` at a time, and appends them.
    /// Returns how many were there and how many it has done.
    pub fn run(
        &self,
        out: &Path,
        jobs: NonZero<usize>,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<(usize, usize)> {
        let mut store = Store::open(out, self)?;
        let done = store.resume(self)?;
        let todo = &self.runs[done..];
        let mut tell = |more: usize| {
            let (done, total) = ((done + more) as u64, self.len() as u64);
            progress(Progress { done, total });
        };
        tell(0);
        in_order(todo, jobs, |at, figures| {
            store.append(&self.row(&todo[at], figures))?;
            tell(at + 1);
            Ok(())
        })?;
        Ok((done, todo.len()))
    }

    /// The columns of the CSV.
    fn columns(&self) -> Vec<String> {
        let fixed = FIXED.map(str::to_owned);
        let figures = FIGURES.map(str::to_owned);
        fixed.into_iter().chain(self.names.iter().cloned()).chain(figures).collect()
    }

    fn row(&self, run: &Run, figures: Vec<String>) -> Vec<String> {
        let mut row = self.head(run);
        row.push(run.config.seed.to_string());
        row.extend(run.values.iter().cloned());
        row.extend(figures);
        row
    }

    /// What tells a run's row from all others: its number, of how many, of which sweep, its config.
    fn head(&self, run: &Run) -> Vec<String> {
        let (number, runs) = (run.number.to_string(), self.runs.len().to_string());
        vec![number, runs, self.digest.clone(), run.digest.clone()]
    }
}

/// Works on `runs`, several at a time, and hands over the figures in the runs' order. Stops at
/// the first run that fails.
fn in_order(
    runs: &[Run],
    jobs: NonZero<usize>,
    mut take: impl FnMut(usize, Vec<String>) -> Result<()>,
) -> Result<()> {
    let (next, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
    let (sender, receiver) = mpsc::channel();
    std::thread::scope(|scope| {
        for _ in 0..jobs.get().min(runs.len()) {
            let (sender, next, stop) = (sender.clone(), &next, &stop);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(run) = runs.get(at) else { return };
                    // The receiver is gone after a failure only.
                    let _ = sender.send((at, figures::figures(&run.config)));
                }
            });
        }
        drop(sender);
        let (mut early, mut wanted) = (BTreeMap::new(), 0);
        for (at, figures) in receiver {
            early.insert(at, figures);
            while let Some(figures) = early.remove(&wanted) {
                let taken = figures.and_then(|figures| take(wanted, figures));
                if taken.is_err() {
                    stop.store(true, Ordering::Relaxed);
                    return taken;
                }
                wanted += 1;
            }
        }
        Ok(())
    })
}

/// The columns of swept fields: the names that the user gave them, with `over.` before a name that
/// another column has. A field that is there twice, even by its short name, is refused.
fn columns(overs: &[Over]) -> Result<Vec<String>> {
    for (at, over) in overs.iter().enumerate() {
        if let Some(other) = overs[..at].iter().find(|other| other.path() == over.path()) {
            let what = match (&other.name, &over.name) {
                (one, two) if one == two => format!("{one} is swept over twice"),
                (one, two) => format!("{} is swept over twice: as {one} and as {two}", over.path()),
            };
            return Err(SimError::Config { what });
        }
    }
    let is_taken = |name: &str| FIXED.contains(&name) || FIGURES.contains(&name);
    let column = |name: &String| if is_taken(name) { format!("over.{name}") } else { name.clone() };
    Ok(overs.iter().map(|over| column(&over.name)).collect())
}

/// The values of the n-th combination, from 0; the last field changes fastest.
fn combination(overs: &[Over], mut n: usize) -> Vec<String> {
    let mut values: Vec<String> = overs
        .iter()
        .rev()
        .map(|over| {
            let value = over.values[n % over.values.len()].clone();
            n /= over.values.len();
            value
        })
        .collect();
    values.reverse();
    values
}

fn named(names: &[String], values: &[String], number: usize, error: &SimError) -> String {
    let pairs = names.iter().zip(values).map(|(name, value)| format!("{name}={value}"));
    format!("run {number} ({}): {error}", pairs.collect::<Vec<_>>().join(" "))
}

/// A run's seed: as unlike its neighbours' as can be (the finaliser of `SplitMix64`), and below
/// 2^53, which every reader of CSV and JSON keeps exactly.
fn seed(seed: u64, number: usize) -> u64 {
    let mut mixed = seed ^ (number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (mixed ^ (mixed >> 31)) >> 11
}

/// A short name for texts that is different for different texts.
fn digest<'a>(texts: impl IntoIterator<Item = &'a str>) -> String {
    let mut hash = Sha256::new();
    for text in texts {
        hash.update((text.len() as u64).to_le_bytes());
        hash.update(text);
    }
    let number = hash.finalize()[..8].iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
    format!("{number:016x}")
}

#[cfg(test)]
mod tests;
