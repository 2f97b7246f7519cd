//! Which drive and workload `zonal sim` simulates.

use clap::Args;
use zonal_sim::config::Setting;

/// A config, and the fields to change.
#[derive(Args, Clone)]
pub(crate) struct Simulated {
    /// A TOML file, or the name of a preset
    #[arg(value_name = "CONFIG")]
    pub(crate) config: String,
    /// Change a field, as in `drive.op=0.28`
    #[arg(long, value_name = "PATH=VALUE")]
    pub(crate) set: Vec<Setting>,
    /// Seed of the random numbers, instead of the config's
    #[arg(long)]
    pub(crate) seed: Option<u64>,
}
