//! Programs that are measured: started, waited for, and their processor time.
//!
//! A signal that is to end this program ends the child, and every [`run`] after it fails; so all
//! mounts are unmounted on the way out.

use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// The child that runs, or 0.
static CHILD: AtomicI32 = AtomicI32::new(0);

static IS_INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// From now on a signal ends the child instead of this program.
pub(crate) fn catch_signals() -> Result<()> {
    let mut signals = Signals::new([SIGHUP, SIGINT, SIGTERM]).context("catching signals")?;
    std::thread::spawn(move || {
        for _ in signals.forever() {
            IS_INTERRUPTED.store(true, Ordering::SeqCst);
            if let Some(pid) = Pid::from_raw(CHILD.load(Ordering::SeqCst)) {
                // It may have ended by itself.
                let _ = kill_process(pid, Signal::TERM);
            }
        }
    });
    Ok(())
}

/// Fails after a signal.
pub(crate) fn check_interrupted() -> Result<()> {
    ensure!(!IS_INTERRUPTED.load(Ordering::SeqCst), "interrupted");
    Ok(())
}

/// A child that has ended.
pub(crate) struct Ended {
    /// The standard output of the child.
    pub(crate) stdout: String,
    /// Processor time of all its threads, user and system.
    pub(crate) cpu: Duration,
}

/// Runs a program to its end; its output goes through files in `scratch`.
pub(crate) fn run(command: &mut Command, scratch: &Path) -> Result<Ended> {
    check_interrupted()?;
    let (out, err) = (scratch.join("stdout"), scratch.join("stderr"));
    let create =
        |path: &Path| File::create(path).with_context(|| format!("creating {}", path.display()));
    command.stdin(Stdio::null()).stdout(create(&out)?).stderr(create(&err)?);
    let mut child = command.spawn().with_context(|| format!("starting {command:?}"))?;
    let pid = Pid::from_child(&child);
    CHILD.store(pid.as_raw_nonzero().get(), Ordering::SeqCst);
    // Its times can be read until it is waited for without this option.
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
    while let Err(error) = waitid(WaitId::Pid(pid), options) {
        ensure!(error == Errno::INTR, "waiting for {command:?}: {error}");
    }
    let cpu = cpu_of(pid.as_raw_nonzero().get().cast_unsigned());
    CHILD.store(0, Ordering::SeqCst);
    let status = child.wait().with_context(|| format!("waiting for {command:?}"))?;
    check_interrupted()?;
    let stdout = String::from_utf8_lossy(&std::fs::read(&out)?).into_owned();
    if !status.success() {
        let stderr = String::from_utf8_lossy(&std::fs::read(&err)?).into_owned();
        // Programs write their progress over itself.
        let why = stderr.trim_end().rsplit(['\r', '\n']).next().unwrap_or_default();
        bail!("{command:?} ended with {status}: {why}");
    }
    Ok(Ended { stdout, cpu: cpu? })
}

/// Processor time that a process has used so far.
pub(crate) fn cpu_of(process: u32) -> Result<Duration> {
    let path = format!("/proc/{process}/stat");
    let stat = std::fs::read_to_string(&path).with_context(|| format!("reading {path}"))?;
    let ticks = ticks_of(&stat).with_context(|| format!("{path} has no times"))?;
    let per_second = rustix::param::clock_ticks_per_second();
    Ok(Duration::from_millis(ticks * 1000 / per_second))
}

/// User and system time in `/proc/PID/stat`: the 14th and 15th field. The second, the name, may
/// hold anything.
fn ticks_of(stat: &str) -> Option<u64> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_whitespace().skip(11);
    let mut next = || fields.next()?.parse::<u64>().ok();
    Some(next()? + next()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn child_ticks_parse_any_process_name() {
        let stat = "7 (a b) c) R 1 2 3 4 5 6 7 8 9 10 120 34 0 0 20 0";
        assert_eq!(ticks_of(stat), Some(154));
        assert_eq!(ticks_of("7 (a) R 1"), None);
    }

    #[test]
    fn child_run_is_measured_and_reports_failure() {
        let scratch = tempfile::tempdir().unwrap();
        let ended = run(Command::new("echo").arg("hello"), scratch.path()).unwrap();
        assert_eq!(ended.stdout, "hello\n");
        let mut busy = Command::new("sh");
        busy.args(["-c", "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done"]);
        assert!(run(&mut busy, scratch.path()).unwrap().cpu > Duration::ZERO);
        let error = run(Command::new("sh").args(["-c", "echo why >&2; exit 3"]), scratch.path());
        assert!(format!("{:#}", error.err().unwrap()).contains("why"));
    }
}
