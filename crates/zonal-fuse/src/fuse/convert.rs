//! Attributes, times, kinds and flags of the two sides, turned into each other.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{Errno, FileAttr, FileType, INodeNo, OpenFlags, Request, TimeOrNow};
use zonal_fs::vfs::{
    Allocate, Attr, Caller, FileKind, Privilege, RenameFlags, Seek, SetTime, Timestamp, WriteFlags,
};

use super::reply::Route;

pub(super) const O_ACCMODE: i32 = 0o3;
pub(super) const O_RDONLY: i32 = 0;
pub(super) const O_APPEND: i32 = 0o2000;
/// Also set in `O_SYNC`.
pub(super) const O_DSYNC: i32 = 0o10000;
pub(super) const O_DIRECT: i32 = 0o40000;

const S_IFMT: u32 = 0o170_000;

const FALLOC_FL_KEEP_SIZE: i32 = 1;
const FALLOC_FL_PUNCH_HOLE: i32 = 2;
const FALLOC_FL_ZERO_RANGE: i32 = 0x10;

const SEEK_DATA: i32 = 3;
const SEEK_HOLE: i32 = 4;

/// Attributes; `blksize` is what programs use as the size of a good request.
pub(super) fn attr(attr: &Attr, blksize: u32) -> FileAttr {
    FileAttr {
        ino: INodeNo(attr.ino.get()),
        size: attr.size,
        blocks: attr.blocks,
        atime: system_time(attr.atime),
        mtime: system_time(attr.mtime),
        ctime: system_time(attr.ctime),
        crtime: system_time(attr.btime),
        kind: file_type(attr.kind),
        perm: attr.perm,
        nlink: attr.nlink,
        uid: attr.uid,
        gid: attr.gid,
        rdev: attr.rdev,
        blksize,
        flags: 0,
    }
}

/// The reply to a lookup that found nothing: inode 0 tells the kernel to remember that.
pub(super) fn absent() -> FileAttr {
    FileAttr {
        ino: INodeNo(0),
        size: 0,
        blocks: 0,
        atime: UNIX_EPOCH,
        mtime: UNIX_EPOCH,
        ctime: UNIX_EPOCH,
        crtime: UNIX_EPOCH,
        kind: FileType::RegularFile,
        perm: 0,
        nlink: 0,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 0,
        flags: 0,
    }
}

fn system_time(time: Timestamp) -> SystemTime {
    let secs = Duration::from_secs(time.secs().unsigned_abs());
    let second = if time.secs() < 0 { UNIX_EPOCH - secs } else { UNIX_EPOCH + secs };
    second + Duration::from_nanos(time.nanos().into())
}

/// The time that fuser made of the seconds and nanoseconds the kernel sent.
///
/// fuser 0.18 takes the nanoseconds of a time before 1970 as counting backwards: of (−5 s,
/// +0.3 s) it makes −5.3 s instead of −4.7 s. Seconds and nanoseconds can still be told apart, so
/// it is put right here.
fn timestamp(time: SystemTime) -> Timestamp {
    let (secs, nanos) = match time.duration_since(UNIX_EPOCH) {
        Ok(after) => (i64::try_from(after.as_secs()).unwrap_or(i64::MAX), after.subsec_nanos()),
        Err(error) => {
            let before = error.duration();
            (0i64.saturating_sub_unsigned(before.as_secs()), before.subsec_nanos())
        }
    };
    Timestamp::new(secs, nanos).expect("a part of a second")
}

pub(super) fn set_time(time: TimeOrNow) -> SetTime {
    match time {
        TimeOrNow::Now => SetTime::Now,
        TimeOrNow::SpecificTime(time) => SetTime::To(timestamp(time)),
    }
}

pub(super) fn file_type(kind: FileKind) -> FileType {
    match kind {
        FileKind::Regular => FileType::RegularFile,
        FileKind::Directory => FileType::Directory,
        FileKind::Symlink => FileType::Symlink,
        FileKind::Fifo => FileType::NamedPipe,
        FileKind::Socket => FileType::Socket,
        FileKind::CharDevice => FileType::CharDevice,
        FileKind::BlockDevice => FileType::BlockDevice,
    }
}

/// What mknod(2) is to make; `None` for what it cannot.
pub(super) fn node_kind(mode: u32) -> Option<FileKind> {
    match mode & S_IFMT {
        0o100_000 | 0 => Some(FileKind::Regular),
        0o010_000 => Some(FileKind::Fifo),
        0o020_000 => Some(FileKind::CharDevice),
        0o060_000 => Some(FileKind::BlockDevice),
        0o140_000 => Some(FileKind::Socket),
        _ => None,
    }
}

/// The low twelve bits of a mode.
pub(super) fn perm(mode: u32) -> u16 {
    u16::try_from(mode & 0o7777).expect("twelve bits")
}

/// Who asks. The kernel has stripped setgid already where the caller may not set it.
pub(super) fn caller(request: &Request, umask: u32) -> Caller {
    Caller {
        uid: request.uid(),
        gid: request.gid(),
        umask: perm(umask & 0o777),
        privilege: Privilege::Full,
    }
}

/// How to write. After an `O_DSYNC` write through the page cache the kernel sends an FSYNC, after
/// a direct one it does not.
pub(super) fn write_flags(request: fuser::WriteFlags, open: OpenFlags, route: Route) -> WriteFlags {
    let mut flags = WriteFlags::empty();
    flags.set(WriteFlags::DIRECT, open.0 & O_DIRECT != 0);
    flags.set(WriteFlags::DURABLE, route == Route::Direct && open.0 & O_DSYNC != 0);
    let kill = request.contains(fuser::WriteFlags::FUSE_WRITE_KILL_SUIDGID);
    flags.set(WriteFlags::KILL_PRIVILEGES, kill);
    flags
}

/// Whether a write passes the page cache by. What the kernel writes from its pages does not, though the
/// file may have been opened with `O_DIRECT`, and mapped: these pages are locked until it is answered.
pub(super) fn bypasses_pages(request: fuser::WriteFlags, open: OpenFlags, route: Route) -> bool {
    let cached = request.contains(fuser::WriteFlags::FUSE_WRITE_CACHE);
    !cached && (route == Route::Direct || open.0 & O_DIRECT != 0)
}

/// Whether a write goes to the end of the file. What the kernel writes from the page cache has its
/// place.
pub(super) fn append(request: fuser::WriteFlags, open: OpenFlags) -> WriteFlags {
    let mut flags = WriteFlags::empty();
    let cached = request.contains(fuser::WriteFlags::FUSE_WRITE_CACHE);
    flags.set(WriteFlags::APPEND, open.0 & O_APPEND != 0 && !cached);
    flags
}

pub(super) fn rename_flags(flags: fuser::RenameFlags) -> Result<RenameFlags, Errno> {
    let mut target = RenameFlags::empty();
    let mut rest = flags;
    for (theirs, ours) in [
        (fuser::RenameFlags::RENAME_NOREPLACE, RenameFlags::NOREPLACE),
        (fuser::RenameFlags::RENAME_EXCHANGE, RenameFlags::EXCHANGE),
        (fuser::RenameFlags::RENAME_WHITEOUT, RenameFlags::WHITEOUT),
    ] {
        target.set(ours, flags.contains(theirs));
        rest.remove(theirs);
    }
    if rest.is_empty() { Ok(target) } else { Err(Errno::EINVAL) }
}

pub(super) fn allocate(mode: i32) -> Result<Allocate, Errno> {
    const PUNCH: i32 = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
    const ZERO_KEEP: i32 = FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE;
    match mode {
        0 => Ok(Allocate::Extend),
        FALLOC_FL_KEEP_SIZE => Ok(Allocate::KeepSize),
        PUNCH => Ok(Allocate::Punch),
        FALLOC_FL_ZERO_RANGE => Ok(Allocate::Zero),
        ZERO_KEEP => Ok(Allocate::ZeroKeepSize),
        _ => Err(Errno::EOPNOTSUPP),
    }
}

pub(super) fn seek(whence: i32) -> Result<Seek, Errno> {
    match whence {
        SEEK_DATA => Ok(Seek::Data),
        SEEK_HOLE => Ok(Seek::Hole),
        _ => Err(Errno::EINVAL),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What fuser 0.18 does with a time from the kernel.
    fn from_kernel(secs: i64, nanos: u32) -> SystemTime {
        let span = Duration::new(secs.unsigned_abs(), nanos);
        if secs >= 0 { UNIX_EPOCH + span } else { UNIX_EPOCH - span }
    }

    const TIMES: [(i64, u32); 8] = [
        (0, 0),
        (5, 300_000_000),
        (-1, 0),
        (-1, 999_999_999),
        (-5, 300_000_000),
        (17_179_869_183, 1),
        (i64::MAX, 999_999_999),
        (i64::MIN, 0),
    ];

    #[test]
    fn times_survive_the_way_in() {
        for (secs, nanos) in TIMES {
            let time = timestamp(from_kernel(secs, nanos));
            assert_eq!((time.secs(), time.nanos()), (secs, nanos));
        }
    }

    #[test]
    fn times_survive_the_way_out() {
        for (secs, nanos) in TIMES {
            let time = system_time(Timestamp::new(secs, nanos).unwrap());
            let back = match time.duration_since(UNIX_EPOCH) {
                Ok(after) => i128::try_from(after.as_nanos()).unwrap(),
                Err(error) => -i128::try_from(error.duration().as_nanos()).unwrap(),
            };
            assert_eq!(back, i128::from(secs) * 1_000_000_000 + i128::from(nanos));
        }
    }

    #[test]
    fn modes_of_fallocate() {
        assert_eq!(allocate(0).unwrap(), Allocate::Extend);
        assert_eq!(allocate(1).unwrap(), Allocate::KeepSize);
        assert_eq!(allocate(3).unwrap(), Allocate::Punch);
        assert_eq!(allocate(0x10).unwrap(), Allocate::Zero);
        assert_eq!(allocate(0x11).unwrap(), Allocate::ZeroKeepSize);
        for mode in [2, 4, 8, 0x20, 0x40, 0x12] {
            assert_eq!(allocate(mode).unwrap_err().code(), Errno::EOPNOTSUPP.code(), "{mode}");
        }
    }

    #[test]
    fn only_direct_files_sync_in_the_write() {
        let open = OpenFlags(O_DSYNC);
        let none = fuser::WriteFlags::empty();
        assert_eq!(write_flags(none, open, Route::Cached), WriteFlags::empty());
        assert_eq!(write_flags(none, open, Route::Direct), WriteFlags::DURABLE);
        let kill = fuser::WriteFlags::FUSE_WRITE_KILL_SUIDGID;
        assert_eq!(write_flags(kill, OpenFlags(2), Route::Cached), WriteFlags::KILL_PRIVILEGES);
    }

    #[test]
    fn what_comes_from_pages_does_not_bypass_them() {
        let (none, cache) = (fuser::WriteFlags::empty(), fuser::WriteFlags::FUSE_WRITE_CACHE);
        assert!(bypasses_pages(none, OpenFlags(1), Route::Direct));
        assert!(bypasses_pages(none, OpenFlags(1 | O_DIRECT), Route::Cached), "set by fcntl(2)");
        assert!(!bypasses_pages(none, OpenFlags(1), Route::Cached));
        assert!(!bypasses_pages(cache, OpenFlags(1 | O_DIRECT), Route::Direct), "a mapping");
    }

    #[test]
    fn flags_of_rename() {
        use fuser::RenameFlags as Theirs;
        assert_eq!(rename_flags(Theirs::empty()).unwrap(), RenameFlags::empty());
        assert_eq!(rename_flags(Theirs::RENAME_EXCHANGE).unwrap(), RenameFlags::EXCHANGE);
        assert_eq!(rename_flags(Theirs::RENAME_WHITEOUT).unwrap(), RenameFlags::WHITEOUT);
        assert!(rename_flags(Theirs::from_bits_retain(8)).is_err());
    }
}
