//! The two traits that both sides of a copy implement: a place that may hold a file, on this
//! machine or on a drive, and the content of a file.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use anyhow::Result;
use zonal_fs::vfs::{FileKind, Timestamp};
use zonal_fs::volume::Links;

/// The attributes of a file.
#[derive(Clone, Debug)]
pub(super) struct FileAttributes {
    /// The file system and the inode.
    pub(super) id: (u64, u64),
    pub(super) kind: FileKind,
    /// Permission bits with setuid, setgid and sticky.
    pub(super) perm: u16,
    /// Whether it has more than one link: the type of their number depends on the processor.
    pub(super) has_links: bool,
    pub(super) uid: u32,
    pub(super) gid: u32,
    /// Device number of a device node, as Linux encodes it in 32 bits.
    pub(super) rdev: u32,
    pub(super) bytes: u64,
    pub(super) accessed: Timestamp,
    pub(super) modified: Timestamp,
}

/// A file to be made that has no content.
pub(super) enum EmptyFile {
    Directory {
        perm: u16,
    },
    Symlink {
        target: PathBuf,
    },
    /// A device node, a FIFO or a socket.
    Special {
        kind: FileKind,
        perm: u16,
        rdev: u32,
    },
}

/// A name in a directory, and the file of that name. Methods that take no [`Links`] follow no link.
pub(super) trait Spot {
    /// The spot as messages show it.
    fn shown(&self) -> String;

    /// The attributes of the file here; `None` if there is none.
    fn facts(&self, links: Links) -> Result<Option<FileAttributes>>;

    /// The file system of the file here, or of one that would be made here: the first part of
    /// [`FileAttributes::id`].
    fn file_system(&self) -> Result<u64>;

    /// The directory here.
    fn enter(&self, links: Links) -> Result<Box<dyn Folder + '_>>;

    /// Whether the directory in which this is, or one above it, is the file of this id.
    fn is_below(&self, id: (u64, u64)) -> Result<bool>;

    fn read_link(&self) -> Result<PathBuf>;

    /// Opens the file for reading.
    fn open(&self, links: Links) -> Result<Box<dyn FileContent>>;

    /// Makes a file here, where there is none.
    fn create(&self, perm: u16) -> Result<Box<dyn FileContent>>;

    /// Opens the file here for writing, and empties it if it is a regular file.
    fn replace(&self, links: Links) -> Result<Box<dyn FileContent>>;

    fn make(&self, made: &EmptyFile) -> Result<()>;

    /// Makes a hard link to a file of the same side.
    fn link(&self, original: &dyn Spot) -> Result<()>;

    /// Removes a file that is no directory.
    fn remove(&self) -> Result<()>;

    fn xattrs(&self) -> Result<Vec<(OsString, Vec<u8>)>>;

    fn set_xattr(&self, name: &OsStr, value: &[u8]) -> Result<()>;

    fn set_owner(&self, uid: u32, gid: u32) -> Result<()>;

    fn set_perm(&self, perm: u16) -> Result<()>;

    fn set_times(&self, accessed: Timestamp, modified: Timestamp) -> Result<()>;

    /// For [`link`](Self::link).
    fn as_any(&self) -> &dyn std::any::Any;
}

/// A directory.
pub(super) trait Folder {
    /// The names in it, sorted.
    fn names(&self) -> Result<Vec<OsString>>;

    /// A name in it.
    fn child(&self, name: &OsStr) -> Box<dyn Spot>;
}

/// The content of a file.
pub(super) trait FileContent {
    fn read(&mut self, buffer: &mut [u8], offset: u64) -> Result<usize>;

    fn write(&mut self, data: &[u8], offset: u64) -> Result<()>;

    /// Where data begins from `offset` on, and where it ends; `None` if a hole reaches to the end
    /// of the file.
    fn data(&mut self, offset: u64) -> Result<Option<(u64, u64)>>;

    /// Whether it has a length, and can have holes.
    fn is_file(&self) -> bool;

    /// Its length now; 0 for a pipe or a device, which have none.
    fn length(&self) -> Result<u64>;

    fn set_len(&mut self, bytes: u64) -> Result<()>;

    /// Gives this file, which is empty, the blocks of another one of the same Furrow.
    fn share(&mut self, source: &dyn FileContent) -> Result<()>;

    /// For [`share`](Self::share).
    fn as_any(&self) -> &dyn std::any::Any;
}
