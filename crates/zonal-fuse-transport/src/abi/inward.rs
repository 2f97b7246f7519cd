//! Structures of requests.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Declares structures that are read from bytes.
macro_rules! inward {
    ($($(#[$doc:meta])* $name:ident { $($field:ident: $kind:ty,)* })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
        #[repr(C)]
        pub(crate) struct $name {
            $(pub(crate) $field: $kind,)*
        }
    )*};
}

inward! {
    /// Header of every request.
    InHeader {
        len: u32,
        opcode: u32,
        unique: u64,
        nodeid: u64,
        uid: u32,
        gid: u32,
        pid: u32,
        total_extlen: u16,
        padding: u16,
    }
    InitIn {
        major: u32,
        minor: u32,
        max_readahead: u32,
        flags: u32,
        flags2: u32,
        unused: [u32; 11],
    }
    ForgetIn {
        nlookup: u64,
    }
    BatchForgetIn {
        count: u32,
        dummy: u32,
    }
    /// `count` of them follow a [`BatchForgetIn`].
    ForgetOne {
        nodeid: u64,
        nlookup: u64,
    }
    GetattrIn {
        getattr_flags: u32,
        dummy: u32,
        fh: u64,
    }
    StatxIn {
        getattr_flags: u32,
        reserved: u32,
        fh: u64,
        sx_flags: u32,
        sx_mask: u32,
    }
    SetattrIn {
        valid: u32,
        padding: u32,
        fh: u64,
        size: u64,
        lock_owner: u64,
        atime: i64,
        mtime: i64,
        ctime: i64,
        atimensec: u32,
        mtimensec: u32,
        ctimensec: u32,
        mode: u32,
        unused4: u32,
        uid: u32,
        gid: u32,
        unused5: u32,
    }
    MknodIn {
        mode: u32,
        rdev: u32,
        umask: u32,
        padding: u32,
    }
    MkdirIn {
        mode: u32,
        umask: u32,
    }
    RenameIn {
        newdir: u64,
    }
    Rename2In {
        newdir: u64,
        flags: u32,
        padding: u32,
    }
    LinkIn {
        oldnodeid: u64,
    }
    OpenIn {
        flags: i32,
        open_flags: u32,
    }
    /// Of CREATE and TMPFILE.
    CreateIn {
        flags: i32,
        mode: u32,
        umask: u32,
        open_flags: u32,
    }
    /// Of READ and of listings.
    ReadIn {
        fh: u64,
        offset: u64,
        size: u32,
        read_flags: u32,
        lock_owner: u64,
        flags: i32,
        padding: u32,
    }
    WriteIn {
        fh: u64,
        offset: u64,
        size: u32,
        write_flags: u32,
        lock_owner: u64,
        flags: i32,
        padding: u32,
    }
    ReleaseIn {
        fh: u64,
        flags: i32,
        release_flags: u32,
        lock_owner: u64,
    }
    FsyncIn {
        fh: u64,
        fsync_flags: u32,
        padding: u32,
    }
    /// SETXATTR without `SETXATTR_EXT`.
    SetxattrIn {
        size: u32,
        flags: i32,
    }
    /// Follows [`SetxattrIn`] with `SETXATTR_EXT`.
    SetxattrMore {
        setxattr_flags: u32,
        padding: u32,
    }
    /// Of GETXATTR and LISTXATTR.
    GetxattrIn {
        size: u32,
        padding: u32,
    }
    IoctlIn {
        fh: u64,
        flags: u32,
        cmd: u32,
        arg: u64,
        in_size: u32,
        out_size: u32,
    }
    FallocateIn {
        fh: u64,
        offset: u64,
        length: u64,
        mode: i32,
        padding: u32,
    }
    LseekIn {
        fh: u64,
        offset: u64,
        whence: i32,
        padding: u32,
    }
    CopyFileRangeIn {
        fh_in: u64,
        off_in: u64,
        nodeid_out: u64,
        fh_out: u64,
        off_out: u64,
        len: u64,
        flags: u64,
    }
}
