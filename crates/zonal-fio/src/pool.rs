//! The threads that perform requests, so that as many are on their way as `iodepth` says.
//!
//! All jobs of a process that use a device use its one pool. It performs writes to a sequential
//! zone one after the other, in the order of submission; all else side by side. Devices block, and
//! threads are cheap compared with the requests that they wait for: there are as many as requests
//! were in flight at once, up to [`THREADS_MAX`]. With more requests than that a thread takes
//! several, and gives the device a batch.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use zonal::{Io, Lba, ZoneId, ZonedDevice};

use crate::abi::Unit;
use crate::edge;
use crate::error::{Error, Result};

/// Threads of a pool.
const THREADS_MAX: usize = 64;

/// The operation of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Work {
    Read(Lba),
    Write(Lba),
    Flush,
}

/// Requests of a job that were performed.
#[derive(Default)]
pub(crate) struct Inbox {
    done: Mutex<Vec<(Unit, Result<()>)>>,
    arrived: Condvar,
}

impl Inbox {
    /// Adds a request that was performed.
    pub(crate) fn put(&self, unit: Unit, outcome: Result<()>) {
        self.done.lock().unwrap_or_else(PoisonError::into_inner).push((unit, outcome));
        self.arrived.notify_one();
    }

    /// Takes out at most `max`, after waiting until there are `min`.
    pub(crate) fn take(&self, min: usize, max: usize) -> Vec<(Unit, Result<()>)> {
        let done = self.done.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.arrived.wait_while(done, |done| done.len() < min);
        let mut done = waited.unwrap_or_else(PoisonError::into_inner);
        let count = done.len().min(max);
        done.drain(..count).collect()
    }
}

/// A request, and the inbox for its result. Its buffer is valid, and has no other user until then.
pub(crate) struct Request {
    pub(crate) work: Work,
    /// The sequential zone that it writes to.
    pub(crate) zone: Option<ZoneId>,
    pub(crate) unit: Unit,
    pub(crate) buffer: *mut u8,
    /// Bytes of the buffer.
    pub(crate) length: usize,
    pub(crate) inbox: Arc<Inbox>,
}

// SAFETY: the buffer belongs to the request.
unsafe impl Send for Request {}

impl Request {
    fn io(&mut self) -> Io<'_> {
        match self.work {
            Work::Read(lba) => {
                // SAFETY: the buffer is as the type says.
                Io::read(lba, unsafe { std::slice::from_raw_parts_mut(self.buffer, self.length) })
            }
            Work::Write(lba) => {
                // SAFETY: the buffer is as the type says.
                Io::write(lba, unsafe { std::slice::from_raw_parts(self.buffer, self.length) })
            }
            Work::Flush => Io::flush(),
        }
    }
}

/// The threads of a device.
pub(crate) struct Pool {
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

struct Shared {
    device: Arc<dyn ZonedDevice>,
    state: Mutex<State>,
    /// Signals a request in `ready`, or the end.
    work: Condvar,
    /// Signals that a zone has no writer any more.
    freed: Condvar,
}

#[derive(Default)]
struct State {
    ready: VecDeque<Request>,
    /// Zones with a write that runs or is in `ready`, and the writes that wait for it.
    zones: BTreeMap<ZoneId, VecDeque<Request>>,
    threads: usize,
    running: usize,
    is_ending: bool,
}

impl Pool {
    pub(crate) fn new(device: Arc<dyn ZonedDevice>) -> Self {
        let (state, work, freed) = (Mutex::default(), Condvar::new(), Condvar::new());
        let shared = Arc::new(Shared { device, state, work, freed });
        Self { shared, threads: Mutex::default() }
    }

    /// Submits a request to the threads.
    pub(crate) fn submit(&self, request: Request) {
        let mut state = self.shared.lock();
        if let Some(zone) = request.zone {
            if let Some(waiting) = state.zones.get_mut(&zone) {
                waiting.push_back(request);
                return;
            }
            state.zones.insert(zone, VecDeque::new());
        }
        state.ready.push_back(request);
        let wanted = (state.ready.len() + state.running).min(THREADS_MAX);
        if state.threads < wanted {
            let shared = Arc::clone(&self.shared);
            let builder = thread::Builder::new().name("zonal-fio".to_owned());
            if let Ok(thread) = builder.spawn(move || shared.run()) {
                state.threads += 1;
                self.threads.lock().unwrap_or_else(PoisonError::into_inner).push(thread);
            }
        }
        if state.threads == 0 {
            // The system gives no thread at all: then this one.
            let requests: Vec<Request> = state.ready.drain(..).collect();
            state.running += requests.len();
            drop(state);
            self.shared.perform(requests);
            return;
        }
        drop(state);
        self.shared.work.notify_one();
    }

    /// Performs a request in this thread.
    pub(crate) fn perform(&self, request: Request) {
        if let Some(zone) = request.zone {
            // `perform` leaves it.
            std::mem::forget(self.shared.enter(zone));
        }
        self.shared.lock().running += 1;
        self.shared.perform(vec![request]);
    }

    /// Runs `action` while no other request writes to the zone.
    pub(crate) fn alone_in<T>(&self, zone: Option<ZoneId>, action: impl FnOnce() -> T) -> T {
        let _turn = zone.map(|zone| self.shared.enter(zone));
        action()
    }
}

/// Performs all submitted requests before it ends.
impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.lock().is_ending = true;
        self.shared.work.notify_all();
        for thread in self.threads.get_mut().unwrap_or_else(PoisonError::into_inner).drain(..) {
            let _ = thread.join();
        }
    }
}

/// Keeps others from writing to a zone.
struct Turn<'a> {
    shared: &'a Shared,
    zone: ZoneId,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.shared.leave(self.shared.lock(), &[self.zone]);
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn enter(&self, zone: ZoneId) -> Turn<'_> {
        let waited = self.freed.wait_while(self.lock(), |state| state.zones.contains_key(&zone));
        waited.unwrap_or_else(PoisonError::into_inner).zones.insert(zone, VecDeque::new());
        Turn { shared: self, zone }
    }

    /// Lets the next request for each of these zones go on.
    fn leave(&self, mut state: MutexGuard<'_, State>, zones: &[ZoneId]) {
        for zone in zones {
            let waiting = state.zones.get_mut(zone).expect("it was entered");
            if let Some(next) = waiting.pop_front() {
                state.ready.push_back(next);
                self.work.notify_one();
            } else {
                state.zones.remove(zone);
                self.freed.notify_all();
            }
        }
    }

    /// A thread.
    fn run(&self) {
        while let Some(requests) = self.next() {
            self.perform(requests);
        }
    }

    fn next(&self) -> Option<Vec<Request>> {
        let waited =
            self.work.wait_while(self.lock(), |state| state.ready.is_empty() && !state.is_ending);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner);
        let share = state.ready.len().div_ceil(state.threads.max(1));
        state.running += share;
        (share > 0).then(|| state.ready.drain(..share).collect())
    }

    fn perform(&self, mut requests: Vec<Request>) {
        let outcomes = edge::guard(|| {
            let mut batch: Vec<Io<'_>> = requests.iter_mut().map(Request::io).collect();
            self.device.submit(&mut batch);
            Ok(batch.into_iter().map(|io| io.outcome().map(drop)).collect::<Vec<_>>())
        });
        let zones: Vec<ZoneId> = requests.iter().filter_map(|request| request.zone).collect();
        let mut state = self.lock();
        state.running -= requests.len();
        self.leave(state, &zones);
        match outcomes {
            Ok(outcomes) => {
                for (request, outcome) in requests.into_iter().zip(outcomes) {
                    request.inbox.put(request.unit, outcome.map_err(Error::from));
                }
            }
            Err(panic) => {
                let text = panic.to_string();
                for request in requests {
                    request.inbox.put(request.unit, Err(Error::Panicked(text.clone())));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use zonal::error::Result;
    use zonal::profile::Changes;
    use zonal::{LbaCount, MemoryDrive, Select, ZoneAction};

    use super::*;

    const DEPTH: usize = 8;

    fn drive() -> MemoryDrive {
        let shape = "zone=1M,zones=8,open=none,active=none".parse::<Changes>().unwrap();
        MemoryDrive::new(shape.geometry().unwrap()).unwrap()
    }

    /// Reads end when as many as the depth are there at once; writes count how many run at once.
    struct Meeting {
        below: MemoryDrive,
        readers: Barrier,
        writers: AtomicUsize,
        writers_max: AtomicUsize,
    }

    impl ZonedDevice for Meeting {
        zonal::pass_on!(below: geometry, report, append, manage, flush);

        fn read(&self, lba: Lba, buffer: &mut [u8]) -> Result<()> {
            self.readers.wait();
            self.below.read(lba, buffer)
        }

        fn write(&self, lba: Lba, data: &[u8]) -> Result<()> {
            let beside = self.writers.fetch_add(1, Ordering::SeqCst) + 1;
            self.writers_max.fetch_max(beside, Ordering::SeqCst);
            thread::yield_now();
            let written = self.below.write(lba, data);
            self.writers.fetch_sub(1, Ordering::SeqCst);
            assert!(data[0] != 0xff, "this data is too much");
            written
        }
    }

    struct Run {
        device: Arc<Meeting>,
        pool: Pool,
        inbox: Arc<Inbox>,
        buffers: Vec<Vec<u8>>,
    }

    impl Run {
        fn new() -> Self {
            let device = Arc::new(Meeting {
                below: drive(),
                readers: Barrier::new(DEPTH),
                writers: AtomicUsize::new(0),
                writers_max: AtomicUsize::new(0),
            });
            let pool = Pool::new(device.clone());
            Self { device, pool, inbox: Arc::default(), buffers: Vec::new() }
        }

        fn request(&mut self, work: Work, zone: Option<ZoneId>, fill: u8) -> Request {
            self.buffers.push(vec![fill; 4096]);
            let buffer = self.buffers.last_mut().unwrap().as_mut_ptr();
            Request {
                work,
                zone,
                unit: Unit::NONE,
                buffer,
                length: 4096,
                inbox: Arc::clone(&self.inbox),
            }
        }

        fn write(&mut self, zone: u32, at: u64, fill: u8) -> Request {
            let zone = ZoneId::new(zone);
            let lba = self.device.geometry().zone_start(zone) + LbaCount::new(at);
            self.request(Work::Write(lba), Some(zone), fill)
        }

        /// Waits for so many, and returns how many have failed.
        fn failures(&self, count: usize) -> usize {
            let done = self.inbox.take(count, count);
            done.iter().filter(|(_, outcome)| outcome.is_err()).count()
        }
    }

    #[test]
    fn pool_reads_in_flight_equal_depth() {
        let mut run = Run::new();
        for _ in 0..4 * DEPTH {
            let request = run.request(Work::Read(Lba::ZERO), None, 0);
            run.pool.submit(request);
        }
        assert_eq!(run.failures(4 * DEPTH), 0);
    }

    #[test]
    fn pool_writes_are_ordered_in_zone_parallel_across_zones() {
        let mut run = Run::new();
        for at in 0..64 {
            for zone in 0..4 {
                let request = run.write(zone, at, 1);
                run.pool.submit(request);
            }
        }
        assert_eq!(run.failures(256), 0);
        for zone in 0..4 {
            let zone = run.device.zone(ZoneId::new(zone)).unwrap();
            assert_eq!(zone.written(), Some(LbaCount::new(64)));
        }
        assert!(run.device.writers_max.load(Ordering::SeqCst) <= 4);
    }

    #[test]
    fn pool_exclusive_request_keeps_zone_order() {
        let mut run = Run::new();
        let zone = ZoneId::new(2);
        for at in 0..32 {
            let request = run.write(2, at, 1);
            run.pool.submit(request);
        }
        let reset = || run.device.manage(Select::One(zone), ZoneAction::Reset);
        run.pool.alone_in(Some(zone), reset).unwrap();
        let request = run.write(2, 0, 1);
        run.pool.submit(request);
        assert_eq!(run.failures(33), 0);
        assert_eq!(run.device.zone(zone).unwrap().written(), Some(LbaCount::new(1)));
    }

    #[test]
    fn pool_device_panic_fails_request_not_zone() {
        let mut run = Run::new();
        let request = run.write(1, 0, 0xff);
        run.pool.submit(request);
        assert_eq!(run.failures(1), 1);
        let request = run.write(1, 1, 1);
        run.pool.perform(request);
        assert_eq!(run.failures(1), 0);
    }
}
