//! `zonal sim sweep` and `merge`: many runs into one CSV.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use anyhow::Result;
use schemars::JsonSchema;
use serde::Serialize;
use zonal_sim::sweep::{self, Shard, Sweep};

use crate::args::Global;
use crate::args::sweep::{SimMerge, SimSweep};
use crate::output::{count, json, progress};

/// A sweep, of which nothing is left to do.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Swept {
    /// Runs of the whole sweep.
    runs: usize,
    /// Runs of this shard that were in the file.
    found: usize,
    /// Runs done now.
    done: usize,
}

/// Does what is not in the CSV yet.
pub(crate) fn run(global: &Global, args: &SimSweep) -> Result<()> {
    let config = PathBuf::from(&args.simulated.config);
    super::check_outputs(Path::new(""), &[&args.out], &[config])?;
    let (text, settings) = super::parts(&args.simulated)?;
    let sweep = Sweep::plan(&text, &settings, &args.over)?;
    let cores = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    let bar = progress::bar(0, progress::Unit::Runs, "sweeping");
    let shard = args.shard.unwrap_or(Shard::WHOLE);
    let ran = sweep.run(&args.out, shard, args.jobs.unwrap_or(cores), &mut |progress| {
        bar.set_length(progress.total);
        bar.set_position(progress.done);
    });
    bar.finish_and_clear();
    let (found, done) = ran?;
    let runs = sweep.len();
    if global.json {
        return json::document(&Swept { runs, found, done });
    }
    let [runs, found, done] = [runs, found, done].map(|number| count(number as u64));
    sayln!("{done} runs done, {found} were there, of {runs} in all: {}", args.out.display());
    Ok(())
}

/// Shards in one file.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Merged {
    /// Runs of all shards.
    runs: usize,
}

/// Joins the CSVs of all shards.
pub(crate) fn merge(global: &Global, args: &SimMerge) -> Result<()> {
    let runs = sweep::merge(&args.parts, &args.out)?;
    if global.json {
        return json::document(&Merged { runs });
    }
    sayln!("{} runs: {}", count(runs as u64), args.out.display());
    Ok(())
}
