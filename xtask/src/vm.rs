//! `cargo xtask vm`: builds what compares Zonal with a real kernel, and starts it. The rest is in
//! `crates/kernel-tests`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result};

use crate::artifacts::{self, Program};

/// The programs that the guest runs.
const PROGRAMS: [&str; 2] = ["zonal", "kernel-tests-guest"];

/// The files of tests that it runs.
const TESTS: [&str; 4] = ["null_blk", "passthrough", "side_by_side", "ublk"];

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
        let (to, new) = (folder.join(name), folder.join(format!("{name}.new")));
        fs::copy(from, &new).with_context(|| format!("copying {}", from.display()))?;
        fs::rename(&new, &to).with_context(|| format!("making {}", to.display()))
    };
    for name in PROGRAMS {
        copy(artifacts::find(programs, name)?, name)?;
    }
    for name in TESTS {
        let mut tests = programs.iter().filter(|program| program.tests && program.name == name);
        let program = tests.next().with_context(|| format!("cargo built no tests {name}"))?;
        copy(&program.path, name)?;
    }
    Ok(())
}

/// The program that boots the machine.
pub(crate) fn program(root: &Path) -> Result<PathBuf> {
    let programs = artifacts::build(root, &["--bin=kernel-tests"])?;
    artifacts::find(&programs, "kernel-tests").map(Path::to_path_buf)
}
