//! Inodes: attributes and content, their users, and the inodes that are to be removed.

pub(in crate::furrow) mod inodes;
pub(in crate::furrow) mod lives;
pub(in crate::furrow) mod paths;
pub(in crate::furrow) mod row;
pub(in crate::furrow) mod xattrs;

use std::mem::size_of;

use zonal_placement::learned::Context;

use self::xattrs::Xattrs;
use crate::FsError;
use crate::furrow::format::BLOCK_BYTES;
use crate::furrow::format::row::INODE_BYTES;
use crate::furrow::memory::{allocated, in_tree};
use crate::furrow::metadata::directory::{Directory, name_held_bytes};
use crate::furrow::metadata::map::File;
use crate::furrow::metadata::residency::used::Used;
use crate::vfs::{Attr, FileKind, Ino, InodeFlags, Result, Timestamp};

/// Content of an inode, by its kind.
#[derive(Clone, Debug)]
pub(in crate::furrow) enum Body {
    File(File),
    /// Boxed: larger than the others, and there are few.
    Directory(Box<Directory>),
    Symlink(Box<[u8]>),
    Special,
}

/// An inode.
#[derive(Clone, Debug)]
pub(in crate::furrow) struct Inode {
    pub(in crate::furrow) kind: FileKind,
    pub(in crate::furrow) perm: u16,
    pub(in crate::furrow) nlink: u32,
    pub(in crate::furrow) uid: u32,
    pub(in crate::furrow) gid: u32,
    pub(in crate::furrow) rdev: u32,
    pub(in crate::furrow) size: u64,
    pub(in crate::furrow) atime: Timestamp,
    pub(in crate::furrow) mtime: Timestamp,
    pub(in crate::furrow) ctime: Timestamp,
    pub(in crate::furrow) btime: Timestamp,
    pub(in crate::furrow) flags: InodeFlags,
    /// Directory, name and owner with which it was created. A rename does not change it: the end of
    /// this file teaches of files that are created like it.
    pub(in crate::furrow) context: Option<Context>,
    pub(in crate::furrow) xattrs: Xattrs,
    pub(in crate::furrow) body: Body,
    /// The last use, for eviction.
    pub(in crate::furrow) used: Used,
}

impl Inode {
    pub(in crate::furrow) fn attr(&self, ino: Ino) -> Attr {
        let per_block = (BLOCK_BYTES / 512) as u64;
        let blocks = match &self.body {
            Body::File(file) => (file.mapped + file.growing) * per_block,
            Body::Directory(_) | Body::Symlink(_) | Body::Special => 0,
        };
        Attr {
            ino,
            kind: self.kind,
            perm: self.perm,
            nlink: self.nlink,
            uid: self.uid,
            gid: self.gid,
            rdev: self.rdev,
            size: self.size,
            blocks,
            atime: self.atime,
            mtime: self.mtime,
            ctime: self.ctime,
            btime: self.btime,
            flags: self.flags,
        }
    }

    /// Blocks mapped, or entries.
    pub(in crate::furrow) fn count(&self) -> u64 {
        match &self.body {
            Body::File(file) => file.mapped,
            Body::Directory(directory) => directory.entries,
            Body::Symlink(_) | Body::Special => 0,
        }
    }

    /// The directory's content, or an error.
    pub(in crate::furrow) fn directory(&self) -> Result<&Directory> {
        match &self.body {
            Body::Directory(directory) => Ok(directory),
            Body::File(_) | Body::Symlink(_) | Body::Special => Err(FsError::NotDirectory),
        }
    }

    /// The directory's content, or an error.
    pub(in crate::furrow) fn directory_mut(&mut self) -> Result<&mut Directory> {
        match &mut self.body {
            Body::Directory(directory) => Ok(directory),
            Body::File(_) | Body::Symlink(_) | Body::Special => Err(FsError::NotDirectory),
        }
    }

    /// The file's content, or an error.
    pub(in crate::furrow) fn file(&self) -> Result<&File> {
        match &self.body {
            Body::File(file) => Ok(file),
            Body::Directory(_) => Err(FsError::IsDirectory),
            Body::Symlink(_) | Body::Special => {
                Err(FsError::Invalid { what: "not a regular file" })
            }
        }
    }

    /// The file's content, or an error.
    pub(in crate::furrow) fn file_mut(&mut self) -> Result<&mut File> {
        match &mut self.body {
            Body::File(file) => Ok(file),
            Body::Directory(_) => Err(FsError::IsDirectory),
            Body::Symlink(_) | Body::Special => {
                Err(FsError::Invalid { what: "not a regular file" })
            }
        }
    }

    /// Blocks of the file up to its size.
    pub(in crate::furrow) fn block_end(&self) -> u64 {
        self.size.div_ceil(BLOCK_BYTES as u64)
    }

    /// Checks that a pending truncation frees no block before `limit`, which is not beyond the end
    /// of the file. A damaged inode would show old content, or lose blocks.
    pub(in crate::furrow) fn check_shown(&self, ino: Ino, limit: u64) -> Result<()> {
        match self.file()?.truncate_from {
            Some(from) if from < limit => {
                let end = self.block_end();
                let why = format!(
                    "a truncation frees blocks of inode {ino} from {from} on, and it has {end}"
                );
                Err(FsError::Corrupt { what: "inode", why })
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Bytes of memory.
    pub(super) fn held_bytes(&self) -> usize {
        let body = match &self.body {
            Body::File(file) => file.frame_bytes() + file.map.entry_bytes(),
            Body::Directory(directory) => {
                let names = directory.by_hash.iter().map(|named| name_held_bytes(&named.name));
                allocated(size_of::<Directory>()) + directory.frame_bytes() + names.sum::<usize>()
            }
            Body::Symlink(target) => allocated(target.len()),
            Body::Special => 0,
        };
        let frame = in_tree(size_of::<(Ino, Box<Self>)>()) + allocated(size_of::<Self>());
        frame + body + self.xattrs.held_bytes()
    }

    /// Bytes of an inode's own row and of its attributes.
    pub(super) fn row_bytes(&self) -> u64 {
        let target = match &self.body {
            Body::Symlink(target) => target.len(),
            Body::File(_) | Body::Directory(_) | Body::Special => 0,
        };
        (INODE_BYTES + target) as u64 + self.xattrs.row_bytes()
    }

    /// Whether an inode waits for its deletion, or for the end of its truncation.
    pub(super) fn is_orphan(&self) -> bool {
        self.nlink == 0 || self.file().is_ok_and(|file| file.truncate_from.is_some())
    }

    pub(super) fn is_being_written(&self) -> bool {
        self.file().is_ok_and(File::is_being_written)
    }
}
