//! `zonal sim`: simulated drives. This file finds the config; each subcommand has a file in `sim/`.

pub(crate) mod experiment;
mod fs;
mod replay;
pub(crate) mod run;
pub(crate) mod show;
pub(crate) mod sweep;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use schemars::JsonSchema;
use serde::Serialize;
use zonal_sim::Config;
use zonal_sim::config::Setting;
use zonal_sim::experiment::Name;
use zonal_sim::preset::Preset;

use crate::args::Global;
use crate::args::sim::{SimCommand, SimConfig};
use crate::args::simulated::Simulated;
use crate::output::{json, table};

/// Runs the subcommand.
pub(crate) fn run(global: &Global, command: &SimCommand) -> Result<()> {
    match command {
        SimCommand::Run(args) => run::run(global, args),
        SimCommand::Show(args) => show::run(global, args),
        SimCommand::Config(args) => config(global, args),
        SimCommand::Fields => fields(global),
        SimCommand::Fs(args) => fs::run(global, args),
        SimCommand::Sweep(args) => sweep::run(global, args),
        SimCommand::Replay(args) => replay::run(global, args),
        SimCommand::Experiment(args) => experiment::run(global, args),
        SimCommand::Reproduce(args) => experiment::reproduce(global, args),
    }
}

/// Checks whether a command may write these files of a directory, before a simulation takes its
/// time.
fn check_outputs(folder: &Path, names: &[impl AsRef<Path>], inputs: &[PathBuf]) -> Result<()> {
    for path in names.iter().map(|name| folder.join(name)) {
        zonal::output::check(&path, inputs)
            .with_context(|| format!("writing {}", path.display()))?;
    }
    Ok(())
}

/// The config of the arguments, with its changes.
pub(crate) fn load(simulated: &Simulated) -> Result<Config> {
    let (text, settings) = parts(simulated)?;
    let name = &simulated.config;
    tracing::info!(config = %name, "simulating the drive of a config");
    for setting in &settings {
        tracing::debug!(path = setting.path, value = setting.value, "a value of the config");
    }
    tracing::debug!(bytes = text.len(), "parsing the config");
    Config::parse_with(&text, &settings).with_context(|| format!("the config {name}"))
}

/// The text of the config, and its changes.
fn parts(simulated: &Simulated) -> Result<(String, Vec<Setting>)> {
    let mut settings = simulated.set.clone();
    if let Some(seed) = simulated.seed {
        settings.push(Setting { path: "seed".into(), value: seed.to_string() });
    }
    Ok((text(&simulated.config)?, settings))
}

/// The text of a file, or of a config that comes with the simulator.
fn text(name: &str) -> Result<String> {
    if Path::new(name).exists() {
        return std::fs::read_to_string(name).with_context(|| format!("reading {name}"));
    }
    match Preset::find(name) {
        Some(preset) => Ok(preset.text.to_owned()),
        None => bail!("there is neither a file nor a config {name}: `zonal sim config` lists them"),
    }
}

/// The output: one config, or all names if the command line names none.
#[derive(Serialize, JsonSchema)]
#[serde(untagged)]
pub(crate) enum Configs {
    /// All configs that come with the simulator.
    Listed(Vec<Listed>),
    /// A config with every default, by the fields of its file.
    One(#[schemars(with = "BTreeMap<String, serde_json::Value>")] Box<Config>),
}

/// A config that comes with the simulator.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Listed {
    /// Name of the config.
    name: &'static str,
    /// Purpose of the config.
    about: &'static str,
}

/// Prints every field of a config; as JSON, a list of them.
fn fields(global: &Global) -> Result<()> {
    tracing::info!("printing the fields of a config");
    if global.json {
        return json::document(&zonal_sim::config::fields::fields());
    }
    say!("{}", zonal_sim::config::fields::page());
    Ok(())
}

/// Prints a config as it is in its file; as JSON, with every default.
fn config(global: &Global, args: &SimConfig) -> Result<()> {
    if let Some(name) = &args.name {
        tracing::info!(config = %name, "printing a config");
        if let Some(experiment) = Name::ALL.into_iter().find(|known| known.word() == name) {
            say!("{}", experiment.text());
            return Ok(());
        }
        let text = text(name)?;
        if global.json {
            return json::document(&Configs::One(Box::new(Config::parse(&text)?)));
        }
        say!("{text}");
        return Ok(());
    }
    let drives = Preset::ALL.map(|preset| Listed { name: preset.name, about: preset.about() });
    let experiments = Name::ALL.map(|name| Listed { name: name.word(), about: name.about() });
    let all: Vec<Listed> = drives.into_iter().chain(experiments).collect();
    if global.json {
        return json::document(&Configs::Listed(all));
    }
    let lines: Vec<_> = all.iter().map(|listed| (listed.name, listed.about.to_owned())).collect();
    say!("{}", table::properties(&lines));
    Ok(())
}
