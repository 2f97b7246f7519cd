//! The maps of files: where the blocks of each file are.
//!
//! [`File::map`] leads from file blocks to zones, by way of [`SharedExtents`] where several files
//! share blocks. See [`block_map`] and [`place`].

pub(in crate::furrow) mod block_map;
pub(in crate::furrow) mod buffered;
pub(in crate::furrow) mod discards;
pub(in crate::furrow) mod place;
pub(in crate::furrow) mod row;
pub(in crate::furrow) mod shared;

use std::ops::Range;
use std::sync::Arc;

use self::block_map::{BlockMap, EntryRef};
use self::buffered::Buffered;
use self::discards::Discards;
use self::place::{ExtentId, MapEntry};
use self::shared::SharedExtents;
use crate::furrow::format::BLOCK_BYTES;
use crate::furrow::metadata::residency::used::Loaded;
use crate::furrow::metadata::resident::Resident;
use crate::furrow::metadata::small::SmallMap;
use crate::furrow::sync::Mutex;

/// Rows of a map that the first load in a place reads, to have the neighbours of a block as well. A
/// load that continues where one has ended reads twice as many, up to [`MAP_ROWS_MAX`].
pub(in crate::furrow) const MAP_ROWS_FIRST: usize = 4;
const MAP_ROWS_MAX: usize = 256;

/// Shared extents, discarded ranges, and the files with buffered blocks.
#[derive(Debug, Default)]
pub(in crate::furrow) struct Maps {
    /// Blocks that several map entries have.
    pub(in crate::furrow) shared: SharedExtents,
    pub(in crate::furrow) discards: Discards,
    pub(in crate::furrow) buffered: Buffered,
}

/// A block in the write buffer.
#[derive(Clone, Debug)]
pub(in crate::furrow) struct DirtyBlock {
    /// Changes when the block leaves the buffer and comes back, so that a slow write-back does not
    /// take a new block for the one that it wrote.
    pub(in crate::furrow) id: u64,
    pub(in crate::furrow) data: Arc<[u8; BLOCK_BYTES]>,
    /// Blocks of logical space reserved for it: 0 if it replaces a block that is this file's alone.
    pub(in crate::furrow) reserved: u64,
    /// The shared extent of which it replaces a block.
    pub(in crate::furrow) over: Option<ExtentId>,
}

/// A load of a piece of a map.
#[derive(Clone, Debug)]
pub(in crate::furrow) struct MapLoad {
    /// The block that an operation needed.
    pub(in crate::furrow) block: u64,
    /// The end of the range that it loaded.
    pub(in crate::furrow) end: u64,
    /// Entries that the load asked for.
    pub(in crate::furrow) wanted: usize,
    /// The number of loads before it.
    pub(in crate::furrow) at: u64,
}

/// Content of a regular file.
#[derive(Clone, Debug, Default)]
pub(in crate::furrow) struct File {
    /// Map entries of the blocks in `resident`.
    pub(in crate::furrow) map: BlockMap,
    /// Blocks whose map entries are in memory, if they have any.
    pub(in crate::furrow) resident: Resident,
    /// The last loads of pieces of the map.
    pub(in crate::furrow) loaded: Loaded<MapLoad>,
    pub(in crate::furrow) dirty: SmallMap<u64, DirtyBlock>,
    /// Blocks mapped, preallocated ones included.
    pub(in crate::furrow) mapped: u64,
    /// Sum of the buffered blocks' `reserved`: the blocks by which the file will grow.
    pub(in crate::furrow) growing: u64,
    /// The block from which on mapped blocks wait to be removed. See
    /// [`truncate`](crate::furrow::truncate).
    pub(in crate::furrow) truncate_from: Option<u64>,
    /// Held by an appending writer; made by the first one.
    pub(in crate::furrow) appending: Option<Arc<Mutex<()>>>,
}

impl File {
    /// An empty one, of which memory knows everything.
    pub(in crate::furrow) fn empty() -> Self {
        Self { resident: Resident::all(), ..Self::default() }
    }

    /// The map entry that covers `block`, with its first block.
    pub(in crate::furrow) fn covering(&self, block: u64) -> Option<(u64, EntryRef<'_>)> {
        let (first, entry) = self.map.at_or_before(block)?;
        (block < first + u64::from(entry.blocks())).then_some((first, entry))
    }

    /// Map entries that overlap `first..limit`, with their first blocks.
    pub(in crate::furrow) fn overlapping(
        &self,
        first: u64,
        limit: u64,
    ) -> impl Iterator<Item = (u64, EntryRef<'_>)> {
        // An empty range overlaps nothing, not even the entry it lies in.
        let covering = if first < limit { self.covering(first) } else { None };
        let next =
            covering.as_ref().map_or(first, |(start, entry)| start + u64::from(entry.blocks()));
        // One entry is enough for most overwrites: a second search would double their time here.
        let rest = (next < limit).then(|| self.map.range(next..limit));
        covering.into_iter().chain(rest.into_iter().flatten())
    }

    /// How many rows of a map to read for a block: more where the last load has ended.
    pub(in crate::furrow) fn rows_wanted(&self, block: u64) -> usize {
        let before = self.loaded.iter().find(|piece| piece.end == block);
        before.map_or(MAP_ROWS_FIRST, |piece| (2 * piece.wanted).min(MAP_ROWS_MAX))
    }

    /// Enters map entries where none were resident. Returns the bytes that they take.
    pub(in crate::furrow) fn enter(
        &mut self,
        entries: Vec<(u64, MapEntry)>,
        resident: Range<u64>,
    ) -> usize {
        let (mut bytes, held) = (0, self.frame_bytes());
        for (first, entry) in entries {
            let limit = first + u64::from(entry.blocks());
            if self.resident.end_of(first).is_some() {
                continue;
            }
            if self.overlapping(first, limit).next().is_some() {
                tracing::error!(block = first, "a map entry overlaps another, and is left out");
                continue;
            }
            bytes += entry.held_bytes();
            self.map.insert(first, entry);
        }
        self.resident.insert(resident);
        (bytes + self.frame_bytes()).saturating_sub(held)
    }

    /// Bytes of its trees, without the allocations of their entries.
    pub(super) fn frame_bytes(&self) -> usize {
        self.map.held_bytes() + self.resident.held_bytes() + self.loaded.held_bytes()
    }

    /// Whether memory has data or a size of it that the table has not.
    pub(super) fn is_being_written(&self) -> bool {
        let is_appended_to =
            self.appending.as_ref().is_some_and(|lock| Arc::strong_count(lock) > 1);
        !self.dirty.is_empty() || is_appended_to
    }
}
