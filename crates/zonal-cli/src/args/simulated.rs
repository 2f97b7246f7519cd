//! Which drive and workload `zonal sim` simulates.

use clap::Args;
use clap::builder::PossibleValue;
use zonal_sim::config::Setting;
use zonal_sim::preset::Preset;

use super::suggested::Suggested;

/// A config, and the fields to change.
#[derive(Args, Clone)]
pub(crate) struct Simulated {
    /// A TOML file, or the name of a preset
    #[arg(value_name = "CONFIG", value_parser = Suggested(presets), hide_possible_values = true)]
    pub(crate) config: String,
    /// Change a field, as in `drive.op=0.28`
    #[arg(long, value_name = "PATH=VALUE")]
    pub(crate) set: Vec<Setting>,
    /// Seed of the random numbers, instead of the config's
    #[arg(long)]
    pub(crate) seed: Option<u64>,
}

/// The presets, which shells complete where a config is expected.
pub(crate) fn presets() -> Vec<PossibleValue> {
    Preset::ALL.iter().map(|preset| PossibleValue::new(preset.name)).collect()
}
