//! Volumes: the file system on a device, by path and by handle.

use std::ffi::{CString, c_char, c_int, c_uint, c_void};
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use rustix::fs::OFlags;
use rustix::io::Errno;
use zonal::{ByteCount, OpenMode, SystemClock};
use zonal_fs::vfs::{Access, Attr, Caller, FileKind, NewInode};
use zonal_fs::volume::{File, OpenFlags, Volume, VolumeOptions};

use crate::device;
use crate::edge::{self, Failure, Outcome};
use crate::types::{ZonalEach, ZonalEntry, ZonalStat, ZonalStatvfs, ZonalVolumeOptions};

/// A mounted volume.
pub struct ZonalVolume {
    volume: Volume,
}

/// An open file of a volume.
pub struct ZonalFile {
    file: File,
}

/// Mounts the file system, Furrow or zonefs, on the device that `spec` names, as `zonal_open` takes
/// it. `flags` is `O_RDONLY` or `O_RDWR`. A thread commits what is about five seconds old. What is
/// created belongs to the user of this process; mode bits are kept and not enforced.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zonal_volume_open(
    spec: *const c_char,
    flags: c_int,
    volume: *mut *mut ZonalVolume,
) -> c_int {
    edge::status(|| {
        let options = ZonalVolumeOptions { memory: 0, reserved: [0; 7] };
        // SAFETY: the caller's part of the contract.
        unsafe { open((spec, flags), &options, volume) }
    })
}

/// The same, with options.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zonal_volume_open_with(
    spec: *const c_char,
    flags: c_int,
    options: *const ZonalVolumeOptions,
    volume: *mut *mut ZonalVolume,
) -> c_int {
    edge::status(|| {
        // SAFETY: the caller's part of the contract.
        let options = unsafe { edge::borrow(options, "the options") }?;
        // SAFETY: the caller's part of the contract.
        unsafe { open((spec, flags), options, volume) }
    })
}

unsafe fn open(
    (spec, flags): (*const c_char, c_int),
    given: &ZonalVolumeOptions,
    volume: *mut *mut ZonalVolume,
) -> Outcome<()> {
    edge::needs(volume, "where to put the volume")?;
    if given.reserved != [0; 7] {
        return Err(Failure::new(Errno::INVAL, "an option that this version does not have"));
    }
    // SAFETY: the caller's part of the contract.
    let spec = unsafe { edge::text(spec, "the device") }?;
    // What somebody else writes meanwhile would not be one state of the file system.
    let device = device::open(spec, flags, OpenMode::ReadLocked)?;
    let flags = OFlags::from_bits_retain(flags.cast_unsigned());
    let is_read_only = flags & OFlags::RWMODE == OFlags::RDONLY;
    let mut options = VolumeOptions {
        access: if is_read_only { Access::ReadOnly } else { Access::ReadWrite },
        caller: Caller {
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
            ..Caller::ROOT
        },
        ..VolumeOptions::default()
    };
    if given.memory > 0 {
        options.memory = ByteCount::new(given.memory);
    }
    let opened = Volume::mount(device, Arc::new(SystemClock::new()), &options)?;
    // SAFETY: not NULL, and the caller's part of the contract.
    unsafe { edge::give(ZonalVolume { volume: opened }, volume) };
    Ok(())
}

/// Makes everything durable, leaves the drive clean and lets go of it. The volume is closed even if
/// this fails: the error is that of the last commit. Files that are still open answer `-EBADF` from
/// then on, and are to be closed all the same.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zonal_volume_close(volume: *mut ZonalVolume) -> c_int {
    // SAFETY: the caller's part of the contract.
    edge::status(|| Ok(unsafe { edge::take(volume, "the volume") }?.volume.close()?))
}

/// Makes everything durable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zonal_volume_sync(volume: *const ZonalVolume) -> c_int {
    // SAFETY: the caller's part of the contract.
    edge::status(|| Ok(unsafe { of(volume) }?.sync()?))
}

/// Tells the space of a volume, used and free.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zonal_volume_statvfs(
    volume: *const ZonalVolume,
    stat: *mut ZonalStatvfs,
) -> c_int {
    edge::status(|| {
        // SAFETY: the caller's part of the contract.
        let space = unsafe { of(volume) }?.space()?;
        let told = ZonalStatvfs {
            block_size: space.block_size.into(),
            blocks: space.blocks,
            blocks_free: space.blocks_free,
            inodes: space.inodes,
            inodes_free: space.inodes_free,
            name_max: space.name_max as u64,
        };
        // SAFETY: the caller's part of the contract.
        unsafe { edge::put(told, stat, "stat") }
    })
}

/// Tells the attributes of what `path` leads to. A symbolic link at its end is followed.
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

/// Makes a directory with these permission bits.
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
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zonal_unlink(volume: *const ZonalVolume, path: *const c_char) -> c_int {
    edge::status(|| {
        // SAFETY: the caller's part of the contract.
        let (volume, path) = (unsafe { of(volume) }?, unsafe { edge::path(path) }?);
        Ok(volume.remove_file(path)?)
    })
}

/// Removes an empty directory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zonal_rmdir(volume: *const ZonalVolume, path: *const c_char) -> c_int {
    edge::status(|| {
        // SAFETY: the caller's part of the contract.
        let (volume, path) = (unsafe { of(volume) }?, unsafe { edge::path(path) }?);
        Ok(volume.remove_dir(path)?)
    })
}

/// Moves an entry, over what may stand at `to`, at once.
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

/// Calls `each` with every entry of a directory but `.` and `..`, in no particular order, and with
/// `context`. Returns 0, or what `each` returned to end it. `each` may call any function of this
/// library but those that close the volume.
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

/// Opens a file as open(2) does. Of `flags`, this looks at `O_RDONLY`, `O_WRONLY`, `O_RDWR`,
/// `O_CREAT`, `O_EXCL`, `O_TRUNC`, `O_APPEND`, `O_DIRECT`, `O_DSYNC`, `O_SYNC` and `O_NOFOLLOW`;
/// `mode` has the permission bits of a new file.
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

/// Closes a file and gives back its lock. Nothing is made durable by that.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zonal_file_close(file: *mut ZonalFile) -> c_int {
    // SAFETY: the caller's part of the contract.
    edge::status(|| unsafe { edge::take(file, "the file") }.map(drop))
}

/// Reads from byte `ofst` on and returns how many bytes: less than `count` only at the end of file.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zonal_file_read(
    file: *const ZonalFile,
    buf: *mut u8,
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

/// Writes at byte `ofst` and returns how many bytes: less than `count` only at the end of what a
/// zone of zonefs can hold.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zonal_file_write(
    file: *const ZonalFile,
    buf: *const u8,
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
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zonal_file_append(
    file: *const ZonalFile,
    buf: *const u8,
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
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zonal_file_truncate(file: *const ZonalFile, size: u64) -> c_int {
    // SAFETY: the caller's part of the contract.
    edge::status(|| Ok(unsafe { edge::borrow(file, "the file") }?.file.set_len(size)?))
}

/// Makes content and attributes of a file durable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zonal_file_sync(file: *const ZonalFile) -> c_int {
    // SAFETY: the caller's part of the contract.
    edge::status(|| Ok(unsafe { edge::borrow(file, "the file") }?.file.sync_all()?))
}

/// Makes the content of a file durable, and what is needed to read it back.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zonal_file_datasync(file: *const ZonalFile) -> c_int {
    // SAFETY: the caller's part of the contract.
    edge::status(|| Ok(unsafe { edge::borrow(file, "the file") }?.file.sync_data()?))
}

/// Tells the attributes of a file.
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
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zonal_file_lock(file: *const ZonalFile) -> c_int {
    // SAFETY: the caller's part of the contract.
    edge::status(|| Ok(unsafe { edge::borrow(file, "the file") }?.file.try_lock()?))
}

/// Gives a lock back.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zonal_file_unlock(file: *const ZonalFile) -> c_int {
    edge::status(|| {
        // SAFETY: the caller's part of the contract.
        unsafe { edge::borrow(file, "the file") }?.file.unlock();
        Ok(())
    })
}

/// The volume of a handle.
///
/// # Safety
///
/// `volume` is NULL or a handle.
unsafe fn of<'a>(volume: *const ZonalVolume) -> Outcome<&'a Volume> {
    // SAFETY: the caller says so.
    unsafe { edge::borrow(volume, "the volume") }.map(|volume| &volume.volume)
}

fn perm(mode: c_uint) -> u16 {
    u16::try_from(mode & 0o7777).expect("twelve bits")
}

fn open_flags(flags: c_int) -> Outcome<OpenFlags> {
    let flags = OFlags::from_bits_retain(flags.cast_unsigned());
    if flags.contains(OFlags::TMPFILE) {
        return Err(Failure::new(Errno::OPNOTSUPP, "files without a name"));
    }
    let mut open = match flags & OFlags::RWMODE {
        OFlags::RDONLY => OpenFlags::READ,
        OFlags::WRONLY => OpenFlags::WRITE,
        OFlags::RDWR => OpenFlags::READ | OpenFlags::WRITE,
        _ => return Err(Failure::new(Errno::INVAL, "flags that neither read nor write")),
    };
    let is_exclusive = flags.contains(OFlags::EXCL);
    let creates = if is_exclusive { OpenFlags::CREATE_NEW } else { OpenFlags::CREATE };
    for (theirs, ours) in [
        (OFlags::CREATE, creates),
        (OFlags::TRUNC, OpenFlags::TRUNCATE),
        (OFlags::APPEND, OpenFlags::APPEND),
        (OFlags::DIRECT, OpenFlags::DIRECT),
        (OFlags::DSYNC, OpenFlags::DURABLE),
        (OFlags::NOFOLLOW, OpenFlags::NO_FOLLOW),
    ] {
        if flags.contains(theirs) {
            open |= ours;
        }
    }
    // A file that is only read is neither appended to nor emptied.
    if open.contains(OpenFlags::WRITE) {
        return Ok(open);
    }
    if open.contains(OpenFlags::TRUNCATE) {
        return Err(Failure::new(Errno::INVAL, "O_TRUNC takes O_WRONLY or O_RDWR"));
    }
    Ok(open - OpenFlags::APPEND)
}

fn told(attr: &Attr) -> ZonalStat {
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
