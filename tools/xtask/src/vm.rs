//! `cargo xtask vm`: builds the program that compares Zonal with a real kernel, and starts it. The
//! rest is in `tools/kernel-tests`.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result};
use xtask::run;
use xtask::tally::{Tally, now};

use crate::artifacts::{self, Program};

/// The programs that the guest runs.
const PROGRAMS: [&str; 2] = ["zonal", "kernel-tests-guest"];

/// The files of tests of `zonal-linux` that it runs.
const TESTS: [&str; 5] = ["null_blk", "passthrough", "scsi_debug", "side_by_side", "ublk"];

/// Builds, and hands the arguments on.
pub(crate) fn main(root: &Path, arguments: &[String]) -> Result<ExitCode> {
    let tests = TESTS.map(|name| format!("--test={name}"));
    let mut targets = vec!["--bins"];
    targets.extend(tests.iter().map(String::as_str));
    let programs = artifacts::build(root, &targets)?;
    share(root, &programs)?;
    let mut command = Command::new(artifacts::find(&programs, "kernel-tests")?);
    let status = command.args(arguments).status().context("starting kernel-tests")?;
    Ok(status.code().and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, Into::into))
}

/// Puts the programs that the guest runs where it finds them.
pub(crate) fn share(root: &Path, programs: &[Program]) -> Result<()> {
    let folder = root.join("target/vm/share");
    fs::create_dir_all(&folder)?;
    let copy = |from: &Path, name: &str| {
        // A guest may run the old one: this makes a new file.
        let new = folder.join(format!("{name}.new"));
        fs::copy(from, &new).with_context(|| format!("copying {}", from.display()))?;
        fs::rename(&new, folder.join(name)).with_context(|| format!("making {name}"))
    };
    for name in PROGRAMS {
        copy(artifacts::find(programs, name)?, name)?;
    }
    for name in TESTS {
        copy(artifacts::find_tests(programs, "zonal-linux", name)?, name)?;
    }
    Ok(())
}

/// Makes the image of the virtual machine. An error is reported when the machine is to boot.
pub(crate) fn prepare(program: &Path) {
    let status = Command::new(program).arg("prepare").status();
    if !status.is_ok_and(|status| status.success()) {
        println!("the virtual machine is not ready");
    }
}

/// Runs the program on a part of the tests, and counts the results that it prints.
pub(crate) fn count(program: &Path, arguments: &[impl AsRef<OsStr>], name: &str) -> Tally {
    let (start, mut tally) = (now(), Tally::default());
    let mut printed = String::new();
    let output = run::ends_with_us(program).args(arguments).output();
    let counted = output.context("could not start it").and_then(|output| {
        printed = String::from_utf8_lossy(&output.stdout).into_owned();
        let errors = || String::from_utf8_lossy(&output.stderr).into_owned();
        tally.add(&printed).with_context(errors)
    });
    if let Err(error) = counted {
        tally.fail(format!("{name}: {error:#}"));
    }
    let (counts, seconds) = (tally.counts(), start.elapsed().as_secs_f64());
    tally.took(name, seconds);
    // The last line of a part's output is not the last line of ours.
    let printed = printed.trim_end().replace('\n', "\n  ");
    println!("\n== {name}: {counts} ({seconds:.1} s)\n  {printed}");
    tally
}
