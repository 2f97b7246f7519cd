//! The life of a mount: mounted, ready, served, unmounted, closed cleanly.
//!
//! [`serve`] runs all of it and returns when it is over. Beside the threads that answer requests,
//! one calls [`FileSystem::tick`] twice a second, or sooner if there is work, one commits for all
//! requests that wait for a commit, and one waits for SIGTERM and SIGINT. A device that hangs may
//! block any of them, but not the end of the mount: once asked to end, the main thread waits for
//! everything with a time limit.
//!
//! # Block devices
//! A file system that is written on a block device of its own is mounted as `fuseblk` where the
//! kernel passes sync(1) on to such a mount (`passes_sync`). The kernel opens the device
//! exclusively then, and so do we from when we open it until we mount: the claim is [handed
//! over](zonal::Claim::hand_over). Whoever takes the device in between makes mount(2) fail, and
//! nothing has been written since. umount(2) waits for our answer to its last request, which is
//! given when the file system is closed: after it the kernel lets others have the device.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::mount::{MountFlags, UnmountFlags};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::{Handle, Signals};
use zonal::{Claim, ZonedDevice, shown};
use zonal_fs::FsError;
use zonal_fs::vfs::FileSystem;
use zonal_fuse_transport::hidden::Hidden;
use zonal_fuse_transport::mount::{self, Kind, MountSpec};
use zonal_fuse_transport::panics::caught;
use zonal_fuse_transport::{Session, Transport};

use crate::error::Result;
use crate::fuse::{Front, make_hidden};
use crate::latency::Latencies;
use crate::options::{Access, AsyncDirect, Atime, Audience, MountConfig, Restrict, processors};
use crate::unmount::{detach_own, is_dead, sync_own};
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
    /// The mount is taken away from its users, as far as possible.
    Detached,
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
    /// As what the kernel has mounted it.
    pub kind: Kind,
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
/// closing itself, does not end within two minutes of a signal, or if a second SIGTERM or SIGINT
/// arrives. Then the process is to end; what was synced is on the drive, as after a power cut.
pub fn serve(
    fs: Arc<dyn FileSystem>,
    latencies: Arc<Latencies>,
    config: &MountConfig,
    ready: impl FnOnce(Served),
) -> Result<()> {
    serve_with_claim(fs, latencies, config, None, ready)
}

/// The same for a file system on `device`: on a block device, where that is of use, as `fuseblk`.
/// If another process takes the device meanwhile ([`ServeError::Taken`]), `fs` is not shut down,
/// and nothing is written to the device any more.
pub fn serve_on(
    device: &dyn ZonedDevice,
    fs: Arc<dyn FileSystem>,
    latencies: Arc<Latencies>,
    config: &MountConfig,
    ready: impl FnOnce(Served),
) -> Result<()> {
    // Others may read a device that is only read, and mount it as well.
    let is_written = config.access == Access::ReadWrite;
    let claim = device.claim().filter(|_| is_written && passes_sync());
    serve_with_claim(fs, latencies, config, claim, ready)
}

fn serve_with_claim(
    fs: Arc<dyn FileSystem>,
    latencies: Arc<Latencies>,
    config: &MountConfig,
    claim: Option<&Claim>,
    ready: impl FnOnce(Served),
) -> Result<()> {
    let flusher = IoFlusher::become_one();
    let mut life = Life::new(Front::new(fs, latencies, config));
    let served = life.run(config, claim, ready);
    if let Err(ServeError::Taken(_)) = served {
        // All that ends here would write to a device that is not ours any more.
        std::mem::forget(life);
        flusher.end();
        return served;
    }
    let (ending, front) = (life.ending(config, &served), life.front.clone());
    let closed = life.close();
    flusher.end();
    if let Some(ending) = ending {
        ending.log(&closed, (config.access, front.access_at_end()));
    }
    served.and(closed)
}

/// How a mount has ended, for the log.
struct Ending {
    device: String,
    point: PathBuf,
    by: String,
}

impl Ending {
    /// Says how the file system was closed, which had the one access at first and the other at
    /// last.
    fn log(&self, closed: &Result<()>, access: (Access, Access)) {
        let Self { device, point, by } = self;
        let became_read_only = access == (Access::ReadWrite, Access::ReadOnly);
        let point = shown(point);
        match closed {
            Ok(()) if !became_read_only => {
                tracing::info!(device, point, by, "unmounted: the device is clean");
            }
            Ok(()) => tracing::warn!(
                device,
                point,
                by,
                "unmounted, the device is not clean: it became read-only after a failure"
            ),
            Err(error) => tracing::error!(
                device, point, by, %error,
                "unmounted, the device is not clean: the next mount recovers it"
            ),
        }
    }
}

/// What lives as long as the mount, and until the file system is closed.
struct Life {
    front: Front,
    events: Sender<Event>,
    inbox: Receiver<Event>,
    signals: Option<Handle>,
    /// Whether we were asked to end, and how urgently.
    asked: Asked,
    /// The signal by which.
    signal: Option<i32>,
    /// Whether there has been a mount at all.
    stage: Stage,
    /// Threads that end when the mount has.
    threads: Vec<JoinHandle<()>>,
}

/// How far a mount got.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Starting,
    Served,
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
        let (asked, stage) = (Asked::No, Stage::Starting);
        let (signals, signal, threads) = (None, None, Vec::new());
        Self { front, events, inbox, signals, asked, signal, stage, threads }
    }

    /// What the log says about the end; nothing if there was no mount.
    fn ending(&self, config: &MountConfig, served: &Result<()>) -> Option<Ending> {
        if self.stage == Stage::Starting {
            return None;
        }
        let by = match (self.signal, served) {
            (Some(signal), _) => format!("signal {signal}"),
            (None, Ok(())) => "umount".to_owned(),
            (None, Err(error)) => error.to_string(),
        };
        let (device, point) = (shown(&config.source), config.mount_point.clone());
        Some(Ending { device, point, by })
    }

    /// Mounts, serves and unmounts.
    fn run(
        &mut self,
        config: &MountConfig,
        claim: Option<&Claim>,
        ready: impl FnOnce(Served),
    ) -> Result<()> {
        let point = mount_point(&config.mount_point)?;
        // Before mounting: a signal from now on unmounts instead of killing.
        self.watch_signals()?;
        let (session, kind) = self.open_session(config, claim, &point)?;
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
        let served = Served { transport: session.transport(), async_direct, kind };
        tracing::info!(?served, "requests come");
        self.serve_in_background(session).inspect_err(|_| self.front.end_hidden())?;
        self.stage = Stage::Served;
        ready(served);
        let ended = self.wait(&point);
        let _ = upkeep.send(Upkeep::End);
        ended
    }

    /// Mounts.
    fn open_session(
        &self,
        config: &MountConfig,
        claim: Option<&Claim>,
        point: &Path,
    ) -> Result<(Session, Kind)> {
        let open = |spec: &MountSpec| {
            let session = Session::new(spec, &self.front.wishes(), threads(config))?;
            Ok((session, spec.kind))
        };
        let failed = |source| ServeError::Mount { point: point.to_owned(), source };
        let spec = spec(config, point);
        let Some(claim) = claim else { return open(&spec).map_err(failed) };
        let source = claim.path().canonicalize().map_err(failed)?.display().to_string();
        claim.hand_over();
        match open(&MountSpec { source, kind: Kind::Fuseblk, ..spec.clone() }) {
            Ok(session) => Ok(session),
            Err(error) => {
                // Who has it now may have written to it: nothing of ours is to follow.
                claim.take_back().map_err(ServeError::Taken)?;
                tracing::info!(%error, "no mount of the type fuseblk: sync(1) does not reach us");
                open(&spec).map_err(failed)
            }
        }
    }

    /// Starts a thread that ends when the mount has. If it panics, what it does is done no more,
    /// and the mount becomes read-only.
    fn spawn(&mut self, name: &str, run: impl FnOnce() + Send + 'static) -> Result<()> {
        let front = self.front.clone();
        self.threads.push(spawn(name, move || {
            if let Err(message) = caught(run) {
                front.panicked(&message);
            }
        })?);
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
            let ended = caught(|| session.run(&(Arc::new(front.clone()) as _)))
                .unwrap_or_else(|message| Err(io::Error::other(message)));
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
        let mut limit = None;
        loop {
            match self.next(limit) {
                Some(Event::Ended(ended)) => return ended.map_err(ServeError::Session),
                Some(Event::Signal(signal)) => match self.asked {
                    Asked::No => {
                        tracing::info!(signal, "unmounting");
                        (self.asked, self.signal) = (Asked::Once, Some(signal));
                        // With a `fuseblk` that includes closing the file system.
                        limit = Some(CLOSE_TIMEOUT);
                        self.end_in_background(point)?;
                    }
                    Asked::Once => self.insist(signal),
                    Asked::Twice => return Ok(()),
                },
                Some(Event::Detached) => limit = Some(UNMOUNT_TIMEOUT),
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

    /// Takes the mount away. We go on hearing signals meanwhile.
    fn end_in_background(&self, point: &Path) -> Result<()> {
        let (events, point) = (self.events.clone(), point.to_owned());
        spawn("unmount", move || {
            end_mount(&point);
            let _ = events.send(Event::Detached);
        })
        .map(drop)
    }

    /// Closes the file system. Without being asked to end, this takes as long as it takes.
    fn close(mut self) -> Result<()> {
        self.front.end_page_tasks();
        self.front.end_sync_tasks();
        self.front.end_sending();
        self.front.became_read_only().close();
        let (front, events) = (self.front.clone(), self.events.clone());
        spawn("close", move || {
            let closed = caught(|| front.close())
                .unwrap_or_else(|message| Err(FsError::Panicked { message }))
                .map_err(ServeError::Shutdown);
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
                Some(Event::Ended(_) | Event::Detached) => {}
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
    match detach_own(point, UnmountFlags::empty()) {
        Ok(()) => return,
        Err(error) => tracing::warn!(%error, "forcing the mount to end"),
    }
    if let Err(error) = sync_own(point, UNMOUNT_TIMEOUT) {
        tracing::warn!(%error, "writing mapped pages back");
    }
    if let Err(error) = detach_own(point, UnmountFlags::DETACH | UnmountFlags::FORCE) {
        tracing::error!(%error, "the mount remains");
    }
}

/// The absolute path of the mount point, after the checks whose failure the kernel would not explain.
fn mount_point(point: &Path) -> Result<PathBuf> {
    if !mount::is_available() {
        return Err(ServeError::NoFuse);
    }
    let failed = |source| ServeError::Mount { point: point.to_owned(), source };
    let found = |point: PathBuf| Ok((std::fs::metadata(&point)?, point));
    match point.canonicalize().and_then(found) {
        Ok((found, absolute)) if found.is_dir() => Ok(absolute),
        Ok(_) => Err(failed(io::ErrorKind::NotADirectory.into())),
        Err(error) if is_dead(&error) => Err(ServeError::Dead { point: point.to_owned() }),
        Err(error) => Err(failed(error)),
    }
}

fn spec(config: &MountConfig, point: &Path) -> MountSpec {
    MountSpec {
        point: point.to_owned(),
        source: config.source.clone(),
        kind: Kind::Fuse,
        subtype: config.kind.clone(),
        flags: flags(config),
        audience: match config.audience {
            Audience::Owner => mount::Audience::Owner,
            Audience::Everyone => mount::Audience::Everyone,
        },
    }
}

/// Whether the kernel passes sync(1) and syncfs(2) on to a mount of the type `fuseblk`.
fn passes_sync() -> bool {
    const FIRST: (u32, u32) = (6, 18);
    let system = rustix::system::uname();
    let release = system.release().to_str().unwrap_or_default();
    release_number(release).is_some_and(|number| number >= FIRST)
}

/// Major and minor number of a release of Linux.
fn release_number(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|letter: char| !letter.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
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
        (Restrict::NOSYMFOLLOW, MountFlags::NOSYMFOLLOW),
        (Restrict::NODIRATIME, MountFlags::NODIRATIME),
        (Restrict::LAZYTIME, MountFlags::LAZYTIME),
    ] {
        flags.set(flag, config.restrict.contains(restriction));
    }
    flags.set(MountFlags::NOATIME, config.atime == Atime::Never);
    flags.set(MountFlags::STRICTATIME, config.atime == Atime::Always);
    flags.set(MountFlags::RDONLY, config.access == Access::ReadOnly);
    flags
}

/// One thread per processor, and two more unless it is known how many may wait for the device.
fn threads(config: &MountConfig) -> usize {
    config.threads.map_or_else(|| processors() + 2, |threads| threads.get().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_of_linux() {
        assert_eq!(release_number("6.18.44-fc-v769"), Some((6, 18)));
        assert_eq!(release_number("7.0-rc1"), Some((7, 0)));
        assert_eq!(release_number("6.6.87.2-microsoft-standard-WSL2"), Some((6, 6)));
        assert_eq!(release_number("unknown"), None);
    }
}
