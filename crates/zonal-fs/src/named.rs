//! What messages call a file.

use std::fmt;

use crate::vfs::{FileSystem, Ino};

/// Shows an inode as its path, or as its number where no path is known. The path is looked for when
/// it is shown, so that a message that nobody gets costs nothing.
#[derive(Clone, Copy)]
pub struct Named<'a> {
    fs: &'a dyn FileSystem,
    ino: Ino,
}

impl<'a> Named<'a> {
    /// Names an inode of a file system, of which no lock may be held when it is shown.
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
