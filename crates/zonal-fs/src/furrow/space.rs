//! Space: what files may fill, what metadata keeps, and what is left. The parts that promise, show
//! or refuse space ask here; [`layout`](super::layout) has the arithmetic.
//!
//! Files may fill a number of blocks that does not depend on how large they are: as long as the
//! rows are no more than were [planned](Rows::bytes_at_most) for, a file takes the blocks that it
//! has, and nothing else. Rows are counted as they lie in the table, compressed.

use super::Furrow;
use super::layout::{Layout, Rows};
use super::planted::PlantedBug;
use super::state::State;
use super::table::reserve::{RECOVERY_ZONES, SPARE_ZONES_MIN};
use crate::FsError;
use crate::vfs::Result;

/// How the drive is divided between files and metadata.
#[derive(Clone, Copy, Debug)]
pub(super) struct Space {
    /// What is kept of the drive, in percent, for reclaim to have a choice.
    reserve_percent: u32,
    /// Bytes of rows in a copy of the table for which metadata has zones, as long as no names,
    /// symbolic links and extended attributes are long.
    rows_planned: u64,
}

impl Space {
    /// Of a drive whose zones have so many blocks that can be used.
    pub(super) fn new(layout: &Layout, usable: u64, reserve_percent: u32) -> Self {
        let rows = Rows::default();
        let files = layout.user_blocks(usable, reserve_percent, rows);
        Self { reserve_percent, rows_planned: rows.bytes_at_most(files) }
    }
}

impl Furrow {
    /// Bytes that all rows take in a copy of the table, including those that wait for a commit.
    fn packed_rows(&self, state: &State) -> Rows {
        state.totals.rows(self.view.packed_bytes(state.changes.bytes))
    }

    /// Blocks that files may fill now.
    fn user_blocks(&self, state: &State) -> u64 {
        self.user_blocks_with(state, self.packed_rows(state))
    }

    /// Blocks that files may fill where there are such rows.
    pub(super) fn user_blocks_with(&self, state: &State, rows: Rows) -> u64 {
        self.layout().user_blocks(state.zones.usable(), self.space.reserve_percent, rows)
    }

    /// Blocks that files may fill and have not.
    pub(super) fn free_blocks(&self, state: &State) -> u64 {
        self.user_blocks(state).saturating_sub(state.totals.used())
    }

    /// Checks that `growth` more blocks are within what files may fill.
    pub(super) fn check_space(&self, state: &State, growth: u64) -> Result<()> {
        let is_bound = !self.has_planted(PlantedBug::FillAnything);
        if is_bound && growth > 0 && state.totals.used() + growth > self.user_blocks(state) {
            return Err(FsError::NoSpace);
        }
        Ok(())
    }

    /// Bytes of rows for which metadata may have zones.
    fn rows_planned(&self, state: &State) -> u64 {
        self.packed_rows(state).bytes().max(self.space.rows_planned)
    }

    /// Bytes of rows for which metadata has its zones: the uncompressed size of all rows, up to the
    /// planned size. The size of the table goes up and down with its garbage; if the zones followed
    /// that, metadata would at times take two zones at once, which may be all the room of writers.
    pub(super) fn rows_wanted(&self, state: &State) -> u64 {
        state.totals.row_bytes.min(self.rows_planned(state))
    }

    /// Zones that metadata takes for the rows there are, with those it needs to go on.
    pub(super) fn meta_zones_wanted(&self, state: &State) -> u64 {
        self.layout().meta_zones_wanted(self.rows_wanted(state))
    }

    /// Whether metadata has more zones than were planned for its rows.
    pub(super) fn has_zones_beyond_plan(&self, state: &State) -> bool {
        let wanted = self.layout().meta_zones_wanted(self.rows_planned(state));
        !state.zones.is_metadata_below(wanted.saturating_sub(SPARE_ZONES_MIN as u64))
    }

    /// Free zones that metadata needs beside those it has.
    pub(super) fn kept_for_metadata(&self, state: &State) -> usize {
        state.zones.kept_for_metadata(self.meta_zones_wanted(state))
    }

    /// Of `kept` zones those without which a recovery or the next commit may fail, if that adds so
    /// many bytes to the rows that have changed.
    pub(super) fn least_for_metadata(&self, state: &State, kept: usize, added: usize) -> usize {
        kept.min(self.pair_room.zones_for(2 * state.changes.bytes + added).max(RECOVERY_ZONES))
    }
}
