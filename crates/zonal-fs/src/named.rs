//! Names of files in messages.

use std::fmt;

use crate::vfs::{FileSystem, Ino};

/// Displays an inode as its path, or as its number if the file system knows no path. It looks up
/// the path when it is displayed, so a message that is filtered out costs nothing.
#[derive(Clone, Copy)]
pub struct Named<'a> {
    fs: &'a dyn FileSystem,
    ino: Ino,
}

impl<'a> Named<'a> {
    /// Names an inode. The caller must hold no lock of the file system when it displays the name.
    pub fn new(fs: &'a dyn FileSystem, ino: Ino) -> Self {
        Self { fs, ino }
    }
}

impl fmt::Display for Named<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.fs.path(self.ino) {
            Some(path) => f.write_str(&path),
            None => write!(f, "inode {}", self.ino),
        }
    }
}
