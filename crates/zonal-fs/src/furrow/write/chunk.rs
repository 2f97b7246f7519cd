//! Chunks of a write: which blocks go straight to the drive, and which through the buffer.

use std::borrow::Cow;

use crate::furrow::format::BLOCK_BYTES;
use crate::furrow::metadata::state::target::{CHUNK_BYTES, WrittenAs};
use crate::furrow::options::Seeks;
use crate::vfs::{Ino, WriteFlags};

const BLOCK: u64 = BLOCK_BYTES as u64;

/// A write of this many whole blocks goes straight to the drive: it makes a large enough extent.
const STRAIGHT_BLOCKS: u64 = 16;

/// A write of at most [`CHUNK_BYTES`], cut into blocks.
pub(in crate::furrow) struct Chunk<'a> {
    pub(in crate::furrow) ino: Ino,
    pub(in crate::furrow) offset: u64,
    data: &'a [u8],
    /// Blocks touched.
    pub(in crate::furrow) first: u64,
    pub(in crate::furrow) limit: u64,
    /// Blocks that go straight to the drive; empty if none do.
    pub(in crate::furrow) straight: std::ops::Range<u64>,
    pub(in crate::furrow) last: LastBlock,
    pub(in crate::furrow) flags: WriteFlags,
    /// The bytes that are written, of which this is a part.
    write: std::ops::Range<u64>,
}

/// What to do with a last block that the write covers only in part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::furrow) enum LastBlock {
    /// Buffer it, with the rest of its stored content.
    Buffered,
    /// Pad it with zeroes, since the file ends in it: so it goes straight to the drive with the
    /// others, in one write and one extent.
    Padded,
}

impl<'a> Chunk<'a> {
    pub(in crate::furrow) fn new(ino: Ino, offset: u64, data: &'a [u8], flags: WriteFlags) -> Self {
        let end = offset + data.len() as u64;
        let whole = offset.div_ceil(BLOCK)..end / BLOCK;
        let count = whole.end.saturating_sub(whole.start);
        let is_straight =
            count >= STRAIGHT_BLOCKS || (flags.contains(WriteFlags::DIRECT) && count > 0);
        let first = offset / BLOCK;
        let straight = if is_straight { whole } else { first..first };
        let (last, limit) = (LastBlock::Buffered, end.div_ceil(BLOCK));
        let write = offset..end;
        Self { ino, offset, data, first, limit, straight, last, flags, write }
    }

    /// Sets the write of which this is a chunk.
    pub(in crate::furrow) fn of_write(self, write: std::ops::Range<u64>) -> Self {
        Self { write, ..self }
    }

    /// Whether the chunk may go through the buffer although its blocks are whole: where a jump
    /// costs time always, and else if it is no direct write, and shorter than a full chunk, after
    /// which more is likely to come.
    pub(in crate::furrow) fn may_gather(&self, seeks: Seeks) -> bool {
        let is_full = self.end() - self.offset >= CHUNK_BYTES;
        let is_short = !is_full && !self.flags.contains(WriteFlags::DIRECT);
        !self.straight.is_empty() && (seeks == Seeks::Cost || is_short)
    }

    /// Makes all of it go through the buffer.
    pub(in crate::furrow) fn gather(&mut self) {
        self.straight = self.first..self.first;
    }

    /// Pads the last block if a file of `size` bytes ends in it. Not if the chunk begins inside a
    /// block: then the next one will too, and would have to read this block from the drive.
    pub(in crate::furrow) fn pad(&mut self, size: u64) {
        let pads = !self.straight.is_empty()
            && self.offset.is_multiple_of(BLOCK)
            && !self.end().is_multiple_of(BLOCK)
            && size <= self.end();
        if pads {
            self.straight.end = self.limit;
            self.last = LastBlock::Padded;
        }
    }

    pub(in crate::furrow) fn end(&self) -> u64 {
        self.offset + self.data.len() as u64
    }

    /// Its blocks with one on either side, so that neighbours become one extent.
    pub(in crate::furrow) fn with_neighbours(&self) -> (u64, u64) {
        (self.first.saturating_sub(1), self.limit + 1)
    }

    /// Blocks that go through the buffer.
    pub(in crate::furrow) fn buffered(&self) -> impl Iterator<Item = u64> + use<> {
        let straight = self.straight.clone();
        (self.first..self.limit).filter(move |block| !straight.contains(block))
    }

    /// The first and the last block if they are buffered and the write covers only a part of them.
    pub(in crate::furrow) fn edges(&self) -> impl Iterator<Item = u64> {
        let head = (!self.offset.is_multiple_of(BLOCK)).then_some(self.first);
        let is_part = !self.end().is_multiple_of(BLOCK) && self.last == LastBlock::Buffered;
        let tail = is_part.then_some(self.limit - 1);
        head.into_iter().chain(tail.filter(|tail| Some(*tail) != head))
    }

    /// The bytes that go to `block`, and where in it.
    pub(in crate::furrow) fn bytes_of(&self, block: u64) -> (usize, &'a [u8]) {
        let from = (block * BLOCK).max(self.offset);
        let to = ((block + 1) * BLOCK).min(self.end());
        let index = |position: u64| usize::try_from(position - self.offset).expect("in memory");
        let at = usize::try_from(from % BLOCK).expect("inside a block");
        (at, &self.data[index(from)..index(to)])
    }

    /// How the blocks of the chunk are written, with the size of the whole write, which hints at
    /// the size of the file.
    pub(in crate::furrow) fn written_as(&self) -> WrittenAs {
        let is_last = self.write.end == self.end();
        let up_to = if is_last { self.straight.end } else { self.write.end.div_ceil(BLOCK) };
        let bytes = self.write.end - self.write.start;
        WrittenAs::Straight { up_to, is_full: bytes.is_multiple_of(CHUNK_BYTES) }
    }

    /// The bytes that go straight to the drive.
    pub(in crate::furrow) fn straight_bytes(&self) -> Cow<'a, [u8]> {
        if self.straight.is_empty() {
            return Cow::Borrowed(&[]);
        }
        let index = |block: u64| usize::try_from(block * BLOCK - self.offset).expect("in memory");
        let bytes = index(self.straight.start)..index(self.straight.end);
        match self.last {
            LastBlock::Buffered => Cow::Borrowed(&self.data[bytes]),
            LastBlock::Padded => {
                let mut padded = Vec::with_capacity(bytes.len());
                padded.extend_from_slice(&self.data[bytes.start..]);
                padded.resize(bytes.len(), 0);
                Cow::Owned(padded)
            }
        }
    }
}
