//! Sums: the rows of group 0, which sum up all other rows.
//!
//! A mount reads only these rows, so each batch contains their values at its moment: the totals,
//! every zone whose live blocks have changed, every orphan that came or went. Blocks on their way
//! to the drive are not counted yet.

use std::collections::{BTreeMap, BTreeSet};

use zerocopy::byteorder::little_endian::{U16, U32, U64};
use zonal_placement::learned::{self, Learned};

use crate::furrow::format::GENERATIONS;
use crate::furrow::format::row::{LearnedRow, Row, TotalsRow, ZoneRow};
use crate::furrow::invariant::{self as rule, Problems};
use crate::furrow::metadata::State;
use crate::furrow::metadata::directory::names::NameKey;
use crate::furrow::metadata::inode::lives::Lives;
use crate::furrow::metadata::map::discards::Discards;
use crate::furrow::metadata::rows::totals::{Numbers, Totals};
use crate::furrow::table::key::Key;
use crate::furrow::zones::{Listed, Origin, Role, ZoneSlot, Zones};
use crate::vfs::Ino;

/// The row of a zone, if it has one.
pub(super) fn zone_row(slot: &ZoneSlot) -> Option<ZoneRow> {
    (slot.live > 0).then(|| ZoneRow {
        live: U32::new(slot.live),
        end: U32::new(slot.end),
        last_write: U64::new(slot.last_write),
        next_owners: U32::new(slot.next_owners),
        owner_bytes: U32::new(slot.owner_bytes),
        born: U64::new(slot.born),
        listed: u8::from(slot.is_listed_in_rows()),
        moved: u8::from(slot.origin == Origin::Moved),
        generation: slot.generation,
        reserved: 0,
    })
}

/// The row of learned lives and sizes.
pub(super) fn learned_row(row: &learned::Row) -> LearnedRow {
    LearnedRow { lives: row.lives.map(U16::new), sizes: row.sizes.map(U16::new) }
}

/// Learned lives and sizes, from their row.
pub(in crate::furrow) fn learned_of(row: &LearnedRow) -> learned::Row {
    learned::Row { lives: row.lives.map(U16::get), sizes: row.sizes.map(U16::get) }
}

/// Whether a row can be that of a zone.
pub(in crate::furrow) fn is_sane(row: &ZoneRow, slot: &ZoneSlot) -> bool {
    let holds_data = !matches!(slot.role, Role::Super | Role::Meta);
    // Each row of owners has a byte or more.
    let has_owners = row.next_owners <= row.owner_bytes;
    let fits = row.live <= row.end && row.end.get() <= slot.capacity;
    holds_data && row.live > 0 && fits && has_owners && row.generation < GENERATIONS
}

/// The rows of group 0.
#[derive(Debug, Default)]
pub(in crate::furrow) struct Base {
    totals: Option<TotalsRow>,
    zones: BTreeMap<u64, ZoneRow>,
    orphans: BTreeSet<Ino>,
    learned: Learned,
    discards: Discards,
}

impl Base {
    /// Enters a row of these.
    pub(in crate::furrow) fn put(&mut self, key: Key, row: &Row<'_>) {
        match row {
            Row::Totals(row) => self.totals = Some(*row),
            Row::Zone(row) => drop(self.zones.insert(key.owner(), *row)),
            Row::Orphan => drop(self.orphans.insert(Ino::new(key.owner()))),
            Row::Learned(row) => self.learned.restore(key.owner(), &learned_of(row)),
            Row::Discard(row) => self.discards.restore(key, row),
            Row::Inode(..)
            | Row::Xattr(..)
            | Row::Map(..)
            | Row::Name(_)
            | Row::Entry(..)
            | Row::Extent(..)
            | Row::Backrefs(_)
            | Row::Remap(..) => {}
        }
    }

    /// The state as far as these rows tell it. `zones` know their roles and capacities.
    pub(in crate::furrow) fn into_state(
        self,
        zones: Zones,
        name_key: NameKey,
        problems: &mut Problems,
    ) -> State {
        let mut state = State::new(zones, name_key);
        let Some(row) = &self.totals else {
            problems.add(rule::TOTALS, "there is no row of totals".into());
            return state;
        };
        (state.rows.numbers, state.rows.totals) = (Numbers::of_row(row), Totals::of_row(row));
        let (mut live, mut owner_bytes) = (0, 0);
        for (&zone, row) in &self.zones {
            let known = u32::try_from(zone).ok().filter(|zone| state.zones.ids().contains(zone));
            let Some(zone) = known.filter(|&zone| is_sane(row, state.zones.slot(zone))) else {
                let what = format!("zone {zone} states {} live blocks up to {}", row.live, row.end);
                problems.add(rule::ZONE_ROWS, what);
                continue;
            };
            live += u64::from(row.live.get());
            owner_bytes += u64::from(row.owner_bytes.get());
            state.zones.restore_live(zone, row.live.get());
        }
        // F2; and later changes must not overflow these sums.
        let is_less = |number: U64| number.get() <= u64::MAX / 2;
        let sums = [row.inodes, row.preallocated, row.row_bytes, row.data_clock];
        if live != row.live.get()
            || owner_bytes > row.place_bytes.get()
            || row.place_bytes > row.row_bytes
            || !sums.into_iter().chain([row.next_ino, row.next_extent]).all(is_less)
        {
            problems.add(rule::TOTALS, format!("{live} blocks live in zones: {row:?}"));
        }
        state.inodes.lives = Lives::of_orphans(self.orphans.clone());
        self.apply_clocks(&mut state, problems);
        state.learned = self.learned;
        for what in self.discards.problems() {
            problems.add(rule::DISCARDS, what);
        }
        state.maps.discards = self.discards;
        state
    }

    /// Clocks, and the fields of zones that no other row has.
    fn apply_clocks(&self, state: &mut State, problems: &mut Problems) {
        for (&zone, row) in &self.zones {
            let slot = u32::try_from(zone).ok().and_then(|zone| state.zones.known_mut(zone));
            let Some(slot) = slot.filter(|slot| row.end.get() <= slot.capacity) else {
                problems.add(rule::ZONE_ROWS, format!("zone {zone} ends at block {}", row.end));
                continue;
            };
            slot.end = slot.end.max(row.end.get());
            slot.last_write = row.last_write.get();
            slot.next_owners = row.next_owners.get();
            slot.owner_bytes = row.owner_bytes.get();
            slot.listed = if row.listed == 1 { Listed::Yes } else { Listed::No };
            slot.born = row.born.get();
            slot.generation = row.generation % GENERATIONS;
            slot.origin = if row.moved == 1 { Origin::Moved } else { Origin::Written };
            if let Ok(zone) = u32::try_from(zone) {
                state.zones.index(zone);
            }
        }
        // The drive does not record which zone is next in turn, so the number of zones that users
        // have filled in all stands for it.
        let zones = u64::from(state.zones.ids().end).max(1);
        let filled = state.rows.totals.data_clock() / u64::from(state.zones.zone_blocks().max(1));
        state.zones.set_turn(u32::try_from(filled % zones).expect("less than the zones"));
    }
}
