//! Paths: from bytes to an inode, or to the directory and the name of an entry.
//!
//! Every path starts at the root of the volume, with or without a leading slash. The rules are
//! those of Linux:
//!
//! - The empty path names nothing (ENOENT). Repeated slashes have no effect. `.` is the directory
//!   that it stands in. `..` is the parent directory; that of the root is the root, so no path
//!   leads out of a volume.
//! - Symbolic links before the last component are followed. If the last component is one,
//!   operations on entries (remove, rename, `hard_link`, `read_link`, `symlink_metadata`) act on
//!   the link, others on its target. A target with a leading slash starts at the volume's root.
//! - One path may lead through [`LINKS_MAX`] links; with more it fails with ELOOP.
//! - A path that ends in a slash names a directory, anything else there is ENOTDIR. The slash
//!   follows a link, for `symlink_metadata` too. To make, remove or rename `link/` fails.
//! - No operation removes or renames the root, or a path that ends in `.` or `..` (EINVAL).

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

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

/// The reason to look a path up. It decides whether a link at its end is followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// To use the inode there. A slash behind a link follows it in any case.
    Inode(Links),
    /// To make, replace or remove the entry. No link at the end is followed.
    Entry,
}

/// The end of a path.
pub(super) struct PathEnd {
    /// The directory of the last component.
    pub(super) dir: Ino,
    /// The last component; `None` where that is no name: the root, `.` and `..`.
    pub(super) name: Option<Vec<u8>>,
    /// Attributes of the inode there, if there is one.
    pub(super) found: Option<Attr>,
    /// The path ends in a slash.
    is_slashed: bool,
}

impl PathEnd {
    /// Attributes of the inode there.
    pub(super) fn attr(self) -> Result<Attr> {
        self.found.ok_or(FsError::NotFound)
    }

    /// The name for a new entry. The file system finds out whether it is taken.
    pub(super) fn free_name(&self, kind: FileKind) -> Result<&[u8]> {
        let is_free = self.found.is_none();
        match &self.name {
            None => Err(FsError::Exists),
            Some(_) if is_free && self.names_no(kind) => Err(FsError::NotFound),
            Some(name) => Ok(name),
        }
    }

    /// Whether the path cannot be that of an inode of this kind, for its slash.
    pub(super) fn names_no(&self, kind: FileKind) -> bool {
        self.is_slashed && kind != FileKind::Directory
    }

    /// The directory and the name, for an operation that changes an entry.
    pub(super) fn entry(&self) -> Result<(Ino, &[u8])> {
        if self.found.as_ref().is_some_and(|found| self.names_no(found.kind)) {
            return Err(FsError::NotDirectory);
        }
        let name = self.name.as_deref();
        let what = "the root, `.` and `..` are not entries to remove or rename";
        Ok((self.dir, name.ok_or(FsError::Invalid { what })?))
    }
}

/// Finds out where `path` leads. Only the last component may be missing.
pub(super) fn find(fs: &dyn FileSystem, path: &[u8], purpose: Purpose) -> Result<PathEnd> {
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
        let follows = match purpose {
            Purpose::Inode(links) => links == Links::Follow || is_slashed,
            Purpose::Entry => false,
        };
        match found {
            Some(link) if link.kind == FileKind::Symlink && follows => {
                path = walk.target(link.ino)?;
                start = dir;
                is_slashed |= ends_in_slash(&path);
            }
            Some(attr)
                if purpose != Purpose::Entry && is_slashed && attr.kind != FileKind::Directory =>
            {
                return Err(FsError::NotDirectory);
            }
            _ => return Ok(PathEnd { dir, name: Some(name), found, is_slashed }),
        }
    }
}

/// The path of the directory that the last component stands in; `None` if the path has only one.
pub(super) fn above(path: &Path) -> Option<&Path> {
    let bytes = path.as_os_str().as_bytes();
    let name_end = bytes.iter().rposition(|byte| *byte != b'/')?;
    let slash = bytes[..name_end].iter().rposition(|byte| *byte == b'/')?;
    (slash > 0).then(|| Path::new(OsStr::from_bytes(&bytes[..slash])))
}

fn ends_in_slash(path: &[u8]) -> bool {
    path.ends_with(b"/")
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
            if name == b"." {
                continue;
            }
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
        ahead.extend(names.filter(|name| !name.is_empty()).map(<[u8]>::to_vec));
        Ok(())
    }

    fn target(&mut self, link: Ino) -> Result<Vec<u8>> {
        self.links_left = self.links_left.checked_sub(1).ok_or(FsError::LinkLoop)?;
        self.fs.readlink(link)
    }
}
