//! Advisory locks of whole files, between the handles of one volume.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use crate::vfs::Ino;

/// The files that handles have locked.
#[derive(Default)]
pub(super) struct Locks(Mutex<BTreeSet<Ino>>);

impl Locks {
    /// Locks a file; returns whether it was free.
    pub(super) fn take(&self, ino: Ino) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(ino)
    }

    pub(super) fn release(&self, ino: Ino) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&ino);
    }
}
