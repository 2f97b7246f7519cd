//! The bell: wakes the worker of a mount or a volume when there is work.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::vfs::Wake;

/// How much of a kind of work is left after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepProgress {
    /// Nothing.
    Idle,
    /// The next step can follow at once.
    More,
    /// It is not due yet.
    Wait,
}

/// Wakes the worker, if there is one.
#[derive(Default)]
pub(in crate::furrow) struct Bell {
    /// The function that wakes it.
    wake: OnceLock<Wake>,
    /// The bell has rung, and the worker has not come yet.
    is_woken: AtomicBool,
}

impl Bell {
    /// Sets the function that wakes the worker.
    pub(in crate::furrow) fn set_wake(&self, wake: Wake) {
        let first = self.wake.set(wake);
        assert!(first.is_ok(), "a file system has one worker");
    }

    /// Whether a worker does work in the background.
    pub(in crate::furrow) fn has_worker(&self) -> bool {
        self.wake.get().is_some()
    }

    /// Wakes the worker, if there is one.
    pub(in crate::furrow) fn wake_worker(&self) {
        if let Some(wake) = self.wake.get()
            && !self.is_woken.swap(true, Ordering::AcqRel)
        {
            wake();
        }
    }

    /// Notes that the worker has come.
    pub(in crate::furrow) fn has_come(&self) {
        self.is_woken.store(false, Ordering::Release);
    }
}
