//! The throttle: gives writers room, and makes them reclaim while free space is short.
//!
//! A write holds a reservation before it begins. While there is little room, the writer also pays:
//! it moves blocks of victims in proportion to the blocks that it writes, by the recent
//! [price](zonal_placement::pace) of reclaim. All writers have one [debt](super::debt) together,
//! which the worker pays too. A writer that finds a whole step owed takes one, and another turn for
//! the next. If there is no room at all, writers wait in the order in which they came; the first of
//! them makes room, a step at a time, until it has enough.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use zonal::Clock;
use zonal_placement::pace::{Room, cost, price};

use crate::FsError;
use crate::furrow::metadata::State;
use crate::furrow::meters::Meters;
use crate::furrow::planted::mistake;
use crate::furrow::reclaim::Reclaimer;
use crate::furrow::reclaim::turns::Turns;
use crate::furrow::tree::Tree;
use crate::furrow::truncate::Truncator;
use crate::furrow::write::Writer;
use crate::furrow::write::reservation::Reservation;
use crate::furrow::zones::Urgency;
use crate::vfs::Result;

/// A writer that waits for room.
struct Waiting<'a>(&'a AtomicU32);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Gives writers room in the order in which they came, at a price while there is little.
pub(in crate::furrow) struct Throttle {
    tree: Arc<Tree>,
    writer: Arc<Writer>,
    truncator: Arc<Truncator>,
    reclaimer: Arc<Reclaimer>,
    meters: Arc<Meters>,
    clock: Arc<dyn Clock>,
    /// Writers that wait for room, in order. Only the first of them runs reclaim, and only it takes
    /// the room that this makes.
    making_room: Turns,
    /// How many writers wait for room, the first of them included.
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

    /// Runs an operation that adds rows once metadata has zones for them, and again as long as it
    /// finds no space and truncation frees some.
    pub(in crate::furrow) fn with_rows_reserved<T>(
        &self,
        run: impl FnMut() -> crate::vfs::Result<T>,
    ) -> crate::vfs::Result<T> {
        self.tree.check_writable()?;
        self.reclaimer.check_host()?;
        self.truncator.with_truncated_space(|| self.reserve_rows())?;
        self.truncator.with_truncated_space(run)
    }

    /// Reserves `blocks` blocks: the policy of a writer that needs room, from top to bottom. It may
    /// reclaim and commit, so it takes the state lock itself.
    pub(in crate::furrow) fn reserve(&self, blocks: u64) -> Result<Reservation<'_>> {
        let at_once = self.try_reserve(&mut self.tree.write_accounts(), blocks);
        self.reserve_further(blocks, at_once)
    }

    /// As [`reserve`](Self::reserve), for a caller that has tried
    /// [`try_reserve`](Self::try_reserve).
    pub(in crate::furrow) fn reserve_further<'a>(
        &'a self,
        blocks: u64,
        at_once: Option<Reservation<'a>>,
    ) -> Result<Reservation<'a>> {
        let mut reserved = match at_once {
            // There is room, and no writer waits for it.
            Some(reserved) => reserved,
            // Writers get room in the order in which they came. The first of them makes it, a step
            // of reclaim at a time, until it has enough; the others wait.
            None => {
                let _waiting = self.count_waiting();
                let _wait = self.meters.wait(&*self.clock);
                let _turn = self.making_room.take(|| 1);
                let mut attempts = self.reclaimer.attempts_max();
                loop {
                    if let Some(reserved) = self.take_room(&mut self.tree.write_accounts(), blocks)
                    {
                        break reserved;
                    }
                    attempts = attempts.checked_sub(1).ok_or(FsError::NoSpace)?;
                    self.reclaimer.make_room()?;
                }
            }
        };
        // While room is low, writers move blocks of victims in proportion to the blocks that they
        // write: so the next ones find room.
        if let Some(price) = reserved.take_price()
            && let Err(error) = self.pay(price)
        {
            // The writer has its room already.
            tracing::warn!(%error, "reclaim ahead of a write failed");
        }
        Ok(reserved)
    }

    /// Reserves blocks if there is enough room and no other writer waits for it.
    pub(in crate::furrow) fn try_reserve(
        &self,
        state: &mut State,
        blocks: u64,
    ) -> Option<Reservation<'_>> {
        let is_free = self.short_of_room.load(Ordering::Acquire) == 0;
        is_free.then(|| self.take_room(state, blocks)).flatten()
    }

    /// Reserves blocks if there is enough room, at a price if it is little.
    fn take_room(&self, state: &mut State, blocks: u64) -> Option<Reservation<'_>> {
        let Room { now: mut room, low } = self.tree.space.writer_room(state);
        mistake!(self.tree, AdmitAnything, room = 1 << 40);
        let rest = room.checked_sub(state.rows.totals.pending() + blocks)?;
        state.rows.totals.add_pending(blocks);
        let price = (rest < low).then(|| {
            // Writers have paid for zones that only wait for a commit.
            let room = Room { now: rest + state.zones.awaited_blocks(), low };
            let cost = if room.now < low { self.cost(state) } else { 0 };
            price(blocks, cost, room)
        });
        Some(Reservation::of_room(&self.tree, blocks, price))
    }

    /// The cost of a freed block: that of the last victims, or else of an average zone.
    fn cost(&self, state: &State) -> u64 {
        let last = self.meters.reclaimed();
        if last.victims > 0 {
            return cost(last.moved, last.freed);
        }
        let live = state.rows.totals.live();
        cost(live, state.zones.usable().saturating_sub(live))
    }

    /// Counts the caller among the writers that wait for room, until it drops the result.
    fn count_waiting(&self) -> Waiting<'_> {
        self.short_of_room.fetch_add(1, Ordering::AcqRel);
        Waiting(&self.short_of_room)
    }

    /// Waits until metadata has zones for more rows: enough that compaction can still run and all
    /// rows be deleted. Otherwise it compacts and reclaims until that is so; [`FsError::NoSpace`]
    /// if it never is. Deletions do without this check, since they free zones.
    pub(super) fn reserve_rows(&self) -> Result<()> {
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

    /// Reserves blocks for an operation that frees space and replaces blocks. If there is no room,
    /// they take space that stays free for reclaim.
    pub(in crate::furrow) fn reserve_for_shrinking(&self, blocks: u64) -> Reservation<'_> {
        self.reserve(blocks).unwrap_or_else(|error| {
            tracing::debug!(%error, "no room can be made; the operation frees space all the same");
            self.tree.write_accounts().rows.totals.add_pending(blocks);
            Reservation::of_room(&self.tree, blocks, None)
        })
    }

    /// Pays a price in steps of reclaim, once writers owe a whole step: no more than it costs.
    fn pay(&self, price: u64) -> Result<()> {
        self.tree.bell.wake_worker();
        if self.writer.reset_one() {
            return Ok(());
        }
        self.reclaimer.debt.add(price);
        if self.reclaimer.debt.is_step_owed() {
            let _wait = self.meters.wait(&*self.clock);
            for _ in 0..price.div_ceil(self.reclaimer.debt.step) {
                if !self.pay_step()? {
                    break;
                }
            }
        }
        if self.tree.bell.has_worker() { Ok(()) } else { self.reclaimer.free_emptied() }
    }

    /// Moves a step's blocks if writers owe a step, and returns whether they may owe another.
    fn pay_step(&self) -> Result<bool> {
        let _turn = self.reclaimer.reclaim_turn(Urgency::Normal);
        // Another thread may have paid meanwhile.
        if !self.reclaimer.debt.is_step_owed() {
            return Ok(false);
        }
        let moved = self.reclaimer.reclaim_in_turn(self.reclaimer.step_blocks, Urgency::Normal)?;
        if moved == 0 {
            // No victim is worth this price.
            self.reclaimer.debt.forgive();
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
        // No writer finds room.
        let taken = {
            let mut state = fs.tree.write_accounts();
            let taken = fs.tree.space.writer_room(&state).now;
            state.rows.totals.add_pending(taken);
            taken
        };
        let ended = AtomicU64::new(0);
        std::thread::scope(|scope| {
            let turn = fs.throttle.making_room.take(|| 1);
            for writer in 0..16_u64 {
                let (fs, ended) = (&fs, &ended);
                scope.spawn(move || {
                    let _admission = fs.throttle.reserve(1).unwrap();
                    ended.fetch_add(1, Ordering::Relaxed);
                });
                while fs.throttle.making_room.count() < writer + 2 {
                    assert_eq!(ended.load(Ordering::Relaxed), 0, "nobody overtakes");
                    std::thread::yield_now();
                }
                if writer == 8 {
                    // There is room again, for the waiting ones.
                    fs.tree.write_accounts().rows.totals.remove_pending(taken);
                }
            }
            drop(turn);
        });
        assert_eq!(ended.load(Ordering::Relaxed), 16);
        assert_eq!(fs.throttle.short_of_room.load(Ordering::Relaxed), 0);
        fs.throttle.reserve(1).unwrap();
    }
}
