//! Starts programs.

use std::ffi::OsStr;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// Runs to the end, and returns the output; an error carries all of it.
pub fn quietly(command: &mut Command) -> Result<String> {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let shown = words.map(OsStr::to_string_lossy).collect::<Vec<_>>().join(" ");
    let output = command.stdin(Stdio::null()).output();
    let output = output.with_context(|| format!("could not start `{shown}`"))?;
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        bail!("`{shown}` ended with {}\n{stdout}{stderr}", output.status);
    }
    Ok(stdout)
}

/// A command that ends when this program does, however that ends.
pub fn ends_with_us(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig=TERM", "--"]).arg(program);
    command
}
