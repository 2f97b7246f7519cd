//! Serves in the background: a parent starts the daemon and waits until it is ready or has failed.
//!
//! The parent runs the same program, [`this_program`], again with [`spawn`]; the child serves in
//! the foreground, asks [`Parent::inherited`] whether a parent waits, and calls [`Parent::ready`]
//! when the mount is usable, or [`Parent::failed`] with the reason why not. The message travels
//! over the child's standard output. The daemon is a new process, not a fork, so no thread or lock
//! is lost.

use std::env;
use std::ffi::CString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::ServeError;
use crate::error::Result;

/// Set in the environment of a daemon whose standard output is the pipe to its parent.
const MARK: &str = "ZONAL_DAEMON_PIPE";

/// The message that says "ready"; anything else is an error text.
const READY: &[u8] = b"ready\n";

/// The program that runs here, to be started again under `name`.
///
/// The kernel's link to the running file finds it even while an upgrade or a build removes or
/// replaces the file at its path, and the daemon is of the same version as its parent.
pub fn this_program(name: &str) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.arg0(name);
    command
}

/// Starts `command` as a daemon and returns its process id once it is ready, or its error.
///
/// The command must lead the child to [`Parent::inherited`]. Its standard error stays the
/// caller's until it is ready.
pub fn spawn(command: &mut Command) -> Result<u32> {
    let failed = |what: &str, source| ServeError::Io { what: what.to_owned(), source };
    let mut child = command
        .env(MARK, "1")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| failed("starting the daemon", error))?;
    let mut message = Vec::new();
    if let Some(mut pipe) = child.stdout.take() {
        pipe.read_to_end(&mut message).map_err(|error| failed("waiting for the daemon", error))?;
    }
    if message == READY {
        return Ok(child.id());
    }
    let status = child.wait().map_err(|error| failed("waiting for the daemon", error))?;
    if message.is_empty() {
        return Err(ServeError::NotReady(format!(
            "the daemon ended before it was ready: {status}"
        )));
    }
    Err(ServeError::NotReady(String::from_utf8_lossy(&message).trim_end().to_owned()))
}

/// Whether a process with this environment, as `/proc/PID/environ` has it, was started by
/// [`spawn`].
pub fn is_of_spawn(environment: &[u8]) -> bool {
    let mark = format!("{MARK}=").into_bytes();
    environment.split(|byte| *byte == 0).any(|variable| variable.starts_with(&mark))
}

/// The process that waits for this daemon to be ready. Dropping it without a message means to the
/// parent that the daemon failed.
#[derive(Debug)]
pub struct Parent {
    pipe: File,
}

impl Parent {
    /// The waiting parent, if this process was started by [`spawn`]; `None` otherwise. Leaves the
    /// parent's session, so that closing its terminal does not end the daemon, and moves standard
    /// output away.
    pub fn inherited() -> io::Result<Option<Self>> {
        if env::var_os(MARK).is_none() {
            return Ok(None);
        }
        let pipe = rustix::io::fcntl_dupfd_cloexec(io::stdout().as_fd(), 3)?;
        rustix::stdio::dup2_stdout(null()?)?;
        rustix::process::setsid()?;
        name_process();
        Ok(Some(Self { pipe: File::from(pipe) }))
    }

    /// Tells the parent that the mount is usable, leaves its working directory, and closes its
    /// standard error: further messages go to `log`, or nowhere.
    pub fn ready(mut self, log: Option<File>) -> io::Result<()> {
        env::set_current_dir("/")?;
        match log {
            Some(log) => rustix::stdio::dup2_stderr(log)?,
            None => rustix::stdio::dup2_stderr(null()?)?,
        }
        self.pipe.write_all(READY)
    }

    /// Tells the parent why there is no mount.
    pub fn failed(mut self, why: &str) -> io::Result<()> {
        self.pipe.write_all(why.as_bytes())
    }
}

/// Gives this process the name under which it was started: the kernel takes it from the path, which
/// ends in `exe` for all daemons of [`this_program`]. It is for people: nothing depends on it.
fn name_process() {
    let started_as = env::args_os().next().unwrap_or_default();
    let name = Path::new(&started_as).file_name().unwrap_or_default();
    if let Ok(name) = CString::new(name.as_bytes()) {
        let _ = rustix::thread::set_name(&name);
    }
}

fn null() -> io::Result<OwnedFd> {
    Ok(File::options().read(true).write(true).open("/dev/null")?.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn daemon_ready_is_success() {
        assert!(spawn(&mut shell("echo ready")).unwrap() > 0);
    }

    #[test]
    fn daemon_other_word_is_error() {
        let error = spawn(&mut shell("echo no such drive")).unwrap_err();
        assert_eq!(error.to_string(), "no such drive");
    }

    #[test]
    fn daemon_silence_is_error() {
        let error = spawn(&mut shell("exit 7")).unwrap_err();
        assert!(error.to_string().contains("exit status: 7"), "{error}");
    }
}
