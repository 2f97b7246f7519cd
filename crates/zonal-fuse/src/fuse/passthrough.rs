//! Open zone files, and which of them have a backing file on the hidden mount.
//!
//! The kernel has one backing file for all opens of a file, and refuses one while the file is open
//! through the page cache. A mapping of a file that is open for direct I/O also uses the page
//! cache, so the kernel refuses it while there is a backing file that this open file lacks.
//! Therefore the first direct reader gets a backing file if no reader can use the page cache; and
//! while a file has one, every open gets it: direct readers for their reads, others for their
//! mappings only. When a file is closed, the kernel's counts change before the counts here, so
//! these never allow an open that the kernel would refuse.
//!
//! Mappings through a backing file have their pages in the page cache of the hidden mount. Only
//! this daemon drops these.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock};

use zonal_fuse_transport::hidden::BackingFiles;
use zonal_fuse_transport::{BackingId, NodeId};

use super::convert;
use super::route::Route;

/// How an open wants its data to travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OpenRequest {
    /// Direct reads only.
    DirectReads,
    /// By this route.
    By(Route),
}

/// All open zone files.
#[derive(Default)]
pub(crate) struct PassthroughFiles {
    files: Mutex<BTreeMap<NodeId, OpenCounts>>,
    /// `Some` while there is a hidden mount.
    backings: RwLock<Option<BackingFiles>>,
}

/// Counts of opens of one file.
#[derive(Default)]
struct OpenCounts {
    /// Opens through the page cache.
    cached: u64,
    /// Direct opens that can be mapped, without the backing file.
    mappable: u64,
    /// Opens with the backing file.
    backed: u64,
    backing: Option<BackingId>,
    /// Opens on the hidden mount: mappings keep them after the file is closed.
    hidden: u64,
    /// Whether the hidden mount may have cached pages of it.
    has_pages: bool,
}

impl OpenCounts {
    /// Whether the kernel would accept a backing file, and refuse no mapping for it.
    fn can_be_backed(&self) -> bool {
        self.backing.is_none() && self.cached == 0 && self.mappable == 0
    }
}

impl PassthroughFiles {
    /// The hidden mount is served: direct readers get backing files from now on.
    pub(super) fn begin(&self, backings: BackingFiles) {
        *self.backings.write().unwrap_or_else(PoisonError::into_inner) = Some(backings);
    }

    /// Ends the hidden mount, if there is one.
    pub(crate) fn end(&self) {
        let backings = self.backings.write().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(backings) = backings {
            backings.end();
        }
    }

    /// Adds an open with these open(2) flags. Returns its route and its backing file.
    pub(super) fn add(
        &self,
        node: NodeId,
        request: OpenRequest,
        flags: i32,
    ) -> (Route, Option<BackingId>) {
        let otherwise = match request {
            OpenRequest::DirectReads => Route::Direct,
            OpenRequest::By(route) => route,
        };
        let backings = self.backings.read().unwrap_or_else(PoisonError::into_inner);
        let Some(backings) = &*backings else { return (otherwise, None) };
        // Without the lock: the threads of the hidden mount may all be waiting for the device.
        let made = if request == OpenRequest::DirectReads && self.can_be_backed(node) {
            backings.open(node).inspect_err(|error| {
                tracing::warn!(%error, zone = node.0, "no backing file for a zone");
            })
        } else {
            Err(std::io::ErrorKind::Unsupported.into())
        };
        let mut made = made.ok();
        let mut files = self.files();
        let file = files.entry(node).or_default();
        if file.can_be_backed() {
            file.backing = made.take();
        }
        let entered = match (file.backing, request) {
            (Some(_), OpenRequest::DirectReads) => (Route::Backed, file.backing),
            (Some(_), OpenRequest::By(_)) => (Route::DirectForced, file.backing),
            (None, _) => (otherwise, None),
        };
        file.cached += u64::from(entered.0 == Route::Cached);
        file.mappable += u64::from(entered.0 == Route::Direct && can_be_mapped(flags));
        file.backed += u64::from(file.backing.is_some());
        drop_unused(&mut files, node);
        drop(files);
        // Another open was faster.
        if let Some(made) = made {
            backings.close(made);
        }
        entered
    }

    /// Removes an open.
    pub(super) fn remove(&self, node: NodeId, route: Route, flags: i32) {
        let mut files = self.files();
        let Some(file) = files.get_mut(&node) else { return };
        match route {
            Route::Direct => {
                file.mappable = file.mappable.saturating_sub(u64::from(can_be_mapped(flags)));
            }
            Route::Cached => file.cached = file.cached.saturating_sub(1),
            Route::Backed | Route::DirectForced => file.backed = file.backed.saturating_sub(1),
        }
        let unused = if file.backed == 0 { file.backing.take() } else { None };
        drop_unused(&mut files, node);
        drop(files);
        let backings = self.backings.read().unwrap_or_else(PoisonError::into_inner);
        if let (Some(unused), Some(backings)) = (unused, &*backings) {
            backings.close(unused);
        }
    }

    /// The file was opened on the hidden mount.
    pub(super) fn add_hidden(&self, node: NodeId) {
        self.files().entry(node).or_default().hidden += 1;
    }

    /// The file was closed on the hidden mount.
    pub(super) fn remove_hidden(&self, node: NodeId) {
        let mut files = self.files();
        if let Some(file) = files.get_mut(&node) {
            file.hidden = file.hidden.saturating_sub(1);
            file.has_pages &= file.hidden > 0;
        }
        drop_unused(&mut files, node);
    }

    /// The hidden mount is about to cache pages of the file.
    pub(super) fn add_pages(&self, node: NodeId) {
        if let Some(file) = self.files().get_mut(&node) {
            file.has_pages = true;
        }
    }

    /// Whether the hidden mount may have cached pages of the file.
    pub(super) fn has_pages(&self, node: NodeId) -> bool {
        self.files().get(&node).is_some_and(|file| file.has_pages)
    }

    fn can_be_backed(&self, node: NodeId) -> bool {
        self.files().get(&node).is_none_or(OpenCounts::can_be_backed)
    }

    fn files(&self) -> MutexGuard<'_, BTreeMap<NodeId, OpenCounts>> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a file with these open(2) flags can be mapped: it must be readable.
fn can_be_mapped(flags: i32) -> bool {
    flags & convert::O_ACCMODE != convert::O_WRONLY
}

/// Removes a file that is not open any more.
fn drop_unused(files: &mut BTreeMap<NodeId, OpenCounts>, node: NodeId) {
    if let Entry::Occupied(file) = files.entry(node) {
        let OpenCounts { cached, mappable, backed, hidden, .. } = file.get();
        if [cached, mappable, backed, hidden].iter().all(|count| **count == 0) {
            file.remove();
        }
    }
}
