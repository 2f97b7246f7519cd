//! Structures of answers and notifications.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Declares structures that are written as bytes; all fields are zero by default.
macro_rules! outward {
    ($($(#[$doc:meta])* $name:ident { $($field:ident: $kind:ty,)* })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
        #[repr(C)]
        pub(crate) struct $name {
            $(pub(crate) $field: $kind,)*
        }
    )*};
}

/// Attributes of an inode.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Attr {
    /// Inode number.
    pub ino: u64,
    /// Length in bytes.
    pub size: u64,
    /// Space in units of 512 bytes.
    pub blocks: u64,
    /// Last access, in seconds since 1970.
    pub atime: i64,
    /// Last change of the content.
    pub mtime: i64,
    /// Last change of the inode.
    pub ctime: i64,
    /// Nanoseconds after `atime`.
    pub atimensec: u32,
    /// Nanoseconds after `mtime`.
    pub mtimensec: u32,
    /// Nanoseconds after `ctime`.
    pub ctimensec: u32,
    /// Kind and permission bits.
    pub mode: u32,
    /// Links.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number of a device node.
    pub rdev: u32,
    /// Preferred size of requests of programs.
    pub blksize: u32,
    /// Zero: no flag is used.
    pub flags: u32,
}

/// Sizes of a file system.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Kstatfs {
    /// All blocks.
    pub blocks: u64,
    /// Free ones.
    pub bfree: u64,
    /// Free ones that users may fill.
    pub bavail: u64,
    /// All inodes.
    pub files: u64,
    /// Free ones.
    pub ffree: u64,
    /// Preferred size of a request in bytes.
    pub bsize: u32,
    /// Longest name.
    pub namelen: u32,
    /// Bytes of a block.
    pub frsize: u32,
    /// Zero.
    pub padding: u32,
    /// Zero.
    pub spare: [u32; 6],
}

/// A time of [`Statx`].
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct StatxTime {
    /// Seconds since 1970.
    pub tv_sec: i64,
    /// Nanoseconds after that.
    pub tv_nsec: u32,
    /// Zero.
    pub reserved: i32,
}

/// Result of statx(2).
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Statx {
    /// Fields that are set.
    pub mask: u32,
    /// As in [`Attr`].
    pub blksize: u32,
    /// `STATX_ATTR_*`.
    pub attributes: u64,
    /// As in [`Attr`].
    pub nlink: u32,
    /// As in [`Attr`].
    pub uid: u32,
    /// As in [`Attr`].
    pub gid: u32,
    /// As in [`Attr`].
    pub mode: u16,
    /// Zero.
    pub spare0: u16,
    /// As in [`Attr`].
    pub ino: u64,
    /// As in [`Attr`].
    pub size: u64,
    /// As in [`Attr`].
    pub blocks: u64,
    /// Bits of `attributes` that are set.
    pub attributes_mask: u64,
    /// Last access.
    pub atime: StatxTime,
    /// Birth.
    pub btime: StatxTime,
    /// Last change of the inode.
    pub ctime: StatxTime,
    /// Last change of the content.
    pub mtime: StatxTime,
    /// Of a device node.
    pub rdev_major: u32,
    /// Of a device node.
    pub rdev_minor: u32,
    /// The kernel sets it.
    pub dev_major: u32,
    /// The kernel sets it.
    pub dev_minor: u32,
    /// Zero.
    pub spare2: [u64; 14],
}

outward! {
    /// Header of every answer and notification.
    OutHeader {
        len: u32,
        error: i32,
        unique: u64,
    }
    InitOut {
        major: u32,
        minor: u32,
        max_readahead: u32,
        flags: u32,
        max_background: u16,
        congestion_threshold: u16,
        max_write: u32,
        time_gran: u32,
        max_pages: u16,
        map_alignment: u16,
        flags2: u32,
        max_stack_depth: u32,
        request_timeout: u16,
        unused: [u16; 11],
    }
    EntryOut {
        nodeid: u64,
        generation: u64,
        entry_valid: u64,
        attr_valid: u64,
        entry_valid_nsec: u32,
        attr_valid_nsec: u32,
        attr: Attr,
    }
    AttrOut {
        attr_valid: u64,
        attr_valid_nsec: u32,
        dummy: u32,
        attr: Attr,
    }
    StatxOut {
        attr_valid: u64,
        attr_valid_nsec: u32,
        flags: u32,
        spare: [u64; 2],
        stat: Statx,
    }
    OpenOut {
        fh: u64,
        open_flags: u32,
        backing_id: i32,
    }
    WriteOut {
        size: u32,
        padding: u32,
    }
    CopyFileRangeOut {
        bytes_copied: u64,
    }
    GetxattrOut {
        size: u32,
        padding: u32,
    }
    IoctlOut {
        result: i32,
        flags: u32,
        in_iovs: u32,
        out_iovs: u32,
    }
    LseekOut {
        offset: u64,
    }
    /// Precedes the name of an entry in a listing.
    Dirent {
        ino: u64,
        off: u64,
        namelen: u32,
        kind: u32,
    }
    InvalInodeOut {
        ino: u64,
        off: i64,
        len: i64,
    }
    /// Asks for cached bytes of a file.
    RetrieveOut {
        notify_unique: u64,
        nodeid: u64,
        offset: u64,
        size: u32,
        padding: u32,
    }
    /// Precedes the bytes to store.
    StoreOut {
        nodeid: u64,
        offset: u64,
        size: u32,
        padding: u32,
    }
}
