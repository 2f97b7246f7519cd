//! Scheduled locks: locks at which a test decides which thread runs next.
//!
//! A thread with a [`Schedule`] asks it before it takes a lock and after it has released one. It
//! never waits for another thread in the operating system: if a lock is not free it tells the
//! schedule, which runs others until one of them releases that lock. So a schedule that runs one
//! thread at a time decides every interleaving, and sees a deadlock. Threads without a schedule use
//! the locks of the standard library as they are.

use std::cell::RefCell;
use std::fmt::{Debug, Formatter};
use std::ops::{Deref, DerefMut};
use std::panic::Location;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, LockResult, OnceLock, PoisonError, TryLockError};
use std::time::Duration;

use zonal::Clock;

/// The event that ends the wait of a blocked thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// A wake of its lock or condition.
    Woken,
    /// The same, or a timeout.
    WokenOrLate,
}

/// Why a blocked thread runs again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Woken {
    /// Another thread has woken it.
    Up,
    /// Its timeout has passed.
    Late,
}

/// How many of the waiting threads to wake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Count {
    /// One of them.
    One,
    /// All.
    All,
}

/// On which side of a lock a thread is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Side {
    /// It is about to take the lock, or to call the device.
    Before,
    /// It has released the lock.
    After,
}

/// Decides which of its threads runs. A number stands for a lock or a condition; schedules only
/// compare it.
pub trait Schedule: Send + Sync {
    /// A point at which the schedule may run another thread first.
    fn pass(&self, at: &'static Location<'static>, side: Side);

    /// Blocks the thread, and runs others meanwhile.
    fn block(&self, on: usize, until: Until, at: &'static Location<'static>) -> Woken;

    /// Lets threads that wait for `on` run once it is their turn.
    fn wake(&self, on: usize, count: Count);

    /// Reports a timeout although the condition holds: no other thread has woken this one.
    fn overslept(&self, at: &'static Location<'static>);
}

thread_local! {
    static SCHEDULE: RefCell<Option<Arc<dyn Schedule>>> = const { RefCell::new(None) };
}

/// Gives this thread a schedule, or takes it away.
pub fn set_schedule(schedule: Option<Arc<dyn Schedule>>) {
    SCHEDULE.set(schedule);
}

/// A point outside of Furrow at which the schedule may run another thread, such as a device call.
#[track_caller]
pub fn pass() {
    if let Some(schedule) = schedule() {
        schedule.pass(Location::caller(), Side::Before);
    }
}

fn schedule() -> Option<Arc<dyn Schedule>> {
    SCHEDULE.try_with(|schedule| schedule.borrow().clone()).ok().flatten()
}

/// The number that stands for a lock or condition as long as it does not move.
fn number_of<T>(what: &T) -> usize {
    std::ptr::from_ref(what).addr()
}

/// Tells a schedule that a lock has been released.
fn released(on: usize, at: &'static Location<'static>) {
    if let Some(schedule) = schedule() {
        schedule.wake(on, Count::All);
        if !std::thread::panicking() {
            schedule.pass(at, Side::After);
        }
    }
}

/// Tries until the lock is free.
fn take<G>(
    schedule: &dyn Schedule,
    on: usize,
    at: &'static Location<'static>,
    mut attempt: impl FnMut() -> Result<G, TryLockError<G>>,
) -> LockResult<G> {
    loop {
        match attempt() {
            Ok(guard) => return Ok(guard),
            Err(TryLockError::Poisoned(error)) => return Err(error),
            Err(TryLockError::WouldBlock) => _ = schedule.block(on, Until::Woken, at),
        }
    }
}

/// Wraps a guard of the standard library in ours.
fn map<G, H>(outcome: LockResult<G>, wrap: impl FnOnce(G) -> H) -> LockResult<H> {
    match outcome {
        Ok(guard) => Ok(wrap(guard)),
        Err(error) => Err(PoisonError::new(wrap(error.into_inner()))),
    }
}

const HELD: &str = "a guard holds its lock until it is dropped";

/// A guard of a lock `L` around that of the standard library. Its drop tells the schedule.
pub(in crate::furrow) struct Guard<'a, L, G> {
    lock: &'a L,
    inner: Option<G>,
    at: &'static Location<'static>,
    /// The time of a writer, if a benchmark counts it.
    hold: Option<Hold<'a>>,
}

impl<'a, L, G> Guard<'a, L, G> {
    const fn new(lock: &'a L, inner: G, at: &'static Location<'static>) -> Self {
        Self { lock, inner: Some(inner), at, hold: None }
    }
}

/// Nanoseconds in which writers have held a lock, by the clock of a benchmark.
#[derive(Default)]
struct HoldTime {
    clock: OnceLock<Arc<dyn Clock>>,
    ns: AtomicU64,
}

impl Debug for HoldTime {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("HoldTime").field(&self.ns).finish()
    }
}

/// A writer's hold of a lock.
struct Hold<'a> {
    clock: &'a dyn Clock,
    ns: &'a AtomicU64,
    since: u64,
}

impl HoldTime {
    fn begin(&self) -> Option<Hold<'_>> {
        let clock = &**self.clock.get()?;
        Some(Hold { clock, ns: &self.ns, since: clock.monotonic_ns() })
    }
}

impl Drop for Hold<'_> {
    fn drop(&mut self) {
        self.ns.fetch_add(self.clock.monotonic_ns() - self.since, Ordering::Relaxed);
    }
}

impl<L, G: Deref> Deref for Guard<'_, L, G> {
    type Target = G::Target;

    fn deref(&self) -> &G::Target {
        self.inner.as_ref().expect(HELD)
    }
}

impl<L, G: DerefMut> DerefMut for Guard<'_, L, G> {
    fn deref_mut(&mut self) -> &mut G::Target {
        self.inner.as_mut().expect(HELD)
    }
}

impl<L, G: Debug> Debug for Guard<'_, L, G> {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        self.inner.fmt(f)
    }
}

impl<L, G> Drop for Guard<'_, L, G> {
    fn drop(&mut self) {
        if self.inner.take().is_some() {
            self.hold = None;
            released(number_of(self.lock), self.at);
        }
    }
}

/// [`std::sync::MutexGuard`].
pub(in crate::furrow) type MutexGuard<'a, T> = Guard<'a, Mutex<T>, std::sync::MutexGuard<'a, T>>;

/// [`std::sync::RwLockReadGuard`].
pub(in crate::furrow) type RwLockReadGuard<'a, T> =
    Guard<'a, RwLock<T>, std::sync::RwLockReadGuard<'a, T>>;

/// [`std::sync::RwLockWriteGuard`].
pub(in crate::furrow) type RwLockWriteGuard<'a, T> =
    Guard<'a, RwLock<T>, std::sync::RwLockWriteGuard<'a, T>>;

/// [`std::sync::Mutex`].
#[derive(Debug, Default)]
pub(in crate::furrow) struct Mutex<T> {
    inner: std::sync::Mutex<T>,
}

impl<T> Mutex<T> {
    pub(in crate::furrow) const fn new(value: T) -> Self {
        Self { inner: std::sync::Mutex::new(value) }
    }

    #[track_caller]
    pub(in crate::furrow) fn lock(&self) -> LockResult<MutexGuard<'_, T>> {
        let at = Location::caller();
        let outcome = match schedule() {
            Some(schedule) => {
                schedule.pass(at, Side::Before);
                take(&*schedule, number_of(self), at, || self.inner.try_lock())
            }
            None => self.inner.lock(),
        };
        map(outcome, |inner| Guard::new(self, inner, at))
    }

    #[track_caller]
    pub(in crate::furrow) fn try_lock(
        &self,
    ) -> Result<MutexGuard<'_, T>, TryLockError<MutexGuard<'_, T>>> {
        let at = Location::caller();
        pass();
        match self.inner.try_lock() {
            Ok(inner) => Ok(Guard::new(self, inner, at)),
            Err(TryLockError::WouldBlock) => Err(TryLockError::WouldBlock),
            Err(TryLockError::Poisoned(error)) => {
                let guard = Guard::new(self, error.into_inner(), at);
                Err(TryLockError::Poisoned(PoisonError::new(guard)))
            }
        }
    }
}

/// [`std::sync::Condvar`].
#[derive(Debug, Default)]
pub(in crate::furrow) struct Condvar {
    inner: std::sync::Condvar,
}

/// [`std::sync::WaitTimeoutResult`].
#[derive(Clone, Copy, Debug)]
pub(in crate::furrow) struct WaitTimeoutResult(Woken);

impl WaitTimeoutResult {
    pub(in crate::furrow) fn timed_out(self) -> bool {
        self.0 == Woken::Late
    }
}

impl Condvar {
    pub(in crate::furrow) const fn new() -> Self {
        Self { inner: std::sync::Condvar::new() }
    }

    pub(in crate::furrow) fn notify_all(&self) {
        self.inner.notify_all();
        if let Some(schedule) = schedule() {
            schedule.wake(number_of(self), Count::All);
        }
    }

    #[track_caller]
    pub(in crate::furrow) fn wait<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
    ) -> LockResult<MutexGuard<'a, T>> {
        self.wait_until(guard, Until::Woken).1
    }

    #[track_caller]
    pub(in crate::furrow) fn wait_while<'a, T>(
        &self,
        mut guard: MutexGuard<'a, T>,
        mut condition: impl FnMut(&mut T) -> bool,
    ) -> LockResult<MutexGuard<'a, T>> {
        while condition(&mut guard) {
            guard = self.wait(guard)?;
        }
        Ok(guard)
    }

    /// The schedule decides when time passes, if there is one.
    #[track_caller]
    pub(in crate::furrow) fn wait_timeout_while<'a, T>(
        &self,
        mut guard: MutexGuard<'a, T>,
        patience: Duration,
        mut condition: impl FnMut(&mut T) -> bool,
    ) -> LockResult<(MutexGuard<'a, T>, WaitTimeoutResult)> {
        let Some(schedule) = schedule() else {
            let (lock, at) = (guard.lock, guard.at);
            let inner = guard.inner.take().expect(HELD);
            let outcome = self.inner.wait_timeout_while(inner, patience, condition);
            return map(outcome, |(inner, result)| {
                let woken = if result.timed_out() { Woken::Late } else { Woken::Up };
                (Guard::new(lock, inner, at), WaitTimeoutResult(woken))
            });
        };
        let mut woken = if patience.is_zero() { Woken::Late } else { Woken::Up };
        while condition(&mut guard) {
            if woken == Woken::Late {
                return Ok((guard, WaitTimeoutResult(Woken::Late)));
            }
            let (how, outcome) = self.wait_until(guard, Until::WokenOrLate);
            woken = how;
            match outcome {
                Ok(locked) => guard = locked,
                Err(error) => {
                    let result = WaitTimeoutResult(how);
                    return Err(PoisonError::new((error.into_inner(), result)));
                }
            }
        }
        if woken == Woken::Late && !patience.is_zero() {
            schedule.overslept(Location::caller());
        }
        Ok((guard, WaitTimeoutResult(Woken::Up)))
    }

    #[track_caller]
    fn wait_until<'a, T>(
        &self,
        mut guard: MutexGuard<'a, T>,
        until: Until,
    ) -> (Woken, LockResult<MutexGuard<'a, T>>) {
        let (lock, at) = (guard.lock, Location::caller());
        let inner = guard.inner.take().expect(HELD);
        let Some(schedule) = schedule() else {
            let outcome = self.inner.wait(inner);
            return (Woken::Up, map(outcome, |inner| Guard::new(lock, inner, at)));
        };
        // No other thread runs between the two, so no wake can come before this thread waits.
        drop(inner);
        schedule.wake(number_of(lock), Count::All);
        let woken = schedule.block(number_of(self), until, at);
        (woken, lock.lock())
    }
}

/// [`std::sync::RwLock`]. As there, no reader comes before a writer that waits: a thread that reads
/// twice at once can wait for ever.
#[derive(Debug, Default)]
pub(in crate::furrow) struct RwLock<T> {
    inner: std::sync::RwLock<T>,
    /// Writers that wait, on a schedule.
    writers: AtomicUsize,
    hold_time: HoldTime,
}

impl<T> RwLock<T> {
    pub(in crate::furrow) const fn new(value: T) -> Self {
        let hold_time = HoldTime { clock: OnceLock::new(), ns: AtomicU64::new(0) };
        Self { inner: std::sync::RwLock::new(value), writers: AtomicUsize::new(0), hold_time }
    }

    /// From now on counts the time in which writers hold the lock.
    pub(in crate::furrow) fn count_writers_time(&self, clock: Arc<dyn Clock>) {
        // A second clock would not agree with the first one.
        _ = self.hold_time.clock.set(clock);
    }

    /// Nanoseconds in which writers have held the lock while they were counted.
    pub(in crate::furrow) fn writers_ns(&self) -> u64 {
        self.hold_time.ns.load(Ordering::Relaxed)
    }

    pub(in crate::furrow) fn is_poisoned(&self) -> bool {
        self.inner.is_poisoned()
    }

    #[track_caller]
    pub(in crate::furrow) fn read(&self) -> LockResult<RwLockReadGuard<'_, T>> {
        let at = Location::caller();
        let outcome = match schedule() {
            Some(schedule) => {
                schedule.pass(at, Side::Before);
                take(&*schedule, number_of(self), at, || {
                    if self.writers.load(Ordering::Relaxed) > 0 {
                        return Err(TryLockError::WouldBlock);
                    }
                    self.inner.try_read()
                })
            }
            None => self.inner.read(),
        };
        map(outcome, |inner| Guard::new(self, inner, at))
    }

    #[track_caller]
    pub(in crate::furrow) fn write(&self) -> LockResult<RwLockWriteGuard<'_, T>> {
        let at = Location::caller();
        let outcome = match schedule() {
            Some(schedule) => {
                schedule.pass(at, Side::Before);
                self.writers.fetch_add(1, Ordering::Relaxed);
                let outcome = take(&*schedule, number_of(self), at, || self.inner.try_write());
                self.writers.fetch_sub(1, Ordering::Relaxed);
                outcome
            }
            None => self.inner.write(),
        };
        map(outcome, |inner| {
            let mut guard = Guard::new(self, inner, at);
            guard.hold = self.hold_time.begin();
            guard
        })
    }
}
