//! Watchdog over serving threads: notices when all of them are busy and none makes progress.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How long all threads may be busy without finishing a request.
const STILL: Duration = Duration::from_millis(20);

/// Wakes the watching thread while there is something to watch.
pub(crate) struct Watchdog {
    watch: Mutex<Watch>,
    changed: Condvar,
    /// Whether the watching thread is awake already.
    is_raised: AtomicBool,
}

/// Order to the watching thread.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Watch {
    Sleep,
    Look,
    End,
}

impl Default for Watchdog {
    fn default() -> Self {
        Self {
            watch: Mutex::new(Watch::Sleep),
            changed: Condvar::new(),
            is_raised: AtomicBool::new(false),
        }
    }
}

impl Watchdog {
    /// No thread is idle for the next request.
    pub(crate) fn raise(&self) {
        if !self.is_raised.swap(true, Ordering::SeqCst) {
            self.set(Watch::Look);
        }
    }

    /// Ends [`watch`](Self::watch).
    pub(crate) fn end(&self) {
        self.set(Watch::End);
    }

    fn watch_lock(&self) -> MutexGuard<'_, Watch> {
        self.watch.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, what: Watch) {
        let mut watch = self.watch_lock();
        if *watch != Watch::End {
            *watch = what;
        }
        drop(watch);
        self.changed.notify_all();
    }

    /// Watches while raised, until [`end`](Self::end). `progress` returns a measure of the work
    /// done, or `None` while a thread is idle. `compare` gets two measures, [`STILL`] apart.
    pub(crate) fn watch<P>(&self, progress: impl Fn() -> Option<P>, compare: impl Fn(&P, &P)) {
        loop {
            let asleep = |watch: &mut Watch| *watch == Watch::Sleep;
            let awake = self.changed.wait_while(self.watch_lock(), asleep);
            let awake = awake.unwrap_or_else(PoisonError::into_inner);
            let before = progress();
            let goes_on = |watch: &mut Watch| *watch != Watch::End;
            let waited = self.changed.wait_timeout_while(awake, STILL, goes_on);
            let (mut watch, _) = waited.unwrap_or_else(PoisonError::into_inner);
            if *watch == Watch::End {
                return;
            }
            let Some(now) = progress() else {
                *watch = Watch::Sleep;
                self.is_raised.store(false, Ordering::SeqCst);
                // A thread that became busy just before this has not raised it.
                if progress().is_some() {
                    *watch = Watch::Look;
                    self.is_raised.store(true, Ordering::SeqCst);
                }
                continue;
            };
            drop(watch);
            if let Some(before) = before {
                compare(&before, &now);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;
    use std::sync::mpsc::channel;
    use std::thread;

    use super::*;

    #[test]
    fn alarm_sees_standstill_but_not_progress() {
        let (watchdog, is_free, done) =
            (Watchdog::default(), AtomicBool::new(false), AtomicU64::new(0));
        let (seen, sights) = channel();
        thread::scope(|scope| {
            scope.spawn(|| {
                let progress = || {
                    let is_free = is_free.load(Ordering::SeqCst);
                    (!is_free).then(|| done.fetch_add(0, Ordering::SeqCst))
                };
                let seen = seen;
                watchdog.watch(progress, |before, now| seen.send((*before, *now)).unwrap());
            });
            for round in 0..3 {
                is_free.store(false, Ordering::SeqCst);
                done.store(round, Ordering::SeqCst);
                watchdog.raise();
                while sights.recv().unwrap() != (round, round) {}
                is_free.store(true, Ordering::SeqCst);
            }
            watchdog.end();
        });
    }
}
