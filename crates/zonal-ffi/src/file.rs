//! Open files of a volume.

use std::ffi::{c_char, c_int, c_uint, c_void};

use rustix::io::Errno;
use zonal_fs::vfs::{Allocate, Attr};
use zonal_fs::volume::{File, OpenFlags, WriteLifetime};

use crate::edge::{self, Failure, Outcome};
use crate::types::{
    ZONAL_FALLOC_KEEP_SIZE, ZONAL_FALLOC_PUNCH_HOLE, ZONAL_FALLOC_ZERO_RANGE, ZonalStat,
};
use crate::volume::{ZonalVolume, of};

/// An open file of a volume.
pub struct ZonalFile {
    file: File,
}

/// Opens a file as open(2) does. Of `flags`, this looks at `O_RDONLY`, `O_WRONLY`, `O_RDWR`,
/// `O_CREAT`, `O_EXCL`, `O_TRUNC`, `O_APPEND`, `O_DIRECT`, `O_DSYNC`, `O_SYNC` and `O_NOFOLLOW`;
/// `mode` has the permission bits of a new file.
///
/// Errors: `-ENOENT`, `-ENOTDIR`, `-ELOOP` for the path; `-EEXIST` with `O_EXCL`; `-EISDIR` for a
/// directory; `-EINVAL` for other files that are not regular, and for `O_TRUNC` without writing;
/// `-EOPNOTSUPP` for `O_TMPFILE`; `-EPERM` for an immutable file; `-EBUSY` on zonefs for more files
/// than the drive can have open; `-ENOSPC`; `-EROFS`; `-EIO`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zonal_file_open(
    volume: *const ZonalVolume,
    path: *const c_char,
    flags: c_int,
    mode: c_uint,
    file: *mut *mut ZonalFile,
) -> c_int {
    edge::status(|| {
        edge::needs(file, "where to put the file")?;
        // SAFETY: the caller's part of the contract.
        let (volume, path) = (unsafe { of(volume) }?, unsafe { edge::path(path) }?);
        let opened = volume.open_with(path, open_flags(flags)?, perm(mode))?;
        // SAFETY: not NULL, and the caller's part of the contract.
        unsafe { edge::give(ZonalFile { file: opened }, file) };
        Ok(())
    })
}

/// Closes a file and releases its lock. This makes nothing durable.
///
/// Errors: none but `-EFAULT`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zonal_file_close(file: *mut ZonalFile) -> c_int {
    // SAFETY: the caller's part of the contract.
    edge::status(|| unsafe { edge::take(file, "the file") }.map(drop))
}

/// Reads from byte `ofst` on and returns how many bytes: less than `count` only at the end of file.
///
/// Errors: `-EIO` where the drive fails or a checksum does not fit; `-EBADF` where the file was not
/// opened for it or the volume is closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zonal_file_read(
    file: *const ZonalFile,
    buf: *mut c_void,
    count: usize,
    ofst: u64,
) -> i64 {
    edge::count(|| {
        // SAFETY: the caller's part of the contract.
        let file = unsafe { edge::borrow(file, "the file") }?;
        // SAFETY: the caller's part of the contract.
        let buffer = unsafe { edge::buffer(buf, count) }?;
        Ok(file.file.read_at(buffer, ofst)? as u64)
    })
}

/// Writes at byte `ofst` and returns how many bytes: less than `count` only where a zone of zonefs
/// is full.
///
/// Errors: `-ENOSPC`; `-EFBIG`; `-EIO`; `-EROFS`; `-EBADF` where the file was not opened for it or
/// the volume is closed; on zonefs `-EINVAL` for writes other than whole blocks at the end of the
/// file.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zonal_file_write(
    file: *const ZonalFile,
    buf: *const c_void,
    count: usize,
    ofst: u64,
) -> i64 {
    edge::count(|| {
        // SAFETY: the caller's part of the contract.
        let file = unsafe { edge::borrow(file, "the file") }?;
        // SAFETY: the caller's part of the contract.
        let data = unsafe { edge::data(buf, count) }?;
        Ok(file.file.write_at(data, ofst)? as u64)
    })
}

/// Writes all of the buffer at the end of the file and returns the byte where it went. Appends of
/// several threads do not overlap.
///
/// Errors: those of `zonal_file_write`. With `-ENOSPC` on zonefs a part may have been written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zonal_file_append(
    file: *const ZonalFile,
    buf: *const c_void,
    count: usize,
) -> i64 {
    edge::count(|| {
        // SAFETY: the caller's part of the contract.
        let file = unsafe { edge::borrow(file, "the file") }?;
        // SAFETY: the caller's part of the contract.
        let data = unsafe { edge::data(buf, count) }?;
        let written = file.file.append(data)?;
        if written.len < count as u64 {
            return Err(Failure::new(Errno::NOSPC, "the zone has no room for all of it"));
        }
        Ok(written.offset)
    })
}

/// Cuts a file, or lengthens it with zeroes.
///
/// Errors: `-EFBIG`; `-ENOSPC`; `-EROFS`; `-EIO`; `-EPERM` on zonefs for other sizes than 0 and the
/// whole zone; `-EBADF` where the file was not opened for it or the volume is closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zonal_file_truncate(file: *const ZonalFile, size: u64) -> c_int {
    // SAFETY: the caller's part of the contract.
    edge::status(|| Ok(unsafe { edge::borrow(file, "the file") }?.file.set_len(size)?))
}

/// Allocates, punches or zeroes `len` bytes from byte `ofst` on, as fallocate(2) does. `mode` is 0,
/// `ZONAL_FALLOC_KEEP_SIZE`, `ZONAL_FALLOC_PUNCH_HOLE | ZONAL_FALLOC_KEEP_SIZE`, or
/// `ZONAL_FALLOC_ZERO_RANGE` with or without `ZONAL_FALLOC_KEEP_SIZE`.
///
/// Errors: `-EOPNOTSUPP` for other modes, and on zonefs; `-EINVAL` for no bytes; `-EFBIG`;
/// `-ENOSPC`; `-EBADF` where the file is not open for writing; `-EROFS`; `-EIO`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zonal_file_fallocate(
    file: *const ZonalFile,
    mode: c_int,
    ofst: u64,
    len: u64,
) -> c_int {
    const PUNCH: c_int = ZONAL_FALLOC_PUNCH_HOLE | ZONAL_FALLOC_KEEP_SIZE;
    const ZERO: c_int = ZONAL_FALLOC_ZERO_RANGE;
    const ZERO_KEEP: c_int = ZONAL_FALLOC_ZERO_RANGE | ZONAL_FALLOC_KEEP_SIZE;
    edge::status(|| {
        // SAFETY: the caller's part of the contract.
        let file = unsafe { edge::borrow(file, "the file") }?;
        let how = match mode {
            0 => Allocate::Extend,
            ZONAL_FALLOC_KEEP_SIZE => Allocate::KeepSize,
            PUNCH => Allocate::Punch,
            ZERO => Allocate::Zero,
            ZERO_KEEP => Allocate::ZeroKeepSize,
            _ => return Err(Failure::new(Errno::OPNOTSUPP, format!("a mode of {mode:#x}"))),
        };
        let end = ofst
            .checked_add(len)
            .ok_or_else(|| Failure::new(Errno::FBIG, "the range ends behind the largest file"))?;
        Ok(file.file.allocate(how, ofst..end)?)
    })
}

/// Says how long data written to the file will live: one of `ZONAL_LIFETIME_`, with the numbers of
/// `fcntl(F_SET_RW_HINT)`. The hint is stored with the file, as the attribute
/// `user.zonal.lifetime`. If `zonal_setxattr` sets that attribute on a directory, new files and
/// directories in it inherit it.
///
/// Errors: `-EINVAL` for another number; `-EOPNOTSUPP` on zonefs; `-ENOSPC`; `-EROFS`; `-EIO`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zonal_file_set_lifetime(file: *const ZonalFile, hint: c_uint) -> c_int {
    edge::status(|| {
        // SAFETY: the caller's part of the contract.
        let file = unsafe { edge::borrow(file, "the file") }?;
        let lifetime = WriteLifetime::from_hint(hint.into())
            .ok_or_else(|| Failure::new(Errno::INVAL, format!("{hint} is no lifetime")))?;
        Ok(file.file.set_write_lifetime(lifetime)?)
    })
}

/// The lifetime that is kept with the file: one of `ZONAL_LIFETIME_`.
///
/// Errors: `-EOPNOTSUPP` on zonefs; `-EIO`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zonal_file_get_lifetime(file: *const ZonalFile) -> c_int {
    let hint = edge::count(|| {
        // SAFETY: the caller's part of the contract.
        Ok(unsafe { edge::borrow(file, "the file") }?.file.write_lifetime()?.hint())
    });
    c_int::try_from(hint).expect("hints and errnos are small")
}

/// Makes content and attributes of a file durable.
///
/// Errors: `-EIO`, `-ENOSPC`; then it may not be durable. `-EBADF` where the volume is closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zonal_file_sync(file: *const ZonalFile) -> c_int {
    // SAFETY: the caller's part of the contract.
    edge::status(|| Ok(unsafe { edge::borrow(file, "the file") }?.file.sync_all()?))
}

/// Makes the content of a file durable, with the metadata that is needed to read it back.
///
/// Errors: `-EIO`, `-ENOSPC`; then it may not be durable. `-EBADF` where the volume is closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zonal_file_datasync(file: *const ZonalFile) -> c_int {
    // SAFETY: the caller's part of the contract.
    edge::status(|| Ok(unsafe { edge::borrow(file, "the file") }?.file.sync_data()?))
}

/// Tells the attributes of a file.
///
/// Errors: `-EIO`; `-EBADF` where the volume is closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zonal_file_stat(file: *const ZonalFile, stat: *mut ZonalStat) -> c_int {
    edge::status(|| {
        // SAFETY: the caller's part of the contract.
        let attr = unsafe { edge::borrow(file, "the file") }?.file.metadata()?;
        // SAFETY: the caller's part of the contract.
        unsafe { edge::put(told(&attr), stat, "stat") }
    })
}

/// Locks a file against the other handles of this volume, until it is closed; `-EAGAIN` if another
/// one has it locked.
///
/// Errors: none but `-EFAULT` and that `-EAGAIN`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zonal_file_lock(file: *const ZonalFile) -> c_int {
    // SAFETY: the caller's part of the contract.
    edge::status(|| Ok(unsafe { edge::borrow(file, "the file") }?.file.try_lock()?))
}

/// Releases a lock.
///
/// Errors: none but `-EFAULT`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zonal_file_unlock(file: *const ZonalFile) -> c_int {
    edge::status(|| {
        // SAFETY: the caller's part of the contract.
        unsafe { edge::borrow(file, "the file") }?.file.unlock();
        Ok(())
    })
}

impl ZonalFile {
    /// The file that the handle stands for.
    pub(crate) fn file(&self) -> &File {
        &self.file
    }
}

/// The permission bits of a mode.
pub(crate) fn perm(mode: c_uint) -> u16 {
    u16::try_from(mode & 0o7777).expect("twelve bits")
}

fn open_flags(flags: c_int) -> Outcome<OpenFlags> {
    let open = OpenFlags::try_from(flags)?;
    // Appending to or emptying a file takes write access.
    if open.contains(OpenFlags::WRITE) {
        return Ok(open);
    }
    if open.contains(OpenFlags::TRUNCATE) {
        return Err(Failure::new(Errno::INVAL, "O_TRUNC takes O_WRONLY or O_RDWR"));
    }
    Ok(open - OpenFlags::APPEND)
}

/// Attributes, as C has them.
pub(crate) fn told(attr: &Attr) -> ZonalStat {
    ZonalStat {
        ino: attr.ino.get(),
        size: attr.size,
        blocks: attr.blocks,
        atime_sec: attr.atime.secs(),
        mtime_sec: attr.mtime.secs(),
        ctime_sec: attr.ctime.secs(),
        atime_nsec: attr.atime.nanos(),
        mtime_nsec: attr.mtime.nanos(),
        ctime_nsec: attr.ctime.nanos(),
        mode: attr.kind.format() | u32::from(attr.perm),
        nlink: attr.nlink,
        uid: attr.uid,
        gid: attr.gid,
        rdev: attr.rdev,
    }
}
