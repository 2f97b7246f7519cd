//! Watching threads that serve requests: where all of them stand still, something is to be done
//! about it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How long all may be at requests, of which none ends.
const STILL: Duration = Duration::from_millis(20);

/// Wakes the thread that watches.
pub(crate) struct Alarm {
    watch: Mutex<Watch>,
    changed: Condvar,
    /// Whether it is awake: then it need not be woken.
    is_raised: AtomicBool,
}

/// What the watching thread is to do.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Watch {
    Sleep,
    Look,
    End,
}

impl Default for Alarm {
    fn default() -> Self {
        Self {
            watch: Mutex::new(Watch::Sleep),
            changed: Condvar::new(),
            is_raised: AtomicBool::new(false),
        }
    }
}

impl Alarm {
    /// Nobody is left for the next request.
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

    /// Looks as long as the alarm is raised, until the end. `progress` tells how far those are of
    /// whom nobody is free; `None` if somebody is. `compare` gets what it told before and after a
    /// while.
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
                // Whoever became the last one just before has not raised it.
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
    fn who_stands_still_is_seen_each_time_and_who_moves_is_not() {
        let (alarm, is_free, done) = (Alarm::default(), AtomicBool::new(false), AtomicU64::new(0));
        let (seen, sights) = channel();
        thread::scope(|scope| {
            scope.spawn(|| {
                let progress = || {
                    let is_free = is_free.load(Ordering::SeqCst);
                    (!is_free).then(|| done.fetch_add(0, Ordering::SeqCst))
                };
                let seen = seen;
                alarm.watch(progress, |before, now| seen.send((*before, *now)).unwrap());
            });
            for round in 0..3 {
                is_free.store(false, Ordering::SeqCst);
                done.store(round, Ordering::SeqCst);
                alarm.raise();
                while sights.recv().unwrap() != (round, round) {}
                is_free.store(true, Ordering::SeqCst);
            }
            alarm.end();
        });
    }
}
