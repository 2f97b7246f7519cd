//! Entering: puts fetched metadata into the state.
//!
//! Other threads may have changed the state since the load read the rows. So an inode that is
//! resident or deleted by now stays as it is, and maps and directories take only entries that they
//! lack.

use std::ops::Range;

use crate::furrow::metadata::held::name_held_bytes;
use crate::furrow::metadata::missing::Missing;
use crate::furrow::metadata::names::NameKey;
use crate::furrow::metadata::place::{Extent, MapEntry};
use crate::furrow::metadata::{Directory, Entry, File, Inode, MapLoad, State};
use crate::vfs::Ino;

/// Rows of a map that the first load in a place reads, to have the neighbours of a block as well. A
/// load that continues where one has ended reads twice as many, up to [`MAP_ROWS_MAX`].
const MAP_ROWS_FIRST: usize = 4;
const MAP_ROWS_MAX: usize = 256;

/// Metadata that was read, in the form that the state has it.
pub(in crate::furrow) enum Fetched {
    Inode(Box<Inode>),
    Map {
        entries: Vec<(u64, MapEntry)>,
        known: Range<u64>,
        wanted: usize,
    },
    Entries(Vec<FoundEntry>, Range<u64>),
    /// All entries with a hash, of an indexed directory.
    Names(Vec<FoundEntry>, u64),
    /// An entry, of a directory without an index.
    Name(Option<FoundEntry>),
    Extent(Extent),
}

/// A name and its entry.
pub(in crate::furrow) type FoundEntry = (Box<[u8]>, Entry);

impl State {
    /// Marks blocks of a file as a hole although their rows are lost: nothing will be known of
    /// them.
    pub(in crate::furrow) fn mark_hole(&mut self, ino: Ino, blocks: Range<u64>) {
        if let Some(file) = self.inodes.file_mut(ino) {
            self.residency.add(file.enter(Vec::new(), blocks));
        }
    }
}

impl File {
    /// Enters map entries where none were resident. Returns the bytes that they take.
    pub(in crate::furrow) fn enter(
        &mut self,
        entries: Vec<(u64, MapEntry)>,
        known: Range<u64>,
    ) -> usize {
        let (mut bytes, held) = (0, self.frame_bytes());
        for (first, entry) in entries {
            let limit = first + u64::from(entry.blocks());
            if self.known.end_of(first).is_some() {
                continue;
            }
            if self.overlapping(first, limit).next().is_some() {
                tracing::error!(block = first, "a map entry overlaps another, and is left out");
                continue;
            }
            bytes += entry.held_bytes();
            self.map.insert(first, entry);
        }
        self.known.insert(known);
        (bytes + self.frame_bytes()).saturating_sub(held)
    }
}

impl Directory {
    /// Enters all entries with one hash. Returns the bytes that they take.
    fn enter_names(
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
        if let Some(names) = &mut self.names {
            names.note_known(hash, now, needed);
        }
        bytes + self.frame_bytes() - held
    }

    /// Enters directory entries where none were resident. Returns the bytes that they take.
    pub(in crate::furrow) fn enter(
        &mut self,
        entries: Vec<FoundEntry>,
        known: Range<u64>,
        key: NameKey,
    ) -> usize {
        let (mut bytes, held) = (0, self.frame_bytes());
        for (name, entry) in entries {
            if self.known.end_of(entry.cookie).is_none() {
                bytes += name_held_bytes(&name);
                self.add(key.hash(&name), name, entry);
            }
        }
        self.known.insert(known);
        (bytes + self.frame_bytes()).saturating_sub(held)
    }
}

impl State {
    /// How many rows of a map to read for a block: more where the last load has ended.
    pub(in crate::furrow) fn map_rows_wanted(&self, ino: Ino, block: u64) -> usize {
        let file = self.inodes.peek_file(ino);
        let mut loaded = file.into_iter().flat_map(|file| file.loaded.iter());
        let before = loaded.find(|piece| piece.end == block);
        before.map_or(MAP_ROWS_FIRST, |piece| (2 * piece.wanted).min(MAP_ROWS_MAX))
    }

    /// Enters the metadata that a load has read, unless it was entered or deleted meanwhile.
    pub(in crate::furrow) fn enter(&mut self, missing: &Missing, found: Fetched) {
        let (now, needed) = (self.loads.count(), self.loads.oldest_needed());
        match (missing, found) {
            (Missing::Inode(ino), Fetched::Inode(inode)) => {
                if inode.file().is_ok_and(|file| file.truncate_from.is_some()) {
                    // Regardless of its orphan row: growth waits for the end of a truncation.
                    self.lives.begin_truncation(*ino);
                }
                if let Some(inode) = self.inodes.enter(*ino, inode) {
                    inode.used.note(now);
                    self.residency.add(inode.held_bytes());
                }
            }
            (Missing::Map(ino, block), Fetched::Map { entries, known, wanted }) => {
                if let Some(file) = self.inodes.file_mut(*ino) {
                    let held = file.frame_bytes();
                    let piece = MapLoad { block: *block, end: known.end, wanted, at: now };
                    file.loaded.note(piece, |piece| piece.at >= needed);
                    self.residency.add(file.frame_bytes() - held);
                    self.residency.add(file.enter(entries, known));
                }
            }
            (Missing::Entries(ino, cookie), Fetched::Entries(entries, known)) => {
                if let Some(directory) = self.inodes.directory_mut(*ino) {
                    let held = directory.frame_bytes();
                    let loaded = (*cookie..known.end, now);
                    directory.loaded.note(loaded, |(_, at)| *at >= needed);
                    self.residency.add(directory.frame_bytes() - held);
                    self.residency.add(directory.enter(entries, known, self.name_key));
                }
            }
            (Missing::Name(ino, _), Fetched::Names(entries, hash)) => {
                if let Some(directory) = self.inodes.directory_mut(*ino) {
                    let key = self.name_key;
                    self.residency.add(directory.enter_names(entries, hash, key, now, needed));
                }
            }
            (Missing::Name(ino, name), Fetched::Name(entry)) => {
                if let Some(directory) = self.inodes.directory_mut(*ino)
                    && directory.names.is_none()
                {
                    let mut bytes = 0;
                    if let Some((name, entry)) = entry {
                        let known = entry.cookie..entry.cookie.saturating_add(1);
                        bytes = directory.enter(vec![(name, entry)], known, self.name_key);
                    }
                    let held = directory.frame_bytes();
                    directory.note_search(self.name_key.hashed(name), now, needed);
                    bytes += directory.frame_bytes() - held;
                    self.residency.add(bytes);
                }
            }
            (Missing::Extent(id), Fetched::Extent(extent)) => {
                let bytes = extent.held_bytes();
                if self.extents.enter(*id, Extent { used: now, ..extent }) {
                    self.residency.add(bytes);
                }
            }
            (
                Missing::Inode(_)
                | Missing::Map(..)
                | Missing::Entries(..)
                | Missing::Name(..)
                | Missing::Extent(_)
                | Missing::Discard(..),
                _,
            ) => {
                unreachable!("a load finds what it looks for")
            }
        }
    }
}
