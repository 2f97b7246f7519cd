//! The thread that does what is due by time or waits to be done, while its volume is open.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use super::Shared;

/// Between two calls of [`FileSystem::tick`](crate::vfs::FileSystem::tick), if there is no need for
/// one before.
const TICK: Duration = Duration::from_secs(1);

/// The running thread. Dropping it ends the thread and waits for it.
pub(super) struct Ticker {
    needs: Arc<Needs>,
    thread: Option<JoinHandle<()>>,
}

/// What the thread waits for beside the time.
#[derive(Default)]
struct Needs {
    need: Mutex<Need>,
    changed: Condvar,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Need {
    #[default]
    None,
    /// There is work.
    Work,
    /// The volume is closed.
    End,
}

impl Ticker {
    pub(super) fn start(volume: Arc<Shared>) -> Self {
        let needs = Arc::new(Needs::default());
        let (seen, told) = (Arc::clone(&needs), Arc::clone(&needs));
        let wake = Arc::new(move || told.tell(Need::Work));
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
        Self { needs, thread: thread.ok() }
    }
}

fn run(volume: &Shared, needs: &Needs) {
    while needs.wait() != Need::End {
        // A commit that failed is made again by the next tick, and at the latest by the close,
        // which returns the error.
        if let Err(error) = volume.run(|fs| fs.tick()) {
            tracing::error!(%error, "periodic work of a volume failed");
        }
    }
}

impl Needs {
    /// Waits until the next tick is due, or something is needed before.
    fn wait(&self) -> Need {
        let need = self.need.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.changed.wait_timeout_while(need, TICK, |need| *need == Need::None);
        let mut need = waited.unwrap_or_else(PoisonError::into_inner).0;
        let seen = *need;
        if seen == Need::Work {
            *need = Need::None;
        }
        seen
    }

    /// Says what is needed. After the end there is nothing else.
    fn tell(&self, what: Need) {
        let mut need = self.need.lock().unwrap_or_else(PoisonError::into_inner);
        if *need != Need::End {
            *need = what;
        }
        self.changed.notify_all();
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        self.needs.tell(Need::End);
        if let Some(thread) = self.thread.take() {
            // It can only have panicked, and then it has said so.
            let _ = thread.join();
        }
    }
}
