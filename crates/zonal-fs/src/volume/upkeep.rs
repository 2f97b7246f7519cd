//! The background thread of an open volume: it does work that is due by time, and other pending
//! work.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use super::VolumeState;

/// Time between two calls of [`FileSystem::tick`](crate::vfs::FileSystem::tick), unless a signal
/// comes earlier.
const TICK: Duration = Duration::from_secs(1);

/// The running thread. Dropping it ends the thread and waits for it.
pub(super) struct Ticker {
    signals: Arc<SignalCell>,
    thread: Option<JoinHandle<()>>,
}

/// The signal to the thread.
#[derive(Default)]
struct SignalCell {
    signal: Mutex<Signal>,
    changed: Condvar,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Signal {
    #[default]
    None,
    /// There is background work.
    Work,
    /// The volume is closed.
    End,
}

impl Ticker {
    pub(super) fn start(volume: Arc<VolumeState>) -> Self {
        let signals = Arc::new(SignalCell::default());
        let (seen, sender) = (Arc::clone(&signals), Arc::clone(&signals));
        let wake = Arc::new(move || sender.send(Signal::Work));
        if let Err(error) = volume.run(|fs| {
            fs.on_work(wake);
            Ok(())
        }) {
            tracing::debug!(%error, "a volume that is closed has no work");
        }
        let thread = std::thread::Builder::new()
            .name("zonal-volume".to_owned())
            .spawn(move || run(&volume, &seen))
            .inspect_err(|error| tracing::error!(%error, "no thread for a volume's commits"));
        Self { signals, thread: thread.ok() }
    }
}

fn run(volume: &VolumeState, signals: &SignalCell) {
    while signals.wait() != Signal::End {
        // The next tick repeats a failed commit, and at last the close, which returns the error.
        if let Err(error) = volume.run(|fs| fs.tick()) {
            tracing::error!(%error, "periodic work of a volume failed");
        }
    }
}

impl SignalCell {
    /// Waits until the next tick is due or a signal comes, and takes the signal.
    fn wait(&self) -> Signal {
        let signal = self.signal.lock().unwrap_or_else(PoisonError::into_inner);
        let waited =
            self.changed.wait_timeout_while(signal, TICK, |signal| *signal == Signal::None);
        let mut signal = waited.unwrap_or_else(PoisonError::into_inner).0;
        let seen = *signal;
        if seen == Signal::Work {
            *signal = Signal::None;
        }
        seen
    }

    /// Sends a signal. None replaces `End`.
    fn send(&self, what: Signal) {
        let mut signal = self.signal.lock().unwrap_or_else(PoisonError::into_inner);
        if *signal != Signal::End {
            *signal = what;
        }
        self.changed.notify_all();
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        self.signals.send(Signal::End);
        if let Some(thread) = self.thread.take() {
            // An error means that it has panicked, which has been printed.
            let _ = thread.join();
        }
    }
}
