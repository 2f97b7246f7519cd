//! The pages that the kernel has of files, by the visible mount and by the hidden one.

use zonal_fuse_transport::NodeId;

use super::page_cache::{HoldsNoPage, PageCache, PageRange};
use super::passthrough::PassthroughFiles;
use super::writeback::Writeback;
use crate::options::{DirectWrites, MountConfig};

/// All pages of a mount.
pub(crate) struct Pages {
    pub(crate) cache: PageCache,
    pub(crate) writeback: Writeback,
    pub(crate) passthrough: PassthroughFiles,
    pub(super) direct_writes: DirectWrites,
}

impl Pages {
    pub(super) fn new(config: &MountConfig) -> Self {
        Self {
            cache: PageCache::default(),
            writeback: Writeback::new(config.write_cache),
            passthrough: PassthroughFiles::default(),
            direct_writes: config.direct_writes,
        }
    }

    /// Drops all pages of a file, whose content has changed other than by write(2), before `then`
    /// runs.
    pub(super) fn drop_all(
        &self,
        node: NodeId,
        answered: HoldsNoPage,
        then: impl FnOnce() + Send + 'static,
    ) {
        if self.passthrough.has_pages(node) {
            self.cache.cancel_stores(node, answered, || ());
            self.cache.drop(node, PageRange::ALL, answered, then);
        } else {
            self.cache.cancel_stores(node, answered, then);
        }
    }

    /// As [`drop_all`](Self::drop_all), in the background.
    pub(super) fn drop_all_later(&self, node: NodeId) {
        self.cache.cancel_stores_later(node);
        if self.passthrough.has_pages(node) {
            self.cache.drop_later(node, PageRange::ALL);
        }
    }
}
