//! A program with all the processes that it starts, killed at one moment.
//!
//! They are a process namespace: the kernel kills the whole namespace with its first process. In a
//! user namespace that process is an ordinary user, as PostgreSQL demands; outside, root owns its
//! files.

use std::fs::{self, File};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// Arguments of unshare(1) for a program that can be killed as a whole and is no superuser.
pub(crate) const AS_USER: [&str; 8] = [
    "--user",
    "--map-user=65534",
    "--map-group=65534",
    "--pid",
    "--ipc",
    "--fork",
    "--kill-child=KILL",
    "--",
];

pub(crate) struct Server {
    outer: Child,
}

/// A command that runs as an ordinary user.
pub(crate) fn as_user(program: &Path) -> Command {
    let mut command = Command::new("unshare");
    command.args(AS_USER).arg(program);
    command
}

impl Server {
    /// Starts the program, whose output is appended to the file `log`.
    pub(crate) fn start(program: &Path, arguments: &[&str], log: &Path) -> Self {
        let log = File::options().create(true).append(true).open(log).unwrap();
        let mut command = as_user(program);
        command.args(arguments).stdin(Stdio::null());
        command.stdout(log.try_clone().unwrap()).stderr(log);
        Self { outer: command.spawn().unwrap() }
    }

    /// Kills every process, and returns when none is left.
    pub(crate) fn kill(mut self) {
        self.signal(Signal::KILL);
    }

    /// Asks the first process to end, and waits for it.
    pub(crate) fn ask_to_end(mut self, signal: Signal) {
        self.signal(signal);
    }

    fn signal(&mut self, signal: Signal) {
        if let Some(first) = self.first() {
            // The process may have ended by itself.
            let _ = pidfd_send_signal(&first, signal);
            wait_for_end(&first);
        }
        self.outer.wait().unwrap();
    }

    /// The first process of the namespace, unless it has ended.
    fn first(&self) -> Option<OwnedFd> {
        let id = self.outer.id();
        let children = fs::read_to_string(format!("/proc/{id}/task/{id}/children")).ok()?;
        let first = children.split(' ').next()?.parse().ok()?;
        pidfd_open(Pid::from_raw(first)?, PidfdFlags::empty()).ok()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.outer.kill();
        let _ = self.outer.wait();
    }
}

pub(crate) fn wait_for_end(process: &impl AsFd) {
    poll(&mut [PollFd::new(process, PollFlags::IN)], None).unwrap();
}
