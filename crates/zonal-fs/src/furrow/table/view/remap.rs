//! Remap tables in the view: they give the present places of moved blocks to every reader, and say
//! which remap tables no row needs any more.
//!
//! See [`moves`](crate::furrow::table::remaps).

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};

use super::super::key::{Key, KeySpan};
use super::super::levels::{Levels, Part};
use super::super::memtable::Memtable;
use super::{Refused, View};
use crate::FsError;
use crate::furrow::drive::Drive;
use crate::furrow::format::ZoneGeneration;
use crate::furrow::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use crate::furrow::table::remaps::{MovedKey, Moves};
use crate::vfs::Result;

/// Rows of remap tables that a mount reads at once.
const ROWS: usize = 1024;

/// Parts with old places that one step writes again.
const MOVED_PARTS: usize = 2;

/// A step writes at most this many bytes of parts, both copies together, for each byte of memory
/// that dropping remap tables gives back.
const BYTES_FOR_MOVED: u64 = 32;

/// Numbers of remap tables. The rows of a layer have all remaps below its number applied.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RemapMarks {
    /// One above the highest number so far.
    end: u64,
    /// One above the highest durable number.
    durable: u64,
    /// The number of the memtable's rows.
    memtable: u64,
    /// The number of the frozen memtable's rows, if there is one.
    frozen: u64,
}

/// The remap tables of all layers.
#[derive(Debug, Default)]
pub(super) struct RemapState {
    moves: RwLock<Moves>,
    /// There are remap tables, or were some: without any, a reader takes no lock.
    has_some: AtomicBool,
    /// No copy gives some of them.
    has_lost: AtomicBool,
}

impl RemapState {
    /// Whether a thread panicked while it changed them.
    pub(super) fn is_poisoned(&self) -> bool {
        self.moves.is_poisoned()
    }
}

impl RemapMarks {
    pub(super) fn note_durable(&mut self) {
        self.durable = self.end;
    }

    /// Begins a memtable: its rows have all durable remaps applied.
    pub(super) fn freeze(&mut self) {
        self.frozen = self.memtable;
        self.memtable = self.durable;
    }
}

impl View {
    fn read_moves(&self) -> RwLockReadGuard<'_, Moves> {
        self.moved.moves.read().expect("no holder panicked")
    }

    fn write_moves(&self) -> RwLockWriteGuard<'_, Moves> {
        self.moved.moves.write().expect("no holder panicked")
    }

    /// Enters the remap tables of a batch.
    pub(super) fn enter_remaps(&self, marks: &mut RemapMarks, rows: &Memtable) {
        let mut rows = rows.range(Key::REMAPS, Key::MAX).peekable();
        if rows.peek().is_none() {
            return;
        }
        let mut moves = self.write_moves();
        for (key, value) in rows {
            moves.apply(*key, value.as_deref());
        }
        marks.end = marks.end.max(moves.end());
        self.moved.has_some.store(true, Ordering::Release);
    }

    /// Reads all remap tables. If some are lost, the blocks that they led to are lost with them.
    pub(in crate::furrow) fn load_remaps(&self, drive: &Drive) -> Result<()> {
        let mut from = Key::REMAPS;
        while from < Key::MAX {
            let found = match self.rows(drive, KeySpan::REMAPS.starting_at(from), ROWS) {
                Ok(found) => found,
                Err(error @ (FsError::Corrupt { .. } | FsError::Refused { .. })) => {
                    let span = KeySpan::REMAPS.starting_at(from);
                    let past = self.past_lost(drive, span, Refused::IsLost);
                    from = past.filter(|past| *past > from).ok_or(error)?;
                    self.moved.has_lost.store(true, Ordering::Release);
                    continue;
                }
                Err(error) => return Err(error),
            };
            let mut moves = self.write_moves();
            for (key, value) in &found.rows {
                moves.apply(*key, Some(value));
            }
            self.moved.has_some.fetch_or(!found.rows.is_empty(), Ordering::AcqRel);
            from = found.end;
        }
        if self.knows_lost(drive, KeySpan::REMAPS) {
            self.moved.has_lost.store(true, Ordering::Release);
        }
        let mut layers = self.write_layers();
        let moves = self.read_moves();
        let in_parts = layers.levels.parts().map(|part| part.summary.moved_below);
        let end = in_parts.filter(|below| *below < u64::MAX).max().unwrap_or(0).max(moves.end());
        // The rows of the journal do not say which remaps they have applied: assume none.
        let oldest = moves.oldest().unwrap_or(end);
        layers.moved = RemapMarks { end, durable: end, memtable: oldest, frozen: oldest };
        Ok(())
    }

    /// Whether some remap tables are lost.
    pub(in crate::furrow) fn has_lost_remaps(&self) -> bool {
        self.moved.has_lost.load(Ordering::Acquire)
    }

    /// The value of a row with the present place of its blocks, if a remap table with a number
    /// below `below` has moved them.
    pub(in crate::furrow) fn moved_value(
        &self,
        key: Key,
        value: &[u8],
        below: u64,
    ) -> Option<Vec<u8>> {
        if !self.moved.has_some.load(Ordering::Acquire) {
            return None;
        }
        self.read_moves().moved_value(key, value, below)
    }

    /// The value of a row with the present place of its blocks.
    pub(super) fn with_remaps(&self, key: Key, value: Box<[u8]>) -> Box<[u8]> {
        self.moved_value(key, &value, u64::MAX).map_or(value, Vec::into_boxed_slice)
    }

    /// Whether the rows that are not durable yet include a remap table.
    pub(in crate::furrow) fn has_unwritten_remaps(&self) -> bool {
        self.with_unwritten(|rows| {
            rows.range(Key::REMAPS, Key::MAX).any(|(_, value)| value.is_some())
        })
    }

    /// One above the number of the last remap table.
    pub(in crate::furrow) fn remap_end(&self) -> u64 {
        self.read_layers().moved.end
    }

    /// One above the number of the last durable remap table.
    pub(in crate::furrow) fn durable_remap_end(&self) -> u64 {
        self.read_layers().moved.durable
    }

    /// All rows, in memory and in parts, have the remaps below this number applied.
    pub(in crate::furrow::table) fn moved_below(&self) -> u64 {
        let layers = self.read_layers();
        let marks = &layers.moved;
        let in_memory = if layers.frozen.is_some() { marks.frozen } else { marks.memtable };
        in_parts(&layers.levels).min(in_memory)
    }

    /// Parts to write again so that the oldest remap table can go, if remap tables take half of the
    /// memory that they may (`held_max` bytes) and no row in memory needs it. The sweep writes most
    /// parts again sooner or later, but not parts of files that do not change.
    pub(in crate::furrow) fn parts_before_remaps(
        &self,
        levels: &Levels,
        held_max: usize,
    ) -> Option<BTreeSet<u64>> {
        let (held_bytes, oldest) = {
            let moves = self.read_moves();
            (moves.held_bytes(), moves.oldest()?)
        };
        if held_bytes < held_max / 2 || self.read_layers().moved.memtable <= oldest {
            return None;
        }
        let mut parts: Vec<&Part> =
            levels.parts().filter(|part| part.summary.moved_below <= oldest).collect();
        let bytes: u64 = parts.iter().map(|part| 2 * u64::from(part.summary.bytes)).sum();
        if bytes > BYTES_FOR_MOVED * held_bytes as u64 || parts.is_empty() {
            return None;
        }
        parts.sort_by_key(|part| part.summary.moved_below);
        Some(parts.iter().take(MOVED_PARTS).map(|part| part.summary.number).collect())
    }

    /// Remap tables with a number below `below`.
    pub(in crate::furrow) fn remaps_below(&self, below: u64) -> Vec<MovedKey> {
        self.read_moves().below(below)
    }

    /// Bytes of memory of all remap tables.
    pub(in crate::furrow) fn moved_bytes(&self) -> usize {
        self.read_moves().held_bytes()
    }

    /// The zones of which there are remap tables, once for each.
    pub(in crate::furrow) fn remapped_zones(&self) -> Vec<ZoneGeneration> {
        self.read_moves().zones().collect()
    }
}

fn in_parts(levels: &Levels) -> u64 {
    levels.parts().map(|part| part.summary.moved_below).min().unwrap_or(u64::MAX)
}
