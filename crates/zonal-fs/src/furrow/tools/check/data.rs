//! Data: compares every block with its checksum, in the order of the drive, and reports wrong
//! blocks by file.

use std::ops::Range;

use zerocopy::byteorder::little_endian::U32;

use crate::furrow::format::row::{Place, Row};
use crate::furrow::format::{Address, BLOCK_BYTES};
use crate::furrow::invariant::{self as rule, Problems};
use crate::furrow::metadata::map::place::{ExtentId, Owner};
use crate::furrow::table::key::KeySpan;
use crate::furrow::tools::check::pass::{Item, RowSource};
use crate::furrow::tools::check::{CheckPhase, DataCheck};
use crate::vfs::{Ino, Result};

/// Most blocks of one read.
const BLOCKS_AT_ONCE: usize = 256;

/// Most wrong blocks of shared extents for which the check finds a file.
const SHARED_MAX: usize = 1000;

/// A run of blocks of one owner.
#[derive(Clone, Debug)]
pub(super) struct BlockRun {
    at: Address,
    owner: Owner,
    /// Indices of their checksums in [`Data::crcs`].
    crcs: Range<usize>,
}

/// A part of a run that one read covers: at most [`BLOCKS_AT_ONCE`] blocks.
struct ReadChunk<'a> {
    run: &'a BlockRun,
    /// Blocks of the run before the chunk.
    skip: u32,
    crcs: Range<usize>,
}

impl<'a> ReadChunk<'a> {
    /// Divides a run into chunks.
    fn of(run: &'a BlockRun) -> impl Iterator<Item = Self> {
        run.crcs.clone().step_by(BLOCKS_AT_ONCE).map(move |first| {
            let skip = u32::try_from(first - run.crcs.start).expect("inside a zone");
            Self { run, skip, crcs: first..run.crcs.end.min(first + BLOCKS_AT_ONCE) }
        })
    }

    fn at(&self) -> Address {
        Address { block: self.run.at.block + self.skip, ..self.run.at }
    }

    /// Whether `next` begins at the block behind this chunk.
    fn is_before(&self, next: &Self) -> bool {
        let (at, next) = (self.at(), next.at());
        at.zone == next.zone && at.block as usize + self.crcs.len() == next.block as usize
    }
}

/// A wrong block of a shared extent.
struct Wrong {
    at: Address,
    extent: u64,
    index: u32,
    is_reported: bool,
}

/// The runs of a window of zones, and the wrong blocks found so far.
pub(super) struct Data {
    what: DataCheck,
    runs: Vec<BlockRun>,
    crcs: Vec<u32>,
    wrong: Vec<Wrong>,
    done: u64,
    total: u64,
}

impl Data {
    pub(super) fn new(what: DataCheck, total: u64) -> Self {
        Self { what, runs: Vec::new(), crcs: Vec::new(), wrong: Vec::new(), done: 0, total }
    }

    /// Adds a run of blocks to read.
    pub(super) fn note(&mut self, at: Address, owner: Owner, crcs: &[U32]) {
        if self.what == DataCheck::Skip {
            return;
        }
        let first = self.crcs.len();
        self.crcs.extend(crcs.iter().map(|crc| crc.get()));
        let crcs = first..self.crcs.len();
        self.runs.push(BlockRun { at, owner, crcs });
    }

    /// Reads all runs that were added, and forgets them.
    pub(super) fn read(&mut self, source: &mut RowSource<'_>, problems: &mut Problems) {
        let mut runs = std::mem::take(&mut self.runs);
        runs.sort_unstable_by_key(|run| run.at);
        let mut pieces: Vec<ReadChunk<'_>> = Vec::new();
        for piece in runs.iter().flat_map(ReadChunk::of) {
            let blocks: usize = pieces.iter().map(|piece| piece.crcs.len()).sum();
            let is_next = pieces.last().is_some_and(|last| last.is_before(&piece));
            if !is_next || blocks + piece.crcs.len() > BLOCKS_AT_ONCE {
                self.read_joined(source, &pieces, problems);
                pieces.clear();
            }
            pieces.push(piece);
        }
        self.read_joined(source, &pieces, problems);
        self.crcs.clear();
    }

    /// Reads neighbouring chunks with one command; if that fails, one by one.
    fn read_joined(
        &mut self,
        source: &mut RowSource<'_>,
        pieces: &[ReadChunk<'_>],
        problems: &mut Problems,
    ) {
        let Some(first) = pieces.first() else { return };
        let crcs = pieces.iter().flat_map(|piece| &self.crcs[piece.crcs.clone()]);
        let crcs: Vec<u32> = crcs.copied().collect();
        let mut buffer = vec![0; crcs.len() * BLOCK_BYTES];
        let wrong = source.drive.read_verified(first.at(), &crcs, &mut buffer);
        match (wrong, pieces) {
            (Ok(wrong), _) => {
                for index in wrong {
                    let block = first.at().block + index;
                    let next = pieces.partition_point(|piece| piece.at().block <= block);
                    self.add_wrong_of(&pieces[next - 1], block, problems);
                }
            }
            (Err(error), [piece]) => {
                let at = piece.at();
                let what = format!("zone {} block {}: {error}", at.zone, at.block);
                match piece.run.owner {
                    Owner::Entry(ino, _) => problems.add_of(rule::DATA, ino, what),
                    Owner::Extent(_) => problems.add(rule::DATA, what),
                }
            }
            (Err(_), pieces) => {
                for piece in pieces {
                    self.read_joined(source, std::slice::from_ref(piece), problems);
                }
                return;
            }
        }
        self.done += crcs.len() as u64;
        source.report_progress(CheckPhase::Data, self.done, self.total);
    }

    fn add_wrong_of(&mut self, piece: &ReadChunk<'_>, block: u32, problems: &mut Problems) {
        let run = piece.run;
        let (at, index) = (Address { block, ..run.at }, block - run.at.block);
        match run.owner {
            Owner::Entry(ino, first) => {
                add_wrong(at, Some((ino, first + u64::from(index))), problems);
            }
            Owner::Extent(ExtentId(extent)) if self.wrong.len() < SHARED_MAX => {
                self.wrong.push(Wrong { at, extent, index, is_reported: false });
            }
            Owner::Extent(_) => add_wrong(at, None, problems),
        }
    }

    /// Reports wrong blocks of shared extents, with one of their files. Returns the blocks read in
    /// all.
    pub(super) fn end(
        mut self,
        source: &mut RowSource<'_>,
        problems: &mut Problems,
    ) -> Result<u64> {
        if self.wrong.is_empty() {
            return Ok(self.done);
        }
        self.wrong.sort_unstable_by_key(|wrong| (wrong.extent, wrong.index));
        let wrong = &mut self.wrong;
        source.pass(CheckPhase::Data, KeySpan::INODES, &mut |item| {
            if let Item::Row(key, Row::Map(blocks, Place::Shared(shared, _)), _) = item {
                let (extent, skip) = (shared.extent.get(), shared.skip.get());
                let end = skip.saturating_add(blocks);
                let first =
                    wrong.partition_point(|wrong| (wrong.extent, wrong.index) < (extent, skip));
                let inside = |wrong: &&mut Wrong| wrong.extent == extent && wrong.index < end;
                for wrong in wrong[first..].iter_mut().take_while(inside) {
                    if !std::mem::replace(&mut wrong.is_reported, true) {
                        let block = key.at() + u64::from(wrong.index - skip);
                        add_wrong(wrong.at, Some((Ino::new(key.owner()), block)), problems);
                    }
                }
            }
        })?;
        for wrong in self.wrong.iter().filter(|wrong| !wrong.is_reported) {
            add_wrong(wrong.at, None, problems);
        }
        Ok(self.done)
    }
}

fn add_wrong(at: Address, of: Option<(Ino, u64)>, problems: &mut Problems) {
    let Address { zone, block } = at;
    match of {
        Some((ino, block_of_file)) => {
            let byte = block_of_file * BLOCK_BYTES as u64;
            let what = format!("zone {zone} block {block}: byte {byte} of inode {ino}");
            problems.add_of(rule::DATA, ino, what);
        }
        None => problems.add(rule::DATA, format!("zone {zone} block {block}")),
    }
}
