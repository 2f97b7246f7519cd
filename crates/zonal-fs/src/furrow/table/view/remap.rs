//! Rows with their blocks where they are now, and which tables of moved blocks no row needs any more.
//!
//! See [`moves`](crate::furrow::table::remaps).

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};

use super::super::key::Key;
use super::super::levels::{Levels, Part};
use super::super::memtable::Memtable;
use super::View;
use crate::FsError;
use crate::furrow::drive::Drive;
use crate::furrow::format::ZoneGeneration;
use crate::furrow::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use crate::furrow::table::remaps::{MovedKey, Moves};
use crate::vfs::Result;

/// Rows of tables of moved blocks that are read in one step.
const ROWS: usize = 1024;

/// Parts that are written again at once, for they name places of before old moves.
const MOVED_PARTS: usize = 2;

/// Bytes of parts, both copies together, that are written for each byte of memory that tables of moved blocks give back.
const BYTES_FOR_MOVED: u64 = 32;

/// Numbers of tables of moved blocks. Rows of a layer name places as they were when all moves below a number had been
/// made, or later ones.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RemapMarks {
    /// Behind the last one that was entered.
    end: u64,
    /// Behind the last one that is durable.
    durable: u64,
    /// What the rows of the memtable have.
    memtable: u64,
    /// What those of the frozen memtable have, if there is one.
    frozen: u64,
}

/// Tables of moved blocks.
#[derive(Debug, Default)]
pub(super) struct RemapState {
    moves: RwLock<Moves>,
    /// There are, or were, some.
    has_some: AtomicBool,
    /// Some are lost.
    has_lost: AtomicBool,
}

impl RemapState {
    /// Whether a thread has panicked while it changed them.
    pub(super) fn is_poisoned(&self) -> bool {
        self.moves.is_poisoned()
    }
}

impl RemapMarks {
    pub(super) fn note_durable(&mut self) {
        self.durable = self.end;
    }

    /// Rows from now on are of a memtable that has what is durable.
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

    /// Takes over the rows of a batch that are of tables of moved blocks.
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

    /// Reads all tables of moved blocks. Some may be lost, and with them the blocks.
    pub(in crate::furrow) fn load_remaps(&self, drive: &Drive) -> Result<()> {
        let mut from = Key::REMAPS;
        while from < Key::MAX {
            let found = match self.rows(drive, (from, Key::MAX), ROWS) {
                Ok(found) => found,
                Err(error @ FsError::Corrupt { .. }) => {
                    let past = self.past_lost(drive, (from, Key::MAX));
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
        if self.knows_lost(drive, (Key::REMAPS, Key::MAX)) {
            self.moved.has_lost.store(true, Ordering::Release);
        }
        let mut layers = self.write_layers();
        let moves = self.read_moves();
        let in_parts = layers.levels.parts().map(|part| part.summary.moved_below);
        let end = in_parts.filter(|below| *below < u64::MAX).max().unwrap_or(0).max(moves.end());
        // What rows of the journal have is not known.
        let oldest = moves.oldest().unwrap_or(end);
        layers.moved = RemapMarks { end, durable: end, memtable: oldest, frozen: oldest };
        Ok(())
    }

    /// Whether some of the tables of moved blocks are lost.
    pub(in crate::furrow) fn has_lost_remaps(&self) -> bool {
        self.moved.has_lost.load(Ordering::Acquire)
    }

    /// The value of a row with its blocks where they are, if it has some that were moved and noted in tables with a
    /// number below another.
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

    /// The value of a row with its blocks where they are.
    pub(super) fn with_remaps(&self, key: Key, value: Box<[u8]>) -> Box<[u8]> {
        self.moved_value(key, &value, u64::MAX).map_or(value, Vec::into_boxed_slice)
    }

    /// Whether the rows that are not durable say where blocks were moved.
    pub(in crate::furrow) fn has_unwritten_remaps(&self) -> bool {
        self.with_unwritten(|rows| {
            rows.range(Key::REMAPS, Key::MAX).any(|(_, value)| value.is_some())
        })
    }

    /// Behind the number of the last table of moved blocks.
    pub(in crate::furrow) fn remap_end(&self) -> u64 {
        self.read_layers().moved.end
    }

    /// Behind the number of the last one that is durable.
    pub(in crate::furrow) fn durable_remap_end(&self) -> u64 {
        self.read_layers().moved.durable
    }

    /// Below which number all moves are in the places that rows name, in memory and in parts.
    pub(in crate::furrow) fn moved_below(&self) -> u64 {
        let layers = self.read_layers();
        let marks = &layers.moved;
        let in_memory = if layers.frozen.is_some() { marks.frozen } else { marks.memtable };
        in_parts(&layers.levels).min(in_memory)
    }

    /// Parts to be written again because tables of moved blocks take half the memory that they may, and only these parts
    /// still need the oldest. Most parts are written again by the sweep sooner or later; those of files that
    /// nobody writes are not.
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

    /// Tables of moved blocks with a number below another.
    pub(in crate::furrow) fn remaps_below(&self, below: u64) -> Vec<MovedKey> {
        self.read_moves().below(below)
    }

    /// Bytes of memory that tables of moved blocks take.
    pub(in crate::furrow) fn moved_bytes(&self) -> usize {
        self.read_moves().held_bytes()
    }

    /// The zones of which there are tables of moved blocks, once for each.
    pub(in crate::furrow) fn remapped_zones(&self) -> Vec<ZoneGeneration> {
        self.read_moves().zones().collect()
    }
}

fn in_parts(levels: &Levels) -> u64 {
    levels.parts().map(|part| part.summary.moved_below).min().unwrap_or(u64::MAX)
}
