//! Files of tests of `zonal-linux` that the guest runs.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use xtask::run;
use xtask::tally::Tally;

/// Variables in the environment of tests.
type Variables<'a> = [(&'a str, &'a OsStr)];

/// Makes a check of each ignored test of a file. The file itself lists them, so a test that gets
/// another name still runs.
pub(super) fn check_each(tally: &mut Tally, subject: &str, file: &str, variables: &Variables<'_>) {
    match names(file) {
        Ok(names) => {
            for name in names {
                tally.check(&format!("{subject}: {name}"), || {
                    run(file, &["--exact", &name], variables)
                });
            }
        }
        Err(error) => tally.fail(format!("{subject}: listing the tests of {file}: {error:#}")),
    }
}

/// Runs the ignored tests of a file, with more arguments for its program. Fails if no test ran.
pub(super) fn run(file: &str, arguments: &[&str], variables: &Variables<'_>) -> Result<()> {
    let output = run::quietly(program(file).args(arguments).envs(variables.iter().copied()))?;
    let passed = passed(&output).with_context(|| format!("{file} printed no result: {output}"))?;
    ensure!(passed > 0, "no test of {file} ran with the arguments {arguments:?}");
    Ok(())
}

fn names(file: &str) -> Result<Vec<String>> {
    let list = run::quietly(program(file).args(["--list", "--format=terse"]))?;
    Ok(list.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect())
}

fn program(file: &str) -> Command {
    let mut program = Command::new(Path::new("/share").join(file));
    program.arg("--ignored");
    program
}

/// The number of tests that passed, from the last line that their program prints.
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
