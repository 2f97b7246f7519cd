//! The file-system trait: one method per POSIX action, by inode number, with nothing of FUSE in it.
//!
//! Front ends call it, file systems implement it. Names are bytes, at most [`NAME_MAX`] of them.
//! Permission checks against mode bits and ACLs are the caller's (the kernel does them with
//! `default_permissions`); clearing setuid and setgid, inheriting group and default ACL, and
//! keeping times are the file system's.

mod extent;
mod timestamp;

use serde::{Deserialize, Serialize};

use crate::FsError;
pub use crate::error::Remains;

pub use self::extent::FileExtent;
pub use self::timestamp::Timestamp;

/// Result of a file-system operation.
pub type Result<T> = std::result::Result<T, FsError>;

/// Longest name of a directory entry, in bytes.
pub const NAME_MAX: usize = 255;

/// Longest target of a symbolic link, in bytes (Linux `PATH_MAX` less the terminator).
pub const SYMLINK_MAX: usize = 4095;

/// Longest extended-attribute value, in bytes (Linux `XATTR_SIZE_MAX`).
pub const XATTR_VALUE_MAX: usize = 65_536;

/// Number of an inode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ino(u64);

impl Ino {
    /// The root directory, where the file system does not number it otherwise.
    pub const ROOT: Self = Self(1);

    /// Wraps a raw number.
    pub const fn new(raw: u64) -> Self {
        Self(raw)
    }

    /// The raw number.
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl std::fmt::Display for Ino {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// Kind of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FileKind {
    /// Regular file.
    Regular,
    /// Directory.
    Directory,
    /// Symbolic link.
    Symlink,
    /// Named pipe.
    Fifo,
    /// Unix socket.
    Socket,
    /// Character device.
    CharDevice,
    /// Block device.
    BlockDevice,
}

impl FileKind {
    /// The type bits of `st_mode` (`S_IFMT`).
    pub const fn format(self) -> u32 {
        match self {
            Self::Fifo => 0o010_000,
            Self::CharDevice => 0o020_000,
            Self::Directory => 0o040_000,
            Self::BlockDevice => 0o060_000,
            Self::Regular => 0o100_000,
            Self::Symlink => 0o120_000,
            Self::Socket => 0o140_000,
        }
    }
}

/// Attributes of an inode, as `stat` reports them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attr {
    /// Number of the inode.
    pub ino: Ino,
    /// Kind of the inode.
    pub kind: FileKind,
    /// Permission bits with setuid, setgid and sticky: the low twelve bits of `st_mode`.
    pub perm: u16,
    /// Number of links.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number, for device nodes.
    pub rdev: u32,
    /// Length in bytes.
    pub size: u64,
    /// Allocated space in units of 512 bytes.
    pub blocks: u64,
    /// Last access.
    pub atime: Timestamp,
    /// Last change of the content.
    pub mtime: Timestamp,
    /// Last change of the inode.
    pub ctime: Timestamp,
    /// Birth.
    pub btime: Timestamp,
    /// Flags that chattr(1) has set.
    pub flags: InodeFlags,
}

/// The calling user: owner of new inodes, and subject of the rules for setgid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller {
    /// File-system user id.
    pub uid: u32,
    /// File-system group id.
    pub gid: u32,
    /// The umask. The file system applies it, because a default ACL replaces it.
    pub umask: u16,
    /// Whether the caller may keep setgid on a file of a group it is not in (`CAP_FSETID`).
    pub privilege: Privilege,
}

impl Caller {
    /// The superuser with an empty umask.
    pub const ROOT: Self = Self { uid: 0, gid: 0, umask: 0, privilege: Privilege::Full };
}

/// Whether setuid and setgid of a file survive changes by a caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Privilege {
    /// Like a process with `CAP_FSETID`.
    Full,
    /// Like a process without `CAP_FSETID`.
    None,
}

/// Kind and attributes of a new inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewInode<'a> {
    /// Its kind. `Symlink` takes its target from `target`.
    pub kind: FileKind,
    /// Permission bits before umask and default ACL.
    pub perm: u16,
    /// Device number, for device nodes.
    pub rdev: u32,
    /// Target of a symbolic link, else empty.
    pub target: &'a [u8],
}

/// How to set a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetTime {
    /// To the file system's clock.
    Now,
    /// To this time.
    To(Timestamp),
    /// To this time, which a write-back cache reports for data that it has accepted. No inode flag
    /// refuses it, because none refuses data of files that were open before.
    Written(Timestamp),
}

/// Attributes to change; `None` leaves one as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetAttr {
    /// Permission bits (`chmod`).
    pub perm: Option<u16>,
    /// Owner (`chown`).
    pub uid: Option<u32>,
    /// Group (`chown`).
    pub gid: Option<u32>,
    /// Length (`truncate`).
    pub size: Option<u64>,
    /// Last access.
    pub atime: Option<SetTime>,
    /// Last change of the content.
    pub mtime: Option<SetTime>,
    /// Last change of the inode, from a caller that keeps this time itself; `None` sets it to now.
    /// If `atime` or `mtime` is equal to it, they mean "now" by the caller's clock.
    pub ctime: Option<Timestamp>,
    /// Clear setuid, and setgid if group execution is allowed or the caller is not in the group, as
    /// a write by an unprivileged process does.
    pub kill_privileges: bool,
    /// Flags as chattr(1) sets them. The caller has checked the permission.
    pub flags: Option<InodeFlags>,
}

impl InodeFlags {
    /// Flags that a directory hands down to files and directories made in it.
    pub const INHERITED: Self = Self::NO_ATIME.union(Self::NO_DUMP).union(Self::SYNC);
}

bitflags::bitflags! {
    /// Flags of an inode that chattr(1) sets. [`protect`](crate::protect) has the rules of the
    /// first two.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct InodeFlags: u8 {
        /// Nothing about it changes (`+i`).
        const IMMUTABLE = 1;
        /// It only grows (`+a`).
        const APPEND_ONLY = 2;
        /// Reading does not move its access time (`+A`).
        const NO_ATIME = 4;
        /// Backup programs leave it out (`+d`). The file system only stores it.
        const NO_DUMP = 8;
        /// Writes are durable when they return (`+S`).
        const SYNC = 16;
    }

    /// Flags of a read.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct ReadFlags: u32 {
        /// Demand the alignment of `O_DIRECT`, where a file has one.
        const DIRECT = 1;
        /// Do not move the access time (`O_NOATIME`).
        const NO_ATIME = 2;
    }

    /// Flags of a write.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct WriteFlags: u32 {
        /// Go to the device now rather than through the write buffer (`O_DIRECT`).
        const DIRECT = 1;
        /// Durable before the call returns (`O_DSYNC`, `O_SYNC`).
        const DURABLE = 2;
        /// At the end of the file, whatever the offset (`O_APPEND`).
        const APPEND = 4;
        /// Clear setuid and setgid.
        const KILL_PRIVILEGES = 8;
        /// Do not change times: the caller sets them itself, as the kernel does for its write-back
        /// cache.
        const KEEP_TIMES = 16;
        /// Do not remove the file's capabilities
        /// ([`CAPABILITY_XATTR`](crate::rules::CAPABILITY_XATTR)), as other writes do: the caller
        /// removed them when it accepted the data, as the kernel does for its write-back cache.
        const KEEP_CAPABILITY = 32;
    }

    /// How `rename` treats an existing target.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct RenameFlags: u32 {
        /// Fail if the target exists.
        const NOREPLACE = 1;
        /// Swap the two.
        const EXCHANGE = 2;
        /// Leave a whiteout in the source's place: a character device 0/0 of the superuser, by
        /// which overlay file systems know that a name is gone.
        const WHITEOUT = 4;
    }
}

/// Modes of `fallocate`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allocate {
    /// Make sure that later writes to the range find space; grow the file to cover it.
    Extend,
    /// The same without growing the file.
    KeepSize,
    /// Make a hole; the size stays.
    Punch,
    /// Make the range read as zeroes; grow the file to cover it.
    Zero,
    /// The same without growing the file.
    ZeroKeepSize,
    /// As `Punch`, but the space may become free later, in steps.
    PunchLater,
    /// Make the range read as zeroes, at once; the file keeps the space that it has there. The size
    /// stays.
    ZeroLater,
}

/// Targets of `lseek`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seek {
    /// The next byte that is data.
    Data,
    /// The next byte of a hole; the end of the file is one.
    Hole,
}

/// Extent of an `fsync`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncKind {
    /// Content, and the metadata needed to read it back (`fdatasync`).
    Data,
    /// Everything (`fsync`).
    Full,
}

/// How `setxattr` treats an existing attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XattrMode {
    /// Create or replace.
    Any,
    /// Fail if it exists.
    Create,
    /// Fail if it does not exist.
    Replace,
}

/// A directory entry, as `readdir` reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirEntry<'a> {
    /// The inode it leads to.
    pub ino: Ino,
    /// The kind of that inode.
    pub kind: FileKind,
    /// Name.
    pub name: &'a [u8],
    /// Offset to pass to the next listing, which then continues behind this entry. It stays valid
    /// while other entries come and go. An entry keeps its cookie when it gets another name in the
    /// same directory, so a program that renames the entries that it lists comes to an end.
    pub cookie: u64,
}

/// Answer of a directory listing's callback.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listing {
    /// It has taken the entry and wants the next one.
    More,
    /// It has not taken the entry, and wants no more.
    Enough,
}

/// Purpose of an open file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenFor {
    /// Reading only.
    Reading,
    /// Writing, and perhaps reading.
    Writing,
}

/// Rules for writes to a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileModel {
    /// Bytes that can be written anywhere and in any order.
    Posix,
    /// Zones: a file grows only at its end, by direct writes of whole blocks.
    Zones,
}

/// Whether a file system can be written to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Access {
    /// Reading and writing.
    #[default]
    ReadWrite,
    /// Reading only.
    ReadOnly,
}

/// Result of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// Offset in the file at which the data was written, in bytes.
    pub offset: u64,
    /// Bytes written: fewer than given only at the end of a zone's capacity.
    pub len: u64,
}

/// Sizes of a file system, as `statfs` reports them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatFs {
    /// Bytes of a block.
    pub block_size: u32,
    /// Longest name, in bytes.
    pub name_max: usize,
    /// Blocks that files can fill.
    pub blocks: u64,
    /// Blocks not filled.
    pub blocks_free: u64,
    /// Inodes in use.
    pub inodes: u64,
    /// Inodes that can still be made.
    pub inodes_free: u64,
    /// Unlinked inodes that are still in use. Their space is free once they are closed.
    pub inodes_unlinked: u64,
}

/// Wakes the worker that does the background work.
pub type Wake = std::sync::Arc<dyn Fn() + Send + Sync>;

/// A mounted file system.
///
/// Any thread may call any method. A method that returns an inode's [`Attr`] returns it as it is
/// after the call.
pub trait FileSystem: Send + Sync {
    /// Rules for writes to a file. The root's apply to the file system as a whole.
    fn model(&self, _ino: Ino) -> FileModel {
        FileModel::Posix
    }

    /// The root directory.
    fn root(&self) -> Ino {
        Ino::ROOT
    }

    /// Bytes of a write of which a power cut leaves all or nothing; 0 if it may leave any part.
    fn atomic_write(&self) -> u64 {
        0
    }

    /// Whether it can be written to now. It may become read-only after a failure.
    fn access(&self) -> Access {
        Access::ReadWrite
    }

    /// Notes that a file is opened. [`close`](Self::close) must get the same purpose.
    fn open(&self, _ino: Ino, _purpose: OpenFor) -> Result<()> {
        Ok(())
    }

    /// Takes back one [`open`](Self::open).
    fn close(&self, _ino: Ino, _purpose: OpenFor) {}

    /// A path of an inode, for messages ([`Named`](crate::named::Named)), with control characters
    /// escaped. `None` if finding it takes reads from the drive.
    fn path(&self, _ino: Ino) -> Option<String> {
        None
    }

    /// Finds `name` in a directory, also `.` and `..`.
    fn lookup(&self, parent: Ino, name: &[u8]) -> Result<Attr>;

    /// Attributes of an inode.
    fn getattr(&self, ino: Ino) -> Result<Attr>;

    /// Changes attributes.
    fn setattr(&self, caller: &Caller, ino: Ino, set: &SetAttr) -> Result<Attr>;

    /// The target of a symbolic link.
    fn readlink(&self, ino: Ino) -> Result<Vec<u8>>;

    /// Creates an inode of any kind, with an entry in a directory.
    fn create(&self, caller: &Caller, parent: Ino, name: &[u8], new: &NewInode<'_>)
    -> Result<Attr>;

    /// Creates a regular file without a name (`O_TMPFILE`), with the attributes that it would
    /// inherit in `parent`. It comes with one [`pin`](Self::pin); [`link`](Self::link) can give it
    /// a name.
    fn create_unnamed(&self, _: &Caller, _parent: Ino, _: &NewInode<'_>) -> Result<Attr> {
        Err(FsError::Unsupported { what: "files without a name" })
    }

    /// Removes an entry that is not a directory. The inode lives on while pinned.
    fn unlink(&self, parent: Ino, name: &[u8]) -> Result<()>;

    /// Removes an empty directory.
    fn rmdir(&self, parent: Ino, name: &[u8]) -> Result<()>;

    /// Moves an entry.
    fn rename(&self, source: (Ino, &[u8]), target: (Ino, &[u8]), flags: RenameFlags) -> Result<()>;

    /// Adds an entry for an inode: one with links, or one that was created without a name.
    fn link(&self, ino: Ino, parent: Ino, name: &[u8]) -> Result<Attr>;

    /// Keeps an inode alive, linked or not, until [`unpin`](Self::unpin). Pins are counted.
    fn pin(&self, ino: Ino) -> Result<()>;

    /// Takes back one [`pin`](Self::pin). An inode without pins and links is deleted.
    fn unpin(&self, ino: Ino);

    /// Reads into `buffer` from `offset` on and returns the number of bytes: fewer than the buffer
    /// has only at the end of the file, where zeroes may follow them in `buffer`.
    fn read_with(
        &self,
        ino: Ino,
        offset: u64,
        buffer: &mut [u8],
        flags: ReadFlags,
    ) -> Result<usize>;

    /// The same without flags.
    fn read(&self, ino: Ino, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        self.read_with(ino, offset, buffer, ReadFlags::empty())
    }

    /// Notes a read from a cache of the caller: moves the access time if that is due, as any read
    /// does. Returns whether it was due.
    fn note_read(&self, _ino: Ino) -> Result<bool> {
        Ok(false)
    }

    /// Writes `data` at `offset`, or at the end of the file with `APPEND`.
    fn write(&self, ino: Ino, offset: u64, data: &[u8], flags: WriteFlags) -> Result<Written>;

    /// Makes an inode durable.
    fn fsync(&self, ino: Ino, kind: SyncKind) -> Result<()>;

    /// Makes everything durable (`syncfs`).
    fn sync(&self) -> Result<()>;

    /// Lists a directory from `cookie` on (0: the start), `.` and `..` first. Moves its access time
    /// if that is due, but not with `NO_ATIME`.
    fn readdir_with(
        &self,
        ino: Ino,
        cookie: u64,
        flags: ReadFlags,
        each: &mut dyn FnMut(DirEntry<'_>) -> Listing,
    ) -> Result<()>;

    /// The same without flags.
    fn readdir(
        &self,
        ino: Ino,
        cookie: u64,
        each: &mut dyn FnMut(DirEntry<'_>) -> Listing,
    ) -> Result<()> {
        self.readdir_with(ino, cookie, ReadFlags::empty(), each)
    }

    /// Allocates, punches or zeroes a range.
    fn fallocate(&self, ino: Ino, how: Allocate, offset: u64, len: u64) -> Result<()>;

    /// Finds data or a hole from `offset` on.
    fn seek(&self, ino: Ino, what: Seek, offset: u64) -> Result<u64>;

    /// Calls `each` with extents of regular files in the order of inodes and offsets, from a byte
    /// of an inode on, for inodes below `end`. It shows the state of the last [`sync`](Self::sync).
    fn extents(
        &self,
        _start: (Ino, u64),
        _end: Ino,
        _each: &mut dyn FnMut(FileExtent) -> Listing,
    ) -> Result<()> {
        Err(FsError::Unsupported { what: "listing the extents of files" })
    }

    /// Copies `len` bytes between files, sharing blocks where it can. Offsets are in bytes. Returns
    /// the number of bytes copied: fewer only at the end of the source.
    fn copy_range(
        &self,
        source: (Ino, u64),
        target: (Ino, u64),
        len: u64,
        flags: WriteFlags,
    ) -> Result<u64>;

    /// Sizes of the file system.
    fn statfs(&self) -> Result<StatFs>;

    /// Value of an extended attribute.
    fn getxattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>>;

    /// Sets an extended attribute. `system.posix_acl_access` changes the mode bits too.
    fn setxattr(
        &self,
        caller: &Caller,
        ino: Ino,
        name: &[u8],
        value: &[u8],
        mode: XattrMode,
    ) -> Result<()>;

    /// Names of the extended attributes.
    fn listxattr(&self, ino: Ino) -> Result<Vec<Vec<u8>>>;

    /// Removes an extended attribute.
    fn removexattr(&self, ino: Ino, name: &[u8]) -> Result<()>;

    /// Does work that is due by time, such as the commit of data that is some seconds old, and some
    /// background work. Front ends call it about once a second, and when they are
    /// [woken](Self::on_work).
    fn tick(&self) -> Result<()>;

    /// Sets the function that reports background work which should not wait for the next second.
    /// The worker calls this once, and then [`tick`](Self::tick) when `wake` is called. Any thread
    /// may call `wake` at any time; it returns at once.
    fn on_work(&self, _wake: Wake) {}

    /// Makes everything durable and leaves the device clean. After it, the caller may only call
    /// [`unpin`](Self::unpin).
    fn shutdown(&self) -> Result<()>;

    /// Notes that a call has panicked, with this message. The file system then writes no more, and
    /// the caller calls only methods that read, if the answer allows even those. The caller may ask
    /// again, and the answer may have changed.
    fn give_up(&self, _message: &str) -> Remains {
        Remains::Readable
    }
}
