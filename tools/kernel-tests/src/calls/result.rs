//! Shows the result of a call in a log.

use rustix::fs::{Stat, StatFs};
use rustix::io::Errno;

/// The result of a call: a few words, or the error.
pub(super) type Answer = Result<String, Errno>;

/// The names of the errors that file systems return.
const NAMES: [(Errno, &str); 38] = [
    (Errno::PERM, "EPERM"),
    (Errno::NOENT, "ENOENT"),
    (Errno::INTR, "EINTR"),
    (Errno::IO, "EIO"),
    (Errno::NXIO, "ENXIO"),
    (Errno::BADF, "EBADF"),
    (Errno::AGAIN, "EAGAIN"),
    (Errno::NOMEM, "ENOMEM"),
    (Errno::ACCESS, "EACCES"),
    (Errno::FAULT, "EFAULT"),
    (Errno::BUSY, "EBUSY"),
    (Errno::EXIST, "EEXIST"),
    (Errno::XDEV, "EXDEV"),
    (Errno::NODEV, "ENODEV"),
    (Errno::NOTDIR, "ENOTDIR"),
    (Errno::ISDIR, "EISDIR"),
    (Errno::INVAL, "EINVAL"),
    (Errno::MFILE, "EMFILE"),
    (Errno::NOTTY, "ENOTTY"),
    (Errno::TXTBSY, "ETXTBSY"),
    (Errno::FBIG, "EFBIG"),
    (Errno::NOSPC, "ENOSPC"),
    (Errno::SPIPE, "ESPIPE"),
    (Errno::ROFS, "EROFS"),
    (Errno::MLINK, "EMLINK"),
    (Errno::NAMETOOLONG, "ENAMETOOLONG"),
    (Errno::NOSYS, "ENOSYS"),
    (Errno::NOTEMPTY, "ENOTEMPTY"),
    (Errno::LOOP, "ELOOP"),
    (Errno::NODATA, "ENODATA"),
    (Errno::OVERFLOW, "EOVERFLOW"),
    (Errno::OPNOTSUPP, "EOPNOTSUPP"),
    (Errno::TOOMANYREFS, "ETOOMANYREFS"),
    (Errno::TIMEDOUT, "ETIMEDOUT"),
    (Errno::CONNREFUSED, "ECONNREFUSED"),
    (Errno::STALE, "ESTALE"),
    (Errno::NOTCONN, "ENOTCONN"),
    (Errno::CONNABORTED, "ECONNABORTED"),
];

/// The answer as one word or a few.
pub(super) fn show(answer: &Answer) -> String {
    match answer {
        Ok(text) => text.clone(),
        Err(errno) => NAMES
            .iter()
            .find(|(known, _)| known == errno)
            .map_or_else(|| format!("errno {}", errno.raw_os_error()), |(_, name)| (*name).into()),
    }
}

/// All of `stat` but the device and the times.
pub(super) fn stat(stat: &Stat) -> String {
    format!(
        "ino {} mode {:o} links {} owner {}:{} size {} blocks {} of {}",
        stat.st_ino,
        stat.st_mode,
        stat.st_nlink,
        stat.st_uid,
        stat.st_gid,
        stat.st_size,
        stat.st_blocks,
        stat.st_blksize
    )
}

/// All of `statfs` but the type and the identifier.
pub(super) fn statfs(stat: &StatFs) -> String {
    format!(
        "block {} blocks {} free {} available {} files {} free {} names {}",
        stat.f_bsize,
        stat.f_blocks,
        stat.f_bfree,
        stat.f_bavail,
        stat.f_files,
        stat.f_ffree,
        stat.f_namelen
    )
}

/// Length and a checksum of data: two reads that show the same returned the same bytes.
pub(super) fn data(bytes: &[u8]) -> String {
    // FNV-1a, a word at a time: enough to tell a difference, and quick where every step is slow.
    let word = |chunk: &[u8]| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        u64::from_le_bytes(word)
    };
    let hash = bytes.chunks(8).fold(0xcbf2_9ce4_8422_2325_u64, |hash, chunk| {
        (hash ^ word(chunk)).wrapping_mul(0x0100_0000_01b3).rotate_left(29)
    });
    format!("{} bytes {hash:016x}", bytes.len())
}
