//! One thread runs at a time, and a seed says which.
//!
//! The threads are real ones. At each lock, unlock and wait of Furrow and each call of the drive
//! the thread that runs may be told to let another one go on. Where none can go on, that is a
//! deadlock; where there is no end of steps, something runs for ever. A run that fails leaves its
//! threads where they stand: they release no lock, and nothing they do later can hide the failure.
//!
//! Most mistakes need few switches, each at the right place and for a long time (as Burckhardt and
//! others found, ASPLOS 2010). So a run marks some of its places, and a thread that comes to one
//! often stays there until the others have done a lot.

use std::any::Any;
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::panic::Location;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, Once, PoisonError};

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use zonal_fs::furrow::sync::{Count, Schedule, Side, Until, Woken, set_schedule};

use crate::node::mix;

/// Places that are told when a run fails.
const TRAIL: usize = 24;

/// How a seed decides.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Habits {
    pub(crate) seed: u64,
    /// At one in this many places another thread may go on.
    pub(crate) switch_one_in: u64,
    /// A thread that seldom gets a turn while others can go on.
    pub(crate) slow: Option<usize>,
    /// Where threads stay, and how long.
    pub(crate) stays: Stays,
    /// The place, counted from 1, at which the first thread stays as long as others can go on.
    pub(crate) first_stays_at: Option<u64>,
    /// More steps than any run needs.
    pub(crate) steps_max: u64,
}

impl Habits {
    /// For one thread.
    pub(crate) const ALONE: Self = Self {
        seed: 0,
        switch_one_in: u64::MAX,
        slow: None,
        stays: Stays { one_in: u64::MAX, steps: 0, at_drive: false, file: None },
        first_stays_at: None,
        steps_max: 3_000_000,
    };
}

/// Places at which a thread often stays while others go on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stays {
    /// One in this many places is marked.
    pub(crate) one_in: u64,
    /// Steps of the others, at most.
    pub(crate) steps: u64,
    /// Whether calls of the drive are marked as well.
    pub(crate) at_drive: bool,
    /// The end of the name of a source file, all places of which are marked as well.
    pub(crate) file: Option<&'static str>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Doing {
    Ready,
    Waits { on: usize, until: Until },
    Ended,
}

struct Thread {
    doing: Doing,
    woken: Woken,
    at: &'static Location<'static>,
    /// It stays where it is up to this step, as long as others can go on.
    stays_until: u64,
    /// Places that it has come to.
    places: u64,
}

/// Whether a thread often stays at a place.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mark {
    No,
    Yes,
    /// It is one of many, such as a call of the drive.
    Seldom,
}

struct Inner {
    random: ChaCha8Rng,
    threads: Vec<Thread>,
    current: usize,
    steps: u64,
    failure: Option<String>,
    trail: VecDeque<(usize, &'static Location<'static>)>,
    /// Places that threads came to.
    places: BTreeMap<(&'static Location<'static>, Side), Mark>,
}

struct Scheduler {
    habits: Habits,
    inner: Mutex<Inner>,
    turns: Vec<Condvar>,
    over: Condvar,
}

/// One thread's part in it.
struct Attendee {
    scheduler: Arc<Scheduler>,
    index: usize,
}

thread_local! {
    static ATTENDEE: RefCell<Option<Arc<Attendee>>> = const { RefCell::new(None) };
}

/// The work of a thread in a run.
pub(crate) type Work<T> = Box<dyn FnOnce() -> T + Send>;

/// Runs them side by side until all have ended. `Err` says what went wrong: a panic, a deadlock, no
/// end.
pub(crate) fn run<T: Send + 'static>(
    habits: Habits,
    works: Vec<Work<T>>,
) -> Result<Vec<T>, String> {
    stop_at_panics();
    let at = Location::caller();
    let ready = || Thread { doing: Doing::Ready, woken: Woken::Up, at, stays_until: 0, places: 0 };
    let inner = Inner {
        random: ChaCha8Rng::seed_from_u64(habits.seed),
        threads: works.iter().map(|_| ready()).collect(),
        current: 0,
        steps: 0,
        failure: None,
        trail: VecDeque::new(),
        places: BTreeMap::new(),
    };
    let turns = works.iter().map(|_| Condvar::new()).collect();
    let scheduler =
        Arc::new(Scheduler { habits, inner: Mutex::new(inner), turns, over: Condvar::new() });
    let mut threads = Vec::new();
    for (index, work) in works.into_iter().enumerate() {
        let attendee = Arc::new(Attendee { scheduler: Arc::clone(&scheduler), index });
        let thread = std::thread::Builder::new().name(format!("storm thread {index}"));
        threads.push(thread.spawn(move || attendee.attend(work)).expect("a thread can be made"));
    }
    let mut inner = scheduler.lock();
    loop {
        if let Some(failure) = &inner.failure {
            return Err(failure.clone());
        }
        if inner.threads.iter().all(|thread| thread.doing == Doing::Ended) {
            break;
        }
        inner = scheduler.over.wait(inner).unwrap_or_else(PoisonError::into_inner);
    }
    drop(inner);
    let results = threads.into_iter().map(|thread| thread.join().map_err(|why| text_of(&*why)));
    results.collect()
}

/// The text of a panic.
fn text_of(panic: &(dyn Any + Send)) -> String {
    panic.downcast_ref::<String>().cloned().unwrap_or_else(|| "a panic".into())
}

/// A panic of a thread with a schedule ends the run before anything is unwound.
fn stop_at_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let attendee = ATTENDEE.try_with(|attendee| attendee.borrow().clone()).ok().flatten();
            match attendee {
                // It stands still at the next lock that it takes or releases.
                Some(attendee) => attendee.report(&format!("panic: {info}")),
                None => before(info),
            }
        }));
    });
}

/// A thread of a failed run stops here.
fn stand_still() -> ! {
    loop {
        std::thread::park();
    }
}

impl Scheduler {
    /// Locks it for a thread that runs. A thread of a failed run stops.
    fn lock_on(&self) -> MutexGuard<'_, Inner> {
        let inner = self.lock();
        if inner.failure.is_some() {
            drop(inner);
            stand_still();
        }
        inner
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether threads often stay at a place. The order in which a run comes to its places decides,
    /// so that a change of the source moves no marks.
    fn mark(&self, inner: &mut Inner, at: &'static Location<'static>, side: Side) -> Mark {
        let Habits { seed, stays, .. } = self.habits;
        let number = inner.places.len() as u64;
        *inner.places.entry((at, side)).or_insert_with(|| {
            let is_in = |file| at.file().ends_with(file);
            if (stays.at_drive && is_in("storm/drive.rs")) || stays.file.is_some_and(is_in) {
                Mark::Seldom
            } else if stays.one_in < u64::MAX && mix(seed, number).is_multiple_of(stays.one_in) {
                Mark::Yes
            } else {
                Mark::No
            }
        })
    }

    /// One of the threads that can go on.
    fn choose(&self, inner: &mut Inner) -> Option<usize> {
        let is_ready = |index: &usize| inner.threads[*index].doing == Doing::Ready;
        let mut ready: Vec<usize> = (0..inner.threads.len()).filter(is_ready).collect();
        // Where all stay, the first one goes on whose time is over.
        let until = |index: &usize| inner.threads[*index].stays_until.max(inner.steps);
        let soonest = ready.iter().map(until).min();
        ready.retain(|index| Some(until(index)) == soonest);
        if ready.len() > 1
            && let Some(slow) = self.habits.slow
            && !inner.random.next_u64().is_multiple_of(32)
        {
            ready.retain(|index| *index != slow);
        }
        if ready.is_empty() {
            // Time passes only if nothing else can happen.
            let is_late = |thread: &Thread| {
                matches!(thread.doing, Doing::Waits { until: Until::WokenOrLate, .. })
            };
            let late = inner.threads.iter().position(is_late)?;
            inner.threads[late].doing = Doing::Ready;
            inner.threads[late].woken = Woken::Late;
            return Some(late);
        }
        let number = inner.random.next_u64() % ready.len() as u64;
        Some(ready[usize::try_from(number).expect("there are few threads")])
    }
}

impl Attendee {
    fn attend<T>(self: Arc<Self>, work: Work<T>) -> T {
        ATTENDEE.set(Some(Arc::clone(&self)));
        let inner = self.scheduler.lock();
        self.wait_for_turn(inner);
        let schedule: Arc<dyn Schedule> = self.clone();
        set_schedule(Some(schedule));
        let result = work();
        set_schedule(None);
        ATTENDEE.set(None);
        let mut inner = self.scheduler.lock();
        inner.threads[self.index].doing = Doing::Ended;
        if inner.threads.iter().any(|thread| thread.doing != Doing::Ended) {
            match self.scheduler.choose(&mut inner) {
                Some(next) => {
                    inner.current = next;
                    self.scheduler.turns[next].notify_one();
                }
                None => inner.failure = Some(Self::deadlock(&inner)),
            }
        }
        drop(inner);
        self.scheduler.over.notify_one();
        result
    }

    fn wait_for_turn(&self, mut inner: MutexGuard<'_, Inner>) {
        while inner.current != self.index {
            let turn = &self.scheduler.turns[self.index];
            inner = turn.wait(inner).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Ends the run. The thread stays here for ever.
    fn fail(&self, why: &str) -> ! {
        self.report(why);
        stand_still()
    }

    /// Ends the run, as far as others see.
    fn report(&self, why: &str) {
        let mut inner = self.scheduler.lock();
        let trail: Vec<String> =
            inner.trail.iter().map(|(index, at)| format!("{index} {at}")).collect();
        let why = format!("thread {}: {why}\n  came by: {}", self.index, trail.join(", "));
        inner.failure.get_or_insert(why);
        drop(inner);
        self.scheduler.over.notify_one();
    }

    fn deadlock(inner: &Inner) -> String {
        let waiting = inner.threads.iter().enumerate().filter_map(|(index, thread)| {
            let Doing::Waits { on, .. } = thread.doing else { return None };
            let same = inner.threads.iter().filter(
                |other| matches!(other.doing, Doing::Waits { on: other, .. } if other == on),
            );
            Some(format!("thread {index} at {} (with {} others)", thread.at, same.count() - 1))
        });
        format!("a deadlock: {}", waiting.collect::<Vec<_>>().join("; "))
    }

    /// Counts a step at a place.
    fn step(&self, at: &'static Location<'static>) -> MutexGuard<'_, Inner> {
        let mut inner = self.scheduler.lock_on();
        inner.steps += 1;
        inner.threads[self.index].at = at;
        if inner.trail.len() == TRAIL {
            inner.trail.pop_front();
        }
        inner.trail.push_back((self.index, at));
        if inner.steps > self.scheduler.habits.steps_max {
            drop(inner);
            self.fail("there is no end of steps");
        }
        inner
    }

    fn go_on(&self, mut inner: MutexGuard<'_, Inner>) {
        match self.scheduler.choose(&mut inner) {
            Some(next) if next == self.index => {}
            Some(next) => {
                inner.current = next;
                self.scheduler.turns[next].notify_one();
                self.wait_for_turn(inner);
            }
            None => {
                let why = Self::deadlock(&inner);
                drop(inner);
                self.fail(&why);
            }
        }
    }
}

impl Schedule for Attendee {
    fn pass(&self, at: &'static Location<'static>, side: Side) {
        let mut inner = self.step(at);
        let Habits { switch_one_in, stays, first_stays_at, .. } = self.scheduler.habits;
        let thread = &mut inner.threads[self.index];
        thread.places += 1;
        if self.index == 0 && Some(thread.places) == first_stays_at {
            thread.stays_until = u64::MAX;
            return self.go_on(inner);
        }
        let stays_one_in = match self.scheduler.mark(&mut inner, at, side) {
            Mark::No => u64::MAX,
            Mark::Yes => 2,
            Mark::Seldom => 3,
        };
        if stays_one_in < u64::MAX && inner.random.next_u64().is_multiple_of(stays_one_in) {
            let steps = 1 + inner.random.next_u64() % stays.steps.max(1);
            inner.threads[self.index].stays_until = inner.steps + steps;
            self.go_on(inner);
        } else if switch_one_in < u64::MAX && inner.random.next_u64().is_multiple_of(switch_one_in)
        {
            self.go_on(inner);
        }
    }

    fn block(&self, on: usize, until: Until, at: &'static Location<'static>) -> Woken {
        let mut inner = self.step(at);
        inner.threads[self.index].doing = Doing::Waits { on, until };
        inner.threads[self.index].woken = Woken::Up;
        self.go_on(inner);
        self.scheduler.lock_on().threads[self.index].woken
    }

    fn wake(&self, on: usize, count: Count) {
        let mut inner = self.scheduler.lock_on();
        let waits = |thread: &&mut Thread| matches!(thread.doing, Doing::Waits { on: other, .. } if other == on);
        let most = match count {
            Count::One => 1,
            Count::All => usize::MAX,
        };
        for thread in inner.threads.iter_mut().filter(waits).take(most) {
            thread.doing = Doing::Ready;
        }
    }

    fn overslept(&self, at: &'static Location<'static>) {
        self.fail(&format!("nobody woke it at {at} for what it waited for"));
    }
}
