//! Which drive and workload `zonal sim` simulates.

use std::ffi::OsStr;

use clap::builder::{PossibleValue, StringValueParser, TypedValueParser};
use clap::{Arg, Args, Command};
use zonal_sim::config::Setting;
use zonal_sim::preset::Preset;

/// A config, and the fields to change.
#[derive(Args, Clone)]
pub(crate) struct Simulated {
    /// A TOML file, or the name of a preset
    #[arg(value_name = "CONFIG", value_parser = ConfigParser, hide_possible_values = true)]
    pub(crate) config: String,
    /// Change a field, as in `drive.op=0.28`
    #[arg(long, value_name = "PATH=VALUE")]
    pub(crate) set: Vec<Setting>,
    /// Seed of the random numbers, instead of the config's
    #[arg(long)]
    pub(crate) seed: Option<u64>,
}

/// Takes any file, and lets shells complete the names of presets.
#[derive(Clone)]
pub(crate) struct ConfigParser;

impl TypedValueParser for ConfigParser {
    type Value = String;

    fn parse_ref(
        &self,
        command: &Command,
        arg: Option<&Arg>,
        value: &OsStr,
    ) -> Result<String, clap::Error> {
        StringValueParser::new().parse_ref(command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(Preset::ALL.iter().map(|preset| PossibleValue::new(preset.name))))
    }
}
