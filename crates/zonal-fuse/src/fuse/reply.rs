//! Results turned into replies.

use std::time::Duration;

use zonal_fs::rules::{SETGID, SETUID};
use zonal_fs::vfs::{FileModel, Ino};
use zonal_fuse_transport::abi::{Attr, FopenFlags};
use zonal_fuse_transport::listing::Listing;
use zonal_fuse_transport::reply::{Entry, Opened};
use zonal_fuse_transport::{BackingId, Errno, Reply};

use super::{TTL, convert};
use crate::control;
use crate::options::Atime;

/// Handle of a file that goes through the page cache.
const CACHED: u64 = 0;
/// Handle of a file opened with `O_DIRECT`.
const DIRECT: u64 = 1;
/// Handles of files that have a backing file.
const BACKED: u64 = 2;
const BESIDE: u64 = 3;

/// How an open file's data travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Route {
    /// Through the page cache.
    Cached,
    /// Straight, as `O_DIRECT` asks for.
    Direct,
    /// Straight, by the hidden mount: it is only read.
    Backed,
    /// Straight, whatever was asked for: others read it by the hidden mount.
    Beside,
}

impl From<u64> for Route {
    fn from(handle: u64) -> Self {
        match handle {
            DIRECT => Self::Direct,
            BACKED => Self::Backed,
            BESIDE => Self::Beside,
            _ => Self::Cached,
        }
    }
}

/// What the kernel hears of a file that is open now.
pub(super) fn opened(
    (route, backing): (Route, Option<BackingId>),
    model: FileModel,
    atime: Atime,
) -> Opened {
    // No FLUSH on close: there is nothing to report, and locks are the kernel's.
    let mut flags = FopenFlags::NOFLUSH;
    // Every read is to be seen: at least the first one of each open file must come to us. And the kernel
    // keeps no pages where there is a backing file.
    flags.set(FopenFlags::KEEP_CACHE, atime != Atime::Always && backing.is_none());
    flags.set(FopenFlags::PASSTHROUGH, backing.is_some());
    flags.set(FopenFlags::DIRECT_IO, matches!(route, Route::Direct | Route::Beside));
    // Of a zone they come one after the other in any case. One that had begun would keep the backing file
    // when all who had it are gone, and an open through the page cache would fail.
    let together = route == Route::Direct && model == FileModel::Posix;
    flags.set(FopenFlags::PARALLEL_DIRECT_WRITES, together);
    let handle = match route {
        Route::Cached => CACHED,
        Route::Direct => DIRECT,
        Route::Backed => BACKED,
        Route::Beside => BESIDE,
    };
    Opened { handle, flags, backing }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_write_to_a_zone_goes_beside_another_in_the_kernel() {
        let flags = |route, model| opened((route, None), model, Atime::Relative).flags;
        let beside = FopenFlags::PARALLEL_DIRECT_WRITES;
        assert!(flags(Route::Direct, FileModel::Posix).contains(beside));
        assert!(!flags(Route::Direct, FileModel::Zones).contains(beside));
        assert!(!flags(Route::Cached, FileModel::Posix).contains(beside));
    }

    #[test]
    fn handles_tell_how_a_file_was_opened() {
        for route in [Route::Cached, Route::Direct, Route::Backed, Route::Beside] {
            let opened = opened((route, None), FileModel::Zones, Atime::Always);
            assert_eq!(Route::from(opened.handle), route);
        }
    }
}
