//! Starts programs: quietly, keeping the output for a failure, or live, counting libtest's results.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::tally::Tally;

/// How a test says on its own line of output that it could not run; the reason follows.
const SKIP_MARK: &str = "SKIP: ";

/// The reason of an ignored "test" that is no test: a program that tests of the same file start.
const NO_TEST: &str = "the daemon of the other tests";

/// What the reason of an ignored test contains if the last step of the full run includes it.
const RUN_LATER: &str = "cargo xtask test";

/// What becomes of tests that libtest reports as ignored.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ignored {
    /// Those that say so are run by another step; the others count as skipped.
    RunLater,
    /// Nothing runs them: they count as skipped.
    Skipped,
}

/// Runs to the end; an error carries all that was printed.
pub(crate) fn quietly(command: &mut Command) -> Result<String> {
    let shown = show(command);
    let output = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("could not start `{shown}`"))?;
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        bail!("`{shown}` ended with {}\n{stdout}{stderr}", output.status);
    }
    Ok(stdout)
}

/// Runs a test command, passing its output through as it comes, and counts its results.
pub(crate) fn tests(name: &str, command: &mut Command, ignored: Ignored, tally: &mut Tally) {
    let shown = show(command);
    println!("\n== {name}: {shown}");
    let mut seen = Seen::default();
    let failures = tally.failures();
    match stream(command, |line| seen.line(line)) {
        Ok(success) => {
            seen.count(ignored, tally);
            if !success && tally.failures() == failures {
                tally.fail(format!("{name}: did not run to its end"));
            }
        }
        Err(error) => tally.fail(format!("{name}: {error:#}")),
    }
}

/// Runs, passing standard output through line by line; says whether it ended well.
fn stream(command: &mut Command, mut each: impl FnMut(&str)) -> Result<bool> {
    let shown = show(command);
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("could not start `{shown}`"))?;
    let stdout = child.stdout.take().expect("stdout is piped");
    let mut reader = BufReader::new(stdout);
    let mut line = Vec::new();
    while reader.read_until(b'\n', &mut line).context("reading a test's output")? > 0 {
        let text = String::from_utf8_lossy(&line);
        print!("{text}");
        each(text.trim_end());
        line.clear();
    }
    Ok(child.wait().context("waiting for a test")?.success())
}

fn show(command: &Command) -> String {
    let program = command.get_program().to_string_lossy().into_owned();
    let arguments = command.get_args().map(|argument| argument.to_string_lossy().into_owned());
    std::iter::once(program).chain(arguments).collect::<Vec<_>>().join(" ")
}

/// What libtest has printed so far.
#[derive(Default)]
struct Seen {
    passed: u64,
    failed: u64,
    /// Name of the test that runs, when the output shows it.
    current: String,
    failed_names: Vec<String>,
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
            // Printed twice: above the output of those that failed, then above their names.
            self.listed = Some(Vec::new());
        } else if let (Some(name), Some(listed)) = (line.strip_prefix("    "), &mut self.listed) {
            listed.push(name.to_owned());
        } else if let Some(name) =
            line.strip_prefix("---- ").and_then(|rest| rest.strip_suffix(" stdout ----"))
        {
            name.clone_into(&mut self.current);
        } else if let Some((name, end)) =
            line.strip_prefix("test ").and_then(|rest| rest.split_once(" ... "))
        {
            name.clone_into(&mut self.current);
            if let Some(why) = end.strip_prefix("ignored") {
                let why = why.strip_prefix(", ").unwrap_or("marked as ignored");
                self.ignored.push((name.to_owned(), why.to_owned()));
            }
        }
        if let Some((_, why)) = line.split_once(SKIP_MARK) {
            self.skipped.push((self.current.clone(), why.to_owned()));
        }
    }

    fn count(&self, ignored: Ignored, tally: &mut Tally) {
        // A test that prints why it cannot run still passes in libtest's eyes.
        tally.pass(self.passed.saturating_sub(self.skipped.len() as u64));
        for (name, why) in &self.skipped {
            tally.skip(name, why);
        }
        let left_out = |why: &str| match ignored {
            Ignored::Skipped => why != NO_TEST,
            Ignored::RunLater => why != NO_TEST && !why.contains(RUN_LATER),
        };
        for (name, why) in self.ignored.iter().filter(|(_, why)| left_out(why)) {
            tally.skip(name, why);
        }
        for name in &self.failed_names {
            tally.fail(name.clone());
        }
        for _ in self.failed_names.len() as u64..self.failed {
            tally.fail("a test without a name");
        }
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

    fn tally(ignored: Ignored) -> Tally {
        let mut seen = Seen::default();
        OUTPUT.lines().for_each(|line| seen.line(line));
        let mut tally = Tally::default();
        seen.count(ignored, &mut tally);
        tally
    }

    #[test]
    fn libtest_output_is_counted() {
        assert_eq!(tally(Ignored::RunLater).counts(), "1 passed, 1 failed, 3 skipped");
        assert_eq!(tally(Ignored::Skipped).counts(), "1 passed, 1 failed, 4 skipped");
    }

    #[test]
    fn a_command_that_cannot_start_is_a_failure() {
        let mut tally = Tally::default();
        let mut command = Command::new("/nonexistent/program");
        super::tests("absent", &mut command, Ignored::RunLater, &mut tally);
        assert_eq!(tally.counts(), "0 passed, 1 failed, 0 skipped");
    }

    #[test]
    fn a_command_that_fails_without_results_is_a_failure() {
        let mut tally = Tally::default();
        super::tests("false", &mut Command::new("false"), Ignored::RunLater, &mut tally);
        assert_eq!(tally.counts(), "0 passed, 1 failed, 0 skipped");
    }
}
