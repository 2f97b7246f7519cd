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
//! [`PATIENCE`]; after that, the thread stores nothing more.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
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
    /// Store these bytes.
    Store { ino: INodeNo, offset: u64, data: Box<[u8]>, answered: Instant },
    /// Say that everything before is done.
    Answer { done: SyncSender<()> },
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
    bytes: AtomicUsize,
    /// Somebody has lost patience: what waits may be too old to be stored.
    given_up: AtomicBool,
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
        let waiting = self.waiting.bytes.fetch_add(data.len(), Ordering::AcqRel);
        let sent = waiting < WAITING_MAX
            && self.send(Task::Store { ino, offset, data: data.into(), answered: now() });
        if !sent {
            self.waiting.bytes.fetch_sub(data.len(), Ordering::AcqRel);
        }
    }

    /// Waits until nothing waits to be stored.
    pub(super) fn settle(&self) {
        if self.waiting.bytes.load(Ordering::Acquire) > 0
            && !self.wait(|done| Task::Answer { done })
        {
            self.waiting.given_up.store(true, Ordering::Release);
            tracing::warn!("the page cache is not filled any more with what is written directly");
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
                Task::Store { ino, offset, data, answered } => {
                    thread::park_timeout((answered + MOMENT).saturating_duration_since(now()));
                    let given_up = self.waiting.given_up.load(Ordering::Acquire);
                    let stored = if given_up { Ok(()) } else { kernel.store(ino, offset, &data) };
                    self.waiting.bytes.fetch_sub(data.len(), Ordering::AcqRel);
                    (stored, None)
                }
                Task::Answer { done } => (Ok(()), Some(done)),
            };
            if let Err(error) = outcome {
                tracing::debug!(%error, "the kernel has no such inode any more");
            }
            // Whoever waited may have lost patience.
            done.map(|done| done.try_send(()));
        }
    }
}
