//! Names, numbers and attributes of the control directory's files.

use zonal_fs::FsError;
use zonal_fs::vfs::{Attr, DirEntry, FileKind, Ino, InodeFlags, Listing, Result};

use super::{Control, OWN, is_own};

/// The directory.
const DIRECTORY: Ino = OWN;

/// Number of the first file.
const FIRST: u64 = OWN.get() + 1;

/// A file of the directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum File {
    Stats,
    Zones,
    Command,
    /// The counters as a page for people.
    Page,
    /// The counters for Prometheus.
    Metrics,
    /// What each zone is used for.
    Map,
    /// One counter.
    Counter(&'static str),
}

impl File {
    /// The files that every file system has, in the order of their numbers.
    const ALWAYS: [Self; 6] =
        [Self::Stats, Self::Zones, Self::Command, Self::Page, Self::Metrics, Self::Map];

    fn name(self) -> &'static str {
        match self {
            Self::Stats => "stats",
            Self::Zones => "zones",
            Self::Command => "command",
            Self::Page => "page",
            Self::Metrics => "metrics",
            Self::Map => "map",
            Self::Counter(name) => name,
        }
    }

    fn perm(self) -> u16 {
        match self {
            Self::Stats
            | Self::Zones
            | Self::Page
            | Self::Metrics
            | Self::Map
            | Self::Counter(_) => 0o444,
            Self::Command => 0o200,
        }
    }
}

impl Control {
    /// Every file with its number.
    fn files(&self) -> impl Iterator<Item = (Ino, File)> {
        let counters = self.inspected.attributes().iter().map(|&name| File::Counter(name));
        (FIRST..).map(Ino::new).zip(File::ALWAYS.into_iter().chain(counters))
    }

    /// The file of this number.
    pub(super) fn file(&self, ino: Ino) -> Result<File> {
        if ino == DIRECTORY {
            return Err(FsError::IsDirectory);
        }
        self.files()
            .find(|(number, _)| *number == ino)
            .map(|(_, file)| file)
            .ok_or(FsError::NotFound)
    }

    /// Finds the directory from the root, or an entry of the directory.
    pub(super) fn find(&self, parent: Ino, name: &[u8]) -> Result<Attr> {
        if !is_own(parent) {
            return self.attr(DIRECTORY);
        }
        if parent != DIRECTORY {
            return Err(FsError::NotDirectory);
        }
        match name {
            b"." => self.attr(DIRECTORY),
            b".." => self.fs.getattr(self.fs.root()),
            name => {
                let mut files = self.files();
                let found = files.find(|(_, file)| file.name().as_bytes() == name);
                self.attr(found.ok_or(FsError::NotFound)?.0)
            }
        }
    }

    pub(super) fn attr(&self, ino: Ino) -> Result<Attr> {
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
            // As in sysfs and procfs: how much there is shows when it is read.
            size: 0,
            blocks: 0,
            atime: born,
            mtime: born,
            ctime: born,
            btime: born,
            flags: InodeFlags::empty(),
        })
    }

    pub(super) fn list(
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
