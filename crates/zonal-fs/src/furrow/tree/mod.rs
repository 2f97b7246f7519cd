//! The tree: metadata in memory behind its locks, and the table that has the rest.
//!
//! [`State`] is the metadata in memory; every reader and writer of it gets a guard from here.
//! [`loading`] loads metadata that an operation needs,
//! [`evict`](crate::furrow::metadata::state::evict) evicts metadata that none uses.

mod backrefs;
pub(super) mod bell;
mod fetch;
mod loading;
mod residency;

use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError};

use crate::FsError;
use crate::furrow::drive::Drive;
use crate::furrow::drive::layout::Layout;
use crate::furrow::metadata::State;
use crate::furrow::options::Eviction;
use crate::furrow::planted::Planted;
use crate::furrow::space::Space;
use crate::furrow::sync::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
use crate::furrow::table::view::View;
use crate::furrow::tree::bell::Bell;
use crate::vfs::{Access, Result};

/// Changed rows from which a commit is due at once: until then nothing with changes can be evicted.
pub(super) const CHANGES_MAX: usize = 1 << 16;

/// Metadata in memory, behind its locks.
pub(super) struct Tree {
    state: RwLock<State>,
    /// How often the state was locked.
    #[cfg(test)]
    pub(super) takings: std::sync::atomic::AtomicU64,
    /// Held during a change of the tree, and by a commit while the tree must not change.
    changing: Mutex<()>,
    /// Whether a commit holds `changing`.
    is_held_off: AtomicBool,
    /// Held by operations that put blocks into the buffer, and by a commit while none may come.
    buffering: Mutex<()>,
    /// Bytes of memory that cached metadata may take.
    held_max: AtomicUsize,
    pub(super) drive: Arc<Drive>,
    /// The rows on the drive, for readers.
    pub(super) view: Arc<View>,
    pub(super) space: Space,
    pub(super) bell: Bell,
    pub(super) uuid: [u8; 16],
    /// After shutdown, or on a read-only mount.
    read_only: AtomicBool,
    pub(super) planted: Planted,
    eviction: Eviction,
}

/// The parts of a [`Tree`].
pub(super) struct TreeParts {
    pub(super) state: State,
    pub(super) drive: Arc<Drive>,
    pub(super) view: Arc<View>,
    pub(super) space: Space,
    pub(super) held_max: usize,
    pub(super) uuid: [u8; 16],
    pub(super) access: Access,
}

impl Tree {
    pub(super) fn new(parts: TreeParts) -> Self {
        let TreeParts { state, drive, view, space, held_max, uuid, access } = parts;
        let (planted, eviction) = state.options();
        Self {
            planted,
            eviction,
            state: RwLock::new(state),
            #[cfg(test)]
            takings: std::sync::atomic::AtomicU64::new(0),
            changing: Mutex::new(()),
            is_held_off: AtomicBool::new(false),
            buffering: Mutex::default(),
            held_max: AtomicUsize::new(held_max),
            drive,
            view,
            space,
            bell: Bell::default(),
            uuid,
            read_only: AtomicBool::new(access == Access::ReadOnly),
        }
    }

    /// Bytes of memory that cached metadata may take.
    pub(super) fn held_max(&self) -> usize {
        self.held_max.load(Ordering::Relaxed)
    }

    /// Sets them. For tests.
    #[cfg(test)]
    pub(super) fn set_held_max(&self, bytes: usize) {
        self.held_max.store(bytes, Ordering::Relaxed);
    }

    /// From now on counts the time in which threads hold the state exclusively.
    #[cfg(feature = "testing")]
    pub(super) fn count_exclusive_time(&self, clock: Arc<dyn zonal::Clock>) {
        self.state.count_writers_time(clock);
    }

    /// Nanoseconds of that time.
    #[cfg(feature = "testing")]
    pub(super) fn exclusive_ns(&self) -> u64 {
        self.state.writers_ns()
    }

    /// Stops all writes from now on.
    pub(super) fn become_read_only(&self) {
        self.read_only.store(true, Ordering::Release);
    }

    /// Whether a thread has panicked while it changed data of readers.
    pub(super) fn is_torn(&self) -> bool {
        self.state.is_poisoned() || self.view.is_poisoned()
    }

    pub(super) fn layout(&self) -> &Layout {
        &self.drive.layout
    }

    #[cfg_attr(feature = "testing", track_caller)]
    pub(super) fn read_state(&self) -> RwLockReadGuard<'_, State> {
        if self.eviction.is_at_every_lock() {
            drop(self.write_accounts());
        }
        #[cfg(test)]
        self.takings.fetch_add(1, Ordering::Relaxed);
        self.state.read().expect("no holder panicked")
    }

    /// Locks the state for a change of the tree. Waits while a commit holds off changes.
    #[cfg_attr(feature = "testing", track_caller)]
    pub(super) fn write_state(&self) -> Changing<'_> {
        let turn = self.lock_changing();
        let state = self.write_accounts();
        if state.rows.count() >= CHANGES_MAX {
            self.bell.wake_worker();
        }
        Changing { state, _turn: turn }
    }

    /// Locks the state for changes that no row has, such as allocations and open counts; and for a
    /// commit, which holds off other changes itself.
    #[cfg_attr(feature = "testing", track_caller)]
    pub(super) fn write_accounts(&self) -> RwLockWriteGuard<'_, State> {
        #[cfg(test)]
        self.takings.fetch_add(1, Ordering::Relaxed);
        let mut state = self.state.write().expect("no holder panicked");
        if self.eviction.is_at_every_lock() {
            state.evict_everything();
        }
        state
    }

    /// Lets the caller put blocks into the buffer. Waits while a commit empties it.
    #[cfg_attr(feature = "testing", track_caller)]
    pub(super) fn lock_buffering(&self) -> MutexGuard<'_, ()> {
        self.buffering.lock().expect("no holder panicked")
    }

    /// Holds off changes of the tree. Readers go on: so device I/O is possible meanwhile.
    #[cfg_attr(feature = "testing", track_caller)]
    pub(super) fn hold_off_changes(&self) -> HoldingOff<'_> {
        let turn = self.lock_changing();
        self.is_held_off.store(true, Ordering::Release);
        HoldingOff { tree: self, _turn: turn }
    }

    /// The lock protects no data: after a panic of its holder, readers that hold off changes go on.
    /// The poison of the state's lock says whether a change was under way.
    #[cfg_attr(feature = "testing", track_caller)]
    fn lock_changing(&self) -> MutexGuard<'_, ()> {
        self.changing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a change would have to wait for a commit.
    pub(super) fn is_held_off(&self) -> bool {
        self.is_held_off.load(Ordering::Acquire)
    }

    pub(super) fn is_read_only(&self) -> bool {
        self.read_only.load(Ordering::Acquire)
    }

    /// An error if the mount does not write.
    pub(super) fn check_writable(&self) -> Result<()> {
        if self.is_read_only() { Err(FsError::ReadOnly) } else { Ok(()) }
    }
}

/// The state, locked for a change of the tree. Unlocks the state first.
pub(super) struct Changing<'a> {
    state: RwLockWriteGuard<'a, State>,
    _turn: MutexGuard<'a, ()>,
}

impl Deref for Changing<'_> {
    type Target = State;

    fn deref(&self) -> &State {
        &self.state
    }
}

impl DerefMut for Changing<'_> {
    fn deref_mut(&mut self) -> &mut State {
        &mut self.state
    }
}

/// As long as it lives, the tree does not change.
pub(super) struct HoldingOff<'a> {
    tree: &'a Tree,
    _turn: MutexGuard<'a, ()>,
}

impl Drop for HoldingOff<'_> {
    fn drop(&mut self) {
        self.tree.is_held_off.store(false, Ordering::Release);
    }
}
