//! Names of large directories: found by a hash, without all entries in memory.
//!
//! A directory of more entries than a bound is *indexed*, from then on: for each hash there is a row
//! with the cookies of the entries whose names have it. What memory knows of these rows is kept like
//! a row itself: who changes one has seen all of it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::loading::{Lookup, Missing, Stop};
use super::state::{Directory, Entry, State};
use super::table::key::RowKind;
use crate::vfs::Ino;

/// Entries of a directory that is not indexed, at most. Fewer on small drives, so that tests take
/// the same path.
const ENTRIES_MAX: u64 = 8192;

/// Bytes of memory of an indexed name, about.
pub(super) const NAME_HELD_BYTES: usize = 40;

/// Hashes that are kept because somebody has just looked for them.
const FOUND_MAX: usize = 16;

/// Bytes of a row of names without its cookies, and of a cookie.
const ROW_BYTES: u64 = 8;
const COOKIE_BYTES: u64 = 8;

/// What names are hashed with: the file system's identity, so that nobody makes names for all drives
/// that have the same hash.
#[derive(Clone, Copy, Debug)]
pub(super) struct NameKey([u64; 2]);

impl NameKey {
    pub(super) fn of(uuid: [u8; 16]) -> Self {
        let both = u128::from_le_bytes(uuid);
        let word = |bits: u128| u64::try_from(bits & u128::from(u64::MAX)).expect("64 bits");
        Self([word(both), word(both >> 64)])
    }

    /// SipHash-2-4.
    pub(super) fn hash(&self, name: &[u8]) -> u64 {
        let [low, high] = self.0;
        let mut words = [
            low ^ 0x736f_6d65_7073_6575,
            high ^ 0x646f_7261_6e64_6f6d,
            low ^ 0x6c79_6765_6e65_7261,
            high ^ 0x7465_6462_7974_6573,
        ];
        let (chunks, rest) = name.as_chunks::<8>();
        for chunk in chunks {
            absorb(&mut words, u64::from_le_bytes(*chunk));
        }
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        last[7] = name.len().to_le_bytes()[0];
        absorb(&mut words, u64::from_le_bytes(last));
        words[2] ^= 0xff;
        (0..4).for_each(|_| mix(&mut words));
        words.into_iter().fold(0, |sum, word| sum ^ word)
    }
}

fn absorb(words: &mut [u64; 4], word: u64) {
    words[3] ^= word;
    (0..2).for_each(|_| mix(words));
    words[0] ^= word;
}

fn mix([a, b, c, d]: &mut [u64; 4]) {
    *a = a.wrapping_add(*b);
    *c = c.wrapping_add(*d);
    *b = b.rotate_left(13) ^ *a;
    *d = d.rotate_left(16) ^ *c;
    *a = a.rotate_left(32);
    *c = c.wrapping_add(*b);
    *a = a.wrapping_add(*d);
    *b = b.rotate_left(17) ^ *c;
    *d = d.rotate_left(21) ^ *a;
    *c = c.rotate_left(32);
}

/// Cookies of entries with the same hash: nearly always one.
#[derive(Clone, Debug)]
enum Cookies {
    One(u64),
    Many(Box<[u64]>),
}

impl Cookies {
    fn as_slice(&self) -> &[u64] {
        match self {
            Self::One(cookie) => std::slice::from_ref(cookie),
            Self::Many(cookies) => cookies,
        }
    }
}

/// The index of a directory, as far as its entries are in memory.
#[derive(Clone, Debug, Default)]
pub(super) struct Names {
    by_hash: BTreeMap<u64, Cookies>,
    /// Hashes of which all entries are in memory, or none exist, although others are not.
    known: BTreeSet<u64>,
    /// The last ones that were found.
    found: VecDeque<u64>,
}

impl Names {
    /// Cookies of the entries in memory whose names have a hash, in order.
    pub(super) fn cookies(&self, hash: u64) -> &[u64] {
        self.by_hash.get(&hash).map_or(&[], Cookies::as_slice)
    }

    /// Hashes of all names in memory, with their cookies.
    pub(super) fn rows(&self) -> impl Iterator<Item = (u64, &[u64])> {
        self.by_hash.iter().map(|(&hash, cookies)| (hash, cookies.as_slice()))
    }

    /// Adds an entry.
    pub(super) fn add(&mut self, hash: u64, cookie: u64) {
        let mut cookies = self.cookies(hash).to_vec();
        if let Err(place) = cookies.binary_search(&cookie) {
            cookies.insert(place, cookie);
        }
        self.put(hash, &cookies);
    }

    fn remove(&mut self, hash: u64, cookie: u64) {
        let mut cookies = self.cookies(hash).to_vec();
        cookies.retain(|other| *other != cookie);
        self.put(hash, &cookies);
    }

    fn put(&mut self, hash: u64, cookies: &[u64]) {
        match cookies {
            [] => drop(self.by_hash.remove(&hash)),
            [one] => drop(self.by_hash.insert(hash, Cookies::One(*one))),
            many => drop(self.by_hash.insert(hash, Cookies::Many(many.into()))),
        }
    }

    /// From now on all entries with this hash are in memory. Returns the bytes it takes to know that.
    pub(super) fn note_known(&mut self, hash: u64) -> usize {
        let held = self.held_bytes();
        self.known.insert(hash);
        if self.found.len() == FOUND_MAX {
            self.found.pop_front();
        }
        self.found.push_back(hash);
        self.held_bytes() - held
    }

    /// Whether somebody has just looked for names with this hash.
    pub(super) fn is_found(&self, hash: u64) -> bool {
        self.found.contains(&hash)
    }

    /// How many hashes are known.
    pub(super) fn known_count(&self) -> usize {
        self.known.len()
    }

    /// Lets go of an entry; returns the bytes that it took.
    pub(super) fn forget(&mut self, hash: u64, cookie: u64) -> usize {
        let held = self.held_bytes();
        self.remove(hash, cookie);
        self.known.remove(&hash);
        held - self.held_bytes()
    }

    /// Lets go of what is known of hashes, but for those that must be kept and the last ones that
    /// were found; returns the bytes.
    pub(super) fn forget_known(&mut self, must_keep: impl Fn(u64) -> bool) -> usize {
        let held = self.held_bytes();
        let found = &self.found;
        self.known.retain(|&hash| found.contains(&hash) || must_keep(hash));
        held - self.held_bytes()
    }

    /// Bytes of memory, about.
    pub(super) fn held_bytes(&self) -> usize {
        (self.by_hash.len() + self.known.len()) * NAME_HELD_BYTES
    }
}

/// Bytes of a row of so many cookies.
pub(super) fn names_bytes(cookies: usize) -> u64 {
    if cookies == 0 { 0 } else { ROW_BYTES + COOKIE_BYTES * cookies as u64 }
}

impl Directory {
    /// Whether memory has all entries with this hash.
    fn knows_names(&self, hash: u64) -> bool {
        self.known.is_all() || self.names.as_ref().is_some_and(|names| names.known.contains(&hash))
    }
}

impl State {
    /// The entry with a name in a directory.
    pub(super) fn entry(&self, ino: Ino, name: &[u8]) -> Lookup<Option<Entry>> {
        let directory = self.inode(ino)?.directory()?;
        let entry = directory.by_name.get(name).copied();
        if entry.is_some() {
            return Ok(entry);
        }
        if directory.names.is_some() {
            return self.check_names(ino, name).map(|()| None);
        }
        match directory.known.first_unknown(0..u64::MAX) {
            Some(cookie) => Err(Stop::NotLoaded(Missing::Entries(ino, cookie))),
            None => Ok(None),
        }
    }

    /// The same, for who will change it: what the index says of the name is in memory.
    pub(super) fn entry_to_change(&self, ino: Ino, name: &[u8]) -> Lookup<Option<Entry>> {
        let entry = self.entry(ino, name)?;
        self.check_names(ino, name)?;
        Ok(entry)
    }

    fn check_names(&self, ino: Ino, name: &[u8]) -> Lookup<()> {
        let directory = self.inode(ino)?.directory()?;
        if directory.names.is_none() || directory.knows_names(self.name_key.hash(name)) {
            return Ok(());
        }
        Err(Stop::NotLoaded(Missing::Name(ino, name.into())))
    }

    /// An entry was made: enters its name in the index, which a directory gets that is large enough.
    pub(super) fn index_entry(&mut self, ino: Ino, name: &[u8], cookie: u64) -> Lookup<()> {
        let max = ENTRIES_MAX.min(u64::from(self.zones.zone_blocks()) / 16);
        let key = self.name_key;
        let directory = self.inode_mut(ino)?.directory_mut()?;
        if directory.names.is_some() {
            return self.change_names(ino, name, |names, hash| names.add(hash, cookie));
        }
        if directory.entries <= max || !directory.known.is_all() {
            return Ok(());
        }
        let mut names = Names::default();
        for (&cookie, name) in &directory.by_cookie {
            names.add(key.hash(name), cookie);
        }
        for (hash, cookies) in names.rows() {
            self.changes.mark(RowKind::Name, ino.get(), hash);
            self.totals.row_bytes += names_bytes(cookies.len());
        }
        self.held_bytes += names.held_bytes();
        self.change_inode(ino)?.directory_mut()?.names = Some(names);
        Ok(())
    }

    /// An entry is gone: so is its name.
    pub(super) fn unindex_entry(&mut self, ino: Ino, name: &[u8], cookie: u64) -> Lookup<()> {
        if self.inode(ino)?.directory()?.names.is_none() {
            return Ok(());
        }
        self.change_names(ino, name, |names, hash| names.remove(hash, cookie))
    }

    fn change_names(
        &mut self,
        ino: Ino,
        name: &[u8],
        change: impl FnOnce(&mut Names, u64),
    ) -> Lookup<()> {
        let hash = self.name_key.hash(name);
        let directory = self.inode_mut(ino)?.directory_mut()?;
        assert!(directory.knows_names(hash), "a name is looked up before it is changed");
        let Some(names) = &mut directory.names else { return Ok(()) };
        let (bytes, held) = (names_bytes(names.cookies(hash).len()), names.held_bytes());
        change(names, hash);
        let (now, held_now) = (names_bytes(names.cookies(hash).len()), names.held_bytes());
        self.totals.row_bytes = self.totals.row_bytes + now - bytes;
        self.held_bytes = (self.held_bytes + held_now).saturating_sub(held);
        self.changes.mark(RowKind::Name, ino.get(), hash);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::furrow::sample::formatted;
    use crate::furrow::{DataCheck, Furrow, MountOptions, check};
    use crate::vfs::{Caller, FileKind, FileSystem, Listing, NewInode, RenameFlags};

    /// The example of the paper that describes the hash.
    #[test]
    fn the_hash_is_the_one_that_is_described() {
        let bytes: Vec<u8> = (0..16).collect();
        let key = NameKey::of(bytes[..].try_into().unwrap());
        assert_eq!(key.hash(&bytes[..15]), 0xa129_ca61_49be_45e5);
    }

    #[test]
    fn entries_with_the_same_hash_share_a_row() {
        let mut names = Names::default();
        for cookie in [9, 3, 7] {
            names.add(1, cookie);
        }
        names.add(2, 4);
        assert_eq!((names.cookies(1), names.cookies(2)), (&[3, 7, 9][..], &[4][..]));
        names.remove(1, 7);
        names.remove(2, 4);
        assert_eq!(names.rows().collect::<Vec<_>>(), [(1, &[3, 9][..])]);
    }

    const FILE: NewInode<'static> =
        NewInode { kind: FileKind::Regular, perm: 0o644, rdev: 0, target: b"" };

    /// A directory with so many entries, each named by a number, of which memory knows nothing.
    fn directory(count: u64) -> (Furrow, Ino) {
        let (drive, clock) = formatted(64, 256);
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
        let mut state = fs.write_state();
        let inode = state.inodes.remove(&ino).unwrap();
        state.held_bytes = state.held_bytes.saturating_sub(inode.held_bytes());
    }

    /// Entries in memory.
    fn held_entries(fs: &Furrow, ino: Ino) -> usize {
        fs.read_state().inode(ino).unwrap().directory().unwrap().by_name.len()
    }

    fn is_clean(fs: &Furrow) {
        fs.sync().unwrap();
        let report = check(fs.drive.device.clone(), DataCheck::Skip, &mut |_| ()).unwrap();
        assert!(report.is_clean(), "{report:?}");
    }

    #[test]
    fn a_name_of_a_large_directory_is_found_without_the_others() {
        let (fs, home) = directory(1000);
        for number in [0, 500, 999] {
            assert!(fs.lookup(home, number.to_string().as_bytes()).is_ok(), "{number}");
        }
        assert!(fs.lookup(home, b"1000").is_err());
        assert_eq!(held_entries(&fs, home), 3);
        // Changes look at what they change, and at nothing else.
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
        // What was found by name is listed once, and what is gone is not.
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
    fn a_directory_that_is_emptied_leaves_no_names() {
        let (fs, home) = directory(100);
        for number in 0..100 {
            fs.unlink(home, number.to_string().as_bytes()).unwrap();
        }
        is_clean(&fs);
        fs.rmdir(Ino::ROOT, b"home").unwrap();
        is_clean(&fs);
        let key = |ino| super::super::table::key::Key::new(RowKind::Name, ino, 0);
        let rows = fs.rows(key(home.get()), key(home.get() + 1), 10).unwrap();
        assert_eq!(rows.rows, []);
    }

    /// Changes at random, with memory for a part of the entries, against a set of names.
    #[test]
    fn a_directory_larger_than_memory_holds_what_it_should() {
        let (mut fs, home) = directory(6000);
        fs.held_max = 300 << 10;
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
        let held = fs.read_state().held_bytes;
        assert!(held < 1 << 20, "{held} bytes in memory");
        assert!(held_entries(&fs, home) < 4000, "most are in memory");
        is_clean(&fs);
    }
}
