//! Attributes of files and directories of a volume, by path and by open file: mode bits, owner,
//! times, length, and extended attributes.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::os::unix::ffi::OsStrExt;

use rustix::io::Errno;
use zonal_fs::vfs::{SetAttr, SetTime, Timestamp, XattrMode};
use zonal_fs::volume::{Links, Node, OpenFlags};

use crate::edge::{self, Failure, Outcome};
use crate::file::{ZonalFile, perm};
use crate::types::{
    ZONAL_NOFOLLOW, ZONAL_UTIME_NOW, ZONAL_UTIME_OMIT, ZONAL_XATTR_CREATE, ZONAL_XATTR_REPLACE,
    ZonalTime, ZonalTimes,
};
use crate::volume::{ZonalVolume, of};

/// Sets the permission bits, twelve with setuid, setgid and sticky, of the file or directory that
/// `path` leads to.
///
/// Errors: `-ENOENT`, `-ENOTDIR`, `-ELOOP` for the path; `-EPERM` for an immutable file; `-EROFS`;
/// `-EIO`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zonal_chmod(
    volume: *const ZonalVolume,
    path: *const c_char,
    mode: c_uint,
) -> c_int {
    edge::status(|| {
        // SAFETY: the caller's part of the contract.
        let node = unsafe { node(volume, path, Links::Follow) }?;
        change(&node, &of_mode(mode))
    })
}

/// The same for an open file.
///
/// Errors: `-EPERM` for an immutable file; `-EBADF` where the volume is closed; `-EROFS`; `-EIO`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zonal_file_chmod(file: *const ZonalFile, mode: c_uint) -> c_int {
    edge::status(|| {
        // SAFETY: the caller's part of the contract.
        let file = unsafe { edge::borrow(file, "the file") }?;
        change(file.file(), &of_mode(mode))
    })
}

/// Sets owner and group of the file or directory that `path` leads to; `(uint32_t)-1` leaves one as
/// it is. `flags` is 0 or `ZONAL_NOFOLLOW`. Owners are kept and not enforced, so any program may
/// set any.
///
/// Errors: `-EINVAL` for other flags; those of `zonal_chmod`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zonal_chown(
    volume: *const ZonalVolume,
    path: *const c_char,
    uid: u32,
    gid: u32,
    flags: c_uint,
) -> c_int {
    edge::status(|| {
        // SAFETY: the caller's part of the contract.
        let node = unsafe { node(volume, path, links(flags)?) }?;
        change(&node, &of_owner(uid, gid))
    })
}

/// The same for an open file.
///
/// Errors: those of `zonal_file_chmod`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zonal_file_chown(file: *const ZonalFile, uid: u32, gid: u32) -> c_int {
    edge::status(|| {
        // SAFETY: the caller's part of the contract.
        let file = unsafe { edge::borrow(file, "the file") }?;
        change(file.file(), &of_owner(uid, gid))
    })
}

/// Sets the times of last access and last change of the content of the file or directory that
/// `path` leads to; NULL for `times` sets both to now. `flags` is 0 or `ZONAL_NOFOLLOW`.
///
/// Errors: `-EINVAL` for other flags, and for a second or more of nanoseconds; those of
/// `zonal_chmod`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zonal_utimens(
    volume: *const ZonalVolume,
    path: *const c_char,
    times: *const ZonalTimes,
    flags: c_uint,
) -> c_int {
    edge::status(|| {
        // SAFETY: the caller's part of the contract.
        let set = of_times(unsafe { times.as_ref() })?;
        // SAFETY: the caller's part of the contract.
        let node = unsafe { node(volume, path, links(flags)?) }?;
        change(&node, &set)
    })
}

/// The same for an open file.
///
/// Errors: `-EINVAL` for a second or more of nanoseconds; those of `zonal_file_chmod`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zonal_file_utimens(
    file: *const ZonalFile,
    times: *const ZonalTimes,
) -> c_int {
    edge::status(|| {
        // SAFETY: the caller's part of the contract.
        let file = unsafe { edge::borrow(file, "the file") }?;
        // SAFETY: the caller's part of the contract.
        let set = of_times(unsafe { times.as_ref() })?;
        change(file.file(), &set)
    })
}

/// Cuts the file that `path` leads to, or lengthens it with zeroes, to `size` bytes.
///
/// Errors: `-ENOENT`, `-ENOTDIR`, `-ELOOP` for the path; `-EISDIR`; those of `zonal_file_truncate`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zonal_truncate(
    volume: *const ZonalVolume,
    path: *const c_char,
    size: u64,
) -> c_int {
    edge::status(|| {
        // SAFETY: the caller's part of the contract.
        let (volume, path) = (unsafe { of(volume) }?, unsafe { edge::path(path) }?);
        Ok(volume.open_with(path, OpenFlags::WRITE, 0)?.set_len(size)?)
    })
}

/// Copies the value of an extended attribute, such as `user.origin`, of the file or directory that
/// `path` leads to into `value` and returns how many bytes it has. With a `size` of 0 it only
/// returns that. `flags` is 0 or `ZONAL_NOFOLLOW`.
///
/// Errors: `-ENODATA` where there is no such attribute; `-ERANGE` for a buffer that is too small,
/// and a name of no bytes or more than 255; `-EINVAL` for other flags; `-EOPNOTSUPP` on zonefs;
/// `-ENOENT`, `-ENOTDIR`, `-ELOOP` for the path; `-EIO`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zonal_getxattr(
    volume: *const ZonalVolume,
    path: *const c_char,
    name: *const c_char,
    value: *mut c_void,
    size: usize,
    flags: c_uint,
) -> i64 {
    edge::count(|| {
        // SAFETY: the caller's part of the contract.
        let node = unsafe { node(volume, path, links(flags)?) }?;
        // SAFETY: the caller's part of the contract.
        let found = node.xattr(unsafe { edge::name(name) }?)?;
        // SAFETY: the caller's part of the contract.
        unsafe { edge::fill(&found, value, size) }
    })
}

/// The same for an open file.
///
/// Errors: those of `zonal_getxattr` but for the path; `-EBADF` where the volume is closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zonal_file_getxattr(
    file: *const ZonalFile,
    name: *const c_char,
    value: *mut c_void,
    size: usize,
) -> i64 {
    edge::count(|| {
        // SAFETY: the caller's part of the contract.
        let file = unsafe { edge::borrow(file, "the file") }?;
        // SAFETY: the caller's part of the contract.
        let found = file.file().xattr(unsafe { edge::name(name) }?)?;
        // SAFETY: the caller's part of the contract.
        unsafe { edge::fill(&found, value, size) }
    })
}

/// Sets an extended attribute of the file or directory that `path` leads to, to `size` bytes, at
/// most 65536. `flags` has `ZONAL_XATTR_CREATE` or `ZONAL_XATTR_REPLACE`, and `ZONAL_NOFOLLOW`.
///
/// Errors: `-EEXIST` and `-ENODATA` by the flags; `-E2BIG` for a larger value; `-ERANGE` for a name
/// of no bytes or more than 255; `-EINVAL` for other flags; `-EOPNOTSUPP` on zonefs; `-ENOSPC`;
/// `-EPERM` for an immutable file; `-ENOENT`, `-ENOTDIR`, `-ELOOP` for the path; `-EROFS`; `-EIO`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zonal_setxattr(
    volume: *const ZonalVolume,
    path: *const c_char,
    name: *const c_char,
    value: *const c_void,
    size: usize,
    flags: c_uint,
) -> c_int {
    edge::status(|| {
        let mode = xattr_mode(flags & !ZONAL_NOFOLLOW)?;
        // SAFETY: the caller's part of the contract.
        let node = unsafe { node(volume, path, links(flags & ZONAL_NOFOLLOW)?) }?;
        // SAFETY: the caller's part of the contract.
        let (name, value) = (unsafe { edge::name(name) }?, unsafe { edge::data(value, size) }?);
        Ok(node.set_xattr(name, value, mode)?)
    })
}

/// The same for an open file.
///
/// Errors: those of `zonal_setxattr` but for the path; `-EBADF` where the volume is closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zonal_file_setxattr(
    file: *const ZonalFile,
    name: *const c_char,
    value: *const c_void,
    size: usize,
    flags: c_uint,
) -> c_int {
    edge::status(|| {
        let mode = xattr_mode(flags)?;
        // SAFETY: the caller's part of the contract.
        let file = unsafe { edge::borrow(file, "the file") }?;
        // SAFETY: the caller's part of the contract.
        let (name, value) = (unsafe { edge::name(name) }?, unsafe { edge::data(value, size) }?);
        Ok(file.file().set_xattr(name, value, mode)?)
    })
}

/// Copies the names of the extended attributes of the file or directory that `path` leads to into
/// `list`, each with a zero byte at its end, and returns how many bytes that are. With a `size` of
/// 0 it only returns that. `flags` is 0 or `ZONAL_NOFOLLOW`.
///
/// Errors: `-ERANGE` for a buffer that is too small; `-EINVAL` for other flags; `-ENOENT`,
/// `-ENOTDIR`, `-ELOOP` for the path; `-EIO`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zonal_listxattr(
    volume: *const ZonalVolume,
    path: *const c_char,
    list: *mut c_char,
    size: usize,
    flags: c_uint,
) -> i64 {
    edge::count(|| {
        // SAFETY: the caller's part of the contract.
        let node = unsafe { node(volume, path, links(flags)?) }?;
        // SAFETY: the caller's part of the contract.
        unsafe { edge::fill(&names(&node)?, list.cast(), size) }
    })
}

/// The same for an open file.
///
/// Errors: `-ERANGE` for a buffer that is too small; `-EBADF` where the volume is closed; `-EIO`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zonal_file_listxattr(
    file: *const ZonalFile,
    list: *mut c_char,
    size: usize,
) -> i64 {
    edge::count(|| {
        // SAFETY: the caller's part of the contract.
        let names = names(unsafe { edge::borrow(file, "the file") }?.file())?;
        // SAFETY: the caller's part of the contract.
        unsafe { edge::fill(&names, list.cast(), size) }
    })
}

/// Removes an extended attribute of the file or directory that `path` leads to. `flags` is 0 or
/// `ZONAL_NOFOLLOW`.
///
/// Errors: `-ENODATA` where there is no such attribute; `-EINVAL` for other flags; `-EOPNOTSUPP` on
/// zonefs; `-EPERM` for an immutable file; `-ENOENT`, `-ENOTDIR`, `-ELOOP` for the path; `-EROFS`;
/// `-EIO`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zonal_removexattr(
    volume: *const ZonalVolume,
    path: *const c_char,
    name: *const c_char,
    flags: c_uint,
) -> c_int {
    edge::status(|| {
        // SAFETY: the caller's part of the contract.
        let node = unsafe { node(volume, path, links(flags)?) }?;
        // SAFETY: the caller's part of the contract.
        Ok(node.remove_xattr(unsafe { edge::name(name) }?)?)
    })
}

/// The same for an open file.
///
/// Errors: those of `zonal_removexattr` but for the path; `-EBADF` where the volume is closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zonal_file_removexattr(
    file: *const ZonalFile,
    name: *const c_char,
) -> c_int {
    edge::status(|| {
        // SAFETY: the caller's part of the contract.
        let file = unsafe { edge::borrow(file, "the file") }?;
        // SAFETY: the caller's part of the contract.
        Ok(file.file().remove_xattr(unsafe { edge::name(name) }?)?)
    })
}

/// A handle of the file, directory or link at a path.
///
/// # Safety
///
/// `volume` is NULL or a handle; `path` is NULL, or ends in a zero byte and stays unchanged
/// meanwhile.
unsafe fn node(volume: *const ZonalVolume, path: *const c_char, links: Links) -> Outcome<Node> {
    // SAFETY: the caller says so.
    let (volume, path) = (unsafe { of(volume) }?, unsafe { edge::path(path) }?);
    Ok(volume.node(path, links)?)
}

fn links(flags: c_uint) -> Outcome<Links> {
    match flags {
        0 => Ok(Links::Follow),
        ZONAL_NOFOLLOW => Ok(Links::Keep),
        _ => Err(Failure::new(Errno::INVAL, format!("flags of {flags:#x}"))),
    }
}

fn xattr_mode(flags: c_uint) -> Outcome<XattrMode> {
    match flags {
        0 => Ok(XattrMode::Any),
        ZONAL_XATTR_CREATE => Ok(XattrMode::Create),
        ZONAL_XATTR_REPLACE => Ok(XattrMode::Replace),
        _ => Err(Failure::new(Errno::INVAL, format!("flags of {flags:#x}"))),
    }
}

fn change(node: &Node, set: &SetAttr) -> Outcome<()> {
    node.set_metadata(set)?;
    Ok(())
}

fn of_mode(mode: c_uint) -> SetAttr {
    SetAttr { perm: Some(perm(mode)), ..SetAttr::default() }
}

fn of_owner(uid: u32, gid: u32) -> SetAttr {
    let set = |id| (id != u32::MAX).then_some(id);
    SetAttr { uid: set(uid), gid: set(gid), ..SetAttr::default() }
}

fn of_times(times: Option<&ZonalTimes>) -> Outcome<SetAttr> {
    let (atime, mtime) = match times {
        None => (Some(SetTime::Now), Some(SetTime::Now)),
        Some(times) => (of_time(&times.atime)?, of_time(&times.mtime)?),
    };
    Ok(SetAttr { atime, mtime, ..SetAttr::default() })
}

fn of_time(time: &ZonalTime) -> Outcome<Option<SetTime>> {
    match time.nsec {
        ZONAL_UTIME_NOW => Ok(Some(SetTime::Now)),
        ZONAL_UTIME_OMIT => Ok(None),
        nsec => match Timestamp::new(time.sec, nsec) {
            Some(time) => Ok(Some(SetTime::To(time))),
            None => Err(Failure::new(Errno::INVAL, format!("{nsec} ns are a second or more"))),
        },
    }
}

/// The names of the attributes, each with a zero byte at its end.
fn names(node: &Node) -> Outcome<Vec<u8>> {
    let mut list = Vec::new();
    for name in node.xattrs()? {
        list.extend_from_slice(name.as_bytes());
        list.push(0);
    }
    Ok(list)
}
