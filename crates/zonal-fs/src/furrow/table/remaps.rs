//! Where the blocks are that reclaim has moved, for all readers of rows.
//!
//! Reclaim moves most blocks without writing a row for each: a *remap table* says where the blocks
//! of a zone went, in about a bit for each. A map row then names a zone in a past generation, and
//! its reader looks up where the blocks are now, which may take several steps. Whenever
//! [`Compaction`](crate::furrow::table::compaction::Compaction) writes rows, it writes the present
//! places into them, so that in the end no row needs a remap table any more, and it is dropped.
//!
//! Numbers show which remap tables rows still need. Remap tables are numbered as they are made.
//! Each part says below which number all moves are applied to its rows (`moved_below`), and so does
//! the memtable for the rows that it was begun with. No row needs a remap table with a number below
//! all of these.
//!
//! [`rows::remaps`](crate::furrow::metadata::rows::remaps) makes them.

use std::collections::BTreeMap;

use crate::furrow::format::remap::{RemapRow, RemapRun, rank_of};
use crate::furrow::format::row::{Row, ZonePlace, with_zone_place, zone_place_of};
use crate::furrow::format::{ZoneGeneration, row};
use crate::furrow::memory::{allocated, in_tree};
use crate::furrow::table::key::{Key, RowKind};

/// The remap table of a zone.
#[derive(Debug)]
struct RemapTable {
    number: u64,
    row: RemapRow,
    tail: Box<[u8]>,
}

impl RemapTable {
    fn held_bytes(&self) -> usize {
        let numbers = in_tree(size_of::<(u64, ZoneGeneration)>());
        size_of::<Self>() + allocated(self.tail.len()) + numbers
    }

    /// Where blocks lie now that it has moved.
    fn place_of(&self, run: RemapRun) -> Option<ZonePlace> {
        let rank = rank_of(&self.row, &self.tail, run)?;
        let zone = ZoneGeneration::from_raw(self.row.zone.get());
        Some(ZonePlace::new(zone, self.row.block.get() + rank))
    }
}

/// All remap tables.
#[derive(Debug, Default)]
pub(super) struct Moves {
    tables: BTreeMap<ZoneGeneration, Vec<RemapTable>>,
    /// Whose table has a number.
    numbers: BTreeMap<u64, ZoneGeneration>,
    held_bytes: usize,
}

/// A remap table, by its zone and number.
pub(in crate::furrow) type MovedKey = (ZoneGeneration, u64);

/// The zone that the key of a table's row names, which a drive may say anything of.
pub(in crate::furrow) fn zone_of(key: Key) -> Option<ZoneGeneration> {
    u32::try_from(key.owner()).ok().map(ZoneGeneration::from_raw)
}

impl Moves {
    /// Bytes of memory that they take.
    pub(super) fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    /// The lowest number of a table, if there is one.
    pub(super) fn oldest(&self) -> Option<u64> {
        self.numbers.first_key_value().map(|(&number, _)| number)
    }

    /// Behind the highest number of a table.
    pub(super) fn end(&self) -> u64 {
        self.numbers.last_key_value().map_or(0, |(&number, _)| number + 1)
    }

    /// Tables with a number below another.
    pub(super) fn below(&self, number: u64) -> Vec<MovedKey> {
        self.numbers.range(..number).map(|(&number, &zone)| (zone, number)).collect()
    }

    /// The zones that have tables, once for each.
    pub(super) fn zones(&self) -> impl Iterator<Item = ZoneGeneration> {
        self.numbers.values().copied()
    }

    /// Takes over a row that has become valid, or is no more. One that makes no sense is left out.
    pub(super) fn apply(&mut self, key: Key, value: Option<&[u8]>) {
        let Some(zone) = zone_of(key) else { return };
        let number = key.at();
        self.remove(zone, number);
        if let Some(value) = value
            && let Ok(Row::Remap(row, tail)) = row::decode(key, value)
        {
            let table = RemapTable { number, row, tail: tail.into() };
            self.held_bytes += table.held_bytes();
            self.tables.entry(zone).or_default().push(table);
            self.numbers.insert(number, zone);
        }
    }

    fn remove(&mut self, zone: ZoneGeneration, number: u64) {
        let Some(tables) = self.tables.get_mut(&zone) else { return };
        let Some(place) = tables.iter().position(|table| table.number == number) else { return };
        self.held_bytes -= tables.remove(place).held_bytes();
        self.numbers.remove(&number);
        if tables.is_empty() {
            self.tables.remove(&zone);
        }
    }

    /// Where blocks are that were written to a place, as far as tables with a number below another
    /// tell.
    fn place_of(&self, place: ZonePlace, blocks: u32, below: u64) -> Option<ZonePlace> {
        let (mut found, mut after) = (None, None);
        loop {
            let at: ZonePlace = found.unwrap_or(place);
            // A block that moved on did so later, so a walk from move to move ends, whatever a
            // drive says.
            let is_next = |table: &&RemapTable| {
                table.number < below && after.is_none_or(|number| table.number > number)
            };
            let tables = self.tables.get(&at.generation()).into_iter().flatten();
            let next = tables.filter(is_next).find_map(|table| {
                let place = table.place_of(RemapRun { block: at.block.get(), blocks })?;
                Some((table.number, place))
            });
            let Some((number, place)) = next else { return found };
            (found, after) = (Some(place), Some(number));
        }
    }

    /// The value of a row with its blocks where they are now, if it has some that were moved.
    pub(super) fn moved_value(&self, key: Key, value: &[u8], below: u64) -> Option<Vec<u8>> {
        if key.kind() != RowKind::Map || self.tables.is_empty() {
            return None;
        }
        let (blocks, place) = zone_place_of(value)?;
        let place = self.place_of(place, blocks, below)?;
        Some(with_zone_place(value, place))
    }
}

/// Whether a row has blocks in a zone that may be moved.
pub(super) fn has_place(key: Key, value: Option<&[u8]>) -> bool {
    key.kind() == RowKind::Map && value.is_some_and(|value| zone_place_of(value).is_some())
}
