//! Notifications: messages to the kernel that answer no request.

use std::io::{self, IoSlice};
use std::sync::{Arc, Weak};

use zerocopy::IntoBytes;

use crate::Errno;
use crate::abi::{InvalInodeOut, NodeId, RetrieveOut, StoreOut, notification};
use crate::answer::{self, ReplySink, Status};
use crate::device::Device;

/// A connection that notifications do not keep open.
struct WhileOpen(Weak<Device>);

impl ReplySink for WhileOpen {
    fn answer(&self, parts: &[IoSlice<'_>]) -> io::Result<()> {
        self.0.upgrade().ok_or(Errno::NODEV)?.answer(parts)
    }
}

/// Sends notifications.
#[derive(Clone)]
pub struct Notifier {
    to: Arc<dyn ReplySink>,
}

impl Notifier {
    /// Sends notifications to this sink.
    pub fn new(to: Arc<dyn ReplySink>) -> Self {
        Self { to }
    }

    /// Sends notifications over a connection, while it is open.
    pub(crate) fn over(device: &Arc<Device>) -> Self {
        Self { to: Arc::new(WhileOpen(Arc::downgrade(device))) }
    }

    /// Invalidates the attributes of an inode and, unless `offset` is negative, `len` bytes of its
    /// cached pages from `offset` on; `len` 0 means all.
    pub fn inval_inode(&self, node: NodeId, offset: i64, len: i64) -> io::Result<()> {
        let out = InvalInodeOut { ino: node.0, off: offset, len };
        self.send(notification::INVAL_INODE, &[out.as_bytes()])
    }

    /// Puts data of a file into the page cache of the kernel.
    pub fn store(&self, node: NodeId, offset: u64, data: &[u8]) -> io::Result<()> {
        let too_long = |_| io::Error::from(io::ErrorKind::InvalidInput);
        let size = u32::try_from(data.len()).map_err(too_long)?;
        let out = StoreOut { nodeid: node.0, offset, size, padding: 0 };
        self.send(notification::STORE, &[out.as_bytes(), data])
    }

    /// Makes the kernel send request `unique` about a regular file, without data.
    pub(crate) fn echo(&self, unique: u64, node: NodeId) -> io::Result<()> {
        let out =
            RetrieveOut { notify_unique: unique, nodeid: node.0, offset: 0, size: 0, padding: 0 };
        self.send(notification::RETRIEVE, &[out.as_bytes()])
    }

    fn send(&self, code: i32, parts: &[&[u8]]) -> io::Result<()> {
        // An answer to request 0 is a notification; its number stands in place of the error.
        answer::send(&*self.to, Status { error: code, unique: 0 }, parts)
    }
}
