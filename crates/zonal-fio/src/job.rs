//! A job of fio, and its requests in flight.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use crate::abi::{Direction, File, Thread, Unit};
use crate::drives::Drive;
use crate::error::{Error, Result};
use crate::pool::{Inbox, Request, Work};

thread_local! {
    /// The jobs of this thread.
    pub(crate) static JOBS: RefCell<BTreeMap<Thread, Job>> = RefCell::default();
}

/// Runs `action` on a job and its requests in flight. `action` must not make fio call back into
/// this function.
pub(crate) fn with_job<T>(thread: Thread, action: impl FnOnce(&mut Job) -> T) -> T {
    JOBS.with_borrow_mut(|jobs| action(jobs.entry(thread).or_default()))
}

/// The drive that a job has opened as `file`.
pub(crate) fn opened(thread: Thread, file: File) -> Option<Arc<Drive>> {
    JOBS.with_borrow(|jobs| jobs.get(&thread).and_then(|job| job.drive(file)))
}

/// A job.
#[derive(Default)]
pub(crate) struct Job {
    /// Requests that may be in flight: `iodepth`.
    depth: usize,
    /// The devices that it names.
    held: Vec<Arc<Drive>>,
    files: BTreeMap<File, Arc<Drive>>,
    /// Not yet committed.
    pending: Vec<(Arc<Drive>, Request)>,
    inbox: Arc<Inbox>,
    reaped: Vec<Unit>,
    /// Why requests have failed, until fio asks.
    failures: BTreeMap<Unit, String>,
}

impl Job {
    /// One request more may be in flight.
    pub(crate) fn deepen(&mut self) {
        self.depth += 1;
    }

    /// Keeps devices open until the job ends.
    pub(crate) fn hold(&mut self, drives: Vec<Arc<Drive>>) {
        self.held = drives;
    }

    /// Files stay open until the job ends.
    pub(crate) fn open(&mut self, file: File, drive: Arc<Drive>) {
        self.files.insert(file, drive);
    }

    /// The drive on which `file` is open.
    pub(crate) fn drive(&self, file: File) -> Option<Arc<Drive>> {
        self.files.get(&file).cloned()
    }

    /// Takes a read, a write or a sync. One that cannot be performed has failed when it is reaped:
    /// fio then says why.
    pub(crate) fn queue(&mut self, drive: Arc<Drive>, unit: Unit) {
        self.failures.remove(&unit);
        match self.request(&drive, unit) {
            Ok(request) => self.pending.push((drive, request)),
            Err(error) => self.inbox.put(unit, Err(error)),
        }
    }

    fn request(&self, drive: &Drive, unit: Unit) -> Result<Request> {
        let geometry = drive.device().geometry();
        let length = usize::try_from(unit.length()).unwrap_or(usize::MAX);
        let (work, zone) = match unit.direction() {
            Direction::Sync | Direction::Trim => (Work::Flush, None),
            direction @ (Direction::Read | Direction::Write) => {
                let lba = drive.block(unit.offset())?;
                geometry.blocks_at(lba, length)?;
                let (zone, _) = geometry.locate(lba);
                let has_wp = geometry.kind(zone).is_sequential();
                if direction == Direction::Read {
                    (Work::Read(lba), None)
                } else {
                    (Work::Write(lba), has_wp.then_some(zone))
                }
            }
        };
        let (buffer, inbox) = (unit.buffer(), Arc::clone(&self.inbox));
        Ok(Request { work, zone, unit, buffer, length, inbox })
    }

    /// Submits all queued requests, in the order of queueing. A job with one request in flight
    /// needs no other thread: `reap` performs its request.
    pub(crate) fn commit(&mut self) {
        if self.depth > 1 {
            for (drive, request) in self.pending.drain(..) {
                drive.pool().submit(request);
            }
        }
    }

    /// Waits until `min` requests were performed, and returns how many there are, `max` at most.
    ///
    /// A sync that has failed is an error of its own, once: fio before 3.36 does not look at errors
    /// of syncs for which it has waited.
    pub(crate) fn reap(&mut self, min: usize, max: usize) -> Result<usize> {
        self.commit();
        for (drive, request) in self.pending.drain(..) {
            drive.pool().perform(request);
        }
        let mut done = self.inbox.take(min, max);
        let is_bad_sync = |(unit, outcome): &(Unit, Result<()>)| {
            unit.direction() == Direction::Sync && outcome.is_err()
        };
        if let Some(bad) = done.iter().position(is_bad_sync) {
            let outcome = std::mem::replace(&mut done[bad].1, Ok(()));
            for (unit, outcome) in done {
                self.inbox.put(unit, outcome);
            }
            return outcome.map(|()| 0).map_err(|error| Error::Sync(Box::new(error)));
        }
        self.reaped.clear();
        for (unit, outcome) in done {
            if let Err(error) = outcome {
                self.fail(unit, &error);
            }
            self.reaped.push(unit);
        }
        Ok(self.reaped.len())
    }

    /// One of the requests that the last call of [`reap`](Self::reap) has found.
    pub(crate) fn reaped(&self, index: usize) -> Option<Unit> {
        self.reaped.get(index).copied()
    }

    /// Tells fio that a request has failed, and why when it asks.
    pub(crate) fn fail(&mut self, unit: Unit, error: &Error) {
        unit.fail(error.errno());
        self.failures.insert(unit, error.to_string());
    }

    /// Why a request has failed.
    pub(crate) fn take_failure(&mut self, unit: Unit) -> Option<String> {
        self.failures.remove(&unit)
    }
}
