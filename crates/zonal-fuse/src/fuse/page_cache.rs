//! The page cache of the kernel: drops pages that direct writes make stale, and fills pages with
//! written data.
//!
//! **Stale pages** are dropped before a direct write is answered, so that a read that begins after
//! write(2) has returned never sees old data. The kernel drops them itself before it sends a direct
//! write, and again after a synchronous one, but not after an asynchronous one: pages that a
//! buffered reader fetched meanwhile would stay, even through later opens, which keep the cache.
//!
//! **Filled pages** (`warm-cache`) get the written data, so that later reads are served from
//! memory. The thread stores them [`STORE_DELAY`] after the answer, since the kernel drops the
//! pages of a synchronous write when it sees the answer. Zones are written once, so data that is
//! stored late is still right, unless the file is truncated: a truncation cancels the stores of the
//! file, and its answer waits for a store that is running. A store has its number before the write
//! is answered: the caller may truncate as soon as it sees the answer.
//!
//! Pages of the hidden mount are dropped with the pages of the visible one.
//!
//! One thread does both. To drop or store a page, the kernel waits for the lock of the page. A
//! pending request that fills or writes this page holds the lock until a serving thread has
//! answered it. So serving threads never wait for this thread: they hand it the answer that must
//! come later. Only the answer to a request that holds no page itself may come later, or both would
//! deadlock: [`HoldsNoPage`] is the proof.

use std::collections::BTreeMap;
use std::sync::mpsc::Receiver;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use zonal_fuse_transport::NodeId;
use zonal_fuse_transport::abi::{ReadFlags, WriteFlags};
use zonal_fuse_transport::notify::Notifier;

use super::inbox::Inbox;
use super::real_time::now;
use super::route::Route;

/// Time between the answer to a write and the store of its pages.
const STORE_DELAY: Duration = Duration::from_millis(5);

/// Most bytes that wait to be stored. Data beyond that is not stored: the next read fetches it.
const WAITING_MAX: usize = 64 << 20;

/// A range of a file; without a length, all bytes from `offset` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PageRange {
    pub(super) offset: u64,
    pub(super) len: Option<u64>,
}

impl PageRange {
    /// Every page of a file.
    pub(super) const ALL: Self = Self { offset: 0, len: None };
}

/// Proof that the caller of a request holds no page of the page cache, locked or under writeback,
/// while it waits for the answer. Only such an answer may wait until pages have been dropped.
///
/// The open(2) flags in a request prove nothing: a program can change the flags of its descriptor
/// between the start of a cached write and the request for it.
#[derive(Clone, Copy, Debug)]
pub(super) struct HoldsNoPage(());

impl HoldsNoPage {
    /// For a write: it comes from a buffer of the caller if it has a lock owner, or if the file was
    /// opened for direct I/O. There only mappings have pages, and the kernel flags writes of these.
    pub(super) fn of_write(request: WriteFlags, route: Route) -> Option<Self> {
        let direct = request.contains(WriteFlags::LOCK_OWNER) || route != Route::Cached;
        (direct && !request.contains(WriteFlags::CACHE)).then_some(Self(()))
    }

    /// For a read: it fills a buffer of the caller if it has a lock owner.
    pub(super) fn of_read(request: ReadFlags) -> Option<Self> {
        request.contains(ReadFlags::LOCK_OWNER).then_some(Self(()))
    }

    /// For a SETATTR: the kernel holds the lock of the inode, and no page.
    pub(super) fn of_setattr() -> Self {
        Self(())
    }
}

/// Runs after a task; usually it answers a request.
type Continuation = Box<dyn FnOnce() + Send>;

/// Order to the thread.
pub(crate) enum Task {
    /// Drops the pages of a range.
    Drop { node: NodeId, range: PageRange, then: Continuation },
    /// Stores these bytes, unless the stores of the file were cancelled since.
    Store { node: NodeId, offset: u64, data: Box<[u8]>, number: u64, answered: Instant },
    /// Only runs the continuation, after all tasks before it.
    Continue(Continuation),
}

/// Sends tasks to the thread. While there is no thread, pages stay as they are.
#[derive(Default)]
pub(crate) struct PageCache {
    /// Once it is closed, [`run`](Self::run) ends after all tasks.
    pub(crate) tasks: Inbox<Task>,
    waiting: StoreQueue,
}

/// Data that waits to be stored.
#[derive(Default)]
struct StoreQueue {
    state: Mutex<StoreQueueState>,
}

#[derive(Default)]
struct StoreQueueState {
    /// Bytes of all stores.
    bytes: usize,
    /// Number of the last store.
    next: u64,
    /// Files whose stores were cancelled, each with the number of the first valid store.
    cancelled: BTreeMap<NodeId, u64>,
    /// File of the store that is running.
    storing: Option<NodeId>,
}

impl StoreQueue {
    fn state(&self) -> MutexGuard<'_, StoreQueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of a new store of `bytes` bytes, if there is room for them.
    fn enqueue(&self, bytes: usize) -> Option<u64> {
        let mut state = self.state();
        if state.bytes >= WAITING_MAX {
            return None;
        }
        state.bytes += bytes;
        state.next += 1;
        Some(state.next)
    }

    /// Starts a store; returns whether it is still valid. `end` must follow.
    fn start(&self, node: NodeId, number: u64) -> bool {
        let mut state = self.state();
        let counts = state.cancelled.get(&node).is_none_or(|first| *first <= number);
        state.storing = counts.then_some(node);
        counts
    }

    /// Ends a store.
    fn end(&self, bytes: usize) {
        let mut state = self.state();
        state.bytes -= bytes;
        state.storing = None;
        if state.bytes == 0 {
            state.cancelled.clear();
        }
    }
}

impl PageCache {
    /// Drops the pages of a range, then runs `then`, which answers a request.
    pub(super) fn drop(
        &self,
        node: NodeId,
        range: PageRange,
        _answered: HoldsNoPage,
        then: impl FnOnce() + Send + 'static,
    ) {
        self.send(Task::Drop { node, range, then: Box::new(then) });
    }

    /// Drops the pages of a range in the background.
    pub(super) fn drop_later(&self, node: NodeId, range: PageRange) {
        self.send(Task::Drop { node, range, then: Box::new(|| ()) });
    }

    /// Runs `answer`, which answers a write, then fills the page cache with the written data,
    /// unless the stores of the file are cancelled from the answer on.
    pub(super) fn answer_and_store(
        &self,
        node: NodeId,
        offset: u64,
        data: Box<[u8]>,
        answer: impl FnOnce(),
    ) {
        let number = self.waiting.enqueue(data.len());
        answer();
        if let Some(number) = number {
            self.send(Task::Store { node, offset, data, number, answered: now() });
        }
    }

    /// Cancels the stores of a file, waits for one that is running, then runs `then`, which answers
    /// a request.
    pub(super) fn cancel_stores(
        &self,
        node: NodeId,
        _answered: HoldsNoPage,
        then: impl FnOnce() + Send + 'static,
    ) {
        if self.forget(node) {
            self.send(Task::Continue(Box::new(then)));
        } else {
            then();
        }
    }

    /// Cancels the stores of a file without waiting: pages of a running one are dropped afterwards.
    pub(super) fn cancel_stores_later(&self, node: NodeId) {
        if self.forget(node) {
            self.drop_later(node, PageRange::ALL);
        }
    }

    /// Cancels the waiting stores of a file; returns whether one of its stores is running.
    fn forget(&self, node: NodeId) -> bool {
        let mut state = self.waiting.state();
        if state.bytes == 0 {
            return false;
        }
        let first = state.next + 1;
        state.cancelled.insert(node, first);
        state.storing == Some(node)
    }

    /// Sends a task. While there is no thread, only its continuation runs.
    fn send(&self, task: Task) {
        match self.tasks.send(task) {
            Ok(()) => {}
            Err(Task::Drop { then, .. } | Task::Continue(then)) => then(),
            Err(Task::Store { data, .. }) => self.waiting.end(data.len()),
        }
    }

    /// Does tasks, until the end of the mount.
    pub(crate) fn run(&self, tasks: &Receiver<Task>, kernel: &Notifier, hidden: Option<&Notifier>) {
        let signed = |value| i64::try_from(value).unwrap_or(i64::MAX);
        for task in tasks {
            let (outcome, then) = match task {
                Task::Drop { node, range, then } => {
                    // For the kernel, length 0 means all that follows.
                    let len = signed(range.len.unwrap_or(0));
                    let drop = |from: &Notifier| from.inval_inode(node, signed(range.offset), len);
                    (hidden.map_or(Ok(()), drop).and(drop(kernel)), Some(then))
                }
                Task::Store { node, offset, data, number, answered } => {
                    thread::park_timeout((answered + STORE_DELAY).saturating_duration_since(now()));
                    let counts = self.waiting.start(node, number);
                    let stored = if counts { kernel.store(node, offset, &data) } else { Ok(()) };
                    self.waiting.end(data.len());
                    (stored, None)
                }
                Task::Continue(then) => (Ok(()), Some(then)),
            };
            if let Err(error) = outcome {
                tracing::debug!(%error, "the kernel does not know the inode any more");
            }
            if let Some(then) = then {
                then();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODE: NodeId = NodeId::ROOT;

    /// Whether the store of a write takes place if `answer` runs as its answer.
    fn is_stored(answer: impl FnOnce(&PageCache)) -> bool {
        let cache = PageCache::default();
        let tasks = cache.tasks.open();
        cache.answer_and_store(NODE, 0, Box::new([1; 512]), || answer(&cache));
        cache.tasks.close();
        tasks.iter().any(|task| match task {
            Task::Store { node, number, .. } => cache.waiting.start(node, number),
            Task::Drop { .. } | Task::Continue(_) => false,
        })
    }

    #[test]
    fn store_of_file_truncated_right_after_answer_is_cancelled() {
        assert!(is_stored(|_| ()));
        assert!(!is_stored(|cache| cache.cancel_stores(NODE, HoldsNoPage(()), || ())));
        assert!(!is_stored(|cache| cache.cancel_stores_later(NODE)));
    }
}
