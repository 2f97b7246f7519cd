//! Runs programs of libtest, or a command that runs them, and counts their results.
//!
//! Tests that need root, tools or time are marked `#[ignore = "why; run by cargo xtask test"]` in
//! their crates; tests of the longer runs have `--all` or `--soak` behind it. A test that finds at
//! run time that it cannot run prints `SKIP: why` and returns.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use xtask::tally::{Tally, now};
use xtask::watch::{self, Limits, Stuck};

/// How a test says on its own line of output that it could not run; the reason follows.
const SKIP_MARK: &str = "SKIP: ";

/// How much to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Tier {
    /// `cargo xtask test`.
    Standard,
    /// `cargo xtask test --all`.
    All,
    /// `cargo xtask test --soak`.
    Soak,
}

/// The runner of a test that libtest ignores by default.
enum Runner {
    /// A tier, and all tiers above it.
    Tier(Tier),
    /// The virtual machine, or tests of the same file.
    Others,
    /// Only people.
    Nothing,
}

impl Runner {
    /// The runner that the reason of an ignored test names.
    fn of(why: &str) -> Self {
        match why.split_once("run by cargo xtask test") {
            Some((_, "")) => Self::Tier(Tier::Standard),
            Some((_, " --all")) => Self::Tier(Tier::All),
            Some((_, " --soak")) => Self::Tier(Tier::Soak),
            Some((_, " in a virtual machine")) => Self::Others,
            // Not a test, but a program that tests start.
            None if why.ends_with("of the other tests") => Self::Others,
            Some(_) | None => Self::Nothing,
        }
    }
}

/// A way to run tests: a program, or a command that runs programs.
pub(crate) struct Tests<'a> {
    /// A name for people.
    pub(crate) name: String,
    /// The file for its output.
    pub(crate) log: PathBuf,
    /// Makes the command.
    pub(crate) command: &'a dyn Fn() -> Command,
    /// The end of the time for the tests. A program that is ended then has not failed.
    pub(crate) until: Option<Instant>,
}

impl Tests<'_> {
    /// Runs the tests, then the ignored tests that `tier` includes. Prints a line, or all of the
    /// output if a test failed.
    pub(crate) fn run(&self, tier: Tier, tally: &mut Tally) {
        let (start, mut own) = (now(), Tally::default());
        let mut run = self.run_once(&self.log, &["--show-output"], tier, &mut own);
        let later = run.seen.later(tier);
        if !later.is_empty() && !self.is_time_up() {
            // The ignored tests are heavy, and other test programs run at the same time.
            let mut arguments = vec!["--ignored", "--exact", "--show-output", "--test-threads=1"];
            arguments.extend(later);
            let log = self.log.with_added_extension("ignored");
            let heavy = self.run_once(&log, &arguments, tier, &mut own);
            run.output += &heavy.output;
            run.processor += heavy.processor;
        }
        let (name, seconds) = (&self.name, start.elapsed().as_secs_f64());
        let used = run.processor.as_secs_f64();
        let times = format!("{seconds:.1} s, {used:.0} s of processor time");
        if own.has_failed() {
            println!("\n== {name}: {} ({times})\n{}", own.counts(), run.output);
        } else {
            println!("{name} ... {} ({times})", own.counts());
        }
        tally.took(&format!("{name}, {used:.0} s of processor time"), seconds);
        tally.join(own);
    }

    fn is_time_up(&self) -> bool {
        self.until.is_some_and(|until| now() >= until)
    }

    /// Runs to the end and counts.
    fn run_once(&self, log: &Path, arguments: &[&str], tier: Tier, tally: &mut Tally) -> Run {
        let (mut seen, name) = (Seen::default(), &self.name);
        let (output, ended) = match self.output(log, arguments) {
            Ok(outcome) => outcome,
            Err(error) => {
                tally.fail(format!("{name}: {error:#}"));
                return Run::default();
            }
        };
        output.lines().for_each(|line| seen.line(line));
        seen.count(tier, tally);
        if !ended.status.success() && seen.failed == 0 {
            if ended.stuck == Some(Stuck::TimeIsUp) && seen.failing.is_empty() {
                println!("{name}: ended because time is up");
            } else {
                let why = ended.stuck.map_or("", Stuck::why);
                let failing = seen.failing.join(", ");
                tally.fail(format!("{name}: did not run to its end {why} {failing}"));
            }
        }
        Run { output, seen, processor: ended.processor }
    }

    /// Both streams, in the order in which they were written, and how the program ended. They go to
    /// a file instead of a pipe, because processes that a test leaves running may keep it open.
    fn output(&self, log: &Path, arguments: &[&str]) -> Result<(String, watch::Ended)> {
        let file = File::create(log).with_context(|| format!("making {}", log.display()))?;
        let mut command = (self.command)();
        command.args(arguments).stdin(Stdio::null()).stderr(file.try_clone()?).stdout(file);
        let mut child = command.spawn().context("could not start it")?;
        let printed = || fs::metadata(log).map_or(0, |log| log.len());
        let limits = Limits { until: self.until, ..Limits::TESTS };
        let ended = watch::wait(&mut child, limits, &printed).context("waiting for it")?;
        let bytes = fs::read(log).with_context(|| format!("reading {}", log.display()))?;
        Ok((String::from_utf8_lossy(&bytes).into_owned(), ended))
    }
}

/// A run of the program.
#[derive(Default)]
struct Run {
    output: String,
    seen: Seen,
    processor: Duration,
}

/// The results that libtest has printed so far.
#[derive(Default)]
struct Seen {
    passed: u64,
    failed: u64,
    /// Name of the test that runs, when the output shows it.
    current: String,
    failed_names: Vec<String>,
    /// Names of tests that have failed in a program that may not come to its end.
    failing: Vec<String>,
    /// The list that the current test binary prints under its last `failures:`.
    listed: Option<Vec<String>>,
    ignored: Vec<(String, String)>,
    skipped: Vec<(String, String)>,
}

impl Seen {
    fn line(&mut self, line: &str) {
        if let Some(rest) = line.strip_prefix("test result: ") {
            self.passed += number_before(rest, " passed");
            self.failed += number_before(rest, " failed");
            self.failed_names.extend(self.listed.take().unwrap_or_default());
        } else if line == "failures:" {
            // Printed twice: above the output of failed tests, then above their names.
            self.listed = Some(Vec::new());
        } else if let (Some(name), Some(listed)) = (line.strip_prefix("    "), &mut self.listed) {
            listed.push(name.to_owned());
        } else if let Some(rest) = line.strip_prefix("---- ") {
            rest.strip_suffix(" stdout ----").unwrap_or(rest).clone_into(&mut self.current);
        } else if let Some((name, end)) =
            line.strip_prefix("test ").and_then(|rest| rest.split_once(" ... "))
        {
            name.clone_into(&mut self.current);
            if end == "FAILED" {
                self.failing.push(name.to_owned());
            } else if let Some(why) = end.strip_prefix("ignored") {
                let why = why.strip_prefix(", ").unwrap_or("marked as ignored");
                self.ignored.push((name.to_owned(), why.to_owned()));
            }
        }
        if let Some((_, why)) = line.split_once(SKIP_MARK) {
            self.skipped.push((self.current.clone(), why.to_owned()));
        }
    }

    /// Counts the tests that ran, and the ignored tests that this command never runs.
    fn count(&self, tier: Tier, tally: &mut Tally) {
        // A test that prints why it cannot run still passes in libtest's eyes.
        tally.pass(self.passed.saturating_sub(self.skipped.len() as u64));
        self.skipped.iter().for_each(|(name, why)| tally.skip(name, why));
        self.failed_names.iter().for_each(|name| tally.fail(name.clone()));
        for _ in self.failed_names.len() as u64..self.failed {
            tally.fail("a test without a name");
        }
        for (name, why) in &self.ignored {
            match Runner::of(why) {
                Runner::Tier(wanted) if wanted <= tier || wanted == Tier::Soak => {}
                Runner::Tier(_) => tally.leave(1),
                Runner::Others => {}
                Runner::Nothing => tally.skip(name, why),
            }
        }
    }

    /// The ignored tests that this tier runs.
    fn later(&self, tier: Tier) -> Vec<&str> {
        let wanted = |why: &str| matches!(Runner::of(why), Runner::Tier(own) if own <= tier);
        self.ignored.iter().filter(|(_, why)| wanted(why)).map(|(name, _)| &**name).collect()
    }
}

/// The number before `word`: 5 in `ok. 5 passed; 0 failed` for ` passed`.
fn number_before(text: &str, word: &str) -> u64 {
    let Some((before, _)) = text.split_once(word) else { return 0 };
    before.rsplit(' ').next().and_then(|digits| digits.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "\
running 6 tests
test fine ... ok
test mount ... SKIP: no /dev/fuse
ok
test small ... ok
test big ... ignored, needs root; run by cargo xtask test
test long ... ignored, takes hours
test daemon ... ignored, the daemon of the other tests
test huge ... ignored, takes minutes; run by cargo xtask test --all
test years ... ignored, takes years; run by cargo xtask test --soak
test disk ... ignored, needs disks; run by cargo xtask test in a virtual machine
test broken ... FAILED

successes:

---- small stdout ----
SKIP: no room

successes:
    fine
    small

failures:

---- broken stdout ----
    a line of its output

failures:
    broken

test result: FAILED. 3 passed; 1 failed; 3 ignored; 0 measured; 0 filtered out
";

    fn seen() -> Seen {
        let mut seen = Seen::default();
        OUTPUT.lines().for_each(|line| seen.line(line));
        seen
    }

    fn counted(tier: Tier) -> (String, u64) {
        let mut tally = Tally::default();
        seen().count(tier, &mut tally);
        (tally.counts(), tally.left())
    }

    #[test]
    fn libtest_output_is_counted() {
        assert_eq!(counted(Tier::All), ("1 passed, 1 failed, 3 skipped".to_owned(), 0));
        assert_eq!(counted(Tier::Standard), ("1 passed, 1 failed, 3 skipped".to_owned(), 1));
    }

    #[test]
    fn ignored_tests_run_in_tier_they_name() {
        assert_eq!(seen().later(Tier::Standard), ["big"]);
        assert_eq!(seen().later(Tier::All), ["big", "huge"]);
        assert_eq!(seen().later(Tier::Soak), ["big", "huge", "years"]);
    }

    fn run(command: &dyn Fn() -> Command, until: Option<Instant>) -> String {
        let mut tally = Tally::default();
        let dir = tempfile::tempdir().unwrap();
        let (name, log) = ("tests".to_owned(), dir.path().join("log"));
        Tests { name, log, command, until }.run(Tier::Soak, &mut tally);
        tally.counts()
    }

    #[test]
    fn program_that_runs_no_test_is_failure() {
        for program in ["/nonexistent/program", "false"] {
            assert_eq!(run(&|| Command::new(program), None), "0 passed, 1 failed, 0 skipped");
        }
    }

    #[test]
    fn tests_without_time_left_are_not_begun() {
        let starts = std::cell::Cell::new(0);
        let command = || {
            starts.set(starts.get() + 1);
            let mut endless = watch::command("sh");
            let ignored = "test long ... ignored, run by cargo xtask test --soak";
            endless.args(["-c", &format!("echo '{ignored}'; while :; do :; done")]);
            endless
        };
        assert_eq!(run(&command, Some(now())), "0 passed, 0 failed, 0 skipped");
        assert_eq!(starts.get(), 1);
    }
}
