//! The command line of `zonal sim`.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand};
use zonal_sim::config::Setting;
use zonal_sim::experiment::Name;

use super::simulated::{Simulated, presets};
use super::suggested::Suggested;
use super::sweep::{SimReplay, SimSweep};

#[derive(Subcommand)]
pub(crate) enum SimCommand {
    /// Run a simulation, counting or timed, and print its results
    Run(SimRun),
    /// Print the drive that a config describes: capacities, over-provisioning, superblocks, zones,
    /// tables
    Show(SimShow),
    /// Print a preset config to start from; without a name, list the presets
    Config(SimConfig),
    /// Print every field of a config: default, unit, range and meaning; and the kinds of workloads
    Fields,
    /// Run file systems on simulated drives of the same flash, and compare flash wear
    Fs(SimFs),
    /// Run a config with every combination of the given values, into one CSV
    Sweep(SimSweep),
    /// Replay a block trace on a simulated drive
    Replay(SimReplay),
    /// Run an experiment: many configs, one question; writes CSV, JSON and SVG
    Experiment(SimExperiment),
    /// Run all experiments and write one page that compares published values with ours
    Reproduce(SimReproduce),
}

#[derive(Args)]
pub(crate) struct SimRun {
    #[command(flatten)]
    pub(crate) simulated: Simulated,
    /// Print a time series as CSV
    #[arg(long, conflicts_with = "json")]
    pub(crate) csv: bool,
}

#[derive(Args)]
pub(crate) struct SimShow {
    #[command(flatten)]
    pub(crate) simulated: Simulated,
}

#[derive(Args)]
pub(crate) struct SimConfig {
    /// Name of the preset
    #[arg(value_parser = Suggested(presets), hide_possible_values = true)]
    pub(crate) name: Option<String>,
}

#[derive(Args)]
pub(crate) struct SimFs {
    /// A TOML file, or the name of a preset
    #[arg(
        value_name = "CONFIG",
        default_value = "files",
        value_parser = Suggested(presets),
        hide_possible_values = true
    )]
    pub(crate) config: String,
    /// Change a field, as in `workload.fill=0.8`
    #[arg(long, value_name = "PATH=VALUE")]
    pub(crate) set: Vec<Setting>,
    /// Seed of the random numbers, instead of the config's
    #[arg(long)]
    pub(crate) seed: Option<u64>,
    /// Write the table as CSV and JSON, the picture as SVG and the config to this directory
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Skip reading every file back and checking the file system afterwards
    #[arg(long)]
    pub(crate) no_verify: bool,
}

#[derive(Args)]
pub(crate) struct SimExperiment {
    /// Experiment
    #[arg(value_parser = experiment())]
    pub(crate) name: Name,
    /// Config file to use instead of the built-in one
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Change a field, as in `base.drive.unit=64KiB`
    #[arg(long, value_name = "PATH=VALUE")]
    pub(crate) set: Vec<Setting>,
    /// Write tables and pictures into this directory
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) how: How,
}

#[derive(Args)]
pub(crate) struct SimReproduce {
    /// Directory for the page, tables and pictures
    #[arg(long, value_name = "DIR")]
    pub(crate) out: PathBuf,
    #[command(flatten)]
    pub(crate) how: How,
}

/// Options common to experiments.
#[derive(Args)]
pub(crate) struct How {
    /// Seed of the random numbers, instead of the configs'
    #[arg(long)]
    pub(crate) seed: Option<u64>,
    /// Use smaller drives, shorter runs and fewer points: rough figures in a few seconds
    #[arg(long)]
    pub(crate) quick: bool,
    /// Draw a real drive's results beside ours, from zbdbench's `fio_zone_write.csv` or
    /// `fio_zone_mixed.csv`
    #[arg(long, value_name = "NAME=FILE", value_parser = overlay)]
    pub(crate) overlay: Vec<(String, PathBuf)>,
    /// Number of parallel runs [default: one per core]
    #[arg(long, value_name = "COUNT")]
    pub(crate) jobs: Option<NonZeroUsize>,
}

fn overlay(text: &str) -> Result<(String, PathBuf), String> {
    let (name, path) = text
        .split_once('=')
        .filter(|(name, path)| !name.is_empty() && !path.is_empty())
        .ok_or("not NAME=FILE, as in ZN540=fio_zone_write.csv")?;
    Ok((name.to_owned(), path.into()))
}

/// The experiments by name, so that help and errors list them.
fn experiment() -> impl TypedValueParser<Value = Name> {
    PossibleValuesParser::new(Name::ALL.map(Name::word)).try_map(|given| {
        let found = Name::ALL.into_iter().find(|name| name.word() == given);
        found.ok_or("not an experiment")
    })
}
