//! The locks of Furrow. They are the locks of the standard library.
//!
//! With the feature `testing` a test can decide which thread goes on, at every lock, unlock and
//! wait: see `scheduled.rs`. All of Furrow takes its locks from here, so that no thread waits
//! behind the test's back.

#[cfg(not(feature = "testing"))]
pub(super) use std::sync::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// The state, of which only a lock gives a reference: a method that takes one runs under that lock.
pub(super) trait UnderLock {}

#[cfg(feature = "testing")]
mod scheduled;

#[cfg(feature = "testing")]
pub(super) use self::scheduled::{
    Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard,
};
#[cfg(feature = "testing")]
pub use self::scheduled::{Count, Schedule, Side, Until, Woken, pass, set_schedule};
