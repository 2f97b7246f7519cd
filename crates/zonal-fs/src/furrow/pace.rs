//! Pacing: room for writes, and what they pay for it.
//!
//! A write holds room before it begins. While there is little, it also pays: it moves blocks of victims in
//! proportion to what it writes, by the [price](zonal::placement::pace) that reclaim has lately had. What is
//! owed is one account for all, which the worker pays off as well. Whoever finds a whole step owed moves one,
//! and takes another turn for the next. Where there is no room at all, writers wait for it in the order in which
//! they came; the first of them makes it, a step at a time, until it has what it needs.

use std::sync::atomic::Ordering;

use zonal::placement::pace::{self, BLOCK, Room, STEP_BLOCKS, Usable, cost, price};

use super::Furrow;
use super::alloc::Urgency;
use super::committer::Ending;
use super::data::COMMIT_BYTES;
use super::planted::PlantedBug;
use super::state::State;
use super::step::Steps;
use crate::FsError;
use crate::vfs::Result;

/// What a step moves, in the unit of prices.
const STEP: u64 = STEP_BLOCKS as u64 * BLOCK;

/// Room on the drive that a running operation holds. What it does not use it gives back.
pub(super) struct Admission<'a> {
    fs: &'a Furrow,
    blocks: u64,
}

impl Admission<'_> {
    /// Hands `blocks` of the room to the state's buffer, which holds it from now on.
    pub(super) fn hand_over(&mut self, blocks: u64) {
        self.blocks = self.blocks.checked_sub(blocks).expect("an operation uses what it asked for");
    }
}

impl Drop for Admission<'_> {
    fn drop(&mut self) {
        // After a panic the lock is poisoned, and a second panic would hide the first.
        if self.blocks > 0 && !std::thread::panicking() {
            self.fs.write_accounts().totals.pending -= self.blocks;
        }
    }
}

impl Steps {
    /// Blocks have been moved, by whomever.
    pub(super) fn paid(&self, blocks: u64) {
        let less = |owed: u64| Some(owed.saturating_sub(blocks.saturating_mul(BLOCK)));
        let change = self.owed.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        change.expect("it always changes");
    }

    fn is_step_owed(&self) -> bool {
        self.owed.load(Ordering::Relaxed) >= STEP
    }
}

impl Furrow {
    /// Holds room for `blocks` blocks, reclaiming if there is none. Called between operations'
    /// changes, never with the state locked: reclaim commits.
    pub(super) fn admit(&self, blocks: u64) -> Result<Admission<'_>> {
        let admitted = if self.short_of_room.load(Ordering::Acquire) == 0 {
            self.admit_at_once(blocks)
        } else {
            None
        };
        let (admission, price) = match admitted {
            Some(admitted) => admitted,
            None => {
                self.short_of_room.fetch_add(1, Ordering::AcqRel);
                let outcome = self.admit_with_effort(blocks);
                self.short_of_room.fetch_sub(1, Ordering::AcqRel);
                outcome?
            }
        };
        if let Some(price) = price
            && let Err(error) = self.pay(price)
        {
            // The writer has its room already.
            tracing::warn!(%error, "reclaim ahead of a write failed");
        }
        Ok(admission)
    }

    /// Lets rows be added where the table can still be merged, and all of them be deleted, with the
    /// zones that are free; else it merges rows and moves blocks until that is so, or says that
    /// there is no space. Deletions are not asked: they lead to zones.
    pub(super) fn admit_rows(&self) -> Result<()> {
        if !self.lacks_zones_for_rows() {
            return Ok(());
        }
        let _wait = self.meters.wait(&*self.clock);
        let _turn = self.making_room.take(|| 1);
        let mut attempts = self.attempts_max();
        while self.lacks_zones_for_rows() {
            attempts = attempts.checked_sub(1).ok_or(FsError::NoSpace)?;
            self.make_room()?;
        }
        Ok(())
    }

    /// Holds room for blocks that replace others when space is given back. Where no room can be
    /// made, they take what is kept for reclaim.
    pub(super) fn admit_shrinking(&self, blocks: u64) -> Admission<'_> {
        self.admit(blocks).unwrap_or_else(|error| {
            tracing::debug!(%error, "no room can be made; space is given back all the same");
            self.write_accounts().totals.pending += blocks;
            Admission { fs: self, blocks }
        })
    }

    /// Holds room if there is enough, and says what is to be paid for it, if it is little. Nothing may be owed then
    /// too: what was won is still to be given back.
    fn admit_at_once(&self, blocks: u64) -> Option<(Admission<'_>, Option<u64>)> {
        let mut state = self.write_accounts();
        let room =
            if self.has_planted(PlantedBug::AdmitAnything) { 1 << 40 } else { self.room(&state) };
        let rest = room.checked_sub(state.totals.pending + blocks)?;
        state.totals.pending += blocks;
        // What only waits for a commit has been paid for.
        let now = rest + state.zones.awaited_blocks();
        let room = Room { now, low: self.low_mark(&state) };
        let cost = if room.now < room.low { self.cost(&state) } else { 0 };
        let price = (rest < room.low).then(|| price(blocks, cost, room));
        Some((Admission { fs: self, blocks }, price))
    }

    /// What a block that is won costs: as the last victims have, or else as a zone on average would.
    fn cost(&self, state: &State) -> u64 {
        let last = self.meters.reclaimed();
        if last.victims > 0 {
            return cost(last.moved, last.freed);
        }
        let live = state.totals.live;
        cost(live, state.zones.usable().saturating_sub(live))
    }

    fn admit_with_effort(&self, blocks: u64) -> Result<(Admission<'_>, Option<u64>)> {
        let _wait = self.meters.wait(&*self.clock);
        let _turn = self.making_room.take(|| 1);
        let mut attempts = self.attempts_max();
        loop {
            if let Some(admitted) = self.admit_at_once(blocks) {
                return Ok(admitted);
            }
            attempts = attempts.checked_sub(1).ok_or(FsError::NoSpace)?;
            self.make_room()?;
        }
    }

    /// Pays a price, in steps: no more of them than it takes, and none unless a whole one is owed.
    fn pay(&self, price: u64) -> Result<()> {
        self.wake_worker();
        if self.reset_one() {
            return Ok(());
        }
        self.steps.owed.fetch_add(price, Ordering::Relaxed);
        if self.steps.is_step_owed() {
            let _wait = self.meters.wait(&*self.clock);
            for _ in 0..price.div_ceil(STEP) {
                if !self.pay_step()? {
                    break;
                }
            }
        }
        if self.has_worker() { Ok(()) } else { self.free_emptied() }
    }

    /// Moves a step's blocks if so much is owed, and says whether more may be.
    fn pay_step(&self) -> Result<bool> {
        let _turn = self.reclaim_turn(Urgency::Normal);
        // Another may have paid meanwhile.
        if !self.steps.is_step_owed() {
            return Ok(false);
        }
        let moved = self.reclaim_in_turn(STEP_BLOCKS, Urgency::Normal)?;
        if moved == 0 {
            // At this price nothing is to be had.
            self.steps.owed.store(0, Ordering::Relaxed);
        }
        Ok(moved > 0)
    }

    /// Commits if zones in which nothing lives are needed, and resets one.
    pub(super) fn free_emptied(&self) -> Result<()> {
        if self.awaits_emptied(&self.read_state()) {
            self.commit(Ending::Record)?;
            self.reset_one();
        }
        Ok(())
    }

    /// Whether there are zones that only a commit gives back, and hardly one to be opened without them. Not only
    /// where all room is used up: else classes have to share zones meanwhile.
    pub(super) fn awaits_emptied(&self, state: &State) -> bool {
        state.zones.free_beside(self.kept_for_metadata(state)) <= 2
            && state.zones.has_idle_emptied(|zone| self.is_idle(zone))
    }

    /// Blocks that user writes can place without reclaim.
    pub(super) fn room(&self, state: &State) -> u64 {
        let kept = self.kept_for_metadata(state);
        // More may be written before reclaim needs it.
        state.zones.room((kept, self.least_for_metadata(state, kept, 2 * COMMIT_BYTES)))
    }

    /// Room below which writers pay.
    pub(super) fn low_mark(&self, state: &State) -> u64 {
        let layout = self.layout();
        let (blocks, zone_blocks) = (state.zones.usable(), u64::from(layout.zone_blocks));
        let metadata = self.meta_zones_wanted(state) * zone_blocks;
        let spare = blocks.saturating_sub(state.totals.live + metadata);
        pace::low_mark(Usable { blocks, spare, zone_blocks }, layout.open_zones)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use super::*;
    use crate::furrow::MountOptions;
    use crate::furrow::sample::formatted;

    #[test]
    fn who_wants_room_comes_behind_all_who_wait_for_it() {
        let (drive, clock) = formatted(64, 64);
        let fs = Furrow::mount(drive, clock, MountOptions::default()).unwrap();
        // Nobody finds room.
        let taken = {
            let mut state = fs.write_accounts();
            let taken = fs.room(&state);
            state.totals.pending += taken;
            taken
        };
        let ended = AtomicU64::new(0);
        std::thread::scope(|scope| {
            let turn = fs.making_room.take(|| 1);
            for writer in 0..16_u64 {
                let (fs, ended) = (&fs, &ended);
                scope.spawn(move || {
                    let _admission = fs.admit(1).unwrap();
                    ended.fetch_add(1, Ordering::Relaxed);
                });
                while fs.making_room.count() < writer + 2 {
                    assert_eq!(ended.load(Ordering::Relaxed), 0, "nobody overtakes");
                    std::thread::yield_now();
                }
                if writer == 8 {
                    // There is room again, for those who wait.
                    fs.write_accounts().totals.pending -= taken;
                }
            }
            drop(turn);
        });
        assert_eq!(ended.load(Ordering::Relaxed), 16);
        assert_eq!(fs.short_of_room.load(Ordering::Relaxed), 0);
        fs.admit(1).unwrap();
    }
}
