//! The two paths by which NVMe commands are submitted to the kernel.
//!
//! - The ioctl runs one command and waits for it.
//! - `io_uring` runs several with one system call, side by side or one after the other.
//!
//! At queue depth 1 the ioctl is at least as fast; side by side, `io_uring` is faster
//! (`docs/performance.md`). So each is used where it is better, unless the caller chooses one. Where
//! `io_uring` is disabled, the ioctl does everything.

use std::fs::File;
use std::io;

use super::command::{Command, Failure, Order, Queue};
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

    /// Stops using `io_uring`; whether that is allowed.
    pub(super) fn without_rings(&mut self) -> bool {
        self.via == SubmissionPath::Automatic && self.rings.take().is_some()
    }

    /// Runs one command and returns its result.
    pub(super) fn run(&self, device: &File, command: &mut Command) -> Result<u64, Failure> {
        if self.via == SubmissionPath::IoUring {
            let commands = std::slice::from_mut(command);
            return self.run_all(device, commands, Order::OneByOne).map_err(|(_, why)| why);
        }
        ioctl::run(device, Queue::Io, command)
    }

    /// Runs commands. Returns the result of the last one, or the index of the first that failed and
    /// why.
    pub(super) fn run_all(
        &self,
        device: &File,
        commands: &mut [Command],
        order: Order,
    ) -> Result<u64, (usize, Failure)> {
        if let Some(rings) = &self.rings
            && (self.via == SubmissionPath::IoUring || order == Order::Any)
        {
            match rings.take() {
                Ok(mut ring) => {
                    let done = ring::run(&mut ring, device, commands, order);
                    rings.give_back(ring);
                    return done;
                }
                Err(error) if self.via == SubmissionPath::IoUring => {
                    return Err((0, Failure::Kernel(error)));
                }
                // Out of file descriptors, which the ioctl does not need.
                Err(error) => tracing::debug!(%error, "no further io_uring for now"),
            }
        }
        let mut last = 0;
        for (number, command) in commands.iter_mut().enumerate() {
            last = ioctl::run(device, Queue::Io, command).map_err(|failure| (number, failure))?;
        }
        Ok(last)
    }
}
