//! Pages of the kernel's page cache that direct writes make stale, or fill.
//!
//! **Stale pages** are dropped before the write is answered, so that a read that begins after a write
//! has returned never sees what was there before. The kernel drops them itself before it sends a direct
//! write, and again after a synchronous one, but not after an asynchronous one: what a buffered reader
//! fetched meanwhile would stay, through later opens too, since these keep the cache.
//!
//! **Filled pages** (`warm-cache`): what was written is stored, so that it is then read from memory.
//! That happens [`STORE_DELAY`] after the answer, since the kernel drops the pages of a synchronous write
//! when it sees the answer. Zones are written once, so what is stored late is not wrong, unless the file
//! is truncated: what waits is then forgotten, and the answer to the truncation waits for what is
//! just being stored.
//!
//! With a hidden mount, its pages are dropped as well.
//!
//! One thread does both. To drop or store a page, the kernel waits for the page's lock, which a
//! request under way holds that fills the page, or writes what is in it, until one of the serving
//! threads has answered it. So serving threads never wait for this thread: they leave it the answer
//! that must come afterwards. And only the answer to a request that itself holds no page may come
//! afterwards, or the two would wait for each other: [`HoldsNoPage`] is the proof.

use std::collections::BTreeMap;
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use zonal_fuse_transport::NodeId;
use zonal_fuse_transport::abi::{ReadFlags, WriteFlags};
use zonal_fuse_transport::notify::Notifier;

use super::inbox::Inbox;
use super::open::now;
use super::reply::Route;

/// How long after the answer to a write its pages are stored.
const STORE_DELAY: Duration = Duration::from_millis(5);

/// Bytes that may wait to be stored. What is more is not stored: the next read fetches it.
const WAITING_MAX: usize = 64 << 20;

/// Bytes of a file, all from `offset` on if there is no length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PageRange {
    pub(super) offset: u64,
    pub(super) len: Option<u64>,
}

impl PageRange {
    /// Every page of a file.
    pub(super) const ALL: Self = Self { offset: 0, len: None };
}

/// Proof that nobody who waits for the answer to a request has a page of the page cache locked, or
/// under write-back, for it. Only such an answer may wait until pages have been dropped.
///
/// The open(2) flags of a request prove nothing: they are what a program has made of its descriptor
/// by the time the kernel sends, which may be later than when it began to write through the page
/// cache.
#[derive(Clone, Copy, Debug)]
pub(super) struct HoldsNoPage(());

impl HoldsNoPage {
    /// Of a write. It comes straight from a caller's buffer if it tells whose locks it stands by,
    /// or if the file was opened for that; there only a mapping has pages, and the kernel says so
    /// when it writes these.
    pub(super) fn of_write(request: WriteFlags, route: Route) -> Option<Self> {
        let straight = request.contains(WriteFlags::LOCK_OWNER) || route != Route::Cached;
        (straight && !request.contains(WriteFlags::CACHE)).then_some(Self(()))
    }

    /// Of a read. It goes straight to a caller's buffer if it tells whose locks it stands by.
    pub(super) fn of_read(request: ReadFlags) -> Option<Self> {
        request.contains(ReadFlags::LOCK_OWNER).then_some(Self(()))
    }

    /// Of a request that brings attributes: the kernel has locked the inode.
    pub(super) fn of_setattr() -> Self {
        Self(())
    }
}

/// What is to be done afterwards, mostly an answer.
type Then = Box<dyn FnOnce() + Send>;

/// What the thread is to do.
enum Task {
    /// Drop the pages of a range.
    Drop { ino: NodeId, range: PageRange, then: Then },
    /// Store these bytes, unless the file has been settled since.
    Store { ino: NodeId, offset: u64, data: Box<[u8]>, number: u64, answered: Instant },
    /// Only what comes after the tasks before.
    Then(Then),
}

/// Where tasks are handed in. Without a thread behind it, pages are left as they are.
#[derive(Default)]
pub(super) struct Pages {
    tasks: Inbox<Task>,
    waiting: Arc<Waiting>,
}

/// What waits to be stored.
#[derive(Default)]
struct Waiting {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Bytes in all.
    bytes: usize,
    /// Number of the next piece.
    next: u64,
    /// Files that were settled, and the first piece that counts again.
    settled: BTreeMap<NodeId, u64>,
    /// The file of which a piece is just being stored.
    storing: Option<NodeId>,
}

impl Waiting {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a piece is still to be stored. `end` must follow.
    fn start(&self, ino: NodeId, number: u64) -> bool {
        let mut state = self.state();
        let counts = state.settled.get(&ino).is_none_or(|first| *first <= number);
        state.storing = counts.then_some(ino);
        counts
    }

    /// A piece is done with.
    fn end(&self, bytes: usize) {
        let mut state = self.state();
        state.bytes -= bytes;
        state.storing = None;
        if state.bytes == 0 {
            state.settled.clear();
        }
    }
}

/// What the thread works on; it ends when the [`Pages`] it belongs to are closed.
pub(crate) struct PageTasks {
    tasks: Receiver<Task>,
    waiting: Arc<Waiting>,
}

impl Pages {
    /// Opens a way to a thread that runs [`PageTasks::run`].
    pub(super) fn open(&self) -> PageTasks {
        PageTasks { tasks: self.tasks.open(), waiting: Arc::clone(&self.waiting) }
    }

    /// Ends the thread once it has done what was handed in.
    pub(super) fn close(&self) {
        self.tasks.close();
    }

    /// Has the pages of a range dropped, then runs `then`, which answers a request.
    pub(super) fn drop(
        &self,
        ino: NodeId,
        range: PageRange,
        _answered: HoldsNoPage,
        then: impl FnOnce() + Send + 'static,
    ) {
        self.send(Task::Drop { ino, range, then: Box::new(then) });
    }

    /// Has the pages of a range dropped, and nobody wait for it.
    pub(super) fn drop_later(&self, ino: NodeId, range: PageRange) {
        self.send(Task::Drop { ino, range, then: Box::new(|| ()) });
    }

    /// Has the page cache filled with what was written.
    pub(super) fn store(&self, ino: NodeId, offset: u64, data: Box<[u8]>) {
        let number = {
            let mut state = self.waiting.state();
            if state.bytes >= WAITING_MAX {
                return;
            }
            state.bytes += data.len();
            state.next += 1;
            state.next
        };
        self.send(Task::Store { ino, offset, data, number, answered: now() });
    }

    /// Makes sure that nothing that was written to a file before is stored later, then runs `then`,
    /// which answers a request.
    pub(super) fn settle(
        &self,
        ino: NodeId,
        _answered: HoldsNoPage,
        then: impl FnOnce() + Send + 'static,
    ) {
        if self.forget(ino) {
            self.send(Task::Then(Box::new(then)));
        } else {
            then();
        }
    }

    /// The same for those who must not wait: what is just being stored is dropped afterwards.
    pub(super) fn settle_later(&self, ino: NodeId) {
        if self.forget(ino) {
            self.drop_later(ino, PageRange::ALL);
        }
    }

    /// Forgets what waits to be stored; tells whether a piece is just being stored.
    fn forget(&self, ino: NodeId) -> bool {
        let mut state = self.waiting.state();
        if state.bytes == 0 {
            return false;
        }
        let first = state.next + 1;
        state.settled.insert(ino, first);
        state.storing == Some(ino)
    }

    /// Hands in a task. Without a thread, only what comes afterwards is done.
    fn send(&self, task: Task) {
        match self.tasks.send(task) {
            Ok(()) => {}
            Err(Task::Drop { then, .. } | Task::Then(then)) => then(),
            Err(Task::Store { data, .. }) => self.waiting.end(data.len()),
        }
    }
}

impl PageTasks {
    /// Does what is handed in, until the end.
    pub(crate) fn run(&self, kernel: &Notifier, hidden: Option<&Notifier>) {
        let signed = |value| i64::try_from(value).unwrap_or(i64::MAX);
        for task in &self.tasks {
            let (outcome, then) = match task {
                Task::Drop { ino, range, then } => {
                    // To the kernel, no length means all that follows.
                    let len = signed(range.len.unwrap_or(0));
                    let drop = |from: &Notifier| from.inval_inode(ino, signed(range.offset), len);
                    (hidden.map_or(Ok(()), drop).and(drop(kernel)), Some(then))
                }
                Task::Store { ino, offset, data, number, answered } => {
                    thread::park_timeout((answered + STORE_DELAY).saturating_duration_since(now()));
                    let counts = self.waiting.start(ino, number);
                    let stored = if counts { kernel.store(ino, offset, &data) } else { Ok(()) };
                    self.waiting.end(data.len());
                    (stored, None)
                }
                Task::Then(then) => (Ok(()), Some(then)),
            };
            if let Err(error) = outcome {
                tracing::debug!(%error, "the kernel has no such inode any more");
            }
            if let Some(then) = then {
                then();
            }
        }
    }
}
