//! The one answer that a request gets.
//!
//! A [`Reply`] is used up by the answer, from whatever thread and whenever that is known. One that is
//! dropped answers EIO, so that no caller waits for ever.

use std::cell::RefCell;
use std::io::{self, IoSlice};
use std::sync::Arc;
use std::time::Duration;

use zerocopy::IntoBytes;

use crate::Errno;
use crate::abi::{self, Attr, FopenFlags, Kstatfs, NodeId, Statx};
use crate::device::BackingId;
use crate::listing::Listing;
use crate::pages::Pages;
use crate::request::Count;

/// Takes answers to where requests come from.
pub trait Answer: Send + Sync {
    /// The parts of one answer, in their order.
    fn answer(&self, parts: &[IoSlice<'_>]) -> io::Result<()>;

    /// The answer to request `unique` is what `fill` puts into a buffer of `size` bytes, or its error.
    fn fill(&self, unique: u64, size: usize, fill: &mut Fill<'_>) -> io::Result<()> {
        READ_BUFFER.with_borrow_mut(|buffer| {
            if buffer.bytes().len() < size {
                *buffer = Pages::new(size.next_power_of_two());
            }
            let (error, len) = outcome(fill(&mut buffer.bytes_mut()[..size]));
            let header = header((error, unique), len);
            self.answer(&[IoSlice::new(header.as_bytes()), IoSlice::new(&buffer.bytes()[..len])])
        })
    }
}

/// Puts bytes into a buffer that begins at a page, and tells how many.
pub type Fill<'a> = dyn FnMut(&mut [u8]) -> Result<usize, Errno> + 'a;

thread_local! {
    /// Where reads land before the kernel takes them: one per serving thread, kept.
    static READ_BUFFER: RefCell<Pages> = RefCell::new(Pages::new(0));
}

/// The error of an answer, and how many bytes it has.
pub(crate) fn outcome(filled: Result<usize, Errno>) -> (i32, usize) {
    match filled {
        Ok(len) => (0, len),
        Err(error) => (-error.raw_os_error(), 0),
    }
}

/// An inode that a reply names, and how long the kernel may keep name and attributes.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// By which the kernel will ask; 0 says that there is nothing by that name.
    pub node: NodeId,
    /// Its attributes.
    pub attr: Attr,
    /// How long both hold.
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

/// A file that is open now.
#[derive(Clone, Copy, Debug)]
pub struct Opened {
    /// By which the kernel names it from now on.
    pub handle: u64,
    /// How it is to be treated.
    pub flags: FopenFlags,
    /// Its backing file, where the flags speak of one.
    pub backing: Option<BackingId>,
}

impl From<&Opened> for abi::OpenOut {
    fn from(opened: &Opened) -> Self {
        let Opened { handle: fh, flags, backing } = *opened;
        Self { fh, open_flags: flags.bits(), backing_id: backing.map_or(0, |id| id.0) }
    }
}

/// The answer to one request, still to be given.
pub struct Reply {
    unique: u64,
    /// Where it goes; nowhere if there is to be none, or has been one.
    to: Option<Arc<dyn Answer>>,
}

impl Reply {
    /// To the request of this number.
    pub fn new(unique: u64, to: Arc<dyn Answer>) -> Self {
        Self { unique, to: Some(to) }
    }

    /// To a request that gets none.
    pub fn none() -> Self {
        Self { unique: 0, to: None }
    }

    /// It failed.
    pub fn error(mut self, errno: Errno) {
        self.send(-errno.raw_os_error(), &[]);
    }

    /// It is done, and there is nothing to tell.
    pub fn ok(self) {
        self.bytes(&[]);
    }

    /// These bytes.
    pub fn bytes(mut self, bytes: &[u8]) {
        self.send(0, &[bytes]);
    }

    /// What `fill` puts into a buffer of so many bytes, which begins at a page.
    pub fn filled(mut self, size: u32, mut fill: impl FnMut(&mut [u8]) -> Result<usize, Errno>) {
        // Only afterwards is there an answer: `fill` may panic.
        let Some(to) = self.to.clone() else { return };
        let sent = to.fill(self.unique, size as usize, &mut fill);
        self.to = None;
        if let Err(error) = sent {
            unheard(self.unique, &error);
        }
    }

    /// An inode.
    pub fn entry(self, entry: &Entry) {
        self.bytes(abi::EntryOut::from(entry).as_bytes());
    }

    /// An inode that is open now.
    pub fn created(mut self, entry: &Entry, opened: &Opened) {
        let parts = (abi::EntryOut::from(entry), abi::OpenOut::from(opened));
        self.send(0, &[parts.0.as_bytes(), parts.1.as_bytes()]);
    }

    /// A file that is open now.
    pub fn opened(self, opened: &Opened) {
        self.bytes(abi::OpenOut::from(opened).as_bytes());
    }

    /// Attributes, and how long they hold.
    pub fn attr(self, attr: &Attr, ttl: Duration) {
        let out = abi::AttrOut {
            attr_valid: ttl.as_secs(),
            attr_valid_nsec: ttl.subsec_nanos(),
            dummy: 0,
            attr: *attr,
        };
        self.bytes(out.as_bytes());
    }

    /// What statx(2) tells, and how long it holds.
    pub fn statx(self, stat: &Statx, ttl: Duration) {
        let out = abi::StatxOut {
            attr_valid: ttl.as_secs(),
            attr_valid_nsec: ttl.subsec_nanos(),
            stat: *stat,
            ..abi::StatxOut::default()
        };
        self.bytes(out.as_bytes());
    }

    /// So many bytes have been written.
    pub fn written(self, size: u32) {
        self.bytes(abi::WriteOut { size, padding: 0 }.as_bytes());
    }

    /// So many bytes have been copied; of a narrow count they fit in 32 bits.
    pub fn copied(self, len: u64, count: Count) {
        match count {
            Count::Narrow => self.written(u32::try_from(len).unwrap_or(u32::MAX)),
            Count::Wide => self.bytes(abi::CopyFileRangeOut { bytes_copied: len }.as_bytes()),
        }
    }

    /// How long an extended attribute or the list of them is.
    pub fn size(self, size: u32) {
        self.bytes(abi::GetxattrOut { size, padding: 0 }.as_bytes());
    }

    /// What an ioctl returns, and what it writes to its argument.
    pub fn ioctl(mut self, output: &[u8]) {
        self.send(0, &[abi::IoctlOut::default().as_bytes(), output]);
    }

    /// Where lseek(2) gets to.
    pub fn offset(self, offset: u64) {
        self.bytes(abi::LseekOut { offset }.as_bytes());
    }

    /// Sizes of the file system.
    pub fn statfs(self, stat: &Kstatfs) {
        self.bytes(stat.as_bytes());
    }

    /// Entries of a directory.
    pub fn listing(self, listing: &Listing) {
        self.bytes(listing.bytes());
    }

    fn send(&mut self, error: i32, parts: &[&[u8]]) {
        let Some(to) = self.to.take() else { return };
        if let Err(error) = send(&*to, (error, self.unique), parts) {
            unheard(self.unique, &error);
        }
    }
}

/// The caller has been killed, or the mount has ended.
fn unheard(unique: u64, error: &io::Error) {
    tracing::debug!(%error, unique, "an answer that nobody waits for");
}

impl Drop for Reply {
    fn drop(&mut self) {
        if self.to.is_some() {
            tracing::error!(unique = self.unique, "a request without an answer");
            self.send(-Errno::IO.raw_os_error(), &[]);
        }
    }
}

/// Parts after the header, at most.
const PARTS_MAX: usize = 3;

/// That of an answer with so many bytes after it.
pub(crate) fn header((error, unique): (i32, u64), rest: usize) -> abi::OutHeader {
    let len = size_of::<abi::OutHeader>() + rest;
    let len = u32::try_from(len).expect("an answer is as long as a request at most");
    abi::OutHeader { len, error, unique }
}

/// Sends a header and what follows it.
pub(crate) fn send(
    to: &dyn Answer,
    (error, unique): (i32, u64),
    parts: &[&[u8]],
) -> io::Result<()> {
    let rest: usize = parts.iter().map(|part| part.len()).sum();
    let header = header((error, unique), rest);
    let mut slices = [IoSlice::new(&[]); PARTS_MAX + 1];
    slices[0] = IoSlice::new(header.as_bytes());
    for (slice, part) in slices[1..].iter_mut().zip(parts) {
        *slice = IoSlice::new(part);
    }
    to.answer(&slices[..=parts.len()])
}
