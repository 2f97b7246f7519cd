//! Pacing: room for writes, and what they pay for it.
//!
//! A write holds room before it begins. While there is little, it also pays: it moves blocks of victims in
//! proportion to what it writes, by the [price](zonal::placement::pace) that reclaim has lately had. What is
//! owed is one account for all, which the worker pays off as well. Whoever finds a whole step owed moves one,
//! and takes another turn for the next. Where there is no room at all, writers wait for it in the order in which
//! they came; the first of them makes it, a step at a time, until it has what it needs.

use std::sync::atomic::{AtomicU32, Ordering};

use zonal::placement::pace::{BLOCK, Room, STEP_BLOCKS, cost, price};

use super::Furrow;
use super::alloc::Urgency;
use super::committer::Ending;
use super::planted::PlantedBug;
use super::space::WriterRoom;
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

/// Room that was there, and what it costs.
pub(super) struct Admitted<'a> {
    admission: Admission<'a>,
    /// To be paid by the writer, in the unit of [prices](price).
    price: Option<u64>,
}

/// A writer that waits for room.
struct Waiting<'a>(&'a AtomicU32);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
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
    /// Holds room for `blocks` blocks: the policy of a writer that needs room, from top to bottom.
    /// Called between operations' changes, never with the state locked: reclaim commits.
    pub(super) fn admit(&self, blocks: u64) -> Result<Admission<'_>> {
        let at_once = self.admit_at_once(&mut self.write_accounts(), blocks);
        self.admit_further(blocks, at_once)
    }

    /// The same for a writer that has tried to get room at once already.
    pub(super) fn admit_further<'a>(
        &'a self,
        blocks: u64,
        at_once: Option<Admitted<'a>>,
    ) -> Result<Admission<'a>> {
        let admitted = match at_once {
            // There is room, and no writer waits for it.
            Some(admitted) => admitted,
            // Writers get room in the order in which they came. The first of them makes it, a step of
            // reclaim at a time, until it has what it needs; the others wait.
            None => {
                let _waiting = self.count_waiting();
                let _wait = self.meters.wait(&*self.clock);
                let _turn = self.making_room.take(|| 1);
                let mut attempts = self.attempts_max();
                loop {
                    if let Some(admitted) = self.take_room(&mut self.write_accounts(), blocks) {
                        break admitted;
                    }
                    attempts = attempts.checked_sub(1).ok_or(FsError::NoSpace)?;
                    self.make_room()?;
                }
            }
        };
        // Where room runs low, writers move blocks of victims in proportion to what they write: so
        // the next ones find room.
        if let Some(price) = admitted.price
            && let Err(error) = self.pay(price)
        {
            // The writer has its room already.
            tracing::warn!(%error, "reclaim ahead of a write failed");
        }
        Ok(admitted.admission)
    }

    /// Holds room if there is enough, and no other writer waits for it.
    pub(super) fn admit_at_once(&self, state: &mut State, blocks: u64) -> Option<Admitted<'_>> {
        let is_free = self.short_of_room.load(Ordering::Acquire) == 0;
        is_free.then(|| self.take_room(state, blocks)).flatten()
    }

    /// Holds room if there is enough, at a price if it is little. More may be owed then: what was won
    /// is still to be given back.
    fn take_room(&self, state: &mut State, blocks: u64) -> Option<Admitted<'_>> {
        let WriterRoom { blocks: mut room, low_mark: low } = self.space.writer_room(state);
        if self.has_planted(PlantedBug::AdmitAnything) {
            room = 1 << 40;
        }
        let rest = room.checked_sub(state.totals.pending + blocks)?;
        state.totals.pending += blocks;
        let price = (rest < low).then(|| {
            // What only waits for a commit has been paid for.
            let room = Room { now: rest + state.zones.awaited_blocks(), low };
            let cost = if room.now < room.low { self.cost(state) } else { 0 };
            price(blocks, cost, room)
        });
        Some(Admitted { admission: Admission { fs: self, blocks }, price })
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

    /// Counts the caller among the writers that wait for room, until the count is dropped.
    fn count_waiting(&self) -> Waiting<'_> {
        self.short_of_room.fetch_add(1, Ordering::AcqRel);
        Waiting(&self.short_of_room)
    }

    /// Lets rows be added where the table can still be merged, and all of them be deleted, with the
    /// zones that are free; else it merges rows and moves blocks until that is so, or says that
    /// there is no space. Deletions are not asked: they lead to zones.
    pub(super) fn admit_rows(&self) -> Result<()> {
        let lacks_zones = || self.space.lacks_zones_for_rows(&self.read_state());
        if !lacks_zones() {
            return Ok(());
        }
        let _wait = self.meters.wait(&*self.clock);
        let _turn = self.making_room.take(|| 1);
        let mut attempts = self.attempts_max();
        while lacks_zones() {
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
        let awaits = self.space.awaits_commit(&self.read_state(), |zone| self.is_idle(zone));
        if awaits {
            self.commit(Ending::Record)?;
            self.reset_one();
        }
        Ok(())
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
            let taken = fs.space.writer_room(&state).blocks;
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
