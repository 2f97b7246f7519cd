//! The queue of one processor: its entries get the requests of callers on that processor.
//!
//! # How deadlock is avoided
//! The kernel hands a request to a free entry of the queue. If all entries are busy, the request
//! stays queued until one of the queue's entries commits an answer; registering a new entry does
//! not make the kernel look at the queue. So the queue would be stuck if the answer at each of its
//! entries depended on a queued request. Such answers exist: a direct write is answered after stale
//! pages have left the page cache, and a queued read can hold the lock of such a page.
//!
//! So a thread that waits for another thread to answer its request nudges the queue
//! ([`Queue::nudge`]): it registers a new entry if none is free, and then makes a request on that
//! processor. This request goes to the free entry, which answers it at once and then takes the
//! first queued request. Each nudge takes one request out of the queue, in order, so it reaches the
//! one that holds the lock. A queue with queued requests has at least one busy entry: its thread
//! nudges, or is about to answer.
//!
//! Committing an answer can block too: after a direct read the kernel locks the pages that the read
//! filled, before it looks at the queue, as in [`worker_pool`](crate::worker_pool). So such an
//! entry counts as busy until the kernel has taken its answer, and a watchdog nudges a queue whose
//! entries are all busy without progress. It also nudges a queue that has got a new entry: a
//! request may have been queued before.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError, TryLockError};
use std::thread;
use std::time::Duration;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::NodeId;
use crate::mount::Mount;
use crate::notify::Notifier;
use crate::serve::Serve;
use crate::watchdog::Watchdog;
use crate::worker_pool::{SPARES_MAX, ServingThreads};

/// How long a thread waits for progress of the queue before its first nudge, and most between
/// further ones.
const STILL: Duration = Duration::from_millis(5);
const STILL_MAX: Duration = Duration::from_millis(100);

/// First number of nudging requests: even, as all numbers, and above the kernel's own numbers.
const ECHOES: u64 = 1 << 62;

/// Sizes of the queues of a mount.
#[derive(Clone, Copy)]
pub(crate) struct RingSizes {
    /// Largest read or write in bytes.
    pub(crate) request_max: usize,
    /// Most entries of a queue, not counting entries that wait for another thread.
    pub(crate) entries_max: usize,
}

/// Body of the thread of an entry. A queue that grows starts one, and knows nothing else of
/// entries.
pub(super) type EntryBody =
    fn(&Arc<Queue>, &Receiver<EntryOrder>, &Sender<io::Result<()>>) -> io::Result<()>;

/// State that all queues of a mount share.
pub(super) struct RingShared {
    pub(super) mount: Arc<Mount>,
    pub(super) sizes: RingSizes,
    /// Affinity of threads that are not bound to a processor.
    pub(super) everywhere: CpuSet,
    pub(super) threads: Mutex<ServingThreads>,
    pub(super) watchdog: Watchdog,
    echoes: AtomicU64,
}

impl RingShared {
    pub(super) fn new(mount: Arc<Mount>, sizes: RingSizes) -> io::Result<Self> {
        Ok(Self {
            mount,
            sizes,
            everywhere: sched_getaffinity(None)?,
            threads: Mutex::default(),
            watchdog: Watchdog::default(),
            echoes: AtomicU64::new(ECHOES),
        })
    }
}

/// Whether a processor is online.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Processor {
    Online,
    Offline,
}

/// The queue of one processor.
pub(super) struct Queue {
    pub(super) shared: Arc<RingShared>,
    /// The processor's number.
    pub(super) number: u16,
    pub(super) processor: Processor,
    /// Entries that are registered or about to be.
    entries: AtomicUsize,
    /// Entries with a request.
    at_work: AtomicUsize,
    /// Entries whose request another thread answers.
    waiting: AtomicUsize,
    /// Committed answers.
    answers: AtomicU64,
    /// The file that was read or written last, for nudges.
    file: AtomicU64,
    /// Whether an entry was added since the watchdog looked.
    has_grown: AtomicBool,
    nudging: Mutex<()>,
    body: EntryBody,
}

/// Order to the thread of an entry.
pub(super) enum EntryOrder {
    /// Register: INIT is done.
    Register,
    /// Serve requests.
    Serve(Arc<dyn Serve>),
}

/// The thread of a new entry. It ends if this is dropped before the orders are given.
pub(super) struct EntryThread {
    pub(super) orders: Sender<EntryOrder>,
    /// Whether making the ring succeeded, then whether the registration did.
    pub(super) reports: Receiver<io::Result<()>>,
}

impl EntryThread {
    /// The next report.
    pub(super) fn report(&self) -> io::Result<()> {
        self.reports.recv().unwrap_or_else(|_| Err(io::Error::other("the thread has ended")))
    }
}

impl Queue {
    pub(super) fn new(
        shared: Arc<RingShared>,
        number: u16,
        processor: Processor,
        body: EntryBody,
    ) -> Arc<Self> {
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
            body,
        })
    }

    /// Starts the thread of one more entry.
    pub(super) fn start(self: &Arc<Self>) -> io::Result<EntryThread> {
        let ((orders, told), (report, reports)) = (channel(), channel());
        let count = self.entries.fetch_add(1, Ordering::SeqCst);
        let queue = Arc::clone(self);
        let thread = thread::Builder::new().name(format!("fuse-{}-{count}", self.number));
        let thread = thread.spawn(move || (queue.body)(&queue, &told, &report));
        let thread = thread.inspect_err(|_| self.lose_entry())?;
        self.shared.threads.lock().unwrap_or_else(PoisonError::into_inner).push(thread);
        Ok(EntryThread { orders, reports })
    }

    /// An entry has ended, or was never registered.
    pub(super) fn lose_entry(&self) {
        self.entries.fetch_sub(1, Ordering::SeqCst);
    }

    /// An entry has got a request; returns how many have one now. Adds an entry if none is free.
    pub(super) fn begin(self: &Arc<Self>, server: &Arc<dyn Serve>) -> usize {
        let at_work = self.at_work.fetch_add(1, Ordering::SeqCst) + 1;
        let entries = self.entries.load(Ordering::SeqCst);
        let waiting = self.waiting.load(Ordering::SeqCst);
        if at_work >= entries {
            self.shared.watchdog.raise();
        }
        if at_work >= entries && at_work.saturating_sub(waiting) < self.shared.sizes.entries_max {
            drop(self.grow(server));
        }
        at_work
    }

    /// An entry is about to commit its answer.
    pub(super) fn end(&self) {
        self.at_work.fetch_sub(1, Ordering::SeqCst);
        self.answers.fetch_add(1, Ordering::SeqCst);
    }

    /// An entry was added. The kernel has not looked at queued requests for it.
    pub(super) fn note_entry(&self) {
        self.has_grown.store(true, Ordering::SeqCst);
        self.shared.watchdog.raise();
    }

    /// The kernel reads or writes this file, so it knows the node.
    pub(super) fn note_file(&self, node: NodeId) {
        self.file.store(node.0, Ordering::SeqCst);
    }

    /// Number of committed answers, if all entries are busy or one was added.
    fn progress(&self) -> Option<u64> {
        let is_full = self.at_work.load(Ordering::SeqCst) >= self.entries.load(Ordering::SeqCst);
        let is_watched = is_full || self.has_grown.load(Ordering::SeqCst);
        is_watched.then(|| self.answers.load(Ordering::SeqCst))
    }

    /// Nudges queues without progress, until the end.
    pub(super) fn watch(queues: &[Arc<Self>], server: &Arc<dyn Serve>, watchdog: &Watchdog) {
        let progress = || {
            let all: Vec<_> = queues.iter().map(|queue| queue.progress()).collect();
            all.iter().any(Option::is_some).then_some(all)
        };
        watchdog.watch(progress, |before, now| {
            for (queue, (before, now)) in queues.iter().zip(before.iter().zip(now)) {
                let entries = queue.entries.load(Ordering::SeqCst);
                let may_grow = entries < queue.shared.sizes.entries_max + SPARES_MAX;
                let stands_still = now.is_some() && before == now && may_grow;
                let has_grown = queue.has_grown.swap(false, Ordering::SeqCst);
                let node = NodeId(queue.file.load(Ordering::SeqCst));
                if (stands_still || has_grown) && node.0 != 0 {
                    queue.nudge(server, node);
                }
            }
        });
    }

    /// Adds an entry. It is registered once both of its reports have come.
    fn grow(self: &Arc<Self>, server: &Arc<dyn Serve>) -> Option<EntryThread> {
        let started = self.start().inspect_err(|error| {
            tracing::warn!(queue = self.number, %error, "no thread for one more entry");
        });
        let started = started.ok()?;
        for step in [EntryOrder::Register, EntryOrder::Serve(Arc::clone(server))] {
            let _ = started.orders.send(step);
        }
        Some(started)
    }

    /// Waits until another thread has answered a request about `node`. `given` waits up to a limit,
    /// and returns whether the answer has come.
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

    /// Makes the kernel hand out a queued request. `node` must be a regular file that the kernel
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

/// Binds the calling thread to a processor.
pub(super) fn bind(processor: u16) -> rustix::io::Result<()> {
    let mut one = CpuSet::new();
    one.set(usize::from(processor));
    sched_setaffinity(None, &one)
}
