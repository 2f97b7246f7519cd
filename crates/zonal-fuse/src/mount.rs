//! The life of a mount: mounted, ready, served, unmounted, closed cleanly.
//!
//! [`serve`] runs all of it and returns when it is over. Beside the threads that answer requests,
//! one calls [`FileSystem::tick`] twice a second, or sooner if there is work, one commits for all
//! requests that wait for a commit, and one waits for SIGTERM and SIGINT. A device that hangs may
//! block any of them, but not the end of the mount: once asked to end, the main thread waits for
//! everything with a time limit.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::mount::{MountFlags, UnmountFlags};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::{Handle, Signals};
use zonal_fs::vfs::FileSystem;
use zonal_fuse_transport::hidden::Hidden;
use zonal_fuse_transport::mount::{self, MountSpec};
use zonal_fuse_transport::{Session, Transport};

use crate::error::Result;
use crate::fuse::{Front, make_hidden};
use crate::latency::Latencies;
use crate::options::{Access, AsyncDirect, Atime, Audience, MountConfig, Restrict, processors};
use crate::unmount::detach;
use crate::{ServeError, read_only};

/// Between two calls of [`FileSystem::tick`] without need: half of the least age at which what was
/// written is committed.
const TICK: Duration = Duration::from_millis(500);

/// How long a daemon that was asked to end waits for mapped pages to be written, and again for running
/// requests.
const UNMOUNT_TIMEOUT: Duration = Duration::from_secs(5);

/// How long it then waits for the file system to be closed.
const CLOSE_TIMEOUT: Duration = Duration::from_mins(1);

/// What the main thread waits for.
enum Event {
    /// The mount has ended.
    Ended(io::Result<()>),
    /// We are asked to end.
    Signal(i32),
    /// The file system is closed.
    Closed(Result<()>),
}

/// How a mount is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Served {
    /// How requests come from the kernel.
    pub transport: Transport,
    /// How asynchronous direct reads come.
    pub async_direct: AsyncDirect,
}

/// Serves `fs` at the mount point until it is unmounted or a SIGTERM or SIGINT arrives, then
/// closes `fs`. Calls `ready` as soon as the mount can be used, with how it is served. `latencies` takes how long
/// requests took.
///
/// Needs no package as root; as a user it needs `fusermount3`. After a signal the mount is gone
/// within about ten seconds, even if programs still have files open there: what they wrote is kept,
/// their later requests fail.
///
/// `fs` is shut down when this returns, with one exception, [`ServeError::Stuck`]: if a request, or
/// closing itself, does not end within a minute of a signal, or if a second SIGTERM or SIGINT
/// arrives. Then the process is to end; what was synced is on the drive, as after a power cut.
pub fn serve(
    fs: Arc<dyn FileSystem>,
    latencies: Arc<Latencies>,
    config: &MountConfig,
    ready: impl FnOnce(Served),
) -> Result<()> {
    let flusher = IoFlusher::become_one();
    let mut life = Life::new(Front::new(fs, latencies, config));
    let served = life.run(config, ready);
    let closed = life.close();
    flusher.end();
    served.and(closed)
}

/// What lives as long as the mount, and until the file system is closed.
struct Life {
    front: Front,
    events: Sender<Event>,
    inbox: Receiver<Event>,
    signals: Option<Handle>,
    /// Whether we were asked to end, and how urgently.
    asked: Asked,
    /// Threads that end when the mount has.
    threads: Vec<JoinHandle<()>>,
}

/// What the thread that ticks waits for.
enum Upkeep {
    /// There is work.
    Work,
    /// The mount has ended.
    End,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Asked {
    No,
    Once,
    Twice,
}

impl Life {
    fn new(front: Front) -> Self {
        let (events, inbox) = channel();
        Self { front, events, inbox, signals: None, asked: Asked::No, threads: Vec::new() }
    }

    /// Mounts, serves and unmounts.
    fn run(&mut self, config: &MountConfig, ready: impl FnOnce(Served)) -> Result<()> {
        let point = mount_point(&config.mount_point)?;
        // Before mounting: a signal from now on unmounts instead of killing.
        self.watch_signals()?;
        let session = Session::new(&spec(config, &point), &self.front.wishes(), threads(config))
            .map_err(|source| ServeError::Mount { point: point.clone(), source })?;
        self.front.connect(session.notifier(), session.agreed());
        let hidden = make_hidden(&session);
        let (kernel, beside) = (session.notifier(), hidden.as_ref().map(Hidden::notifier));
        let pages = self.front.page_tasks();
        self.spawn("pages", move || pages.run(&kernel, beside.as_ref()))?;
        let (upkeep, needs) = channel();
        let (front, wake) = (self.front.clone(), upkeep.clone());
        // The channel is open as long as the thread lives, and needed no longer.
        front.on_work(Arc::new(move || drop(wake.send(Upkeep::Work))));
        self.spawn("tick", move || tick(&front, &needs))?;
        let syncs = self.front.sync_tasks();
        self.spawn("commit", move || syncs.run())?;
        if let Some(sending) = self.front.sending() {
            let root = point.clone();
            self.spawn("write-back", move || sending.run(&root))?;
        }
        let (front, root, watched) = (self.front.clone(), point.clone(), config.clone());
        self.spawn("read-only", move || {
            read_only::watch(front.became_read_only(), &root, &watched);
        })?;
        let async_direct = self.front.serve_hidden(hidden, &session, threads(config));
        let served = Served { transport: session.transport(), async_direct };
        tracing::info!(?served, "requests come");
        self.serve_in_background(session).inspect_err(|_| self.front.end_hidden())?;
        ready(served);
        let ended = self.wait(&point);
        let _ = upkeep.send(Upkeep::End);
        ended
    }

    fn spawn(&mut self, name: &str, run: impl FnOnce() + Send + 'static) -> Result<()> {
        self.threads.push(spawn(name, run)?);
        Ok(())
    }

    fn watch_signals(&mut self) -> Result<()> {
        let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP])
            .map_err(|source| ServeError::Io { what: "waiting for signals".to_owned(), source })?;
        self.signals = Some(signals.handle());
        let events = self.events.clone();
        self.spawn("signals", move || {
            for signal in &mut signals {
                if events.send(Event::Signal(signal)).is_err() {
                    break;
                }
            }
        })
    }

    /// A session whose mount is busy outlives us, until the process ends.
    fn serve_in_background(&self, session: Session) -> Result<()> {
        let (front, events) = (self.front.clone(), self.events.clone());
        spawn("fuse-session", move || {
            let ended = session.run(&(Arc::new(front.clone()) as _));
            front.end_hidden();
            // The main thread may go on to close the file system.
            drop(front);
            // Nobody listens if the main thread waits no longer.
            let _ = events.send(Event::Ended(ended));
        })
        .map(drop)
    }

    /// Waits for the end of the mount, and brings it about on a signal.
    fn wait(&mut self, point: &Path) -> Result<()> {
        loop {
            let limit = if self.asked == Asked::No { None } else { Some(UNMOUNT_TIMEOUT) };
            match self.next(limit) {
                Some(Event::Ended(ended)) => return ended.map_err(ServeError::Session),
                Some(Event::Signal(signal)) => match self.asked {
                    Asked::No => {
                        tracing::info!(signal, "unmounting");
                        self.asked = Asked::Once;
                        end_mount(point);
                    }
                    Asked::Once => self.insist(signal),
                    Asked::Twice => return Ok(()),
                },
                Some(Event::Closed(_)) => unreachable!("nothing has been closed yet"),
                None => {
                    tracing::warn!("requests still run; closing regardless");
                    return Ok(());
                }
            }
            if self.asked == Asked::Twice {
                return Ok(());
            }
        }
    }

    /// Closes the file system. Without being asked to end, this takes as long as it takes.
    fn close(mut self) -> Result<()> {
        self.front.end_page_tasks();
        self.front.end_sync_tasks();
        self.front.end_sending();
        self.front.became_read_only().close();
        let (front, events) = (self.front.clone(), self.events.clone());
        spawn("close", move || {
            let closed = front.close().map_err(ServeError::Shutdown);
            drop(front);
            let _ = events.send(Event::Closed(closed));
        })?;
        loop {
            if self.asked == Asked::Twice {
                return Err(ServeError::Stuck);
            }
            let limit = if self.asked == Asked::No { None } else { Some(CLOSE_TIMEOUT) };
            match self.next(limit) {
                Some(Event::Closed(closed)) => {
                    self.join();
                    return closed;
                }
                Some(Event::Signal(signal)) => self.insist(signal),
                Some(Event::Ended(_)) => {}
                None => return Err(ServeError::Stuck),
            }
        }
    }

    /// The next event; `None` if there is none for so long.
    fn next(&self, limit: Option<Duration>) -> Option<Event> {
        match limit {
            None => Some(self.inbox.recv().expect("we hold a sender")),
            Some(limit) => self.inbox.recv_timeout(limit).ok(),
        }
    }

    /// A signal while we are ending. The end of a login session sends SIGTERM and then SIGHUP, so SIGHUP
    /// does not hurry us.
    fn insist(&mut self, signal: i32) {
        self.asked = match self.asked {
            Asked::No => Asked::Once,
            asked if signal == SIGHUP => asked,
            Asked::Once | Asked::Twice => Asked::Twice,
        };
    }

    /// Everything has ended: so that nothing of the device is held when we return.
    fn join(&mut self) {
        if let Some(signals) = self.signals.take() {
            signals.close();
        }
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a thread of the mount panicked");
            }
        }
    }
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>> {
    thread::Builder::new()
        .name(name.to_owned())
        .spawn(run)
        .map_err(|source| ServeError::Io { what: "starting a thread".to_owned(), source })
}

fn tick(front: &Front, needs: &Receiver<Upkeep>) {
    while let Ok(Upkeep::Work) | Err(RecvTimeoutError::Timeout) = needs.recv_timeout(TICK) {
        front.tick();
    }
}

/// This process writes what the kernel must write to get memory, so its own allocations must not wait
/// for that. Threads inherit it.
struct IoFlusher {
    was: bool,
}

impl IoFlusher {
    /// Only where it is permitted (`CAP_SYS_RESOURCE`).
    fn become_one() -> Self {
        let was = rustix::process::is_io_flusher().unwrap_or(false);
        if let Err(error) = rustix::process::configure_io_flusher_behavior(true) {
            tracing::debug!(%error, "allocations of memory may wait for this mount");
        }
        Self { was }
    }

    /// Of this thread, which is the caller's again.
    fn end(self) {
        if !self.was {
            let _ = rustix::process::configure_io_flusher_behavior(false);
        }
    }
}

/// Unmounts; if the mount is busy, writes mapped pages back and takes it away from its users.
fn end_mount(point: &Path) {
    match detach(point, UnmountFlags::empty()) {
        Ok(()) => return,
        Err(error) => tracing::warn!(%error, "forcing the mount to end"),
    }
    let (done, written) = channel();
    let root = point.to_owned();
    let writer = thread::Builder::new().name("write-back".to_owned()).spawn(move || {
        let synced = File::open(root).and_then(|root| Ok(rustix::fs::syncfs(root)?));
        let _ = done.send(synced);
    });
    if let Err(error) = writer.map(|_| written.recv_timeout(UNMOUNT_TIMEOUT)) {
        tracing::warn!(%error, "writing mapped pages back");
    }
    if let Err(error) = detach(point, UnmountFlags::DETACH | UnmountFlags::FORCE) {
        tracing::error!(%error, "the mount remains");
    }
}

/// The absolute path of the mount point, after the checks whose failure the kernel would not explain.
fn mount_point(point: &Path) -> Result<PathBuf> {
    if !mount::is_available() {
        return Err(ServeError::NoFuse);
    }
    let failed = |source| ServeError::Mount { point: point.to_owned(), source };
    let absolute = point.canonicalize().map_err(failed)?;
    if !absolute.is_dir() {
        return Err(failed(io::ErrorKind::NotADirectory.into()));
    }
    Ok(absolute)
}

fn spec(config: &MountConfig, point: &Path) -> MountSpec {
    MountSpec {
        point: point.to_owned(),
        source: config.source.clone(),
        subtype: config.kind.clone(),
        flags: flags(config),
        audience: match config.audience {
            Audience::Owner => mount::Audience::Owner,
            Audience::Everyone => mount::Audience::Everyone,
        },
    }
}

/// What the kernel is to watch over.
pub(crate) fn flags(config: &MountConfig) -> MountFlags {
    let mut flags = MountFlags::empty();
    for (restriction, flag) in [
        (Restrict::NODEV, MountFlags::NODEV),
        (Restrict::NOSUID, MountFlags::NOSUID),
        (Restrict::NOEXEC, MountFlags::NOEXEC),
        (Restrict::SYNC, MountFlags::SYNCHRONOUS),
        (Restrict::DIRSYNC, MountFlags::DIRSYNC),
    ] {
        flags.set(flag, config.restrict.contains(restriction));
    }
    flags.set(MountFlags::NOATIME, config.atime == Atime::Never);
    flags.set(MountFlags::RDONLY, config.access == Access::ReadOnly);
    flags
}

/// One thread per processor, and two more unless it is known how many may wait for the device.
fn threads(config: &MountConfig) -> usize {
    config.threads.map_or_else(|| processors() + 2, |threads| threads.get().into())
}
