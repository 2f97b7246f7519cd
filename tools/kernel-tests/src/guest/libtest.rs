//! Files of tests of `zonal-linux` that the guest runs.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use xtask::run;

/// Runs those tests of a file that need the guest, and that `chosen` names as a test program takes
/// it, with some variables in their environment. Without any such test it fails.
pub(super) fn run(file: &str, chosen: &[&str], variables: &[(&str, &OsStr)]) -> Result<()> {
    let mut command = Command::new(Path::new("/share").join(file));
    command.arg("--ignored").args(chosen).envs(variables.iter().copied());
    let output = run::quietly(&mut command)?;
    let passed = passed(&output).with_context(|| format!("{file} says no result: {output}"))?;
    ensure!(passed > 0, "{file} has no test {}", chosen.join(" "));
    Ok(())
}

/// How many tests have passed, by the last line of a program of tests.
fn passed(output: &str) -> Option<u32> {
    let line = output.lines().rev().find_map(|line| line.strip_prefix("test result: ok. "))?;
    line.split(' ').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passed_tests_are_read_from_last_line() {
        let output = "\nrunning 2 tests\n..\ntest result: ok. 2 passed; 0 failed; 0 ignored\n\n";
        assert_eq!(passed(output), Some(2));
        assert_eq!(passed("running 0 tests\n\ntest result: ok. 0 passed; 0 failed\n"), Some(0));
        assert_eq!(passed("one failed"), None);
    }
}
