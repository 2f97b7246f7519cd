//! `cargo xtask bench record`: measures every figure of `bench/results/` anew, on an idle machine
//! and a commit without changes, by the commands of `bench/commands.txt`.

use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, ensure};
use bench_support::{DIRTY, Results};
use xtask::tally::timed;

use crate::figures::RESULTS;

pub(crate) const COMMANDS: &str = "bench/commands.txt";

/// A command, and the file for its figures.
pub(crate) struct Measurement<'a> {
    file: &'a str,
    command: &'a str,
}

/// Runs the commands whose line contains `filter`. One that fails leaves its figures as they were.
pub(crate) fn main(root: &Path, filter: Option<&str>) -> Result<ExitCode> {
    let commit = bench_support::commit().context("git names no commit")?;
    let is_clean = !commit.ends_with(DIRTY);
    ensure!(is_clean, "commit the changes first: figures name the commit they measure");
    let text = fs::read_to_string(root.join(COMMANDS)).context(COMMANDS)?;
    let mut all = measurements(&text)?;
    all.retain(|of| {
        filter.is_none_or(|filter| format!("{}: {}", of.file, of.command).contains(filter))
    });
    ensure!(!all.is_empty(), "no line of {COMMANDS} contains {}", filter.unwrap_or_default());
    let (count, mut failed) = (all.len(), Vec::new());
    for (nth, measurement) in all.into_iter().enumerate() {
        println!("{} of {count}: {}", nth + 1, measurement.command);
        let (outcome, seconds) = timed(|| measurement.run(root));
        if let Err(error) = outcome {
            println!("error: {error:#}");
            failed.push(measurement.command);
        }
        println!("took {seconds:.0} s\n");
    }
    ensure!(
        failed.is_empty(),
        "failed, and left their figures as they were: {}",
        failed.join("; ")
    );
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn measurements(text: &str) -> Result<Vec<Measurement<'_>>> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let parsed = lines.map(|line| {
        let (file, command) =
            line.split_once(": ").with_context(|| format!("no `: ` in `{line}`"))?;
        Ok(Measurement { file, command })
    });
    parsed.collect()
}

impl<'a> Measurement<'a> {
    /// The command as its results have it.
    pub(crate) fn recorded(&self) -> &'a str {
        self.command.trim_end_matches(" --")
    }

    /// Replaces the subjects that the command measures.
    fn run(&self, root: &Path) -> Result<()> {
        let folder = tempfile::tempdir()?;
        let new = folder.path().join(self.file);
        let mut words = self.command.split(' ');
        let mut command = Command::new(words.next().unwrap_or_default());
        command.current_dir(root).args(words);
        let status = command.arg("--json").arg(&new).status().context("could not start it")?;
        ensure!(status.success(), "it ended with {status}");
        let new = Results::read(&new).context("it wrote no figures")?;
        let path = root.join(RESULTS).join(self.file);
        let mut kept = Results::read(&path).with_context(|| path.display().to_string())?;
        kept.replace(new.runs);
        fs::write(&path, kept.to_json()).with_context(|| path.display().to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn measurement_lines_name_file_and_command() {
        let text = "# words\na.json: cargo bench -- x: y\nb.json: cargo bench --\n";
        let found = measurements(text).expect("two lines");
        let found: Vec<_> = found.iter().map(|of| (of.file, of.command, of.recorded())).collect();
        let first = ("a.json", "cargo bench -- x: y", "cargo bench -- x: y");
        assert_eq!(found, [first, ("b.json", "cargo bench --", "cargo bench")]);
        assert!(measurements("a.json cargo\n").is_err());
    }
}
