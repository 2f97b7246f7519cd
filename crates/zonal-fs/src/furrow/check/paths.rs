//! Paths: where what was found lies in the tree.
//!
//! Only entries lead to an inode, so one pass over all entries finds one for each that is wanted. From
//! there it goes up: a directory names the one that it is in.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use zonal::shown;

use super::super::format::row::{Row, decode};
use super::super::table::key::{Key, RowKind};
use super::CheckPhase;
use super::pass::{Item, Source};
use crate::vfs::{Ino, Result};

/// Directories above each other that are followed, at most.
const DEPTH_MAX: usize = 4096;

/// Where an entry is.
type Entry = (u64, Box<[u8]>);

/// Paths of inodes.
pub(super) struct Paths {
    entries: BTreeMap<u64, Entry>,
    /// Of directories; empty for the root.
    directories: BTreeMap<u64, Option<String>>,
}

impl Paths {
    /// Looks for entries that lead to these inodes.
    pub(super) fn find(source: &mut Source<'_>, wanted: &BTreeSet<u64>) -> Result<Self> {
        let mut entries = BTreeMap::new();
        let is_wanted = wanted.iter().any(|&ino| ino != Ino::ROOT.get());
        if is_wanted {
            let range = (Key::BASE_END, Key::new(RowKind::Extent, 0, 0));
            source.pass(CheckPhase::Paths, range, &mut |item| {
                if let Item::Row(key, Row::Entry(row, name), _) = item
                    && wanted.contains(&row.ino.get())
                {
                    entries.entry(row.ino.get()).or_insert_with(|| (key.owner(), name.into()));
                }
            })?;
        }
        let directories = BTreeMap::from([(Ino::ROOT.get(), Some(String::new()))]);
        Ok(Self { entries, directories })
    }

    /// The path of an inode, if one leads there from the root.
    pub(super) fn path(&mut self, source: &Source<'_>, ino: Ino) -> Option<String> {
        if ino == Ino::ROOT {
            return Some("/".into());
        }
        let (parent, name) = self.entries.get(&ino.get())?.clone();
        let home = self.directory(source, parent)?;
        Some(format!("{home}/{}", shown(OsStr::from_bytes(&name))))
    }

    /// The path of a directory.
    fn directory(&mut self, source: &Source<'_>, ino: u64) -> Option<String> {
        let mut below: Vec<(u64, Box<[u8]>)> = Vec::new();
        let mut at = ino;
        let mut path = loop {
            if let Some(known) = self.directories.get(&at) {
                break known.clone();
            }
            let found = if below.len() < DEPTH_MAX { entry_of(source, at) } else { None };
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

/// The entry of a directory in the one that it names. What cannot be read leads nowhere.
fn entry_of(source: &Source<'_>, ino: u64) -> Option<Entry> {
    let value = source.view.row(source.drive, Key::new(RowKind::Inode, ino, 0)).ok()??;
    let Ok(Row::Inode(row, _)) = decode(Key::new(RowKind::Inode, ino, 0), &value) else {
        return None;
    };
    let parent = row.parent.get();
    let mut found = None;
    let end = Key::new(RowKind::Entry, parent, u64::MAX);
    let mut from = Key::new(RowKind::Entry, parent, 0);
    while from < end && found.is_none() {
        let rows = source.view.rows(source.drive, (from, end), 1024).ok()?;
        found = rows.rows.iter().find_map(|(key, value)| match decode(*key, value) {
            Ok(Row::Entry(row, name)) if row.ino.get() == ino => Some(name.into()),
            Ok(_) | Err(_) => None,
        });
        from = rows.end;
    }
    Some((parent, found?))
}
