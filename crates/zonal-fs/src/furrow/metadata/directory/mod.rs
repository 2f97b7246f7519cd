//! Directories: their entries in memory, and the index of large ones.

pub(in crate::furrow) mod buckets;
pub(in crate::furrow) mod names;
pub(in crate::furrow) mod row;

use std::ops::Range;

use self::buckets::{Buckets, Named};
use self::names::{HashedName, NameIndex, NameKey};
use crate::furrow::memory::allocated;
use crate::furrow::metadata::missing::{Lookup, Missing, Stop};
use crate::furrow::metadata::residency::used::Loaded;
use crate::furrow::metadata::resident::Resident;
use crate::furrow::metadata::small::SmallMap;
use crate::vfs::{FileKind, Ino};

/// Loads of something else between two searches, from which on they are none of one another.
const SEARCH_LOADS: u64 = 1000;

/// An entry of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::furrow) struct Entry {
    pub(in crate::furrow) ino: Ino,
    pub(in crate::furrow) cookie: u64,
    pub(in crate::furrow) kind: FileKind,
}

/// Content of a directory.
#[derive(Clone, Debug, Default)]
pub(in crate::furrow) struct Directory {
    pub(in crate::furrow) parent: Ino,
    /// Cookies whose entries are in memory, if they have any.
    pub(in crate::furrow) resident: Resident,
    /// Entries in memory.
    pub(in crate::furrow) by_hash: Buckets,
    /// The hashes of their names, by cookie: the order of listings.
    pub(in crate::furrow) by_cookie: SmallMap<u64, u64>,
    pub(in crate::furrow) next_cookie: u64,
    /// Number of all its entries.
    pub(in crate::furrow) entries: u64,
    /// The last loads of entries: cookies, and the number of loads before. They stay for the
    /// operation that waits for them.
    pub(in crate::furrow) loaded: Loaded<(Range<u64>, u64)>,
    /// The loaded part of its index, if it has one.
    pub(in crate::furrow) index: Option<NameIndex>,
    /// Names without an entry, as the last searches of a directory without an index have found, and
    /// the number of loads before.
    pub(in crate::furrow) absent: Loaded<(Box<[u8]>, u64)>,
    /// Searches of its rows for a name that came shortly one after the other, and the number of
    /// loads before the last of them.
    pub(in crate::furrow) searches: (u32, u64),
}

impl Directory {
    /// A new one.
    pub(in crate::furrow) fn empty() -> Self {
        Self { resident: Resident::all(), ..Self::default() }
    }

    /// The entry with a name, which has this hash, if it is in memory.
    pub(super) fn find(&self, hash: u64, name: &[u8]) -> Option<Entry> {
        let &Named { ino, cookie, kind, .. } = self.by_hash.find(hash, name)?;
        Some(Entry { ino, cookie, kind })
    }

    /// Entries in memory with cookies in a range, in order.
    pub(in crate::furrow) fn range(&self, range: Range<u64>) -> impl Iterator<Item = &Named> {
        let entries = self.by_cookie.range(range);
        entries.filter_map(|(&cookie, &hash)| self.by_hash.get(hash, cookie))
    }

    /// Puts an entry into memory; returns how many have this hash now.
    pub(super) fn add(&mut self, hash: u64, name: Box<[u8]>, entry: Entry) -> usize {
        let Entry { ino, cookie, kind } = entry;
        self.by_cookie.insert(cookie, hash);
        self.by_hash.add(Named { hash, name, ino, cookie, kind })
    }

    /// Takes an entry out of memory; returns how many have this hash now.
    pub(super) fn remove(&mut self, hash: u64, cookie: u64) -> usize {
        self.by_cookie.remove(&cookie);
        self.by_hash.remove(hash, cookie)
    }

    /// Notes that its rows were searched for a name, which is not there if memory does not have it
    /// now.
    pub(super) fn note_search(
        &mut self,
        HashedName { hash, name }: HashedName<'_>,
        now: u64,
        needed: u64,
    ) {
        let (count, last) = self.searches;
        let count = if last + SEARCH_LOADS > now { count + 1 } else { 1 };
        self.searches = (count, now);
        if self.find(hash, name).is_none() {
            self.absent.note((name.into(), now), |(_, at)| *at >= needed);
        }
    }

    /// Whether memory has all entries with this hash.
    pub(super) fn knows_names(&self, hash: u64) -> bool {
        self.resident.is_all() || self.index.as_ref().is_some_and(|index| index.knows(hash))
    }

    /// Whether all entries of an indexed directory with a name's hash are in memory.
    pub(super) fn check_names(&self, ino: Ino, hashed: HashedName<'_>) -> Lookup<()> {
        if self.knows_names(hashed.hash) {
            return Ok(());
        }
        Err(Stop::NotLoaded(Missing::Name(ino, hashed.name.into())))
    }

    /// Enters all entries with one hash. Returns the bytes that they take.
    pub(super) fn enter_names(
        &mut self,
        entries: Vec<FoundEntry>,
        hash: u64,
        key: NameKey,
        now: u64,
        needed: u64,
    ) -> usize {
        let mut bytes = 0;
        for (name, entry) in entries {
            let cookie = entry.cookie;
            bytes += self.enter(vec![(name, entry)], cookie..cookie.saturating_add(1), key);
        }
        let held = self.frame_bytes();
        if let Some(index) = &mut self.index {
            index.note_known(hash, now, needed);
        }
        bytes + self.frame_bytes() - held
    }

    /// Enters directory entries where none were resident. Returns the bytes that they take.
    pub(in crate::furrow) fn enter(
        &mut self,
        entries: Vec<FoundEntry>,
        resident: Range<u64>,
        key: NameKey,
    ) -> usize {
        let (mut bytes, held) = (0, self.frame_bytes());
        for (name, entry) in entries {
            if self.resident.end_of(entry.cookie).is_none() {
                bytes += name_held_bytes(&name);
                self.add(key.hash(&name), name, entry);
            }
        }
        self.resident.insert(resident);
        (bytes + self.frame_bytes()).saturating_sub(held)
    }

    /// Bytes of its trees, without the allocations of their entries.
    pub(super) fn frame_bytes(&self) -> usize {
        let trees = self.by_cookie.held_bytes() + self.by_hash.held_bytes();
        let index = self.index.as_ref().map_or(0, NameIndex::held_bytes);
        let recent = self.loaded.held_bytes() + self.absent.held_bytes();
        trees + index + self.resident.held_bytes() + recent
    }
}

/// A name and its entry.
pub(in crate::furrow) type FoundEntry = (Box<[u8]>, Entry);

/// Bytes of memory of a name in a directory, in addition to its places in the trees.
pub(super) fn name_held_bytes(name: &[u8]) -> usize {
    allocated(name.len())
}
