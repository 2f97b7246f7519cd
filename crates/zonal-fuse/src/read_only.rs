//! Remounts a mount read-only once its file system has become read-only after a failure.
//!
//! The file system refuses every change at once. After a remount the mount table says `ro`, and the
//! kernel refuses changes itself. The remount keeps all other options, and options that a later
//! `-o remount` set. Only root may remount, and only while no file is open for writing: so the
//! thread tries again until it succeeds.

use std::path::Path;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use rustix::io::Errno;
use zonal_fuse_transport::own_mount::{self, Call};

/// Between two attempts while files are open for writing.
const RETRY: Duration = Duration::from_millis(20);

/// Wakes the remounting thread.
#[derive(Default)]
pub(crate) struct RemountTrigger {
    state: Mutex<TriggerState>,
    changed: Condvar,
}

#[derive(Default, PartialEq, Eq)]
enum TriggerState {
    #[default]
    Idle,
    Fired,
    /// The mount has ended.
    Closed,
}

impl RemountTrigger {
    /// The file system is read-only, or one of its files was closed since.
    pub(crate) fn fire(&self) {
        self.change(TriggerState::Fired);
    }

    /// Ends [`watch`].
    pub(crate) fn close(&self) {
        self.change(TriggerState::Closed);
    }

    fn change(&self, to: TriggerState) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if *state != TriggerState::Closed {
            *state = to;
        }
        self.changed.notify_all();
    }

    /// Waits until it fires, or until the limit if there is one; `false` once it is closed.
    fn wait(&self, limit: Option<Duration>) -> bool {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let idle = |state: &mut TriggerState| *state == TriggerState::Idle;
        let mut state = match limit {
            None => self.changed.wait_while(state, idle).unwrap_or_else(PoisonError::into_inner),
            Some(limit) => {
                let waited = self.changed.wait_timeout_while(state, limit, idle);
                waited.unwrap_or_else(PoisonError::into_inner).0
            }
        };
        if *state == TriggerState::Closed {
            return false;
        }
        *state = TriggerState::Idle;
        true
    }
}

/// Remounts when the trigger fires, until it is closed.
pub(crate) fn watch(trigger: &RemountTrigger, point: &Path) {
    let mut retry = None;
    while trigger.wait(retry) {
        retry = None;
        match own_mount::run(Call::MakeReadOnly { point: point.to_owned() }) {
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
