//! The two ways of an NVMe command to the kernel.
//!
//! - The ioctl runs one command and waits for it.
//! - `io_uring` runs several side by side, or one after the other, for one system call.
//!
//! Alone, or one after the other, commands are no slower by ioctl; side by side they are faster by
//! `io_uring` (`docs/performance.md`). So both are used, each where it is better, unless one is asked
//! for; where `io_uring` is switched off, the ioctl does everything.

use std::fs::File;
use std::io;

use super::command::{Command, Failure, Order, Queue};
use super::ioctl;
use super::ring::{self, Rings};

/// How commands reach the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Each where it is better.
    Automatic,
    /// The ioctl alone.
    Ioctl,
    /// `io_uring` alone.
    IoUring,
}

/// The open ways of one drive.
pub(super) struct Channel {
    rings: Option<Rings>,
    way: Way,
}

impl Channel {
    /// Opens `way`. Where `io_uring` is switched off, only who insists on it is refused.
    pub(super) fn new(way: Way) -> io::Result<Self> {
        let rings = match way {
            Way::Ioctl => None,
            Way::IoUring => Some(Rings::new()?),
            Way::Automatic => Rings::new()
                .inspect_err(|error| tracing::debug!(%error, "no io_uring: the ioctl alone"))
                .ok(),
        };
        Ok(Self { rings, way })
    }

    /// Does without `io_uring`, if that is allowed.
    pub(super) fn without_rings(&mut self) -> bool {
        self.way == Way::Automatic && self.rings.take().is_some()
    }

    /// Runs one command; what it returns.
    pub(super) fn run(&self, device: &File, command: &mut Command) -> Result<u64, Failure> {
        if self.way == Way::IoUring {
            let commands = std::slice::from_mut(command);
            return self.run_all(device, commands, Order::OneByOne).map_err(|(_, why)| why);
        }
        ioctl::run(device, Queue::Io, command)
    }

    /// Runs commands; what the last one returns, or the number of the first that failed, and why.
    pub(super) fn run_all(
        &self,
        device: &File,
        commands: &mut [Command],
        order: Order,
    ) -> Result<u64, (usize, Failure)> {
        if let Some(rings) = &self.rings
            && (self.way == Way::IoUring || order == Order::Any)
        {
            match rings.take() {
                Ok(mut ring) => {
                    let done = ring::run(&mut ring, device, commands, order);
                    rings.give_back(ring);
                    return done;
                }
                Err(error) if self.way == Way::IoUring => return Err((0, Failure::Kernel(error))),
                // As many rings as there may be descriptors: the other way needs none.
                Err(error) => tracing::debug!(%error, "no further io_uring: the ioctl for now"),
            }
        }
        let mut last = 0;
        for (number, command) in commands.iter_mut().enumerate() {
            last = ioctl::run(device, Queue::Io, command).map_err(|failure| (number, failure))?;
        }
        Ok(last)
    }
}
