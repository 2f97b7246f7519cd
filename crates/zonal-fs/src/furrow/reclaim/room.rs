//! Making room for a writer that finds none: compact the table, reset zones, move blocks, commit.

use zonal_placement::pace::STEP_BLOCKS;

use super::Reclaimer;
use crate::FsError;
use crate::furrow::metadata::Ending;
use crate::furrow::zones::Urgency;
use crate::vfs::Result;

impl Reclaimer {
    /// Takes one step towards a free zone; [`FsError::NoSpace`] if no step helps.
    pub(in crate::furrow) fn make_room(&self) -> Result<()> {
        if self.merge_for_room() {
            return Ok(());
        }
        let (pending, emptied) = {
            let state = self.tree.read_state();
            (state.zones.has_pending_reset(), state.zones.has_emptied())
        };
        // Truncation frees blocks that reclaim would have to move.
        while !self.tree.read_state().zones.has_emptied() && self.truncator.truncate_one() {}
        if pending {
            // A commit is about to free zones, or has freed some.
            if !self.writer.reset_one() {
                drop(self.log.committer.lock().expect("no holder panicked"));
                self.writer.reset_one();
            }
            return Ok(());
        }
        if emptied {
            let pins = &self.drive.pins;
            pins.wait(|| {
                let zones = &self.tree.read_state().zones;
                zones.has_emptied() && !zones.has_idle_emptied(|zone| pins.is_idle(zone))
            })?;
            return self.log.commit(Ending::Record);
        }
        if self.tree.layout().open_zones > 1 {
            self.give_up_open();
        }
        let moved = match self.reclaim_some(self.step_blocks, Urgency::Emergency) {
            // A commit frees zones: no need to use up room that is reserved.
            Err(FsError::NoSpace) if self.tree.read_state().zones.has_emptied() => 0,
            outcome => outcome?,
        };
        let (has_changed, has_emptied) = {
            let state = self.tree.read_state();
            (!state.rows.batch.is_empty(), state.zones.has_emptied())
        };
        if moved > 0 && !has_emptied {
            return Ok(());
        }
        // Only rows of deleted files may keep zones in use.
        if moved == 0 && !has_changed && !has_emptied {
            let has_won = self.shrink_table()
                || self.writer.reset_again()
                || self.truncator.retry_failed()
                || self.retry_unread()?;
            return if has_won { Ok(()) } else { Err(FsError::NoSpace) };
        }
        self.log.commit(Ending::Record)
    }

    /// Checks that the host below the drive has room for new data. If it has none, gives it the
    /// space of dead zones first.
    pub(in crate::furrow) fn check_host(&self) -> Result<()> {
        if self.drive.check_host().is_ok() {
            return Ok(());
        }
        self.give_back()?;
        Ok(self.drive.check_host()?)
    }

    /// Gives the host below the drive the space of zones in which nothing lives.
    pub(in crate::furrow) fn give_back(&self) -> Result<()> {
        let is_idle = |zone| self.drive.pins.is_idle(zone);
        let has_emptied = self.tree.read_state().zones.has_idle_emptied(is_idle);
        let committed = if has_emptied { self.log.commit(Ending::Record) } else { Ok(()) };
        // Also after a failed commit, which may succeed with the space of earlier resets.
        while self.writer.reset_one() {}
        if self.drive.has_unflushed_resets() {
            self.drive.flush()?;
        }
        committed
    }

    /// Compacts the table if it has more zones than its rows need, because of deleted ones; returns
    /// whether that freed zones.
    fn shrink_table(&self) -> bool {
        let before = self.log.free_for_metadata();
        let is_beyond = self.tree.space.has_zones_beyond_plan(&self.tree.read_state());
        if is_beyond {
            self.log.compact_with_journal();
        }
        self.log.free_for_metadata() > before
    }

    /// Compacts as long as metadata has fewer zones left than it needs, or more than planned;
    /// returns whether that freed zones.
    fn merge_for_room(&self) -> bool {
        let lacks = || self.tree.space.is_table_too_large(&self.tree.read_state());
        let before = self.log.free_for_metadata();
        self.log.compact_while(lacks);
        self.log.free_for_metadata() > before
    }

    /// Steps after which a writer gives up: enough to empty every zone twice.
    pub(in crate::furrow) fn attempts_max(&self) -> usize {
        let steps = self.tree.layout().zone_blocks.div_ceil(STEP_BLOCKS) as usize + 1;
        (64 + 2 * self.tree.layout().geometry.zone_count() as usize) * steps
    }

    /// Seals an open zone with so many dead blocks that it is the best victim: deleted files must
    /// not keep their zones.
    fn give_up_open(&self) {
        let _beside = self.drive.lock_placing();
        let given_up = {
            let mut state = self.tree.write_accounts();
            let clock = state.rows.totals.data_clock();
            state.zones.give_up_open(clock)
        };
        if let Some(zone) = given_up {
            self.writer.finish_zone(zone);
        }
    }
}
