//! The structures and numbers of the protocol, version 7.45: `include/uapi/linux/fuse.h`.
//!
//! All are in the byte order of the machine. Structures have the lengths of the kernel, with
//! padding as named fields.
//!
//! - `flags`: flags and opcodes.
//! - `inward`: structures of requests.
//! - `outward`: structures of answers and notifications.
//! - `ring`: structures of `io_uring`.

mod flags;
mod inward;
mod outward;
mod ring;

pub(crate) use flags::GetattrFlags;
pub use flags::{FattrFlags, FopenFlags, InitFlags, ReadFlags, SetxattrFlags, WriteFlags};
pub(crate) use flags::{notification, opcode};
pub(crate) use inward::{
    BatchForgetIn, CopyFileRangeIn, CreateIn, FallocateIn, ForgetIn, ForgetOne, FsyncIn, GetattrIn,
    GetxattrIn, InHeader, InitIn, IoctlIn, LinkIn, LseekIn, MkdirIn, MknodIn, OpenIn, ReadIn,
    ReleaseIn, Rename2In, RenameIn, SetattrIn, SetxattrIn, SetxattrMore, StatxIn, WriteIn,
};
pub use outward::{Attr, Kstatfs, Statx, StatxTime};
pub(crate) use outward::{
    AttrOut, CopyFileRangeOut, Dirent, EntryOut, GetxattrOut, InitOut, InvalInodeOut, IoctlOut,
    LseekOut, OpenOut, OutHeader, RetrieveOut, StatxOut, StoreOut, WriteOut,
};

pub(crate) use ring::{RingAbout, RingCommand, RingHeader, ring_command};

/// Major version of the protocol.
pub(crate) const MAJOR: u32 = 7;
/// Minor version of the protocol.
pub(crate) const MINOR: u32 = 45;

/// The number by which kernel and server name an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NodeId(pub u64);

impl NodeId {
    /// The root directory.
    pub const ROOT: Self = Self(1);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structure_sizes_match_kernel() {
        let sizes = [
            (size_of::<InHeader>(), 40),
            (size_of::<InitIn>(), 64),
            (size_of::<SetattrIn>(), 88),
            (size_of::<WriteIn>(), 40),
            (size_of::<ReadIn>(), 40),
            (size_of::<IoctlIn>(), 32),
            (size_of::<CopyFileRangeIn>(), 56),
            (size_of::<ReleaseIn>(), 24),
            (size_of::<GetattrIn>(), 16),
            (size_of::<StatxIn>(), 24),
            (size_of::<OutHeader>(), 16),
            (size_of::<InitOut>(), 64),
            (size_of::<Attr>(), 88),
            (size_of::<EntryOut>(), 128),
            (size_of::<AttrOut>(), 104),
            (size_of::<OpenOut>(), 16),
            (size_of::<Kstatfs>(), 80),
            (size_of::<Statx>(), 256),
            (size_of::<StatxOut>(), 288),
            (size_of::<Dirent>(), 24),
            (size_of::<RetrieveOut>(), 32),
            (size_of::<RingHeader>(), 288),
            (size_of::<RingCommand>(), 24),
        ];
        for (index, (ours, kernel)) in sizes.into_iter().enumerate() {
            assert_eq!(ours, kernel, "structure {index}");
        }
    }
}
