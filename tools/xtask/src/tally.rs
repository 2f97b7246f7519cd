//! Counts of passed, failed and skipped checks, over everything that a task runs.
//!
//! The last line that a run prints is [`Tally::counts`]: other programs read it.

use std::process::ExitCode;
use std::time::Instant;

/// Counts, and the names of failed and skipped checks.
#[derive(Default)]
pub struct Tally {
    passed: u64,
    /// Tests that only a longer run includes.
    left: u64,
    failed: Vec<String>,
    skipped: Vec<String>,
    /// Parts of the run, and the seconds that each took.
    took: Vec<(f64, String)>,
}

/// Parts that a run names at its end.
const LONGEST: usize = 10;

impl Tally {
    /// Counts `count` tests that passed.
    pub fn pass(&mut self, count: u64) {
        self.passed += count;
    }

    /// Notes one failure.
    pub fn fail(&mut self, what: impl Into<String>) {
        self.failed.push(what.into());
    }

    /// Notes one test that could not run, and why.
    pub fn skip(&mut self, what: &str, why: &str) {
        self.skipped.push(format!("{what}: {why}"));
    }

    /// Notes how long a part of the run took.
    pub fn took(&mut self, name: &str, seconds: f64) {
        self.took.push((seconds, name.to_owned()));
    }

    /// Runs a part and notes how long it took; returns the seconds too.
    pub fn timed<T>(&mut self, name: &str, part: impl FnOnce() -> T) -> (T, f64) {
        let (result, seconds) = timed(part);
        self.took(name, seconds);
        (result, seconds)
    }

    /// The parts that took longest, a line each, the longest first.
    pub fn longest(&self) -> String {
        let mut took: Vec<_> = self.took.iter().collect();
        took.sort_by(|one, other| other.0.total_cmp(&one.0));
        let line = |(seconds, name): &&(f64, String)| format!("{seconds:>7.0} s  {name}\n");
        took.iter().take(LONGEST).map(line).collect()
    }

    /// Notes tests that only a longer run makes.
    pub fn leave(&mut self, count: u64) {
        self.left += count;
    }

    /// How many of them there are.
    pub fn left(&self) -> u64 {
        self.left
    }

    /// How many have run or were skipped so far.
    pub fn total(&self) -> u64 {
        self.passed + (self.failed.len() + self.skipped.len()) as u64
    }

    /// Adds the counts of another part of this run.
    pub fn join(&mut self, other: Self) {
        let Self { passed, left, failed, skipped, took } = other;
        self.passed += passed;
        self.left += left;
        self.failed.extend(failed);
        self.skipped.extend(skipped);
        self.took.extend(took);
    }

    /// Whether something has failed.
    pub fn has_failed(&self) -> bool {
        !self.failed.is_empty()
    }

    /// The same as an exit code.
    pub fn code(&self) -> ExitCode {
        if self.has_failed() { ExitCode::FAILURE } else { ExitCode::SUCCESS }
    }

    /// Runs one check, prints how it went and counts it.
    pub fn check(&mut self, name: &str, check: impl FnOnce() -> anyhow::Result<()>) {
        let (outcome, seconds) = self.timed(&format!("check {name}"), check);
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

    /// Adds the counts of another run of this program, from its output.
    pub fn add(&mut self, printed: &str) -> anyhow::Result<()> {
        let last = printed.lines().next_back().unwrap_or_default();
        let passed: Option<u64> =
            last.split_once(" passed, ").and_then(|(count, _)| count.parse().ok());
        let Some(passed) = passed else { anyhow::bail!("it did not run to its end") };
        self.passed += passed;
        // Paragraphs before the last one may quote the counts of other programs.
        let names = printed.rsplit("\n\n").next().unwrap_or_default();
        let after = |mark| names.lines().filter_map(move |line: &str| line.strip_prefix(mark));
        self.failed.extend(after("FAILED   ").map(str::to_owned));
        self.skipped.extend(after("skipped  ").map(str::to_owned));
        self.left += after("left     ").filter_map(|count| count.parse::<u64>().ok()).sum::<u64>();
        Ok(())
    }

    /// The names of failed and skipped checks, a line each.
    pub fn names(&self) -> String {
        let skipped = self.skipped.iter().map(|line| format!("skipped  {line}\n"));
        skipped.chain(self.failed.iter().map(|line| format!("FAILED   {line}\n"))).collect()
    }

    /// `N passed, N failed, N skipped`.
    pub fn counts(&self) -> String {
        let (failed, skipped) = (self.failed.len(), self.skipped.len());
        format!("{} passed, {failed} failed, {skipped} skipped", self.passed)
    }
}

/// Runs `work`, prints its counts and turns them into an exit code.
pub fn tallied(work: impl FnOnce(&mut Tally)) -> ExitCode {
    let mut tally = Tally::default();
    work(&mut tally);
    print!("\n{}", tally.names());
    if tally.left() > 0 {
        println!("left     {}", tally.left());
    }
    println!("{}", tally.counts());
    tally.code()
}

/// Runs a part; returns the seconds that it took too.
pub fn timed<T>(part: impl FnOnce() -> T) -> (T, f64) {
    let start = now();
    (part(), start.elapsed().as_secs_f64())
}

/// The only clock of these programs.
#[expect(clippy::disallowed_methods, reason = "tells people how long a step took")]
pub fn now() -> Instant {
    Instant::now()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tally_adds_output_of_other_run() {
        let mut tally = Tally::default();
        let printed = "a ... ok (0.1 s)\n\nFAILED   b\n2 passed, 1 failed, 0 skipped\n\n\
                       FAILED   b\nleft     7\n2 passed, 1 failed, 0 skipped\n";
        tally.add(printed).unwrap();
        assert_eq!(tally.counts(), "2 passed, 1 failed, 0 skipped");
        assert_eq!((tally.total(), tally.left()), (3, 7));
        assert!(tally.add("check a ... ok (0.1 s)\n").is_err());
    }

    #[test]
    fn tally_lists_ten_longest_parts_in_order() {
        let (mut tally, mut part) = (Tally::default(), Tally::default());
        for seconds in 1..=11_u8 {
            part.took(&format!("part {seconds}"), seconds.into());
        }
        tally.join(part);
        let longest = tally.longest();
        let lines: Vec<&str> = longest.lines().collect();
        assert_eq!(
            (lines.len(), lines[0], lines[9]),
            (10, "     11 s  part 11", "      2 s  part 2")
        );
    }

    #[test]
    fn tally_counts_results() {
        let mut tally = Tally::default();
        tally.pass(3);
        tally.skip("suite", "no /dev/fuse");
        tally.check("good", || Ok(()));
        tally.check("bad", || anyhow::bail!("no"));
        assert_eq!(tally.counts(), "4 passed, 1 failed, 1 skipped");
    }
}
