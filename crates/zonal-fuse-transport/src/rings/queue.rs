//! The queue of one processor: requests that are made there go to its entries, and to no others.
//!
//! # Why nothing waits for ever
//! The kernel hands a request to an entry that is free. Where none is, the request waits in the queue, and only
//! an answer at one of the queue's entries makes the kernel look there again: a new entry alone
//! does not. So a queue would stand still if all its entries had requests whose answers wait for a
//! request in the queue. Such answers exist: a direct write is answered after old pages have left the page
//! cache, and a read that waits in the queue holds the lock of such a page.
//!
//! So whoever waits for the answer to a request that another thread answers sees to it that the queue moves
//! ([`Queue::nudge`]): a new entry if none is free, and then a request made on that processor. The new
//! request goes to the free entry and is answered at once, whereupon the entry takes the first
//! that waits in the queue. Each nudge takes one request out of the queue, in its order, so that the one which holds the lock
//! is reached. A queue in which requests wait has at least one entry at work: so there is a thread that
//! nudges, or one that is about to answer.
//!
//! Answers themselves can wait: of a direct read, the kernel locks the pages that it has read to
//! before it looks into the queue again, as in [`crew`](crate::crew). So such an entry is at work
//! until the kernel has taken its answer, and a thread of its own nudges a queue of which all
//! entries are at work and none gets done. It also nudges one that has got a new entry: a request
//! may have come when there was none.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError, TryLockError};
use std::thread;
use std::time::Duration;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::entry;
use crate::NodeId;
use crate::alarm::Alarm;
use crate::crew::{SPARES_MAX, Serving};
use crate::mount::Mount;
use crate::notify::Notifier;
use crate::session::Serve;

/// How long a queue may stand still, with an answer outstanding, before it is nudged, and at most after further nudges.
const STILL: Duration = Duration::from_millis(5);
const STILL_MAX: Duration = Duration::from_millis(100);

/// Numbers of requests that nudge: even, as all are, and above those that the kernel counts up.
const ECHOES: u64 = 1 << 62;

/// What all queues of a mount share.
pub(super) struct Shared {
    pub(super) mount: Arc<Mount>,
    /// Bytes of the largest read or write.
    pub(super) request_max: usize,
    /// Entries of a queue that have nothing to wait for.
    pub(super) entries_max: usize,
    /// Where threads may run that are not bound to a processor.
    pub(super) everywhere: CpuSet,
    pub(super) threads: Mutex<Serving>,
    pub(super) alarm: Alarm,
    echoes: AtomicU64,
}

impl Shared {
    pub(super) fn new(
        mount: Arc<Mount>,
        (request_max, entries_max): (usize, usize),
    ) -> io::Result<Self> {
        Ok(Self {
            mount,
            request_max,
            entries_max,
            everywhere: sched_getaffinity(None)?,
            threads: Mutex::default(),
            alarm: Alarm::default(),
            echoes: AtomicU64::new(ECHOES),
        })
    }
}

/// Whether a processor is there.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Processor {
    Online,
    Offline,
}

/// The queue of one processor.
pub(super) struct Queue {
    pub(super) shared: Arc<Shared>,
    /// The processor's number.
    pub(super) number: u16,
    pub(super) processor: Processor,
    /// Entries that the kernel knows, or is about to.
    entries: AtomicUsize,
    /// Those with a request.
    at_work: AtomicUsize,
    /// Those whose answer another thread gives.
    waiting: AtomicUsize,
    /// Answers that were given.
    answers: AtomicU64,
    /// A file that was read or written, for nudges: the last one.
    file: AtomicU64,
    /// Whether an entry has joined since the last look.
    has_grown: AtomicBool,
    nudging: Mutex<()>,
}

/// What the thread of an entry is told.
pub(super) enum Step {
    /// The kernel is ready for entries.
    Register,
    /// Requests may come.
    Serve(Arc<dyn Serve>),
}

/// A thread that was started. It ends if it is told nothing.
pub(super) struct Started {
    pub(super) steps: Sender<Step>,
    /// Whether it could make its ring, then whether it could register.
    pub(super) reports: Receiver<io::Result<()>>,
}

impl Started {
    /// The next report.
    pub(super) fn report(&self) -> io::Result<()> {
        self.reports.recv().unwrap_or_else(|_| Err(io::Error::other("the thread has ended")))
    }
}

impl Queue {
    pub(super) fn new(shared: Arc<Shared>, number: u16, processor: Processor) -> Arc<Self> {
        Arc::new(Self {
            shared,
            number,
            processor,
            entries: AtomicUsize::new(0),
            at_work: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            answers: AtomicU64::new(0),
            file: AtomicU64::new(0),
            has_grown: AtomicBool::new(false),
            nudging: Mutex::new(()),
        })
    }

    /// Starts the thread of one more entry.
    pub(super) fn start(self: &Arc<Self>) -> io::Result<Started> {
        let ((steps, told), (report, reports)) = (channel(), channel());
        let count = self.entries.fetch_add(1, Ordering::SeqCst);
        let queue = Arc::clone(self);
        let thread = thread::Builder::new().name(format!("fuse-{}-{count}", self.number));
        let thread = thread.spawn(move || entry::run(&queue, &told, &report));
        let thread = thread.inspect_err(|_| self.lose_entry())?;
        self.shared.threads.lock().unwrap_or_else(PoisonError::into_inner).push(thread);
        Ok(Started { steps, reports })
    }

    /// An entry could not be registered, or ends.
    pub(super) fn lose_entry(&self) {
        self.entries.fetch_sub(1, Ordering::SeqCst);
    }

    /// An entry has got a request; tells how many have one now. Where no entry is left for the next, there will be another.
    pub(super) fn begin(self: &Arc<Self>, server: &Arc<dyn Serve>) -> usize {
        let at_work = self.at_work.fetch_add(1, Ordering::SeqCst) + 1;
        let entries = self.entries.load(Ordering::SeqCst);
        let waiting = self.waiting.load(Ordering::SeqCst);
        if at_work >= entries {
            self.shared.alarm.raise();
        }
        if at_work >= entries && at_work.saturating_sub(waiting) < self.shared.entries_max {
            drop(self.grow(server));
        }
        at_work
    }

    /// The answer is known.
    pub(super) fn end(&self) {
        self.at_work.fetch_sub(1, Ordering::SeqCst);
        self.answers.fetch_add(1, Ordering::SeqCst);
    }

    /// An entry has joined: the kernel knows it, and does not look at what waits.
    pub(super) fn note_entry(&self) {
        self.has_grown.store(true, Ordering::SeqCst);
        self.shared.alarm.raise();
    }

    /// A file is read or written: the kernel knows it.
    pub(super) fn note_file(&self, node: NodeId) {
        self.file.store(node.0, Ordering::SeqCst);
    }

    /// How many answers it has given, if all entries are at work, or one has joined.
    fn progress(&self) -> Option<u64> {
        let is_full = self.at_work.load(Ordering::SeqCst) >= self.entries.load(Ordering::SeqCst);
        let is_watched = is_full || self.has_grown.load(Ordering::SeqCst);
        is_watched.then(|| self.answers.load(Ordering::SeqCst))
    }

    /// Nudges queues that stand still, until the end.
    pub(super) fn watch(queues: &[Arc<Self>], server: &Arc<dyn Serve>, alarm: &Alarm) {
        let progress = || {
            let all: Vec<_> = queues.iter().map(|queue| queue.progress()).collect();
            all.iter().any(Option::is_some).then_some(all)
        };
        alarm.watch(progress, |before, now| {
            for (queue, (before, now)) in queues.iter().zip(before.iter().zip(now)) {
                let entries = queue.entries.load(Ordering::SeqCst);
                let may_grow = entries < queue.shared.entries_max + SPARES_MAX;
                let stands_still = now.is_some() && before == now && may_grow;
                let has_grown = queue.has_grown.swap(false, Ordering::SeqCst);
                let node = NodeId(queue.file.load(Ordering::SeqCst));
                if (stands_still || has_grown) && node.0 != 0 {
                    queue.nudge(server, node);
                }
            }
        });
    }

    /// One more entry; it takes requests once its first report has come.
    fn grow(self: &Arc<Self>, server: &Arc<dyn Serve>) -> Option<Started> {
        let started = self.start().inspect_err(|error| {
            tracing::warn!(queue = self.number, %error, "no thread for one more request");
        });
        let started = started.ok()?;
        for step in [Step::Register, Step::Serve(Arc::clone(server))] {
            let _ = started.steps.send(step);
        }
        Some(started)
    }

    /// Waits until the answer to a request about `node` is there, which another thread gives: `given`
    /// waits for so long at most, and tells whether it is there.
    pub(super) fn wait(
        self: &Arc<Self>,
        server: &Arc<dyn Serve>,
        node: NodeId,
        given: impl Fn(Duration) -> bool,
    ) {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let mut limit = STILL;
        loop {
            let answers = self.answers.load(Ordering::SeqCst);
            if given(limit) {
                break;
            }
            if answers == self.answers.load(Ordering::SeqCst) {
                self.nudge(server, node);
            }
            limit = STILL_MAX.min(2 * limit);
        }
        self.waiting.fetch_sub(1, Ordering::SeqCst);
    }

    /// Has the kernel look at the requests that wait in this queue. `node` is a regular file that the kernel
    /// knows; otherwise this has no effect.
    fn nudge(self: &Arc<Self>, server: &Arc<dyn Serve>, node: NodeId) {
        let _one = match self.nudging.try_lock() {
            Ok(one) => one,
            Err(TryLockError::Poisoned(one)) => one.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        if self.at_work.load(Ordering::SeqCst) >= self.entries.load(Ordering::SeqCst)
            && let Some(started) = self.grow(server)
        {
            for _ in 0..2 {
                if started.report().is_err() {
                    return;
                }
            }
        }
        let unique = self.shared.echoes.fetch_add(2, Ordering::SeqCst);
        let kernel = Notifier::new(Arc::clone(self.shared.mount.device()) as _);
        if let Err(error) = self.on_processor(|| kernel.echo(unique, node)) {
            tracing::debug!(queue = self.number, %error, "a queue could not be nudged");
        }
    }

    /// Runs `call` on the processor of this queue.
    fn on_processor<T>(&self, call: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        let before = sched_getaffinity(None)?;
        bind(self.number)?;
        let outcome = call();
        sched_setaffinity(None, &before)?;
        outcome
    }
}

/// Keeps the calling thread on one processor.
pub(super) fn bind(processor: u16) -> rustix::io::Result<()> {
    let mut one = CpuSet::new();
    one.set(usize::from(processor));
    sched_setaffinity(None, &one)
}
