//! Syncs the file systems that are mounted from a block device before it is removed.
//!
//! The kernel does this itself if the file system supports it; btrfs of Linux 7.3 does not.

use std::fs::File;
use std::path::Path;

use zonal::mounts;

/// Syncs the file systems mounted from `node`.
pub(super) fn sync(node: &Path) {
    let mounts = mounts::all().unwrap_or_default();
    for mount in mounts.iter().filter(|mount| mount.source == node.as_os_str()) {
        let synced = File::open(&mount.point).and_then(|root| Ok(rustix::fs::syncfs(root)?));
        let point = mount.point.display();
        match synced {
            Ok(()) => tracing::warn!(mount = %point, "still mounted; it was synced"),
            Err(error) => tracing::error!(mount = %point, %error, "cannot be synced"),
        }
    }
}
