//! Content of a sparse file: blocks that were written, by number; everything else is a hole.

#![expect(
    clippy::cast_possible_truncation,
    reason = "offsets inside a block, and lengths of buffers that fit in memory"
)]

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::vfs::Seek;

/// Bytes of a block: a hole is at least as long.
pub(super) const BLOCK_SIZE: u32 = 4096;
pub(super) const BLOCK: u64 = BLOCK_SIZE as u64;

type Block = [u8; BLOCK as usize];

/// Content and size of a regular file. Bytes of a block beyond the size are zero.
#[derive(Clone, Default)]
pub(super) struct Content {
    blocks: BTreeMap<u64, Arc<Block>>,
    size: u64,
}

/// The part of block `index` inside `start..end`, as offsets in the block.
fn part(index: u64, start: u64, end: u64) -> std::ops::Range<usize> {
    let base = index * BLOCK;
    let first = start.saturating_sub(base).min(BLOCK);
    let limit = end.saturating_sub(base).min(BLOCK);
    first as usize..limit as usize
}

impl Content {
    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// Bytes that are not holes.
    pub(super) fn allocated(&self) -> u64 {
        self.blocks.len() as u64 * BLOCK
    }

    pub(super) fn read(&self, offset: u64, buffer: &mut [u8]) -> usize {
        let end = self.size.min(offset.saturating_add(buffer.len() as u64));
        if offset >= end {
            return 0;
        }
        let len = (end - offset) as usize;
        buffer[..len].fill(0);
        for (&index, block) in self.blocks.range(offset / BLOCK..end.div_ceil(BLOCK)) {
            let part = part(index, offset, end);
            let at = (index * BLOCK + part.start as u64 - offset) as usize;
            buffer[at..at + part.len()].copy_from_slice(&block[part]);
        }
        len
    }

    pub(super) fn write(&mut self, offset: u64, data: &[u8]) {
        let end = offset + data.len() as u64;
        for index in offset / BLOCK..end.div_ceil(BLOCK) {
            let part = part(index, offset, end);
            let at = (index * BLOCK + part.start as u64 - offset) as usize;
            let block = self.blocks.entry(index).or_insert_with(|| Arc::new([0; BLOCK as usize]));
            Arc::make_mut(block)[part.clone()].copy_from_slice(&data[at..at + part.len()]);
        }
        self.size = self.size.max(end);
    }

    /// Makes `start..end` read as zeroes; whole blocks become holes.
    pub(super) fn punch(&mut self, start: u64, end: u64) {
        let touched = start / BLOCK..end.div_ceil(BLOCK).max(start / BLOCK);
        let indices: Vec<u64> = self.blocks.range(touched).map(|(&index, _)| index).collect();
        for index in indices {
            let part = part(index, start, end);
            if part.len() == BLOCK as usize {
                self.blocks.remove(&index);
            } else if let Some(block) = self.blocks.get_mut(&index) {
                Arc::make_mut(block)[part].fill(0);
            }
        }
    }

    pub(super) fn truncate(&mut self, size: u64) {
        if size < self.size {
            self.punch(size, self.size.next_multiple_of(BLOCK));
        }
        self.size = size;
    }

    /// The next byte of data or of a hole; `None`: there is none before the end.
    pub(super) fn seek(&self, what: Seek, offset: u64) -> Option<u64> {
        if offset >= self.size {
            return None;
        }
        let first = offset / BLOCK;
        match what {
            Seek::Data => {
                let (&index, _) = self.blocks.range(first..).next()?;
                Some(offset.max(index * BLOCK))
            }
            Seek::Hole => {
                let run = self.blocks.range(first..).map(|(&index, _)| index);
                let hole = (first..).zip(run).find(|(expected, index)| expected != index);
                let data_blocks = self.blocks.range(first..).count() as u64;
                let hole = hole.map_or(first + data_blocks, |(expected, _)| expected);
                Some(offset.max(hole.saturating_mul(BLOCK)).min(self.size))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_holes_read_as_zeroes_and_are_found() {
        let mut content = Content::default();
        content.write(10_000, b"data");
        content.write((1 << 62) + 5, b"far");
        assert_eq!(content.allocated(), 2 * BLOCK);
        let mut buffer = [1; 8];
        assert_eq!(content.read(9_998, &mut buffer), 8);
        assert_eq!(&buffer, b"\0\0data\0\0");
        assert_eq!(content.seek(Seek::Data, 0), Some(8192));
        assert_eq!(content.seek(Seek::Hole, 8192), Some(12_288));
        assert_eq!(content.seek(Seek::Data, 12_288), Some(1 << 62));
        assert_eq!(content.seek(Seek::Hole, 1 << 62), Some((1 << 62) + 8), "the end is a hole");
        assert_eq!(content.seek(Seek::Data, (1 << 62) + 8), None);
    }

    #[test]
    fn content_truncated_does_not_come_back() {
        let mut content = Content::default();
        content.write(0, &[7; 9000]);
        content.truncate(5000);
        content.truncate(9000);
        let mut buffer = [1; 9000];
        assert_eq!(content.read(0, &mut buffer), 9000);
        assert!(buffer[..5000].iter().all(|&byte| byte == 7));
        assert!(buffer[5000..].iter().all(|&byte| byte == 0));
        content.punch(100, 4996);
        assert_eq!(content.allocated(), 2 * BLOCK);
        content.punch(0, 4096);
        assert_eq!(content.allocated(), BLOCK);
    }
}
