//! The command line of `zonal sim`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use zonal_sim::config::Setting;

use super::sweep::{SimMerge, SimReplay, SimSweep};

#[derive(Subcommand)]
pub(crate) enum SimCommand {
    /// Print what a config makes: capacities, over-provisioning, superblocks, zones, tables
    Show(SimShow),
    /// Print a config that comes with the simulator, to start from; without a name, list them
    Config(SimConfig),
    /// Run file systems on simulated drives of the same flash, and compare what wears it out
    Fs(SimFs),
    /// Run a config with every combination of some fields' values, into one CSV
    Sweep(SimSweep),
    /// Join the CSVs of all shards of a sweep
    Merge(SimMerge),
    /// Replay a block trace on a simulated drive
    Replay(SimReplay),
}

/// A config and what is changed of it.
#[derive(Args, Clone)]
pub(crate) struct Simulated {
    /// A TOML file, or the name of a config that comes with the simulator
    #[arg(value_name = "CONFIG")]
    pub(crate) config: String,
    /// Change a field, as in `drive.op=0.28`
    #[arg(long, value_name = "PATH=VALUE")]
    pub(crate) set: Vec<Setting>,
    /// Seed of everything random, instead of the config's
    #[arg(long)]
    pub(crate) seed: Option<u64>,
}

#[derive(Args)]
pub(crate) struct SimShow {
    #[command(flatten)]
    pub(crate) simulated: Simulated,
}

#[derive(Args)]
pub(crate) struct SimConfig {
    /// Its name
    pub(crate) name: Option<String>,
}

#[derive(Args)]
pub(crate) struct SimFs {
    /// A TOML file, or the name of a config that comes with the simulator
    #[arg(value_name = "CONFIG", default_value = "files")]
    pub(crate) config: String,
    /// Change a field, as in `workload.fill=0.8`
    #[arg(long, value_name = "PATH=VALUE")]
    pub(crate) set: Vec<Setting>,
    /// Seed of everything random, instead of the config's
    #[arg(long)]
    pub(crate) seed: Option<u64>,
    /// Write the table as CSV and JSON, the picture as SVG and the config to this directory
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Leave out reading every file again and checking the file system afterwards
    #[arg(long)]
    pub(crate) no_verify: bool,
}
