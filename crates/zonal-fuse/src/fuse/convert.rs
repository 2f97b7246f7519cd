//! Converts attributes, times, file types and flags between FUSE and the file system.

use zonal_fs::vfs::{
    Allocate, Attr, FileKind, FileSystem, Ino, ReadFlags, RenameFlags, Seek, SetTime, Timestamp,
    WriteFlags,
};
use zonal_fuse_transport::{Errno, abi, request};

use super::page_cache::HoldsNoPage;
use super::route::Route;

pub(super) const O_ACCMODE: i32 = 0o3;
pub(super) const O_WRONLY: i32 = 0o1;
pub(super) const O_RDONLY: i32 = 0;
pub(super) const O_APPEND: i32 = 0o2000;
/// Also set in `O_SYNC`.
pub(super) const O_DSYNC: i32 = 0o10000;
pub(super) const O_DIRECT: i32 = 0o40000;
pub(super) const O_NOATIME: i32 = 0o1_000_000;

const S_IFMT: u32 = 0o170_000;

const STATX_BASIC_STATS: u32 = 0x7ff;
const STATX_BTIME: u32 = 0x800;

const RENAME_NOREPLACE: u32 = 1;
const RENAME_EXCHANGE: u32 = 2;
const RENAME_WHITEOUT: u32 = 4;

const FALLOC_FL_KEEP_SIZE: i32 = 1;
const FALLOC_FL_PUNCH_HOLE: i32 = 2;
const FALLOC_FL_ZERO_RANGE: i32 = 0x10;

const SEEK_DATA: i32 = 3;
const SEEK_HOLE: i32 = 4;

/// Attributes; `blksize` is the preferred size of requests of programs.
pub(super) fn attr(attr: &Attr, blksize: u32) -> abi::Attr {
    abi::Attr {
        ino: attr.ino.get(),
        size: attr.size,
        blocks: attr.blocks,
        atime: attr.atime.secs(),
        mtime: attr.mtime.secs(),
        ctime: attr.ctime.secs(),
        atimensec: attr.atime.nanos(),
        mtimensec: attr.mtime.nanos(),
        ctimensec: attr.ctime.nanos(),
        mode: attr.kind.format() | u32::from(attr.perm),
        nlink: attr.nlink,
        uid: attr.uid,
        gid: attr.gid,
        rdev: attr.rdev,
        blksize,
        flags: 0,
    }
}

/// Result of statx(2).
pub(super) fn statx(attr: &Attr, blksize: u32) -> abi::Statx {
    let time = |time: Timestamp| abi::StatxTime {
        tv_sec: time.secs(),
        tv_nsec: time.nanos(),
        reserved: 0,
    };
    let mode = attr.kind.format() | u32::from(attr.perm);
    abi::Statx {
        mask: STATX_BASIC_STATS | STATX_BTIME,
        blksize,
        nlink: attr.nlink,
        uid: attr.uid,
        gid: attr.gid,
        mode: u16::try_from(mode).expect("sixteen bits"),
        ino: attr.ino.get(),
        size: attr.size,
        blocks: attr.blocks,
        atime: time(attr.atime),
        btime: time(attr.btime),
        ctime: time(attr.ctime),
        mtime: time(attr.mtime),
        // The kernel packs both numbers into 32 bits like this.
        rdev_major: (attr.rdev & 0xf_ff00) >> 8,
        rdev_minor: (attr.rdev & 0xff) | (attr.rdev >> 12 & 0xf_ff00),
        ..abi::Statx::default()
    }
}

pub(super) fn set_time(time: request::SetTime) -> SetTime {
    match time {
        request::SetTime::Now => SetTime::Now,
        request::SetTime::To(time) => SetTime::To(timestamp(time)),
    }
}

pub(super) fn timestamp(time: request::Time) -> Timestamp {
    let time = Timestamp::new(time.secs, time.nanos);
    time.expect("a request has less than a second of nanoseconds")
}

/// Whether this is the mode of a regular file.
pub(super) fn is_regular(mode: u32) -> bool {
    mode & S_IFMT == FileKind::Regular.format()
}

/// File type for mknod(2); `None` if it cannot make it.
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

/// Size of a file; 0 if its attributes cannot be read.
pub(super) fn file_size(fs: &dyn FileSystem, ino: Ino) -> u64 {
    fs.getattr(ino).map_or(0, |attr| attr.size)
}

/// Flags for a read. A read that fills a page is not direct, even if the program has set `O_DIRECT`
/// on its descriptor since.
pub(super) fn read_flags(request: abi::ReadFlags, open: i32) -> ReadFlags {
    let mut flags = ReadFlags::empty();
    let direct = HoldsNoPage::of_read(request).is_some() && open & O_DIRECT != 0;
    flags.set(ReadFlags::DIRECT, direct);
    flags.set(ReadFlags::NO_ATIME, open & O_NOATIME != 0);
    flags
}

/// Flags for a write. After an `O_DSYNC` write through the page cache the kernel sends an FSYNC,
/// after a direct one it does not.
pub(super) fn write_flags(request: abi::WriteFlags, open: i32, route: Route) -> WriteFlags {
    let mut flags = WriteFlags::empty();
    let direct = HoldsNoPage::of_write(request, route).is_some();
    flags.set(WriteFlags::DIRECT, direct && open & O_DIRECT != 0);
    flags.set(WriteFlags::DURABLE, direct && route != Route::Cached && open & O_DSYNC != 0);
    flags
}

/// Whether the kernel writes pages that it has collected.
pub(super) fn is_collected(request: abi::WriteFlags) -> bool {
    request.contains(abi::WriteFlags::CACHE)
}

/// Whether these open(2) flags keep the kernel from collecting writes.
pub(super) fn is_direct_or_durable(open: i32) -> bool {
    open & (O_DIRECT | O_DSYNC) != 0
}

/// The append flag of a write. Collected pages have offsets already.
pub(super) fn append(request: abi::WriteFlags, open: i32) -> WriteFlags {
    let mut flags = WriteFlags::empty();
    flags.set(WriteFlags::APPEND, open & O_APPEND != 0 && !is_collected(request));
    flags
}

pub(super) fn rename_flags(flags: u32) -> Result<RenameFlags, Errno> {
    let mut target = RenameFlags::empty();
    let mut rest = flags;
    for (theirs, ours) in [
        (RENAME_NOREPLACE, RenameFlags::NOREPLACE),
        (RENAME_EXCHANGE, RenameFlags::EXCHANGE),
        (RENAME_WHITEOUT, RenameFlags::WHITEOUT),
    ] {
        target.set(ours, flags & theirs != 0);
        rest &= !theirs;
    }
    if rest == 0 { Ok(target) } else { Err(Errno::INVAL) }
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
        _ => Err(Errno::OPNOTSUPP),
    }
}

pub(super) fn seek(whence: i32) -> Result<Seek, Errno> {
    match whence {
        SEEK_DATA => Ok(Seek::Data),
        SEEK_HOLE => Ok(Seek::Hole),
        _ => Err(Errno::INVAL),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn times_survive_conversion() {
        for (secs, nanos) in TIMES {
            let set = set_time(request::SetTime::To(request::Time { secs, nanos }));
            assert_eq!(set, SetTime::To(Timestamp::new(secs, nanos).unwrap()));
        }
    }

    #[test]
    fn device_numbers_unpack_like_kernel() {
        let time = Timestamp::default();
        let device = Attr {
            ino: zonal_fs::vfs::Ino::new(9),
            kind: FileKind::BlockDevice,
            perm: 0o600,
            nlink: 1,
            uid: 0,
            gid: 0,
            // Major 0x123, minor 0x45678.
            rdev: 0x4561_2378,
            size: 0,
            blocks: 0,
            atime: time,
            mtime: time,
            ctime: time,
            btime: Timestamp::new(-3, 7).unwrap(),
            flags: zonal_fs::vfs::InodeFlags::empty(),
        };
        let stat = statx(&device, 512);
        assert_eq!((stat.rdev_major, stat.rdev_minor), (0x123, 0x45678));
        assert_eq!(stat.mode, 0o060_600);
        assert_eq!((stat.btime.tv_sec, stat.btime.tv_nsec), (-3, 7));
    }

    #[test]
    fn fallocate_modes_convert() {
        assert_eq!(allocate(0).unwrap(), Allocate::Extend);
        assert_eq!(allocate(1).unwrap(), Allocate::KeepSize);
        assert_eq!(allocate(3).unwrap(), Allocate::Punch);
        assert_eq!(allocate(0x10).unwrap(), Allocate::Zero);
        assert_eq!(allocate(0x11).unwrap(), Allocate::ZeroKeepSize);
        for mode in [2, 4, 8, 0x20, 0x40, 0x12] {
            assert_eq!(allocate(mode).unwrap_err(), Errno::OPNOTSUPP, "{mode}");
        }
    }

    #[test]
    fn write_flags_sync_only_direct_files() {
        let (none, open) = (abi::WriteFlags::empty(), O_DSYNC);
        assert_eq!(write_flags(none, open, Route::Cached), WriteFlags::empty());
        assert_eq!(write_flags(none, open, Route::Direct), WriteFlags::DURABLE);
    }

    #[test]
    fn page_cache_io_is_not_direct_despite_descriptor() {
        let (none, cache) = (abi::WriteFlags::empty(), abi::WriteFlags::CACHE);
        let (owner, open) = (abi::WriteFlags::LOCK_OWNER, 1 | O_DIRECT | O_APPEND | O_DSYNC);
        let durable = WriteFlags::DIRECT | WriteFlags::DURABLE;
        assert_eq!(write_flags(none, open, Route::Cached), WriteFlags::empty());
        assert_eq!(write_flags(owner, open, Route::Cached), WriteFlags::DIRECT, "set by fcntl(2)");
        assert_eq!(write_flags(owner, open, Route::Direct), durable);
        assert_eq!(write_flags(cache, open, Route::Direct), WriteFlags::empty(), "a mapping");
        assert_eq!(append(cache, open), WriteFlags::empty());
        assert_eq!(append(owner, open), WriteFlags::APPEND);
        let pages = abi::ReadFlags::empty();
        assert_eq!(read_flags(pages, O_DIRECT), ReadFlags::empty());
        assert_eq!(read_flags(abi::ReadFlags::LOCK_OWNER, O_DIRECT), ReadFlags::DIRECT);
    }

    #[test]
    fn rename_flags_convert() {
        assert_eq!(rename_flags(0).unwrap(), RenameFlags::empty());
        assert_eq!(rename_flags(RENAME_EXCHANGE).unwrap(), RenameFlags::EXCHANGE);
        assert_eq!(rename_flags(RENAME_WHITEOUT).unwrap(), RenameFlags::WHITEOUT);
        assert!(rename_flags(8).is_err());
    }
}
