//! Where the work is done: a mounted directory, or the file system as a library. The same work runs
//! on both.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result};
use zonal_fs::FsError;
use zonal_fs::vfs::{
    Caller, FileKind, FileSystem, Ino, Listing, NewInode, RenameFlags, SetAttr, SyncKind,
    WriteFlags,
};

/// What an entry of a directory is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Directory,
    File,
    Link,
}

/// A tree of files. Paths are relative to its root.
pub(super) trait Volume: Sync {
    /// Makes a directory.
    fn make_dir(&self, path: &Path) -> Result<()>;
    /// Makes a symbolic link.
    fn make_link(&self, path: &Path, target: &Path) -> Result<()>;
    /// Where a symbolic link leads.
    fn link_target(&self, path: &Path) -> Result<PathBuf>;
    /// Makes a file, or empties one.
    fn create(&self, path: &Path) -> Result<Box<dyn Handle + '_>>;
    /// Opens a file for reading.
    fn open(&self, path: &Path) -> Result<Box<dyn Handle + '_>>;
    /// Moves an entry over another.
    fn rename(&self, source: &Path, target: &Path) -> Result<()>;
    /// Removes a file.
    fn remove(&self, path: &Path) -> Result<()>;
    /// Entries of a directory.
    fn list(&self, path: &Path) -> Result<Vec<(OsString, Kind)>>;
}

/// An open file.
pub(super) trait Handle: Send {
    /// Reads at an offset; 0 at the end.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize>;
    /// Writes all of `data` at an offset.
    fn write_at(&self, offset: u64, data: &[u8]) -> Result<()>;
    /// Makes the file durable.
    fn sync(&self) -> Result<()>;
}

/// A mounted file system, through the kernel.
pub(super) struct Mounted {
    root: PathBuf,
}

impl Mounted {
    pub(super) fn new(root: &Path) -> Self {
        Self { root: root.to_owned() }
    }

    fn at(&self, path: &Path) -> PathBuf {
        self.root.join(path)
    }
}

fn on<T>(path: &Path, what: &str, outcome: std::io::Result<T>) -> Result<T> {
    outcome.with_context(|| format!("{what} {}", path.display()))
}

impl Volume for Mounted {
    fn make_dir(&self, path: &Path) -> Result<()> {
        on(path, "making directory", fs::create_dir(self.at(path)))
    }

    fn make_link(&self, path: &Path, target: &Path) -> Result<()> {
        on(path, "making link", std::os::unix::fs::symlink(target, self.at(path)))
    }

    fn link_target(&self, path: &Path) -> Result<PathBuf> {
        on(path, "reading link", fs::read_link(self.at(path)))
    }

    fn create(&self, path: &Path) -> Result<Box<dyn Handle + '_>> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(true);
        let file = on(path, "creating", options.open(self.at(path)))?;
        Ok(Box::new(MountedFile { file, path: path.to_owned() }))
    }

    fn open(&self, path: &Path) -> Result<Box<dyn Handle + '_>> {
        let file = on(path, "opening", File::open(self.at(path)))?;
        Ok(Box::new(MountedFile { file, path: path.to_owned() }))
    }

    fn rename(&self, source: &Path, target: &Path) -> Result<()> {
        on(source, "renaming", fs::rename(self.at(source), self.at(target)))
    }

    fn remove(&self, path: &Path) -> Result<()> {
        on(path, "removing", fs::remove_file(self.at(path)))
    }

    fn list(&self, path: &Path) -> Result<Vec<(OsString, Kind)>> {
        let mut entries = Vec::new();
        for entry in on(path, "listing", fs::read_dir(self.at(path)))? {
            let entry = on(path, "listing", entry)?;
            let kind = on(path, "listing", entry.file_type())?;
            let kind = if kind.is_dir() {
                Kind::Directory
            } else if kind.is_symlink() {
                Kind::Link
            } else {
                Kind::File
            };
            entries.push((entry.file_name(), kind));
        }
        Ok(entries)
    }
}

struct MountedFile {
    file: File,
    path: PathBuf,
}

impl Handle for MountedFile {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        on(&self.path, "reading", self.file.read_at(buffer, offset))
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> Result<()> {
        on(&self.path, "writing", self.file.write_all_at(data, offset))
    }

    fn sync(&self) -> Result<()> {
        on(&self.path, "syncing", self.file.sync_all())
    }
}

/// The file system itself, without a kernel.
pub(super) struct Library {
    fs: Arc<dyn FileSystem>,
}

impl Library {
    pub(super) fn new(fs: Arc<dyn FileSystem>) -> Self {
        Self { fs }
    }

    fn find(&self, path: &Path) -> Result<Ino, FsError> {
        path.iter().try_fold(Ino::ROOT, |parent, name| {
            self.fs.lookup(parent, name.as_bytes()).map(|attr| attr.ino)
        })
    }

    /// The directory of an entry, and its name.
    fn entry<'p>(&self, path: &'p Path) -> Result<(Ino, &'p [u8]), FsError> {
        let parent = self.find(path.parent().unwrap_or(Path::new("")))?;
        Ok((parent, path.file_name().unwrap_or(OsStr::new("")).as_bytes()))
    }

    fn make(&self, path: &Path, kind: FileKind, target: &Path) -> Result<Ino, FsError> {
        let (parent, name) = self.entry(path)?;
        let perm = if kind == FileKind::Directory { 0o755 } else { 0o644 };
        let new = NewInode { kind, perm, rdev: 0, target: target.as_os_str().as_bytes() };
        self.fs.create(&Caller::ROOT, parent, name, &new).map(|attr| attr.ino)
    }

    fn handle(&self, ino: Ino, path: &Path) -> Box<dyn Handle + '_> {
        Box::new(LibraryFile { fs: &*self.fs, ino, path: path.to_owned() })
    }
}

fn with<T>(path: &Path, what: &str, outcome: Result<T, FsError>) -> Result<T> {
    outcome.with_context(|| format!("{what} {}", path.display()))
}

impl Volume for Library {
    fn make_dir(&self, path: &Path) -> Result<()> {
        let made = self.make(path, FileKind::Directory, Path::new(""));
        with(path, "making directory", made).map(drop)
    }

    fn make_link(&self, path: &Path, target: &Path) -> Result<()> {
        with(path, "making link", self.make(path, FileKind::Symlink, target)).map(drop)
    }

    fn link_target(&self, path: &Path) -> Result<PathBuf> {
        let target = self.find(path).and_then(|ino| self.fs.readlink(ino));
        Ok(OsString::from_vec(with(path, "reading link", target)?).into())
    }

    fn create(&self, path: &Path) -> Result<Box<dyn Handle + '_>> {
        let ino = match self.make(path, FileKind::Regular, Path::new("")) {
            Err(FsError::Exists) => self.find(path).and_then(|ino| {
                let empty = SetAttr { size: Some(0), ..SetAttr::default() };
                self.fs.setattr(&Caller::ROOT, ino, &empty).map(|attr| attr.ino)
            }),
            other => other,
        };
        Ok(self.handle(with(path, "creating", ino)?, path))
    }

    fn open(&self, path: &Path) -> Result<Box<dyn Handle + '_>> {
        Ok(self.handle(with(path, "opening", self.find(path))?, path))
    }

    fn rename(&self, source: &Path, target: &Path) -> Result<()> {
        let renamed = self
            .entry(source)
            .and_then(|from| self.fs.rename(from, self.entry(target)?, RenameFlags::empty()));
        with(source, "renaming", renamed)
    }

    fn remove(&self, path: &Path) -> Result<()> {
        let removed = self.entry(path).and_then(|(parent, name)| self.fs.unlink(parent, name));
        with(path, "removing", removed)
    }

    fn list(&self, path: &Path) -> Result<Vec<(OsString, Kind)>> {
        let mut entries = Vec::new();
        let listed = self.find(path).and_then(|ino| {
            self.fs.readdir(ino, 0, &mut |entry| {
                let kind = match entry.kind {
                    FileKind::Directory => Kind::Directory,
                    FileKind::Symlink => Kind::Link,
                    FileKind::Regular
                    | FileKind::Fifo
                    | FileKind::Socket
                    | FileKind::CharDevice
                    | FileKind::BlockDevice => Kind::File,
                };
                if entry.name != b"." && entry.name != b".." {
                    entries.push((OsString::from_vec(entry.name.to_vec()), kind));
                }
                Listing::More
            })
        });
        with(path, "listing", listed).map(|()| entries)
    }
}

struct LibraryFile<'fs> {
    fs: &'fs dyn FileSystem,
    ino: Ino,
    path: PathBuf,
}

impl Handle for LibraryFile<'_> {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        with(&self.path, "reading", self.fs.read(self.ino, offset, buffer))
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> Result<()> {
        let written = self.fs.write(self.ino, offset, data, WriteFlags::empty());
        with(&self.path, "writing", written).map(drop)
    }

    fn sync(&self) -> Result<()> {
        with(&self.path, "syncing", self.fs.fsync(self.ino, SyncKind::Full))
    }
}
