//! Pages of the kernel's page cache that a direct write has passed by.
//!
//! Old ones are dropped. The kernel does so itself after a synchronous direct write, but not after an
//! asynchronous one: a buffered read that runs meanwhile would leave the old bytes in the page cache
//! for good. The write is answered when that is done.
//!
//! New ones are stored, if asked for: what was written directly is then read from memory. That
//! happens a moment after the write was answered, since the kernel then drops the pages of what was
//! written, and must be over before the file is truncated.
//!
//! A thread of its own does both. It may have to wait for a read that one of the serving threads has
//! yet to answer. So that they cannot all wait for each other, nobody waits for it longer than
//! [`PATIENCE`].

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use fuser::{INodeNo, Notifier};

use super::open::now;

/// How long anybody waits for the thread.
const PATIENCE: Duration = Duration::from_millis(100);

/// How long after the answer to a write its pages are stored.
const MOMENT: Duration = Duration::from_millis(5);

/// Bytes that may wait to be stored. What is more is not stored: the next read fetches it.
const WAITING_MAX: usize = 64 << 20;

/// What the thread is to do.
enum Task {
    /// Drop the pages of a range.
    Drop { ino: INodeNo, offset: u64, len: u64, done: SyncSender<()> },
    /// Store these bytes, unless the file has been settled since.
    Store { ino: INodeNo, offset: u64, data: Box<[u8]>, number: u64, answered: Instant },
}

/// Where tasks are handed in. Without a thread behind it, nothing is done.
#[derive(Default)]
pub(super) struct Pages {
    tasks: Mutex<Option<Sender<Task>>>,
    waiting: Arc<Waiting>,
}

/// What waits to be stored.
#[derive(Default)]
struct Waiting {
    state: Mutex<State>,
    stored: Condvar,
}

#[derive(Default)]
struct State {
    /// Bytes in all.
    bytes: usize,
    /// Number of the next piece.
    next: u64,
    /// Files that were settled, and the first piece that counts again.
    settled: BTreeMap<INodeNo, u64>,
    /// The file of which a piece is just being stored.
    storing: Option<INodeNo>,
}

impl Waiting {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a piece is still to be stored; if so, `stored` must follow.
    fn start(&self, ino: INodeNo, number: u64) -> bool {
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
        drop(state);
        self.stored.notify_all();
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
        let (sender, tasks) = channel();
        *self.tasks.lock().unwrap_or_else(PoisonError::into_inner) = Some(sender);
        PageTasks { tasks, waiting: Arc::clone(&self.waiting) }
    }

    /// Ends the thread.
    pub(super) fn close(&self) {
        *self.tasks.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Has the pages of a range dropped, and waits for it.
    pub(super) fn drop(&self, ino: INodeNo, offset: u64, len: u64) {
        if !self.wait(|done| Task::Drop { ino, offset, len, done }) {
            tracing::debug!(inode = ino.0, offset, len, "old pages are dropped later");
        }
    }

    /// Has the page cache filled with what was written.
    pub(super) fn store(&self, ino: INodeNo, offset: u64, data: &[u8]) {
        let number = {
            let mut state = self.waiting.state();
            if state.bytes >= WAITING_MAX {
                return;
            }
            state.bytes += data.len();
            state.next += 1;
            state.next
        };
        let task = Task::Store { ino, offset, data: data.into(), number, answered: now() };
        if !self.send(task) {
            self.waiting.end(data.len());
        }
    }

    /// Makes sure that nothing that was written to a file before is stored later.
    pub(super) fn settle(&self, ino: INodeNo) {
        let mut state = self.waiting.state();
        if state.bytes == 0 {
            return;
        }
        let first = state.next + 1;
        state.settled.insert(ino, first);
        let busy = |state: &mut State| state.storing == Some(ino);
        let waited = self.waiting.stored.wait_timeout_while(state, PATIENCE, busy);
        if waited.unwrap_or_else(PoisonError::into_inner).1.timed_out() {
            // What is being stored may then be older than the file: it is dropped at once.
            let (done, _) = sync_channel(1);
            self.send(Task::Drop { ino, offset: 0, len: 0, done });
            tracing::warn!(inode = ino.0, "pages of the file are dropped later");
        }
    }

    /// Hands in a task and waits until it is done; tells whether it was in time.
    fn wait(&self, task: impl FnOnce(SyncSender<()>) -> Task) -> bool {
        let (done, finished) = sync_channel(1);
        !self.send(task(done)) || finished.recv_timeout(PATIENCE).is_ok()
    }

    fn send(&self, task: Task) -> bool {
        let tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        tasks.as_ref().is_some_and(|tasks| tasks.send(task).is_ok())
    }
}

impl PageTasks {
    /// Does what is handed in, until the end.
    pub(crate) fn run(&self, kernel: &Notifier) {
        let signed = |value| i64::try_from(value).unwrap_or(i64::MAX);
        for task in &self.tasks {
            let (outcome, done) = match task {
                Task::Drop { ino, offset, len, done } => {
                    (kernel.inval_inode(ino, signed(offset), signed(len)), Some(done))
                }
                Task::Store { ino, offset, data, number, answered } => {
                    thread::park_timeout((answered + MOMENT).saturating_duration_since(now()));
                    let counts = self.waiting.start(ino, number);
                    let stored = if counts { kernel.store(ino, offset, &data) } else { Ok(()) };
                    self.waiting.end(data.len());
                    (stored, None)
                }
            };
            if let Err(error) = outcome {
                tracing::debug!(%error, "the kernel has no such inode any more");
            }
            // Whoever waited may have lost patience.
            done.map(|done| done.try_send(()));
        }
    }
}
