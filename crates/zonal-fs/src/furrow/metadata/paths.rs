//! Paths: where an inode lies in the tree, for messages.
//!
//! Only directory entries lead to an inode, and a directory names its parent. [`Paths`] reads rows
//! from the drive, before a mount has its state. A running mount looks only at memory, because the
//! drive may be at fault.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use zonal::shown;

use crate::furrow::drive::Drive;
use crate::furrow::format::row::{Row, decode};
use crate::furrow::metadata::{Body, Directory, State};
use crate::furrow::table::key::{Key, KeySpan, RowKind};
use crate::furrow::table::view::View;
use crate::vfs::Ino;

/// Directories above each other that are followed, at most.
const DEPTH_MAX: usize = 4096;

/// Entries in memory that one search looks at, at most: the state is locked meanwhile.
const ENTRIES_MAX: usize = 1 << 20;

/// Where an entry is.
type Entry = (u64, Box<[u8]>);

/// Of inodes, an entry that leads to each.
pub(in crate::furrow) type Entries = BTreeMap<u64, Entry>;

/// Paths of inodes, by rows.
pub(in crate::furrow) struct Paths {
    entries: Entries,
    /// Of directories; empty for the root.
    directories: BTreeMap<u64, Option<String>>,
}

impl Paths {
    /// Of the inodes to which these entries lead.
    pub(in crate::furrow) fn of(entries: Entries) -> Self {
        let directories = BTreeMap::from([(Ino::ROOT.get(), Some(String::new()))]);
        Self { entries, directories }
    }

    /// The path of an inode, if one leads there from the root.
    pub(in crate::furrow) fn path(
        &mut self,
        drive: &Drive,
        view: &View,
        ino: Ino,
    ) -> Option<String> {
        if ino == Ino::ROOT {
            return Some("/".into());
        }
        let (parent, name) = self.entries.get(&ino.get())?.clone();
        let home = self.directory(drive, view, parent)?;
        Some(format!("{home}/{}", shown(OsStr::from_bytes(&name))))
    }

    /// The path of a directory.
    fn directory(&mut self, drive: &Drive, view: &View, ino: u64) -> Option<String> {
        let mut below: Vec<(u64, Box<[u8]>)> = Vec::new();
        let mut at = ino;
        let mut path = loop {
            if let Some(known) = self.directories.get(&at) {
                break known.clone();
            }
            let found = if below.len() < DEPTH_MAX { entry_of(drive, view, at) } else { None };
            let Some((parent, name)) = found else { break None };
            below.push((at, name));
            at = parent;
        };
        while let Some((directory, name)) = below.pop() {
            path = path.map(|path| format!("{path}/{}", shown(OsStr::from_bytes(&name))));
            self.directories.insert(directory, path.clone());
        }
        path
    }
}

/// The parent of a directory, and the name of the entry there. `None` if a row cannot be read.
fn entry_of(drive: &Drive, view: &View, ino: u64) -> Option<Entry> {
    let value = view.row(drive, Key::new(RowKind::Inode, ino, 0)).ok()??;
    let Ok(Row::Inode(row, _)) = decode(Key::new(RowKind::Inode, ino, 0), &value) else {
        return None;
    };
    let parent = row.parent.get();
    let mut found = None;
    let end = Key::new(RowKind::Entry, parent, u64::MAX);
    let mut from = Key::new(RowKind::Entry, parent, 0);
    while from < end && found.is_none() {
        let rows = view.rows(drive, KeySpan::new(from, end), 1024).ok()?;
        found = rows.rows.iter().find_map(|(key, value)| match decode(*key, value) {
            Ok(Row::Entry(row, name)) if row.ino.get() == ino => Some(name.into()),
            Ok(_) | Err(_) => None,
        });
        from = rows.end;
    }
    Some((parent, found?))
}

impl State {
    pub(in crate::furrow) fn known_path(&self, ino: Ino) -> Option<String> {
        let mut names: Vec<String> = Vec::new();
        let (mut at, mut looked_at) = (ino, 0);
        while at != Ino::ROOT && names.len() < DEPTH_MAX {
            let (home, name) = match self.inodes.peek(at).map(|inode| &inode.body) {
                Some(Body::Directory(directory)) => {
                    let home = directory.parent;
                    let directory = self.inodes.peek(home)?.directory().ok()?;
                    (home, name_in(directory, at, &mut looked_at)?)
                }
                Some(Body::File(_) | Body::Symlink(_) | Body::Special) | None => {
                    let directories = self
                        .inodes
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
