//! Channel to a thread that exists only while a mount is served.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Sending end of the channel; closed while there is no thread.
#[derive(Debug)]
pub(crate) struct Inbox<T>(Mutex<Option<Sender<T>>>);

impl<T> Default for Inbox<T> {
    fn default() -> Self {
        Self(Mutex::new(None))
    }
}

impl<T> Inbox<T> {
    fn sender(&self) -> MutexGuard<'_, Option<Sender<T>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens the channel. The receiver gets all work that is sent before [`close`](Self::close).
    pub(crate) fn open(&self) -> Receiver<T> {
        let (sender, receiver) = channel();
        *self.sender() = Some(sender);
        receiver
    }

    /// Closes the channel: the thread ends once it has done its work.
    pub(super) fn close(&self) {
        *self.sender() = None;
    }

    /// Sends work, or returns it if there is no thread.
    pub(super) fn send(&self, work: T) -> Result<(), T> {
        match &*self.sender() {
            Some(sender) => sender.send(work).map_err(|unsent| unsent.0),
            None => Err(work),
        }
    }
}
