//! Keys of rows, and their order.
//!
//! Keys have a fixed size, so names are in values: the key of an entry has its cookie, that of an
//! attribute its slot. All rows of an inode are neighbours, and so are all entries of a directory.

use std::cmp::Ordering;

/// The kind of a row. The number is group and kind, a hexadecimal digit each.
///
/// A mount reads group 0. Group 1 belongs to inodes, group 2 to shared extents, group 3 to zones.
/// Group 4 has the remap tables: a mount reads them, too, but can do with some of them lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum RowKind {
    /// Sums over everything: one row.
    Totals = 0x00,
    /// A zone with live blocks.
    Zone = 0x01,
    /// An inode to delete, or one with mapped blocks beyond its size to free.
    Orphan = 0x02,
    /// Lifetimes and sizes that placement has learned for some contexts.
    Learned = 0x03,
    /// A range of a file that was discarded: it reads as zeroes, and its map entries wait to be
    /// removed.
    Discard = 0x04,
    /// An inode.
    Inode = 0x10,
    /// An extended attribute.
    Xattr = 0x11,
    /// A map entry: a run of blocks of a file.
    Map = 0x12,
    /// Entries of a large directory whose names have the same hash.
    Name = 0x13,
    /// An entry of a directory.
    Entry = 0x14,
    /// An extent that several files share.
    Extent = 0x20,
    /// Back-references of blocks of a zone.
    Backrefs = 0x30,
    /// A remap table: where reclaim has moved blocks of a zone.
    Remap = 0x40,
}

impl RowKind {
    /// All kinds, in the order of the numbers that leaves have for them.
    pub const ALL: [Self; 13] = [
        Self::Totals,
        Self::Zone,
        Self::Orphan,
        Self::Learned,
        Self::Inode,
        Self::Xattr,
        Self::Map,
        Self::Name,
        Self::Entry,
        Self::Extent,
        Self::Backrefs,
        Self::Remap,
        Self::Discard,
    ];

    /// The kind with this number.
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.code() == code)
    }

    /// Group and kind as one number.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The first part of the key's order.
    pub const fn group(self) -> u8 {
        self.code() >> 4
    }
}

/// The key of a row. Keys are ordered by group, owner, kind within the group, and place (`at`).
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Key {
    // The order of the fields is the order of keys.
    group: u8,
    owner: u64,
    kind: RowKind,
    at: u64,
}

impl Ord for Key {
    fn cmp(&self, other: &Self) -> Ordering {
        // One comparison for all but the last: keys are compared more often than anything else.
        let high = |key: &Self| {
            u128::from(key.group) << 72 | u128::from(key.owner) << 8 | u128::from(key.kind.code())
        };
        high(self).cmp(&high(other)).then(self.at.cmp(&other.at))
    }
}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Key {
    /// The lowest key.
    pub const MIN: Self = Self::new(RowKind::Totals, 0, 0);

    /// Above every row: a bound only, no row has this key.
    pub const MAX: Self = Self::new(RowKind::Remap, u64::MAX, u64::MAX);

    /// The first key behind group 0.
    pub const BASE_END: Self = Self::new(RowKind::Inode, 0, 0);

    /// The first key of remap tables, which come last.
    pub const REMAPS: Self = Self::new(RowKind::Remap, 0, 0);

    /// The key of a row. `owner` is the number of an inode, extent or zone. `at` is the first block
    /// of a map entry or of a discarded range, the cookie of an entry, the hash of a name, the slot
    /// of an attribute, the number of a row of back-references or of a remap table; for other kinds
    /// it is 0.
    pub const fn new(kind: RowKind, owner: u64, at: u64) -> Self {
        Self { group: kind.group(), owner, kind, at }
    }

    /// The kind of the row.
    pub const fn kind(self) -> RowKind {
        self.kind
    }

    /// Number of the inode, directory, extent or zone.
    pub const fn owner(self) -> u64 {
        self.owner
    }

    /// Place within the owner and kind.
    pub const fn at(self) -> u64 {
        self.at
    }

    /// The least key above this one; [`Key::MAX`] is its own successor.
    #[must_use]
    pub const fn successor(self) -> Self {
        if let Some(at) = self.at.checked_add(1) {
            return Self::new(self.kind, self.owner, at);
        }
        match (self.kind, self.owner.checked_add(1)) {
            (RowKind::Totals, _) => Self::new(RowKind::Zone, self.owner, 0),
            (RowKind::Zone, _) => Self::new(RowKind::Orphan, self.owner, 0),
            (RowKind::Orphan, _) => Self::new(RowKind::Learned, self.owner, 0),
            (RowKind::Learned, _) => Self::new(RowKind::Discard, self.owner, 0),
            (RowKind::Discard, Some(owner)) => Self::new(RowKind::Totals, owner, 0),
            (RowKind::Discard, None) => Self::new(RowKind::Inode, 0, 0),
            (RowKind::Inode, _) => Self::new(RowKind::Xattr, self.owner, 0),
            (RowKind::Xattr, _) => Self::new(RowKind::Map, self.owner, 0),
            (RowKind::Map, _) => Self::new(RowKind::Name, self.owner, 0),
            (RowKind::Name, _) => Self::new(RowKind::Entry, self.owner, 0),
            (RowKind::Entry, Some(owner)) => Self::new(RowKind::Inode, owner, 0),
            (RowKind::Entry, None) => Self::new(RowKind::Extent, 0, 0),
            (RowKind::Extent, Some(owner)) => Self::new(RowKind::Extent, owner, 0),
            (RowKind::Extent, None) => Self::new(RowKind::Backrefs, 0, 0),
            (RowKind::Backrefs, Some(owner)) => Self::new(RowKind::Backrefs, owner, 0),
            (RowKind::Backrefs, None) => Self::REMAPS,
            (RowKind::Remap, Some(owner)) => Self::new(RowKind::Remap, owner, 0),
            (RowKind::Remap, None) => Self::MAX,
        }
    }

    /// The greatest key below this one; [`Key::MIN`] is its own predecessor.
    #[must_use]
    pub const fn predecessor(self) -> Self {
        let last = u64::MAX;
        if let Some(at) = self.at.checked_sub(1) {
            return Self::new(self.kind, self.owner, at);
        }
        match (self.kind, self.owner.checked_sub(1)) {
            (RowKind::Totals, Some(owner)) => Self::new(RowKind::Discard, owner, last),
            (RowKind::Totals, None) => Self::MIN,
            (RowKind::Zone, _) => Self::new(RowKind::Totals, self.owner, last),
            (RowKind::Orphan, _) => Self::new(RowKind::Zone, self.owner, last),
            (RowKind::Learned, _) => Self::new(RowKind::Orphan, self.owner, last),
            (RowKind::Discard, _) => Self::new(RowKind::Learned, self.owner, last),
            (RowKind::Inode, Some(owner)) => Self::new(RowKind::Entry, owner, last),
            (RowKind::Inode, None) => Self::new(RowKind::Discard, last, last),
            (RowKind::Xattr, _) => Self::new(RowKind::Inode, self.owner, last),
            (RowKind::Map, _) => Self::new(RowKind::Xattr, self.owner, last),
            (RowKind::Name, _) => Self::new(RowKind::Map, self.owner, last),
            (RowKind::Entry, _) => Self::new(RowKind::Name, self.owner, last),
            (RowKind::Extent, Some(owner)) => Self::new(RowKind::Extent, owner, last),
            (RowKind::Extent, None) => Self::new(RowKind::Entry, last, last),
            (RowKind::Backrefs, Some(owner)) => Self::new(RowKind::Backrefs, owner, last),
            (RowKind::Backrefs, None) => Self::new(RowKind::Extent, last, last),
            (RowKind::Remap, Some(owner)) => Self::new(RowKind::Remap, owner, last),
            (RowKind::Remap, None) => Self::new(RowKind::Backrefs, last, last),
        }
    }
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} {}/{}", self.kind, self.owner, self.at)
    }
}

/// A half-open range of keys: from `from` on, below `below`. Empty unless `from` is below `below`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeySpan {
    /// The first key.
    pub from: Key,
    /// The key behind the last one; [`Key::MAX`] for a span that goes to the end.
    pub below: Key,
}

impl KeySpan {
    /// All keys.
    pub const ALL: Self = Self::new(Key::MIN, Key::MAX);

    /// The keys of the rows that a mount reads, remap tables aside.
    pub const BASE: Self = Self::new(Key::MIN, Key::BASE_END);

    /// The keys of rows that belong to inodes.
    pub const INODES: Self = Self::new(Key::BASE_END, Key::new(RowKind::Extent, 0, 0));

    /// The keys of remap tables.
    pub const REMAPS: Self = Self::new(Key::REMAPS, Key::MAX);

    /// The keys from one on, below another.
    pub const fn new(from: Key, below: Key) -> Self {
        Self { from, below }
    }

    /// One key alone.
    pub const fn of(key: Key) -> Self {
        Self::new(key, key.successor())
    }

    /// Whether no key is in it.
    pub fn is_empty(&self) -> bool {
        self.from >= self.below
    }

    /// Whether a key is in it.
    pub fn contains(&self, key: Key) -> bool {
        key >= self.from && key < self.below
    }

    /// The same span from another key on.
    #[must_use]
    pub const fn starting_at(self, from: Key) -> Self {
        Self::new(from, self.below)
    }

    /// The keys that are in both spans, if there are any.
    pub fn intersection(&self, other: &Self) -> Option<Self> {
        let common = Self::new(self.from.max(other.from), self.below.min(other.below));
        (!common.is_empty()).then_some(common)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_order_keeps_inode_rows_together() {
        let keys = [
            Key::MIN,
            Key::new(RowKind::Zone, 0, 0),
            Key::new(RowKind::Zone, 1, 0),
            Key::new(RowKind::Orphan, 1, 0),
            Key::BASE_END,
            Key::new(RowKind::Inode, 1, 0),
            Key::new(RowKind::Xattr, 1, 0),
            Key::new(RowKind::Xattr, 1, 9),
            Key::new(RowKind::Map, 1, 0),
            Key::new(RowKind::Map, 1, 1 << 40),
            Key::new(RowKind::Name, 1, 1 << 40),
            Key::new(RowKind::Entry, 1, 3),
            Key::new(RowKind::Inode, 2, 0),
            Key::new(RowKind::Extent, 0, 0),
            Key::new(RowKind::Extent, 7, 0),
            Key::new(RowKind::Backrefs, 0, 0),
            Key::REMAPS,
            Key::MAX,
        ];
        assert!(keys.is_sorted_by(|a, b| a < b), "{keys:?}");
    }

    #[test]
    fn key_successor_and_predecessor_adjoin() {
        let last = u64::MAX;
        let pairs = [
            (Key::MIN, Key::new(RowKind::Totals, 0, 1)),
            (Key::new(RowKind::Totals, 5, last), Key::new(RowKind::Zone, 5, 0)),
            (Key::new(RowKind::Zone, 5, last), Key::new(RowKind::Orphan, 5, 0)),
            (Key::new(RowKind::Orphan, 5, last), Key::new(RowKind::Learned, 5, 0)),
            (Key::new(RowKind::Learned, 5, last), Key::new(RowKind::Discard, 5, 0)),
            (Key::new(RowKind::Discard, 5, last), Key::new(RowKind::Totals, 6, 0)),
            (Key::new(RowKind::Discard, last, last), Key::BASE_END),
            (Key::BASE_END, Key::new(RowKind::Inode, 0, 1)),
            (Key::new(RowKind::Inode, 5, last), Key::new(RowKind::Xattr, 5, 0)),
            (Key::new(RowKind::Xattr, 5, last), Key::new(RowKind::Map, 5, 0)),
            (Key::new(RowKind::Map, 5, last), Key::new(RowKind::Name, 5, 0)),
            (Key::new(RowKind::Name, 5, last), Key::new(RowKind::Entry, 5, 0)),
            (Key::new(RowKind::Entry, 5, last), Key::new(RowKind::Inode, 6, 0)),
            (Key::new(RowKind::Entry, last, last), Key::new(RowKind::Extent, 0, 0)),
            (Key::new(RowKind::Extent, 0, last), Key::new(RowKind::Extent, 1, 0)),
            (Key::new(RowKind::Extent, last, last), Key::new(RowKind::Backrefs, 0, 0)),
            (Key::new(RowKind::Backrefs, 0, last), Key::new(RowKind::Backrefs, 1, 0)),
        ];
        for (key, next) in pairs {
            assert_eq!(key.successor(), next, "after {key:?}");
            assert_eq!(next.predecessor(), key, "before {next:?}");
        }
        assert_eq!((Key::MAX.successor(), Key::MIN.predecessor()), (Key::MAX, Key::MIN));
    }

    #[test]
    fn row_kinds_are_found_by_code() {
        for kind in RowKind::ALL {
            assert_eq!(RowKind::from_code(kind.code()), Some(kind));
        }
        assert_eq!(RowKind::from_code(0x15), None);
    }
}
