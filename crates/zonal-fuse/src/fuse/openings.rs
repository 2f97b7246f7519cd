//! How zone files are open, where direct reads go by a hidden mount.
//!
//! The kernel takes one backing file for all who have a file open, and none while somebody has it open through the page
//! cache. A mapping of a file that is open directly goes through the page cache too, so the kernel refuses it where there
//! is a backing file that this open file has not got. So the first direct reader of a file that nobody can read through the
//! page cache gets one, and as long as anybody has the file open with it, everybody gets it: direct readers for their
//! reads, others for their mappings alone. What counts here lags behind the kernel, where a file is closed first, and so never allows what that
//! refuses.
//!
//! Mappings through a backing file have their pages in the page cache of the hidden mount, which nothing drops but we.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock};

use zonal_fs::vfs::Ino;
use zonal_fuse_transport::hidden::Backings;
use zonal_fuse_transport::{BackingId, NodeId};

use super::convert;
use super::reply::Route;

/// What open files want of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wish {
    /// To read directly, and nothing else.
    DirectReads,
    /// This.
    Other(Route),
}

/// All zone files that are open.
#[derive(Default)]
pub(super) struct Openings {
    files: Mutex<BTreeMap<Ino, File>>,
    /// There while the hidden mount is.
    backings: RwLock<Option<Backings>>,
}

/// How one file is open.
#[derive(Default)]
struct File {
    /// Through the page cache.
    cached: u64,
    /// Directly, and so that it can be mapped, without the backing file.
    mappable: u64,
    /// With the backing file.
    backed: u64,
    backing: Option<BackingId>,
    /// On the hidden mount: a mapping stays open there when the file itself has been closed.
    hidden: u64,
    /// Whether pages of it may be in the page cache of the hidden mount.
    has_pages: bool,
}

impl File {
    /// Whether a backing file is missing, and the kernel would take one and refuse nothing for it.
    fn can_be_backed(&self) -> bool {
        self.backing.is_none() && self.cached == 0 && self.mappable == 0
    }
}

impl Openings {
    /// From now on direct readers get backing files.
    pub(super) fn begin(&self, backings: Backings) {
        *self.backings.write().unwrap_or_else(PoisonError::into_inner) = Some(backings);
    }

    /// Ends the hidden mount, if there is one.
    pub(super) fn end(&self) {
        let backings = self.backings.write().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(backings) = backings {
            backings.end();
        }
    }

    /// A file is about to be open as these open(2) flags say. How, and with which backing file.
    pub(super) fn add(
        &self,
        (node, ino): (NodeId, Ino),
        wish: Wish,
        flags: i32,
    ) -> (Route, Option<BackingId>) {
        let otherwise = match wish {
            Wish::DirectReads => Route::Direct,
            Wish::Other(route) => route,
        };
        let backings = self.backings.read().unwrap_or_else(PoisonError::into_inner);
        let Some(backings) = &*backings else { return (otherwise, None) };
        // Not with the lock: the threads of the hidden mount may all be waiting for the device.
        let made = if wish == Wish::DirectReads && self.can_be_backed(ino) {
            backings.open(node).inspect_err(|error| {
                tracing::warn!(%error, zone = ino.get(), "no backing file for a zone");
            })
        } else {
            Err(std::io::ErrorKind::Unsupported.into())
        };
        let mut made = made.ok();
        let mut files = self.files();
        let file = files.entry(ino).or_default();
        if file.can_be_backed() {
            file.backing = made.take();
        }
        let entered = match (file.backing, wish) {
            (Some(_), Wish::DirectReads) => (Route::Backed, file.backing),
            (Some(_), Wish::Other(_)) => (Route::Beside, file.backing),
            (None, _) => (otherwise, None),
        };
        file.cached += u64::from(entered.0 == Route::Cached);
        file.mappable += u64::from(entered.0 == Route::Direct && can_be_mapped(flags));
        file.backed += u64::from(file.backing.is_some());
        drop_unused(&mut files, ino);
        drop(files);
        // Somebody else was faster.
        if let Some(made) = made {
            backings.close(made);
        }
        entered
    }

    /// A file has been closed.
    pub(super) fn remove(&self, ino: Ino, route: Route, flags: i32) {
        let mut files = self.files();
        let Some(file) = files.get_mut(&ino) else { return };
        match route {
            Route::Direct => {
                file.mappable = file.mappable.saturating_sub(u64::from(can_be_mapped(flags)));
            }
            Route::Cached => file.cached = file.cached.saturating_sub(1),
            Route::Backed | Route::Beside => file.backed = file.backed.saturating_sub(1),
        }
        let unused = if file.backed == 0 { file.backing.take() } else { None };
        drop_unused(&mut files, ino);
        drop(files);
        let backings = self.backings.read().unwrap_or_else(PoisonError::into_inner);
        if let (Some(unused), Some(backings)) = (unused, &*backings) {
            backings.close(unused);
        }
    }

    /// It has been opened on the hidden mount.
    pub(super) fn add_hidden(&self, ino: Ino) {
        self.files().entry(ino).or_default().hidden += 1;
    }

    /// It has been closed on the hidden mount.
    pub(super) fn remove_hidden(&self, ino: Ino) {
        let mut files = self.files();
        if let Some(file) = files.get_mut(&ino) {
            file.hidden = file.hidden.saturating_sub(1);
            file.has_pages &= file.hidden > 0;
        }
        drop_unused(&mut files, ino);
    }

    /// The hidden mount is about to get pages of it.
    pub(super) fn add_pages(&self, ino: Ino) {
        if let Some(file) = self.files().get_mut(&ino) {
            file.has_pages = true;
        }
    }

    /// Whether the hidden mount may have pages of it.
    pub(super) fn has_pages(&self, ino: Ino) -> bool {
        self.files().get(&ino).is_some_and(|file| file.has_pages)
    }

    fn can_be_backed(&self, ino: Ino) -> bool {
        self.files().get(&ino).is_none_or(File::can_be_backed)
    }

    fn files(&self) -> MutexGuard<'_, BTreeMap<Ino, File>> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a file that is opened so can be read, which a mapping needs.
fn can_be_mapped(flags: i32) -> bool {
    flags & convert::O_ACCMODE != convert::O_WRONLY
}

/// Forgets a file that is not open any more.
fn drop_unused(files: &mut BTreeMap<Ino, File>, ino: Ino) {
    if let Entry::Occupied(file) = files.entry(ino) {
        let File { cached, mappable, backed, hidden, .. } = file.get();
        if [cached, mappable, backed, hidden].iter().all(|count| **count == 0) {
            file.remove();
        }
    }
}
