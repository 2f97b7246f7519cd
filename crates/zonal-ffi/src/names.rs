//! The entries of a volume, by path.

use std::ffi::{CString, c_char, c_int, c_uint, c_void};
use std::os::unix::ffi::OsStrExt;

use rustix::io::Errno;
use zonal_fs::vfs::{FileKind, NewInode, RenameFlags};

use crate::edge::{self, Failure};
use crate::file::{perm, told};
use crate::types::{ZonalEach, ZonalEntry, ZonalStat};
use crate::volume::{ZonalVolume, of};

/// Tells the attributes of the file or directory that `path` leads to. A symbolic link at its end
/// is followed.
///
/// Errors: `-ENOENT`, `-ENOTDIR`, `-ELOOP` for the path; `-EIO` where the drive fails.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zonal_stat(
    volume: *const ZonalVolume,
    path: *const c_char,
    stat: *mut ZonalStat,
) -> c_int {
    edge::status(|| {
        // SAFETY: the caller's part of the contract.
        let (volume, path) = (unsafe { of(volume) }?, unsafe { edge::path(path) }?);
        // SAFETY: the caller's part of the contract.
        unsafe { edge::put(told(&volume.metadata(path)?), stat, "stat") }
    })
}

/// Tells the attributes of the entry at `path`, which may be a symbolic link.
///
/// Errors: those of `zonal_stat`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zonal_lstat(
    volume: *const ZonalVolume,
    path: *const c_char,
    stat: *mut ZonalStat,
) -> c_int {
    edge::status(|| {
        // SAFETY: the caller's part of the contract.
        let (volume, path) = (unsafe { of(volume) }?, unsafe { edge::path(path) }?);
        // SAFETY: the caller's part of the contract.
        unsafe { edge::put(told(&volume.symlink_metadata(path)?), stat, "stat") }
    })
}

/// Makes a directory with these permission bits.
///
/// Errors: `-EEXIST`; `-ENAMETOOLONG` over 255 bytes; `-ENOSPC`; `-ENOTDIR` and `-ELOOP` on the
/// way; `-EROFS`; `-EIO`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zonal_mkdir(
    volume: *const ZonalVolume,
    path: *const c_char,
    mode: c_uint,
) -> c_int {
    edge::status(|| {
        // SAFETY: the caller's part of the contract.
        let (volume, path) = (unsafe { of(volume) }?, unsafe { edge::path(path) }?);
        let new = NewInode { kind: FileKind::Directory, perm: perm(mode), rdev: 0, target: b"" };
        volume.create_node(path, &new)?;
        Ok(())
    })
}

/// Removes the entry of anything but a directory.
///
/// Errors: `-ENOENT`; `-EISDIR`; `-EPERM` on zonefs and for immutable files; `-ENOTDIR` and
/// `-ELOOP` on the way; `-EROFS`; `-EIO`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zonal_unlink(volume: *const ZonalVolume, path: *const c_char) -> c_int {
    edge::status(|| {
        // SAFETY: the caller's part of the contract.
        let (volume, path) = (unsafe { of(volume) }?, unsafe { edge::path(path) }?);
        Ok(volume.remove_file(path)?)
    })
}

/// Removes an empty directory.
///
/// Errors: `-ENOENT`; `-ENOTEMPTY`; `-EINVAL` for the root; `-ENOTDIR` and `-ELOOP` on the way;
/// `-EROFS`; `-EIO`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zonal_rmdir(volume: *const ZonalVolume, path: *const c_char) -> c_int {
    edge::status(|| {
        // SAFETY: the caller's part of the contract.
        let (volume, path) = (unsafe { of(volume) }?, unsafe { edge::path(path) }?);
        Ok(volume.remove_dir(path)?)
    })
}

/// Moves an entry, and replaces an entry at `to`, at once.
///
/// Errors: `-ENOENT`; `-EISDIR` and `-ENOTEMPTY` for the entry at `to`; `-EINVAL` into itself;
/// `-ENOTDIR` and `-ELOOP` on the way; `-EROFS`; `-EIO`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zonal_rename(
    volume: *const ZonalVolume,
    from: *const c_char,
    to: *const c_char,
) -> c_int {
    edge::status(|| {
        // SAFETY: the caller's part of the contract.
        let volume = unsafe { of(volume) }?;
        // SAFETY: the caller's part of the contract.
        let (from, to) = (unsafe { edge::path(from) }?, unsafe { edge::path(to) }?);
        Ok(volume.rename(from, to)?)
    })
}

/// Moves an entry as `flags` say: 0 or one of `ZONAL_RENAME_`.
///
/// Errors: those of `zonal_rename`; `-EEXIST` with `ZONAL_RENAME_NOREPLACE`; `-EINVAL` for other
/// flags.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zonal_rename_with(
    volume: *const ZonalVolume,
    from: *const c_char,
    to: *const c_char,
    flags: c_uint,
) -> c_int {
    edge::status(|| {
        // SAFETY: the caller's part of the contract.
        let volume = unsafe { of(volume) }?;
        // SAFETY: the caller's part of the contract.
        let (from, to) = (unsafe { edge::path(from) }?, unsafe { edge::path(to) }?);
        let flags = RenameFlags::from_bits(flags)
            .ok_or_else(|| Failure::new(Errno::INVAL, format!("{flags:#x} is no way to rename")))?;
        Ok(volume.rename_with(from, to, flags)?)
    })
}

/// Gives the file at `original` one more name, `link`. A symbolic link at `original` gets it
/// itself.
///
/// Errors: `-ENOENT`; `-EEXIST`; `-EPERM` for a directory; `-EMLINK`; `-ENOSPC`; `-ENOTDIR` and
/// `-ELOOP` on the way; `-EROFS`; `-EIO`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zonal_link(
    volume: *const ZonalVolume,
    original: *const c_char,
    link: *const c_char,
) -> c_int {
    edge::status(|| {
        // SAFETY: the caller's part of the contract.
        let volume = unsafe { of(volume) }?;
        // SAFETY: the caller's part of the contract.
        let (original, link) = (unsafe { edge::path(original) }?, unsafe { edge::path(link) }?);
        Ok(volume.hard_link(original, link)?)
    })
}

/// Makes a symbolic link at `link` with the text `target`, of at most 4095 bytes, whether or not
/// that leads anywhere. A target with a leading slash starts at the root of the volume.
///
/// Errors: `-EEXIST`; `-ENAMETOOLONG`; `-EINVAL` for an empty target; `-ENOSPC`; `-ENOTDIR` and
/// `-ELOOP` on the way; `-EROFS`; `-EIO`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zonal_symlink(
    volume: *const ZonalVolume,
    target: *const c_char,
    link: *const c_char,
) -> c_int {
    edge::status(|| {
        // SAFETY: the caller's part of the contract.
        let volume = unsafe { of(volume) }?;
        // SAFETY: the caller's part of the contract.
        let (target, link) = (unsafe { edge::path(target) }?, unsafe { edge::path(link) }?);
        Ok(volume.symlink(target, link)?)
    })
}

/// Copies the text of a symbolic link to `buf`, without a zero byte at its end, and returns how
/// many bytes it has. With a `size` of 0 it only returns that. Unlike readlink(2) it cuts nothing
/// off.
///
/// Errors: `-EINVAL` where no symbolic link stands; `-ENOENT`; `-ERANGE` for a buffer that is too
/// small; `-EIO`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zonal_readlink(
    volume: *const ZonalVolume,
    path: *const c_char,
    buf: *mut c_char,
    size: usize,
) -> i64 {
    edge::count(|| {
        // SAFETY: the caller's part of the contract.
        let (volume, path) = (unsafe { of(volume) }?, unsafe { edge::path(path) }?);
        let target = volume.read_link(path)?;
        // SAFETY: the caller's part of the contract.
        unsafe { edge::fill(target.as_os_str().as_bytes(), buf.cast(), size) }
    })
}

/// Calls `each` with every entry of a directory but `.` and `..`, in no particular order, and with
/// `context`. Returns 0, or what `each` returned to end it. `each` may call any function of this
/// library but those that close the volume.
///
/// Errors: `-ENOENT`; `-ENOTDIR`; `-EIO`. They look like a negative number from `each`, which is
/// better positive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zonal_list(
    volume: *const ZonalVolume,
    path: *const c_char,
    each: ZonalEach,
    context: *mut c_void,
) -> c_int {
    let mut ended = 0;
    let status = edge::status(|| {
        // SAFETY: the caller's part of the contract.
        let (volume, path) = (unsafe { of(volume) }?, unsafe { edge::path(path) }?);
        let each = each.ok_or_else(|| Failure::new(Errno::FAULT, "each is NULL"))?;
        for entry in volume.read_dir(path)? {
            let entry = entry?;
            let name = CString::new(entry.name.as_bytes())
                .map_err(|_| Failure::new(Errno::IO, "a name has a zero byte"))?;
            let told = ZonalEntry {
                name: name.as_ptr(),
                ino: entry.ino.get(),
                r#type: entry.kind.format() >> 12,
            };
            // SAFETY: the entry and its name live until it returns; the function is the caller's.
            ended = unsafe { each(context, &raw const told) };
            if ended != 0 {
                break;
            }
        }
        Ok(())
    });
    if status == 0 { ended } else { status }
}
