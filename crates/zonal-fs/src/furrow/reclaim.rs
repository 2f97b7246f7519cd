//! Reclaim: live blocks move out of a victim, so that it can be reset.
//!
//! Blocks are copied without the lock and then mapped under it, wherever the extents they belong to
//! still are; what was overwritten meanwhile is left behind. Only extent rows change, however many
//! files share them. A victim is reset by the commit after the last block has moved (F3). The
//! structure is here; the policy is [`Zones::find_victim`](super::alloc::Zones::find_victim) and
//! the pace is [`pay`](super::buffer).

use std::ops::Range;
use std::sync::atomic::Ordering;

use super::Furrow;
use super::alloc::{Role, Urgency};
use super::commit::Ending;
use super::data::Purpose;
use super::extent::Placed;
use super::format::{Address, BLOCK_BYTES};
use super::planted::PlantedBug;
use super::state::{ExtentId, State};
use crate::FsError;
use crate::vfs::{Ino, Result};

/// Blocks copied at once: 1 MiB.
pub(super) const COPY_BLOCKS: u32 = 256;

/// An extent to be copied.
#[derive(Clone, Debug)]
struct Live {
    block: u32,
    crcs: Vec<u32>,
    /// A file that has it, to name it where it is wrong.
    ino: Ino,
}

impl Live {
    fn blocks(&self) -> u32 {
        u32::try_from(self.crcs.len()).expect("inside a zone")
    }
}

impl Furrow {
    /// Frees at least one zone, or says that there is no space.
    pub(super) fn make_room(&self) -> Result<()> {
        let (pending, emptied, meta) = {
            let state = self.read_state();
            let set = self.layout().meta_set(state.totals.row_bytes);
            let meta = state.zones.meta();
            // Two more than a set is what a checkpoint may take that begins inside a zone.
            (
                state.zones.has_pending_reset(),
                state.zones.has_emptied(),
                (meta > set + 2).then_some(meta),
            )
        };
        if pending {
            // A commit is about to give zones back, or has done.
            if !self.reset_one() {
                drop(self.committer.lock().expect("no holder panicked"));
                self.reset_one();
            }
            return Ok(());
        }
        if emptied {
            self.wait_for_idle();
            return self.commit(Ending::Record);
        }
        if let Some(before) = meta {
            // A journal of many zones, from when there was plenty.
            self.commit(Ending::Checkpoint)?;
            if self.read_state().zones.meta() < before {
                return Ok(());
            }
        }
        let moved = self.reclaim_some(u64::MAX, Urgency::Emergency)?;
        // Rows of deleted files may be all that keeps zones from being empty.
        let pending = !self.read_state().changes.rows.is_empty();
        if moved == 0 && !pending && !self.read_state().zones.has_emptied() {
            return Err(FsError::NoSpace);
        }
        self.commit(Ending::Record)
    }

    /// Moves about `budget` blocks of a victim, all of it at most, and returns how many moved.
    pub(super) fn reclaim_some(&self, budget: u64, urgency: Urgency) -> Result<u64> {
        let mut current = match urgency {
            Urgency::Emergency => self.reclaiming.lock().expect("no holder panicked"),
            // Somebody is at it already.
            Urgency::Normal => match self.reclaiming.try_lock() {
                Ok(guard) => guard,
                Err(_) => return Ok(0),
            },
        };
        let victim = {
            let state = self.read_state();
            let goes_on = current.filter(|&zone| {
                let slot = state.zones.slot(zone);
                slot.role == Role::Sealed && slot.live > 0 && !slot.unreadable
            });
            goes_on.or_else(|| state.zones.find_victim(state.totals.data_clock, urgency))
        };
        *current = victim;
        let Some(victim) = victim else { return Ok(0) };
        let mut moved = 0;
        while moved < budget {
            let batch = {
                let state = self.read_state();
                // Pinned, so that it is not reset and written again while it is copied.
                self.pin_zone(victim);
                collect(&state, victim)
            };
            let outcome = self.move_blocks(victim, &batch);
            self.unpin_zone(victim);
            moved += outcome?;
            if batch.is_empty() || self.read_state().zones.slot(victim).live == 0 {
                *current = None;
                break;
            }
        }
        let is_short = {
            let state = self.read_state();
            let set = self.layout().meta_set_ahead(state.totals.row_bytes);
            let kept = state.zones.kept_for_metadata(set) + 1;
            state.zones.has_emptied() && state.zones.free_count() <= kept + 1
        };
        if is_short && urgency == Urgency::Normal {
            self.commit(Ending::Record)?;
            self.reset_one();
        }
        Ok(moved)
    }

    /// Copies live blocks of a victim to the reclaim stream.
    fn move_blocks(&self, victim: u32, batch: &[Live]) -> Result<u64> {
        let total: usize = batch.iter().map(|live| live.crcs.len()).sum();
        let mut data = vec![0; total * BLOCK_BYTES];
        let mut rest = &mut data[..];
        for live in batch {
            let (now, later) = rest.split_at_mut(live.crcs.len() * BLOCK_BYTES);
            if let Err(error) = self.read_live(victim, live, now) {
                tracing::error!(zone = victim, %error, "reclaim cannot read a zone; it stays");
                self.write_state().zones.slot_mut(victim).unreadable = true;
                return Ok(1);
            }
            rest = later;
        }
        let placed = self.place_data(Purpose::Reclaim, &data)?;
        let mut state = self.write_state();
        let rows =
            self.has_planted(PlantedBug::ForgetRelocation).then(|| state.changes.rows.clone());
        relocate_batch(&mut state, victim, batch, &joined(&placed));
        if let Some(rows) = rows {
            state.changes.rows = rows;
        }
        Ok(total as u64)
    }

    /// Reads an extent of a victim, which will be erased: what a second look would have mended must
    /// not be lost with it. A block that stays wrong moves with its checksum, and stays wrong for
    /// its readers.
    fn read_live(&self, victim: u32, live: &Live, buffer: &mut [u8]) -> Result<()> {
        let at = Address { zone: victim, block: live.block };
        for index in self.drive.read_verified(at, &live.crcs, buffer)? {
            self.drive.counts.blocks_moved_wrong.fetch_add(1, Ordering::Relaxed);
            let (inode, block) = (live.ino, live.block + index);
            tracing::error!(%inode, zone = victim, block, "reclaim moves a block that is wrong");
        }
        Ok(())
    }
}

/// Placed parts with neighbours made one, so that no extent is cut without need.
fn joined(placed: &[Placed]) -> Vec<Placed> {
    let mut parts: Vec<Placed> = Vec::new();
    for part in placed {
        match parts.last_mut() {
            Some(last) if last.zone == part.zone && last.block + last.blocks == part.block => {
                last.blocks += part.blocks;
            }
            _ => parts.push(*part),
        }
    }
    parts
}

/// Maps copied blocks to the places of their copies, and settles these.
fn relocate_batch(state: &mut State, victim: u32, batch: &[Live], placed: &[Placed]) {
    let mut sources = batch.iter().peekable();
    let mut used = 0;
    for part in placed {
        let mut filled = 0;
        while filled < part.blocks {
            let Some(live) = sources.peek() else { break };
            let blocks = (live.blocks() - used).min(part.blocks - filled);
            let from = live.block + used;
            relocate_range(state, victim, from..from + blocks, (part.zone, part.block + filled));
            filled += blocks;
            used += blocks;
            if used == live.blocks() {
                sources.next();
                used = 0;
            }
        }
        state.zones.settle(part.zone, part.blocks);
    }
}

/// The next live blocks of a victim, up to [`COPY_BLOCKS`].
fn collect(state: &State, victim: u32) -> Vec<Live> {
    let mut batch = Vec::new();
    let mut total = 0;
    for (&block, id) in &state.zones.slot(victim).extents {
        let Some(extent) = state.extents.get(id) else { continue };
        let blocks = extent.blocks();
        if total > 0 && total + blocks > COPY_BLOCKS {
            break;
        }
        total += blocks;
        batch.push(Live { block, crcs: extent.crcs.clone(), ino: extent.owner.0 });
    }
    if state.zones.slot(victim).unreadable {
        batch.clear();
    }
    batch
}

/// Moves what still lives in a copied range of the victim to its place in the copy.
fn relocate_range(state: &mut State, victim: u32, from: Range<u32>, (zone, to): (u32, u32)) {
    let limit = from.end;
    // An extent that the copy's destination cut in two is cut in two itself, if it may be.
    cut_at(state, victim, from.start);
    cut_at(state, victim, limit);
    let inside: Vec<(u32, ExtentId)> = state
        .zones
        .slot(victim)
        .extents
        .range(from.clone())
        .map(|(&block, &id)| (block, id))
        .collect();
    for (block, id) in inside {
        let fits = state.extents.get(&id).is_some_and(|extent| block + extent.blocks() <= limit);
        if fits {
            state.relocate(id, zone, to + (block - from.start));
        }
    }
}

/// Cuts the exclusive extent that covers `block` of a zone, so that one begins there. A shared one
/// stays whole, and stays in the victim until a copy of it finds room in one piece.
fn cut_at(state: &mut State, zone: u32, block: u32) {
    let covering = state.zones.slot(zone).extents.range(..block).next_back();
    let Some((&start, &id)) = covering else { return };
    let Some(extent) = state.extents.get(&id) else { return };
    if start + extent.blocks() <= block {
        return;
    }
    let (ino, first) = extent.owner;
    let entry = state
        .inodes
        .get(&ino)
        .and_then(|inode| inode.file().ok())
        .and_then(|file| file.map.get(&first).copied());
    if entry.is_some_and(|entry| entry.extent == id && state.is_whole(entry)) {
        state.split_map(ino, first + u64::from(block - start));
    }
}
