//! Asks drives and mounts that may hang. A drive that hangs holds each process that asks it, and
//! such a process cannot even end. So another process asks first, within a time.

use std::ffi::OsStr;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// The outcome of a question.
pub(super) enum Answer {
    /// It printed this document.
    Said(Value),
    /// It failed.
    Failed(Refusal),
    /// It has not ended within the time.
    Silent,
}

/// Why it failed.
#[derive(Debug, Default)]
pub(super) struct Refusal {
    pub(super) message: String,
    pub(super) errno: Option<i32>,
    /// What to try.
    pub(super) hint: Option<String>,
}

/// Runs `zonal` with these arguments and `--json`.
pub(super) fn zonal(arguments: &[&OsStr], limit: Duration) -> Result<Answer> {
    let program = std::env::current_exe().context("finding this program")?;
    let child = Command::new(program)
        .args(arguments)
        .arg("--json")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("starting zonal again, to ask")?;
    let process = Pid::from_child(&child);
    let Some(output) = within(limit, move || child.wait_with_output()) else {
        // It may wait where no signal reaches it.
        let _ = kill_process(process, Signal::KILL);
        return Ok(Answer::Silent);
    };
    let output = output.context("asking by another process")?;
    if output.status.success() {
        return Ok(Answer::Said(serde_json::from_slice(&output.stdout).unwrap_or(Value::Null)));
    }
    Ok(Answer::Failed(Refusal::of(&String::from_utf8_lossy(&output.stderr))))
}

impl Refusal {
    /// The failure that is the last line of a standard error.
    fn of(text: &str) -> Self {
        let line = text.lines().next_back().unwrap_or_default();
        let document: Value = serde_json::from_str(line).unwrap_or(Value::Null);
        let error = &document["error"];
        let text = |name: &str| error[name].as_str().map(str::to_owned);
        let errno = error["errno"].as_i64().and_then(|errno| i32::try_from(errno).ok());
        Self {
            message: text("message").unwrap_or_else(|| line.to_owned()),
            errno,
            hint: text("hint"),
        }
    }
}

/// Does some work in a thread of its own; `None` if it takes longer than `limit`. The thread then
/// goes on until the process ends.
pub(super) fn within<T: Send + 'static>(
    limit: Duration,
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let (sender, receiver) = mpsc::channel();
    let started = thread::Builder::new().spawn(move || {
        // The receiver may have given up.
        let _ = sender.send(work());
    });
    started.ok()?;
    receiver.recv_timeout(limit).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusal_is_last_line_of_standard_error() {
        let text =
            "WARN of the log\n{\"error\":{\"message\":\"opening x\",\"errno\":13,\"hint\":null}}\n";
        let refusal = Refusal::of(text);
        assert_eq!((&*refusal.message, refusal.errno), ("opening x", Some(13)));
        assert_eq!(Refusal::of("not JSON").message, "not JSON");
    }

    #[test]
    fn work_over_limit_is_given_up() {
        let (sender, receiver) = mpsc::channel::<()>();
        assert!(within(Duration::from_millis(1), move || receiver.recv()).is_none());
        drop(sender);
        assert_eq!(within(Duration::from_hours(1), || 7), Some(7));
    }
}
