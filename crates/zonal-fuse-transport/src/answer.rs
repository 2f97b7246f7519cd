//! The parts of an answer, and the sink that takes it to the kernel.

use std::cell::RefCell;
use std::io::{self, IoSlice};
use std::time::Duration;

use zerocopy::IntoBytes;

use crate::Errno;
use crate::abi::{self, Attr, FopenFlags, NodeId};
use crate::pages::Pages;

/// Sink for answers and notifications: a connection to the kernel, or a test.
pub trait ReplySink: Send + Sync {
    /// Takes the parts of one message, in their order.
    fn answer(&self, parts: &[IoSlice<'_>]) -> io::Result<()>;

    /// Answers request `unique` with the bytes that `fill` puts into a buffer of `size` bytes, or
    /// with the error of `fill`.
    fn fill(&self, unique: u64, size: usize, fill: &mut Fill<'_>) -> io::Result<()> {
        READ_BUFFER.with_borrow_mut(|buffer| {
            if buffer.bytes().len() < size {
                *buffer = Pages::new(size.next_power_of_two());
            }
            let filled = fill(&mut buffer.bytes_mut()[..size]);
            let (status, len) = (Status::of(unique, filled), filled.unwrap_or(0));
            let header = status.header(len);
            self.answer(&[IoSlice::new(header.as_bytes()), IoSlice::new(&buffer.bytes()[..len])])
        })
    }
}

/// Puts bytes into a page-aligned buffer, and returns how many.
pub type Fill<'a> = dyn FnMut(&mut [u8]) -> Result<usize, Errno> + 'a;

thread_local! {
    /// Read data on its way to the kernel: one buffer per serving thread, kept between requests.
    static READ_BUFFER: RefCell<Pages> = RefCell::new(Pages::new(0));
}

/// Number of a backing file: a file of another mount through which a file of this one is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackingId(pub(crate) i32);

/// An inode in an answer, and how long the kernel may keep its name and attributes.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// Number that the kernel's requests use from now on; 0 says that the name does not exist.
    pub node: NodeId,
    /// Its attributes.
    pub attr: Attr,
    /// How long both stay valid.
    pub ttl: Duration,
}

impl From<&Entry> for abi::EntryOut {
    fn from(entry: &Entry) -> Self {
        let (secs, nanos) = (entry.ttl.as_secs(), entry.ttl.subsec_nanos());
        Self {
            nodeid: entry.node.0,
            // Inode numbers are never used twice.
            generation: 0,
            entry_valid: secs,
            attr_valid: secs,
            entry_valid_nsec: nanos,
            attr_valid_nsec: nanos,
            attr: entry.attr,
        }
    }
}

/// An open file in an answer.
#[derive(Clone, Copy, Debug)]
pub struct Opened {
    /// Number that the kernel's requests about the open file carry.
    pub handle: u64,
    /// How the kernel treats the open file.
    pub flags: FopenFlags,
    /// Its backing file, if the flags contain `PASSTHROUGH`.
    pub backing: Option<BackingId>,
}

impl From<&Opened> for abi::OpenOut {
    fn from(opened: &Opened) -> Self {
        let Opened { handle: fh, flags, backing } = *opened;
        Self { fh, open_flags: flags.bits(), backing_id: backing.map_or(0, |id| id.0) }
    }
}

/// Outcome of a request: the error, and which request it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Status {
    /// A negative errno; 0 for success. In a notification, its number.
    pub(crate) error: i32,
    /// Number of the request; 0 in a notification.
    pub(crate) unique: u64,
}

impl Status {
    /// Request `unique` succeeded.
    pub(crate) fn ok(unique: u64) -> Self {
        Self { error: 0, unique }
    }

    /// Request `unique` failed with `errno`.
    pub(crate) fn failed(unique: u64, errno: Errno) -> Self {
        Self { error: -errno.raw_os_error(), unique }
    }

    /// Request `unique` had this result.
    pub(crate) fn of<T>(unique: u64, result: Result<T, Errno>) -> Self {
        result.map_or_else(|errno| Self::failed(unique, errno), |_| Self::ok(unique))
    }

    /// Header of an answer with `len` bytes after it.
    pub(crate) fn header(self, len: usize) -> abi::OutHeader {
        let len = size_of::<abi::OutHeader>() + len;
        let len = u32::try_from(len).expect("an answer is as long as a request at most");
        abi::OutHeader { len, error: self.error, unique: self.unique }
    }
}

/// Most parts after the header.
const PARTS_MAX: usize = 3;

/// Sends a header and the parts that follow it.
pub(crate) fn send(to: &dyn ReplySink, status: Status, parts: &[&[u8]]) -> io::Result<()> {
    let header = status.header(parts.iter().map(|part| part.len()).sum());
    let mut slices = [IoSlice::new(&[]); PARTS_MAX + 1];
    slices[0] = IoSlice::new(header.as_bytes());
    for (slice, part) in slices[1..].iter_mut().zip(parts) {
        *slice = IoSlice::new(part);
    }
    to.answer(&slices[..=parts.len()])
}
