//! The life of a mount: mounted, ready, served, unmounted, closed cleanly.
//!
//! [`serve`] runs all of it and returns when it is over. Beside the threads that answer requests,
//! one calls [`FileSystem::tick`] every second and one waits for SIGTERM and SIGINT.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use fuser::{Config, MountOption, Session, SessionACL};
use rustix::mount::UnmountFlags;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use zonal_fs::vfs::FileSystem;

use crate::error::Result;
use crate::fuse::Front;
use crate::options::{Access, Atime, Audience, MountConfig, Restrict};
use crate::unmount::detach;
use crate::{ServeError, read_only};

/// Between two calls of [`FileSystem::tick`].
const TICK: Duration = Duration::from_secs(1);

/// How long a signalled daemon waits for mapped pages to be written, and again for running
/// requests, before it ends regardless.
const PATIENCE: Duration = Duration::from_secs(5);

/// What the main thread waits for.
enum Event {
    /// The kernel let go of the mount.
    Ended(io::Result<()>),
    /// Somebody wants us to end.
    Signal(i32),
}

/// Serves `fs` at the mount point until it is unmounted or a SIGTERM or SIGINT arrives, then
/// closes `fs`. Calls `ready` as soon as the mount can be used.
///
/// Needs no package as root; as a user it needs `fusermount3`. Whatever happens, `fs` is shut
/// down when this returns. After a signal the mount is gone within about ten seconds, even if
/// programs still have files open there: what they wrote is kept, their later requests fail.
pub fn serve(fs: Arc<dyn FileSystem>, config: &MountConfig, ready: impl FnOnce()) -> Result<()> {
    let front = Front::new(fs, config);
    let served = run(&front, config, ready);
    let closed = front.close().map_err(ServeError::Shutdown);
    served.and(closed)
}

fn run(front: &Front, config: &MountConfig, ready: impl FnOnce()) -> Result<()> {
    let point = mount_point(&config.mount_point)?;
    // Before mounting: a signal from now on unmounts instead of killing.
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP])
        .map_err(|source| ServeError::Io { what: "waiting for signals".to_owned(), source })?;
    let signals_end = signals.handle();
    let session = Session::new(front.clone(), &point, &session_config(config))
        .map_err(|source| ServeError::Mount { point: point.clone(), source })?;
    front.connect(session.notifier());
    let (events, inbox) = channel();
    let (ticking, tick_end) = channel::<()>();
    thread::scope(|scope| {
        let signalled = events.clone();
        scope.spawn(move || {
            for signal in &mut signals {
                if signalled.send(Event::Signal(signal)).is_err() {
                    break;
                }
            }
        });
        scope.spawn(move || tick(front, &tick_end));
        let (kernel, pages) = (session.notifier(), front.page_tasks());
        scope.spawn(move || pages.run(&kernel));
        let bell = front.became_read_only();
        let root = point.as_path();
        scope.spawn(move || read_only::watch(bell, root, config));
        // Not in the scope: a session whose mount is busy outlives us, until the process ends.
        let started = serve_in_background(session, events);
        let served = started.and_then(|()| {
            ready();
            wait(&point, &inbox)
        });
        front.end_page_tasks();
        front.became_read_only().remove();
        signals_end.close();
        drop(ticking);
        served
    })
}

fn serve_in_background(session: Session<Front>, events: Sender<Event>) -> Result<()> {
    thread::Builder::new()
        .name("fuse-session".to_owned())
        .spawn(move || {
            let ended = session.run();
            // Nobody listens if the main thread has lost patience.
            let _ = events.send(Event::Ended(ended));
        })
        .map(drop)
        .map_err(|source| ServeError::Io { what: "starting a thread".to_owned(), source })
}

fn tick(front: &Front, end: &Receiver<()>) {
    while end.recv_timeout(TICK) == Err(RecvTimeoutError::Timeout) {
        front.tick();
    }
}

/// Waits for the end of the mount, and brings it about on a signal.
fn wait(point: &Path, inbox: &Receiver<Event>) -> Result<()> {
    match inbox.recv() {
        Ok(Event::Ended(ended)) => return ended.map_err(ServeError::Session),
        Ok(Event::Signal(signal)) => tracing::info!(signal, "unmounting"),
        Err(_) => unreachable!("the signal thread holds a sender"),
    }
    end_mount(point);
    loop {
        match inbox.recv_timeout(PATIENCE) {
            Ok(Event::Ended(ended)) => return ended.map_err(ServeError::Session),
            Ok(Event::Signal(_)) => {}
            Err(_) => {
                tracing::warn!("requests still run; closing regardless");
                return Ok(());
            }
        }
    }
}

/// Unmounts; if the mount is busy, writes mapped pages back and takes it away from its users.
fn end_mount(point: &Path) {
    match detach(point, UnmountFlags::empty()) {
        Ok(()) => return,
        Err(error) => tracing::warn!(%error, "taking the mount away"),
    }
    let (done, written) = channel();
    let root = point.to_owned();
    let writer = thread::Builder::new().name("write-back".to_owned()).spawn(move || {
        let synced = File::open(root).and_then(|root| Ok(rustix::fs::syncfs(root)?));
        let _ = done.send(synced);
    });
    if let Err(error) = writer.map(|_| written.recv_timeout(PATIENCE)) {
        tracing::warn!(%error, "writing mapped pages back");
    }
    if let Err(error) = detach(point, UnmountFlags::DETACH | UnmountFlags::FORCE) {
        tracing::error!(%error, "the mount stays behind");
    }
}

/// The absolute path of the mount point, after the checks whose failure fuser would not explain.
fn mount_point(point: &Path) -> Result<PathBuf> {
    if !Path::new("/dev/fuse").exists() {
        return Err(ServeError::NoFuse);
    }
    let failed = |source| ServeError::Mount { point: point.to_owned(), source };
    let absolute = point.canonicalize().map_err(failed)?;
    if !absolute.is_dir() {
        return Err(failed(io::ErrorKind::NotADirectory.into()));
    }
    Ok(absolute)
}

fn session_config(config: &MountConfig) -> Config {
    let mut options = vec![
        MountOption::FSName(config.source.clone()),
        // fuser passes `Subtype` on to fusermount only; the kernel takes it as an option too.
        MountOption::CUSTOM(format!("subtype={}", config.kind)),
        MountOption::DefaultPermissions,
    ];
    options.push(match config.access {
        Access::ReadWrite => MountOption::RW,
        Access::ReadOnly => MountOption::RO,
    });
    if config.atime == Atime::Never {
        options.push(MountOption::NoAtime);
    }
    for (restriction, on, off) in [
        (Restrict::NODEV, MountOption::NoDev, Some(MountOption::Dev)),
        (Restrict::NOSUID, MountOption::NoSuid, Some(MountOption::Suid)),
        (Restrict::NOEXEC, MountOption::NoExec, None),
        (Restrict::SYNC, MountOption::Sync, None),
        (Restrict::DIRSYNC, MountOption::DirSync, None),
    ] {
        options.extend(if config.restrict.contains(restriction) { Some(on) } else { off });
    }
    let mut session = Config::default();
    session.mount_options = options;
    session.acl = match config.audience {
        Audience::Owner => SessionACL::Owner,
        Audience::Everyone => SessionACL::All,
    };
    session.n_threads = Some(threads());
    session.clone_fd = true;
    session
}

/// One thread per processor, and two more that may sit in an fsync while the others read.
fn threads() -> usize {
    thread::available_parallelism().map_or(2, usize::from).min(14) + 2
}
