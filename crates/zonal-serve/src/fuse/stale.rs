//! Drops pages of the page cache that a direct write has made old.
//!
//! The kernel does so itself after a synchronous direct write, but not after an asynchronous one: a
//! buffered read that runs meanwhile would leave the old bytes in the page cache for good. A thread
//! of its own asks the kernel to drop them, and the write is answered when that is done.
//!
//! The kernel may first have to wait for a read that one of our threads has yet to answer. So that
//! they cannot all wait for each other, nobody waits longer than [`PATIENCE`].

use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use fuser::{INodeNo, Notifier};

/// How long a write waits for old pages to be dropped.
const PATIENCE: Duration = Duration::from_millis(100);

/// A range of a file whose pages are old.
struct Range {
    ino: INodeNo,
    offset: u64,
    len: u64,
    done: SyncSender<()>,
}

/// Where stale ranges are reported. Without a thread behind it, nothing is dropped.
#[derive(Default)]
pub(super) struct Stale {
    ranges: Mutex<Option<Sender<Range>>>,
}

/// What the thread works on; it ends when the [`Stale`] it belongs to is closed.
pub(crate) struct StaleRanges(Receiver<Range>);

impl Stale {
    /// Opens a way to a thread that runs [`StaleRanges::drop_all`].
    pub(super) fn open(&self) -> StaleRanges {
        let (sender, receiver) = channel();
        *self.ranges.lock().unwrap_or_else(PoisonError::into_inner) = Some(sender);
        StaleRanges(receiver)
    }

    /// Ends the thread.
    pub(super) fn close(&self) {
        *self.ranges.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Has the pages of a range dropped, and waits for it.
    pub(super) fn drop_pages(&self, ino: INodeNo, offset: u64, len: u64) {
        let (done, finished) = sync_channel(1);
        let range = Range { ino, offset, len, done };
        let sent = {
            let ranges = self.ranges.lock().unwrap_or_else(PoisonError::into_inner);
            ranges.as_ref().is_some_and(|ranges| ranges.send(range).is_ok())
        };
        if sent && finished.recv_timeout(PATIENCE).is_err() {
            tracing::debug!(inode = ino.0, offset, len, "old pages are dropped later");
        }
    }
}

impl StaleRanges {
    /// Drops what is reported until the end.
    pub(crate) fn drop_all(&self, kernel: &Notifier) {
        for Range { ino, offset, len, done } in &self.0 {
            let signed = |value| i64::try_from(value).unwrap_or(i64::MAX);
            if let Err(error) = kernel.inval_inode(ino, signed(offset), signed(len)) {
                tracing::debug!(inode = ino.0, %error, "the kernel has no such inode any more");
            }
            // The write may have lost patience.
            let _ = done.try_send(());
        }
    }
}
