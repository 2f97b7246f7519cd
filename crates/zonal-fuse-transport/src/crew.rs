//! The threads that take requests from `/dev/fuse`: as many as are asked for, and more where all of
//! these stand still.
//!
//! # Why nothing waits for ever
//! A thread that gives an answer runs what the kernel does with it. After an asynchronous direct
//! read the kernel locks the pages that it has read to. They can be pages of a file of the same
//! mount, which are mapped, and locked by somebody whose own request nobody has taken yet. If all
//! threads waited for such pages, nobody would ever take it. So one more thread watches
//! ([`Alarm`]): when all are at a request, and none has ended one for a while, it starts a spare
//! one, which ends when others wait for requests again. The requests that can hold a thread so are
//! those that the kernel sends in the background, and it sends only some at once; what waits for a
//! thread comes behind them at most.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread::{self, JoinHandle};

use crate::alarm::Alarm;
use crate::device::Device;
use crate::session::{Serve, work};

/// Spare threads at most: as many as the requests in the background that servers let the kernel
/// send at once.
pub(crate) const SPARES_MAX: usize = 64;

/// Threads that serve, and end with the mount.
pub(crate) type Serving = Vec<JoinHandle<io::Result<()>>>;

/// Waits until all threads have ended, also those that others start meanwhile. Fails if one has.
pub(crate) fn join_all(threads: &Mutex<Serving>) -> io::Result<()> {
    let mut outcome = Ok(());
    loop {
        // A thread may start others as long as it has not ended.
        let last = threads.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let Some(last) = last else { return outcome };
        let ended =
            last.join().unwrap_or_else(|_| Err(io::Error::other("a serving thread panicked")));
        outcome = outcome.and(ended);
    }
}

/// How threads work off the requests of `/dev/fuse`.
#[derive(Clone)]
pub(crate) struct Work {
    pub(crate) request_max: usize,
    /// Set where threads are to end after their next request, though the mount has not.
    pub(crate) ended: Arc<AtomicBool>,
}

/// Threads that serve one mount, and the one that watches them.
pub(crate) struct Crew {
    shared: Arc<Shared>,
    watcher: JoinHandle<()>,
}

/// What the threads of a crew share.
struct Shared {
    name: String,
    server: Arc<dyn Serve>,
    how: Work,
    /// By which spare threads take requests. It is open as long as the others are there.
    device: Weak<Device>,
    threads: Mutex<Serving>,
    /// Threads that wait for a request.
    free: AtomicUsize,
    /// Requests that threads are done with.
    done: AtomicU64,
    spares: AtomicUsize,
    alarm: Alarm,
}

/// Whether a thread stays.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stay {
    /// Until the mount has ended.
    Always,
    /// Until others wait for requests.
    WhileNeeded,
}

/// What a thread does between requests.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// Wait for another.
    Stay,
    /// End.
    Leave,
}

/// One of the threads of a crew.
pub(crate) struct Member {
    crew: Arc<Shared>,
    stay: Stay,
}

impl Member {
    /// Waits for a request from now on.
    pub(crate) fn wait(&self) {
        self.crew.free.fetch_add(1, Ordering::SeqCst);
    }

    /// Has one. Where no other waits, there may have to be one more.
    pub(crate) fn take(&self) {
        let others = self.crew.free.fetch_sub(1, Ordering::SeqCst) - 1;
        if others == 0 {
            self.crew.alarm.raise();
        }
    }

    /// Is done with it.
    pub(crate) fn end(&self) -> Next {
        self.crew.done.fetch_add(1, Ordering::SeqCst);
        let others_wait = self.crew.free.load(Ordering::SeqCst) > 0;
        let needed = self.stay == Stay::Always || !others_wait;
        if needed && !self.crew.how.ended.load(Ordering::SeqCst) { Next::Stay } else { Next::Leave }
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        if self.stay == Stay::WhileNeeded {
            self.crew.spares.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

impl Crew {
    /// Starts a thread for each connection, which belongs to it alone.
    pub(crate) fn start(
        name: &str,
        connections: Vec<Arc<Device>>,
        server: &Arc<dyn Serve>,
        how: &Work,
    ) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            name: name.to_owned(),
            server: Arc::clone(server),
            how: how.clone(),
            device: connections.first().map_or_else(Weak::new, Arc::downgrade),
            threads: Mutex::default(),
            free: AtomicUsize::new(0),
            done: AtomicU64::new(0),
            spares: AtomicUsize::new(0),
            alarm: Alarm::default(),
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
        self.shared.alarm.end();
        if self.watcher.join().is_err() {
            tracing::error!("the thread that watches the others panicked");
        }
        // It may have started one meanwhile.
        outcome.and(join_all(&self.shared.threads))
    }
}

impl Shared {
    fn spawn(self: &Arc<Self>, number: &str, device: Arc<Device>, stay: Stay) -> io::Result<()> {
        let member = Member { crew: Arc::clone(self), stay };
        let thread = thread::Builder::new().name(format!("{}-{number}", self.name));
        let thread = thread.spawn(move || {
            let crew = &member.crew;
            let outcome = work(&device, &*crew.server, crew.how.request_max, &member);
            if let (Err(error), Stay::WhileNeeded) = (&outcome, stay) {
                tracing::error!(%error, "a spare thread ended");
            }
            outcome
        })?;
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        threads.push(thread);
        Ok(())
    }

    /// Starts spare threads where they are needed, until the end.
    fn watch(self: &Arc<Self>) {
        let progress = || {
            let is_free = self.free.load(Ordering::SeqCst) > 0;
            (!is_free).then(|| self.done.load(Ordering::SeqCst))
        };
        self.alarm.watch(progress, |before, now| {
            if before == now {
                self.start_spare();
            }
        });
    }

    /// Starts a spare thread, as long as there are not too many.
    fn start_spare(self: &Arc<Self>) {
        let Some(device) = self.device.upgrade() else { return };
        if self.spares.load(Ordering::SeqCst) >= SPARES_MAX {
            return;
        }
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        // Spare ones that have ended. Others are waited for.
        threads.retain(|thread| {
            !(thread.is_finished() && thread.thread().name().is_some_and(|n| n.ends_with(SPARE)))
        });
        drop(threads);
        self.spares.fetch_add(1, Ordering::SeqCst);
        if let Err(error) = self.spawn(SPARE, device, Stay::WhileNeeded) {
            tracing::warn!(%error, "no thread for one more request");
        }
    }
}

/// What the name of a spare thread ends with.
const SPARE: &str = "spare";
