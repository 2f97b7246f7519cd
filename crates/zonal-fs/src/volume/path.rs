//! Paths: from bytes to an inode, or to the directory and the name of an entry.
//!
//! Every path starts at the root of the volume, with or without a leading slash. The rules are
//! those of Linux:
//!
//! - The empty path names nothing (ENOENT). Repeated slashes and `.` have no effect. `..` is the
//!   parent directory; that of the root is the root, so no path leads out of a volume.
//! - Symbolic links before the last component are followed. If the last component is one,
//!   operations on entries (remove, rename, `hard_link`, `read_link`, `symlink_metadata`) act on
//!   the link, others on its target. A target with a leading slash starts at the volume's root.
//! - One path may lead through [`LINKS_MAX`] links; with more it fails with ELOOP.
//! - A path that ends in a slash or in `.` names a directory, anything else there is ENOTDIR.

use crate::FsError;
use crate::vfs::{Attr, FileKind, FileSystem, Ino, Result};

/// Symbolic links that one path may lead through, as in Linux.
pub const LINKS_MAX: u32 = 40;

/// What to do with a symbolic link at the end of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Links {
    /// Follow it.
    Follow,
    /// Act on the link itself.
    Keep,
}

/// The end of a path.
pub(super) struct PathEnd {
    /// The directory of the last component.
    pub(super) dir: Ino,
    /// The last component; `None` where that is no name: the root, `.` and `..`.
    pub(super) name: Option<Vec<u8>>,
    /// Attributes of the inode there, if there is one.
    pub(super) found: Option<Attr>,
    /// The path ends in a slash or in `.`.
    is_slashed: bool,
}

impl PathEnd {
    /// Attributes of the inode there.
    pub(super) fn attr(self) -> Result<Attr> {
        self.found.ok_or(FsError::NotFound)
    }

    /// The name for a new entry. The file system finds out whether it is taken.
    pub(super) fn free_name(&self, kind: FileKind) -> Result<&[u8]> {
        match &self.name {
            None => Err(FsError::Exists),
            Some(_) if self.is_slashed && kind != FileKind::Directory => Err(FsError::NotFound),
            Some(name) => Ok(name),
        }
    }

    /// The directory and the name, for an operation that changes an entry.
    pub(super) fn entry(&self) -> Result<(Ino, &[u8])> {
        let name = self.name.as_deref();
        let what = "the root, `.` and `..` are not entries to remove or rename";
        Ok((self.dir, name.ok_or(FsError::Invalid { what })?))
    }
}

/// Finds out where `path` leads. Only the last component may be missing.
pub(super) fn find(fs: &dyn FileSystem, path: &[u8], links: Links) -> Result<PathEnd> {
    if path.is_empty() {
        return Err(FsError::NotFound);
    }
    let mut walk = PathWalk { fs, links_left: LINKS_MAX };
    let (mut start, mut path) = (fs.root(), path.to_vec());
    let mut is_slashed = ends_in_slash(&path);
    loop {
        let (dir, name) = walk.go_to_last(start, &path)?;
        let Some(name) = name else {
            let found = Some(fs.getattr(dir)?);
            return Ok(PathEnd { dir, name, found, is_slashed });
        };
        let found = match fs.lookup(dir, &name) {
            Ok(attr) => Some(attr),
            Err(FsError::NotFound) => None,
            Err(error) => return Err(error),
        };
        match found {
            Some(link) if link.kind == FileKind::Symlink && links == Links::Follow => {
                path = walk.target(link.ino)?;
                start = dir;
                is_slashed |= ends_in_slash(&path);
            }
            Some(attr) if is_slashed && attr.kind != FileKind::Directory => {
                return Err(FsError::NotDirectory);
            }
            _ => return Ok(PathEnd { dir, name: Some(name), found, is_slashed }),
        }
    }
}

/// Whether the path ends in a slash, or in `.` after one.
fn ends_in_slash(path: &[u8]) -> bool {
    matches!(path.rsplit(|byte| *byte == b'/').next(), Some(b"" | b"."))
}

struct PathWalk<'a> {
    fs: &'a dyn FileSystem,
    links_left: u32,
}

impl PathWalk<'_> {
    /// Follows `path` up to its last component. Returns the directory of that, and the component if
    /// it is a name.
    fn go_to_last(&mut self, start: Ino, path: &[u8]) -> Result<(Ino, Option<Vec<u8>>)> {
        let mut at = start;
        let mut ahead = Vec::new();
        self.enter(path, &mut at, &mut ahead)?;
        while let Some(name) = ahead.pop() {
            if name == b".." {
                at = if at == self.fs.root() { at } else { self.fs.lookup(at, b"..")?.ino };
                continue;
            }
            if ahead.is_empty() {
                return Ok((at, Some(name)));
            }
            let attr = self.fs.lookup(at, &name)?;
            match attr.kind {
                FileKind::Directory => at = attr.ino,
                FileKind::Symlink => {
                    let target = self.target(attr.ino)?;
                    self.enter(&target, &mut at, &mut ahead)?;
                }
                FileKind::Regular
                | FileKind::Fifo
                | FileKind::Socket
                | FileKind::CharDevice
                | FileKind::BlockDevice => return Err(FsError::NotDirectory),
            }
        }
        Ok((at, None))
    }

    /// Adds the components of `path` to those ahead, which are in reverse order.
    fn enter(&self, path: &[u8], at: &mut Ino, ahead: &mut Vec<Vec<u8>>) -> Result<()> {
        if path.contains(&0) {
            return Err(FsError::Invalid { what: "a path with a zero byte" });
        }
        if path.starts_with(b"/") {
            *at = self.fs.root();
        }
        let names = path.split(|byte| *byte == b'/').rev();
        ahead.extend(names.filter(|name| !matches!(*name, b"" | b".")).map(<[u8]>::to_vec));
        Ok(())
    }

    fn target(&mut self, link: Ino) -> Result<Vec<u8>> {
        self.links_left = self.links_left.checked_sub(1).ok_or(FsError::LinkLoop)?;
        self.fs.readlink(link)
    }
}
