//! The locks of Furrow. They are the locks of the standard library.
//!
//! With the feature `testing` a test can decide which thread goes on, at every lock, unlock and
//! wait: see `scheduled.rs`. All of Furrow takes its locks from here, so that no thread waits
//! behind the test's back.

#[cfg(not(feature = "testing"))]
pub(super) use std::sync::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// A token: the state is locked as long as this lives.
#[derive(Clone, Copy)]
pub(super) struct Locked<'a>(std::marker::PhantomData<&'a ()>);

impl<'a> Locked<'a> {
    /// For the state alone, which is only had by a lock.
    pub(super) const fn of<T>(_state: &'a T) -> Self {
        Self(std::marker::PhantomData)
    }
}

#[cfg(feature = "testing")]
mod scheduled;

#[cfg(feature = "testing")]
pub(super) use self::scheduled::{
    Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard,
};
#[cfg(feature = "testing")]
pub use self::scheduled::{Count, Schedule, Side, Until, Woken, pass, set_schedule};
