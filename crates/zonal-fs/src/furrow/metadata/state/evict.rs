//! Eviction of cached metadata, so that memory stays within its bound.
//!
//! A second-chance scan goes round the inodes. It evicts inodes that no operation has used since
//! its last visit, and pieces of the maps of large files and of large directories. Objects of
//! uncommitted rows stay. So do all objects that a running operation has loaded, so that an
//! operation that needs several of them finds all, and objects that were loaded a moment ago.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::atomic::Ordering;

use crate::furrow::metadata::directory::name_held_bytes;
use crate::furrow::metadata::map::MapLoad;
use crate::furrow::metadata::map::place::ExtentId;
use crate::furrow::metadata::residency::loads::Loads;
use crate::furrow::metadata::{File, State};
use crate::furrow::planted::mistake;
use crate::furrow::table::key::{Key, RowKind};
use crate::vfs::Ino;

/// Loads after a use during which an object stays.
const KEPT_LOADS: u64 = 64;

/// Loads after a use during which a piece of a map stays.
const PIECE_LOADS: u64 = 16 * KEPT_LOADS;

/// Inodes and pieces that one eviction looks at: a tenth of a millisecond, while others wait. Each
/// operation that finds memory full evicts again.
const LOOKS_MAX: usize = 128;

/// Looks without success, and twice round all inodes, after which nothing can be evicted for now.
const IN_VAIN_MAX: usize = 4096;

/// Map entries that are evicted together.
const PIECE_ENTRIES: usize = 256;

/// Which objects a scan spares, and how many entries of a map or a directory it evicts at once.
#[derive(Clone, Copy, Debug)]
struct Scan {
    /// Objects that were loaded or used from this load on stay.
    kept_from: u64,
    /// Pieces of maps that were loaded or used from this load on stay.
    pieces_kept_from: u64,
    piece: usize,
    /// Whether objects that were used since the hand last passed stay.
    chance: Chance,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Chance {
    Second,
    None,
}

impl Scan {
    /// A scan for an operation that needs memory.
    fn by_need(loads: &Loads) -> Self {
        let (now, needed) = (loads.count() + 1, loads.oldest_needed());
        Self {
            kept_from: now.saturating_sub(KEPT_LOADS).min(needed),
            pieces_kept_from: now.saturating_sub(PIECE_LOADS).min(needed),
            piece: PIECE_ENTRIES,
            chance: Chance::Second,
        }
    }

    /// For tests: a scan that spares only the objects of running operations.
    fn of_everything(loads: &Loads) -> Self {
        let needed = loads.oldest_needed();
        Self { kept_from: needed, pieces_kept_from: needed, piece: 2, chance: Chance::None }
    }
}

/// The outcome of an eviction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::furrow) enum Trimmed {
    /// Metadata is within its bound, or the next eviction goes on.
    Enough,
    /// Nearly all that is left has changed: only a commit helps.
    NeedsCommit,
}

impl State {
    /// Bytes of memory that the metadata takes, with the table of users of inodes.
    fn taken_bytes(&self) -> usize {
        self.residency.bytes() + self.inodes.lives.held_bytes()
    }

    /// Whether metadata takes more than `max` bytes and an eviction may find something.
    pub(in crate::furrow) fn holds_too_much(&self, max: usize) -> bool {
        self.residency.is_trim_due(self.taken_bytes(), max)
    }

    /// Whether a commit would let go of something where more than `max` bytes are taken.
    pub(in crate::furrow) fn is_held_by_changes(&self, max: usize) -> bool {
        self.residency.waits_for_commit() && self.taken_bytes() > max && !self.rows.batch.is_empty()
    }

    /// Evicts metadata if it takes more than `max` bytes.
    /// |
    /// If nearly all of it is uncommitted, the next eviction waits for a commit, or until metadata
    /// has grown by a sixteenth of the bound.
    pub(in crate::furrow) fn trim(&mut self, max: usize) -> Trimmed {
        if !self.holds_too_much(max) {
            return Trimmed::Enough;
        }
        self.evict(max / 8 * 7);
        let nothing_goes = self.residency.hand.in_vain > IN_VAIN_MAX.max(2 * self.inodes.len());
        if self.taken_bytes() <= max || !nothing_goes {
            return Trimmed::Enough;
        }
        self.residency.put_off_trim(self.taken_bytes() + max / 16);
        Trimmed::NeedsCommit
    }

    /// Evicts unused metadata until `target` bytes are left, or the scan has looked at enough.
    fn evict(&mut self, target: usize) {
        let scan = Scan::by_need(&self.residency.loads);
        let mut looks = LOOKS_MAX;
        let mut rounds = 0;
        while self.taken_bytes() > target && looks > 0 && rounds < 3 {
            looks -= 1;
            let Some(ino) = self.inodes.next_from(self.residency.hand.ino) else {
                (self.residency.hand.ino, self.residency.hand.block) = (Ino::default(), 0);
                self.evict_extents(scan);
                rounds += 1;
                continue;
            };
            if ino != self.residency.hand.ino {
                (self.residency.hand.ino, self.residency.hand.block) = (ino, 0);
            }
            let held = self.residency.bytes();
            let pieces = self.evict_pieces(ino, scan).max(self.evict_entries(ino, scan));
            looks = looks.saturating_sub(pieces);
            if pieces == 0 {
                self.evict_inode(ino, scan);
                (self.residency.hand.ino, self.residency.hand.block) = (Ino::new(ino.get() + 1), 0);
            }
            let has_freed = self.residency.bytes() < held;
            let hand = &mut self.residency.hand;
            hand.in_vain = if has_freed { 0 } else { hand.in_vain + 1 };
        }
    }

    /// Evicts everything that may go.
    pub(in crate::furrow) fn evict_everything(&mut self) {
        let scan = Scan::of_everything(&self.residency.loads);
        let hand = std::mem::take(&mut self.residency.hand);
        while let Some(ino) = self.inodes.next_from(self.residency.hand.ino) {
            self.residency.hand.block = 0;
            while self.evict_pieces(ino, scan).max(self.evict_entries(ino, scan)) > 0 {}
            self.evict_inode(ino, scan);
            self.residency.hand.ino = Ino::new(ino.get() + 1);
        }
        self.evict_extents(scan);
        while self.residency.hand.extent > 0 {
            self.evict_extents(scan);
        }
        self.residency.hand = hand;
    }

    /// Evicts an inode that no operation has used since the last visit of the scan.
    fn evict_inode(&mut self, ino: Ino, scan: Scan) {
        let keys = [(RowKind::Inode, 0), (RowKind::Entry, u64::MAX)];
        let [first, last] = keys.map(|(kind, at)| Key::new(kind, ino.get(), at));
        let is_changed = self.rows.changed_in(first, last).next().is_some();
        let is_waiting = self.inodes.lives.is_truncating(ino);
        let Some(inode) = self.inodes.peek_mut(ino) else { return };
        let used = inode.used.last.load(Ordering::Relaxed);
        let has_chance = scan.chance == Chance::Second && inode.used.seen != used;
        let is_recent = used >= scan.kept_from || has_chance;
        inode.used.seen = used;
        if is_recent || is_changed || is_waiting || inode.nlink == 0 || inode.is_being_written() {
            return;
        }
        mistake!(self, EvictDiscards, {
            self.maps.discards.cut(ino, 0..u64::MAX, &mut self.rows);
        });
        if let Some(inode) = self.inodes.evict(ino) {
            self.residency.count(inode.held_bytes(), 0);
        }
    }

    /// Evicts a piece of the map of a large file. Returns the number of entries that it looked at,
    /// 0 if there is no further piece.
    fn evict_pieces(&mut self, ino: Ino, scan: Scan) -> usize {
        let from = self.residency.hand.block;
        let Some(file) = self.inodes.peek_file(ino) else { return 0 };
        if file.map.len() <= 2 * scan.piece {
            return 0;
        }
        let mut entries = file.map.range(from..u64::MAX);
        let Some((first, _)) = entries.next() else { return 0 };
        let last = entries.nth(scan.piece - 2).or_else(|| file.map.last());
        let Some((last, entry)) = last.filter(|(last, _)| *last > first) else { return 0 };
        let end = last + u64::from(entry.blocks());
        self.residency.hand.block = end;
        let kept_from = scan.pieces_kept_from;
        let is_recent =
            |piece: &MapLoad| piece.block < end && first < piece.end && piece.at >= kept_from;
        if file.loaded.iter().any(is_recent) {
            return scan.piece;
        }
        let kept = self.kept_of(ino, file, first..end);
        let entries = file.map.range(first..end).map(|(start, _)| start);
        let entries: Vec<u64> = entries.filter(|start| !kept.contains(start)).collect();
        let planted = self.planted;
        let Some(file) = self.inodes.file_mut(ino) else { return 0 };
        let mut held = file.frame_bytes();
        for start in entries {
            let entry = file.map.remove(start, planted).expect("just seen");
            held += entry.held_bytes();
        }
        file.resident.remove(first..end);
        for start in kept {
            let blocks = file.map.get(start).map_or(1, |entry| u64::from(entry.blocks()));
            file.resident.insert(start..start + blocks);
        }
        let held_now = file.frame_bytes();
        self.residency.count(held, held_now);
        scan.piece
    }

    /// Blocks of a part of a map whose entries stay in memory: blocks of changed rows, and blocks
    /// that buffered ones replace. A deleted row counts as changed: as long as memory knows that
    /// there is none, the old row in the table does not count.
    fn kept_of(&self, ino: Ino, file: &File, blocks: Range<u64>) -> BTreeSet<u64> {
        let key = |at| Key::new(RowKind::Map, ino.get(), at);
        let mut kept = self.rows.places_changed_in(key(blocks.start), key(blocks.end - 1));
        for (&block, _) in file.dirty.range(blocks) {
            kept.insert(file.covering(block).map_or(block, |(start, _)| start));
        }
        kept
    }

    /// Evicts a piece of an indexed directory, as of a map. Other directories need all their
    /// entries to know that a name does not exist.
    fn evict_entries(&mut self, ino: Ino, scan: Scan) -> usize {
        let from = self.residency.hand.block;
        let Some(directory) = self.inodes.peek(ino).and_then(|inode| inode.directory().ok()) else {
            return 0;
        };
        let Some(index) = &directory.index else { return 0 };
        if directory.by_cookie.len().max(index.known_count()) <= 2 * scan.piece {
            return 0;
        }
        let piece = directory.range(from..u64::MAX).take(scan.piece);
        let piece: Vec<(u64, u64, usize)> =
            piece.map(|named| (named.cookie, named.hash, name_held_bytes(&named.name))).collect();
        let Some(&(last, ..)) = piece.last() else {
            self.forget_names(ino);
            return 0;
        };
        self.residency.hand.block = last.saturating_add(1);
        let is_recent = |(cookies, at): &(Range<u64>, u64)| {
            cookies.start <= last && from < cookies.end && *at >= scan.kept_from
        };
        if directory.loaded.iter().any(is_recent) {
            return scan.piece;
        }
        let key = |kind, at| Key::new(kind, ino.get(), at);
        // Deleted entries are among them: the table still has these.
        let mut kept =
            self.rows.places_changed_in(key(RowKind::Entry, from), key(RowKind::Entry, last));
        let stays =
            |hash| index.is_found(hash) || self.rows.batch.is_changed(key(RowKind::Name, hash));
        kept.extend(piece.iter().filter(|one| stays(one.1)).map(|(cookie, ..)| *cookie));
        let Some(directory) = self.inodes.directory_mut(ino) else { return 0 };
        let mut held = directory.frame_bytes();
        for (cookie, hash, bytes) in piece {
            if kept.contains(&cookie) {
                continue;
            }
            directory.remove(hash, cookie);
            held += bytes;
            if let Some(index) = &mut directory.index {
                index.forget(hash);
            }
        }
        directory.resident.remove(from..last.saturating_add(1));
        for cookie in kept {
            directory.resident.insert(cookie..cookie.saturating_add(1));
        }
        let held_now = directory.frame_bytes();
        self.residency.count(held, held_now);
        scan.piece
    }

    /// Forgets which names a directory is known not to have.
    fn forget_names(&mut self, ino: Ino) {
        let Some(directory) = self.inodes.directory_mut(ino) else { return };
        let Some(index) = &mut directory.index else { return };
        let batch = &self.rows.batch;
        let held = index.held_bytes();
        index.forget_known(|hash| batch.is_changed(Key::new(RowKind::Name, ino.get(), hash)));
        let held_now = index.held_bytes();
        self.residency.count(held, held_now);
    }

    /// Lets go of shared extents. They are few, and soon read again. Those below buffered blocks
    /// stay.
    fn evict_extents(&mut self, scan: Scan) {
        let ids = self.maps.shared.ids_from(ExtentId(self.residency.hand.extent)).take(LOOKS_MAX);
        let ids: Vec<ExtentId> = ids.collect();
        self.residency.hand.extent = ids.get(LOOKS_MAX - 1).map_or(0, |last| last.0 + 1);
        for id in ids {
            let mut is_changed = self.rows.batch.is_changed(Key::new(RowKind::Extent, id.0, 0));
            mistake!(self, EvictChangedExtent, is_changed = false);
            if !is_changed && let Some(extent) = self.maps.shared.evict(id, scan.kept_from) {
                self.residency.count(extent.held_bytes(), 0);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::furrow::sample::formatted;
    use crate::furrow::{DataCheck, Furrow, MountOptions, check};
    use crate::vfs::{Caller, FileKind, FileSystem, Listing, NewInode, WriteFlags};

    const FILE: NewInode<'_> =
        NewInode { kind: FileKind::Regular, perm: 0o600, rdev: 0, target: b"" };

    fn content(number: u64) -> [u8; 8] {
        number.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_le_bytes()
    }

    /// Files created long ago are read again, and memory stays within its bound all the time.
    #[test]
    fn eviction_bounds_memory_of_many_files() {
        const FILES: u64 = 3000;
        let (drive, clock) = formatted(128, 1024);
        let fs = Furrow::mount(drive.clone(), clock, MountOptions::default()).unwrap();
        fs.tree.set_held_max(300 << 10);
        let bound = fs.tree.held_max() + (200 << 10);
        for number in 0..FILES {
            let name = format!("file {number}");
            let directory =
                if number % 10 == 0 { name.replace("file", "dir") } else { String::new() };
            if !directory.is_empty() {
                let kind = FileKind::Directory;
                fs.create(
                    &Caller::ROOT,
                    Ino::ROOT,
                    directory.as_bytes(),
                    &NewInode { kind, ..FILE },
                )
                .unwrap();
            }
            let parent = format!("dir {}", number / 10 * 10);
            let parent = fs.lookup(Ino::ROOT, parent.as_bytes()).unwrap().ino;
            let ino = fs.create(&Caller::ROOT, parent, name.as_bytes(), &FILE).unwrap().ino;
            fs.write(ino, 0, &content(number), WriteFlags::empty()).unwrap();
            if number % 100 == 99 {
                fs.sync().unwrap();
                let held = fs.tree.read_state().residency.bytes();
                assert!(held <= bound, "{held} bytes after {number} files");
            }
        }
        assert!(fs.tree.read_state().inodes.len() < 1500);
        for number in (0..FILES).rev().step_by(7) {
            let parent = format!("dir {}", number / 10 * 10);
            let parent = fs.lookup(Ino::ROOT, parent.as_bytes()).unwrap().ino;
            let file = fs.lookup(parent, format!("file {number}").as_bytes()).unwrap();
            let mut found = [0; 8];
            fs.read(file.ino, 0, &mut found).unwrap();
            assert_eq!(found, content(number));
            let mut entries = 0;
            fs.readdir(parent, 0, &mut |_| {
                entries += 1;
                Listing::More
            })
            .unwrap();
            assert_eq!(entries, 12);
            // Access times have changed.
            fs.sync().unwrap();
            let held = fs.tree.read_state().residency.bytes();
            assert!(held <= bound, "{held} bytes at file {number}");
        }
        fs.shutdown().unwrap();
        let report = check(drive, DataCheck::Read, &mut |_| ()).unwrap();
        assert!(report.is_clean(), "{report:?}");
    }

    /// Pieces of a map come and go while a file is overwritten at random.
    #[test]
    fn eviction_bounds_memory_of_large_map() {
        const BLOCKS: u64 = 20_000;
        let (drive, clock) = formatted(64, 1024);
        let fs = Furrow::mount(drive.clone(), clock, MountOptions::default()).unwrap();
        fs.tree.set_held_max(300 << 10);
        // Pieces that were loaded last stay, and pieces that the last 500 writes have changed.
        let bound = fs.tree.held_max() + (500 << 10);
        let ino = fs.create(&Caller::ROOT, Ino::ROOT, b"file", &FILE).unwrap().ino;
        let mut last = vec![0; usize::try_from(BLOCKS).unwrap()];
        for turn in 1..=2 * BLOCKS {
            let block = turn * 7919 % BLOCKS;
            let mut data = [0; 4096];
            data[..8].copy_from_slice(&content(turn));
            fs.write(ino, block * 4096, &data, WriteFlags::DIRECT).unwrap();
            last[usize::try_from(block).unwrap()] = turn;
            if turn % 500 == 0 {
                fs.sync().unwrap();
                let held = fs.tree.read_state().residency.bytes();
                assert!(held <= bound, "{held} bytes after {turn} writes");
            }
        }
        for (block, turn) in (0..).zip(&last) {
            let mut found = [0; 8];
            fs.read(ino, block * 4096, &mut found).unwrap();
            assert_eq!(found, content(*turn), "block {block}");
        }
        fs.fallocate(ino, crate::vfs::Allocate::Punch, 4096, (BLOCKS - 2) * 4096).unwrap();
        assert_eq!(fs.getattr(ino).unwrap().blocks, 16);
        fs.shutdown().unwrap();
        let report = check(drive, DataCheck::Read, &mut |_| ()).unwrap();
        assert!(report.is_clean(), "{report:?}");
    }
}
