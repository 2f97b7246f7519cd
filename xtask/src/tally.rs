//! What passed, failed and was skipped, over everything that a task runs.
//!
//! The last line that [`Tally::print`] prints is `N passed, N failed, N skipped`: other programs
//! read it.

use std::time::Instant;

/// Counts, and the names behind those that did not pass.
#[derive(Default)]
pub(crate) struct Tally {
    passed: u64,
    failed: Vec<String>,
    skipped: Vec<String>,
}

impl Tally {
    /// Counts `count` tests that passed.
    pub(crate) fn pass(&mut self, count: u64) {
        self.passed += count;
    }

    /// Notes one failure.
    pub(crate) fn fail(&mut self, what: impl Into<String>) {
        self.failed.push(what.into());
    }

    /// Notes one test that could not run, and why.
    pub(crate) fn skip(&mut self, what: &str, why: &str) {
        self.skipped.push(format!("{what}: {why}"));
    }

    /// How many have failed so far.
    pub(crate) fn failures(&self) -> usize {
        self.failed.len()
    }

    /// Whether nothing has failed.
    pub(crate) fn is_clean(&self) -> bool {
        self.failed.is_empty()
    }

    /// Runs one check, prints how it went and counts it.
    pub(crate) fn check(&mut self, name: &str, check: impl FnOnce() -> anyhow::Result<()>) {
        let start = now();
        let outcome = check();
        let seconds = start.elapsed().as_secs_f64();
        match outcome {
            Ok(()) => {
                println!("check {name} ... ok ({seconds:.1} s)");
                self.pass(1);
            }
            Err(error) => {
                println!("check {name} ... FAILED\n{error:#}");
                self.fail(format!("check {name}"));
            }
        }
    }

    /// Adds what another run of this program counted, from what it printed.
    pub(crate) fn add(&mut self, printed: &str) -> anyhow::Result<()> {
        let last = printed.lines().next_back().unwrap_or_default();
        let passed: Option<u64> =
            last.split_once(" passed, ").and_then(|(count, _)| count.parse().ok());
        let Some(passed) = passed else { anyhow::bail!("it did not run to its end") };
        self.passed += passed;
        let after = |mark| printed.lines().filter_map(move |line: &str| line.strip_prefix(mark));
        self.failed.extend(after("FAILED   ").map(str::to_owned));
        self.skipped.extend(after("skipped  ").map(str::to_owned));
        Ok(())
    }

    /// Prints the names of what failed and what was skipped, then the counts.
    pub(crate) fn print(&self) {
        println!();
        for line in &self.skipped {
            println!("skipped  {line}");
        }
        for line in &self.failed {
            println!("FAILED   {line}");
        }
        println!("{}", self.counts());
    }

    /// `N passed, N failed, N skipped`.
    pub(crate) fn counts(&self) -> String {
        let (failed, skipped) = (self.failed.len(), self.skipped.len());
        format!("{} passed, {failed} failed, {skipped} skipped", self.passed)
    }
}

/// The only clock of this program.
#[expect(clippy::disallowed_methods, reason = "tells people how long a step took")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adds_what_another_run_printed() {
        let mut tally = Tally::default();
        let printed = "check a ... ok (0.1 s)\n\nFAILED   check b\n2 passed, 1 failed, 0 skipped\n";
        tally.add(printed).unwrap();
        assert_eq!(tally.counts(), "2 passed, 1 failed, 0 skipped");
        assert!(tally.add("check a ... ok (0.1 s)\n").is_err());
    }

    #[test]
    fn counts_what_it_is_told() {
        let mut tally = Tally::default();
        tally.pass(3);
        tally.skip("suite", "no /dev/fuse");
        tally.check("good", || Ok(()));
        assert!(tally.is_clean());
        tally.check("bad", || anyhow::bail!("no"));
        assert!(!tally.is_clean());
        assert_eq!(tally.counts(), "4 passed, 1 failed, 1 skipped");
    }
}
