//! The tree in which the work runs: a mounted directory, or the file system as a library. The same
//! work runs on both.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use zonal_fs::vfs::FileKind;
use zonal_fs::volume::{File as LibraryFile, Volume as Library};

/// The kind of an entry of a directory.
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

/// The file system in this process, without a kernel.
impl Volume for Library {
    fn make_dir(&self, path: &Path) -> Result<()> {
        Ok(self.create_dir(path)?)
    }

    fn make_link(&self, path: &Path, target: &Path) -> Result<()> {
        Ok(self.symlink(target, path)?)
    }

    fn link_target(&self, path: &Path) -> Result<PathBuf> {
        Ok(self.read_link(path)?)
    }

    fn create(&self, path: &Path) -> Result<Box<dyn Handle + '_>> {
        Ok(Box::new(Self::create(self, path)?))
    }

    fn open(&self, path: &Path) -> Result<Box<dyn Handle + '_>> {
        Ok(Box::new(Self::open(self, path)?))
    }

    fn rename(&self, source: &Path, target: &Path) -> Result<()> {
        Ok(Self::rename(self, source, target)?)
    }

    fn remove(&self, path: &Path) -> Result<()> {
        Ok(self.remove_file(path)?)
    }

    fn list(&self, path: &Path) -> Result<Vec<(OsString, Kind)>> {
        let mut entries = Vec::new();
        for entry in self.read_dir(Path::new("/").join(path))? {
            let entry = entry?;
            let kind = match entry.kind {
                FileKind::Directory => Kind::Directory,
                FileKind::Symlink => Kind::Link,
                FileKind::Regular
                | FileKind::Fifo
                | FileKind::Socket
                | FileKind::CharDevice
                | FileKind::BlockDevice => Kind::File,
            };
            entries.push((entry.name, kind));
        }
        Ok(entries)
    }
}

impl Handle for LibraryFile {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        Ok(Self::read_at(self, buffer, offset)?)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> Result<()> {
        Ok(self.write_all_at(data, offset)?)
    }

    fn sync(&self) -> Result<()> {
        Ok(self.sync_all()?)
    }
}
