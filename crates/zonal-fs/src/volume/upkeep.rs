//! The thread that does what is due by time, while its volume is open.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use super::Shared;

/// Between two calls of [`FileSystem::tick`](crate::vfs::FileSystem::tick).
const TICK: Duration = Duration::from_secs(1);

/// The running thread. Dropping it ends the thread and waits for it.
pub(super) struct Ticker {
    stop: Arc<Stop>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Stop {
    is_asked: Mutex<bool>,
    asked: Condvar,
}

impl Ticker {
    pub(super) fn start(volume: Arc<Shared>) -> Self {
        let stop = Arc::new(Stop::default());
        let stopped = Arc::clone(&stop);
        let thread = std::thread::Builder::new()
            .name("zonal-volume".to_owned())
            .spawn(move || run(&volume, &stopped))
            .inspect_err(|error| tracing::error!(%error, "no thread for a volume's commits"));
        Self { stop, thread: thread.ok() }
    }
}

fn run(volume: &Shared, stop: &Stop) {
    while !stop.wait() {
        // A commit that failed is made again by the next tick, and at the latest by the close,
        // which returns the error.
        if let Err(error) = volume.run(|fs| fs.tick()) {
            tracing::error!(%error, "periodic work of a volume failed");
        }
    }
}

impl Stop {
    /// Waits until the next tick is due; whether the end is asked for instead.
    fn wait(&self) -> bool {
        let is_asked = self.is_asked.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.asked.wait_timeout_while(is_asked, TICK, |is_asked| !*is_asked);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        *self.stop.is_asked.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.stop.asked.notify_all();
        if let Some(thread) = self.thread.take() {
            // It can only have panicked, and then it has said so.
            let _ = thread.join();
        }
    }
}
