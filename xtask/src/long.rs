//! Runs that take as long as they are given: power cuts and benchmarks, both in release.

use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result};
use xtask::cargo;

/// The crash harness, at the size that SEED and COUNT in the environment ask for.
pub(crate) fn crash(root: &Path) -> Result<ExitCode> {
    live(cargo(root).args(["test", "--release", "-p", "zonal-fs", "--test", "crash"]).args([
        "--",
        "--include-ignored",
        "--nocapture",
    ]))
}

/// Every benchmark whose name contains `filter`.
pub(crate) fn bench(root: &Path, filter: Option<&str>) -> Result<ExitCode> {
    live(cargo(root).args(["bench", "--workspace", "--bench", "*", "--"]).args(filter))
}

fn live(command: &mut Command) -> Result<ExitCode> {
    let status = command.status().context("could not start cargo")?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
