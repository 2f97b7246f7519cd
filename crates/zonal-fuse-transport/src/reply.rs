//! The one answer that a request gets.
//!
//! Answering consumes the [`Reply`]; any thread may do it, at any time. A reply that is dropped
//! unanswered answers EIO, so that no caller waits for ever.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use zerocopy::IntoBytes;

use crate::Errno;
use crate::abi::{self, Attr, Kstatfs, Statx};
use crate::answer::{Entry, Opened, ReplySink, Status, send};
use crate::listing::DirListing;
use crate::request::CountWidth;

/// The answer to one request, still to be given.
pub struct Reply {
    unique: u64,
    /// Where it goes; `None` if the request gets no answer, or has got it.
    to: Option<Arc<dyn ReplySink>>,
}

impl Reply {
    /// The answer to request `unique`.
    pub fn new(unique: u64, to: Arc<dyn ReplySink>) -> Self {
        Self { unique, to: Some(to) }
    }

    /// For a request that gets no answer.
    pub fn none() -> Self {
        Self { unique: 0, to: None }
    }

    /// Answers with an error.
    pub fn error(mut self, errno: Errno) {
        self.send(Status::failed(self.unique, errno), &[]);
    }

    /// Answers that it succeeded, without data.
    pub fn ok(self) {
        self.bytes(&[]);
    }

    /// Answers with these bytes.
    pub fn bytes(mut self, bytes: &[u8]) {
        self.send(Status::ok(self.unique), &[bytes]);
    }

    /// Answers with the bytes that `fill` puts into a page-aligned buffer of `size` bytes.
    pub fn filled(mut self, size: u32, mut fill: impl FnMut(&mut [u8]) -> Result<usize, Errno>) {
        // `self.to` stays set until `fill` has returned: if it panics, the drop answers EIO.
        let Some(to) = self.to.clone() else { return };
        let sent = to.fill(self.unique, size as usize, &mut fill);
        self.to = None;
        if let Err(error) = sent {
            unheard(self.unique, &error);
        }
    }

    /// Answers with an inode.
    pub fn entry(self, entry: &Entry) {
        self.bytes(abi::EntryOut::from(entry).as_bytes());
    }

    /// Answers with an inode and the open file of it.
    pub fn created(mut self, entry: &Entry, opened: &Opened) {
        let parts = (abi::EntryOut::from(entry), abi::OpenOut::from(opened));
        self.send(Status::ok(self.unique), &[parts.0.as_bytes(), parts.1.as_bytes()]);
    }

    /// Answers with an open file.
    pub fn opened(self, opened: &Opened) {
        self.bytes(abi::OpenOut::from(opened).as_bytes());
    }

    /// Answers with attributes, and how long they stay valid.
    pub fn attr(self, attr: &Attr, ttl: Duration) {
        let out = abi::AttrOut {
            attr_valid: ttl.as_secs(),
            attr_valid_nsec: ttl.subsec_nanos(),
            dummy: 0,
            attr: *attr,
        };
        self.bytes(out.as_bytes());
    }

    /// Answers with the result of statx(2), and how long it stays valid.
    pub fn statx(self, stat: &Statx, ttl: Duration) {
        let out = abi::StatxOut {
            attr_valid: ttl.as_secs(),
            attr_valid_nsec: ttl.subsec_nanos(),
            stat: *stat,
            ..abi::StatxOut::default()
        };
        self.bytes(out.as_bytes());
    }

    /// Answers that `size` bytes are written.
    pub fn written(self, size: u32) {
        self.bytes(abi::WriteOut { size, padding: 0 }.as_bytes());
    }

    /// Answers that `len` bytes are copied; a narrow count has 32 bits.
    pub fn copied(self, len: u64, width: CountWidth) {
        match width {
            CountWidth::Narrow => self.written(u32::try_from(len).unwrap_or(u32::MAX)),
            CountWidth::Wide => self.bytes(abi::CopyFileRangeOut { bytes_copied: len }.as_bytes()),
        }
    }

    /// Answers with the size of an extended attribute, or of the list of their names.
    pub fn size(self, size: u32) {
        self.bytes(abi::GetxattrOut { size, padding: 0 }.as_bytes());
    }

    /// Answers an ioctl with the bytes for its argument.
    pub fn ioctl(mut self, output: &[u8]) {
        self.send(Status::ok(self.unique), &[abi::IoctlOut::default().as_bytes(), output]);
    }

    /// Answers lseek(2) with the new offset.
    pub fn offset(self, offset: u64) {
        self.bytes(abi::LseekOut { offset }.as_bytes());
    }

    /// Answers with the sizes of the file system.
    pub fn statfs(self, stat: &Kstatfs) {
        self.bytes(stat.as_bytes());
    }

    /// Answers with entries of a directory.
    pub fn listing(self, listing: &DirListing) {
        self.bytes(listing.bytes());
    }

    fn send(&mut self, status: Status, parts: &[&[u8]]) {
        let Some(to) = self.to.take() else { return };
        if let Err(error) = send(&*to, status, parts) {
            unheard(self.unique, &error);
        }
    }
}

/// Logs an answer that the kernel refused: the caller was killed, or the mount has ended.
fn unheard(unique: u64, error: &io::Error) {
    tracing::debug!(%error, unique, "the kernel took no answer");
}

impl Drop for Reply {
    fn drop(&mut self) {
        if self.to.is_some() {
            tracing::error!(unique = self.unique, "a request was dropped without an answer");
            self.send(Status::failed(self.unique, Errno::IO), &[]);
        }
    }
}
