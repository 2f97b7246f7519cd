//! The data that the tests write, and the ways in which they open files.

use std::fs::File;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

pub(crate) const O_DIRECT: i32 = 0o40000;
pub(crate) const O_DSYNC: i32 = 0o10000;
pub(crate) const O_SYNC: i32 = 0o4_010_000;

/// Opens for reading and writing, and makes the file if need be.
pub(crate) fn open(path: &Path, flags: i32) -> File {
    File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .custom_flags(flags)
        .open(path)
        .expect("it can be opened")
}

/// A buffer as `O_DIRECT` wants it: at an address that is a multiple of a block.
pub(crate) fn aligned(len: usize, byte: u8) -> (Vec<u8>, std::ops::Range<usize>) {
    let buffer = vec![byte; len + 4096];
    let start = buffer.as_ptr().align_offset(4096);
    (buffer, start..start + len)
}

/// Bytes that differ everywhere.
pub(crate) fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| u8::try_from((at * 31 + at / 251) % 256).expect("a byte")).collect()
}
