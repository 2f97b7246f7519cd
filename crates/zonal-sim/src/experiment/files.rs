//! The files of an experiment: CSV and JSON of its numbers, SVG of its pictures.

use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::error::{Result, SimError};
use crate::report::page::{PublishedChart, Section};
use crate::report::{Table, draw};

/// All numbers of an experiment, as its JSON has them.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Document<'a> {
    /// Name of the experiment.
    experiment: &'a str,
    /// The question that it answers.
    title: &'a str,
    /// The config, as TOML.
    #[serde(rename = "config_toml")]
    config: &'a str,
    /// Published charts beside ours.
    charts: &'a [PublishedChart],
    /// The numbers behind the pictures.
    tables: &'a [Table],
}

/// The files that every experiment of this name writes.
pub fn always(name: &str) -> [String; 2] {
    [format!("{name}.json"), format!("{name}.toml")]
}

/// Writes an experiment's files into a directory, none over one of `inputs`; returns their paths.
pub fn save(section: &Section, dir: &Path, inputs: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let mut put = |name: &str, text: &str| {
        let path = dir.join(name);
        zonal::output::write(&path, text, inputs)
            .map_err(|source| SimError::Io { path: path.display().to_string(), source })?;
        files.push(path);
        Ok(())
    };
    let name = &section.name;
    let [numbers, config] = always(name);
    put(&numbers, &json(section))?;
    put(&config, &section.config)?;
    for table in &section.tables {
        put(&format!("{}.csv", table.name), &table.csv())?;
    }
    for (index, picture) in section.pictures.iter().enumerate() {
        put(&format!("{name}{}.svg", suffix(index)), &draw::svg(picture))?;
    }
    for (index, chart) in section.charts.iter().enumerate() {
        let file = format!("{name}-published{}", suffix(index));
        put(&format!("{file}.svg"), &draw::svg(&chart.picture()))?;
        put(&format!("{file}.csv"), &chart.table(&file).csv())?;
    }
    Ok(files)
}

/// Tells the files of one kind apart; empty for the first.
fn suffix(index: usize) -> String {
    if index == 0 { String::new() } else { format!("-{}", index + 1) }
}

/// All numbers of an experiment, as JSON.
pub fn json(section: &Section) -> String {
    let document = Document {
        experiment: &section.name,
        title: &section.title,
        config: &section.config,
        charts: &section.charts,
        tables: &section.tables,
    };
    let mut text = serde_json::to_string_pretty(&document).expect("every field has a form in JSON");
    text.push('\n');
    text
}
