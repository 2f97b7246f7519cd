//! Pacing: room for writes, and what they pay for it.
//!
//! A write holds room before it begins. While there is little, it also pays: it moves blocks of
//! victims in proportion to what it writes, by the [price](zonal_placement::pace) that reclaim has
//! lately had. What is owed is one account for all, which the worker pays off as well. Whoever
//! finds a whole step owed moves one, and takes another turn for the next. Where there is no room
//! at all, writers wait for it in the order in which they came; the first of them makes it, a step
//! at a time, until it has what it needs.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use zonal::Clock;
use zonal_placement::pace::{Room, STEP_BLOCKS, cost, price};

use crate::FsError;
use crate::furrow::metadata::State;
use crate::furrow::meters::Meters;
use crate::furrow::planted::PlantedBug;
use crate::furrow::reclaim::turns::Turns;
use crate::furrow::reclaim::{Reclaimer, STEP};
use crate::furrow::space::WriterRoom;
use crate::furrow::tree::Tree;
use crate::furrow::truncate::Truncator;
use crate::furrow::write::Writer;
use crate::furrow::write::admission::Admission;
use crate::furrow::zones::Urgency;
use crate::vfs::Result;

/// Room that was there, and what it costs.
pub(in crate::furrow) struct Admitted<'a> {
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

/// Gives writers room, in the order in which they came, and takes a price for it where there is
/// little.
pub(in crate::furrow) struct Throttle {
    tree: Arc<Tree>,
    writer: Arc<Writer>,
    truncator: Arc<Truncator>,
    reclaimer: Arc<Reclaimer>,
    meters: Arc<Meters>,
    clock: Arc<dyn Clock>,
    /// The turn of the writer that makes room; others wait, and take nothing of that room.
    making_room: Turns,
    /// Writers that wait for room, the one that makes it included.
    short_of_room: AtomicU32,
}

impl Throttle {
    pub(in crate::furrow) fn new(reclaimer: Arc<Reclaimer>) -> Self {
        Self {
            tree: Arc::clone(&reclaimer.tree),
            writer: Arc::clone(&reclaimer.writer),
            truncator: Arc::clone(&reclaimer.truncator),
            meters: Arc::clone(&reclaimer.meters),
            clock: Arc::clone(&reclaimer.log.clock),
            making_room: Turns::new(reclaimer.drive.planted),
            reclaimer,
            short_of_room: AtomicU32::new(0),
        }
    }

    /// How many writers wait for room.
    pub(in crate::furrow) fn waiting(&self) -> u32 {
        self.short_of_room.load(Ordering::Relaxed)
    }

    /// Runs an operation that adds rows once metadata has zones for them, and again as long as the
    /// rests of truncated files give space back.
    pub(in crate::furrow) fn with_rows_admitted<T>(
        &self,
        run: impl FnMut() -> crate::vfs::Result<T>,
    ) -> crate::vfs::Result<T> {
        self.tree.check_writable()?;
        self.truncator.with_reaped_space(|| self.admit_rows())?;
        self.truncator.with_reaped_space(run)
    }

    /// Holds room for `blocks` blocks: the policy of a writer that needs room, from top to bottom.
    /// Called between operations' changes, never with the state locked: reclaim commits.
    pub(in crate::furrow) fn admit(&self, blocks: u64) -> Result<Admission<'_>> {
        let at_once = self.admit_at_once(&mut self.tree.write_accounts(), blocks);
        self.admit_further(blocks, at_once)
    }

    /// The same for a writer that has tried to get room at once already.
    pub(in crate::furrow) fn admit_further<'a>(
        &'a self,
        blocks: u64,
        at_once: Option<Admitted<'a>>,
    ) -> Result<Admission<'a>> {
        let admitted = match at_once {
            // There is room, and no writer waits for it.
            Some(admitted) => admitted,
            // Writers get room in the order in which they came. The first of them makes it, a step
            // of reclaim at a time, until it has what it needs; the others wait.
            None => {
                let _waiting = self.count_waiting();
                let _wait = self.meters.wait(&*self.clock);
                let _turn = self.making_room.take(|| 1);
                let mut attempts = self.reclaimer.attempts_max();
                loop {
                    if let Some(admitted) = self.take_room(&mut self.tree.write_accounts(), blocks)
                    {
                        break admitted;
                    }
                    attempts = attempts.checked_sub(1).ok_or(FsError::NoSpace)?;
                    self.reclaimer.make_room()?;
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
    pub(in crate::furrow) fn admit_at_once(
        &self,
        state: &mut State,
        blocks: u64,
    ) -> Option<Admitted<'_>> {
        let is_free = self.short_of_room.load(Ordering::Acquire) == 0;
        is_free.then(|| self.take_room(state, blocks)).flatten()
    }

    /// Holds room if there is enough, at a price if it is little. More may be owed then: what was
    /// won is still to be given back.
    fn take_room(&self, state: &mut State, blocks: u64) -> Option<Admitted<'_>> {
        let WriterRoom { blocks: mut room, low_mark: low } = self.tree.space.writer_room(state);
        if self.tree.has_planted(PlantedBug::AdmitAnything) {
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
        Some(Admitted { admission: Admission::new(&self.tree, blocks), price })
    }

    /// What a block that is won costs: as the last victims have, or else as a zone on average
    /// would.
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
    pub(in crate::furrow) fn admit_rows(&self) -> Result<()> {
        let lacks_zones = || self.tree.space.lacks_zones_for_rows(&self.tree.read_state());
        if !lacks_zones() {
            return Ok(());
        }
        let _wait = self.meters.wait(&*self.clock);
        let _turn = self.making_room.take(|| 1);
        let mut attempts = self.reclaimer.attempts_max();
        while lacks_zones() {
            attempts = attempts.checked_sub(1).ok_or(FsError::NoSpace)?;
            self.reclaimer.make_room()?;
        }
        Ok(())
    }

    /// Holds room for blocks that replace others when space is given back. Where no room can be
    /// made, they take what is kept for reclaim.
    pub(in crate::furrow) fn admit_shrinking(&self, blocks: u64) -> Admission<'_> {
        self.admit(blocks).unwrap_or_else(|error| {
            tracing::debug!(%error, "no room can be made; space is given back all the same");
            self.tree.write_accounts().totals.pending += blocks;
            Admission::new(&self.tree, blocks)
        })
    }

    /// Pays a price, in steps: no more of them than it takes, and none unless a whole one is owed.
    fn pay(&self, price: u64) -> Result<()> {
        self.tree.bell.wake_worker();
        if self.writer.reset_one() {
            return Ok(());
        }
        self.reclaimer.debt.owed.fetch_add(price, Ordering::Relaxed);
        if self.reclaimer.debt.is_step_owed() {
            let _wait = self.meters.wait(&*self.clock);
            for _ in 0..price.div_ceil(STEP) {
                if !self.pay_step()? {
                    break;
                }
            }
        }
        if self.tree.bell.has_worker() { Ok(()) } else { self.reclaimer.free_emptied() }
    }

    /// Moves a step's blocks if so much is owed, and says whether more may be.
    fn pay_step(&self) -> Result<bool> {
        let _turn = self.reclaimer.reclaim_turn(Urgency::Normal);
        // Another may have paid meanwhile.
        if !self.reclaimer.debt.is_step_owed() {
            return Ok(false);
        }
        let moved = self.reclaimer.reclaim_in_turn(STEP_BLOCKS, Urgency::Normal)?;
        if moved == 0 {
            // At this price nothing is to be had.
            self.reclaimer.debt.owed.store(0, Ordering::Relaxed);
        }
        Ok(moved > 0)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use super::*;
    use crate::furrow::sample::formatted;
    use crate::furrow::{Furrow, MountOptions};

    #[test]
    fn throttle_is_fifo_when_space_is_short() {
        let (drive, clock) = formatted(64, 64);
        let fs = Furrow::mount(drive, clock, MountOptions::default()).unwrap();
        // Nobody finds room.
        let taken = {
            let mut state = fs.tree.write_accounts();
            let taken = fs.tree.space.writer_room(&state).blocks;
            state.totals.pending += taken;
            taken
        };
        let ended = AtomicU64::new(0);
        std::thread::scope(|scope| {
            let turn = fs.throttle.making_room.take(|| 1);
            for writer in 0..16_u64 {
                let (fs, ended) = (&fs, &ended);
                scope.spawn(move || {
                    let _admission = fs.throttle.admit(1).unwrap();
                    ended.fetch_add(1, Ordering::Relaxed);
                });
                while fs.throttle.making_room.count() < writer + 2 {
                    assert_eq!(ended.load(Ordering::Relaxed), 0, "nobody overtakes");
                    std::thread::yield_now();
                }
                if writer == 8 {
                    // There is room again, for those who wait.
                    fs.tree.write_accounts().totals.pending -= taken;
                }
            }
            drop(turn);
        });
        assert_eq!(ended.load(Ordering::Relaxed), 16);
        assert_eq!(fs.throttle.short_of_room.load(Ordering::Relaxed), 0);
        fs.throttle.admit(1).unwrap();
    }
}
