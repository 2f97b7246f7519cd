//! Answers from results.

use zonal_fs::furrow::AtimePolicy;
use zonal_fs::vfs::FileModel;
use zonal_fuse_transport::abi::{Attr, FopenFlags};
use zonal_fuse_transport::answer::{Entry, Opened};
use zonal_fuse_transport::listing::DirListing;
use zonal_fuse_transport::{BackingId, Errno, NodeId, Reply};

use crate::fuse::route::Route;
use crate::fuse::server::TTL;

/// Answer to an open.
pub(super) fn opened(
    route: Route,
    backing: Option<BackingId>,
    model: FileModel,
    atime: AtimePolicy,
) -> Opened {
    // No FLUSH on close: there is no error to report, and the kernel keeps locks.
    let mut flags = FopenFlags::NOFLUSH;
    // With `strictatime` at least the first read of each open file must reach us. With a backing
    // file the kernel keeps no pages.
    flags.set(FopenFlags::KEEP_CACHE, atime != AtimePolicy::Always && backing.is_none());
    flags.set(FopenFlags::PASSTHROUGH, backing.is_some());
    flags.set(FopenFlags::DIRECT_IO, matches!(route, Route::Direct | Route::DirectForced));
    // Writes to a zone come one after the other anyway. And a pending parallel write would keep the
    // backing file when all its readers are gone, so that an open through the page cache would
    // fail.
    let together = route == Route::Direct && model == FileModel::Posix;
    flags.set(FopenFlags::PARALLEL_DIRECT_WRITES, together);
    Opened { handle: route.handle(), flags, backing }
}

/// Answer to a lookup of a missing name: node 0 makes the kernel cache that it is missing.
pub(super) fn absent() -> Entry {
    Entry { node: NodeId(0), attr: Attr::default(), ttl: TTL }
}

/// Answers with a result; `with` answers with a value.
pub(super) fn send<T>(reply: Reply, result: Result<T, Errno>, with: impl FnOnce(Reply, T)) {
    match result {
        Ok(value) => with(reply, value),
        Err(error) => reply.error(error),
    }
}

pub(super) fn entry(reply: Reply, result: Result<Entry, Errno>) {
    send(reply, result, |reply, entry| reply.entry(&entry));
}

pub(super) fn empty(reply: Reply, result: Result<(), Errno>) {
    send(reply, result, |reply, ()| reply.ok());
}

pub(super) fn listing(reply: Reply, result: Result<DirListing, Errno>) {
    send(reply, result, |reply, listing| reply.listing(&listing));
}

/// Answers with a value, or with its size if the caller asks for that.
pub(super) fn xattr(reply: Reply, size: u32, result: Result<Vec<u8>, Errno>) {
    send(reply, result, |reply, value| match u32::try_from(value.len()) {
        Ok(len) if size == 0 => reply.size(len),
        Ok(len) if len <= size => reply.bytes(&value),
        _ => reply.error(Errno::RANGE),
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zone_writes_are_never_parallel_in_kernel() {
        let flags = |route, model| opened(route, None, model, AtimePolicy::Relative).flags;
        let beside = FopenFlags::PARALLEL_DIRECT_WRITES;
        assert!(flags(Route::Direct, FileModel::Posix).contains(beside));
        assert!(!flags(Route::Direct, FileModel::Zones).contains(beside));
        assert!(!flags(Route::Cached, FileModel::Posix).contains(beside));
    }

    #[test]
    fn handle_tells_route_of_open_file() {
        for route in [Route::Cached, Route::Direct, Route::Backed, Route::DirectForced] {
            let opened = opened(route, None, FileModel::Zones, AtimePolicy::Always);
            assert_eq!(Route::from(opened.handle), route);
        }
    }
}
