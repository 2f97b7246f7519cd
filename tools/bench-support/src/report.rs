//! The report of a benchmark: prints figures as they come, or as tables at the end, and writes them
//! as JSON.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::figures::{Spread, median, ratio};
use crate::results::{Figure, Results, Run, table};

/// All figures of a benchmark.
///
/// It takes two options of the command line: `--json FILE` puts the runs into that file, in place
/// of its runs of the same subjects, and `--before FILE`, which may be repeated, prints the
/// figures of another run next to them.
pub struct Report {
    template: Run,
    runs: Vec<Run>,
    earlier: Vec<(String, Results)>,
    json: Option<PathBuf>,
}

impl Report {
    /// Begins with `command`, which measures again, and takes the options out of `arguments`.
    pub fn begin(command: &str, arguments: &mut Vec<String>) -> Self {
        let (mut json, mut earlier, mut rest) = (None, Vec::new(), Vec::new());
        let mut given = std::mem::take(arguments).into_iter();
        while let Some(argument) = given.next() {
            let mut path = || PathBuf::from(given.next().expect("a file behind the option"));
            match argument.as_str() {
                "--json" => json = Some(path()),
                "--before" => earlier.push(named(&path())),
                // Cargo says it to every benchmark.
                "--bench" => {}
                _ => rest.push(argument),
            }
        }
        let mark = if command.starts_with("cargo bench") { " --" } else { "" };
        let words =
            if rest.is_empty() { String::new() } else { format!("{mark} {}", rest.join(" ")) };
        let build = if cfg!(debug_assertions) { " (debug build)" } else { "" };
        let template = Run { command: format!("{command}{words}{build}"), ..of_machine() };
        *arguments = rest;
        Self { template, runs: Vec::new(), earlier, json }
    }

    /// Begins the subject of the next figures.
    pub fn subject(&mut self, subject: &str, rounds: usize) {
        self.runs.push(Run {
            subject: subject.into(),
            rounds,
            load: load(),
            ..self.template.clone()
        });
    }

    /// A figure that is printed at once.
    #[expect(clippy::print_stdout, reason = "it is a benchmark's result")]
    pub fn add(&mut self, name: &str, unit: &str, samples: &[f64]) {
        let spread =
            |values: &[f64]| Spread::of(values).map_or_else(String::new, |s| s.to_string());
        let mut line = format!("{name:<58} {:>28} {unit}", spread(samples));
        for (column, results) in &self.earlier {
            let all = results.runs.iter().flat_map(|run| &run.results);
            let mut same =
                all.filter(|of| of.name == name && of.variant.is_empty() && of.unit == unit);
            if let Some(figure) = same.next() {
                let ratio = median(samples) / median(&figure.samples);
                line = format!("{line} | {column} {}, × {ratio:.2}", figure.text());
            }
        }
        println!("{line}");
        self.record(Figure {
            name: name.into(),
            unit: unit.into(),
            samples: samples.into(),
            ..Figure::default()
        });
    }

    /// A figure of one measurement, printed at once.
    pub fn count(&mut self, name: &str, unit: &str, value: f64) {
        self.add(name, unit, &[value]);
    }

    /// A figure of one variant, for the tables that [`Self::end`] prints.
    pub fn add_variant(&mut self, (name, variant): (&str, &str), unit: &str, samples: &[f64]) {
        self.add_beside((name, variant), unit, samples, &[]);
    }

    /// The same, with its ratio to another variant in the same rounds.
    pub fn add_beside(
        &mut self,
        (name, variant): (&str, &str),
        unit: &str,
        samples: &[f64],
        base: &[f64],
    ) {
        if samples.is_empty() {
            return;
        }
        let ratio = (!base.is_empty()).then(|| ratio(samples, base));
        self.record(Figure {
            name: name.into(),
            variant: variant.into(),
            unit: unit.into(),
            samples: samples.into(),
            ratio,
        });
    }

    /// A figure that is not printed.
    pub fn record(&mut self, figure: Figure) {
        // JSON has no infinity and no NaN.
        if figure.samples.iter().all(|sample| sample.is_finite()) {
            self.runs.last_mut().expect("a subject comes first").results.push(figure);
        }
    }

    /// Prints the tables, and writes the file of `--json`.
    #[expect(clippy::print_stdout, reason = "it is a benchmark's result")]
    pub fn end(self) {
        for run in &self.runs {
            let mut units: Vec<&str> = Vec::new();
            let figures = run.results.iter().filter(|figure| !figure.variant.is_empty());
            let figures: Vec<&Figure> = figures.collect();
            for figure in &figures {
                if !units.contains(&figure.unit.as_str()) {
                    units.push(&figure.unit);
                }
            }
            for unit in units {
                let of_unit: Vec<&Figure> =
                    figures.iter().copied().filter(|figure| figure.unit == unit).collect();
                println!("\n{}\n\n{}", run.subject, table(&of_unit));
            }
        }
        self.write();
    }

    /// Writes the file of `--json`, if that was given.
    pub fn write(self) {
        let Some(path) = &self.json else { return };
        let mut results = if path.exists() { named(path).1 } else { Results::default() };
        results.replace(self.runs.into_iter().filter(|run| !run.results.is_empty()).collect());
        std::fs::write(path, results.to_json())
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    }
}

fn named(path: &Path) -> (String, Results) {
    let results = Results::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    (path.file_stem().map_or_else(String::new, |stem| stem.display().to_string()), results)
}

/// Machine, commit and day.
fn of_machine() -> Run {
    let cpus = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpus.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let (_, model) = model.unwrap_or_default();
    let count = cpus.lines().filter(|line| line.starts_with("processor")).count();
    let kernel = printed("uname", &["-sr"]).unwrap_or_default();
    Run {
        machine: format!("{model}, {count} processors, {kernel}"),
        commit: commit().unwrap_or_default(),
        date: printed("date", &["-u", "+%F"]).unwrap_or_default(),
        ..Run::default()
    }
}

/// Behind a commit from which the code differs.
pub const DIRTY: &str = "-dirty";

/// The commit of the working directory, with [`DIRTY`] if its code differs. A virtual machine
/// without git gets it from its host.
pub fn commit() -> Option<String> {
    let commit = printed("git", &["rev-parse", "--short=8", "HEAD"])?;
    // New figures wait there to be committed, and charts of them.
    let code = [":/", ":(top,exclude)bench/results", ":(top,exclude)docs/pictures"];
    let is_dirty =
        printed("git", &[&["status", "--porcelain", "--"][..], &code].concat()).is_some();
    Some(if is_dirty { format!("{commit}{DIRTY}") } else { commit })
}

fn load() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().unwrap_or_default().to_owned()
}

fn printed(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    (output.status.success() && !text.is_empty()).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_taken_and_figures_written_and_compared() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("old.json").display().to_string();
        let begin = || {
            let words = ["--bench", "--json", &path, "names"].map(str::to_owned);
            let mut arguments = Vec::from(words);
            let report = Report::begin("cargo bench", &mut arguments);
            assert_eq!(arguments, ["names"]);
            report
        };
        for value in [1.0, 2.0] {
            let mut report = begin();
            report.subject("names", 1);
            report.add("creates", "µs", &[value]);
            report.add_beside(("read", "ext4"), "µs", &[value * 4.0], &[2.0]);
            report.add_variant(("read", "tmpfs"), "µs", &[f64::NAN]);
            report.end();
        }
        let results = Results::read(Path::new(&path)).expect("it was written");
        let [run] = &results.runs[..] else { panic!("{results:?}") };
        assert!(run.command.starts_with("cargo bench -- names"), "{}", run.command);
        let found: Vec<_> = run.results.iter().map(Figure::text).collect();
        assert_eq!(found, ["2", "8 (4)"]);
    }
}
