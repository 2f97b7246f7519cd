//! `/dev/fuse`: one message per read, one per write.
#![expect(unsafe_code, reason = "an ioctl is told by hand what the kernel reads")]

use std::fs::File;
use std::io::{self, IoSlice, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::ioctl::{Opcode, Setter, ioctl, opcode};

use crate::Errno;
use crate::reply::Answer;

pub(crate) const PATH: &str = "/dev/fuse";

/// `FUSE_DEV_IOC_CLONE`
const CLONE: Opcode = opcode::read::<u32>(229, 0);

/// An open connection to the kernel.
#[derive(Debug)]
pub(crate) struct Device(File);

impl Device {
    /// One that belongs to no mount yet.
    pub(crate) fn open() -> io::Result<Self> {
        File::options().read(true).write(true).open(PATH).map(Self)
    }

    /// One more connection for the mount of this one: each thread has its own, and answers through the one that
    /// a request came by.
    pub(crate) fn another(&self) -> io::Result<Self> {
        let another = Self::open()?;
        let of = u32::try_from(self.raw()).map_err(io::Error::other)?;
        // SAFETY: FUSE_DEV_IOC_CLONE reads a u32 from where its argument points: `Setter` points to its
        // own copy of one.
        let request = unsafe { Setter::<CLONE, u32>::new(of) };
        // SAFETY: as above; the kernel writes nothing.
        unsafe { ioctl(&another.0, request) }?;
        Ok(another)
    }

    /// Waits for a message; `None` once the mount has ended.
    pub(crate) fn receive(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        loop {
            let error = match (&self.0).read(buffer) {
                Ok(len) => return Ok(Some(len)),
                Err(error) => error,
            };
            match Errno::from_io_error(&error) {
                // Whoever asked has been killed, or a signal came: there will be another.
                Some(Errno::NOENT | Errno::INTR | Errno::AGAIN) => {}
                Some(Errno::NODEV) => return Ok(None),
                _ => return Err(error),
            }
        }
    }

    /// Whether there is a mount: the kernel says so until it has ended.
    pub(crate) fn is_mounted(&self) -> bool {
        let mut fds = [PollFd::new(&self.0, PollFlags::empty())];
        match poll(&mut fds, Some(&Timespec::default())) {
            Ok(0) => true,
            Ok(_) => !fds[0].revents().contains(PollFlags::ERR),
            Err(_) => false,
        }
    }

    /// Its number, as mount(2) takes it.
    pub(crate) fn raw(&self) -> i32 {
        self.0.as_raw_fd()
    }
}

impl From<OwnedFd> for Device {
    fn from(fd: OwnedFd) -> Self {
        Self(File::from(fd))
    }
}

impl Answer for Device {
    fn answer(&self, parts: &[IoSlice<'_>]) -> io::Result<()> {
        // The kernel takes a message whole or not at all.
        (&self.0).write_vectored(parts).map(drop)
    }
}
