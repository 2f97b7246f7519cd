//! Starts programs quietly, and keeps their output for a failure.

use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// Runs to the end; an error carries all that was printed.
pub fn quietly(command: &mut Command) -> Result<String> {
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

fn show(command: &Command) -> String {
    let program = command.get_program().to_string_lossy().into_owned();
    let arguments = command.get_args().map(|argument| argument.to_string_lossy().into_owned());
    std::iter::once(program).chain(arguments).collect::<Vec<_>>().join(" ")
}
