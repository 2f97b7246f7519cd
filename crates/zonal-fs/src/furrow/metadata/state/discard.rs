//! Discards: blocks of a file read as zeroes at once, and steps remove their map entries.

use std::ops::Range;

use crate::furrow::metadata::map::discards::{Discarded, DiscardedSpace};
use crate::furrow::metadata::missing::Lookup;
use crate::furrow::metadata::state::State;
use crate::vfs::Ino;

/// Blocks, aligned, from which a change of one of them removes the entries.
const WINDOW_BLOCKS: u64 = 1024;

impl State {
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
        self.maps.discards.cut(ino, blocks.clone(), &mut self.rows);
        if is_small {
            self.remove_entries(ino, blocks, space);
        } else {
            self.maps.discards.add(ino, blocks, space, &mut self.rows);
        }
        Ok(())
    }

    /// Removes map entries of a discarded range, a step's worth from its start.
    pub(in crate::furrow) fn end_some_discard(&mut self, ino: Ino) -> Lookup<()> {
        match self.maps.discards.find(ino, &(0..u64::MAX)) {
            Some((first, discarded)) => self.end_discard(ino, first..discarded.limit),
            None => Ok(()),
        }
    }

    /// Removes the map entries around a block, if it is a discarded one.
    pub(in crate::furrow) fn end_discard_at(&mut self, ino: Ino, block: u64) -> Lookup<()> {
        let start = block / WINDOW_BLOCKS * WINDOW_BLOCKS;
        let window = start..start.saturating_add(WINDOW_BLOCKS);
        let Some((first, discarded)) = self.maps.discards.find(ino, &(block..block + 1)) else {
            return Ok(());
        };
        let blocks = first.max(window.start)..discarded.limit.min(window.end);
        self.end_discard(ino, blocks)
    }

    /// Removes map entries of blocks that lie in one discarded range, a step's worth.
    fn end_discard(&mut self, ino: Ino, blocks: Range<u64>) -> Lookup<()> {
        let Some((_, Discarded { space, .. })) = self.maps.discards.find(ino, &blocks) else {
            return Ok(());
        };
        let blocks = blocks.start..self.discard_end(ino, &blocks)?;
        self.maps.discards.cut(ino, blocks.clone(), &mut self.rows);
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
            if self.maps.shared.is_shared(&entry) && entry.preallocated() == 0 {
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
        assert!(fs.tree.read_state().maps.discards.next_file(0).is_some(), "its entries are there");
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
        assert!(fs.tree.read_state().maps.discards.next_file(0).is_none());
        assert_eq!(content(&fs, copy), expected);
        fs.shutdown().unwrap();
        let report = check(drive, DataCheck::Read, &mut |_| ()).unwrap();
        assert!(report.is_clean(), "{report:?}");
    }
}
