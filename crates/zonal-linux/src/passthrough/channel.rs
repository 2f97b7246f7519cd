//! The two paths by which NVMe commands are submitted to the kernel.
//!
//! - The ioctl runs one command and waits for it.
//! - `io_uring` runs several with one system call, side by side or one after the other.
//!
//! At queue depth 1 the ioctl is at least as fast; side by side, `io_uring` is faster
//! (`docs/performance/device.md`). So each is used where it is better, unless the caller chooses
//! one. Where `io_uring` is disabled, the ioctl does everything.

use std::fs::File;
use std::io;

use rustix::io::Errno;

use super::command::{Command, Failure, Queue};
use super::ioctl;
use super::ring::{self, Rings};

/// How commands are submitted to the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SubmissionPath {
    /// Both, each where it is better.
    Automatic,
    /// Only the ioctl.
    Ioctl,
    /// Only `io_uring`.
    IoUring,
}

/// The open submission paths of one drive.
pub(super) struct Channel {
    rings: Option<Rings>,
    via: SubmissionPath,
}

impl Channel {
    /// Opens `via`. Where `io_uring` is disabled, this fails only if `via` demands it.
    pub(super) fn new(via: SubmissionPath) -> io::Result<Self> {
        let rings = match via {
            SubmissionPath::Ioctl => None,
            SubmissionPath::IoUring => Some(Rings::new()?),
            SubmissionPath::Automatic => Rings::new()
                .inspect_err(|error| tracing::debug!(%error, "io_uring is not available"))
                .ok(),
        };
        Ok(Self { rings, via })
    }

    /// Stops using `io_uring`. Returns whether it was in use and the caller did not demand it.
    pub(super) fn without_rings(&mut self) -> bool {
        self.via == SubmissionPath::Automatic && self.rings.take().is_some()
    }

    /// Runs one command by `io_uring` if that is used at all.
    pub(super) fn probe(&self, device: &File, command: &mut Command) -> Result<(), Failure> {
        let Some(rings) = &self.rings else { return Ok(()) };
        let results = ring::run(rings, device, std::slice::from_mut(command));
        results.map_err(Failure::Kernel)?.pop().expect("a result for each command").map(drop)
    }

    /// Runs one command and returns its result.
    pub(super) fn run(&self, device: &File, command: &mut Command) -> Result<u64, Failure> {
        if self.via == SubmissionPath::IoUring {
            let mut results = self.run_all(device, std::slice::from_mut(command));
            return results.pop().expect("a result for each command");
        }
        ioctl::run(device, Queue::Io, command)
    }

    /// Runs commands and returns the result of each. Commands that are not linked may run side by
    /// side.
    pub(super) fn run_all(
        &self,
        device: &File,
        commands: &mut [Command],
    ) -> Vec<Result<u64, Failure>> {
        let at_once = commands.iter().filter(|command| !command.is_linked()).count() > 1;
        if let Some(rings) = &self.rings
            && (self.via == SubmissionPath::IoUring || at_once)
        {
            match ring::run(rings, device, commands) {
                Ok(results) => return results,
                Err(error) if self.via == SubmissionPath::IoUring => {
                    let kind = error.kind();
                    let failure = |_| Err(Failure::Kernel(kind.into()));
                    return commands.iter().map(failure).collect();
                }
                // Out of file descriptors, which the ioctl does not need.
                Err(error) => tracing::debug!(%error, "no further io_uring for now"),
            }
        }
        let mut is_broken = false;
        let one_by_one = commands.iter_mut().map(|command| {
            let result = if is_broken {
                Err(Failure::Kernel(Errno::CANCELED.into()))
            } else {
                ioctl::run(device, Queue::Io, command)
            };
            is_broken = command.is_linked() && result.is_err();
            result
        });
        one_by_one.collect()
    }
}
