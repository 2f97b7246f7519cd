//! Makes a mount read-only once its file system has become so after a failure.
//!
//! The file system refuses every change at once. That the mount table says `ro` too, and the kernel
//! refuses before it asks, takes a remount, which only root may do and only when no file is open for
//! writing: so it is tried again whenever one was closed.

use std::io;
use std::path::Path;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use rustix::io::Errno;
use rustix::mount::MountFlags;
use zonal_fuse_transport::apart::{self, Call};

use crate::mount::flags;
use crate::options::MountConfig;

/// Between two attempts while files are open for writing.
const RETRY: Duration = Duration::from_millis(20);

/// Wakes the thread that remounts.
#[derive(Default)]
pub(crate) struct RemountTrigger {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default, PartialEq, Eq)]
enum State {
    #[default]
    Idle,
    Fired,
    /// The mount has ended.
    Closed,
}

impl RemountTrigger {
    /// The file system is read-only, or a file of it was closed since.
    pub(crate) fn fire(&self) {
        self.change(State::Fired);
    }

    /// Ends [`watch`].
    pub(crate) fn close(&self) {
        self.change(State::Closed);
    }

    fn change(&self, to: State) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if *state != State::Closed {
            *state = to;
        }
        self.changed.notify_all();
    }

    /// Waits until it fires, or until the limit if there is one; `false` once it is closed.
    fn wait(&self, limit: Option<Duration>) -> bool {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let idle = |state: &mut State| *state == State::Idle;
        let mut state = match limit {
            None => self.changed.wait_while(state, idle).unwrap_or_else(PoisonError::into_inner),
            Some(limit) => {
                let waited = self.changed.wait_timeout_while(state, limit, idle);
                waited.unwrap_or_else(PoisonError::into_inner).0
            }
        };
        if *state == State::Closed {
            return false;
        }
        *state = State::Idle;
        true
    }
}

/// Remounts when the trigger fires, until it is closed.
pub(crate) fn watch(trigger: &RemountTrigger, point: &Path, config: &MountConfig) {
    let mut retry = None;
    while trigger.wait(retry) {
        retry = None;
        match remount(point, config) {
            Ok(()) => tracing::warn!(point = %point.display(), "remounted read-only"),
            Err(error) if error.raw_os_error() == Some(Errno::BUSY.raw_os_error()) => {
                retry = Some(RETRY);
            }
            Err(error) => {
                tracing::warn!(%error, "the mount table does not show that the file system is read-only");
            }
        }
    }
}

/// Keeps the restrictions of the mount: a remount would drop those it does not name.
fn remount(point: &Path, config: &MountConfig) -> io::Result<()> {
    let flags = flags(config) | MountFlags::RDONLY;
    apart::run(Call::Remount { point: point.to_owned(), flags })
}
