//! Figures of `bench/results/` are of a commit of this history, measured by a command of
//! `bench/commands.txt`, and not older than [`CHANGES_MAX`] changes of the crates.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use bench_support::{Results, Run};
use xtask::run;
use xtask::tally::Tally;

use crate::figures::RESULTS;
use crate::printed::files_of;
use crate::record::{COMMANDS, Measurement, measurements};

/// How many commits may change a crate's code before its figures are measured again, which takes an
/// idle machine an hour: `docs/decisions/age-of-figures.md`.
const CHANGES_MAX: usize = 250;

const NAME: &str = "results of benchmarks";

/// Looks at every run. A shallow clone does not have their commits; the tally then says that
/// nothing is checked.
pub(super) fn check(root: &Path, tally: &mut Tally) {
    let git =
        |arguments: &[&str]| run::quietly(Command::new("git").args(arguments).current_dir(root));
    if git(&["rev-parse", "--is-shallow-repository"]).is_ok_and(|told| told.trim() == "false") {
        let changes = |commit: &str| {
            git(&["merge-base", "--is-ancestor", commit, "HEAD"])?;
            let range = format!("{commit}..HEAD");
            let count = git(&["rev-list", "--count", &range, "--", ":(glob)crates/*/src/**"])?;
            Ok(count.trim().parse()?)
        };
        tally.check(NAME, || all(root, changes));
    } else {
        tally.skip(NAME, "none is checked: this is no whole history");
    }
}

/// `changes` counts the later commits that change a crate.
fn all(root: &Path, changes: impl Fn(&str) -> Result<usize>) -> Result<()> {
    let text = fs::read_to_string(root.join(COMMANDS)).context(COMMANDS)?;
    let known: Vec<&str> = measurements(&text)?.iter().map(Measurement::recorded).collect();
    let mut wrong = Vec::new();
    for path in files_of(&root.join(RESULTS))? {
        let results = Results::read(&path).with_context(|| path.display().to_string())?;
        for run in &results.runs {
            if let Err(error) = of_run(run, &known, &changes) {
                wrong.push(format!("{}, {}: {error:#}", path.display(), run.subject));
            }
        }
    }
    ensure!(wrong.is_empty(), "measure with `cargo xtask bench record`:\n{}", wrong.join("\n"));
    Ok(())
}

fn of_run(run: &Run, known: &[&str], changes: impl Fn(&str) -> Result<usize>) -> Result<()> {
    ensure!(known.contains(&run.command.as_str()), "{COMMANDS} has no `{}`", run.command);
    for (fact, value) in [("date", &run.date), ("machine", &run.machine), ("load", &run.load)] {
        ensure!(!value.is_empty(), "it has no {fact}");
    }
    let is_commit = !run.commit.is_empty() && run.commit.bytes().all(|at| at.is_ascii_hexdigit());
    ensure!(is_commit, "`{}` is no commit", run.commit);
    let later = changes(&run.commit).with_context(|| format!("commit {}", run.commit))?;
    ensure!(later <= CHANGES_MAX, "{later} later commits change the crates, {CHANGES_MAX} may");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured() -> Run {
        Run {
            command: "measure all".into(),
            commit: "c0ffee12".into(),
            date: "2026-11-24".into(),
            machine: "a processor".into(),
            load: "0.1".into(),
            ..Run::default()
        }
    }

    fn objection(run: &Run, later: usize) -> Option<String> {
        let found = of_run(run, &["measure all"], |_| Ok(later));
        found.err().map(|error| format!("{error:#}"))
    }

    #[test]
    fn run_of_recent_commit_by_known_command_passes() {
        assert_eq!(objection(&measured(), CHANGES_MAX), None);
    }

    #[test]
    fn run_that_lacks_a_fact_or_is_old_is_refused() {
        let changed = |change: fn(&mut Run)| {
            let mut run = measured();
            change(&mut run);
            objection(&run, 0).expect("it is refused")
        };
        assert!(changed(|run| run.command = "by hand".into()).contains("by hand"));
        assert!(changed(|run| run.date.clear()).contains("no date"));
        assert!(changed(|run| run.machine.clear()).contains("no machine"));
        assert!(changed(|run| run.load.clear()).contains("no load"));
        assert!(changed(|run| run.commit.clear()).contains("no commit"));
        assert!(changed(|run| run.commit.push_str("-dirty")).contains("-dirty"));
        let old = objection(&measured(), CHANGES_MAX + 1).expect("it is refused");
        assert!(old.contains("251 later commits"), "{old}");
    }

    #[test]
    fn commit_of_another_history_is_refused() {
        let found = of_run(&measured(), &["measure all"], |_| anyhow::bail!("not an ancestor"));
        let error = format!("{:#}", found.expect_err("it is refused"));
        assert!(error.contains("c0ffee12") && error.contains("not an ancestor"), "{error}");
    }
}
