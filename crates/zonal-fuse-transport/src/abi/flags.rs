//! Bits, and the numbers of requests and notifications.

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
    /// What kernel and server can do, and what they agree on.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct InitFlags: u64 {
        /// Several reads of a file at once.
        const ASYNC_READ = 1;
        /// The server answers lookups of `.` and `..`.
        const EXPORT_SUPPORT = 1 << 4;
        /// Writes of more than a page.
        const BIG_WRITES = 1 << 5;
        /// The umask is left to the server.
        const DONT_MASK = 1 << 6;
        /// Ioctls on directories.
        const HAS_IOCTL_DIR = 1 << 11;
        /// READDIRPLUS.
        const DO_READDIRPLUS = 1 << 13;
        /// READDIRPLUS only where attributes are asked for.
        const READDIRPLUS_AUTO = 1 << 14;
        /// The parts of an asynchronous direct request at once.
        const ASYNC_DIO = 1 << 15;
        /// Buffered writes stay in the page cache.
        const WRITEBACK_CACHE = 1 << 16;
        /// Lookups and listings of a directory at once.
        const PARALLEL_DIROPS = 1 << 18;
        /// Access control lists.
        const POSIX_ACL = 1 << 20;
        /// The server says how long a request may be.
        const MAX_PAGES = 1 << 22;
        /// Targets of symbolic links are kept.
        const CACHE_SYMLINKS = 1 << 23;
        /// Pages are dropped only when the server says so.
        const EXPLICIT_INVAL_DATA = 1 << 25;
        /// The server clears setuid and setgid, and is told when.
        const HANDLE_KILLPRIV_V2 = 1 << 28;
        /// SETXATTR says more than flags of setxattr(2).
        const SETXATTR_EXT = 1 << 29;
        /// There are more than 32 flags.
        const INIT_EXT = 1 << 30;
        /// Shared mappings of files that are open for direct I/O.
        const DIRECT_IO_ALLOW_MMAP = 1 << 36;
        /// Files that are read through files of another mount.
        const PASSTHROUGH = 1 << 37;
        /// Mounts that map users and groups.
        const ALLOW_IDMAP = 1 << 40;
        /// Requests by io_uring.
        const OVER_IO_URING = 1 << 41;
    }

    /// How an opened file is to be treated.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct FopenFlags: u32 {
        /// No page cache.
        const DIRECT_IO = 1;
        /// What is in the page cache stays.
        const KEEP_CACHE = 1 << 1;
        /// No FLUSH on close(2).
        const NOFLUSH = 1 << 5;
        /// Several direct writes at once.
        const PARALLEL_DIRECT_WRITES = 1 << 6;
        /// It has a backing file: with [`DIRECT_IO`](Self::DIRECT_IO) for mappings, without it for everything.
        const PASSTHROUGH = 1 << 7;
    }

    /// What is said of a GETATTR.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct GetattrFlags: u32 {
        /// `fh` is that of an open file.
        const FH = 1;
    }

    /// What a SETATTR sets.
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
        /// Setuid and setgid are to be cleared.
        const KILL_SUIDGID = 1 << 11;
    }

    /// What a SETXATTR says of the caller, with [`SETXATTR_EXT`](InitFlags::SETXATTR_EXT).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct SetxattrFlags: u32 {
        /// It sets an ACL, and the caller is not in the file's group: setgid is to be cleared.
        const ACL_KILL_SGID = 1;
    }

    /// How a read came about.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct ReadFlags: u32 {
        /// It tells whose locks it stands by: it goes to a caller's buffer, and not to the page cache.
        const LOCK_OWNER = 1 << 1;
    }

    /// How a write came about.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct WriteFlags: u32 {
        /// From the page cache.
        const CACHE = 1;
        /// It tells whose locks it stands by: it comes from a caller's buffer, and not from the
        /// page cache.
        const LOCK_OWNER = 1 << 1;
        /// Setuid and setgid are to be cleared.
        const KILL_SUIDGID = 1 << 2;
    }
}
