//! The life of a mount: mounted, ready, served, unmounted, closed cleanly.
//!
//! [`serve`] runs all of it and returns at the end. In addition to the serving threads, one calls
//! [`FileSystem::tick`] twice a second, or sooner if there is work, one commits for queued syncs,
//! and one waits for SIGTERM and SIGINT. A device that hangs may block any of them, but not the end
//! of the mount: after a signal, the main thread waits for everything with a time limit.
//!
//! # Block devices
//! A writable file system is mounted as `fuseblk` if the kernel passes sync(1) on to such a mount
//! (`passes_sync`). The kernel opens the block device of such a mount exclusively. That is the
//! device of the file system, if it is a block device of its own; else a loop device stands in for
//! it (`zonal_fuse_transport::mount::BlockDevice`).
//!
//! We have a device of our own open exclusively until we mount, and [hand the claim
//! over](zonal::Claim::hand_over). If another process takes the device in between, mount(2) fails,
//! and nothing has been written since. umount(2) waits for our answer to its last request, which
//! comes when the file system is closed: then the kernel releases the device.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::mount::UnmountFlags;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::{Handle, Signals};
use zonal::{Claim, ZonedDevice, mounts, shown};
use zonal_fs::FsError;
use zonal_fs::vfs::FileSystem;
use zonal_fuse_transport::Session;
use zonal_fuse_transport::hidden::HiddenMount;
use zonal_fuse_transport::mount::{self, BlockDevice, MountSpec, MountType};
use zonal_fuse_transport::panics::caught;

use crate::asked::{Asked, wait_for_same_wish};
use crate::error::Result;
use crate::fuse::{FuseServer, MountContent, make_hidden};
use crate::options::{Access, MountConfig, processors};
use crate::served::Served;
use crate::unmount::{detach_own, is_dead, sync_own};
use crate::{ServeError, read_only};

/// Time between two regular ticks: half of the least age at which writes are committed.
const TICK: Duration = Duration::from_millis(500);

/// After a signal, how long the daemon waits for mapped pages to be written, and again for running
/// requests.
const UNMOUNT_TIMEOUT: Duration = Duration::from_secs(5);

/// How long it then waits until the file system is closed.
const CLOSE_TIMEOUT: Duration = Duration::from_mins(1);

/// Event for the main thread.
enum Event {
    /// The mount has ended.
    Ended(io::Result<()>),
    /// A signal asks the daemon to end.
    Signal(i32),
    /// The next signal is another wish than the first.
    SameWishOver,
    /// The mount is detached, as far as possible.
    Detached,
    /// The file system is closed.
    Closed(Result<Access>),
}

/// Serves a file system at the mount point until it is unmounted or SIGTERM or SIGINT arrives, then
/// closes it. Calls `ready` as soon as the mount can be used.
///
/// Needs no package as root, and `fusermount3` as another user. After a signal the mount is gone
/// within about ten seconds, even if programs still have files open there: their writes are kept,
/// their later requests fail.
///
/// The file system is shut down when this returns, except after [`ServeError::Stuck`]: a request,
/// or closing itself, did not end within two minutes of a signal; and after
/// [`ServeError::EndedAtOnce`]: another SIGTERM or SIGINT came a second after the first or later.
/// Then the process must end; synced data is on the drive, as after a power cut.
pub fn serve(
    content: MountContent,
    config: &MountConfig,
    ready: impl FnOnce(Served),
) -> Result<()> {
    serve_with_claim(content, config, None, ready)
}

/// As [`serve`], for a file system on `device`: if it is a block device, the mount is on that
/// itself. If another process takes the device meanwhile ([`ServeError::Taken`]), the file system
/// is not shut down, and nothing is written to the device any more.
pub fn serve_on(
    device: &dyn ZonedDevice,
    content: MountContent,
    config: &MountConfig,
    ready: impl FnOnce(Served),
) -> Result<()> {
    serve_with_claim(content, config, device.claim(), ready)
}

fn serve_with_claim(
    content: MountContent,
    config: &MountConfig,
    claim: Option<&Claim>,
    ready: impl FnOnce(Served),
) -> Result<()> {
    let flusher = IoFlusher::become_one();
    let mut life = Life::new(FuseServer::new(content, config));
    let served = life.run(config, claim, ready);
    if let Err(ServeError::Taken(_)) = served {
        // Its drop would write to a device that is not ours any more.
        std::mem::forget(life);
        flusher.end();
        return served;
    }
    let ending = life.ending(config, &served);
    let closed = life.close();
    flusher.end();
    if let Some(ending) = ending {
        ending.log(&closed, config.access);
    }
    served.and(closed.map(drop))
}

/// End of a mount, for the log.
struct Ending {
    device: String,
    point: PathBuf,
    by: String,
}

impl Ending {
    /// Logs how the file system was closed: with its access at the end, and with `first` at the
    /// beginning.
    fn log(&self, closed: &Result<Access>, first: Access) {
        let Self { device, point, by } = self;
        let point = shown(point);
        match closed {
            Ok(Access::ReadOnly) if first == Access::ReadWrite => tracing::warn!(
                device,
                point,
                by,
                "unmounted, the device is not clean: it became read-only after a failure"
            ),
            Ok(_) => tracing::info!(device, point, by, "unmounted: the device is clean"),
            Err(error) => tracing::error!(
                device, point, by, %error,
                "unmounted, the device is not clean: the next mount recovers it"
            ),
        }
    }
}

/// State of a mount, until the file system is closed.
struct Life {
    server: FuseServer,
    events: Sender<Event>,
    inbox: Receiver<Event>,
    signals: Option<Handle>,
    /// The end that signals have asked for so far.
    asked: Asked,
    /// The first signal.
    signal: Option<i32>,
    /// How far the mount got.
    stage: Stage,
    /// Threads that end when the mount has.
    threads: Vec<JoinHandle<()>>,
}

/// Stage of a mount.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Starting,
    Served,
}

/// Event for the ticking thread.
enum Upkeep {
    /// There is work.
    Work,
    /// The mount has ended.
    End,
}

impl Life {
    fn new(server: FuseServer) -> Self {
        let (events, inbox) = channel();
        let (asked, stage) = (Asked::Nothing, Stage::Starting);
        let (signals, signal, threads) = (None, None, Vec::new());
        Self { server, events, inbox, signals, asked, signal, stage, threads }
    }

    /// The end for the log; `None` if there was no mount.
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
        let (session, mount_type) = self.open_session(config, claim, &point)?;
        self.server.kernel.connect(session.notifier(), session.negotiated());
        let hidden = make_hidden(&session);
        let (kernel, beside) = (session.notifier(), hidden.as_ref().map(HiddenMount::notifier));
        let tasks = self.server.pages.cache.tasks.open();
        self.spawn("pages", move |server| {
            server.pages.cache.run(&tasks, &kernel, beside.as_ref());
        })?;
        let (upkeep, needs) = channel();
        let wake = upkeep.clone();
        // The send fails once the thread has ended, when ticks do not matter.
        self.server.fs.guarded.on_work(Arc::new(move || drop(wake.send(Upkeep::Work))));
        self.spawn("tick", move |server| tick(server, &needs))?;
        let syncs = self.server.fsync_queue.open();
        self.spawn("commit", move |server| server.commit_queued(&syncs))?;
        if self.server.pages.writeback.is_on() {
            let (ending, root) = (self.server.pages.writeback.ending.open(), point.clone());
            self.spawn("write-back", move |server| {
                server.pages.writeback.flush_regularly(&ending, &root);
            })?;
        }
        let root = point.clone();
        self.spawn("read-only", move |server| {
            read_only::watch(&server.fs.guarded.became_read_only, &root);
        })?;
        let async_direct = self.server.serve_hidden(hidden, &session, threads(config));
        let served = Served { transport: session.transport(), async_direct, mount_type };
        tracing::info!(?served, "serving");
        self.serve_in_background(session).inspect_err(|_| self.server.pages.passthrough.end())?;
        self.stage = Stage::Served;
        ready(served);
        let ended = self.wait(config, &point);
        let _ = upkeep.send(Upkeep::End);
        ended
    }

    /// Mounts: for writing as `fuseblk`, if the kernel passes sync(1) on and allows it.
    fn open_session(
        &self,
        config: &MountConfig,
        claim: Option<&Claim>,
        point: &Path,
    ) -> Result<(Session, MountType)> {
        let open = |spec: &MountSpec| {
            let session = Session::new(spec, &self.server.kernel.request, threads(config))?;
            Ok((session, spec.kind))
        };
        let failed = |source| ServeError::Mount { point: point.to_owned(), source };
        let spec = spec(config, point);
        // A device that is only read may be shared, even mounted elsewhere.
        if config.access == Access::ReadOnly || !passes_sync() {
            return open(&spec).map_err(failed);
        }
        let mut on_block = spec.clone();
        on_block.kind = MountType::Fuseblk(BlockDevice::StandIn);
        if let Some(claim) = claim {
            on_block.kind = MountType::Fuseblk(BlockDevice::Source);
            on_block.source = claim.path().canonicalize().map_err(failed)?.display().to_string();
            claim.hand_over();
        }
        open(&on_block).or_else(|error| {
            // Another process may have written to the device: we must not write any more.
            claim.map_or(Ok(()), Claim::take_back).map_err(ServeError::Taken)?;
            tracing::info!(%error, "no mount of type fuseblk: sync(1) does not reach us");
            open(&spec).map_err(failed)
        })
    }

    /// Starts a thread that ends with the mount. If it panics, the mount becomes read-only.
    fn spawn(&mut self, name: &str, run: impl FnOnce(&FuseServer) + Send + 'static) -> Result<()> {
        let server = self.server.clone();
        self.threads.push(spawn(name, move || {
            if let Err(message) = caught(|| run(&server)) {
                server.fs.guarded.note(&message);
            }
        })?);
        Ok(())
    }

    fn watch_signals(&mut self) -> Result<()> {
        let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP])
            .map_err(|source| ServeError::Io { what: "waiting for signals".to_owned(), source })?;
        self.signals = Some(signals.handle());
        let events = self.events.clone();
        self.spawn("signals", move |_| {
            for signal in &mut signals {
                if events.send(Event::Signal(signal)).is_err() {
                    break;
                }
            }
        })
    }

    /// Serves in a thread. If the mount stays busy, the thread runs until the process ends.
    fn serve_in_background(&self, session: Session) -> Result<()> {
        let (server, events) = (self.server.clone(), self.events.clone());
        spawn("fuse-session", move || {
            let ended = caught(|| session.run(&(Arc::new(server.clone()) as _)))
                .unwrap_or_else(|message| Err(io::Error::other(message)));
            server.pages.passthrough.end();
            // Before the event: the main thread then closes the file system.
            drop(server);
            // Fails if the main thread does not wait any more.
            let _ = events.send(Event::Ended(ended));
        })
        .map(drop)
    }

    /// Waits for the end of the mount; a signal ends it.
    fn wait(&mut self, config: &MountConfig, point: &Path) -> Result<()> {
        let mut limit = None;
        loop {
            match self.next(limit) {
                Some(Event::Ended(ended)) => return ended.map_err(ServeError::Session),
                Some(Event::Signal(signal)) => {
                    if self.asked == Asked::Nothing {
                        tracing::info!(signal, "unmounting");
                        self.signal = Some(signal);
                        // Unmounting a `fuseblk` includes closing the file system.
                        limit = Some(CLOSE_TIMEOUT);
                        self.end_in_background(config, point)?;
                    }
                    self.hear(signal)?;
                }
                Some(Event::SameWishOver) => self.asked = self.asked.after_same_wish(),
                Some(Event::Detached) => limit = Some(UNMOUNT_TIMEOUT),
                Some(Event::Closed(_)) => unreachable!("nothing has been closed yet"),
                None => {
                    tracing::warn!("requests still run; closing regardless");
                    return Ok(());
                }
            }
            if self.asked == Asked::EndAtOnce {
                end_mount_at_once(config, point);
                return Ok(());
            }
        }
    }

    /// Unmounts in a thread, while the main thread keeps handling signals.
    fn end_in_background(&self, config: &MountConfig, point: &Path) -> Result<()> {
        let (events, config, point) = (self.events.clone(), config.clone(), point.to_owned());
        spawn("unmount", move || {
            end_mount(&config, &point);
            let _ = events.send(Event::Detached);
        })
        .map(drop)
    }

    /// Closes the file system; after a signal, with a time limit. Returns its access at the end.
    fn close(mut self) -> Result<Access> {
        self.server.end_threads();
        let (server, events) = (self.server.clone(), self.events.clone());
        spawn("close", move || {
            let closed = caught(|| server.fs.close())
                .unwrap_or_else(|message| Err(FsError::Panicked { message }))
                .map_err(ServeError::Shutdown);
            drop(server);
            let _ = events.send(Event::Closed(closed));
        })?;
        loop {
            if self.asked == Asked::EndAtOnce {
                return Err(ServeError::EndedAtOnce);
            }
            let limit = if self.asked == Asked::Nothing { None } else { Some(CLOSE_TIMEOUT) };
            match self.next(limit) {
                Some(Event::Closed(closed)) => {
                    self.join();
                    return closed;
                }
                Some(Event::Signal(signal)) => self.hear(signal)?,
                Some(Event::SameWishOver) => self.asked = self.asked.after_same_wish(),
                Some(Event::Ended(_) | Event::Detached) => {}
                None => return Err(ServeError::Stuck),
            }
        }
    }

    /// The next event; `None` after `limit`.
    fn next(&self, limit: Option<Duration>) -> Option<Event> {
        match limit {
            None => Some(self.inbox.recv().expect("we hold a sender")),
            Some(limit) => self.inbox.recv_timeout(limit).ok(),
        }
    }

    /// Notes the request of a signal. After the first signal, a thread reports the end of
    /// `SAME_WISH`: from then on a signal is another request.
    fn hear(&mut self, signal: i32) -> Result<()> {
        let before = self.asked;
        self.asked = before.after_signal(signal);
        if before != Asked::Nothing {
            return Ok(());
        }
        let events = self.events.clone();
        spawn("same-wish", move || {
            wait_for_same_wish();
            let _ = events.send(Event::SameWishOver);
        })
        .map(drop)
    }

    /// Joins all threads, so that none holds the device when we return.
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

fn tick(server: &FuseServer, needs: &Receiver<Upkeep>) {
    while let Ok(Upkeep::Work) | Err(RecvTimeoutError::Timeout) = needs.recv_timeout(TICK) {
        server.fs.tick();
    }
}

/// Mark of this process as an I/O flusher: it writes data that the kernel must write to get memory,
/// so its own allocations must not wait for such writes. Threads inherit the mark.
struct IoFlusher {
    was: bool,
}

impl IoFlusher {
    /// Sets the mark, if the process may (`CAP_SYS_RESOURCE`).
    fn become_one() -> Self {
        let was = rustix::process::is_io_flusher().unwrap_or(false);
        if let Err(error) = rustix::process::configure_io_flusher_behavior(true) {
            tracing::debug!(%error, "allocations of memory may wait for this mount");
        }
        Self { was }
    }

    /// Restores the mark of this thread, which belongs to the caller again.
    fn end(self) {
        if !self.was {
            let _ = rustix::process::configure_io_flusher_behavior(false);
        }
    }
}

/// Unmounts; if the mount is busy, writes mapped pages back and detaches it by force.
fn end_mount(config: &MountConfig, point: &Path) {
    if !is_in_table(config, point) {
        tracing::info!("the mount is in other mount namespaces only, or covered; ending it there");
        return;
    }
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

/// Takes the mount away, if it is still there, without waiting for programs or the device.
/// Otherwise the process would leave a dead mount.
fn end_mount_at_once(config: &MountConfig, point: &Path) {
    if !is_in_table(config, point) {
        return;
    }
    let (point, (ended, end)) = (point.to_owned(), channel());
    let detached = spawn("unmount", move || {
        let _ = ended.send(detach_own(&point, UnmountFlags::DETACH | UnmountFlags::FORCE));
    });
    if let Err(error) = detached.and_then(|_| match end.recv_timeout(UNMOUNT_TIMEOUT) {
        Ok(outcome) => outcome,
        Err(_) => Err(ServeError::Stuck),
    }) {
        tracing::error!(%error, "the mount remains");
    }
}

/// Whether this mount namespace has the mount still, as far as can be told. Another mount at this
/// directory, below or above, is not ours to unmount.
fn is_in_table(config: &MountConfig, point: &Path) -> bool {
    let Ok(all) = mounts::all() else { return true };
    let top = all.into_iter().rfind(|mount| mount.point == point);
    top.is_some_and(|top| top.kind.to_string_lossy().ends_with(&config.kind))
}

/// The absolute path of the mount point, after checks that have better errors than mount(2).
fn mount_point(point: &Path) -> Result<PathBuf> {
    mount::check_available().map_err(|error| match error.kind() {
        io::ErrorKind::PermissionDenied => ServeError::FuseDenied,
        _ => ServeError::NoFuse,
    })?;
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
        kind: MountType::Fuse,
        subtype: config.kind.clone(),
        flags: config.flags(),
        audience: config.audience,
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

/// Number of serving threads: as configured, else one per processor and two more.
fn threads(config: &MountConfig) -> usize {
    config.threads.map_or_else(|| processors() + 2, |threads| threads.get().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn release_number_of_linux_parses() {
        assert_eq!(release_number("6.18.44-fc-v769"), Some((6, 18)));
        assert_eq!(release_number("7.0-rc1"), Some((7, 0)));
        assert_eq!(release_number("6.6.87.2-microsoft-standard-WSL2"), Some((6, 6)));
        assert_eq!(release_number("unknown"), None);
    }
}
