//! Space: how many blocks and zones each writer may use.
//!
//! Every question of this kind is a method of [`Space`], and its answer is true as long as the
//! state that it was asked about stays locked. [`layout`](crate::furrow::drive::layout) has the
//! arithmetic of a whole drive, [`Zones`] counts what is free and open.
//!
//! Files may fill a number of blocks that does not depend on how large they are: as long as the
//! rows are no more than were [planned](Rows::bytes_at_most) for, a file takes the blocks that it
//! has, and nothing else. Rows are counted as they lie in the table, compressed.
//!
//! A writer finds room in an open zone or opens a free one. Free zones are shared out like this
//! (F4):
//!
//! | writer | opens a free zone if so many stay free |
//! | --- | --- |
//! | a user's write, direct | all that metadata keeps; it was admitted, so it finds open zones |
//! | write-back of the buffer | those that a recovery needs: a commit that cannot write frees nothing |
//! | reclaim | those that admitted writers need, or the next commit's where there are no more |
//! | metadata | none |

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use zonal_placement::pace::{self, Usable};

use crate::FsError;
use crate::furrow::drive::layout::{Layout, Rows};
use crate::furrow::format::BLOCK_BYTES;
use crate::furrow::metadata::State;
use crate::furrow::planted::{Planted, PlantedBug};
use crate::furrow::table::view::View;
use crate::furrow::zones::allocation::{Kept, Purpose};
use crate::furrow::zones::{RECOVERY_ZONES, SPARE_ZONES_MIN, Urgency, Zones};
use crate::vfs::Result;

/// Bytes that a commit adds to the rows that have changed, about: those of zones, and of owners.
const COMMIT_BYTES: usize = 64 << 10;

/// Free zones, beside those of metadata, at which writers wait for a commit to give zones back.
const FREE_ZONES_FEW: usize = 2;

/// How the drive is divided between files and metadata, and what each writer may use of it.
pub(in crate::furrow) struct Space {
    layout: Layout,
    view: Arc<View>,
    planted: Planted,
    /// Blocks that the next commit can write without another zone.
    pub(in crate::furrow) pair_room: PairRoom,
    /// What is kept of the drive, in percent, for reclaim to have a choice.
    reserve_percent: u32,
    /// Bytes of rows in a copy of the table for which metadata has zones, as long as no names,
    /// symbolic links and extended attributes are long.
    rows_planned: u64,
}

/// What journal and parts can write to the pairs that they have, as it was when these were written
/// last. Read without their locks.
#[derive(Debug, Default)]
pub(in crate::furrow) struct PairRoom {
    /// Blocks of the journal's.
    journal: AtomicU32,
    /// A manifest fits in that of the parts.
    takes_manifest: AtomicBool,
}

impl PairRoom {
    /// The journal has been written, or has got another pair.
    pub(in crate::furrow) fn note_journal(&self, blocks: u32) {
        self.journal.store(blocks, Ordering::Release);
    }

    /// Parts or a manifest have been written: their pair has room for so many blocks, and the next
    /// manifest may take so many.
    pub(in crate::furrow) fn note_parts(&self, room: usize, manifest: usize) {
        self.takes_manifest.store(room >= manifest, Ordering::Release);
    }

    /// Free zones that a commit of `bytes` bytes takes: a pair for the journal if it does not fit
    /// in the one there is, and then one for the manifest that names it.
    pub(in crate::furrow) fn zones_for(&self, bytes: usize) -> usize {
        if self.journal.load(Ordering::Acquire) as usize * BLOCK_BYTES >= bytes {
            0
        } else if self.takes_manifest.load(Ordering::Acquire) {
            2
        } else {
            4
        }
    }
}

/// Room for user data, in blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::furrow) struct WriterRoom {
    /// Blocks that can be written without reclaim.
    pub(in crate::furrow) blocks: u64,
    /// Blocks below which writers pay for room.
    pub(in crate::furrow) low_mark: u64,
}

/// What a writer may take now.
pub(in crate::furrow) enum Allowance {
    /// Room in zones for so many blocks, leaving free zones to others: the first choice first.
    Zones { blocks: u64, leaving: [Kept; 3] },
    /// So many blocks in the open zones of users.
    Borrowed { blocks: u64 },
}

impl Space {
    /// Of a drive whose zones have so many blocks that can be used.
    pub(in crate::furrow) fn new(
        layout: Layout,
        view: Arc<View>,
        usable: u64,
        reserve_percent: u32,
        planted: Planted,
    ) -> Self {
        let rows = Rows::default();
        let files = layout.user_blocks(usable, reserve_percent, rows);
        let rows_planned = rows.bytes_at_most(files);
        let pair_room = PairRoom::default();
        Self { layout, view, planted, pair_room, reserve_percent, rows_planned }
    }

    /// Bytes that all rows take in a copy of the table, including those that wait for a commit.
    fn packed_rows(&self, state: &State) -> Rows {
        state.totals.rows(self.view.packed_bytes(state.changes.bytes))
    }

    /// Blocks that files may fill now.
    fn user_blocks(&self, state: &State) -> u64 {
        self.user_blocks_with(state, self.packed_rows(state))
    }

    /// Blocks that files may fill where there are such rows.
    pub(in crate::furrow) fn user_blocks_with(&self, state: &State, rows: Rows) -> u64 {
        self.layout.user_blocks(state.zones.usable(), self.reserve_percent, rows)
    }

    /// Blocks that files may fill and have not.
    pub(in crate::furrow) fn free_blocks(&self, state: &State) -> u64 {
        self.user_blocks(state).saturating_sub(state.totals.used())
    }

    /// Checks that `growth` more blocks are within what files may fill.
    pub(in crate::furrow) fn check_growth(&self, state: &State, growth: u64) -> Result<()> {
        let is_bound = !self.planted.has(PlantedBug::FillAnything);
        if is_bound && growth > 0 && state.totals.used() + growth > self.user_blocks(state) {
            return Err(FsError::NoSpace);
        }
        Ok(())
    }

    /// Bytes of rows for which metadata may have zones.
    fn rows_planned(&self, state: &State) -> u64 {
        self.packed_rows(state).bytes().max(self.rows_planned)
    }

    /// Bytes of rows for which metadata has its zones: the uncompressed size of all rows, up to the
    /// planned size. The size of the table goes up and down with its garbage; if the zones followed
    /// that, metadata would at times take two zones at once, which may be all the room of writers.
    pub(in crate::furrow) fn rows_wanted(&self, state: &State) -> u64 {
        state.totals.row_bytes.min(self.rows_planned(state))
    }

    /// Zones that metadata takes for the rows there are, with those it needs to go on.
    fn meta_zones_wanted(&self, state: &State) -> u64 {
        self.layout.meta_zones_wanted(self.rows_wanted(state))
    }

    /// Whether metadata has more zones than were planned for its rows.
    pub(in crate::furrow) fn has_zones_beyond_plan(&self, state: &State) -> bool {
        let wanted = self.layout.meta_zones_wanted(self.rows_planned(state));
        !state.zones.is_metadata_below(wanted.saturating_sub(SPARE_ZONES_MIN as u64))
    }

    /// Free zones that metadata needs beside those it has.
    pub(in crate::furrow) fn kept_for_metadata(&self, state: &State) -> usize {
        state.zones.kept_for_metadata(self.meta_zones_wanted(state))
    }

    /// Of `kept` zones those without which a recovery or the next commit may fail, if that adds so
    /// many bytes to the rows that have changed.
    fn least_for_metadata(&self, state: &State, kept: usize, added: usize) -> usize {
        kept.min(self.pair_room.zones_for(2 * state.changes.bytes + added).max(RECOVERY_ZONES))
    }

    /// Whether the table may become too large to be merged if rows are added. Where it has no more
    /// zones than were planned for its rows, others have taken what is free, and reclaim gives it
    /// back.
    pub(in crate::furrow) fn lacks_zones_for_rows(&self, state: &State) -> bool {
        let least =
            if self.has_zones_beyond_plan(state) { SPARE_ZONES_MIN } else { RECOVERY_ZONES };
        state.zones.takeable_for_metadata() < least
    }

    /// Whether metadata has fewer zones left than it needs, or more than were planned: then the
    /// table is to be merged before anything else makes room.
    pub(in crate::furrow) fn is_table_too_large(&self, state: &State) -> bool {
        state.zones.free_for_metadata() < self.kept_for_metadata(state)
            || self.has_zones_beyond_plan(state)
    }

    /// Free zones beside those that metadata needs.
    pub(in crate::furrow) fn spare_zones(&self, state: &State) -> usize {
        state.zones.free_beside(self.kept_for_metadata(state))
    }

    /// Whether there are zones that only a commit gives back, and hardly one to be opened without
    /// them. Not only where all room is used up: else classes have to share zones meanwhile.
    pub(in crate::furrow) fn awaits_commit(
        &self,
        state: &State,
        is_idle: impl Fn(u32) -> bool,
    ) -> bool {
        self.spare_zones(state) <= FREE_ZONES_FEW && state.zones.has_idle_emptied(is_idle)
    }

    /// Room for user data, that of admitted writers included.
    pub(in crate::furrow) fn writer_room(&self, state: &State) -> WriterRoom {
        let wanted = self.meta_zones_wanted(state);
        let kept = state.zones.kept_for_metadata(wanted);
        // More may be written before reclaim needs it.
        let least = self.least_for_metadata(state, kept, 2 * COMMIT_BYTES);
        let blocks = room_of_writers(&state.zones, kept, least);
        WriterRoom { blocks, low_mark: self.low_mark_with(state, wanted) }
    }

    /// Blocks of room below which writers pay.
    pub(in crate::furrow) fn low_mark(&self, state: &State) -> u64 {
        self.low_mark_with(state, self.meta_zones_wanted(state))
    }

    fn low_mark_with(&self, state: &State, meta_zones: u64) -> u64 {
        let (blocks, zone_blocks) = (state.zones.usable(), u64::from(self.layout.zone_blocks));
        let spare = blocks.saturating_sub(state.totals.live + meta_zones * zone_blocks);
        pace::low_mark(Usable { blocks, spare, zone_blocks }, self.layout.open_zones)
    }

    /// Blocks that reclaim finds room for.
    pub(in crate::furrow) fn room_to_move(&self, state: &State, urgency: Urgency) -> u64 {
        let kept = self.kept_for_metadata(state);
        match room_of_reclaim(state, self.least_for_metadata(state, kept, COMMIT_BYTES)) {
            0 => room_to_borrow(state, urgency),
            own => own,
        }
    }

    /// What a writer may take (F4).
    pub(in crate::furrow) fn allowance(&self, state: &State, purpose: Purpose) -> Allowance {
        let meta = self.kept_for_metadata(state);
        let kept = |for_metadata, others| Kept { for_metadata, others };
        let (blocks, leaving) = match purpose {
            // Admitted, but zones have failed since.
            Purpose::Write(_) => (u64::MAX, [kept(meta, 1), kept(meta, 0), kept(meta, 0)]),
            // A commit that cannot write this can free no zone either. The journal may have room
            // for it all the same.
            Purpose::WriteBack(_) => {
                let last = kept(meta.min(RECOVERY_ZONES), 0);
                (u64::MAX, [kept(meta, 1), kept(meta, 0), last])
            }
            Purpose::Reclaim { urgency, .. } => {
                let least = self.least_for_metadata(state, meta, COMMIT_BYTES);
                let room = room_of_reclaim(state, least);
                if room == 0 {
                    return Allowance::Borrowed { blocks: room_to_borrow(state, urgency) };
                }
                // A zone for each class only where admitted writers have room all the same. Reclaim
                // gives more zones back than it takes.
                let promised = zones_promised(state);
                (room, [kept(meta, promised), kept(meta, 0), kept(least, 0)])
            }
        };
        Allowance::Zones { blocks, leaving }
    }

    /// Free zones that a writer leaves to metadata.
    pub(in crate::furrow) fn left_to_metadata(&self, state: &State) -> Kept {
        Kept { for_metadata: self.kept_for_metadata(state), others: usize::MAX }
    }
}

/// Blocks that admitted writers need beside the room in the open zones of users.
fn promised(state: &State) -> u64 {
    state.totals.pending.saturating_sub(state.zones.users_only_room())
}

/// Free zones that admitted writers need.
fn zones_promised(state: &State) -> usize {
    let zones = promised(state).div_ceil(state.zones.zone_blocks().max(1).into());
    usize::try_from(zones).unwrap_or(usize::MAX)
}

/// Blocks that reclaim can write in its open zones and in free ones of which metadata keeps `kept`,
/// without those that admitted writers need.
fn room_of_reclaim(state: &State, kept: usize) -> u64 {
    let zones = &state.zones;
    let room = zones.open_room();
    let open = if zones.is_shared() { room.users } else { room.moved };
    (open + free_blocks_beside(zones, kept)).saturating_sub(promised(state))
}

/// Blocks in the open zones of users that reclaim may take where it has no room: those that no
/// writer was promised, if a writer waits and no commit would give zones back.
fn room_to_borrow(state: &State, urgency: Urgency) -> u64 {
    if urgency == Urgency::Emergency && !state.zones.has_emptied() {
        state.zones.users_only_room().saturating_sub(state.totals.pending)
    } else {
        0
    }
}

/// Blocks of free zones of which `kept` stay free that metadata can take.
fn free_blocks_beside(zones: &Zones, kept: usize) -> u64 {
    let kept = zones.free_for_metadata().min(kept) as u64;
    zones.free_blocks() - kept * u64::from(zones.zone_blocks())
}

/// Blocks that users can write in open zones and in free ones, of which metadata keeps `kept` and
/// reclaim one.
///
/// Of the zones that metadata keeps, reclaim may use all but the `least`. Where these and the open
/// zones of reclaim are less than one zone, reclaim needs the rest in zones of users, and where it
/// has no zone of its own, all. Zones that metadata lacks are filled up before a writer is
/// admitted.
fn room_of_writers(zones: &Zones, kept: usize, least: usize) -> u64 {
    let zone = u64::from(zones.zone_blocks());
    let lacking = kept.saturating_sub(zones.free_for_metadata()) as u64 * zone;
    let free = free_blocks_beside(zones, kept);
    let open = zones.open_room();
    let room = if zones.is_shared() {
        (free + zones.room_of_users()).saturating_sub(zone)
    } else {
        let together = free_blocks_beside(zones, least) + open.users + open.moved;
        together.saturating_sub(zone).min(free.saturating_sub(zone) + zones.room_of_users())
    };
    room.saturating_sub(lacking)
}

#[cfg(test)]
mod tests {
    use zonal_placement::streams::{Target, Whole};

    use super::*;
    use crate::furrow::sample::formatted;
    use crate::furrow::zones::allocation::Wish;
    use crate::furrow::{Furrow, MountOptions};

    #[test]
    fn allocation_keeps_one_zone_of_room_for_reclaim() {
        let (drive, clock) = formatted(64, 64);
        let fs = Furrow::mount(drive, clock, MountOptions::default()).unwrap();
        let zones = &mut fs.tree.write_state().zones;
        let grant = |zones: &mut Zones, blocks| {
            let wish = Wish::New(Target::Class(1));
            let none = Kept { for_metadata: 0, others: 0 };
            zones.grant((wish, Whole::default()), (blocks, none), 5).unwrap()
        };
        let rooms = |zones: &Zones| {
            (zones.free_blocks(), zones.room_of_users(), room_of_writers(zones, 0, 0))
        };
        while zones.free_blocks() > 64 {
            grant(zones, 64);
        }
        assert_eq!(rooms(zones), (64, 0, 0));
        grant(zones, 40);
        assert_eq!(rooms(zones), (0, 24, 0));
    }
}
