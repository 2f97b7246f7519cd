//! What a server tells the kernel unasked.

use std::io::{self, IoSlice};
use std::sync::{Arc, Weak};

use zerocopy::IntoBytes;

use crate::Errno;
use crate::abi::{InvalInodeOut, NodeId, RetrieveOut, StoreOut, notification};
use crate::device::Device;
use crate::reply::{self, Answer};

/// A connection that this does not keep open.
struct WhileOpen(Weak<Device>);

impl Answer for WhileOpen {
    fn answer(&self, parts: &[IoSlice<'_>]) -> io::Result<()> {
        self.0.upgrade().ok_or(Errno::NODEV)?.answer(parts)
    }
}

/// Sends notifications.
#[derive(Clone)]
pub struct Notifier {
    to: Arc<dyn Answer>,
}

impl Notifier {
    /// Sends them there.
    pub fn new(to: Arc<dyn Answer>) -> Self {
        Self { to }
    }

    /// Sends them by a connection, for as long as there is one.
    pub(crate) fn over(device: &Arc<Device>) -> Self {
        Self { to: Arc::new(WhileOpen(Arc::downgrade(device))) }
    }

    /// Attributes of an inode are not what the kernel has, nor are its pages from `offset` on, if that is
    /// not negative: so many bytes of them, or all with `len` 0.
    pub fn inval_inode(&self, node: NodeId, offset: i64, len: i64) -> io::Result<()> {
        let out = InvalInodeOut { ino: node.0, off: offset, len };
        self.send(notification::INVAL_INODE, &[out.as_bytes()])
    }

    /// What a file holds: the kernel keeps it in its page cache.
    pub fn store(&self, node: NodeId, offset: u64, data: &[u8]) -> io::Result<()> {
        let too_long = |_| io::Error::from(io::ErrorKind::InvalidInput);
        let size = u32::try_from(data.len()).map_err(too_long)?;
        let out = StoreOut { nodeid: node.0, offset, size, padding: 0 };
        self.send(notification::STORE, &[out.as_bytes(), data])
    }

    /// The kernel makes a request of number `unique` that brings nothing of a regular file.
    pub(crate) fn echo(&self, unique: u64, node: NodeId) -> io::Result<()> {
        let out =
            RetrieveOut { notify_unique: unique, nodeid: node.0, offset: 0, size: 0, padding: 0 };
        self.send(notification::RETRIEVE, &[out.as_bytes()])
    }

    fn send(&self, code: i32, parts: &[&[u8]]) -> io::Result<()> {
        // An answer to request 0 is none, but a notification of this number.
        reply::send(&*self.to, (code, 0), parts)
    }
}
