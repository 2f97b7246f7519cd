//! Directory entries: lookup by name, insertion and removal, and the name index of large
//! directories.
//!
//! In a directory without an index, a lookup searches all entry rows, and only the one that it
//! finds enters memory. After a few such searches it loads all entries.
//!
//! Memory has rows of an index range by range, like other rows: an operation that changes a row has
//! loaded all of it.

use std::collections::BTreeSet;

use crate::FsError;
use crate::furrow::format::row::entry_bytes;
use crate::furrow::metadata::directory::name_held_bytes;
use crate::furrow::metadata::directory::names::{NameIndex, names_bytes};
use crate::furrow::metadata::missing::Lookup;
use crate::furrow::metadata::{Entry, State};
use crate::furrow::table::key::RowKind;
use crate::vfs::Ino;

impl State {
    /// The entry with a name in a directory.
    pub(in crate::furrow) fn entry(&self, ino: Ino, name: &[u8]) -> Lookup<Option<Entry>> {
        self.names.find(ino, self.inode(ino)?.directory()?, name)
    }

    /// The entry with a name, for a change of it: the rows of the index for this name are in memory
    /// too.
    pub(in crate::furrow) fn entry_to_change(
        &self,
        ino: Ino,
        name: &[u8],
    ) -> Lookup<Option<Entry>> {
        let directory = self.inode(ino)?.directory()?;
        let entry = self.names.find(ino, directory, name)?;
        if directory.index.is_some() {
            directory.check_names(ino, self.names.key.hashed(name))?;
        }
        Ok(entry)
    }

    /// Enters `name` in a directory.
    pub(in crate::furrow) fn insert_entry(
        &mut self,
        parent: Ino,
        name: &[u8],
        ino: Ino,
    ) -> Lookup<()> {
        let kind = self.inode(ino)?.kind;
        let directory = self.change_inode(parent)?.directory_mut()?;
        let cookie = directory.next_cookie;
        directory.next_cookie += 1;
        self.insert_entry_at(parent, name, Entry { ino, cookie, kind })
    }

    /// Enters `name` at a place in the listing that no entry has.
    pub(in crate::furrow) fn insert_entry_at(
        &mut self,
        parent: Ino,
        name: &[u8],
        entry: Entry,
    ) -> Lookup<()> {
        let hash = self.names.key.hash(name);
        self.mark(RowKind::Entry, parent.get(), entry.cookie);
        self.mark_names(parent, hash)?;
        let entries_max = self.names.entries_max;
        let directory = self.change_inode(parent)?.directory_mut()?;
        let held = directory.frame_bytes();
        let before = directory.find(hash, name);
        assert!(before.is_none(), "an entry is removed before its name is used again");
        let sharing = directory.add(hash, name.into(), entry);
        directory.absent.forget(|(absent, _)| absent[..] == *name);
        directory.resident.insert(entry.cookie..entry.cookie.saturating_add(1));
        directory.entries += 1;
        let is_indexed = directory.index.is_some();
        let is_large = directory.entries > entries_max && directory.resident.is_all();
        let held_now = directory.frame_bytes() + name_held_bytes(name);
        self.residency.count(held, held_now);
        self.rows.totals.add_row_bytes(entry_bytes(name));
        self.rows.batch.add_bytes(name.len());
        if is_indexed {
            self.count_names(sharing - 1, sharing);
        } else if is_large {
            self.index_directory(parent)?;
        }
        Ok(())
    }

    /// Takes `name` out of a directory and returns the entry.
    pub(in crate::furrow) fn remove_entry(&mut self, parent: Ino, name: &[u8]) -> Lookup<Entry> {
        let hash = self.names.key.hash(name);
        let directory = self.inode(parent)?.directory()?;
        let entry = directory.find(hash, name).ok_or(FsError::NotFound)?;
        self.mark(RowKind::Entry, parent.get(), entry.cookie);
        self.mark_names(parent, hash)?;
        let directory = self.change_inode(parent)?.directory_mut()?;
        let held = directory.frame_bytes();
        let others = directory.remove(hash, entry.cookie);
        directory.entries = directory.entries.saturating_sub(1);
        let is_indexed = directory.index.is_some();
        let held_now = directory.frame_bytes();
        self.residency.count(held + name_held_bytes(name), held_now);
        self.rows.totals.remove_row_bytes(entry_bytes(name));
        if is_indexed {
            self.count_names(others + 1, others);
        }
        Ok(entry)
    }

    /// The row of the index for a hash is about to change, if the directory has an index.
    fn mark_names(&mut self, ino: Ino, hash: u64) -> Lookup<()> {
        let directory = self.inode(ino)?.directory()?;
        if directory.index.is_some() {
            assert!(directory.knows_names(hash), "a name is looked up before it is changed");
            self.mark(RowKind::Name, ino.get(), hash);
        }
        Ok(())
    }

    /// It has changed: how many entries had its hash before, and how many have it now.
    fn count_names(&mut self, before: usize, now: usize) {
        self.rows.totals.remove_row_bytes(names_bytes(before));
        self.rows.totals.add_row_bytes(names_bytes(now));
    }

    /// Gives a directory an index, all of whose entries are in memory.
    fn index_directory(&mut self, ino: Ino) -> Lookup<()> {
        let directory = self.inode(ino)?.directory()?;
        let hashes: BTreeSet<u64> = directory.by_hash.iter().map(|named| named.hash).collect();
        let sharing = |hash: &u64| names_bytes(directory.by_hash.count(*hash));
        let bytes: u64 = hashes.iter().map(sharing).sum();
        self.rows.totals.add_row_bytes(bytes);
        for hash in hashes {
            self.mark(RowKind::Name, ino.get(), hash);
        }
        self.change_inode(ino)?.directory_mut()?.index = Some(NameIndex::default());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::furrow::sample::formatted;
    use crate::furrow::{DataCheck, Furrow, MountOptions, check};
    use crate::vfs::{Caller, FileKind, FileSystem, Listing, NewInode, RenameFlags};

    const FILE: NewInode<'static> =
        NewInode { kind: FileKind::Regular, perm: 0o644, rdev: 0, target: b"" };

    /// A directory with `count` entries, each named by a number, of which memory knows none.
    fn directory(count: u64, zone_blocks: u64) -> (Furrow, Ino) {
        let (drive, clock) = formatted(64, zone_blocks);
        let fs = Furrow::mount(drive, clock, MountOptions::default()).unwrap();
        let new = NewInode { kind: FileKind::Directory, ..FILE };
        let home = fs.create(&Caller::ROOT, Ino::ROOT, b"home", &new).unwrap().ino;
        for number in 0..count {
            fs.create(&Caller::ROOT, home, number.to_string().as_bytes(), &FILE).unwrap();
        }
        forget(&fs, home);
        (fs, home)
    }

    fn forget(fs: &Furrow, ino: Ino) {
        fs.sync().unwrap();
        let mut state = fs.tree.write_state();
        let inode = state.inodes.evict(ino).unwrap();
        state.residency.count(inode.held_bytes(), 0);
    }

    /// Entries in memory.
    fn held_entries(fs: &Furrow, ino: Ino) -> usize {
        fs.tree.read_state().inode(ino).unwrap().directory().unwrap().by_cookie.len()
    }

    fn is_clean(fs: &Furrow) {
        fs.sync().unwrap();
        let report = check(fs.drive.device.clone(), DataCheck::Skip, &mut |_| ()).unwrap();
        assert!(report.is_clean(), "{report:?}");
    }

    #[test]
    fn directory_large_lookup_loads_few_entries() {
        let (fs, home) = directory(1000, 256);
        for number in [0, 500, 999] {
            assert!(fs.lookup(home, number.to_string().as_bytes()).is_ok(), "{number}");
        }
        assert!(fs.lookup(home, b"1000").is_err());
        assert_eq!(held_entries(&fs, home), 3);
        // Changes load the entries that they change, and no others.
        fs.unlink(home, b"500").unwrap();
        fs.rename((home, b"0"), (home, b"zero"), RenameFlags::empty()).unwrap();
        fs.rename((home, b"7"), (home, b"999"), RenameFlags::empty()).unwrap();
        fs.rename((home, b"8"), (home, b"9"), RenameFlags::EXCHANGE).unwrap();
        fs.create(&Caller::ROOT, home, b"new", &FILE).unwrap();
        assert!(fs.create(&Caller::ROOT, home, b"11", &FILE).is_err(), "it is there");
        assert!(held_entries(&fs, home) < 10, "{} entries are in memory", held_entries(&fs, home));
        is_clean(&fs);
        forget(&fs, home);
        for (name, is_there) in [("0", false), ("zero", true), ("7", false), ("new", true)] {
            assert_eq!(fs.lookup(home, name.as_bytes()).is_ok(), is_there, "{name}");
        }
        // A listing has each entry once, whether a lookup had loaded it or not, and no deleted
        // entry.
        assert!(fs.lookup(home, b"500").is_err());
        fs.unlink(home, b"700").unwrap();
        let mut names = Vec::new();
        let mut each = |entry: crate::vfs::DirEntry<'_>| {
            names.push(entry.name.to_vec());
            Listing::More
        };
        fs.readdir(home, 0, &mut each).unwrap();
        let count = names.len();
        names.sort();
        names.dedup();
        assert_eq!((names.len(), count), (2 + 1000 - 3 + 1, count));
        // Now that all of it is in memory.
        fs.unlink(home, b"new").unwrap();
        fs.create(&Caller::ROOT, home, b"newer", &FILE).unwrap();
        is_clean(&fs);
    }

    #[test]
    fn directory_small_lookup_loads_few_entries() {
        let (fs, home) = directory(100, 2048);
        assert!(fs.lookup(home, b"7").is_ok());
        assert!(fs.lookup(home, b"no such name").is_err());
        assert!(fs.unlink(home, b"70").is_ok());
        assert_eq!(held_entries(&fs, home), 1);
        // Deleted names stay deleted, and a new entry may take the name of one that did not exist.
        assert!(fs.lookup(home, b"70").is_err());
        assert!(fs.create(&Caller::ROOT, home, b"no such name", &FILE).is_ok());
        assert!(fs.lookup(home, b"no such name").is_ok());
        assert_eq!(held_entries(&fs, home), 2);
        assert!(fs.create(&Caller::ROOT, home, b"8", &FILE).is_err(), "it is there");
        // A second lookup loads all entries.
        assert!(fs.lookup(home, b"9").is_ok());
        assert_eq!(held_entries(&fs, home), 100);
        is_clean(&fs);
        forget(&fs, home);
        for (name, is_there) in [("70", false), ("no such name", true), ("99", true)] {
            assert_eq!(fs.lookup(home, name.as_bytes()).is_ok(), is_there, "{name}");
        }
    }

    #[test]
    fn directory_growing_while_partly_loaded_gets_index() {
        let (fs, home) = directory(128, 2048);
        fs.create(&Caller::ROOT, home, b"one more", &FILE).unwrap();
        assert!(fs.tree.read_state().inodes.is_indexed(home));
        is_clean(&fs);
    }

    #[test]
    fn directory_emptied_leaves_no_name_rows() {
        let (fs, home) = directory(100, 256);
        for number in 0..100 {
            fs.unlink(home, number.to_string().as_bytes()).unwrap();
        }
        is_clean(&fs);
        fs.rmdir(Ino::ROOT, b"home").unwrap();
        is_clean(&fs);
        let key = |ino| crate::furrow::table::key::Key::new(RowKind::Name, ino, 0);
        let rows = fs.tree.rows(key(home.get()), key(home.get() + 1), 10).unwrap();
        assert_eq!(rows.rows, []);
    }

    /// Changes at random, with memory for a part of the entries, against a set of names.
    #[test]
    fn directory_larger_than_memory_matches_model() {
        let (fs, home) = directory(6000, 256);
        fs.tree.set_held_max(300 << 10);
        let mut names: BTreeSet<String> = (0..6000).map(|number| number.to_string()).collect();
        let mut random = 1_u64;
        let mut next = |below: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (random >> 33) % below
        };
        for turn in 0..4000 {
            let (name, other) = (next(8000).to_string(), next(8000).to_string());
            let is_there = names.contains(&name);
            match next(4) {
                0 => {
                    let outcome = fs.create(&Caller::ROOT, home, name.as_bytes(), &FILE);
                    assert_eq!(outcome.is_err(), is_there, "{name}");
                    names.insert(name);
                }
                1 => {
                    assert_eq!(fs.unlink(home, name.as_bytes()).is_ok(), is_there, "{name}");
                    names.remove(&name);
                }
                2 => {
                    let (from, to) = ((home, name.as_bytes()), (home, other.as_bytes()));
                    let outcome = fs.rename(from, to, RenameFlags::empty());
                    assert_eq!(outcome.is_ok(), is_there, "{name} to {other}");
                    if names.remove(&name) {
                        names.insert(other);
                    }
                }
                _ => assert_eq!(fs.lookup(home, name.as_bytes()).is_ok(), is_there, "{name}"),
            }
            if turn % 100 == 0 {
                fs.sync().unwrap();
                fs.tick().unwrap();
            }
            if turn % 1000 == 0 {
                let mut found = BTreeSet::new();
                let mut each = |entry: crate::vfs::DirEntry<'_>| {
                    let is_new = found.insert(String::from_utf8(entry.name.to_vec()).unwrap());
                    assert!(is_new, "{:?} is listed twice", entry.name);
                    Listing::More
                };
                fs.readdir(home, 2, &mut each).unwrap();
                assert!(found == names, "{} listed, {} there", found.len(), names.len());
            }
        }
        let held = fs.tree.read_state().residency.bytes();
        assert!(held < 1 << 20, "{held} bytes in memory");
        assert!(held_entries(&fs, home) < 4000, "most are in memory");
        is_clean(&fs);
    }
}
