//! `/dev/fuse`: one message per read, one per write.
#![expect(unsafe_code, reason = "an ioctl says by hand what the kernel reads")]

use std::ffi::c_void;
use std::fs::File;
use std::io::{self, IoSlice, Read, Write};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::ptr;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::ioctl::{Ioctl, IoctlOutput, Opcode, Setter, ioctl, opcode};

use crate::Errno;
use crate::answer::{BackingId, ReplySink};
use crate::pages::{PAGE, Pages};
use crate::request::BEFORE_DATA;

pub(crate) const PATH: &str = "/dev/fuse";

/// Least size that the kernel accepts for the buffer of a read.
const BUFFER_MIN: usize = 8192;

/// `FUSE_DEV_IOC_CLONE`
const CLONE: Opcode = opcode::read::<u32>(229, 0);

/// `FUSE_DEV_IOC_BACKING_CLOSE`
const BACKING_CLOSE: Opcode = opcode::write::<i32>(229, 2);

/// `FUSE_DEV_IOC_BACKING_OPEN`, which returns the number of a backing file.
#[repr(C)]
struct BackingOpen {
    fd: i32,
    flags: u32,
    padding: u64,
}

// SAFETY: the kernel reads a structure of this layout from where `as_ptr` points, and writes
// nothing.
unsafe impl Ioctl for BackingOpen {
    type Output = BackingId;

    const IS_MUTATING: bool = false;

    fn opcode(&self) -> Opcode {
        opcode::write::<Self>(229, 1)
    }

    fn as_ptr(&mut self) -> *mut c_void {
        ptr::from_mut(self).cast()
    }

    unsafe fn output_from_ptr(out: IoctlOutput, _: *mut c_void) -> rustix::io::Result<BackingId> {
        Ok(BackingId(out))
    }
}

/// A connection to the kernel.
#[derive(Debug)]
pub(crate) struct Device(File);

impl Device {
    /// Opens a connection that belongs to no mount yet.
    pub(crate) fn open() -> io::Result<Self> {
        File::options().read(true).write(true).open(PATH).map(Self)
    }

    /// Opens one more connection to the same mount. Each thread has its own, and answers a request
    /// through the connection that it came by.
    pub(crate) fn another(&self) -> io::Result<Self> {
        let another = Self::open()?;
        let of = u32::try_from(self.raw()).map_err(io::Error::other)?;
        // SAFETY: FUSE_DEV_IOC_CLONE reads a u32 from where its argument points: `Setter` points to
        // its own copy of one.
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
                // The caller was killed, or a signal came: read again.
                Some(Errno::NOENT | Errno::INTR | Errno::AGAIN) => {}
                // ECONNABORTED: it ended while the kernel was handing out a request.
                Some(Errno::NODEV | Errno::CONNABORTED) => return Ok(None),
                _ => return Err(error),
            }
        }
    }

    /// Registers a file of another mount as a backing file.
    pub(crate) fn open_backing(&self, file: BorrowedFd<'_>) -> io::Result<BackingId> {
        let request = BackingOpen { fd: file.as_raw_fd(), flags: 0, padding: 0 };
        // SAFETY: as its implementation says.
        Ok(unsafe { ioctl(&self.0, request) }?)
    }

    /// Unregisters a backing file: no file can be opened with it any more.
    pub(crate) fn close_backing(&self, id: BackingId) -> io::Result<()> {
        // SAFETY: FUSE_DEV_IOC_BACKING_CLOSE reads an i32 from where its argument points.
        let request = unsafe { Setter::<BACKING_CLOSE, i32>::new(id.0) };
        // SAFETY: as above; the kernel writes nothing.
        Ok(unsafe { ioctl(&self.0, request) }?)
    }

    /// Whether the connection has a mount that has not ended.
    pub(crate) fn is_mounted(&self) -> bool {
        let mut fds = [PollFd::new(&self.0, PollFlags::empty())];
        match poll(&mut fds, Some(&Timespec::default())) {
            Ok(0) => true,
            Ok(_) => !fds[0].revents().contains(PollFlags::ERR),
            Err(_) => false,
        }
    }

    /// The file descriptor, as mount(2) takes it.
    pub(crate) fn raw(&self) -> i32 {
        self.0.as_raw_fd()
    }
}

impl From<OwnedFd> for Device {
    fn from(fd: OwnedFd) -> Self {
        Self(File::from(fd))
    }
}

impl ReplySink for Device {
    fn answer(&self, parts: &[IoSlice<'_>]) -> io::Result<()> {
        // The kernel takes all of a message or nothing of it.
        (&self.0).write_vectored(parts).map(drop)
    }
}

/// Buffer of one thread for the requests that it reads. It begins [`BEFORE_DATA`] bytes before a
/// page, so that the data of a WRITE begins at a page.
pub(crate) struct RequestBuffer {
    pages: Pages,
}

impl RequestBuffer {
    /// For requests of at most `request_max` bytes of data.
    pub(crate) fn new(request_max: usize) -> Self {
        Self { pages: Pages::new(PAGE + request_max.max(BUFFER_MIN)) }
    }

    /// Waits for the next message; `None` once the mount has ended.
    pub(crate) fn receive(&mut self, device: &Device) -> io::Result<Option<&[u8]>> {
        let bytes = &mut self.pages.bytes_mut()[PAGE - BEFORE_DATA..];
        Ok(device.receive(bytes)?.map(|len| &bytes[..len]))
    }
}
