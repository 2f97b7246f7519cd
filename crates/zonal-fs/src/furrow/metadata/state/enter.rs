//! Entering: puts fetched metadata into the state.
//!
//! Other threads may have changed the state since the load read the rows. So an inode that is
//! resident or deleted by now stays as it is, and maps and directories take only entries that they
//! lack.

use std::ops::Range;

use crate::furrow::metadata::directory::FoundEntry;
use crate::furrow::metadata::map::MapLoad;
use crate::furrow::metadata::map::place::{Extent, MapEntry};
use crate::furrow::metadata::missing::Missing;
use crate::furrow::metadata::{Inode, State};
use crate::vfs::Ino;

/// Metadata that was read, in the form that the state has it.
pub(in crate::furrow) enum Fetched {
    Inode(Box<Inode>),
    Map {
        entries: Vec<(u64, MapEntry)>,
        resident: Range<u64>,
        wanted: usize,
    },
    Entries(Vec<FoundEntry>, Range<u64>),
    /// All entries with a hash, of an indexed directory.
    Names(Vec<FoundEntry>, u64),
    /// An entry, of a directory without an index.
    Name(Option<FoundEntry>),
    Extent(Extent),
}

impl State {
    /// Marks blocks of a file as a hole although their rows are lost: nothing will be known of
    /// them.
    pub(in crate::furrow) fn mark_hole(&mut self, ino: Ino, blocks: Range<u64>) {
        if let Some(file) = self.inodes.file_mut(ino) {
            self.residency.add(file.enter(Vec::new(), blocks));
        }
    }

    /// Enters the metadata that a load has read, unless it was entered or deleted meanwhile.
    pub(in crate::furrow) fn enter(&mut self, missing: &Missing, found: Fetched) {
        let (now, needed) = (self.residency.loads.count(), self.residency.loads.oldest_needed());
        match (missing, found) {
            (Missing::Inode(ino), Fetched::Inode(inode)) => {
                if inode.file().is_ok_and(|file| file.truncate_from.is_some()) {
                    // Regardless of its orphan row: growth waits for the end of a truncation.
                    self.inodes.lives.begin_truncation(*ino);
                }
                if let Some(inode) = self.inodes.enter(*ino, inode) {
                    inode.used.note(now);
                    self.residency.add(inode.held_bytes());
                }
            }
            (Missing::Map(ino, block), Fetched::Map { entries, resident, wanted }) => {
                if let Some(file) = self.inodes.file_mut(*ino) {
                    let held = file.frame_bytes();
                    let piece = MapLoad { block: *block, end: resident.end, wanted, at: now };
                    file.loaded.note(piece, |piece| piece.at >= needed);
                    self.residency.add(file.frame_bytes() - held);
                    self.residency.add(file.enter(entries, resident));
                }
            }
            (Missing::Entries(ino, cookie), Fetched::Entries(entries, resident)) => {
                if let Some(directory) = self.inodes.directory_mut(*ino) {
                    let held = directory.frame_bytes();
                    let loaded = (*cookie..resident.end, now);
                    directory.loaded.note(loaded, |(_, at)| *at >= needed);
                    self.residency.add(directory.frame_bytes() - held);
                    self.residency.add(directory.enter(entries, resident, self.names.key));
                }
            }
            (Missing::Name(ino, _), Fetched::Names(entries, hash)) => {
                if let Some(directory) = self.inodes.directory_mut(*ino) {
                    let key = self.names.key;
                    self.residency.add(directory.enter_names(entries, hash, key, now, needed));
                }
            }
            (Missing::Name(ino, name), Fetched::Name(entry)) => {
                if let Some(directory) = self.inodes.directory_mut(*ino)
                    && directory.index.is_none()
                {
                    let mut bytes = 0;
                    if let Some((name, entry)) = entry {
                        let resident = entry.cookie..entry.cookie.saturating_add(1);
                        bytes = directory.enter(vec![(name, entry)], resident, self.names.key);
                    }
                    let held = directory.frame_bytes();
                    directory.note_search(self.names.key.hashed(name), now, needed);
                    bytes += directory.frame_bytes() - held;
                    self.residency.add(bytes);
                }
            }
            (Missing::Extent(id), Fetched::Extent(extent)) => {
                let bytes = extent.held_bytes();
                if self.maps.shared.enter(*id, extent, now) {
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
