//! Space: how many blocks and zones each writer may use.
//!
//! Every question of this kind is a method of [`Space`], and its answer is true as long as the
//! caller keeps the state locked. [`layout`](crate::furrow::drive::layout) has the arithmetic of a
//! whole drive, [`Zones`] counts free and open zones.
//!
//! How many blocks files may fill does not depend on the size of the files. As long as rows take no
//! more than [planned](RowBytes::bytes_at_most), a file takes only its own blocks. Rows count as
//! they lie in the table, compressed.
//!
//! A writer finds room in an open zone or opens a free one. It opens a free zone only if enough
//! others stay free (F4):
//!
//! | writer | free zones that it leaves |
//! | --- | --- |
//! | a user's direct write | all that metadata keeps; a reservation gives it open zones |
//! | write-back of the buffer | the zones that a recovery needs, because a commit frees zones |
//! | reclaim | the zones that reservations need; if there are no others, the next commit's zones |
//! | metadata | none |

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use zonal_placement::pace::{self, Room, Usable};

use crate::FsError;
use crate::furrow::drive::layout::{Layout, RowBytes};
use crate::furrow::format::BLOCK_BYTES;
use crate::furrow::metadata::State;
use crate::furrow::planted::{Planted, mistake};
use crate::furrow::table::view::View;
use crate::furrow::zones::allocation::{Purpose, ZoneReserve};
use crate::furrow::zones::{RECOVERY_ZONES, SPARE_ZONES_MIN, Urgency, Zones};
use crate::vfs::Result;

/// Bytes that a commit adds to the changed rows, about: rows of zones, and back-references.
const COMMIT_BYTES: usize = 64 << 10;

/// Free zones, beyond those of metadata, at which writers need a commit that frees other zones.
const FREE_ZONES_FEW: usize = 2;

/// How files and metadata share the drive, and how much of it each writer may use.
pub(super) struct Space {
    layout: Layout,
    view: Arc<View>,
    planted: Planted,
    /// Room for the next commit in the open pairs.
    pub(super) pair_room: PairRoom,
    /// Percentage of the drive that stays free, so that reclaim has a choice of victims.
    reserve_percent: u32,
    /// Bytes of rows, in one copy of the table, that metadata has zones for: enough unless many
    /// names, symbolic links and extended attributes are long.
    rows_planned: u64,
}

/// Room in the open pairs of the journal and of the parts, as of the last write to each. Atomics,
/// so that readers need no lock of the log.
#[derive(Debug, Default)]
pub(super) struct PairRoom {
    /// Blocks left in the journal's pair.
    journal: AtomicU32,
    /// The pair of the parts has room for a manifest.
    takes_manifest: AtomicBool,
}

impl PairRoom {
    /// Notes the journal's room after a record or a change of pairs.
    pub(super) fn note_journal(&self, blocks: u32) {
        self.journal.store(blocks, Ordering::Release);
    }

    /// Notes the room of the parts' pair after a write to it, and the size of the next manifest,
    /// both in blocks.
    pub(super) fn note_parts(&self, room: usize, manifest: usize) {
        self.takes_manifest.store(room >= manifest, Ordering::Release);
    }

    /// Free zones that a commit of `bytes` bytes takes: a pair if the batch does not fit into the
    /// journal's, and another one if the manifest that names it does not fit either.
    pub(super) fn zones_for(&self, bytes: usize) -> usize {
        if self.journal.load(Ordering::Acquire) as usize * BLOCK_BYTES >= bytes {
            0
        } else if self.takes_manifest.load(Ordering::Acquire) {
            2
        } else {
            4
        }
    }
}

/// Blocks that a writer may take now, and from which zones.
pub(super) enum Allowance {
    /// This many blocks. The writer leaves free zones to others: as many as the first choice says,
    /// or the next one if it finds no room.
    Zones { blocks: u64, leaving: [ZoneReserve; 3] },
    /// This many blocks in the open zones of users.
    Borrowed { blocks: u64 },
}

impl Space {
    /// For a drive with `usable` blocks in its zones.
    pub(super) fn new(
        layout: &Layout,
        view: Arc<View>,
        usable: u64,
        reserve_percent: u32,
        planted: Planted,
    ) -> Self {
        let rows = RowBytes::default();
        let files = layout.user_blocks(usable, reserve_percent, rows);
        let rows_planned = rows.bytes_at_most(files);
        let (pair_room, layout) = (PairRoom::default(), *layout);
        Self { layout, view, planted, pair_room, reserve_percent, rows_planned }
    }

    /// Bytes of all rows in a copy of the table, with the rows that the next commit will write.
    fn packed_rows(&self, state: &State) -> RowBytes {
        state.rows.totals.rows(self.view.packed_bytes(state.rows.batch.bytes()))
    }

    /// Blocks that files may fill now.
    fn user_blocks(&self, state: &State) -> u64 {
        self.user_blocks_with(state, self.packed_rows(state))
    }

    /// Blocks that files may fill if rows take this much.
    pub(super) fn user_blocks_with(&self, state: &State, rows: RowBytes) -> u64 {
        self.layout.user_blocks(state.zones.usable(), self.reserve_percent, rows)
    }

    /// Blocks that files may fill and have not.
    pub(super) fn free_blocks(&self, state: &State) -> u64 {
        self.user_blocks(state).saturating_sub(state.rows.totals.used())
    }

    /// Checks that files may fill `growth` more blocks.
    pub(super) fn check_growth(&self, state: &State, growth: u64) -> Result<()> {
        mistake!(self, FillAnything, return Ok(()));
        if growth > 0 && state.rows.totals.used() + growth > self.user_blocks(state) {
            return Err(FsError::NoSpace);
        }
        Ok(())
    }

    /// Bytes of rows for which metadata may have zones.
    fn rows_planned(&self, state: &State) -> u64 {
        self.packed_rows(state).bytes().max(self.rows_planned)
    }

    /// Bytes of rows that metadata keeps zones for: the uncompressed size of all rows, up to the
    /// planned size. The size of the table goes up and down with its garbage; if the zones followed
    /// that, metadata would at times take two zones at once, which may be all the room of writers.
    pub(super) fn rows_wanted(&self, state: &State) -> u64 {
        state.rows.totals.row_bytes().min(self.rows_planned(state))
    }

    /// Zones that metadata needs for its present rows, with spare ones for the next steps.
    fn meta_zones_wanted(&self, state: &State) -> u64 {
        self.layout.meta_zones_wanted(self.rows_wanted(state))
    }

    /// Whether metadata has more zones than were planned for its rows.
    pub(super) fn has_zones_beyond_plan(&self, state: &State) -> bool {
        let wanted = self.layout.meta_zones_wanted(self.rows_planned(state));
        !state.zones.is_metadata_below(wanted.saturating_sub(SPARE_ZONES_MIN as u64))
    }

    /// Free zones that metadata needs in addition to its own.
    pub(super) fn kept_for_metadata(&self, state: &State) -> usize {
        state.zones.kept_for_metadata(self.meta_zones_wanted(state))
    }

    /// How many of `kept` zones a recovery or the next commit cannot do without, if the commit adds
    /// `added` bytes to the changed rows.
    fn least_for_metadata(&self, state: &State, kept: usize, added: usize) -> usize {
        kept.min(self.pair_room.zones_for(2 * state.rows.batch.bytes() + added).max(RECOVERY_ZONES))
    }

    /// Whether more rows could make the table too large for its own compaction. If the table has no
    /// more zones than planned, data has taken the free zones, and reclaim will free some.
    pub(super) fn lacks_zones_for_rows(&self, state: &State) -> bool {
        let least =
            if self.has_zones_beyond_plan(state) { SPARE_ZONES_MIN } else { RECOVERY_ZONES };
        state.zones.takeable_for_metadata() < least
    }

    /// Whether metadata has fewer zones left than it needs, or more than planned. Compaction then
    /// comes before any other way to make room.
    pub(super) fn is_table_too_large(&self, state: &State) -> bool {
        state.zones.free_for_metadata() < self.kept_for_metadata(state)
            || self.has_zones_beyond_plan(state)
    }

    /// Free zones that metadata does not need.
    pub(super) fn spare_zones(&self, state: &State) -> usize {
        state.zones.free_beside(self.kept_for_metadata(state))
    }

    /// Whether a commit would free zones and few others are free. It does not wait until no room is
    /// left: lifetime classes would have to share zones before.
    pub(super) fn awaits_commit(&self, state: &State, is_idle: impl Fn(u32) -> bool) -> bool {
        self.spare_zones(state) <= FREE_ZONES_FEW && state.zones.has_idle_emptied(is_idle)
    }

    /// Room for user data, including reserved blocks.
    pub(super) fn writer_room(&self, state: &State) -> Room {
        let wanted = self.meta_zones_wanted(state);
        let kept = state.zones.kept_for_metadata(wanted);
        // Other writers may add rows before reclaim needs this room.
        let least = self.least_for_metadata(state, kept, 2 * COMMIT_BYTES);
        let now = room_of_writers(&state.zones, kept, least);
        Room { now, low: self.low_mark_with(state, wanted) }
    }

    /// Blocks of room below which writers reclaim in proportion to their writes.
    pub(super) fn low_mark(&self, state: &State) -> u64 {
        self.low_mark_with(state, self.meta_zones_wanted(state))
    }

    fn low_mark_with(&self, state: &State, meta_zones: u64) -> u64 {
        let (blocks, zone_blocks) = (state.zones.usable(), u64::from(self.layout.zone_blocks));
        let metadata = self.layout.on_data_drive(meta_zones) * zone_blocks;
        let spare = blocks.saturating_sub(state.rows.totals.live() + metadata);
        pace::low_mark(Usable { blocks, spare, zone_blocks }, self.layout.open_zones)
    }

    /// Blocks that reclaim finds room for.
    pub(super) fn room_to_move(&self, state: &State, urgency: Urgency) -> u64 {
        let kept = self.kept_for_metadata(state);
        match room_of_reclaim(state, self.least_for_metadata(state, kept, COMMIT_BYTES)) {
            0 => room_to_borrow(state, urgency),
            own => own,
        }
    }

    /// Blocks that a writer may take, and from which zones (F4).
    pub(super) fn allowance(&self, state: &State, purpose: Purpose) -> Allowance {
        let meta = self.kept_for_metadata(state);
        let leave = |for_metadata, others| ZoneReserve { for_metadata, others };
        let (blocks, leaving) = match purpose {
            // It has a reservation, but zones may have failed since.
            Purpose::Write(_) => (u64::MAX, [leave(meta, 1), leave(meta, 0), leave(meta, 0)]),
            // A commit that cannot write this frees no zone either, and the journal may still have
            // room.
            Purpose::WriteBack(_) => {
                let last = leave(meta.min(RECOVERY_ZONES), 0);
                (u64::MAX, [leave(meta, 1), leave(meta, 0), last])
            }
            Purpose::Reclaim { urgency, .. } => {
                let least = self.least_for_metadata(state, meta, COMMIT_BYTES);
                let room = room_of_reclaim(state, least);
                if room == 0 {
                    return Allowance::Borrowed { blocks: room_to_borrow(state, urgency) };
                }
                // A zone for each class only if reservations keep their room. Reclaim frees more
                // zones than it takes.
                let reserved = reserved_zones(state);
                (room, [leave(meta, reserved), leave(meta, 0), leave(least, 0)])
            }
        };
        Allowance::Zones { blocks, leaving }
    }

    /// Free zones that a writer leaves to metadata.
    pub(super) fn left_to_metadata(&self, state: &State) -> ZoneReserve {
        ZoneReserve { for_metadata: self.kept_for_metadata(state), others: usize::MAX }
    }
}

/// Reserved blocks that do not fit into the open zones of users.
fn reserved_beyond_open(state: &State) -> u64 {
    state.rows.totals.pending().saturating_sub(state.zones.users_only_room())
}

/// Free zones that reservations need.
fn reserved_zones(state: &State) -> usize {
    let zones = reserved_beyond_open(state).div_ceil(state.zones.zone_blocks().max(1).into());
    usize::try_from(zones).unwrap_or(usize::MAX)
}

/// Blocks that reclaim can write in its open zones, and in free ones beyond the `kept` of metadata,
/// without reserved blocks.
fn room_of_reclaim(state: &State, kept: usize) -> u64 {
    let zones = &state.zones;
    let room = zones.open_room();
    let open = if zones.is_shared() { room.users } else { room.moved };
    (open + free_blocks_beyond(zones, kept)).saturating_sub(reserved_beyond_open(state))
}

/// Blocks in the open zones of users that reclaim may take if it has no room of its own: unreserved
/// ones, if a writer waits and no commit would free zones.
fn room_to_borrow(state: &State, urgency: Urgency) -> u64 {
    if urgency == Urgency::Emergency && !state.zones.has_emptied() {
        state.zones.users_only_room().saturating_sub(state.rows.totals.pending())
    } else {
        0
    }
}

/// Blocks of free zones beyond `kept` zones that metadata could take.
fn free_blocks_beyond(zones: &Zones, kept: usize) -> u64 {
    let kept = zones.kept_beside(kept) as u64;
    zones.free_blocks() - kept * u64::from(zones.zone_blocks())
}

/// Blocks that users can write in open zones, and in free ones beyond the `kept` of metadata and
/// one of reclaim.
///
/// Reclaim may use all but the `least` of the zones that metadata keeps. If these and its own open
/// zones have less room than one zone, the rest of that room has to stay free in zones of users; if
/// it has no open zone at all, a whole zone's worth. Zones that metadata lacks come before any
/// reservation.
fn room_of_writers(zones: &Zones, kept: usize, least: usize) -> u64 {
    let zone = u64::from(zones.zone_blocks());
    let lacking = kept.saturating_sub(zones.free_for_metadata()) as u64 * zone;
    let free = free_blocks_beyond(zones, kept);
    let open = zones.open_room();
    let room = if zones.is_shared() {
        (free + zones.room_of_users()).saturating_sub(zone)
    } else {
        let together = free_blocks_beyond(zones, least) + open.users + open.moved;
        together.saturating_sub(zone).min(free.saturating_sub(zone) + zones.room_of_users())
    };
    room.saturating_sub(lacking)
}

#[cfg(test)]
mod tests {
    use zonal_placement::streams::{Locality, Target};

    use super::*;
    use crate::furrow::sample::formatted;
    use crate::furrow::zones::allocation::AllocationRequest;
    use crate::furrow::{Furrow, MountOptions};

    #[test]
    fn allocation_keeps_one_zone_of_room_for_reclaim() {
        let (drive, clock) = formatted(64, 64);
        let fs = Furrow::mount(drive, clock, MountOptions::default()).unwrap();
        let zones = &mut fs.tree.write_state().zones;
        let allocate = |zones: &mut Zones, blocks| {
            let (purpose, locality) = (Purpose::Write(Target::Class(1)), Locality::default());
            let none = ZoneReserve { for_metadata: 0, others: 0 };
            zones.allocate(AllocationRequest { purpose, locality, blocks }, none, 5).unwrap()
        };
        let rooms = |zones: &Zones| {
            (zones.free_blocks(), zones.room_of_users(), room_of_writers(zones, 0, 0))
        };
        while zones.free_blocks() > 64 {
            allocate(zones, 64);
        }
        assert_eq!(rooms(zones), (64, 0, 0));
        allocate(zones, 40);
        assert_eq!(rooms(zones), (0, 24, 0));
    }
}
