//! The bell: how the worker of a mount or a volume hears that there is work.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::vfs::Wake;

/// What is left of a kind of work after a step.
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
    /// How it is woken.
    wake: OnceLock<Wake>,
    /// It was woken, and has not come yet.
    is_woken: AtomicBool,
}

impl Bell {
    /// Sets how a worker hears of work.
    pub(in crate::furrow) fn set_wake(&self, wake: Wake) {
        let first = self.wake.set(wake);
        assert!(first.is_ok(), "a file system has one worker");
    }

    /// Whether a worker does work in the background.
    pub(in crate::furrow) fn has_worker(&self) -> bool {
        self.wake.get().is_some()
    }

    /// Tells the worker, if there is one, that there is work.
    pub(in crate::furrow) fn wake_worker(&self) {
        if let Some(wake) = self.wake.get()
            && !self.is_woken.swap(true, Ordering::AcqRel)
        {
            wake();
        }
    }

    /// The worker has come.
    pub(in crate::furrow) fn has_come(&self) {
        self.is_woken.store(false, Ordering::Release);
    }
}
