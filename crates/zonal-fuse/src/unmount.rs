//! Unmounts from outside: ends a mount and waits until its device is clean and released.
//!
//! umount(8) returns as soon as the kernel has released the mount, while the daemon still commits.
//! [`unmount_and_wait`] returns when the daemon has ended.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{AtFlags, StatxFlags};
use rustix::io::Errno;
use rustix::mount::UnmountFlags;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use zonal::mounts::{self, Mount};
use zonal_fuse_transport::own_mount::{self, Call};
use zonal_fuse_transport::program;

use crate::ServeError;
use crate::error::Result;
use crate::names::{CONTROL_DIR, DAEMON_XATTR, STOPPED_XATTR};
use crate::users::{User, namespaces_with, users_of};

/// Process id of the daemon that serves the mount at `point`.
pub fn daemon_of(point: &Path) -> Result<u32> {
    let mut value = [0; 16];
    let len = match rustix::fs::getxattr(point, DAEMON_XATTR, &mut value) {
        Ok(len) => len,
        Err(Errno::NODATA | Errno::NOTSUP) => {
            return Err(ServeError::NotServed { point: point.to_owned() });
        }
        Err(error) => {
            return Err(ServeError::Io { what: point.display().to_string(), source: error.into() });
        }
    };
    str::from_utf8(&value[..len])
        .ok()
        .and_then(|text| text.parse().ok())
        .ok_or_else(|| ServeError::NotServed { point: point.to_owned() })
}

/// State in which an unmount leaves the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unmounted {
    /// Clean and released by the daemon.
    Clean,
    /// As after a power cut: the daemon had died before, and the next mount recovers the device.
    DaemonWasDead,
    /// In use: the file system is mounted elsewhere too, by `mount --bind`.
    MountedElsewhere,
}

/// Whether the file system at `point` is mounted elsewhere too, by `mount --bind`.
pub fn is_mounted_elsewhere(point: &Path) -> bool {
    mounts_of(point).is_ok_and(|mounts| mounts > 1)
}

/// The reason why a daemon runs on, although its mount was taken away here: mount namespaces of
/// other processes have it still, or else a last commit or files of a detached mount are open.
#[derive(Debug)]
pub struct Kept {
    /// One process of each such namespace.
    pub users: Vec<User>,
    /// Whether all that was written so far is durable.
    pub synced: io::Result<()>,
}

/// Makes everything at `point` durable, unmounts it, and waits up to `timeout` until the daemon has
/// left the device clean and ended. Only unmounts if the daemon has died, or if the file system has
/// several mounts.
///
/// Fails without unmounting if the mount stays busy for a second, or if data cannot be made
/// durable.
pub fn unmount_and_wait(point: &Path, timeout: Duration) -> Result<Unmounted> {
    unmount_and_watch(point, timeout, |_| ())
}

/// As [`unmount_and_wait`]. Calls `tell` if the daemon has not ended after two seconds.
pub fn unmount_and_watch(
    point: &Path,
    timeout: Duration,
    tell: impl FnOnce(&Kept),
) -> Result<Unmounted> {
    if is_mounted_elsewhere(point) {
        detach_once_free(point)?;
        return Ok(Unmounted::MountedElsewhere);
    }
    let pid = match daemon_of(point) {
        Err(ServeError::Io { source, .. }) if is_dead(&source) => {
            // Programs that still use it get errors only.
            detach(point, UnmountFlags::DETACH)?;
            return Ok(Unmounted::DaemonWasDead);
        }
        found => found?,
    };
    let daemon = open_daemon(point, pid)?;
    if rustix::fs::getxattr(point, STOPPED_XATTR, &mut [0; 16]).is_err() {
        sync(&sync_target(point), timeout)
            .map_err(|source| ServeError::NotDurable { point: point.to_owned(), source })?;
    }
    let device = device_of(point);
    detach_once_free(point)?;
    let is_it = |mount: &Mount| device.as_ref().is_ok_and(|device| *device == mount.device);
    wait_for_release(point, &daemon, is_it, timeout, tell)
}

/// A process that serves a mount.
#[derive(Debug)]
pub struct Daemon {
    pid: u32,
    handle: OwnedFd,
}

impl Daemon {
    /// The process `pid`, which must be one that serves.
    pub fn new(pid: u32) -> Result<Self> {
        let failed = |source| ServeError::Io { what: format!("watching process {pid}"), source };
        let raw = i32::try_from(pid).ok().and_then(Pid::from_raw);
        let raw = raw.ok_or_else(|| failed(io::ErrorKind::InvalidInput.into()))?;
        let handle = pidfd_open(raw, PidfdFlags::empty()).map_err(|error| failed(error.into()))?;
        Ok(Self { pid, handle })
    }

    /// Asks it to end its mount in all mount namespaces that have it. Writes in namespaces where a
    /// mount `is_it` are kept if the device takes them within five seconds.
    pub fn end(&self, is_it: impl Fn(&Mount) -> bool) -> Result<()> {
        if let Some(user) = namespaces_with(is_it).first() {
            sync_before_force(&user.path());
        }
        let failed = |error: Errno| ServeError::Io {
            what: format!("sending a signal to process {}", self.pid),
            source: error.into(),
        };
        pidfd_send_signal(&self.handle, Signal::TERM).map_err(failed)
    }
}

/// Waits up to `timeout` until the daemon of the mount that was at `point` has left the device
/// clean and ended. After two seconds, looks for mount namespaces that have a mount that `is_it`,
/// makes writes there durable, and calls `tell`.
pub fn wait_for_release(
    point: &Path,
    daemon: &Daemon,
    is_it: impl Fn(&Mount) -> bool,
    timeout: Duration,
    tell: impl FnOnce(&Kept),
) -> Result<Unmounted> {
    /// A last commit needs no longer, most times.
    const QUIET: Duration = Duration::from_secs(2);
    let pid = daemon.pid;
    let ends = |timeout| {
        let what = || format!("waiting for process {pid}");
        wait_for_end(&daemon.handle, timeout)
            .map_err(|source| ServeError::Io { what: what(), source })
    };
    if ends(timeout.min(QUIET))? {
        return Ok(Unmounted::Clean);
    }
    let rest = timeout.saturating_sub(QUIET);
    if !rest.is_zero() {
        let users = namespaces_with(&is_it);
        let synced = users.first().map_or(Ok(()), |user| sync(&sync_target(&user.path()), rest));
        tell(&Kept { users, synced });
        if ends(rest)? {
            return Ok(Unmounted::Clean);
        }
    }
    Err(ServeError::StillRunning { point: point.to_owned(), pid, users: namespaces_with(is_it) })
}

/// Ends a mount also while programs use it or its daemon hangs: they get errors from then on. Their
/// writes are kept if the device takes them within five seconds.
pub fn force(point: &Path) -> Result<()> {
    sync_before_force(point);
    if !rustix::process::geteuid().is_root() {
        abort(point);
    }
    // Without DETACH the kernel would end the connection and then refuse, if the mount is busy.
    detach(point, UnmountFlags::FORCE | UnmountFlags::DETACH)
}

/// Makes everything durable, if the device takes it within five seconds.
fn sync_before_force(point: &Path) {
    const TIMEOUT: Duration = Duration::from_secs(5);
    // On a mount that hangs even stat(2) does not return, so sync(1) finds out, within a time
    // limit, whether the file is there.
    if let Err(error) = sync(&sync_file(point), TIMEOUT) {
        tracing::debug!(%error, "syncing before the end");
    }
}

/// Ends the connection of a mount, as the user who mounted it may; fusermount3 does not.
fn abort(point: &Path) {
    let found = point.canonicalize().unwrap_or_else(|_| point.to_owned());
    let mounts = mounts::all().unwrap_or_default();
    let Some(mount) = mounts.into_iter().rfind(|mount| mount.point == found) else { return };
    let Some(file) = connection(&mount).map(|connection| connection.join("abort")) else { return };
    if let Err(error) = fs::write(&file, "1") {
        tracing::debug!(file = %file.display(), %error, "ending the connection");
    }
}

/// The directory of fusectl for a mount (`Documentation/filesystems/fuse.rst`), whether it is there
/// or not.
pub fn connection(mount: &Mount) -> Option<PathBuf> {
    let (_, minor) = mount.device.to_str()?.split_once(':')?;
    Some(Path::new("/sys/fs/fuse/connections").join(minor))
}

/// Whether an error says that the daemon has ended. The first request after that, if it was to come
/// over `io_uring`, fails with another errno than later ones.
pub fn is_dead(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::NOTCONN | Errno::CONNABORTED))
}

/// Number of mounts of the file system at `point`: more than one after `mount --bind`.
fn mounts_of(point: &Path) -> io::Result<usize> {
    let device = device_of(point)?;
    Ok(mounts::all()?.iter().filter(|mount| mount.device == device).count())
}

/// The number of the file system at `point`, as the table of mounts has it.
fn device_of(point: &Path) -> io::Result<OsString> {
    let device = fs::metadata(point)?.dev();
    Ok(format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device)).into())
}

/// The file of a mount whose fsync(2) makes everything durable: zonefs cannot sync directories.
fn sync_file(point: &Path) -> PathBuf {
    point.join(CONTROL_DIR).join("stats")
}

/// That file, or the root where a mount has no control directory.
fn sync_target(point: &Path) -> PathBuf {
    let file = sync_file(point);
    if file.exists() { file } else { point.to_owned() }
}

/// Makes everything durable by fsync(2): umount(8) cannot tell whether the last commit succeeded.
///
/// A process cannot end while its fsync(2) blocks. So another process waits: sync(1) of the
/// coreutils.
fn sync(target: &Path, timeout: Duration) -> io::Result<()> {
    // It prints the errno as text; LC_ALL keeps that untranslated.
    let spawned = program::command("sync")
        .env("LC_ALL", "C")
        .arg("--")
        .arg(target)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = match spawned {
        // Without coreutils there is no time limit.
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return File::open(target)?.sync_all();
        }
        spawned => spawned?,
    };
    let process = pidfd_open(Pid::from_child(&child), PidfdFlags::empty())?;
    if !wait_for_end(&process, timeout)? {
        let what = format!("no answer within {} seconds", timeout.as_secs_f32());
        return Err(io::Error::new(io::ErrorKind::TimedOut, what));
    }
    let mut said = String::new();
    if let Some(errors) = &mut child.stderr {
        errors.read_to_string(&mut said)?;
    }
    if child.wait()?.success() { Ok(()) } else { Err(error_of_sync(said.trim())) }
}

/// The error that sync(1) has printed as the last part of its message.
fn error_of_sync(said: &str) -> io::Error {
    /// The largest errno of Linux.
    const MAX: i32 = 133;
    let reason = said.rsplit(": ").next().unwrap_or(said);
    let errors = (1..=MAX).map(io::Error::from_raw_os_error);
    let is_it = |error: &io::Error| error.to_string().split(" (os error").next() == Some(reason);
    errors.into_iter().find(is_it).unwrap_or_else(|| io::Error::other(said.to_owned()))
}

/// A handle on the daemon. The second look makes sure that the number was not reused: a daemon that
/// answers has not ended.
fn open_daemon(point: &Path, pid: u32) -> Result<Daemon> {
    let daemon = Daemon::new(pid)?;
    if daemon_of(point)? != pid {
        return Err(ServeError::NotServed { point: point.to_owned() });
    }
    Ok(daemon)
}

/// Waits until the process has ended; `false` if it still runs after `timeout`.
fn wait_for_end(daemon: &OwnedFd, timeout: Duration) -> io::Result<bool> {
    let timeout = Timespec::try_from(timeout).map_err(io::Error::other)?;
    loop {
        let mut fds = [PollFd::new(daemon, PollFlags::IN)];
        match poll(&mut fds, Some(&timeout)) {
            Ok(ended) => return Ok(ended > 0),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Unmounts `point`, and retries for a second while it is busy: `zonal top` opens files there
/// regularly, and the kernel keeps a file for a moment after its last asynchronous read has failed.
fn detach_once_free(point: &Path) -> Result<()> {
    const TRIES: u32 = 100;
    let pause = Timespec { tv_sec: 0, tv_nsec: 10_000_000 };
    for _ in 1..TRIES {
        match try_to_detach(point, UnmountFlags::empty()) {
            Err(ServeError::Busy { .. }) => {
                // There is no event to wait for. A signal ends the pause early, which costs a try.
                let _ = poll(&mut [], Some(&pause));
            }
            done => return done,
        }
    }
    detach(point, UnmountFlags::empty())
}

/// Unmounts `point`, as root by the system call, as a user by fusermount3.
pub fn detach(point: &Path, flags: UnmountFlags) -> Result<()> {
    named(try_to_detach(point, flags))
}

fn try_to_detach(point: &Path, flags: UnmountFlags) -> Result<()> {
    // Resolved first, and NOFOLLOW: no one can replace the name by a link to another mount
    // meanwhile.
    let found = point.canonicalize().unwrap_or_else(|_| point.to_owned());
    if flags == UnmountFlags::DETACH && blocks_of(&found) > 0 && detach_apart(&found).is_ok() {
        return Ok(());
    }
    detached(point, flags, rustix::mount::unmount(found, flags | UnmountFlags::NOFOLLOW))
}

/// Number of mounts of the type `fuseblk` at `point`, one above the other.
fn blocks_of(point: &Path) -> usize {
    let is_one = |mount: &mounts::Mount| {
        mount.point == point && mount.kind.as_encoded_bytes().starts_with(b"fuseblk")
    };
    mounts::all().map_or(0, |all| all.iter().filter(|mount| is_one(mount)).count())
}

/// Detaches a `fuseblk` in another process, which may stay behind: the kernel takes the mount away
/// at once, but umount(2) of the last one waits for its daemon, and that may hang. The process
/// leaves libmount's table alone: it could remove the row of a later mount at `point`.
fn detach_apart(point: &Path) -> io::Result<()> {
    let before = blocks_of(point);
    let table = File::open("/proc/self/mounts")?;
    let mut command = program::command("umount");
    command.args(["--internal-only", "--no-mtab", "--lazy", "--"]).arg(point);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn()?;
    let process = pidfd_open(Pid::from_child(&child), PidfdFlags::empty())?;
    while blocks_of(point) == before {
        let mut fds = [PollFd::new(&process, PollFlags::IN), PollFd::new(&table, PollFlags::PRI)];
        match poll(&mut fds, None) {
            Ok(_) if fds[0].revents().contains(PollFlags::IN) => {
                let ended = child.wait()?;
                return if ended.success() { Ok(()) } else { Err(Errno::INVAL.into()) };
            }
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Adds the processes that use a busy mount to the error.
fn named(detached: Result<()>) -> Result<()> {
    detached.map_err(|error| match error {
        ServeError::Busy { point, .. } => {
            let users = users_of(&point);
            ServeError::Busy { point, users }
        }
        other => other,
    })
}

/// Unmounts the mount of this daemon, whose threads must answer requests meanwhile.
pub(crate) fn detach_own(point: &Path, flags: UnmountFlags) -> Result<()> {
    let outcome = own_mount::run(Call::Unmount { point: point.to_owned(), flags });
    let outcome = outcome.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO));
    named(detached(point, flags, outcome))
}

/// Makes the kernel send all data of the mount of this daemon at `point`; waits up to `limit`.
pub(crate) fn sync_own(point: &Path, limit: Duration) -> io::Result<()> {
    // DONT_SYNC: without a request to ourselves.
    let how = AtFlags::STATX_DONT_SYNC;
    let found = rustix::fs::statx(rustix::fs::CWD, point, how, StatxFlags::empty())?;
    let device = rustix::fs::makedev(found.stx_dev_major, found.stx_dev_minor);
    let synced = own_mount::start(Call::Sync { point: point.to_owned(), device })?;
    synced.recv_timeout(limit).map_err(io::Error::other)?
}

fn detached(point: &Path, flags: UnmountFlags, outcome: rustix::io::Result<()>) -> Result<()> {
    match outcome {
        Ok(()) => Ok(()),
        Err(Errno::BUSY) => Err(busy(point)),
        Err(Errno::PERM) => detach_as_user(point, flags),
        Err(error) => Err(ServeError::Io {
            what: format!("unmounting {}", point.display()),
            source: error.into(),
        }),
    }
}

fn busy(point: &Path) -> ServeError {
    ServeError::Busy { point: point.to_owned(), users: Vec::new() }
}

fn detach_as_user(point: &Path, flags: UnmountFlags) -> Result<()> {
    let mut helper = program::command("fusermount3");
    // It prints the errno as text; LC_ALL keeps that untranslated.
    helper.env("LC_ALL", "C").arg("-u");
    if flags.contains(UnmountFlags::DETACH) {
        helper.arg("-z");
    }
    let output = helper
        .arg("--")
        .arg(point)
        .stdin(Stdio::null())
        .output()
        .map_err(|source| ServeError::Io { what: "running fusermount3".to_owned(), source })?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    if said.trim_end().ends_with("Device or resource busy") {
        return Err(busy(point));
    }
    Err(ServeError::Io {
        what: format!("unmounting {}", point.display()),
        source: io::Error::other(said.trim().to_owned()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_of_sync_is_errno_of_its_text() {
        let said = "/usr/bin/sync: error syncing '/mnt/a: b/.zonal/stats': No space left on device";
        assert_eq!(error_of_sync(said).kind(), io::ErrorKind::StorageFull);
        assert_eq!(Errno::from_io_error(&error_of_sync("x: Input/output error")), Some(Errno::IO));
        assert_eq!(error_of_sync("sync: strange").to_string(), "sync: strange");
    }
}
