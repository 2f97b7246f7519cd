//! Makes a mount read-only once its file system has become so by itself.
//!
//! The file system refuses every change at once. That the mount table says `ro` too, and the kernel
//! refuses before it asks, takes a remount, which only root may do and only when no file is open for
//! writing: so it is tried again whenever one was closed.

use std::io;
use std::path::Path;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use rustix::io::Errno;
use rustix::mount::{MountFlags, mount_remount};

use crate::options::{Atime, MountConfig, Restrict};

/// Between two attempts while files are open for writing.
const RETRY: Duration = Duration::from_millis(20);

/// What wakes the thread that remounts.
#[derive(Default)]
pub(crate) struct Bell {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default, PartialEq, Eq)]
enum State {
    #[default]
    Quiet,
    Rung,
    /// The mount has ended.
    Gone,
}

impl Bell {
    /// The file system is read-only, or a file of it was closed since.
    pub(crate) fn ring(&self) {
        self.change(State::Rung);
    }

    /// Ends [`watch`].
    pub(crate) fn remove(&self) {
        self.change(State::Gone);
    }

    fn change(&self, to: State) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if *state != State::Gone {
            *state = to;
        }
        self.changed.notify_all();
    }

    /// Waits until it rings, or for so long if there is a limit; `false` once it is removed.
    fn wait(&self, limit: Option<Duration>) -> bool {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let quiet = |state: &mut State| *state == State::Quiet;
        let mut state = match limit {
            None => self.changed.wait_while(state, quiet).unwrap_or_else(PoisonError::into_inner),
            Some(limit) => {
                let waited = self.changed.wait_timeout_while(state, limit, quiet);
                waited.unwrap_or_else(PoisonError::into_inner).0
            }
        };
        if *state == State::Gone {
            return false;
        }
        *state = State::Quiet;
        true
    }
}

/// Remounts when the bell rings, until it is removed.
pub(crate) fn watch(bell: &Bell, point: &Path, config: &MountConfig) {
    let mut retry = None;
    while bell.wait(retry) {
        retry = None;
        match remount(point, config) {
            Ok(()) => tracing::warn!(point = %point.display(), "remounted read-only"),
            Err(error) if error.raw_os_error() == Some(Errno::BUSY.raw_os_error()) => {
                retry = Some(RETRY);
            }
            Err(error) => {
                tracing::warn!(%error, "the mount table will not say that it is read-only");
            }
        }
    }
}

/// Keeps the restrictions of the mount: a remount would drop those it does not name.
fn remount(point: &Path, config: &MountConfig) -> io::Result<()> {
    let mut flags = MountFlags::RDONLY;
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
    Ok(mount_remount(point, flags, "")?)
}
