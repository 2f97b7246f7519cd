//! Missing metadata: an operation needs it, and [`Tree`](crate::furrow::tree::Tree) loads it.

use crate::FsError;
use crate::furrow::format::backref::ExtentId;
use crate::vfs::Ino;

/// Metadata that an operation needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::furrow) enum Missing {
    /// An inode.
    Inode(Ino),
    /// Map entries of a file, those around a block at least.
    Map(Ino, u64),
    /// Entries of a directory, from a cookie on.
    Entries(Ino, u64),
    /// The entry with a name, if there is one.
    Name(Ino, Box<[u8]>),
    /// A shared extent.
    Extent(ExtentId),
    /// The end of a discard: the entries around a block are still there.
    Discard(Ino, u64),
}

/// Why an operation has no answer.
#[derive(Debug)]
pub(in crate::furrow) enum Stop {
    /// It needs something that is not in memory.
    NotLoaded(Missing),
    /// It has failed.
    Failed(FsError),
}

impl<E: Into<FsError>> From<E> for Stop {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

/// The result of an operation on metadata in memory, or the reason why it stopped.
pub(in crate::furrow) type Lookup<T> = std::result::Result<T, Stop>;
