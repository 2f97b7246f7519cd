//! Flags, and the numbers of requests and notifications.

/// Numbers of requests.
pub(crate) mod opcode {
    pub(crate) const LOOKUP: u32 = 1;
    pub(crate) const FORGET: u32 = 2;
    pub(crate) const GETATTR: u32 = 3;
    pub(crate) const SETATTR: u32 = 4;
    pub(crate) const READLINK: u32 = 5;
    pub(crate) const SYMLINK: u32 = 6;
    pub(crate) const MKNOD: u32 = 8;
    pub(crate) const MKDIR: u32 = 9;
    pub(crate) const UNLINK: u32 = 10;
    pub(crate) const RMDIR: u32 = 11;
    pub(crate) const RENAME: u32 = 12;
    pub(crate) const LINK: u32 = 13;
    pub(crate) const OPEN: u32 = 14;
    pub(crate) const READ: u32 = 15;
    pub(crate) const WRITE: u32 = 16;
    pub(crate) const STATFS: u32 = 17;
    pub(crate) const RELEASE: u32 = 18;
    pub(crate) const FSYNC: u32 = 20;
    pub(crate) const SETXATTR: u32 = 21;
    pub(crate) const GETXATTR: u32 = 22;
    pub(crate) const LISTXATTR: u32 = 23;
    pub(crate) const REMOVEXATTR: u32 = 24;
    pub(crate) const FLUSH: u32 = 25;
    pub(crate) const INIT: u32 = 26;
    pub(crate) const OPENDIR: u32 = 27;
    pub(crate) const READDIR: u32 = 28;
    pub(crate) const FSYNCDIR: u32 = 30;
    pub(crate) const CREATE: u32 = 35;
    pub(crate) const INTERRUPT: u32 = 36;
    pub(crate) const DESTROY: u32 = 38;
    pub(crate) const IOCTL: u32 = 39;
    pub(crate) const NOTIFY_REPLY: u32 = 41;
    pub(crate) const BATCH_FORGET: u32 = 42;
    pub(crate) const FALLOCATE: u32 = 43;
    pub(crate) const READDIRPLUS: u32 = 44;
    pub(crate) const RENAME2: u32 = 45;
    pub(crate) const LSEEK: u32 = 46;
    pub(crate) const COPY_FILE_RANGE: u32 = 47;
    pub(crate) const SYNCFS: u32 = 50;
    pub(crate) const TMPFILE: u32 = 51;
    pub(crate) const STATX: u32 = 52;
    pub(crate) const COPY_FILE_RANGE_64: u32 = 53;
}

/// Numbers of notifications.
pub(crate) mod notification {
    pub(crate) const INVAL_INODE: i32 = 2;
    pub(crate) const STORE: i32 = 4;
    pub(crate) const RETRIEVE: i32 = 5;
}

bitflags::bitflags! {
    /// Flags of INIT: abilities of kernel and server.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct InitFlags: u64 {
        /// Several reads of a file are pending at once.
        const ASYNC_READ = 1;
        /// The server answers lookups of `.` and `..`.
        const EXPORT_SUPPORT = 1 << 4;
        /// Writes are longer than a page.
        const BIG_WRITES = 1 << 5;
        /// The server applies the umask.
        const DONT_MASK = 1 << 6;
        /// Directories take ioctls.
        const HAS_IOCTL_DIR = 1 << 11;
        /// READDIRPLUS.
        const DO_READDIRPLUS = 1 << 13;
        /// READDIRPLUS is sent only if programs ask for attributes.
        const READDIRPLUS_AUTO = 1 << 14;
        /// The parts of an asynchronous direct request are sent at once.
        const ASYNC_DIO = 1 << 15;
        /// The page cache collects buffered writes.
        const WRITEBACK_CACHE = 1 << 16;
        /// Lookups and listings of a directory are sent in parallel.
        const PARALLEL_DIROPS = 1 << 18;
        /// Access control lists.
        const POSIX_ACL = 1 << 20;
        /// The server limits the pages of a request.
        const MAX_PAGES = 1 << 22;
        /// The kernel caches targets of symbolic links.
        const CACHE_SYMLINKS = 1 << 23;
        /// The kernel drops pages only on a notification.
        const EXPLICIT_INVAL_DATA = 1 << 25;
        /// The server clears setuid and setgid when a request says so.
        const HANDLE_KILLPRIV_V2 = 1 << 28;
        /// SETXATTR has flags of its own.
        const SETXATTR_EXT = 1 << 29;
        /// There are more than 32 flags.
        const INIT_EXT = 1 << 30;
        /// Files that are open for direct I/O can be mapped shared.
        const DIRECT_IO_ALLOW_MMAP = 1 << 36;
        /// Files can have backing files.
        const PASSTHROUGH = 1 << 37;
        /// Mounts can map users and groups.
        const ALLOW_IDMAP = 1 << 40;
        /// Requests come over `io_uring`.
        const OVER_IO_URING = 1 << 41;
    }

    /// How the kernel treats an open file.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct FopenFlags: u32 {
        /// Reads and writes bypass the page cache.
        const DIRECT_IO = 1;
        /// Cached pages of the file stay.
        const KEEP_CACHE = 1 << 1;
        /// No FLUSH on close(2).
        const NOFLUSH = 1 << 5;
        /// Direct writes run in parallel.
        const PARALLEL_DIRECT_WRITES = 1 << 6;
        /// The file has a backing file: with [`DIRECT_IO`](Self::DIRECT_IO) for mappings only,
        /// without it for all data.
        const PASSTHROUGH = 1 << 7;
    }

    /// Flags of a GETATTR.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct GetattrFlags: u32 {
        /// `fh` is that of an open file.
        const FH = 1;
    }

    /// Fields that a SETATTR sets.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct FattrFlags: u32 {
        /// `mode`
        const MODE = 1;
        /// `uid`
        const UID = 1 << 1;
        /// `gid`
        const GID = 1 << 2;
        /// `size`
        const SIZE = 1 << 3;
        /// `atime`
        const ATIME = 1 << 4;
        /// `mtime`
        const MTIME = 1 << 5;
        /// `fh` is that of an open file.
        const FH = 1 << 6;
        /// The access time becomes now.
        const ATIME_NOW = 1 << 7;
        /// The modification time becomes now.
        const MTIME_NOW = 1 << 8;
        /// `ctime`
        const CTIME = 1 << 10;
        /// Clear setuid and setgid.
        const KILL_SUIDGID = 1 << 11;
    }

    /// Flags of a SETXATTR, with [`SETXATTR_EXT`](InitFlags::SETXATTR_EXT).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct SetxattrFlags: u32 {
        /// Clear setgid: the caller sets an ACL and is not in the group of the file.
        const ACL_KILL_SGID = 1;
    }

    /// Flags of a READ.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct ReadFlags: u32 {
        /// It has a lock owner: it reads into a buffer of the caller, not into the page cache.
        const LOCK_OWNER = 1 << 1;
    }

    /// Flags of a WRITE.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct WriteFlags: u32 {
        /// It writes pages of the page cache.
        const CACHE = 1;
        /// It has a lock owner: it writes a buffer of the caller, not pages of the page cache.
        const LOCK_OWNER = 1 << 1;
        /// Clear setuid and setgid.
        const KILL_SUIDGID = 1 << 2;
    }
}
