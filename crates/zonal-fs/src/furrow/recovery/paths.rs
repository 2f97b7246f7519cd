//! Paths: where an inode lies in the tree, for messages.
//!
//! Only directory entries lead to an inode, and a directory names its parent. [`Paths`] reads rows
//! from the drive, before a mount has its state.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use zonal::shown;

use crate::furrow::drive::Drive;
use crate::furrow::format::row::{Row, decode};
use crate::furrow::metadata::inode::paths::DEPTH_MAX;
use crate::furrow::table::key::{Key, KeySpan, RowKind};
use crate::furrow::table::view::View;
use crate::vfs::Ino;

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
