//! Files of the control directory: names, inodes and attributes.

use zonal_fs::FsError;
use zonal_fs::vfs::{Attr, DirEntry, FileKind, Ino, InodeFlags, Listing, Result};

use super::Control;
use crate::names::{CONTROL_INO, is_control};

/// Inode of the directory.
const DIRECTORY: Ino = CONTROL_INO;

/// Inode of the first file.
const FIRST: u64 = CONTROL_INO.get() + 1;

/// A file of the directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ControlFile {
    Stats,
    Zones,
    Command,
    /// The report as text.
    Page,
    /// The report for Prometheus.
    Metrics,
    /// The use of each zone.
    Map,
    /// The options in force.
    Options,
    /// One counter.
    Counter(&'static str),
}

impl ControlFile {
    /// Files that every file system has, in the order of their inodes.
    const ALWAYS: [Self; 7] = [
        Self::Stats,
        Self::Zones,
        Self::Command,
        Self::Page,
        Self::Metrics,
        Self::Map,
        Self::Options,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Stats => "stats",
            Self::Zones => "zones",
            Self::Command => "command",
            Self::Page => "page",
            Self::Metrics => "metrics",
            Self::Map => "map",
            Self::Options => "options",
            Self::Counter(name) => name,
        }
    }

    fn perm(self) -> u16 {
        match self {
            Self::Command => 0o200,
            Self::Stats
            | Self::Zones
            | Self::Page
            | Self::Metrics
            | Self::Map
            | Self::Options
            | Self::Counter(_) => 0o444,
        }
    }
}

impl Control {
    /// All files with their inodes.
    fn files(&self) -> impl Iterator<Item = (Ino, ControlFile)> {
        let counters = self.inspected.attributes().iter().map(|&name| ControlFile::Counter(name));
        (FIRST..).map(Ino::new).zip(ControlFile::ALWAYS.into_iter().chain(counters))
    }

    /// The file of an inode.
    pub(super) fn file(&self, ino: Ino) -> Result<ControlFile> {
        if ino == DIRECTORY {
            return Err(FsError::IsDirectory);
        }
        self.files()
            .find(|(number, _)| *number == ino)
            .map(|(_, file)| file)
            .ok_or(FsError::NotFound)
    }

    /// Finds an entry of the directory; from any other parent, the directory itself.
    pub fn lookup(&self, parent: Ino, name: &[u8]) -> Result<Attr> {
        if !is_control(parent) {
            return self.getattr(DIRECTORY);
        }
        // Lookups of "." come from file handles, and for any inode.
        if name == b"." {
            return self.getattr(parent);
        }
        if parent != DIRECTORY {
            return Err(FsError::NotDirectory);
        }
        match name {
            b".." => self.fs.getattr(self.fs.root()),
            name => {
                let mut files = self.files();
                let found = files.find(|(_, file)| file.name().as_bytes() == name);
                self.getattr(found.ok_or(FsError::NotFound)?.0)
            }
        }
    }

    /// Attributes of the directory or a file in it.
    pub fn getattr(&self, ino: Ino) -> Result<Attr> {
        let (kind, perm, nlink) = if ino == DIRECTORY {
            (FileKind::Directory, 0o555, 2)
        } else {
            (FileKind::Regular, self.file(ino)?.perm(), 1)
        };
        let (uid, gid) = self.owner;
        let born = self.born;
        Ok(Attr {
            ino,
            kind,
            perm,
            nlink,
            uid,
            gid,
            rdev: 0,
            // Unknown until it is read, as in sysfs and procfs.
            size: 0,
            blocks: 0,
            atime: born,
            mtime: born,
            ctime: born,
            btime: born,
            flags: InodeFlags::empty(),
        })
    }

    /// Lists the directory after `cookie`.
    pub fn list(
        &self,
        ino: Ino,
        cookie: u64,
        each: &mut dyn FnMut(DirEntry<'_>) -> Listing,
    ) -> Result<()> {
        if ino != DIRECTORY {
            return Err(FsError::NotDirectory);
        }
        let directory = FileKind::Directory;
        let dots = [(DIRECTORY, directory, "."), (self.fs.root(), directory, "..")];
        let files = self.files().map(|(ino, file)| (ino, FileKind::Regular, file.name()));
        let all = (1..).zip(dots.into_iter().chain(files));
        for (next, (ino, kind, name)) in all.filter(|(next, _)| *next > cookie) {
            if each(DirEntry { ino, kind, name: name.as_bytes(), cookie: next }) == Listing::Enough
            {
                break;
            }
        }
        Ok(())
    }
}
