//! Figures: printed as they come, with those of earlier runs beside them, and written as JSON.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Value, json};

/// What was measured before: a name for the column, and the values by the name of the figure.
struct Earlier {
    column: String,
    figures: BTreeMap<String, Vec<f64>>,
}

/// All figures of this run.
#[derive(Default)]
pub(crate) struct Report {
    earlier: Vec<Earlier>,
    figures: BTreeMap<String, Value>,
}

impl Report {
    /// Puts the figures of a file beside those of this run, under the file's name.
    pub(crate) fn compare(&mut self, path: &Path) {
        let text =
            std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let value: Value = serde_json::from_slice(&text).expect("JSON that --json wrote");
        let figures = value.as_object().expect("an object").iter().map(|(name, figure)| {
            let values = figure["values"].as_array().expect("a list").iter();
            (name.clone(), values.filter_map(Value::as_f64).collect())
        });
        let column = path.file_stem().map_or_else(String::new, |stem| stem.display().to_string());
        self.earlier.push(Earlier { column, figures: figures.collect() });
    }

    /// One figure: its median and spread if it was measured more than once.
    pub(crate) fn add(&mut self, name: &str, unit: &str, values: &[f64]) {
        let mut line = format!("{name:<58} {:>28} {unit}", spread(values));
        for Earlier { column, figures } in &self.earlier {
            if let Some(before) = figures.get(name) {
                let ratio = median(values) / median(before);
                line = format!("{line} | {column} {}, × {ratio:.2}", spread(before));
            }
        }
        println!("{line}");
        self.figures.insert(name.to_owned(), json!({ "unit": unit, "values": values }));
    }

    /// The same of one measurement that comes out the same each time.
    pub(crate) fn count(&mut self, name: &str, unit: &str, value: f64) {
        self.add(name, unit, &[value]);
    }

    /// Writes all figures.
    pub(crate) fn write(&self, path: &Path) {
        let text = serde_json::to_string_pretty(&self.figures).expect("it is JSON");
        std::fs::write(path, text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    }
}

/// Figures of one kind from several rounds, by name.
#[derive(Default)]
pub(crate) struct Rounds(Vec<(String, &'static str, Vec<f64>)>);

impl Rounds {
    /// One more value of a figure.
    pub(crate) fn push(&mut self, name: &str, unit: &'static str, value: f64) {
        match self.0.iter_mut().find(|(known, _, _)| known == name) {
            Some((_, _, values)) => values.push(value),
            None => self.0.push((name.to_owned(), unit, vec![value])),
        }
    }

    /// Reports all of them.
    pub(crate) fn report(&self, report: &mut Report) {
        for (name, unit, values) in &self.0 {
            report.add(name, unit, values);
        }
    }
}

/// The middle one.
pub(crate) fn median(values: &[f64]) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn spread(values: &[f64]) -> String {
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    if values.len() == 1 {
        digits(least)
    } else {
        format!("{} ({} to {})", digits(median(values)), digits(least), digits(most))
    }
}

/// Three digits that count, or all before the point; five places at most.
fn digits(value: f64) -> String {
    let places = match value.abs() {
        size if size >= 100.0 => 0,
        size if size >= 10.0 => 1,
        size if size >= 1.0 => 2,
        size if size >= 0.01 || size == 0.0 => 3,
        _ => 5,
    };
    format!("{value:.places$}")
}

/// Times of single calls, in nanoseconds.
#[derive(Default)]
pub(crate) struct Latencies(Vec<u64>);

impl Latencies {
    pub(crate) fn push(&mut self, ns: u64) {
        self.0.push(ns);
    }

    /// The time that a share of the calls do not exceed, in µs.
    pub(crate) fn quantile_us(&mut self, share: f64) -> f64 {
        self.0.sort_unstable();
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an index")]
        let at = (self.0.len() as f64 * share) as usize;
        let ns = self.0.get(at.min(self.0.len().saturating_sub(1)));
        ns.map_or(f64::NAN, |&ns| ns as f64 / 1e3)
    }
}
