//! Handles of inodes of any kind, and of directories.

use std::ffi::{OsStr, OsString};
use std::ops::Deref;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{Error, Result, VolumeState};
use crate::vfs::{
    self, Attr, Caller, FileKind, FileSystem, Ino, Listing, SetAttr, SyncKind, XattrMode,
};

/// Entries of a directory that one call fetches.
const ENTRIES: usize = 256;

/// An inode of any kind, kept alive while this lives: attributes, and what [`File`](super::File)
/// and [`Dir`] have in common.
pub struct Node {
    shared: Arc<VolumeState>,
    ino: Ino,
    path: PathBuf,
    caller: Caller,
}

impl Node {
    /// Takes over one pin of the inode.
    pub(super) fn pinned(shared: Arc<VolumeState>, ino: Ino, path: &Path, caller: Caller) -> Self {
        Self { shared, ino, path: path.to_owned(), caller }
    }

    pub(super) fn shared(&self) -> &VolumeState {
        &self.shared
    }

    pub(super) fn caller(&self) -> &Caller {
        &self.caller
    }

    /// Runs `action` on the inode.
    pub(super) fn run<T>(
        &self,
        doing: &'static str,
        action: impl FnOnce(&dyn FileSystem, Ino) -> vfs::Result<T>,
    ) -> Result<T> {
        let outcome = self.shared.run(|fs| action(fs, self.ino));
        outcome.map_err(|error| Error::new(doing, &self.path, error))
    }

    /// The path by which it was opened. By now the inode may have another name, or none.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Number of the inode. No other inode ever gets it.
    pub fn ino(&self) -> Ino {
        self.ino
    }

    /// Attributes.
    pub fn metadata(&self) -> Result<Attr> {
        self.run("asking for attributes of", |fs, ino| fs.getattr(ino))
    }

    /// Changes attributes: mode bits, owner, length, times, flags.
    pub fn set_metadata(&self, set: &SetAttr) -> Result<Attr> {
        self.run("changing attributes of", |fs, ino| fs.setattr(&self.caller, ino, set))
    }

    /// Value of an extended attribute.
    pub fn xattr(&self, name: impl AsRef<OsStr>) -> Result<Vec<u8>> {
        let name = name.as_ref().as_bytes();
        self.run("reading an attribute of", |fs, ino| fs.getxattr(ino, name))
    }

    /// Sets an extended attribute.
    pub fn set_xattr(&self, name: impl AsRef<OsStr>, value: &[u8], mode: XattrMode) -> Result<()> {
        let name = name.as_ref().as_bytes();
        self.run("setting an attribute of", |fs, ino| {
            fs.setxattr(&self.caller, ino, name, value, mode)
        })
    }

    /// Names of the extended attributes.
    pub fn xattrs(&self) -> Result<Vec<OsString>> {
        let names = self.run("listing attributes of", |fs, ino| fs.listxattr(ino))?;
        Ok(names.into_iter().map(OsString::from_vec).collect())
    }

    /// Removes an extended attribute.
    pub fn remove_xattr(&self, name: impl AsRef<OsStr>) -> Result<()> {
        let name = name.as_ref().as_bytes();
        self.run("removing an attribute of", |fs, ino| fs.removexattr(ino, name))
    }

    /// Makes content and attributes durable (`fsync`); of a directory, its entries.
    pub fn sync_all(&self) -> Result<()> {
        self.run("syncing", |fs, ino| fs.fsync(ino, SyncKind::Full))
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // A closed volume has no pins any more.
        let _ = self.shared.run(|fs| {
            fs.unpin(self.ino);
            Ok(())
        });
    }
}

/// An open directory.
pub struct Dir {
    node: Node,
}

impl Dir {
    pub(super) fn new(node: Node) -> Self {
        Self { node }
    }

    /// Its entries, without `.` and `..`, in no particular order. Entries that are created or
    /// removed meanwhile may be listed or not; all others are listed once.
    pub fn entries(self) -> Entries {
        Entries { dir: self, cookie: 0, fetched: Vec::new().into_iter(), is_over: false }
    }
}

impl Deref for Dir {
    type Target = Node;

    fn deref(&self) -> &Node {
        &self.node
    }
}

/// One entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its name.
    pub name: OsString,
    /// Kind of its inode.
    pub kind: FileKind,
    /// Number of its inode.
    pub ino: Ino,
}

/// The entries of a directory. No lock is held between two of them.
pub struct Entries {
    dir: Dir,
    cookie: u64,
    fetched: std::vec::IntoIter<Entry>,
    is_over: bool,
}

impl Entries {
    fn fetch(&mut self) -> Result<()> {
        let mut fetched = Vec::new();
        let mut cookie = self.cookie;
        self.dir.run("listing", |fs, ino| {
            fs.readdir(ino, cookie, &mut |entry| {
                if fetched.len() == ENTRIES {
                    return Listing::Enough;
                }
                cookie = entry.cookie;
                if entry.name != b"." && entry.name != b".." {
                    let name = OsStr::from_bytes(entry.name).to_owned();
                    fetched.push(Entry { name, kind: entry.kind, ino: entry.ino });
                }
                Listing::More
            })
        })?;
        self.is_over = fetched.len() < ENTRIES;
        self.cookie = cookie;
        self.fetched = fetched.into_iter();
        Ok(())
    }
}

impl Iterator for Entries {
    type Item = Result<Entry>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(entry) = self.fetched.next() {
            return Some(Ok(entry));
        }
        if self.is_over {
            return None;
        }
        if let Err(error) = self.fetch() {
            self.is_over = true;
            return Some(Err(error));
        }
        self.fetched.next().map(Ok)
    }
}
