//! Work for a thread that is there only while a mount is served.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Where work is handed in.
#[derive(Debug)]
pub(super) struct Inbox<T>(Mutex<Option<Sender<T>>>);

impl<T> Default for Inbox<T> {
    fn default() -> Self {
        Self(Mutex::new(None))
    }
}

impl<T> Inbox<T> {
    fn sender(&self) -> MutexGuard<'_, Option<Sender<T>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the thread works on, until it has all that came before [`close`](Self::close).
    pub(super) fn open(&self) -> Receiver<T> {
        let (sender, receiver) = channel();
        *self.sender() = Some(sender);
        receiver
    }

    /// Takes nothing more.
    pub(super) fn close(&self) {
        *self.sender() = None;
    }

    /// Hands work in, or gives it back where there is no thread for it.
    pub(super) fn send(&self, work: T) -> Result<(), T> {
        match &*self.sender() {
            Some(sender) => sender.send(work).map_err(|unsent| unsent.0),
            None => Err(work),
        }
    }
}
