//! Results of benchmarks as JSON, and tables of them.
//!
//! A file holds runs; a run holds the figures of one command on one commit and one machine.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;
use std::{fs, io};

use serde::{Deserialize, Serialize};

use crate::figures::{Spread, digits};

/// A file of `bench/results/`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Results {
    /// In the order of the tables.
    pub runs: Vec<Run>,
}

/// The figures of one command.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Run {
    /// Which part of the benchmark it is; documents ask for it by this name.
    pub subject: String,
    /// How to measure again.
    pub command: String,
    /// The commit that was measured.
    pub commit: String,
    /// The day, as 2026-11-24.
    pub date: String,
    /// Processor, number of processors, kernel.
    pub machine: String,
    /// Load average of the machine.
    pub load: String,
    /// The number of rounds.
    pub rounds: usize,
    /// Each figure has another name, variant or unit.
    pub results: Vec<Figure>,
}

/// One figure, with the values of several rounds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figure {
    /// The measured work: a row of a table.
    pub name: String,
    /// Where or how: a column of a table. Empty if there is one alone.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub variant: String,
    /// µs, bytes, operations a second.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub unit: String,
    /// One of each round.
    pub samples: Vec<f64>,
    /// The median of the ratios to another variant in the same rounds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ratio: Option<f64>,
}

impl Figure {
    /// Samples without a unit.
    pub fn new(name: impl Into<String>, variant: impl Into<String>, samples: Vec<f64>) -> Self {
        Self { name: name.into(), variant: variant.into(), samples, ..Self::default() }
    }

    /// The cell of a table: median, bounds, ratio. Two samples are both shown.
    pub fn text(&self) -> String {
        let value = match self.samples[..] {
            [one, two] => format!("{}, {}", digits(one), digits(two)),
            _ => Spread::of(&self.samples).map_or_else(String::new, |spread| spread.to_string()),
        };
        let Some(ratio) = self.ratio.filter(|ratio| ratio.is_finite()) else { return value };
        match value.strip_suffix(')') {
            Some(with_bounds) => format!("{with_bounds}; {})", digits(ratio)),
            None => format!("{value} ({})", digits(ratio)),
        }
    }
}

impl Results {
    /// Reads a file.
    pub fn read(path: &Path) -> io::Result<Self> {
        Ok(serde_json::from_slice(&fs::read(path)?)?)
    }

    /// Puts new runs in place of all runs of their subjects.
    pub fn replace(&mut self, new: Vec<Run>) {
        let is_new = |subject: &str| new.iter().any(|run| run.subject == subject);
        let place = self.runs.iter().position(|run| is_new(&run.subject));
        let place = place.unwrap_or(self.runs.len());
        self.runs.retain(|run| !is_new(&run.subject));
        self.runs.splice(place..place, new);
    }

    /// The runs as JSON, a line for each figure.
    pub fn to_json(&self) -> String {
        let json = |value: serde_json::Result<String>| value.expect("strings and numbers");
        let runs: Vec<String> = self
            .runs
            .iter()
            .map(|run| {
                let head = json(serde_json::to_string(&Run { results: Vec::new(), ..run.clone() }));
                let lines: Vec<String> =
                    run.results.iter().map(|figure| json(serde_json::to_string(figure))).collect();
                format!("{}[\n{}\n]}}", head.trim_end_matches("[]}"), lines.join(",\n"))
            })
            .collect();
        format!("{{\"runs\":[\n{}\n]}}\n", runs.join(",\n"))
    }
}

/// A table in Markdown: a row for each name, a column for each variant, in their order. A unit that
/// all share stands in the corner, one of a column at its head, others in the rows.
pub fn table(figures: &[&Figure]) -> String {
    let columns =
        unique(figures.iter().map(|figure| (figure.variant.as_str(), figure.unit.as_str())));
    let variants = unique(figures.iter().map(|figure| figure.variant.as_str()));
    let units = unique(figures.iter().map(|figure| figure.unit.as_str()));
    let by_row = units.len() > 1 && columns.len() > variants.len();
    let corner = if units.len() == 1 { units[0] } else { "" };
    let heads = variants.iter().map(|&variant| {
        let name = if variant.is_empty() && variants.len() > 1 { "now" } else { variant };
        let unit = columns.iter().find(|(of, _)| *of == variant).map_or("", |(_, unit)| unit);
        if units.len() == 1 || by_row { name.to_owned() } else { joined(name, unit) }
    });
    let heads: Vec<String> = heads.collect();
    let mut text = format!("| {corner} | {} |\n", heads.join(" | "));
    writeln!(text, "| --- |{}", " --- |".repeat(heads.len())).expect("a string takes all");
    let row = |figure: &Figure| {
        (figure.name.clone(), if by_row { figure.unit.clone() } else { String::new() })
    };
    for (name, unit) in unique(figures.iter().map(|figure| row(figure))) {
        let cell = |variant: &&str| {
            let is_it = |figure: &&&Figure| {
                figure.variant == *variant && row(figure) == (name.clone(), unit.clone())
            };
            figures.iter().find(is_it).map_or_else(String::new, |figure| figure.text())
        };
        let cells: Vec<String> = variants.iter().map(cell).collect();
        writeln!(text, "| {} | {} |", joined(&name, &unit), cells.join(" | "))
            .expect("a string takes all");
    }
    text
}

fn joined(name: &str, unit: &str) -> String {
    match (name, unit) {
        (name, "") => name.to_owned(),
        ("", unit) => unit.to_owned(),
        (name, unit) => format!("{name}, {unit}"),
    }
}

fn unique<T: Clone + Ord>(values: impl Iterator<Item = T>) -> Vec<T> {
    let mut seen = BTreeSet::new();
    values.filter(|value| seen.insert(value.clone())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(name: &str, variant: &str, unit: &str, samples: &[f64]) -> Figure {
        Figure {
            name: name.into(),
            variant: variant.into(),
            unit: unit.into(),
            samples: samples.into(),
            ..Figure::default()
        }
    }

    #[test]
    fn table_places_units_in_corner_head_or_row() {
        let of = |figures: &[Figure]| table(&figures.iter().collect::<Vec<_>>());
        let one = [figure("read", "a", "µs", &[1.0, 2.0, 4.0]), figure("read", "b", "µs", &[3.0])];
        assert_eq!(of(&one), "| µs | a | b |\n| --- | --- | --- |\n| read | 2 (1 to 4) | 3 |\n");
        let columns = [figure("read", "a", "µs", &[1.0]), figure("read", "b", "s", &[1.0, 2.0])];
        assert!(of(&columns).starts_with("|  | a, µs | b, s |\n"), "{}", of(&columns));
        assert!(of(&columns).ends_with("| read | 1 | 1, 2 |\n"), "{}", of(&columns));
        let rows = [
            figure("read", "", "µs", &[1.0]),
            figure("write", "", "s", &[2.0]),
            figure("read", "before", "µs", &[5.0]),
        ];
        assert_eq!(
            of(&rows),
            "|  | now | before |\n| --- | --- | --- |\n| read, µs | 1 | 5 |\n| write, s | 2 |  |\n"
        );
    }

    #[test]
    fn figure_shows_two_samples_bounds_of_more_and_its_ratio() {
        let text =
            |samples: &[f64], ratio| Figure { ratio, ..figure("read", "", "µs", samples) }.text();
        assert_eq!(text(&[2.0], None), "2");
        assert_eq!(text(&[2.0, 3.0], Some(1.5)), "2, 3 (1.5)");
        assert_eq!(text(&[1.0, 2.0, 3.0], Some(1.5)), "2 (1 to 3; 1.5)");
    }

    #[test]
    fn new_runs_replace_all_runs_of_their_subjects() {
        let run = |subject: &str, commit: &str| Run {
            subject: subject.into(),
            commit: commit.into(),
            ..Run::default()
        };
        let mut results =
            Results { runs: vec![run("a", "1"), run("b", "1"), run("b", "2"), run("c", "1")] };
        results.replace(vec![run("b", "3"), run("d", "3")]);
        assert_eq!(results.runs, [run("a", "1"), run("b", "3"), run("d", "3"), run("c", "1")]);
    }

    #[test]
    fn json_is_read_back_and_has_a_line_for_each_figure() {
        let results = Results {
            runs: vec![Run {
                subject: "names".into(),
                results: vec![figure("a", "x", "µs", &[1.5]), figure("b", "", "", &[2.0])],
                ..Run::default()
            }],
        };
        let text = results.to_json();
        assert_eq!(text.lines().count(), 6, "{text}");
        assert_eq!(serde_json::from_str::<Results>(&text).expect("JSON"), results);
        assert!(serde_json::from_str::<Results>("{\"runs\":[],\"rums\":[]}").is_err());
        let anonymous = text.replace("\"commit\":\"\",", "");
        assert!(serde_json::from_str::<Results>(&anonymous).is_err(), "{anonymous}");
    }
}
