//! Reclaim: moves live blocks out of a victim so that the zone can be reset.
//!
//! A thread copies blocks without the state lock ([`relocation`]). Then, under the lock, it maps
//! their owners to the copies and leaves out blocks that were overwritten meanwhile. A victim is
//! reset after the commit that follows the last move (F3).
//!
//! This file takes the steps; [`Zones::find_victim`](crate::furrow::zones::Zones::find_victim) has
//! the policy and [`throttle`] makes writers reclaim. Each step is a turn: a thread that waits for
//! a turn gets it after one step of every thread before it. Where there are enough free zones,
//! several steps run at once, each with a [victim](crate::furrow::zones::victims) of its own.

pub(super) mod backref_scan;
mod debt;
mod relocation;
mod room;
pub(super) mod throttle;
pub(super) mod turns;

use std::sync::Arc;

use zonal::ZoneCond;

use crate::FsError;
use crate::furrow::drive::Drive;
use crate::furrow::log::Log;
use crate::furrow::metadata::Ending;
use crate::furrow::metadata::state::relocation::LiveRun;
use crate::furrow::meters::Meters;
use crate::furrow::options::Seeks;
use crate::furrow::planted::{PlantedBug, mistake};
use crate::furrow::reclaim::backref_scan::BackrefScan;
use crate::furrow::reclaim::debt::{Debt, step_blocks};
use crate::furrow::reclaim::turns::{Turn, Turns};
use crate::furrow::sync::Mutex;
use crate::furrow::tree::Tree;
use crate::furrow::truncate::Truncator;
use crate::furrow::write::Writer;
use crate::furrow::zones::backrefs::merge_sorted;
use crate::furrow::zones::victims::{HeldVictim, Underway, Victim};
use crate::furrow::zones::{Listed, Urgency};
use crate::vfs::Result;

/// Blocks that the worker copies at once where a jump costs nothing: 1 MiB.
const COPY_BLOCKS: u32 = 256;

/// Back-references that a step looks up, about. Few of them lead to anything in a zone where nearly
/// all blocks are dead, and each look takes a microsecond.
const LOOKS_MAX: u64 = 1024;

/// Zones that a step finds unreadable, at most, before it ends.
const UNREAD_MAX: usize = 4;

/// Moves blocks out of victims.
pub(super) struct Reclaimer {
    pub(super) tree: Arc<Tree>,
    pub(super) drive: Arc<Drive>,
    pub(super) writer: Arc<Writer>,
    pub(super) log: Arc<Log>,
    pub(super) truncator: Arc<Truncator>,
    pub(super) meters: Arc<Meters>,
    /// Turns of the threads that move blocks, one or several at once.
    reclaiming: Turns,
    /// Victims that are being emptied.
    underway: Underway,
    /// The scan for back-references under way. The thread that scans holds the lock.
    scanning: Mutex<Option<BackrefScan>>,
    debt: Debt,
    /// Blocks that a writer's step moves.
    step_blocks: u32,
    /// Victims that the mount has memory for at once.
    victims_in_memory: usize,
}

impl Reclaimer {
    pub(super) fn new(truncator: Arc<Truncator>, victims_in_memory: usize) -> Self {
        let log = Arc::clone(&truncator.log);
        let step_blocks = step_blocks(log.tree.layout());
        Self {
            tree: Arc::clone(&log.tree),
            drive: Arc::clone(&log.drive),
            meters: Arc::clone(&log.writer.meters),
            writer: Arc::clone(&log.writer),
            log,
            truncator,
            reclaiming: Turns::default(),
            underway: Underway::default(),
            scanning: Mutex::new(None),
            debt: Debt::new(step_blocks),
            step_blocks,
            victims_in_memory,
        }
    }

    /// Moves about `budget` blocks out of a victim, at most all of it, and returns how many moved.
    pub(super) fn reclaim_some(&self, budget: u32, urgency: Urgency) -> Result<u64> {
        let _turn = self.reclaim_turn(urgency);
        self.reclaim_in_turn(budget, urgency)
    }

    /// Blocks that the worker copies at once.
    pub(super) fn copy_blocks(&self) -> u32 {
        COPY_BLOCKS.max(self.step_blocks)
    }

    /// Waits for a turn at reclaim, of which several can run at once.
    fn reclaim_turn(&self, urgency: Urgency) -> Turn<'_> {
        self.reclaiming.take(|| match urgency {
            Urgency::Ahead | Urgency::Normal => self.victims_max(),
            // It needs every victim: no other thread may hold one.
            Urgency::Emergency | Urgency::Rescue => 1,
        })
    }

    /// How many victims may be emptied at once. Each may fill a zone before it is empty itself, and
    /// writers hold reservations for as many: where few zones are free, only one.
    fn victims_max(&self) -> usize {
        (self.spare_zones() / 2).clamp(1, self.victims_in_memory)
    }

    /// As [`reclaim_some`](Self::reclaim_some), for a caller that has the turn. [`LOOKS_MAX`] looks
    /// without a move count as one block.
    fn reclaim_in_turn(&self, budget: u32, urgency: Urgency) -> Result<u64> {
        let (mut moved, mut looks, mut unread) = (0, 0, 0);
        // On a disk the last few blocks of a step would cost two jumps.
        let enough = match self.tree.layout().seeks {
            Seeks::Free => u64::from(budget),
            Seeks::Cost => u64::from(budget).div_ceil(2),
        };
        while moved < enough {
            if looks >= LOOKS_MAX {
                return Ok(moved.max(1));
            }
            let room = self.tree.space.room_to_move(&self.tree.read_state(), urgency);
            if room == 0 {
                break;
            }
            let Some(mut victim) = self.choose_victim(urgency) else { break };
            let looks_before = victim.looks;
            let rest = (u64::from(budget) - moved).min(room);
            let most = self.copy_blocks().min(u32::try_from(rest).unwrap_or(u32::MAX));
            let outcome = self.empty_some(&mut victim, most, urgency);
            looks += victim.looks - looks_before;
            match outcome {
                Ok(blocks) => moved += blocks,
                Err(error @ FsError::Refused { .. }) => {
                    self.put_off(victim.zone, &error);
                    unread += 1;
                    if unread == UNREAD_MAX {
                        break;
                    }
                    continue;
                }
                Err(error) => return Err(error),
            }
            if !self.is_done(&victim) {
                victim.put_back();
                continue;
            }
            self.meters.victim_is_over(victim.zone, self.gain_of(&victim, urgency));
            if moved > 0 {
                break;
            } else if victim.found == 0 {
                self.handle_missing_backrefs(&victim);
            }
        }
        Ok(moved)
    }

    /// Moves blocks out of a victim, at most `most` or one shared extent; returns how many.
    fn empty_some(&self, victim: &mut Victim, most: u32, urgency: Urgency) -> Result<u64> {
        let Some(batch) = self.pin_live_blocks(victim, most, urgency)? else { return Ok(0) };
        let early = self.tree.planted.has(PlantedBug::UnpinBeforeMove);
        if early {
            self.drive.pins.unpin_zone(victim.zone);
        }
        let outcome = self.move_blocks(victim, &batch, urgency);
        if !early {
            self.drive.pins.unpin_zone(victim.zone);
        }
        let blocks = outcome?;
        self.meters.moved(victim.zone, blocks);
        self.debt.pay(blocks);
        if self.tree.read_state().zones.unread.has(victim.zone) {
            self.tree.write_accounts().zones.unread.settle(victim.zone);
        }
        Ok(blocks)
    }

    /// Leaves a zone alone for a pause: the device has refused to read data of it, or metadata that
    /// names its owners.
    fn put_off(&self, zone: u32, error: &FsError) {
        let mut is_lost = self.drive.cond(zone) == Some(ZoneCond::Offline);
        mistake!(self.tree, CondemnUnreadZone, is_lost = true);
        let mut state = self.tree.write_accounts();
        if is_lost {
            state.zones.slot_mut(zone).unreadable = true;
            tracing::error!(zone, %error, "reclaim cannot read a zone, which is offline");
        } else if state.zones.unread.put_off(zone, self.log.clock.monotonic_ns()) == 0 {
            tracing::error!(zone, %error, "reclaim cannot read a zone; it is tried again");
        }
    }

    /// Tries zones again that could not be read, whether or not their pauses are over: for a writer
    /// that finds no room otherwise. Returns whether any block moved.
    fn retry_unread(&self) -> Result<bool> {
        let zones = self.tree.read_state().zones.unread.by_last_attempt();
        if zones.is_empty() {
            return Ok(false);
        }
        {
            let mut state = self.tree.write_accounts();
            zones.into_iter().take(UNREAD_MAX).for_each(|zone| state.zones.unread.end_pause(zone));
        }
        Ok(self.reclaim_some(COPY_BLOCKS, Urgency::Emergency)? > 0)
    }

    /// The victim to empty: one under way, as long as it is worth it, or the best other zone.
    fn choose_victim(&self, urgency: Urgency) -> Option<HeldVictim<'_>> {
        let use_of = |victim: &Victim| self.tree.read_state().zones.use_of(victim, urgency);
        if let Some(victim) = self.underway.take(use_of) {
            return Some(victim);
        }
        for _ in 0..UNREAD_MAX {
            let mut victim = self.best_victim(urgency)?;
            // After those in memory: one that becomes a row in between is read twice, and never
            // missed.
            match self.tree.backref_rows(victim.zone) {
                Ok(records) => victim.records.extend(records),
                Err(error @ FsError::Refused { .. }) => {
                    self.put_off(victim.zone, &error);
                    continue;
                }
                Err(error) => {
                    tracing::error!(zone = victim.zone, %error, "a zone's owners cannot be read");
                }
            }
            merge_sorted(&mut victim.records);
            return Some(victim);
        }
        None
    }

    /// The best victim. For a writer without room a scan may make further zones victims.
    fn best_victim(&self, urgency: Urgency) -> Option<HeldVictim<'_>> {
        // By cost and benefit as long as reclaim has a zone to write to.
        let has_own_zone = self.tree.layout().open_zones > 1;
        let is_dire = !has_own_zone || self.spare_zones() == 0;
        let victim = match urgency {
            Urgency::Emergency if !is_dire => self.find_victim(Urgency::Normal),
            Urgency::Ahead | Urgency::Normal | Urgency::Emergency | Urgency::Rescue => None,
        };
        let victim = victim.or_else(|| self.find_victim(urgency));
        if victim.is_none() && urgency == Urgency::Emergency {
            self.scan_all();
            return self.find_victim(urgency);
        }
        victim
    }

    /// Free zones that metadata does not need.
    fn spare_zones(&self) -> usize {
        self.tree.space.spare_zones(&self.tree.read_state())
    }

    /// The best victim that no other thread has, with its back-references in memory.
    fn find_victim(&self, urgency: Urgency) -> Option<HeldVictim<'_>> {
        let now = self.log.clock.monotonic_ns();
        self.underway.choose(|others| {
            let state = self.tree.read_state();
            let mut excluded = state.zones.unread.paused(now);
            excluded.extend(others);
            let zone =
                state.zones.find_victim(state.rows.totals.data_clock(), urgency, &excluded)?;
            Some(Victim::new(zone, state.zones.slot(zone)))
        })
    }

    /// Whether a victim has no more blocks to move, as far as its back-references say.
    fn is_done(&self, victim: &Victim) -> bool {
        victim.is_through() || self.tree.read_state().zones.slot(victim.zone).live == 0
    }

    /// Blocks that users can write again once a victim is reset.
    fn gain_of(&self, victim: &Victim, urgency: Urgency) -> u32 {
        let state = self.tree.read_state();
        let slot = state.zones.slot(victim.zone);
        match urgency {
            Urgency::Ahead | Urgency::Normal | Urgency::Emergency => {
                slot.capacity.saturating_sub(slot.live)
            }
            Urgency::Rescue => 0,
        }
    }

    /// Handles live blocks of a victim that no back-reference leads to, because of a bug or of rows
    /// that cannot be read: a scan looks for them. If a scan has found nothing, the zone counts as
    /// unreadable and keeps its blocks.
    fn handle_missing_backrefs(&self, victim: &Victim) {
        let mut state = self.tree.write_accounts();
        let slot = state.zones.slot_mut(victim.zone);
        let is_same = slot.resets == victim.resets && slot.owners_mark() == victim.mark;
        if !is_same || slot.live == 0 {
            return;
        }
        tracing::error!(zone = victim.zone, live = slot.live, "owners of blocks are not listed");
        match slot.listed {
            Listed::Yes | Listed::No => slot.listed = Listed::No,
            Listed::Searched => slot.unreadable = true,
            Listed::SearchedInPart => {
                slot.listed = Listed::No;
                state.zones.unread.put_off(victim.zone, self.log.clock.monotonic_ns());
            }
        }
    }

    /// Returns the next live blocks of a victim, at most `most` or one shared extent, in the order
    /// of the zone. Pins the zone so that no thread resets and rewrites it during the copy. `None`
    /// if the zone is no victim any more.
    fn pin_live_blocks(
        &self,
        victim: &mut Victim,
        most: u32,
        urgency: Urgency,
    ) -> Result<Option<Vec<LiveRun>>> {
        {
            let state = self.tree.read_state();
            let is_same = state.zones.slot(victim.zone).resets == victim.resets;
            if !is_same || !state.zones.is_victim(victim.zone, urgency) {
                return Ok(None);
            }
            self.drive.pins.pin_zone(&*state, victim.zone);
        }
        let batch = self.next_runs(victim, most);
        if batch.is_err() {
            self.drive.pins.unpin_zone(victim.zone);
        }
        batch.map(Some)
    }

    fn next_runs(&self, victim: &mut Victim, most: u32) -> Result<Vec<LiveRun>> {
        let (mut batch, mut blocks) = (Vec::new(), 0);
        let looks_max = victim.looks + LOOKS_MAX;
        while let Some(record) = victim.next(most)
            && blocks < most
            && victim.looks < looks_max
        {
            // Other threads may change the map meanwhile: `relocate_part` looks again.
            let found = self
                .tree
                .loaded_if_there(|| self.tree.read_state().live_runs_of(victim.zone, &record));
            let runs = match found {
                Ok(runs) => runs.unwrap_or_default(),
                Err(error @ FsError::Corrupt { .. }) => {
                    tracing::error!(zone = victim.zone, %error, "blocks whose owner cannot be read stay");
                    Vec::new()
                }
                Err(error) => return Err(error),
            };
            let more: u32 = runs.iter().map(LiveRun::blocks).sum();
            if blocks > 0 && blocks + more > most {
                break;
            }
            blocks += more;
            victim.found += u64::from(more);
            batch.extend(runs);
            victim.pass(&record);
        }
        batch.sort_unstable_by_key(|run: &LiveRun| run.block);
        Ok(batch)
    }

    /// Commits if free zones are few and a commit would empty others; then resets one of those.
    pub(super) fn free_emptied(&self) -> Result<()> {
        let awaits = self
            .tree
            .space
            .awaits_commit(&self.tree.read_state(), |zone| self.drive.pins.is_idle(zone));
        if awaits {
            self.log.commit(Ending::Record)?;
            self.writer.reset_one();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use zonal_placement::pace::STEP_BLOCKS;

    use super::*;
    use crate::furrow::format::BLOCK_BYTES;
    use crate::furrow::sample::formatted;
    use crate::furrow::zones::victims::Use;
    use crate::furrow::{DataCheck, Furrow, MountOptions, check};
    use crate::vfs::{Caller, FileKind, FileSystem, Ino, NewInode, WriteFlags};

    const BLOCKS: u64 = 1024;

    fn runs(fs: &Furrow) -> usize {
        let state = fs.tree.read_state();
        state
            .inodes
            .iter()
            .filter_map(|(_, inode)| inode.file().ok())
            .map(|file| file.map.len())
            .sum()
    }

    /// A zone of which each of 4,000 blocks has a record, and only the last 100 live.
    fn nearly_dead() -> Furrow {
        let (drive, clock) = formatted(32, 4096);
        let fs = Furrow::mount(drive, clock, MountOptions::default()).unwrap();
        let new = NewInode { kind: FileKind::Regular, perm: 0o600, rdev: 0, target: b"" };
        let ino = fs.create(&Caller::ROOT, Ino::ROOT, b"file", &new).unwrap().ino;
        // 37 has no divisor in common with the size.
        for turn in 0..4000 {
            let at = turn * 37 % 4000 * BLOCK_BYTES as u64;
            fs.write(ino, at, &[1; BLOCK_BYTES], WriteFlags::DIRECT).unwrap();
        }
        let open = fs.tree.read_state().zones.open_zones().to_vec();
        for open in open {
            fs.tree.write_state().zones.seal(open.zone);
            fs.writer.finish_zone(open.zone);
        }
        // The records become rows, of all blocks.
        fs.sync().unwrap();
        for turn in 0..3900 {
            let at = turn * 37 % 4000 * BLOCK_BYTES as u64;
            fs.write(ino, at, &[2; BLOCK_BYTES], WriteFlags::DIRECT).unwrap();
        }
        fs.sync().unwrap();
        fs
    }

    /// How many records of the victim that waits were looked at.
    fn looks(fs: &Furrow) -> Option<u64> {
        let victim = fs.reclaimer.underway.take(|_| Use::Now)?;
        let looks = victim.looks;
        victim.put_back();
        Some(looks)
    }

    #[test]
    fn reclaim_step_scans_few_dead_backrefs() {
        let fs = nearly_dead();
        let (mut steps, mut seen) = (0, 0);
        while fs.reclaimer.reclaim_some(STEP_BLOCKS, Urgency::Normal).unwrap() > 0 {
            steps += 1;
            if let Some(looks) = looks(&fs) {
                assert!(looks - seen <= 2 * LOOKS_MAX, "{seen} to {looks} in a step");
                seen = looks;
            }
        }
        assert!((4..=8).contains(&steps), "{steps} steps for 4,000 records, {seen} seen");
    }

    #[test]
    fn reclaim_resumes_victim_after_failed_zone_scan() {
        let fs = nearly_dead();
        assert_eq!(fs.reclaimer.reclaim_some(STEP_BLOCKS, Urgency::Normal).unwrap(), 1);
        let before = looks(&fs);
        assert!(before.is_some());
        assert_eq!(fs.reclaimer.reclaim_some(STEP_BLOCKS, Urgency::Rescue).unwrap(), 0);
        assert_eq!(looks(&fs), before);
    }

    #[test]
    fn reclaim_reduces_extents_of_randomly_written_file() {
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
        let open = fs.tree.read_state().zones.open_zones().to_vec();
        for open in open {
            fs.tree.write_state().zones.seal(open.zone);
            fs.writer.finish_zone(open.zone);
        }
        let none = BTreeSet::new();
        while fs.tree.read_state().zones.find_victim(0, Urgency::Emergency, &none).is_some() {
            let moved = fs.reclaimer.reclaim_some(u32::MAX, Urgency::Emergency).unwrap();
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
