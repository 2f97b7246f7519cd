//! Lost blocks of deleted files: blocks whose map rows or remap tables are lost.
//!
//! No row says any more where such blocks are. But each zone's back-references name every run that
//! was put there. If a zone counts more live blocks than its back-references lead to, and has as
//! many of the deleted file, then the surplus is the file's. [Truncation](crate::furrow::truncate)
//! looks for them in all zones when it skips lost rows. A zone that is being written, or whose
//! back-references are not complete, keeps its blocks.

use std::collections::BTreeSet;

use crate::FsError;
use crate::furrow::drive::Drive;
use crate::furrow::format::ZoneGeneration;
use crate::furrow::format::backref::Backref;
use crate::furrow::format::row::zone_place_of;
use crate::furrow::metadata::State;
use crate::furrow::metadata::map::place::{MapEntry, Owner};
use crate::furrow::metadata::state::relocation::LiveRun;
use crate::furrow::table::key::{Key, KeySpan, RowKind};
use crate::furrow::table::view::scan::Scanned;
use crate::furrow::table::view::{Refused, View};
use crate::furrow::truncate::Truncator;
use crate::furrow::zones::backrefs::merge_sorted;
use crate::furrow::zones::{Listed, Role, Zones};
use crate::vfs::{Ino, Result};

/// Identifies the content of a zone that is not being written: no block of it becomes live, so
/// the same sums mean the same blocks.
#[derive(Debug, PartialEq, Eq)]
struct ContentMark {
    resets: u32,
    mark: (usize, u32),
    live: u32,
}

/// Generations of zones that map rows name although their remap tables are lost, found by a pass
/// over all map rows. No zone may have such a generation again: these rows would name blocks of
/// other files then.
pub(in crate::furrow) fn lost_generations(
    drive: &Drive,
    view: &View,
    zones: &Zones,
) -> Result<BTreeSet<ZoneGeneration>> {
    let mut lost = BTreeSet::new();
    if !view.has_lost_remaps() {
        return Ok(lost);
    }
    view.scan(drive, KeySpan::INODES, &mut |scanned| {
        if let Scanned::Row(key, value) = scanned
            && key.kind() == RowKind::Map
            && let Some((_, place)) = zone_place_of(value)
        {
            let named = place.generation();
            let is_there = zones.ids().contains(&named.zone());
            if is_there
                && (zones.slot(named.zone()).live == 0 || zones.generation(named.zone()) != named)
            {
                lost.insert(named);
            }
        }
    })?;
    Ok(lost)
}

/// Map entries of a deleted file that one step skips.
const ENTRIES_AT_ONCE: usize = 1024;

impl Truncator {
    /// Marks lost map entries of a deleted file as a hole, from a block on that is not resident.
    /// Returns whether there are any.
    pub(super) fn skip_lost_entries(&self, ino: Ino, from: u64) -> bool {
        let key = |at| Key::new(RowKind::Map, ino.get(), at);
        if !self.tree.view.has_lost_remaps() {
            return false;
        }
        let Ok(found) = self.tree.rows(key(from), key(u64::MAX), ENTRIES_AT_ONCE) else {
            return false;
        };
        let lost: Vec<Key> = found
            .rows
            .iter()
            .take_while(|(_, value)| self.tree.is_lost_piece(value))
            .map(|(key, _)| *key)
            .collect();
        if lost.is_empty() {
            return false;
        }
        let end = match found.rows.get(lost.len()) {
            Some((key, _)) => key.at(),
            None if found.end < key(u64::MAX) => found.end.at(),
            None => u64::MAX,
        };
        {
            let mut state = self.tree.write_state();
            for key in lost {
                // The entry is not resident, so the next commit deletes the row.
                state.mark(key.kind(), key.owner(), key.at());
            }
            state.mark_hole(ino, from..end);
        }
        self.free_lost(ino);
        true
    }

    /// Removes the next entries of a deleted file whose shared extents are lost. Returns whether
    /// there are any.
    pub(super) fn skip_lost_extents(&self, ino: Ino, refused: Refused) -> bool {
        let waiting = self.tree.loaded(|| {
            let state = self.tree.read_state();
            let entries = state.waiting(ino, 0)?.map(|(start, entry)| (start, entry.clone()));
            Ok(entries.collect::<Vec<(u64, MapEntry)>>())
        });
        let Ok(waiting) = waiting else { return false };
        let is_lost = |entry: &MapEntry| match self
            .tree
            .loaded(|| self.tree.read_state().maps.shared.check(ino, entry))
        {
            Err(FsError::Corrupt { .. }) => true,
            Err(FsError::Refused { .. }) => refused == Refused::IsLost,
            Ok(()) | Err(_) => false,
        };
        let lost = waiting.iter().filter(|(_, entry)| is_lost(entry)).map(|(start, _)| *start);
        let lost: Vec<u64> = lost.collect();
        let forget = || self.tree.write_state().forget_shared(ino, &lost);
        !lost.is_empty() && self.tree.loaded(forget).is_ok()
    }

    /// Frees the blocks of a deleted file that no row names. Fails if the device has refused to
    /// read the back-references of a zone; other zones have been looked at then.
    pub(super) fn give_back_lost(&self, ino: Ino) -> Result<()> {
        let zones = self.tree.read_state().zones.ids();
        let mut outcome = Ok(());
        for zone in zones {
            match self.give_back_in(zone, ino) {
                Ok(()) => {}
                Err(error @ FsError::Refused { .. }) => outcome = Err(error),
                Err(error) => {
                    tracing::error!(zone, %error, "blocks of a deleted file that are lost stay in use");
                }
            }
        }
        outcome
    }

    fn give_back_in(&self, zone: u32, ino: Ino) -> Result<()> {
        let Some((before, mut records)) = self.look_at_zone(zone) else { return Ok(()) };
        records.extend(self.tree.backref_rows(zone)?);
        let is_of_file =
            |record: &Backref| matches!(record.owner, Owner::Entry(of, _) if of == ino);
        if !records.iter().any(is_of_file) {
            return Ok(());
        }
        merge_sorted(&mut records);
        let mut is_live = vec![false; self.tree.layout().zone_blocks as usize];
        let mut dead = 0;
        for record in &records {
            let runs =
                self.tree.loaded_if_there(|| self.tree.read_state().live_runs_of(zone, record))?;
            let runs = runs.unwrap_or_default();
            for run in &runs {
                is_live[run.block as usize..][..run.crcs.len()].fill(true);
            }
            if is_of_file(record) {
                dead += record.blocks - runs.iter().map(LiveRun::blocks).sum::<u32>();
            }
        }
        let live = is_live.iter().filter(|is_live| **is_live).count();
        let mut state = self.tree.write_accounts();
        let lost = u32::try_from(live).ok().and_then(|live| before.live.checked_sub(live));
        let is_same = state.look_at_zone(zone).is_some_and(|now| now == before);
        if let Some(lost) = lost.filter(|lost| is_same && (1..=dead).contains(lost)) {
            tracing::warn!(
                zone,
                lost,
                "blocks of a deleted file, of which the rows are lost, are free"
            );
            state.zones.remove_live(zone, lost);
            state.rows.totals.remove_live(lost);
        }
        Ok(())
    }

    /// The mark of a zone and its back-references in memory, unless it is empty or being written.
    fn look_at_zone(&self, zone: u32) -> Option<(ContentMark, Vec<Backref>)> {
        let state = self.tree.read_state();
        let looked = state.look_at_zone(zone)?;
        Some((looked, state.zones.slot(zone).records.as_slice().to_vec()))
    }
}

impl State {
    fn look_at_zone(&self, zone: u32) -> Option<ContentMark> {
        let slot = self.zones.slot(zone);
        let is_settled = matches!(slot.role, Role::Sealed | Role::Failed) && slot.in_flight == 0;
        let is_looked_at =
            is_settled && slot.live > 0 && matches!(slot.listed, Listed::Yes | Listed::Searched);
        let (resets, mark, live) = (slot.resets, slot.owners_mark(), slot.live);
        is_looked_at.then_some(ContentMark { resets, mark, live })
    }
}
