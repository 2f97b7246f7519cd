//! Results turned into replies.

use std::time::Duration;

use fuser::{
    Errno, FileAttr, FileHandle, FileType, FopenFlags, Generation, ReplyAttr, ReplyEmpty,
    ReplyEntry, ReplyXattr,
};

use super::TTL;
use super::nodes::ELSEWHERE;
use crate::control;
use crate::options::Atime;
use zonal_fs::rules::{SETGID, SETUID};
use zonal_fs::vfs::Ino;

/// Inode numbers are never used twice.
pub(super) const GENERATION: Generation = Generation(0);

/// Handle of a file that goes through the page cache.
const CACHED: FileHandle = FileHandle(0);
/// Handle of a file opened with `O_DIRECT`.
const DIRECT: FileHandle = FileHandle(1);

/// How an open file's data travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Route {
    /// Through the page cache.
    Cached,
    /// Straight, as `O_DIRECT` asks for.
    Direct,
}

impl From<FileHandle> for Route {
    fn from(handle: FileHandle) -> Self {
        if handle == DIRECT { Self::Direct } else { Self::Cached }
    }
}

/// Handle and flags of an opened file.
pub(super) fn opened(route: Route, atime: Atime) -> (FileHandle, FopenFlags) {
    // No FLUSH on close: there is nothing to report, and locks are the kernel's.
    let mut common = FopenFlags::FOPEN_NOFLUSH;
    // Every read is to be seen: at least the first one of each open file must come to us.
    common.set(FopenFlags::FOPEN_KEEP_CACHE, atime != Atime::Always);
    if route == Route::Cached {
        return (CACHED, common);
    }
    let direct = FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES;
    (DIRECT, common | direct)
}

/// How long the kernel may keep these attributes. Not at all where a write may clear setuid or
/// setgid: after a direct write the kernel does not look. Nor where the number of the node is not
/// that of the inode, or in the control directory.
pub(super) fn ttl(attr: &FileAttr) -> Duration {
    let setid = attr.perm & (SETUID | SETGID) != 0 && attr.kind == FileType::RegularFile;
    let keep = !setid && attr.ino != ELSEWHERE && !control::is_own(Ino::new(attr.ino.0));
    if keep { TTL } else { Duration::ZERO }
}

pub(super) fn entry(reply: ReplyEntry, result: Result<FileAttr, Errno>) {
    match result {
        Ok(attr) => reply.entry(&ttl(&attr), &attr, GENERATION),
        Err(error) => reply.error(error),
    }
}

pub(super) fn attr(reply: ReplyAttr, result: Result<FileAttr, Errno>) {
    match result {
        Ok(attr) => reply.attr(&ttl(&attr), &attr),
        Err(error) => reply.error(error),
    }
}

pub(super) fn empty(reply: ReplyEmpty, result: Result<(), Errno>) {
    match result {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(error),
    }
}

/// A value, or its size if that is all the caller wants.
pub(super) fn xattr(reply: ReplyXattr, size: u32, result: Result<Vec<u8>, Errno>) {
    match result {
        Ok(value) => match u32::try_from(value.len()) {
            Ok(len) if size == 0 => reply.size(len),
            Ok(len) if len <= size => reply.data(&value),
            _ => reply.error(Errno::ERANGE),
        },
        Err(error) => reply.error(error),
    }
}
