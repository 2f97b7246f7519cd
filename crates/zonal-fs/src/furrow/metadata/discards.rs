//! Discarded ranges of files: they read as zeroes, and their map entries wait to be removed.
//!
//! A discard of many entries takes effect at once. Each range has a row, so it is as durable as any
//! other change, and a mount after a crash continues. Readers skip the ranges. A change of blocks
//! in a range first removes the entries around these blocks, and the [truncate
//! worker](crate::furrow::truncate) removes the others in steps.
//!
//! The rows are in the group that a mount reads, so all ranges are always in memory.

use std::collections::BTreeMap;
use std::ops::Range;

use zerocopy::byteorder::little_endian::U64;

use crate::furrow::format::row::DiscardRow;
use crate::furrow::metadata::State;
use crate::furrow::metadata::missing::{Lookup, Missing, Stop};
use crate::furrow::retry::{Attempt, Retries};
use crate::furrow::table::key::{Key, RowKind};
use crate::vfs::Ino;

/// Ranges of all files up to which a discard may leave entries for later.
const RANGES_MAX: usize = 4096;

/// Blocks, aligned, from which a change of one of them removes the entries.
const WINDOW_BLOCKS: u64 = 1024;

/// The space of a file in a range that was discarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::furrow) enum DiscardedSpace {
    /// A hole.
    Free,
    /// Preallocated space, wherever it had space before.
    Kept,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Discarded {
    /// The block behind the range.
    limit: u64,
    space: DiscardedSpace,
}

/// Discarded ranges, by file and first block. They do not overlap.
#[derive(Clone, Debug, Default)]
pub(in crate::furrow) struct Discards {
    files: BTreeMap<Ino, BTreeMap<u64, Discarded>>,
    /// Files of which a step has failed.
    failed: Retries<Ino>,
}

impl Discards {
    /// Enters a range that the drive has.
    pub(super) fn restore(&mut self, key: Key, row: &DiscardRow) {
        let space = if row.keeps_space == 0 { DiscardedSpace::Free } else { DiscardedSpace::Kept };
        let discarded = Discarded { limit: row.limit.get(), space };
        self.insert(Ino::new(key.owner()), key.at(), discarded);
    }

    /// Ranges on the drive that are empty or overlap.
    pub(super) fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        for (ino, ranges) in &self.files {
            let mut end = 0;
            for (&first, discarded) in ranges {
                if first < end || discarded.limit <= first {
                    let limit = discarded.limit;
                    problems.push(format!("blocks {first} to {limit} of inode {ino}"));
                }
                end = discarded.limit;
            }
        }
        problems
    }

    fn insert(&mut self, ino: Ino, first: u64, discarded: Discarded) {
        self.files.entry(ino).or_default().insert(first, discarded);
    }

    fn remove(&mut self, ino: Ino, first: u64) {
        let Some(ranges) = self.files.get_mut(&ino) else { return };
        ranges.remove(&first);
        if ranges.is_empty() {
            self.files.remove(&ino);
            self.failed.settle(ino);
        }
    }

    fn get(&self, ino: Ino, first: u64) -> Option<Discarded> {
        self.files.get(&ino)?.get(&first).copied()
    }

    /// The first range with blocks in `blocks`.
    fn find(&self, ino: Ino, blocks: &Range<u64>) -> Option<(u64, Discarded)> {
        if blocks.is_empty() {
            return None;
        }
        let ranges = self.files.get(&ino)?;
        let before = ranges.range(..=blocks.start).next_back();
        let before = before.filter(|(_, discarded)| discarded.limit > blocks.start);
        let found = before.or_else(|| ranges.range(blocks.clone()).next());
        found.map(|(&first, &discarded)| (first, discarded))
    }

    /// The first blocks of `blocks` that were discarded and lie side by side.
    pub(in crate::furrow) fn first_in(&self, ino: Ino, blocks: &Range<u64>) -> Option<Range<u64>> {
        let (first, discarded) = self.find(ino, blocks)?;
        Some(first.max(blocks.start)..discarded.limit.min(blocks.end))
    }

    /// The parts of a range that were not discarded.
    pub(in crate::furrow) fn shown(
        &self,
        ino: Ino,
        blocks: Range<u64>,
    ) -> impl Iterator<Item = Range<u64>> {
        let mut rest = blocks;
        std::iter::from_fn(move || {
            while !rest.is_empty() {
                let end = rest.end;
                let hidden = self.first_in(ino, &rest).unwrap_or(end..end);
                let part = rest.start..hidden.start;
                rest.start = hidden.end;
                if !part.is_empty() {
                    return Some(part);
                }
            }
            None
        })
    }

    /// Whether there are more than `RANGES_MAX` ranges: then a discard removes entries itself.
    pub(in crate::furrow) fn are_many(&self) -> bool {
        self.files.values().map(BTreeMap::len).sum::<usize>() > RANGES_MAX
    }

    /// A file with discarded ranges, unless an attempt to remove their entries has failed just now.
    pub(in crate::furrow) fn next_file(&self, now_ns: u64) -> Option<Ino> {
        self.files.keys().copied().find(|&ino| self.failed.is_due(ino, now_ns))
    }

    /// Notes the outcome of a step that removes entries of a file.
    pub(in crate::furrow) fn note_step(&mut self, ino: Ino, attempt: Attempt, now_ns: u64) -> u64 {
        if attempt == Attempt::Succeeded || !self.files.contains_key(&ino) {
            self.failed.settle(ino);
            return 0;
        }
        self.failed.put_off(ino, now_ns)
    }

    /// Files of which a step has failed and is owed.
    pub(in crate::furrow) fn failed(&self) -> &Retries<Ino> {
        &self.failed
    }

    /// The value of the row of a range.
    pub(super) fn row(&self, ino: Ino, first: u64) -> Option<DiscardRow> {
        let Discarded { limit, space } = self.get(ino, first)?;
        let keeps_space = u8::from(space == DiscardedSpace::Kept);
        Some(DiscardRow { limit: U64::new(limit), keeps_space })
    }
}

impl State {
    /// Checks that no blocks of a range are discarded ones with their entries.
    pub(in crate::furrow) fn check_discards(&self, ino: Ino, blocks: Range<u64>) -> Lookup<()> {
        match self.discards.first_in(ino, &blocks) {
            Some(discarded) => Err(Stop::NotLoaded(Missing::Discard(ino, discarded.start))),
            None => Ok(()),
        }
    }

    /// Makes blocks of a file read as zeroes. Their map entries stay for now, unless they are few
    /// and in memory.
    pub(in crate::furrow) fn discard(
        &mut self,
        ino: Ino,
        blocks: Range<u64>,
        space: DiscardedSpace,
    ) -> Lookup<()> {
        self.inode(ino)?.file()?;
        let is_small = self.discard_end(ino, &blocks).is_ok_and(|end| end == blocks.end);
        self.drop_buffered(ino, blocks.start, blocks.end);
        self.cut_discards(ino, blocks.clone());
        if is_small {
            self.remove_entries(ino, blocks, space);
        } else {
            self.add_discard(ino, blocks, space);
        }
        Ok(())
    }

    /// Removes map entries of a discarded range, a step's worth from its start.
    pub(in crate::furrow) fn end_some_discard(&mut self, ino: Ino) -> Lookup<()> {
        match self.discards.find(ino, &(0..u64::MAX)) {
            Some((first, discarded)) => self.end_discard(ino, first..discarded.limit),
            None => Ok(()),
        }
    }

    /// Removes the map entries around a block, if it is a discarded one.
    pub(in crate::furrow) fn end_discard_at(&mut self, ino: Ino, block: u64) -> Lookup<()> {
        let start = block / WINDOW_BLOCKS * WINDOW_BLOCKS;
        let window = start..start.saturating_add(WINDOW_BLOCKS);
        let Some((first, discarded)) = self.discards.find(ino, &(block..block + 1)) else {
            return Ok(());
        };
        let blocks = first.max(window.start)..discarded.limit.min(window.end);
        self.end_discard(ino, blocks)
    }

    /// Removes map entries of blocks that lie in one discarded range, a step's worth.
    fn end_discard(&mut self, ino: Ino, blocks: Range<u64>) -> Lookup<()> {
        let Some((_, Discarded { space, .. })) = self.discards.find(ino, &blocks) else {
            return Ok(());
        };
        let blocks = blocks.start..self.discard_end(ino, &blocks)?;
        self.cut_discards(ino, blocks.clone());
        self.remove_entries(ino, blocks, space);
        Ok(())
    }

    /// The end of a step that removes entries of blocks from the first on.
    fn discard_end(&self, ino: Ino, blocks: &Range<u64>) -> Lookup<u64> {
        let end = self.stored_step_end(ino, blocks.start, blocks.end)?;
        let file = self.inode(ino)?.file()?;
        let ahead = file.map.range(blocks.start + 1..end.max(blocks.start + 1));
        let ahead = ahead.map(|(start, _)| start).nth(self.step_entries_max());
        Ok(ahead.unwrap_or(end))
    }

    fn remove_entries(&mut self, ino: Ino, blocks: Range<u64>, space: DiscardedSpace) {
        let kept = match space {
            DiscardedSpace::Free => Vec::new(),
            DiscardedSpace::Kept => self.spaces(ino, &blocks),
        };
        self.unmap_stored(ino, blocks.start, blocks.end);
        for space in kept {
            self.preallocate(ino, space);
        }
    }

    /// The parts of a range in which a file has space of its own.
    fn spaces(&self, ino: Ino, blocks: &Range<u64>) -> Vec<Range<u64>> {
        let mut spaces: Vec<Range<u64>> = Vec::new();
        let Some(file) = self.inodes.peek_file(ino) else { return spaces };
        for (start, entry) in file.overlapping(blocks.start, blocks.end) {
            if self.is_shared(&entry) && entry.preallocated() == 0 {
                continue;
            }
            let end = (start + u64::from(entry.blocks())).min(blocks.end);
            let start = start.max(blocks.start);
            match spaces.last_mut() {
                Some(last) if last.end == start => last.end = end,
                Some(_) | None => spaces.push(start..end),
            }
        }
        spaces
    }

    /// Adds a range, in which no other lies, and merges it with its neighbours.
    fn add_discard(&mut self, ino: Ino, blocks: Range<u64>, space: DiscardedSpace) {
        let Range { start: mut first, end: mut limit } = blocks;
        let before = first.checked_sub(1).and_then(|last| self.discards.find(ino, &(last..first)));
        if let Some((start, _)) = before.filter(|(_, before)| before.space == space) {
            first = start;
        }
        let after = self.discards.get(ino, limit).filter(|after| after.space == space);
        if let Some(after) = after {
            self.mark(RowKind::Discard, ino.get(), limit);
            self.discards.remove(ino, limit);
            limit = after.limit;
        }
        self.mark(RowKind::Discard, ino.get(), first);
        self.discards.insert(ino, first, Discarded { limit, space });
    }

    /// Takes blocks out of the discarded ranges of a file.
    pub(super) fn cut_discards(&mut self, ino: Ino, blocks: Range<u64>) {
        while let Some((first, discarded)) = self.discards.find(ino, &blocks) {
            self.mark(RowKind::Discard, ino.get(), first);
            if discarded.limit > blocks.end {
                self.mark(RowKind::Discard, ino.get(), blocks.end);
                self.discards.insert(ino, blocks.end, discarded);
            }
            if first < blocks.start {
                let left = Discarded { limit: blocks.start, ..discarded };
                self.discards.insert(ino, first, left);
            } else {
                self.discards.remove(ino, first);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use zonal::ZonedDevice;

    use super::*;
    use crate::furrow::format::BLOCK_BYTES;
    use crate::furrow::sample::formatted;
    use crate::furrow::{DataCheck, Furrow, MountOptions, StepProgress, Work, check};
    use crate::vfs::{Allocate, Caller, FileKind, FileSystem, NewInode, Seek, WriteFlags};

    const FILE: NewInode<'_> =
        NewInode { kind: FileKind::Regular, perm: 0o600, rdev: 0, target: b"" };
    const BLOCK: u64 = BLOCK_BYTES as u64;
    const BLOCKS: usize = 6000;
    const BYTES: u64 = 6000 * BLOCK;

    /// A file of single blocks, each with a map entry of its own.
    fn fragmented() -> (Arc<dyn ZonedDevice>, Furrow, Ino) {
        let (drive, clock) = formatted(64, 1024);
        let fs = Furrow::mount(drive.clone(), clock, MountOptions::default()).unwrap();
        let ino = fs.create(&Caller::ROOT, Ino::ROOT, b"file", &FILE).unwrap().ino;
        for block in (0..6000).rev() {
            fs.write(ino, block * BLOCK, &[7; BLOCK_BYTES], WriteFlags::DIRECT).unwrap();
        }
        fs.sync().unwrap();
        (drive, fs, ino)
    }

    fn content(fs: &Furrow, ino: Ino) -> Vec<u8> {
        let mut content = vec![1; BLOCKS * BLOCK_BYTES];
        fs.read(ino, 0, &mut content).unwrap();
        content.chunks(BLOCK_BYTES).for_each(|block| assert!(block.iter().all(|b| *b == block[0])));
        content.into_iter().step_by(BLOCK_BYTES).collect()
    }

    fn entries(fs: &Furrow, ino: Ino) -> usize {
        fs.tree.read_state().inodes.peek(ino).unwrap().file().unwrap().map.len()
    }

    #[test]
    fn discard_of_many_entries_leaves_them_for_later() {
        for (how, blocks) in [(Allocate::PunchLater, 1), (Allocate::ZeroLater, 6000)] {
            let (drive, fs, ino) = fragmented();
            fs.fallocate(ino, how, 0, BYTES).unwrap();
            assert_eq!(entries(&fs, ino), BLOCKS, "it removes none");
            assert_eq!(content(&fs, ino), vec![0; BLOCKS]);
            assert!(fs.seek(ino, Seek::Data, 0).is_err());
            assert_eq!(fs.seek(ino, Seek::Hole, 5 * BLOCK).unwrap(), 5 * BLOCK);
            // A write takes away the entries around it, and no others.
            fs.write(ino, 3000 * BLOCK, &[9; BLOCK_BYTES], WriteFlags::empty()).unwrap();
            let left = entries(&fs, ino);
            assert!(left < BLOCKS && left > BLOCKS - 1100, "{left} entries");
            assert_eq!(fs.seek(ino, Seek::Data, 0).unwrap(), 3000 * BLOCK);
            while fs.step(Work::Truncate).unwrap() == StepProgress::More {}
            fs.sync().unwrap();
            let left = entries(&fs, ino);
            assert!(left < 20, "{left} entries");
            assert_eq!(fs.getattr(ino).unwrap().blocks, blocks * 8, "{how:?}");
            let mut expected = vec![0; BLOCKS];
            expected[3000] = 9;
            assert_eq!(content(&fs, ino), expected);
            fs.shutdown().unwrap();
            let report = check(drive, DataCheck::Read, &mut |_| ()).unwrap();
            assert!(report.is_clean(), "{report:?}");
        }
    }

    #[test]
    fn mount_finds_discards_and_copies_have_zeroes() {
        let (drive, fs, ino) = fragmented();
        let copy = fs.create(&Caller::ROOT, Ino::ROOT, b"copy", &FILE).unwrap().ino;
        for (first, blocks) in [(10, 2000), (2010, 2000), (5000, 1), (1000, 500)] {
            fs.fallocate(ino, Allocate::PunchLater, first * BLOCK, blocks * BLOCK).unwrap();
        }
        let mut expected = vec![7; BLOCKS];
        expected[10..4010].fill(0);
        expected[5000] = 0;
        assert_eq!(content(&fs, ino), expected);
        assert!(fs.tree.read_state().discards.next_file(0).is_some(), "its entries are there");
        fs.shutdown().unwrap();
        drop(fs);
        let report = check(drive.clone(), DataCheck::Read, &mut |_| ()).unwrap();
        assert!(report.is_clean(), "{report:?}");
        let clock = formatted(32, 64).1;
        let fs = Furrow::mount(drive.clone(), clock, MountOptions::default()).unwrap();
        assert_eq!(content(&fs, ino), expected);
        let copied = fs.copy_range((ino, 0), (copy, 0), BYTES, WriteFlags::empty());
        assert_eq!(copied.unwrap(), BYTES);
        assert_eq!(content(&fs, copy), expected);
        fs.write(ino, 20 * BLOCK, &[9; BLOCK_BYTES], WriteFlags::empty()).unwrap();
        assert_eq!(content(&fs, copy), expected, "it shares what the other had");
        fs.fallocate(ino, Allocate::ZeroLater, 0, BYTES).unwrap();
        fs.unlink(Ino::ROOT, b"file").unwrap();
        while fs.step(Work::Truncate).unwrap() == StepProgress::More {}
        assert!(fs.tree.read_state().discards.next_file(0).is_none());
        assert_eq!(content(&fs, copy), expected);
        fs.shutdown().unwrap();
        let report = check(drive, DataCheck::Read, &mut |_| ()).unwrap();
        assert!(report.is_clean(), "{report:?}");
    }
}
