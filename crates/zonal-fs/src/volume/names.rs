//! Operations by path: create, open, move and remove entries.

use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::path::{self, Links, PathEnd, Purpose};
use super::{Dir, Entries, Error, File, Node, OpenFlags, Result, Volume};
use crate::FsError;
use crate::protect;
use crate::vfs::{
    self, Access, Attr, FileKind, FileModel, FileSystem, Ino, NewInode, OpenFor, RenameFlags,
    WriteFlags,
};

/// Permission bits of files that [`Volume::create`] makes, before the umask.
const FILE_PERM: u16 = 0o644;

/// Permission bits of directories, before the umask.
const DIR_PERM: u16 = 0o755;

impl Volume {
    /// Opens a file for reading.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<File> {
        self.open_with(path, OpenFlags::READ, 0)
    }

    /// Opens a file for reading and writing: a new one, or an existing one that is emptied.
    pub fn create(&self, path: impl AsRef<Path>) -> Result<File> {
        self.open_with(path, OpenFlags::CREATED, FILE_PERM)
    }

    /// Opens a file with `flags`. A new file gets the permission bits `perm`, less the umask.
    pub fn open_with(&self, path: impl AsRef<Path>, flags: OpenFlags, perm: u16) -> Result<File> {
        let path = path.as_ref();
        let doing = if flags.intersects(OpenFlags::ANY_CREATE) { "creating" } else { "opening" };
        let opened = self.pin_file(path, flags, perm);
        let (ino, model) = opened.map_err(|error| Error::new(doing, path, error))?;
        let file = File::opened(self.node_of(ino, path), flags, model);
        file.open()?;
        Ok(file)
    }

    /// Opens a directory.
    pub fn open_dir(&self, path: impl AsRef<Path>) -> Result<Dir> {
        let path = path.as_ref();
        let node = self.node(path, Links::Follow)?;
        if node.metadata()?.kind == FileKind::Directory {
            Ok(Dir::new(node))
        } else {
            Err(Error::new("opening directory", path, FsError::NotDirectory))
        }
    }

    /// The entries of a directory.
    pub fn read_dir(&self, path: impl AsRef<Path>) -> Result<Entries> {
        self.open_dir(path).map(Dir::entries)
    }

    /// A handle of the inode at `path`, of any kind, for its attributes.
    pub fn node(&self, path: impl AsRef<Path>, links: Links) -> Result<Node> {
        let path = path.as_ref();
        // Between lookup and pin the inode may be removed and another get its name: then pin that
        // one.
        loop {
            let pinned = self.at("opening", path, Purpose::Inode(links), |fs, place| {
                let ino = place.attr()?.ino;
                match fs.pin(ino) {
                    Err(FsError::NotFound) => Ok(None),
                    pinned => pinned.map(|()| Some(ino)),
                }
            })?;
            if let Some(ino) = pinned {
                return Ok(self.node_of(ino, path));
            }
        }
    }

    /// Attributes of the inode at `path`, through symbolic links.
    pub fn metadata(&self, path: impl AsRef<Path>) -> Result<Attr> {
        let doing = "asking for attributes of";
        self.at(doing, path.as_ref(), Purpose::Inode(Links::Follow), |_, place| place.attr())
    }

    /// Attributes of the inode at `path` itself, which may be a symbolic link.
    pub fn symlink_metadata(&self, path: impl AsRef<Path>) -> Result<Attr> {
        let doing = "asking for attributes of";
        self.at(doing, path.as_ref(), Purpose::Inode(Links::Keep), |_, place| place.attr())
    }

    /// All of a file's content.
    pub fn read(&self, path: impl AsRef<Path>) -> Result<Vec<u8>> {
        self.open(path)?.read_to_end()
    }

    /// Writes a file with this content, new or in place of the old content.
    pub fn write(&self, path: impl AsRef<Path>, content: &[u8]) -> Result<()> {
        self.create(path)?.write_all_at(content, 0)
    }

    /// Creates a directory.
    pub fn create_dir(&self, path: impl AsRef<Path>) -> Result<()> {
        let new = NewInode { kind: FileKind::Directory, perm: DIR_PERM, rdev: 0, target: b"" };
        self.create_node(path, &new).map(drop)
    }

    /// Creates a directory and its missing parents.
    pub fn create_dir_all(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        let made = match (self.create_dir(path), path::above(path)) {
            (Err(error), Some(above)) if matches!(error.reason(), FsError::NotFound) => {
                self.create_dir_all(above)?;
                self.create_dir(path)
            }
            (made, _) => made,
        };
        match made {
            Err(error) if matches!(error.reason(), FsError::Exists) => match self.metadata(path) {
                Ok(attr) if attr.kind == FileKind::Directory => Ok(()),
                Ok(_) | Err(_) => Err(error),
            },
            outcome => outcome,
        }
    }

    /// Creates an inode of any kind.
    pub fn create_node(&self, path: impl AsRef<Path>, new: &NewInode<'_>) -> Result<Attr> {
        self.at("creating", path.as_ref(), Purpose::Entry, |fs, place| {
            fs.create(&self.caller, place.dir, place.free_name(new.kind)?, new)
        })
    }

    /// Creates a symbolic link to `target`.
    pub fn symlink(&self, target: impl AsRef<Path>, link: impl AsRef<Path>) -> Result<()> {
        let target = target.as_ref().as_os_str().as_bytes();
        let new = NewInode { kind: FileKind::Symlink, perm: 0o777, rdev: 0, target };
        self.create_node(link, &new).map(drop)
    }

    /// The target of a symbolic link.
    pub fn read_link(&self, path: impl AsRef<Path>) -> Result<PathBuf> {
        let target =
            self.at("reading link", path.as_ref(), Purpose::Inode(Links::Keep), |fs, place| {
                fs.readlink(place.attr()?.ino)
            });
        Ok(std::ffi::OsString::from_vec(target?).into())
    }

    /// Gives a file one more name. If `original` is a symbolic link, the link itself gets the name.
    pub fn hard_link(&self, original: impl AsRef<Path>, link: impl AsRef<Path>) -> Result<()> {
        let link = link.as_ref();
        self.at("linking", original.as_ref(), Purpose::Inode(Links::Keep), |fs, place| {
            let original = place.attr()?;
            let place = path::find(fs, link.as_os_str().as_bytes(), Purpose::Entry)?;
            fs.link(original.ino, place.dir, place.free_name(original.kind)?).map(drop)
        })
    }

    /// Removes the entry of anything but a directory.
    pub fn remove_file(&self, path: impl AsRef<Path>) -> Result<()> {
        self.at("removing", path.as_ref(), Purpose::Entry, |fs, place| {
            let (dir, name) = place.entry()?;
            fs.unlink(dir, name)
        })
    }

    /// Removes an empty directory.
    pub fn remove_dir(&self, path: impl AsRef<Path>) -> Result<()> {
        self.at("removing directory", path.as_ref(), Purpose::Entry, |fs, place| {
            let (dir, name) = place.entry()?;
            fs.rmdir(dir, name)
        })
    }

    /// Moves an entry, replacing one at `to`. It is atomic: no reader sees both names or neither.
    pub fn rename(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<()> {
        self.rename_with(from, to, RenameFlags::empty())
    }

    /// Moves an entry with `flags`.
    pub fn rename_with(
        &self,
        from: impl AsRef<Path>,
        to: impl AsRef<Path>,
        flags: RenameFlags,
    ) -> Result<()> {
        let to = to.as_ref().as_os_str().as_bytes();
        self.at("renaming", from.as_ref(), Purpose::Entry, |fs, from| {
            let moved = from.found.ok_or(FsError::NotFound)?.kind;
            let to = path::find(fs, to, Purpose::Entry)?;
            if to.names_no(moved) {
                return Err(FsError::NotDirectory);
            }
            fs.rename(from.entry()?, to.entry()?, flags)
        })
    }

    fn node_of(&self, ino: Ino, path: &Path) -> Node {
        Node::pinned(Arc::clone(&self.owner.shared), ino, path, self.caller)
    }

    /// Finds or creates a file, and pins it.
    fn pin_file(&self, path: &Path, flags: OpenFlags, perm: u16) -> vfs::Result<(Ino, FileModel)> {
        let keeps = flags.intersects(OpenFlags::CREATE_NEW | OpenFlags::NO_FOLLOW);
        let purpose = Purpose::Inode(if keeps { Links::Keep } else { Links::Follow });
        let bytes = path.as_os_str().as_bytes();
        let new = NewInode { kind: FileKind::Regular, perm, rdev: 0, target: b"" };
        // Another thread may remove the file before the pin, or create it after the lookup.
        loop {
            let pinned = self.owner.shared.run(|fs| {
                let place = path::find(fs, bytes, purpose)?;
                let attr = match place.found {
                    Some(_) if flags.contains(OpenFlags::CREATE_NEW) => {
                        return Err(FsError::Exists);
                    }
                    Some(attr) => {
                        check_open(fs, &attr, flags)?;
                        attr
                    }
                    None if flags.intersects(OpenFlags::ANY_CREATE) => {
                        match make(fs, &place, |fs, name| {
                            fs.create(&self.caller, place.dir, name, &new)
                        })? {
                            Some(attr) => attr,
                            None => return Ok(None),
                        }
                    }
                    None => return Err(FsError::NotFound),
                };
                match fs.pin(attr.ino) {
                    Err(FsError::NotFound) => Ok(None),
                    pinned => pinned.map(|()| Some((attr.ino, fs.model(attr.ino)))),
                }
            })?;
            if let Some(pinned) = pinned {
                return Ok(pinned);
            }
        }
    }
}

/// Creates a file; `None` if another thread has created it first.
fn make(
    fs: &dyn FileSystem,
    place: &PathEnd,
    create: impl FnOnce(&dyn FileSystem, &[u8]) -> vfs::Result<Attr>,
) -> vfs::Result<Option<Attr>> {
    match create(fs, place.free_name(FileKind::Regular)?) {
        Err(FsError::Exists) => Ok(None),
        made => made.map(Some),
    }
}

/// Checks that an inode can be opened as a file.
fn check_open(fs: &dyn FileSystem, attr: &Attr, flags: OpenFlags) -> vfs::Result<()> {
    match attr.kind {
        FileKind::Regular => {}
        FileKind::Directory => return Err(FsError::IsDirectory),
        FileKind::Symlink => return Err(FsError::LinkLoop),
        FileKind::Fifo | FileKind::Socket | FileKind::CharDevice | FileKind::BlockDevice => {
            return Err(FsError::Invalid { what: "only regular files have content here" });
        }
    }
    if flags.purpose() == OpenFor::Reading {
        return Ok(());
    }
    if fs.access() == Access::ReadOnly {
        return Err(FsError::ReadOnly);
    }
    let mut how = WriteFlags::empty();
    how.set(WriteFlags::APPEND, flags.contains(OpenFlags::APPEND));
    protect::check_open(attr.flags, how)
}
