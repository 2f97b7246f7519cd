//! Results turned into replies.

use fuser::{
    Errno, FileAttr, FileHandle, FopenFlags, Generation, ReplyAttr, ReplyEmpty, ReplyEntry,
    ReplyXattr,
};

use super::{TTL, convert};

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

/// Handle and flags of a file opened with these open(2) flags.
pub(super) fn opened(flags: i32) -> (FileHandle, FopenFlags) {
    // No FLUSH on close: there is nothing to report, and locks are the kernel's.
    let common = FopenFlags::FOPEN_KEEP_CACHE | FopenFlags::FOPEN_NOFLUSH;
    if flags & convert::O_DIRECT == 0 {
        return (CACHED, common);
    }
    let direct = FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES;
    (DIRECT, common | direct)
}

pub(super) fn entry(reply: ReplyEntry, result: Result<FileAttr, Errno>) {
    match result {
        Ok(attr) => reply.entry(&TTL, &attr, GENERATION),
        Err(error) => reply.error(error),
    }
}

pub(super) fn attr(reply: ReplyAttr, result: Result<FileAttr, Errno>) {
    match result {
        Ok(attr) => reply.attr(&TTL, &attr),
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
