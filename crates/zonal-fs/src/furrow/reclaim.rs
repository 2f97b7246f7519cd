//! Reclaim: live blocks move out of a victim, so that it can be reset.
//!
//! Blocks are copied without the lock and then mapped under it, wherever their owners still have
//! them; what was overwritten meanwhile is left behind. Blocks of one file change its map row,
//! shared ones their extent's, however many files share them. They are written in the order of
//! files and of blocks in them, so that what was overwritten in pieces lies together again and
//! becomes one row. A victim is reset by the commit after the last block has moved (F3). The
//! structure is here; the policy is [`Zones::find_victim`](super::alloc::Zones::find_victim) and
//! the pace is [`pay`](super::buffer).

use std::ops::Range;
use std::sync::atomic::Ordering;

use super::Furrow;
use super::alloc::Urgency;
use super::commit::Ending;
use super::data::Purpose;
use super::extent::Placed;
use super::format::{Address, BLOCK_BYTES};
use super::place::Owner;
use super::planted::PlantedBug;
use super::state::State;
use crate::FsError;
use crate::vfs::Result;

/// Blocks copied at once: 1 MiB.
pub(super) const COPY_BLOCKS: u32 = 256;

/// A run of blocks to be copied.
#[derive(Clone, Debug)]
struct Live {
    owner: Owner,
    block: u32,
    crcs: Vec<u32>,
}

impl Live {
    fn blocks(&self) -> u32 {
        u32::try_from(self.crcs.len()).expect("inside a zone")
    }
}

impl Furrow {
    /// Frees at least one zone, or says that there is no space.
    pub(super) fn make_room(&self) -> Result<()> {
        let (pending, emptied) = {
            let state = self.read_state();
            (state.zones.has_pending_reset(), state.zones.has_emptied())
        };
        // What is deleted already costs nothing to move.
        while !self.read_state().zones.has_emptied() && self.reap_one() {}
        if pending {
            // A commit is about to give zones back, or has done.
            if !self.reset_one() {
                drop(self.committer.lock().expect("no holder panicked"));
                self.reset_one();
            }
            return Ok(());
        }
        if emptied {
            self.wait_for_idle()?;
            return self.commit(Ending::Record);
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
            Urgency::Normal | Urgency::Rescue => match self.reclaiming.try_lock() {
                Ok(guard) => guard,
                Err(_) => return Ok(0),
            },
        };
        let victim = {
            let state = self.read_state();
            let goes_on = current.filter(|&zone| state.zones.is_victim(zone, urgency));
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
            let set = self.layout().meta_zones_wanted(state.totals.row_bytes);
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
        let read = match self.read_live(victim, batch) {
            Ok(read) => read,
            Err(error) => {
                tracing::error!(zone = victim, %error, "reclaim cannot read a zone; it stays");
                self.write_state().zones.slot_mut(victim).unreadable = true;
                return Ok(1);
            }
        };
        let mut sources: Vec<(&Live, &[u8])> = Vec::with_capacity(batch.len());
        let mut rest = &read[..];
        for live in batch {
            let (bytes, later) = rest.split_at(live.crcs.len() * BLOCK_BYTES);
            sources.push((live, bytes));
            rest = later;
        }
        sources.sort_unstable_by_key(|(live, _)| live.owner);
        let data = sources.iter().map(|(_, bytes)| *bytes).collect::<Vec<_>>().concat();
        let placed = self.place_data(Purpose::Reclaim, &data)?;
        let mut state = self.write_state();
        let rows =
            self.has_planted(PlantedBug::ForgetRelocation).then(|| state.changes.rows.clone());
        let sources = sources.iter().map(|(live, _)| *live);
        relocate_batch(&mut state, victim, sources, &joined(&placed));
        if let Some(rows) = rows {
            state.changes.rows = rows;
        }
        Ok((data.len() / BLOCK_BYTES) as u64)
    }

    /// Reads blocks of a victim, which will be erased, neighbours at once: what a second look would
    /// have mended must not be lost with it. A block that stays wrong moves with its checksum, and
    /// stays wrong for its readers.
    fn read_live(&self, victim: u32, batch: &[Live]) -> Result<Vec<u8>> {
        let total: usize = batch.iter().map(|live| live.crcs.len()).sum();
        let mut data = vec![0; total * BLOCK_BYTES];
        let mut rest = &mut data[..];
        for run in batch.chunk_by(|live, next| live.block + live.blocks() == next.block) {
            let crcs = run.iter().map(|live| &live.crcs[..]).collect::<Vec<_>>().concat();
            let (now, later) = rest.split_at_mut(crcs.len() * BLOCK_BYTES);
            rest = later;
            let first = run[0].block;
            let at = Address { zone: victim, block: first };
            for index in self.drive.read_verified(at, &crcs, now)? {
                self.drive.counts.blocks_moved_wrong.fetch_add(1, Ordering::Relaxed);
                let block = first + index;
                let live = run.iter().rfind(|live| live.block <= block);
                let owner = live.map(|live| live.owner);
                tracing::error!(
                    ?owner,
                    zone = victim,
                    block,
                    "reclaim moves a block that is wrong"
                );
            }
        }
        Ok(data)
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
fn relocate_batch<'a>(
    state: &mut State,
    victim: u32,
    sources: impl Iterator<Item = &'a Live>,
    placed: &[Placed],
) {
    let mut sources = sources.peekable();
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
    let slot = state.zones.slot(victim);
    if slot.unreadable {
        return batch;
    }
    for (block, owner) in slot.owners(..) {
        let Some(run) = state.stored_by(owner) else { continue };
        let live = Live { owner, block, crcs: run.crcs.to_vec() };
        if total > 0 && total + live.blocks() > COPY_BLOCKS {
            break;
        }
        total += live.blocks();
        batch.push(live);
    }
    batch
}

/// Moves what still lives in a copied range of the victim to its place in the copy.
fn relocate_range(state: &mut State, victim: u32, from: Range<u32>, (zone, to): (u32, u32)) {
    // A run that the copy's destination cut in two is cut in two itself, if it may be.
    cut_at(state, victim, from.start);
    cut_at(state, victim, from.end);
    let inside: Vec<(u32, Owner)> = state.zones.slot(victim).owners(from.clone()).collect();
    for (block, owner) in inside {
        let fits = state
            .stored_by(owner)
            .is_some_and(|run| block as usize + run.crcs.len() <= from.end as usize);
        if fits {
            state.relocate(owner, zone, to + (block - from.start));
        }
    }
}

/// Cuts the map entry that covers `block` of a zone, so that one begins there. A shared extent stays
/// whole, and stays in the victim until a copy of it finds room in one piece.
fn cut_at(state: &mut State, zone: u32, block: u32) {
    let covering = state.zones.slot(zone).owners(..block).next_back();
    let Some((start, owner @ Owner::Entry(ino, first))) = covering else { return };
    let reaches =
        state.stored_by(owner).is_some_and(|run| start as usize + run.crcs.len() > block as usize);
    if reaches {
        state.split_map(ino, first + u64::from(block - start));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::furrow::sample::formatted;
    use crate::furrow::{DataCheck, MountOptions, check};
    use crate::vfs::{Caller, FileKind, FileSystem, Ino, NewInode, WriteFlags};

    const BLOCKS: u64 = 1024;

    fn runs(fs: &Furrow) -> usize {
        fs.read_state().zones.slots.iter().map(super::super::alloc::ZoneSlot::runs).sum()
    }

    #[test]
    fn a_file_overwritten_at_random_has_fewer_extents_after_reclaim() {
        let (drive, clock) = formatted(32, 512);
        let fs = Furrow::mount(drive.clone(), clock, MountOptions::default()).unwrap();
        let new = NewInode { kind: FileKind::Regular, perm: 0o600, rdev: 0, target: b"" };
        let ino = fs.create(&Caller::ROOT, Ino::ROOT, b"file", &new).unwrap().ino;
        // 37 has no divisor in common with the size: every block once, far from the one before.
        let content = |block: u64| [u8::try_from(block % 251).unwrap(); BLOCK_BYTES];
        for turn in 0..BLOCKS {
            let block = turn * 37 % BLOCKS;
            let at = block * BLOCK_BYTES as u64;
            fs.write(ino, at, &content(block), WriteFlags::DIRECT).unwrap();
        }
        // A hole in the middle makes the zones worth emptying.
        let other = fs.create(&Caller::ROOT, Ino::ROOT, b"other", &new).unwrap().ino;
        fs.write(other, 0, &vec![1; 64 * BLOCK_BYTES], WriteFlags::DIRECT).unwrap();
        fs.fallocate(ino, crate::vfs::Allocate::Punch, 0, 64 * BLOCK_BYTES as u64).unwrap();
        fs.sync().unwrap();
        let before = runs(&fs);
        assert!(before > 900, "{before} extents");
        while fs.read_state().zones.find_victim(0, Urgency::Emergency).is_some() {
            let moved = fs.reclaim_some(u64::MAX, Urgency::Emergency).unwrap();
            assert!(moved > 0);
            fs.sync().unwrap();
        }
        let after = runs(&fs);
        assert!(after < before / 2, "{before} extents before reclaim, {after} after it");
        let mut data = vec![0; BLOCK_BYTES];
        for block in 64..BLOCKS {
            fs.read(ino, block * BLOCK_BYTES as u64, &mut data).unwrap();
            assert_eq!(data, content(block), "block {block}");
        }
        fs.shutdown().unwrap();
        let report = check(drive, DataCheck::Read, &mut |_| ()).unwrap();
        assert!(report.is_clean(), "{report:?}");
    }
}
