//! The threads that read requests from `/dev/fuse`: as many as the mount asks for, and spare ones
//! while all of them are blocked.
//!
//! # Why no request waits for ever
//! A thread that answers an asynchronous direct read runs kernel code that locks the pages which
//! the read filled. These can be mapped pages of a file of the same mount, locked by a process
//! whose own request no thread has read yet. If all threads waited for such pages, no thread would
//! ever read that request. So a [`Watchdog`] watches the pool: when all threads are busy and none
//! has finished a request for a while, it starts a spare thread, which ends when others are idle
//! again. Only background requests can block a thread like this, and the kernel sends a limited
//! number of them at once; so a limited number of spare threads is enough.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread::{self, JoinHandle};

use crate::answer::ReplySink;
use crate::device::{Device, RequestBuffer};
use crate::serve::{Serve, dispatch};
use crate::watchdog::Watchdog;

/// Most spare threads: the number of background requests that servers let the kernel send at once.
pub(crate) const SPARES_MAX: usize = 64;

/// Threads that serve, and end with the mount.
pub(crate) type ServingThreads = Vec<JoinHandle<io::Result<()>>>;

/// Waits until all threads have ended, including threads that they start meanwhile. Returns the
/// first error.
pub(crate) fn join_all(threads: &Mutex<ServingThreads>) -> io::Result<()> {
    let mut outcome = Ok(());
    loop {
        // A running thread may push another one.
        let last = threads.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let Some(last) = last else { return outcome };
        let ended =
            last.join().unwrap_or_else(|_| Err(io::Error::other("a serving thread panicked")));
        outcome = outcome.and(ended);
    }
}

/// How a pool serves requests.
#[derive(Clone)]
pub(crate) struct PoolOptions {
    /// Largest read or write in bytes.
    pub(crate) request_max: usize,
    /// If set, each thread ends after its next request, even if the mount has not ended.
    pub(crate) ended: Arc<AtomicBool>,
}

/// The threads that serve one mount, and their watchdog.
pub(crate) struct WorkerPool {
    shared: Arc<PoolShared>,
    watcher: JoinHandle<()>,
}

/// State that the threads of a pool share.
struct PoolShared {
    name: String,
    server: Arc<dyn Serve>,
    options: PoolOptions,
    /// Connection of spare threads. The other threads keep it open.
    device: Weak<Device>,
    threads: Mutex<ServingThreads>,
    /// Idle threads.
    free: AtomicUsize,
    /// Finished requests.
    done: AtomicU64,
    spares: AtomicUsize,
    watchdog: Watchdog,
}

/// How long a thread stays.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stay {
    /// Until the mount has ended.
    Always,
    /// Until another thread is idle.
    WhileNeeded,
}

/// The next step of a thread after a request.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Next {
    /// Wait for another.
    Stay,
    /// End.
    Leave,
}

/// One thread of a pool.
struct Worker {
    pool: Arc<PoolShared>,
    stay: Stay,
}

impl Worker {
    /// Serves one request after the other, until the mount ends or the thread is not needed.
    fn serve(&self, device: &Arc<Device>) -> io::Result<()> {
        let mut buffer = RequestBuffer::new(self.pool.options.request_max);
        let answers = Arc::clone(device) as Arc<dyn ReplySink>;
        loop {
            self.wait();
            let Some(message) = buffer.receive(device)? else { return Ok(()) };
            self.take();
            if let Err(error) = dispatch(message, &*self.pool.server, &answers) {
                return Err(io::Error::new(io::ErrorKind::InvalidData, error));
            }
            if self.end() == Next::Leave {
                return Ok(());
            }
        }
    }

    /// The thread is idle from now on.
    fn wait(&self) {
        self.pool.free.fetch_add(1, Ordering::SeqCst);
    }

    /// The thread has a request. If no other is idle, the watchdog looks whether a spare one is
    /// needed.
    fn take(&self) {
        let others = self.pool.free.fetch_sub(1, Ordering::SeqCst) - 1;
        if others == 0 {
            self.pool.watchdog.raise();
        }
    }

    /// The thread has finished its request.
    fn end(&self) -> Next {
        self.pool.done.fetch_add(1, Ordering::SeqCst);
        let others_wait = self.pool.free.load(Ordering::SeqCst) > 0;
        let needed = self.stay == Stay::Always || !others_wait;
        if needed && !self.pool.options.ended.load(Ordering::SeqCst) {
            Next::Stay
        } else {
            Next::Leave
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        if self.stay == Stay::WhileNeeded {
            self.pool.spares.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

impl WorkerPool {
    /// Starts one thread for each connection.
    pub(crate) fn start(
        name: &str,
        connections: Vec<Arc<Device>>,
        server: &Arc<dyn Serve>,
        options: &PoolOptions,
    ) -> io::Result<Self> {
        let shared = Arc::new(PoolShared {
            name: name.to_owned(),
            server: Arc::clone(server),
            options: options.clone(),
            device: connections.first().map_or_else(Weak::new, Arc::downgrade),
            threads: Mutex::default(),
            free: AtomicUsize::new(0),
            done: AtomicU64::new(0),
            spares: AtomicUsize::new(0),
            watchdog: Watchdog::default(),
        });
        for (index, device) in connections.into_iter().enumerate() {
            shared.spawn(&index.to_string(), device, Stay::Always)?;
        }
        let watched = Arc::clone(&shared);
        let watcher = thread::Builder::new().name(format!("{name}-watch"));
        let watcher = watcher.spawn(move || watched.watch())?;
        Ok(Self { shared, watcher })
    }

    /// Waits until all of them have ended.
    pub(crate) fn join(self) -> io::Result<()> {
        let outcome = join_all(&self.shared.threads);
        self.shared.watchdog.end();
        if self.watcher.join().is_err() {
            tracing::error!("the watchdog of the serving threads panicked");
        }
        // The watchdog may have started a thread meanwhile.
        outcome.and(join_all(&self.shared.threads))
    }
}

impl PoolShared {
    fn spawn(self: &Arc<Self>, number: &str, device: Arc<Device>, stay: Stay) -> io::Result<()> {
        let worker = Worker { pool: Arc::clone(self), stay };
        let thread = thread::Builder::new().name(format!("{}-{number}", self.name));
        let thread = thread.spawn(move || {
            let outcome = worker.serve(&device);
            if let (Err(error), Stay::WhileNeeded) = (&outcome, stay) {
                tracing::error!(%error, "a spare thread ended");
            }
            outcome
        })?;
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        threads.push(thread);
        Ok(())
    }

    /// Starts spare threads while all threads are blocked, until the end of the pool.
    fn watch(self: &Arc<Self>) {
        let progress = || {
            let is_free = self.free.load(Ordering::SeqCst) > 0;
            (!is_free).then(|| self.done.load(Ordering::SeqCst))
        };
        self.watchdog.watch(progress, |before, now| {
            if before == now {
                self.start_spare();
            }
        });
    }

    /// Starts a spare thread, unless there are [`SPARES_MAX`].
    fn start_spare(self: &Arc<Self>) {
        let Some(device) = self.device.upgrade() else { return };
        if self.spares.load(Ordering::SeqCst) >= SPARES_MAX {
            return;
        }
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        // Drops spare threads that have ended. `join` waits for the others.
        threads.retain(|thread| {
            !(thread.is_finished() && thread.thread().name().is_some_and(|n| n.ends_with(SPARE)))
        });
        drop(threads);
        self.spares.fetch_add(1, Ordering::SeqCst);
        if let Err(error) = self.spawn(SPARE, device, Stay::WhileNeeded) {
            tracing::warn!(%error, "no spare thread could be started");
        }
    }
}

/// End of the name of a spare thread.
const SPARE: &str = "spare";
