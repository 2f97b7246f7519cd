//! Results turned into replies.

use std::time::Duration;

use zonal_fs::rules::{SETGID, SETUID};
use zonal_fs::vfs::Ino;
use zonal_fuse_transport::abi::{Attr, FopenFlags};
use zonal_fuse_transport::listing::Listing;
use zonal_fuse_transport::reply::Entry;
use zonal_fuse_transport::{Errno, Reply};

use super::{TTL, convert};
use crate::control;
use crate::options::Atime;

/// Handle of a file that goes through the page cache.
const CACHED: u64 = 0;
/// Handle of a file opened with `O_DIRECT`.
const DIRECT: u64 = 1;

/// How an open file's data travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Route {
    /// Through the page cache.
    Cached,
    /// Straight, as `O_DIRECT` asks for.
    Direct,
}

impl From<u64> for Route {
    fn from(handle: u64) -> Self {
        if handle == DIRECT { Self::Direct } else { Self::Cached }
    }
}

/// Handle and flags of an opened file.
pub(super) fn opened(route: Route, atime: Atime) -> (u64, FopenFlags) {
    // No FLUSH on close: there is nothing to report, and locks are the kernel's.
    let mut common = FopenFlags::NOFLUSH;
    // Every read is to be seen: at least the first one of each open file must come to us.
    common.set(FopenFlags::KEEP_CACHE, atime != Atime::Always);
    if route == Route::Cached {
        return (CACHED, common);
    }
    let direct = FopenFlags::DIRECT_IO | FopenFlags::PARALLEL_DIRECT_WRITES;
    (DIRECT, common | direct)
}

/// How long the kernel may keep these attributes. Not at all where a write may clear setuid or
/// setgid: after a direct write the kernel does not look. Nor in the control directory.
pub(super) fn ttl(attr: &Attr) -> Duration {
    let setid = attr.mode & u32::from(SETUID | SETGID) != 0 && convert::is_regular(attr.mode);
    if setid || control::is_own(Ino::new(attr.ino)) { Duration::ZERO } else { TTL }
}

pub(super) fn entry(reply: Reply, result: Result<Entry, Errno>) {
    match result {
        Ok(entry) => reply.entry(&entry),
        Err(error) => reply.error(error),
    }
}

pub(super) fn attr(reply: Reply, result: Result<Attr, Errno>) {
    match result {
        Ok(attr) => reply.attr(&attr, ttl(&attr)),
        Err(error) => reply.error(error),
    }
}

pub(super) fn empty(reply: Reply, result: Result<(), Errno>) {
    match result {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(error),
    }
}

pub(super) fn listing(reply: Reply, result: Result<Listing, Errno>) {
    match result {
        Ok(listing) => reply.listing(&listing),
        Err(error) => reply.error(error),
    }
}

/// A value, or its size if that is all the caller wants.
pub(super) fn xattr(reply: Reply, size: u32, result: Result<Vec<u8>, Errno>) {
    match result {
        Ok(value) => match u32::try_from(value.len()) {
            Ok(len) if size == 0 => reply.size(len),
            Ok(len) if len <= size => reply.bytes(&value),
            _ => reply.error(Errno::RANGE),
        },
        Err(error) => reply.error(error),
    }
}
