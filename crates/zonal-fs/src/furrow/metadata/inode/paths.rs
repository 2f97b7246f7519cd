//! Paths: where an inode lies in the tree, for messages of a running mount.
//!
//! Only directory entries lead to an inode, and a directory names its parent.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use zonal::shown;

use crate::furrow::metadata::directory::Directory;
use crate::furrow::metadata::inode::Body;
use crate::furrow::metadata::inode::inodes::Inodes;
use crate::vfs::Ino;

/// Directories above each other that are followed, at most.
pub(in crate::furrow) const DEPTH_MAX: usize = 4096;

/// Entries in memory that one search looks at, at most: the state is locked meanwhile.
const ENTRIES_MAX: usize = 1 << 20;

impl Inodes {
    /// The path of an inode, as far as memory has it: the drive may be at fault.
    pub(in crate::furrow) fn known_path(&self, ino: Ino) -> Option<String> {
        let mut names: Vec<String> = Vec::new();
        let (mut at, mut looked_at) = (ino, 0);
        while at != Ino::ROOT && names.len() < DEPTH_MAX {
            let (home, name) = match self.peek(at).map(|inode| &inode.body) {
                Some(Body::Directory(directory)) => {
                    let home = directory.parent;
                    let directory = self.peek(home)?.directory().ok()?;
                    (home, name_in(directory, at, &mut looked_at)?)
                }
                Some(Body::File(_) | Body::Symlink(_) | Body::Special) | None => {
                    let directories = self
                        .iter()
                        .filter_map(|(home, inode)| Some((home, inode.directory().ok()?)));
                    let mut found = directories.map_while(|(home, directory)| {
                        let is_enough = looked_at > ENTRIES_MAX;
                        (!is_enough).then(|| (home, name_in(directory, at, &mut looked_at)))
                    });
                    found.find_map(|(home, name)| Some((home, name?)))?
                }
            };
            names.push(shown(OsStr::from_bytes(name)));
            at = home;
        }
        names.reverse();
        (at == Ino::ROOT).then(|| format!("/{}", names.join("/")))
    }
}

/// The name under which an inode is entered in a directory.
fn name_in<'a>(directory: &'a Directory, ino: Ino, looked_at: &mut usize) -> Option<&'a [u8]> {
    let mut entries = directory.by_hash.iter();
    let found = entries.find(|named| {
        *looked_at += 1;
        named.ino == ino
    });
    found.map(|named| &named.name[..])
}

#[cfg(test)]
mod tests {
    use crate::furrow::sample::formatted;
    use crate::furrow::{Furrow, MountOptions};
    use crate::vfs::{Caller, FileKind, FileSystem, Ino, NewInode, RenameFlags};

    #[test]
    fn path_is_current_or_none() {
        let (drive, clock) = formatted(48, 512);
        let fs = Furrow::mount(drive.clone(), clock.clone(), MountOptions::default()).unwrap();
        let make = |home: Ino, name: &str, kind: FileKind| {
            let new = NewInode { kind, perm: 0o700, rdev: 0, target: b"" };
            fs.create(&Caller::ROOT, home, name.as_bytes(), &new).unwrap().ino
        };
        let outer = make(Ino::ROOT, "outer", FileKind::Directory);
        let inner = make(outer, "in\ner", FileKind::Directory);
        let file = make(inner, "file", FileKind::Regular);
        assert_eq!(fs.path(Ino::ROOT).as_deref(), Some("/"));
        assert_eq!(fs.path(inner).as_deref(), Some("/outer/in\\ner"));
        assert_eq!(fs.path(file).as_deref(), Some("/outer/in\\ner/file"));
        fs.rename((inner, b"file"), (Ino::ROOT, b"moved"), RenameFlags::empty()).unwrap();
        assert_eq!(fs.path(file).as_deref(), Some("/moved"));
        fs.pin(file).unwrap();
        fs.unlink(Ino::ROOT, b"moved").unwrap();
        assert_eq!(fs.path(file), None);
        assert_eq!(fs.path(Ino::new(99_999)), None);
        fs.unpin(file);
        fs.shutdown().unwrap();
        drop(fs);
        // After a mount no entry is in memory. A search for a path reads none, so it finds a path
        // only after lookups.
        let fs = Furrow::mount(drive, clock, MountOptions::default()).unwrap();
        let before = fs.stats().read_bytes;
        assert_eq!(fs.path(inner), None);
        assert_eq!(fs.stats().read_bytes, before);
        let outer = fs.lookup(Ino::ROOT, b"outer").unwrap().ino;
        let inner = fs.lookup(outer, b"in\ner").unwrap().ino;
        assert_eq!(fs.path(inner).as_deref(), Some("/outer/in\\ner"));
    }
}
